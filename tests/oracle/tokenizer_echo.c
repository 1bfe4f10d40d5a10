/* tokenizer_echo.c - a line {"text": ..., "opaque": [begin, end, ...], "cut": n} in; out, a line,
 * {"ids": [...], "text": what the detokenizer makes of them, fed n bytes at a time}.
 * usage: tokenizer_echo FILE|DIR */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer.h"

enum { MAX_SPANS = 256 };

static void detokenize(const struct calla_tokenizer *t, const struct calla_ids *ids, size_t cut, struct calla_buf *out) {
    struct calla_detokenizer d = { 0 };
    struct calla_buf bytes = { 0 };
    for (size_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *b = calla_tokenizer_bytes(t, ids->v[i], &n);
        calla_buf_add(&bytes, b, n);
    }
    for (size_t at = 0; at < bytes.n; at += cut)
        calla_detokenizer_push(&d, bytes.data + at, bytes.n - at < cut ? bytes.n - at : cut, out);
    calla_detokenizer_finish(&d, out);
    calla_buf_free(&bytes);
}

static int answer(const struct calla_tokenizer *t, struct json_object *in, struct calla_err *err) {
    struct json_object *text = json_object_object_get(in, "text"), *opaque = json_object_object_get(in, "opaque");
    struct calla_span spans[MAX_SPANS];
    const size_t n_spans = json_object_array_length(opaque) / 2;
    struct calla_ids ids = { 0 };
    struct calla_buf out = { 0 }, back = { 0 };
    if (n_spans > MAX_SPANS) return CALLA_ERR_LIMIT;
    for (size_t i = 0; i < n_spans; i++) {
        spans[i].begin = (size_t)json_object_get_int64(json_object_array_get_idx(opaque, 2 * i));
        spans[i].end = (size_t)json_object_get_int64(json_object_array_get_idx(opaque, 2 * i + 1));
    }
    const int rc = calla_tokenizer_encode(t, json_object_get_string(text), (size_t)json_object_get_string_len(text), spans,
                                          n_spans, &ids, err);
    calla_buf_str(&out, "{\"ids\": [");
    for (size_t i = 0; i < ids.n; i++) calla_buf_fmt(&out, "%s%d", i ? ", " : "", ids.v[i]);
    calla_buf_str(&out, "], \"text\": ");
    detokenize(t, &ids, (size_t)json_object_get_int64(json_object_object_get(in, "cut")), &back);
    calla_json_print_string(&out, back.data ? back.data : "", back.n);
    calla_buf_str(&out, "}\n");
    fwrite(out.data, 1, out.n, stdout);
    calla_buf_free(&out);
    calla_buf_free(&back);
    calla_ids_free(&ids);
    return rc;
}

int main(int argc, char **argv) {
    struct calla_tokenizer *t = NULL;
    struct calla_err err = { 0 };
    char *line = NULL;
    size_t cap = 0;
    int rc = argc == 2 ? calla_tokenizer_open(&t, argv[1], &err) : CALLA_ERR_ARGUMENT;
    for (ssize_t n; rc == 0 && (n = getline(&line, &cap, stdin)) > 0;) {
        struct json_object *in = NULL;
        rc = calla_json_parse(line, (size_t)n, &in, &err);
        if (rc == 0) rc = answer(t, in, &err);
        json_object_put(in);
    }
    if (rc != 0) fprintf(stderr, "tokenizer_echo: %s\n", err.message);
    calla_tokenizer_close(&t);
    free(line);
    return rc != 0;
}
