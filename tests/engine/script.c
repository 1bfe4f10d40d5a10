#include "engine/script.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

void calla_script_free(struct calla_script *s) {
    for (int i = 0; i < s->n_lines; i++) free(s->lines[i].ids);
    free(s->lines);
    *s = (struct calla_script){ 0 };
}

static int number(struct json_object *o, const char *name, int missing) {
    struct json_object *v;
    return json_object_object_get_ex(o, name, &v) ? json_object_get_int(v) : missing;
}

static int read_line(struct calla_script_line *line, const char *text, size_t n, int n_vocab, struct calla_err *err) {
    struct json_object *value, *ids;
    int rc = calla_json_parse(text, n, &value, err);
    if (rc != 0) return rc;
    *line = (struct calla_script_line){ .fail_after = -1 };
    ids = value;
    if (json_object_is_type(value, json_type_object)) {
        line->prefill_delay_ms = number(value, "prefill_delay_ms", 0);
        line->decode_delay_ms = number(value, "decode_delay_ms", 0);
        line->fail_after = number(value, "fail_after", -1);
        if (!json_object_object_get_ex(value, "ids", &ids)) ids = NULL;
    }
    if (ids != NULL && !json_object_is_type(ids, json_type_array)) rc = calla_fail(err, CALLA_ERR_FORMAT, "not an array of ids");
    const size_t n_ids = rc == 0 && ids != NULL ? json_object_array_length(ids) : 0;
    line->ids = malloc((n_ids + 1) * sizeof *line->ids);
    if (line->ids == NULL) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu ids", n_ids);
    for (size_t i = 0; rc == 0 && i < n_ids; i++) {
        const int64_t id = json_object_get_int64(json_object_array_get_idx(ids, i));
        if (id < 0 || id >= n_vocab) rc = calla_fail(err, CALLA_ERR_FORMAT, "id %lld of %d", (long long)id, n_vocab);
        line->ids[line->n_ids++] = (int32_t)id;
    }
    json_object_put(value);
    return rc;
}

int calla_script_read(struct calla_script *s, const char *path, int n_vocab, struct calla_err *err) {
    struct calla_buf text = { 0 };
    char chunk[4096];
    int rc = 0;
    *s = (struct calla_script){ 0 };
    FILE *f = fopen(path, "r");
    if (f == NULL) return calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;) calla_buf_add(&text, chunk, n);
    fclose(f);
    for (char *p = text.data; rc == 0 && p != NULL && *p != 0;) {
        char *end = strchr(p, '\n');
        const size_t n = end ? (size_t)(end - p) : strlen(p);
        if (n > 0) {
            struct calla_script_line *more = realloc(s->lines, (size_t)(s->n_lines + 1) * sizeof *more);
            if (more == NULL) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for a script");
            else {
                s->lines = more;
                s->lines[s->n_lines] = (struct calla_script_line){ 0 };
                rc = read_line(&s->lines[s->n_lines++], p, n, n_vocab, err);
                if (rc != 0) calla_err_prefix(err, "%s: line %d", path, s->n_lines);
            }
        }
        p += n + (end != NULL);
    }
    calla_buf_free(&text);
    if (rc != 0) calla_script_free(s);
    return rc;
}

const struct calla_script_line *calla_script_next(struct calla_script *s) {
    return s->n_used < s->n_lines ? &s->lines[s->n_used++] : NULL;
}

int32_t calla_script_id(const struct calla_request *r, int32_t sampled) {
    const int i = r->n_ids - r->n_prompt;
    return r->script != NULL && i < r->script->n_ids ? r->script->ids[i] : sampled;
}

void calla_script_wait(const struct calla_request *r) {
    if (r->script == NULL) return;
    const int ms = r->pos < r->n_prompt ? r->script->prefill_delay_ms : r->script->decode_delay_ms;
    const struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };
    if (ms > 0) nanosleep(&t, NULL);
}

bool calla_script_fails(const struct calla_request *r) {
    return r->script != NULL && r->script->fail_after >= 0 && r->n_ids - r->n_prompt >= r->script->fail_after;
}
