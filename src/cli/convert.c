/* convert.c - `calla convert`: an original bf16 checkpoint to 4 bits, once. */
#include "cli/cli.h"

#include "base/progress.h"
#include "model/convert.h"

#include <stdio.h>

static void log_line(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "calla: %s\n", line);
}

int cmd_convert(const struct cli_options *o) {
    struct calla_progress progress;
    struct calla_err err;

    if (o->in == NULL || o->out == NULL) {
        fprintf(stderr, "calla: convert: --in DIR and --out DIR are needed\n");
        return CLI_USAGE;
    }
    const struct calla_convert_options opt = { .n_threads = o->threads, .log = log_line,
                                               .progress = calla_progress_put, .user = &progress };
    calla_progress_init(&progress, 2);
    const int rc = calla_convert(o->in, o->out, &opt, &err);
    calla_progress_end(&progress);
    if (rc != 0) return cli_fail(&err);
    fprintf(stderr, "%s: written, layout mlx, 4 bits\n", o->out);
    return CLI_OK;
}
