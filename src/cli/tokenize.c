/* tokenize.c - calla tokenize: text on stdin, ids on stdout. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/cli.h"
#include "text/tokenizer.h"

static int print_ids(const struct calla_ids *ids, struct calla_err *err) {
    struct calla_buf line = { 0 };
    int rc = 0;
    calla_buf_char(&line, '[');
    for (size_t i = 0; i < ids->n; i++) calla_buf_fmt(&line, "%s%d", i ? ", " : "", ids->v[i]);
    calla_buf_str(&line, "]\n");
    if (line.failed) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory to print %zu ids", ids->n);
    else if (fwrite(line.data, 1, line.n, stdout) != line.n || fflush(stdout) != 0)
        rc = calla_fail(err, CALLA_ERR_IO, "stdout: %s", strerror(errno));
    calla_buf_free(&line);
    return rc;
}

static int encode_and_print(const struct calla_tokenizer *t, const char *text, size_t n, struct calla_err *err) {
    struct calla_ids ids = { 0 };
    int rc = calla_tokenizer_encode(t, text, n, NULL, 0, &ids, err);
    if (rc == 0) rc = print_ids(&ids, err);
    calla_ids_free(&ids);
    return rc;
}

static int whole(const struct calla_tokenizer *t, struct calla_err *err) {
    struct calla_buf text = { 0 };
    size_t k = 1;
    int rc = 0;
    while (k > 0 && calla_buf_reserve(&text, 1 << 16)) {
        k = fread(text.data + text.n, 1, 1 << 16, stdin);
        text.n += k;
    }
    if (text.failed) rc = calla_fail(err, CALLA_ERR_LIMIT, "stdin: more text than fits in memory");
    else if (ferror(stdin)) rc = calla_fail(err, CALLA_ERR_IO, "stdin: %s", strerror(errno));
    else rc = encode_and_print(t, text.data, text.n, err);
    calla_buf_free(&text);
    return rc;
}

static int line_by_line(const struct calla_tokenizer *t, struct calla_err *err) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    for (long number = 1; rc == 0 && (n = getline(&line, &cap, stdin)) >= 0; number++) {
        struct json_object *v = NULL;
        if ((rc = calla_json_parse(line, (size_t)n, &v, err)) == 0) {
            if (json_object_is_type(v, json_type_string))
                rc = encode_and_print(t, json_object_get_string(v), (size_t)json_object_get_string_len(v), err);
            else rc = calla_fail(err, CALLA_ERR_ARGUMENT, "not a JSON string");
        }
        if (rc != 0) calla_err_prefix(err, "line %ld", number);
        json_object_put(v);
    }
    if (rc == 0 && ferror(stdin)) rc = calla_fail(err, CALLA_ERR_IO, "stdin: %s", strerror(errno));
    free(line);
    return rc;
}

int cmd_tokenize(const struct cli_options *o) {
    struct calla_err err;
    struct calla_tokenizer *t = NULL;
    if ((o->model == NULL) == (o->tokenizer == NULL)) {
        fprintf(stderr, "calla: tokenize needs --tokenizer FILE or --model DIR\n");
        return CLI_USAGE;
    }
    int rc = calla_tokenizer_open(&t, o->tokenizer ? o->tokenizer : o->model, &err);
    if (rc == 0) rc = o->jsonl ? line_by_line(t, &err) : whole(t, &err);
    calla_tokenizer_close(&t);
    return rc == 0 ? CLI_OK : cli_fail(&err);
}
