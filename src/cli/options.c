/* options.c - the one table of options: parsing and help come from it. */
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct cli_options, field)
#define RUNS " run chat serve bench logits eval "

static const struct cli_option options[] = {
    { "model", "DIR", "folder of the checkpoint", CLI_STRING, AT(model), 0, 0,
      RUNS "inspect tokenize render parse " },
    { "tokenizer", "FILE", "a tokenizer.json, plain or .zst", CLI_STRING, AT(tokenizer), 0, 0, " tokenize render synth " },
    { "in", "DIR", "checkpoint to read", CLI_STRING, AT(in), 0, 0, " convert " },
    { "out", "DIR", "folder to write; made if missing", CLI_STRING, AT(out), 0, 0, " convert synth " },
    { "in", "FILE", "a text, or JSON lines with items of tasks", CLI_STRING, AT(in), 0, 0, " eval " },
    { "out", "FILE", "where the logits of texts go, for --against", CLI_STRING, AT(out), 0, 0, " eval " },
    { "against", "FILE", "logits of another run, as --out writes them", CLI_STRING, AT(against), 0, 0, " eval " },
    { "items", "N", "most items of a task; default all", CLI_INT, AT(items), 1, 1e9, " eval " },
    { "shape", "NAME", "tiny, demo or full", CLI_STRING, AT(shape), 0, 0, " synth " },
    { "layout", "NAME", "mlx (4 bit) or hf (bf16); default mlx", CLI_STRING, AT(layout), 0, 0, " synth " },
    { "layers", "N", "fewer layers than the shape has, a multiple of 4", CLI_INT, AT(layers), 4, 1000, " synth " },
    { "bits", "N", "bits of a quantised weight: 4", CLI_INT, AT(bits), 4, 4, " convert " },
    { "backend", "NAME", "auto, cpu or reference; default auto", CLI_STRING, AT(backend), 0, 0, RUNS },
    { "threads", "N", "worker threads; default one a core", CLI_INT, AT(threads), 1, 1024, RUNS "synth convert " },
    { "ctx", "N", "tokens of a conversation, prompt and answer; default what fits", CLI_INT, AT(ctx), 1, 262144, RUNS "inspect " },
    { "rows", "N", "most rows in one step; default 512", CLI_INT, AT(rows), 1, 16384, RUNS },
    { "prompt", "TEXT", "what the user says", CLI_STRING, AT(prompt), 0, 0, " run " },
    { "raw", NULL, "the prompt is a bare completion, not a message", CLI_FLAG, AT(raw), 0, 0, " run " },
    { "no-think", NULL, "answer without thinking", CLI_FLAG, AT(no_think), 0, 0, " run chat " },
    { "n", "N", "most tokens of an answer; default what the context leaves", CLI_INT, AT(n), 0, 262144, " run chat " },
    { "greedy", NULL, "always the most likely token", CLI_FLAG, AT(greedy), 0, 0, " run chat " },
    { "seed", "N", "seed of the draws or of the random weights", CLI_INT64, AT(seed), 0, 9.2e18, " run chat synth bench " },
    { "temperature", "T", "default: the checkpoint's generation_config.json", CLI_FLOAT, AT(temperature), 0, 100, " run chat " },
    { "top-k", "N", "default as above; 0: off", CLI_INT, AT(top_k), 0, 1e9, " run chat " },
    { "top-p", "P", "default as above; 1: off", CLI_FLOAT, AT(top_p), 0, 1, " run chat " },
    { "min-p", "P", "default 0: off", CLI_FLOAT, AT(min_p), 0, 1, " run chat " },
    { "json", NULL, "one JSON object on stdout", CLI_FLAG, AT(json), 0, 0, " run inspect " },
    { "jsonl", NULL, "a JSON value a line", CLI_FLAG, AT(jsonl), 0, 0, " tokenize render parse bench eval " },
    { "served", NULL, "normalise the request first, as the server does", CLI_FLAG, AT(served), 0, 0, " render " },
    { "top", "K", "best ids of each position; default 8", CLI_INT, AT(top), 1, 4096, " logits eval " },
    { "mode", "NAME", "prefill (many rows a step) or decode (one); default prefill", CLI_STRING, AT(mode), 0, 0, " logits " },
    { "host", "A", "address to listen on; default 127.0.0.1", CLI_STRING, AT(host), 0, 0, " serve " },
    { "port", "N", "default 8080; 0: any free one", CLI_INT, AT(port), 0, 65535, " serve " },
    { "api-key", "KEY", "requests must carry it as a bearer token", CLI_STRING, AT(api_key), 0, 0, " serve " },
    { "no-key", NULL, "other machines may come without a key", CLI_FLAG, AT(no_key), 0, 0, " serve " },
    { "cors", "ORIGINS", "origins that a browser may call from, comma separated; default none", CLI_STRING, AT(cors), 0, 0, " serve " },
    { "queue", "N", "requests that may wait; default 64", CLI_INT, AT(queue), 0, 65536, " serve " },
#ifdef CALLA_TEST_HOOKS
    { "script", "FILE", "ids to emit in place of the model's, a JSON array a line and request", CLI_STRING, AT(script), 0, 0, " serve " },
#endif
    { " p", "N,..", "prompt tokens; default 512", CLI_LIST, AT(n_prompt), 0, 262144, " bench " },
    { " n", "N,..", "generated tokens; default 64", CLI_LIST, AT(n_gen), 0, 262144, " bench " },
    { " d", "N,..", "tokens already in the context; default 0", CLI_LIST, AT(depth), 0, 262144, " bench " },
    { " b", "N,..", "sequences that run together; default 1", CLI_LIST, AT(n_rows), 1, 64, " bench " },
    { " r", "N", "repetitions; default 3", CLI_INT, AT(reps), 1, 1000, " bench " },
    { "verbose", NULL, "say more on stderr", CLI_FLAG, AT(verbose), 0, 0, NULL },
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static bool belongs(const struct cli_option *o, const char *command) {
    char needle[64];
    if (o->commands == NULL) return true;
    snprintf(needle, sizeof needle, " %s ", command);
    return strstr(o->commands, needle) != NULL;
}

static const struct cli_option *find(const char *command, const char *arg, size_t n) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct cli_option *o = &options[i];
        if (!belongs(o, command)) continue;
        if (o->name[0] == ' ' ? (n == 2 && arg[0] == '-' && arg[1] == o->name[1])
                              : (n > 2 && strncmp(arg, "--", 2) == 0 && strlen(o->name) == n - 2 &&
                                 strncmp(arg + 2, o->name, n - 2) == 0))
            return o;
    }
    return NULL;
}

static bool number(const struct cli_option *o, const char *text, double *v) {
    char *end;
    errno = 0;
    *v = strtod(text, &end);
    return end != text && *end == 0 && errno == 0 && isfinite(*v) && *v >= o->min && *v <= o->max &&
           (o->kind == CLI_FLOAT || *v == floor(*v));
}

static bool store(struct cli_options *out, const struct cli_option *o, const char *text) {
    char *field = (char *)out + o->offset;
    double v;
    switch (o->kind) {
    case CLI_FLAG: *(bool *)field = true; return true;
    case CLI_STRING: memcpy(field, &text, sizeof text); return true;
    case CLI_INT: if (!number(o, text, &v)) return false; *(int *)field = (int)v; return true;
    case CLI_INT64: {
        char *end;
        errno = 0;
        const long long i = strtoll(text, &end, 10);
        if (end == text || *end != 0 || errno != 0 || i < 0) return false;
        *(long long *)field = i;
        return true;
    }
    case CLI_FLOAT: if (!number(o, text, &v)) return false; *(float *)field = (float)v; return true;
    case CLI_LIST: {
        char copy[256];
        int n = 0;
        if (strlen(text) >= sizeof copy) return false;
        strcpy(copy, text);
        for (char *save = NULL, *p = strtok_r(copy, ",", &save); p != NULL; p = strtok_r(NULL, ",", &save)) {
            if (n == 15 || !number(o, p, &v)) return false;
            ((int *)field)[n++] = (int)v;
        }
        ((int *)field)[n] = -1;
        return n > 0;
    }
    }
    return false;
}

static int usage(const char *fmt, const char *a, const char *b) {
    fprintf(stderr, "calla: ");
    fprintf(stderr, fmt, a, b);
    fprintf(stderr, "\n");
    return CLI_USAGE;
}

int cli_parse(struct cli_options *out, int argc, char **argv, const struct cli_command *commands, bool *help) {
    *out = (struct cli_options){ .seed = -1, .temperature = -1, .top_p = -1, .min_p = -1, .top_k = -1, .n = -1,
                                 .port = 8080, .top = 8, .reps = 3, .queue = 64, .bits = 4,
                                 .n_prompt = { -1 }, .n_gen = { -1 }, .depth = { -1 }, .n_rows = { -1 } };
    *help = false;
    out->command = argv[1];
    bool known = false;
    for (const struct cli_command *c = commands; c->name != NULL; c++) known |= strcmp(c->name, argv[1]) == 0;
    if (!known) return usage("unknown command '%s'; calla --help lists them%s", argv[1], "");
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            *help = true;
            return 0;
        }
        const char *eq = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
        const size_t n = eq ? (size_t)(eq - argv[i]) : strlen(argv[i]);
        const struct cli_option *o = find(out->command, argv[i], n);
        if (o == NULL) return usage("%s: unknown option '%s'", out->command, argv[i]);
        const char *value = eq ? eq + 1 : NULL;
        if (o->argument == NULL && value != NULL) return usage("option %s takes no value%s", argv[i], "");
        if (o->argument != NULL && value == NULL) {
            if (i + 1 >= argc) return usage("option %s needs a value (%s)", argv[i], o->argument);
            value = argv[++i];
        }
        if (!store(out, o, value)) {
            fprintf(stderr, "calla: option %.*s: '%s' is not ", (int)n, eq ? argv[i] : argv[i - (o->argument != NULL)], value);
            if (o->kind == CLI_INT64) fprintf(stderr, "a whole number from 0 on\n");
            else fprintf(stderr, "a %snumber from %g to %g%s\n", o->kind == CLI_FLOAT ? "" : "whole ", o->min, o->max,
                         o->kind == CLI_LIST ? " (or a list of at most 15, with commas)" : "");
            return CLI_USAGE;
        }
    }
    return 0;
}

void cli_help(const struct cli_command *commands, const char *command) {
    if (command == NULL) {
        printf("calla %s: runs Qwen3.6-35B-A3B\n\nusage: calla COMMAND [options]\n\n", calla_version());
        for (const struct cli_command *c = commands; c->name != NULL; c++) printf("  %-10s %s\n", c->name, c->summary);
        printf("\ncalla COMMAND --help lists a command's options; calla --version prints the version.\n");
        return;
    }
    for (const struct cli_command *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, command) == 0) printf("calla %s: %s\n\n", c->name, c->summary);
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct cli_option *o = &options[i];
        if (!belongs(o, command)) continue;
        char left[64];
        snprintf(left, sizeof left, "%s%s%s%s", o->name[0] == ' ' ? "-" : "--", o->name + (o->name[0] == ' '),
                 o->argument ? " " : "", o->argument ? o->argument : "");
        printf("  %-22s %s\n", left, o->help);
    }
}

int cli_fail(const struct calla_err *err) {
    fprintf(stderr, "calla: %s\n", err->message);
    return CLI_FAILED;
}
