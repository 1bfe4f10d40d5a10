/* generation.c - reads generation_config.json: when an answer ends and how
 * ids are drawn unless a request says otherwise. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "model/config.h"

struct reader { const char *path; struct json_object *root; struct calla_err *err; };

static int wrong(const struct reader *r, const char *key, struct json_object *v, const char *want) {
    return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: %s is %.80s, it must be %s", r->path, key,
                      v ? json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN) : "null", want);
}

/* An id or a list of ids; absent or null leaves what is there. */
static int read_stop_ids(const struct reader *r, struct json_object *from, const struct calla_shape *shape, struct calla_generation *g) {
    struct json_object *v = NULL;
    if (!json_object_object_get_ex(from, "eos_token_id", &v) || v == NULL) return 0;
    const bool list = json_object_is_type(v, json_type_array);
    const size_t n = list ? json_object_array_length(v) : 1;
    if (n < 1 || n > CALLA_MAX_STOP_IDS)
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: eos_token_id lists %zu ids, 1 to %d are read", r->path, n, CALLA_MAX_STOP_IDS);
    for (size_t i = 0; i < n; i++) {
        struct json_object *id = list ? json_object_array_get_idx(v, i) : v;
        if (id == NULL || !json_object_is_type(id, json_type_int) || json_object_get_int64(id) < 0 ||
            json_object_get_int64(id) >= shape->n_vocab)
            return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: eos_token_id holds %.60s, an id is a whole number from 0 to %d",
                              r->path, id ? json_object_to_json_string_ext(id, JSON_C_TO_STRING_PLAIN) : "null", shape->n_vocab - 1);
        g->stop_ids[i] = (int32_t)json_object_get_int64(id);
    }
    g->n_stop_ids = (int)n;
    return 0;
}

static int read_float(const struct reader *r, const char *key, double min, bool min_excluded, double max, float *out) {
    struct json_object *v = NULL;
    char want[64];
    if (!json_object_object_get_ex(r->root, key, &v) || v == NULL) return 0;
    const bool number = json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double);
    const double x = number ? json_object_get_double(v) : -1e300;
    if (x >= min && x <= max && !(min_excluded && x == min)) {
        *out = (float)x;
        return 0;
    }
    snprintf(want, sizeof want, "a number %s %g, at most %g", min_excluded ? "above" : "from", min, max);
    return wrong(r, key, v, want);
}

static int read_sampling(const struct reader *r, struct calla_sampling *s) {
    struct json_object *v = NULL;
    int rc;
    if ((rc = read_float(r, "temperature", 0, false, 100, &s->temperature)) != 0) return rc;
    if ((rc = read_float(r, "top_p", 0, true, 1, &s->top_p)) != 0) return rc;
    if ((rc = read_float(r, "min_p", 0, false, 1, &s->min_p)) != 0) return rc;
    if ((rc = read_float(r, "presence_penalty", -2, false, 2, &s->presence_penalty)) != 0) return rc;
    if ((rc = read_float(r, "frequency_penalty", -2, false, 2, &s->frequency_penalty)) != 0) return rc;
    if ((rc = read_float(r, "repetition_penalty", 0, true, 100, &s->repetition_penalty)) != 0) return rc;
    if (json_object_object_get_ex(r->root, "top_k", &v) && v != NULL) {
        if (!json_object_is_type(v, json_type_int) || json_object_get_int64(v) < 0 || json_object_get_int64(v) > 1000000000)
            return wrong(r, "top_k", v, "a whole number from 0 on");
        s->top_k = (int)json_object_get_int64(v);
    }
    if (json_object_object_get_ex(r->root, "do_sample", &v) && v != NULL) {
        if (!json_object_is_type(v, json_type_boolean)) return wrong(r, "do_sample", v, "true or false");
        if (!json_object_get_boolean(v)) s->temperature = 0;
    }
    return 0;
}

int calla_generation_read(struct calla_generation *out, const char *dir, const struct calla_config *c,
                          const struct calla_weights_options *opt, struct calla_err *err) {
    int rc = 0;
    struct json_object *text = NULL;
    struct reader r = { c->path, c->root, err };
    *out = (struct calla_generation){ .sampling = { .temperature = 1, .top_p = 1, .repetition_penalty = 1 } };

    /* config.json: the text part, then the whole, which is the later word */
    if (json_object_object_get_ex(c->root, "text_config", &text) && text != NULL)
        if ((rc = read_stop_ids(&r, text, c->shape, out)) != 0) return rc;
    if ((rc = read_stop_ids(&r, c->root, c->shape, out)) != 0) return rc;

    char *path = calla_path_join(dir, "generation_config.json");
    if (path == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for a path", dir);
    r = (struct reader){ path, NULL, err };
    if (access(path, F_OK) != 0) {
        calla_weights_log(opt, "%s is not there: answers end at the %d eos ids of config.json, temperature 1, nothing else",
                          path, out->n_stop_ids);
        goto out;
    }
    if ((rc = calla_json_file(&r.root, path, err)) != 0) goto out;
    const int n_before = out->n_stop_ids;
    out->n_stop_ids = 0;
    if ((rc = read_stop_ids(&r, r.root, c->shape, out)) != 0) goto out;
    if (out->n_stop_ids == 0) {
        out->n_stop_ids = n_before;
        calla_weights_log(opt, "%s names no eos_token_id: answers end at the %d eos ids of config.json", path, n_before);
    }
    rc = read_sampling(&r, &out->sampling);
out:
    if (r.root != NULL && r.root != c->root) json_object_put(r.root);
    free(path);
    return rc;
}
