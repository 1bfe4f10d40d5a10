/* serve.c - calla serve: the model behind HTTP until SIGTERM or SIGINT. */
#include <stdio.h>
#include <string.h>

#include "base/progress.h"
#include "cli/cli.h"
#include "cli/common.h"
#include "server/server.h"

struct screen { struct calla_progress progress; const struct cli_options *o; };

static void on_listen(void *user, const char *url) {
    const struct screen *screen = user;
    printf("listening on %s\n", url);
    fflush(stdout);
    if (screen->o->no_key && screen->o->api_key == NULL)
        fprintf(stderr, "calla: WARNING: no API key: every machine that reaches this address may use the model\n");
}

static void on_ready(void *user, const char *line) {
    struct screen *screen = user;
    calla_progress_end(&screen->progress);
    fprintf(stderr, "%s\n", line);
}

static void on_log(void *user, const char *line) {
    struct screen *screen = user;
    calla_progress_end(&screen->progress);
    fprintf(stderr, "%s\n", line);
}

static void on_progress(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes) {
    struct screen *screen = user;
    calla_progress_put(&screen->progress, what, done_bytes, total_bytes);
}

int cmd_serve(const struct cli_options *o) {
    struct calla_err err = { 0 };
    struct screen screen = { .o = o };
    if (o->model == NULL) {
        fprintf(stderr, "calla: serve needs --model DIR\n");
        return CLI_USAGE;
    }
    if (o->api_key != NULL && *o->api_key == 0) {
        fprintf(stderr, "calla: --api-key is empty\n");
        return CLI_USAGE;
    }
    calla_progress_init(&screen.progress, 2);
    const struct server_options opt = {
        .model = { .model_dir = o->model, .backend = o->backend, .n_threads = o->threads, .ctx_tokens = o->ctx, .max_rows = o->rows,
                   .log = on_log, .progress = on_progress, .user = &screen },
        .host = o->host, .port = o->port, .api_key = o->api_key, .no_key = o->no_key, .cors = o->cors, .n_queue = o->queue,
        .script = o->script, .on_listen = on_listen, .on_ready = on_ready, .user = &screen };
    return server_run(&opt, &err) == 0 ? CLI_OK : cli_fail(&err);
}
