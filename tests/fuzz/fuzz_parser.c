/* fuzz_parser.c - any text as a model's answer: the same message for two splits, and arguments that are JSON.
 *
 * Input: a byte (bit 0 thinking, bit 1 cut, bit 2 no tools, the rest the size of the pieces), the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/parser.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define MUST(x) do { if (!(x)) abort(); } while (0)

static struct json_object *tools;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    static const char text[] =
        "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": \"string\"}, \"b\": {\"type\": \"array\"},"
        " \"c\": {\"type\": \"number\"}, \"d\": {\"type\": [\"string\", \"null\"]}, \"e\": {\"enum\": [\"x\", 1, null]},"
        " \"g\": {\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"integer\"}]}}}}}, {\"name\": \"p\"}]";
    MUST(calla_json_parse(text, sizeof text - 1, &tools, NULL) == 0);
    return 0;
}

static void on_delta(void *user, const struct calla_delta *d) {
    MUST(d->n == 0 || calla_utf8_valid_prefix(d->text, d->n) == d->n);
    calla_message_add(user, d);
}

static void parse(struct calla_message *m, const struct calla_buf *text, unsigned options, size_t piece) {
    struct calla_parser *p;
    const struct calla_parser_options opt = { .tools = options & 4 ? NULL : tools, .thinking = options & 1, .on_delta = on_delta, .user = m };
    MUST(calla_parser_new(&p, &opt, NULL) == 0);
    for (size_t at = 0, end; at < text->n; at = end) {
        end = piece < text->n - at ? at + piece : text->n;
        while (end < text->n && ((unsigned char)text->data[end] & 0xC0) == 0x80) end++;
        MUST(calla_parser_feed(p, text->data + at, end - at, NULL) == 0);
    }
    MUST(calla_parser_finish(p, options & 2, NULL) == 0);
    MUST(calla_parser_n_calls(p) == m->n_calls && !calla_message_failed(m));
    calla_parser_free(&p);
}

static bool same(const struct calla_buf *a, const struct calla_buf *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->data, b->data, a->n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct calla_buf text = { 0 };
    struct calla_message whole = { .n_calls = 0 }, parts = { .n_calls = 0 };
    calla_utf8_repair(&text, (const char *)data + 1, size - 1);
    parse(&whole, &text, data[0], SIZE_MAX);
    parse(&parts, &text, data[0], 1 + data[0] / 8 % 16);
    MUST(same(&whole.reasoning, &parts.reasoning) && same(&whole.content, &parts.content) && whole.n_calls == parts.n_calls);
    MUST(whole.n_begun - whole.n_calls <= (data[0] & 2 ? 1 : 0));
    for (int i = 0; i < whole.n_calls; i++) {
        struct json_object *args = NULL;
        MUST(same(&whole.calls[i].name, &parts.calls[i].name) && same(&whole.calls[i].arguments, &parts.calls[i].arguments));
        /* One level more than a value may have: the arguments themselves. */
        const int rc = calla_json_parse(whole.calls[i].arguments.data, whole.calls[i].arguments.n, &args, NULL);
        MUST(rc == CALLA_ERR_LIMIT || (rc == 0 && json_object_is_type(args, json_type_object)));
        json_object_put(args);
    }
    calla_message_free(&whole);
    calla_message_free(&parts);
    calla_buf_free(&text);
    return 0;
}
