/* cli.h - options and commands of the program.
 *
 * options.c holds the one table from which parsing and --help are made; a
 * command is one file and one row of the table in main.c. */
#ifndef CALLA_CLI_CLI_H
#define CALLA_CLI_CLI_H

#include "calla.h"

struct cli_options {
    const char *command;
    const char *model, *tokenizer, *in, *out, *shape, *layout, *prompt, *backend, *mode, *host, *api_key, *cors, *against;
    const char *script;             /* test build only                              */
    int   layers, ctx, n, top, port, threads, rows, bits, reps, queue, items;
    int   n_prompt[16], n_gen[16], depth[16], n_rows[16];   /* lists, ended by -1   */
    long long seed;                 /* -1: not given                                */
    float temperature, top_p, min_p; int top_k;             /* negative: not given  */
    bool  jsonl, json, raw, greedy, served, no_think, no_key, quick, verbose;
};

/* Exit codes: 0, 1 (failed, reason on stderr), 2 (bad usage). */
enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

enum cli_kind { CLI_STRING, CLI_INT, CLI_INT64, CLI_FLOAT, CLI_FLAG, CLI_LIST };

struct cli_option {
    const char *name;               /* "model"; with one leading blank for -n style ("-p" is " p") */
    const char *argument;           /* "DIR", NULL for a flag                       */
    const char *help;
    enum cli_kind kind;
    size_t offset;
    double min, max;                /* of numbers                                   */
    const char *commands;           /* " run chat serve " or NULL: all              */
};

struct cli_command { const char *name, *summary; int (*run)(const struct cli_options *o); };

/* 0, or CLI_USAGE with a line on stderr; *help is set when the help of the command was asked for. */
int  cli_parse(struct cli_options *o, int argc, char **argv, const struct cli_command *commands, bool *help);
void cli_help(const struct cli_command *commands, const char *command);

/* "calla: message" on stderr; returns CLI_FAILED. */
int cli_fail(const struct calla_err *err);

int cmd_tokenize(const struct cli_options *o);
int cmd_render(const struct cli_options *o);
int cmd_parse(const struct cli_options *o);
int cmd_inspect(const struct cli_options *o);
int cmd_synth(const struct cli_options *o);
int cmd_convert(const struct cli_options *o);
int cmd_logits(const struct cli_options *o);
int cmd_run(const struct cli_options *o);
int cmd_chat(const struct cli_options *o);
int cmd_serve(const struct cli_options *o);
int cmd_bench(const struct cli_options *o);
int cmd_eval(const struct cli_options *o);

#endif
