#include "cli/common.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/progress.h"

struct talk { struct calla_progress progress; bool quiet; };   /* what opening a model says on stderr */

static void log_line(void *user, const char *line) {
    struct talk *t = user;
    calla_progress_end(&t->progress);
    if (!t->quiet) fprintf(stderr, "%s\n", line);
}

static void show_progress(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes) {
    struct talk *t = user;
    calla_progress_put(&t->progress, what, done_bytes, total_bytes);
}

static bool has_tokenizer(const char *dir) {
    static const char *const names[] = { "tokenizer.json", "tokenizer.json.zst" };
    char path[4096];
    for (int i = 0; i < 2; i++) {
        const int n = snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0) return true;
    }
    return false;
}

int cli_model_open(struct cli_model *m, const struct cli_options *o, const struct cli_model_options *want, struct calla_err *err) {
    struct talk talk = { .quiet = want->quiet };
    int rc = 0;
    *m = (struct cli_model){ 0 };
    if (o->model == NULL) return calla_fail(err, CALLA_ERR_ARGUMENT, "%s needs --model DIR", o->command);
    if (has_tokenizer(o->model)) rc = calla_tokenizer_open(&m->tokenizer, o->model, err);
    else if (want->needs_text)
        rc = calla_fail(err, CALLA_ERR_IO, "%s has no tokenizer.json, and %s needs text; bench and logits work on ids alone", o->model, o->command);
    if (rc == 0) {
        const struct calla_options opt = {
            .model_dir = o->model, .backend = o->backend, .n_threads = o->threads, .ctx_tokens = o->ctx, .max_rows = o->rows,
            .n_sequences = want->n_sequences, .cache_bytes = want->no_cache ? 1 : 0,
            .n_usable_ids = m->tokenizer ? calla_tokenizer_n_ids(m->tokenizer) : 0, .log = log_line, .progress = show_progress, .user = &talk };
        calla_progress_init(&talk.progress, 2);
        rc = calla_model_open(&m->model, &opt, err);
        calla_progress_end(&talk.progress);
    }
    if (rc == 0) calla_model_info(m->model, &m->info);
    else cli_model_close(m);
    return rc;
}

void cli_model_close(struct cli_model *m) {
    calla_model_close(&m->model);
    calla_tokenizer_close(&m->tokenizer);
}

static uint64_t new_seed(void) {
    uint64_t seed = calla_now_ns();
    const int fd = open("/dev/urandom", O_RDONLY);
    if (fd >= 0) {
        if (read(fd, &seed, sizeof seed) != (ssize_t)sizeof seed) seed = calla_now_ns();
        close(fd);
    }
    return seed >> 1;                /* --seed can say it again                      */
}

struct calla_sampling cli_sampling(const struct cli_options *o, const struct calla_model_info *info) {
    struct calla_sampling s = info->sampling;
    if (o->temperature >= 0) s.temperature = o->temperature;
    if (o->top_k >= 0) s.top_k = o->top_k;
    if (o->top_p >= 0) s.top_p = o->top_p;
    if (o->min_p >= 0) s.min_p = o->min_p;
    if (o->greedy) s.temperature = 0;
    s.seed = o->seed >= 0 ? (uint64_t)o->seed : new_seed();
    return s;
}

int cli_read_line(FILE *f, struct calla_buf *line, struct calla_err *err) {
    int c;
    calla_buf_clear(line);
    while ((c = getc_unlocked(f)) != EOF && c != '\n') calla_buf_char(line, (char)c);
    if (line->failed) return calla_fail(err, CALLA_ERR_LIMIT, "a line is longer than %zu bytes", line->limit ? line->limit : CALLA_BUF_LIMIT);
    if (c == EOF && ferror(f)) return calla_fail(err, CALLA_ERR_IO, "cannot read stdin: %s", strerror(errno));
    return c != EOF || line->n > 0;
}

int cli_ids_from_json(struct calla_ids *out, const char *text, size_t n, struct calla_err *err) {
    struct json_object *array;
    int rc = calla_json_parse(text ? text : "", n, &array, err);
    if (rc != 0) return rc;
    if (!json_object_is_type(array, json_type_array)) rc = calla_fail(err, CALLA_ERR_FORMAT, "expected a JSON array of ids");
    for (size_t i = 0; rc == 0 && i < json_object_array_length(array); i++) {
        struct json_object *v = json_object_array_get_idx(array, i);
        const int64_t id = json_object_get_int64(v);
        if (!json_object_is_type(v, json_type_int) || id < 0 || id > INT32_MAX)
            rc = calla_fail(err, CALLA_ERR_FORMAT, "element %zu is not an id", i);
        else if (!calla_ids_add(out, (int32_t)id)) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu ids", i);
    }
    json_object_put(array);
    return rc;
}

void cli_print_number(struct calla_buf *out, double v, int digits) {
    char text[40];
    if (!isfinite(v)) {
        calla_buf_str(out, "null");
        return;
    }
    snprintf(text, sizeof text, "%.*g", digits, v);
    for (char *p = text; *p != 0; p++)
        if (*p == ',') *p = '.';
    calla_buf_str(out, text);
}

void cli_print_ids(struct calla_buf *out, const int32_t *ids, size_t n) {
    calla_buf_char(out, '[');
    for (size_t i = 0; i < n; i++) calla_buf_fmt(out, "%s%d", i ? ", " : "", (int)ids[i]);
    calla_buf_char(out, ']');
}
