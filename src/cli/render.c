/* render.c - calla render: a chat request on stdin, its prompt and ids on stdout. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/cli.h"
#include "text/chat.h"
#include "text/normalise.h"

/* {"prompt", "ids"} of a request, with "warnings" where there are some. */
static int render(const struct calla_tokenizer *t, const char *text, size_t n, bool served, struct calla_buf *out, struct calla_err *err) {
    struct json_object *request = NULL;
    struct calla_normalised normalised = { 0 };
    struct calla_chat_prompt prompt = { 0 };
    struct calla_render_input in;
    int rc = calla_json_parse(text, n, &request, err);
    if (rc != 0) goto out;
    if (served) {
        if ((rc = calla_normalise(&normalised, request, NULL, 0, err)) != 0) goto out;
        in = normalised.render;
    } else calla_render_input_of(&in, request);
    if ((rc = calla_chat_prompt_make(&prompt, t, &in, err)) != 0) goto out;

    const struct calla_buf *s = &prompt.rendered.text;
    calla_buf_str(out, "{\"prompt\": ");
    calla_json_print_string(out, s->data != NULL ? s->data : "", s->n);
    calla_buf_str(out, ", \"ids\": [");
    for (size_t i = 0; i < prompt.ids.n; i++) calla_buf_fmt(out, "%s%d", i > 0 ? ", " : "", (int)prompt.ids.v[i]);
    calla_buf_char(out, ']');
    if (normalised.warnings != NULL) {
        calla_buf_str(out, ", \"warnings\": ");
        calla_json_print(out, normalised.warnings);
    }
    calla_buf_str(out, "}\n");
out:
    calla_chat_prompt_free(&prompt);
    calla_normalised_free(&normalised);
    json_object_put(request);
    return rc;
}

/* What is wrong with the request is an answer, {"error"}; what is wrong here
 * (memory, stdout) ends the command. */
static int answer(const struct calla_tokenizer *t, const char *text, size_t n, bool served, struct calla_err *err) {
    struct calla_buf out = { 0 };
    int rc = render(t, text, n, served, &out, err);
    if (rc == CALLA_ERR_ARGUMENT || rc == CALLA_ERR_FORMAT || rc == CALLA_ERR_LIMIT) {
        calla_buf_clear(&out);
        calla_buf_str(&out, "{\"error\": ");
        calla_json_print_string(&out, err->message, strlen(err->message));
        calla_buf_str(&out, "}\n");
        rc = 0;
    }
    if (rc == 0 && out.failed) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory to print a prompt");
    if (rc == 0 && (fwrite(out.data, 1, out.n, stdout) != out.n || fflush(stdout) != 0))
        rc = calla_fail(err, CALLA_ERR_IO, "stdout: %s", strerror(errno));
    calla_buf_free(&out);
    return rc;
}

static int whole(const struct calla_tokenizer *t, bool served, struct calla_err *err) {
    struct calla_buf text = { 0 };
    size_t k = 1;
    int rc;
    while (k > 0 && calla_buf_reserve(&text, 1 << 16)) {
        k = fread(text.data + text.n, 1, 1 << 16, stdin);
        text.n += k;
    }
    if (text.failed) rc = calla_fail(err, CALLA_ERR_LIMIT, "stdin: more text than fits in memory");
    else if (ferror(stdin)) rc = calla_fail(err, CALLA_ERR_IO, "stdin: %s", strerror(errno));
    else rc = answer(t, text.data, text.n, served, err);
    calla_buf_free(&text);
    return rc;
}

static int line_by_line(const struct calla_tokenizer *t, bool served, struct calla_err *err) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&line, &cap, stdin)) >= 0) rc = answer(t, line, (size_t)n, served, err);
    if (rc == 0 && ferror(stdin)) rc = calla_fail(err, CALLA_ERR_IO, "stdin: %s", strerror(errno));
    free(line);
    return rc;
}

int cmd_render(const struct cli_options *o) {
    struct calla_err err;
    struct calla_tokenizer *t = NULL;
    if ((o->model == NULL) == (o->tokenizer == NULL)) {
        fprintf(stderr, "calla: render needs --tokenizer FILE or --model DIR\n");
        return CLI_USAGE;
    }
    int rc = calla_tokenizer_open(&t, o->tokenizer != NULL ? o->tokenizer : o->model, &err);
    if (rc == 0) rc = o->jsonl ? line_by_line(t, o->served, &err) : whole(t, o->served, &err);
    calla_tokenizer_close(&t);
    return rc == 0 ? CLI_OK : cli_fail(&err);
}
