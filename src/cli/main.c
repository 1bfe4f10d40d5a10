/* main.c - the program: picks the command. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const struct cli_command commands[] = {
    { "inspect", "what a checkpoint holds and needs, and whether it is sound", cmd_inspect },
    { "tokenize", "text on stdin to ids", cmd_tokenize },
    { "render", "a chat request on stdin to its prompt and ids", cmd_render },
    { "parse", "splits a model's answer into reasoning, content and tool calls", cmd_parse },
    { "run", "one question, one answer", cmd_run },
    { "chat", "a conversation in the terminal", cmd_chat },
    { "serve", "the model behind HTTP, for OpenAI clients", cmd_serve },
    { "bench", "tokens a second", cmd_bench },
    { "logits", "the best logits at every position of given ids", cmd_logits },
    { "eval", "perplexity, accuracy on a held-out set, agreement with another run", cmd_eval },
    { "synth", "writes a random checkpoint", cmd_synth },
    { "convert", "an original bf16 checkpoint to 4 bits, once", cmd_convert },
    { NULL, NULL, NULL }
};

int main(int argc, char **argv) {
    struct cli_options o;
    bool help;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        cli_help(commands, NULL);
        return argc < 2 ? CLI_USAGE : CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("calla %s\n", calla_version());
        return CLI_OK;
    }
    const int rc = cli_parse(&o, argc, argv, commands, &help);
    if (rc != 0) return rc;
    if (help) {
        cli_help(commands, o.command);
        return CLI_OK;
    }
    for (const struct cli_command *c = commands; c->name != NULL; c++)
        if (strcmp(c->name, o.command) == 0) return c->run(&o);
    return CLI_USAGE;
}
