/* parse.c - calla parse: what the server makes of a model's answer.
 *
 * In: {"text", "tools", "thinking", "finish", "split"}, a line each with
 * --jsonl, else one value on stdin.  Out: {"reasoning", "content", "tool_calls",
 * "finish_reason"}, reasoning and content "" where there is none; {"error"} for
 * a line that is none of these, and then the exit status is 1. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "text/parser.h"

struct job {
    const char *text;
    size_t n;
    struct json_object *tools;
    bool thinking, cut;
    size_t *splits;         /* ascending; owned */
    size_t n_splits;
};

static void on_delta(void *user, const struct calla_delta *d) { calla_message_add(user, d); }

static int by_size(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static int read_splits(struct job *job, struct json_object *list, struct calla_err *err) {
    const size_t n = json_object_array_length(list);
    if (n == 0) return 0;
    if ((job->splits = malloc(n * sizeof *job->splits)) == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "split: out of memory");
    for (size_t i = 0; i < n; i++) {
        struct json_object *v = json_object_array_get_idx(list, i);
        if (!json_object_is_type(v, json_type_int) || json_object_get_int64(v) < 0)
            return calla_fail(err, CALLA_ERR_ARGUMENT, "split[%zu] is not a byte offset", i);
        const uint64_t at = json_object_get_uint64(v);
        job->splits[job->n_splits++] = at < job->n ? (size_t)at : job->n;
    }
    qsort(job->splits, n, sizeof *job->splits, by_size);
    return 0;
}

/* NULL when the key is missing or null; an error when it has another type. */
static int field(struct json_object *in, const char *key, enum json_type type, struct json_object **out, struct calla_err *err) {
    if (!json_object_object_get_ex(in, key, out) || *out == NULL) {
        *out = NULL;
        return 0;
    }
    if (json_object_is_type(*out, type)) return 0;
    return calla_fail(err, CALLA_ERR_ARGUMENT, "%s must be of type %s", key, json_type_to_name(type));
}

/* The end-of-turn tokens end the answer, as they do in the server. */
static size_t answer_bytes(const char *text, size_t n) {
    static const char *const ends[] = { "<|im_end|>", "<|endoftext|>" };
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2 && text[i] == '<'; k++)
            if (strncmp(text + i, ends[k], strlen(ends[k])) == 0) return i;
    return n;
}

static int read_job(struct job *job, struct json_object *in, struct calla_err *err) {
    struct json_object *text, *thinking, *finish, *split;
    int rc;
    *job = (struct job){ .thinking = true };
    if (!json_object_is_type(in, json_type_object)) return calla_fail(err, CALLA_ERR_ARGUMENT, "not a JSON object");
    if ((rc = field(in, "text", json_type_string, &text, err)) != 0 || (rc = field(in, "tools", json_type_array, &job->tools, err)) != 0 ||
        (rc = field(in, "thinking", json_type_boolean, &thinking, err)) != 0 ||
        (rc = field(in, "finish", json_type_string, &finish, err)) != 0 || (rc = field(in, "split", json_type_array, &split, err)) != 0)
        return rc;
    if (text == NULL) return calla_fail(err, CALLA_ERR_ARGUMENT, "text is missing");
    if (thinking != NULL) job->thinking = json_object_get_boolean(thinking);
    if (finish != NULL) {
        job->cut = strcmp(json_object_get_string(finish), "length") == 0;
        if (!job->cut && strcmp(json_object_get_string(finish), "stop") != 0)
            return calla_fail(err, CALLA_ERR_ARGUMENT, "finish is \"%s\", not stop or length", json_object_get_string(finish));
    }
    job->text = json_object_get_string(text);
    job->n = answer_bytes(job->text, (size_t)json_object_get_string_len(text));
    return split != NULL ? read_splits(job, split, err) : 0;
}

/* The bytes of text [n] before a last character that is not complete. */
static size_t whole_characters(const char *text, size_t n) {
    size_t i = n;
    while (i > 0 && n - i < 3 && ((unsigned char)text[i - 1] & 0xC0) == 0x80) i--;
    if (i == 0) return n;
    const unsigned char lead = (unsigned char)text[i - 1];
    const size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return n - i + 1 < want ? i - 1 : n;
}

static int parse(const struct job *job, struct calla_message *m, struct calla_err *err) {
    const struct calla_parser_options opt = { .tools = job->tools, .thinking = job->thinking, .on_delta = on_delta, .user = m };
    struct calla_parser *p;
    size_t begin = 0;
    int rc = calla_parser_new(&p, &opt, err);
    if (rc != 0) return rc;
    for (size_t i = 0; rc == 0 && i <= job->n_splits; i++) {
        const size_t end = i < job->n_splits ? whole_characters(job->text, job->splits[i]) : job->n;
        if (end <= begin) continue;
        rc = calla_parser_feed(p, job->text + begin, end - begin, err);
        begin = end;
    }
    if (rc == 0) rc = calla_parser_finish(p, job->cut, err);
    if (rc == 0 && calla_message_failed(m)) rc = calla_fail(err, CALLA_ERR_MEMORY, "answer: out of memory");
    calla_parser_free(&p);
    return rc;
}

static void print_text(struct calla_buf *out, const struct calla_buf *text) {
    calla_json_print_string(out, text->data != NULL ? text->data : "", text->n);
}

static void print_message(struct calla_buf *out, const struct calla_message *m, bool cut) {
    calla_buf_str(out, "{\"reasoning\": ");
    print_text(out, &m->reasoning);
    calla_buf_str(out, ", \"content\": ");
    print_text(out, &m->content);
    calla_buf_str(out, ", \"tool_calls\": [");
    for (int i = 0; i < m->n_calls; i++) {
        calla_buf_str(out, i == 0 ? "{\"name\": " : ", {\"name\": ");
        print_text(out, &m->calls[i].name);
        calla_buf_str(out, ", \"arguments\": ");
        print_text(out, &m->calls[i].arguments);
        calla_buf_char(out, '}');
    }
    calla_buf_fmt(out, "], \"finish_reason\": \"%s\"}", cut ? "length" : m->n_calls > 0 ? "tool_calls" : "stop");
}

static int answer(struct calla_buf *out, const char *line, size_t n) {
    struct json_object *in = NULL;
    struct calla_message m = { .n_calls = 0 };
    struct job job = { .splits = NULL };
    struct calla_err err;
    int rc = calla_json_parse(line, n, &in, &err);
    if (rc == 0) rc = read_job(&job, in, &err);
    if (rc == 0) rc = parse(&job, &m, &err);
    if (rc == 0) print_message(out, &m, job.cut);
    else {
        calla_buf_str(out, "{\"error\": ");
        calla_json_print_string(out, err.message, strlen(err.message));
        calla_buf_char(out, '}');
    }
    calla_buf_char(out, '\n');
    calla_message_free(&m);
    free(job.splits);
    json_object_put(in);
    return rc;
}

int cmd_parse(const struct cli_options *o) {
    struct calla_buf out = { 0 };
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = CLI_OK;
    while ((n = getdelim(&line, &cap, o->jsonl ? '\n' : EOF, stdin)) >= 0) {
        if (o->jsonl && strspn(line, " \t\r\n") == (size_t)n) continue;
        calla_buf_clear(&out);
        if (answer(&out, line, (size_t)n) != 0) rc = CLI_FAILED;
        if (out.failed || fwrite(out.data, 1, out.n, stdout) != out.n) {
            fprintf(stderr, "calla: parse: %s\n", out.failed ? "out of memory" : "cannot write to stdout");
            rc = CLI_FAILED;
            break;
        }
    }
    if (fflush(stdout) != 0) rc = CLI_FAILED;
    free(line);
    calla_buf_free(&out);
    return rc;
}
