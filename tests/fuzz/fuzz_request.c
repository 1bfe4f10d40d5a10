/* fuzz_request.c - any bytes as the body of a chat request: parsed, printed, rendered as it is, normalised and rendered. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/normalise.h"
#include "text/render.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x) do { if (!(x)) abort(); } while (0)

static bool is_utf8(const char *s, size_t n) { return n == 0 || calla_utf8_valid_prefix(s, n) == n; }

/* What is printed is UTF-8, reads back, and then prints the same. */
static void check_print(struct json_object *value, void (*print)(struct calla_buf *, struct json_object *)) {
    struct calla_buf once = { 0 }, twice = { 0 };
    struct json_object *again = NULL;
    print(&once, value);
    MUST(!once.failed && once.n > 0 && is_utf8(once.data, once.n));
    if (strstr(once.data, "Infinity") == NULL) {   /* 1e999 prints as what is no JSON, as in Python */
        MUST(calla_json_parse(once.data, once.n, &again, NULL) == 0);
        print(&twice, again);
        MUST(once.n == twice.n && memcmp(once.data, twice.data, once.n) == 0);
    }
    json_object_put(again);
    calla_buf_free(&once);
    calla_buf_free(&twice);
}

/* Spans of whole characters in rising order, and nothing of the template's in them. */
static void check_prompt(const struct calla_prompt *p) {
    size_t at = 0;
    MUST(is_utf8(p->text.data, p->text.n));
    for (size_t i = 0; i < p->n_opaque; i++) {
        const struct calla_span o = p->opaque[i];
        MUST(o.begin < o.end && o.end <= p->text.n && (i == 0 || o.begin > at));
        MUST(is_utf8(p->text.data + at, o.begin - at) && is_utf8(p->text.data + o.begin, o.end - o.begin));
        at = o.end;
    }
}

static void check_error(const struct calla_err *err, int rc) {
    MUST(err->code == rc && err->message[0] != 0 && is_utf8(err->message, strlen(err->message)));
}

static void check_template(struct json_object *request) {
    struct calla_render_input in;
    struct calla_prompt prompt;
    struct calla_err err = { 0 };
    calla_render_input_of(&in, request);
    const int rc = calla_render(&prompt, &in, &err);
    MUST(rc == 0 || rc == CALLA_ERR_ARGUMENT);
    if (rc == 0) check_prompt(&prompt);
    else check_error(&err, rc);
    calla_prompt_free(&prompt);
}

/* What is accepted renders; what is not names its field, or is no object. */
static void check_served(struct json_object *request) {
    struct calla_normalised n;
    struct calla_prompt prompt;
    struct calla_err err = { 0 };
    char field[64];
    const int rc = calla_normalise(&n, request, field, sizeof field, &err);
    MUST(rc == 0 || rc == CALLA_ERR_ARGUMENT);
    if (rc == 0) {
        MUST(calla_render(&prompt, &n.render, &err) == 0);
        check_prompt(&prompt);
        calla_prompt_free(&prompt);
        if (n.warnings != NULL) check_print(n.warnings, calla_json_print);
    } else {
        check_error(&err, rc);
        MUST((field[0] != 0) == json_object_is_type(request, json_type_object));
    }
    calla_normalised_free(&n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_object *request;
    struct calla_err err = { 0 };
    const int rc = calla_json_parse((const char *)data, size, &request, &err);
    if (rc != 0) {
        MUST(rc == CALLA_ERR_FORMAT || rc == CALLA_ERR_LIMIT);
        check_error(&err, rc);
        return 0;
    }
    check_print(request, calla_json_print);
    check_print(request, calla_json_print_compact);
    check_template(request);
    check_served(request);
    json_object_put(request);
    return 0;
}
