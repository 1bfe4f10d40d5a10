/* normalise.c - a chat request to messages that the template takes: the list as
 * a whole (system messages at its head, the assistant's at its end).
 *
 * Pure functions of the request; any thread.  What one message becomes is in
 * normalise_message.c, tools in normalise_tools.c, switches in
 * normalise_switches.c.  The rules are docs/server.md, "Normalise". */
#include "text/normalise_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"
#include "text/python.h"

int normalise_refuse(struct normaliser *n, const char *path, const char *fmt, ...) {
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (n->field != NULL && n->field_cap > 0) snprintf(n->field, n->field_cap, "%s", path);
    return calla_fail(n->err, CALLA_ERR_ARGUMENT, "%s: %s", path, sentence);
}

void normalise_warn(struct normaliser *n, const char *fmt, ...) {
    char sentence[512];
    struct json_object **all = &n->out->warnings;
    va_list ap;
    if (*all != NULL && json_object_array_length(*all) >= NORMALISE_MAX_WARNINGS) return;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (*all == NULL && (*all = json_object_new_array()) == NULL) n->no_memory = true;
    else normalise_append(n, *all, json_object_new_string(sentence));
}

void normalise_path(char out[NORMALISE_PATH_BYTES], const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out, NORMALISE_PATH_BYTES, fmt, ap);
    va_end(ap);
}

struct json_object *normalise_get(struct json_object *object, const char *key) {
    struct json_object *v = NULL;
    if (json_object_is_type(object, json_type_object)) json_object_object_get_ex(object, key, &v);
    return v;
}

bool normalise_is(struct json_object *value, const char *text) {
    return json_object_is_type(value, json_type_string) && (size_t)json_object_get_string_len(value) == strlen(text) &&
           strcmp(json_object_get_string(value), text) == 0;
}

const char *normalise_quote(char out[NORMALISE_KEY_BYTES + 4], const char *s) {
    const size_t n = strlen(s), kept = calla_utf8_valid_prefix(s, n > NORMALISE_KEY_BYTES ? NORMALISE_KEY_BYTES : n);
    memcpy(out, s, kept);
    strcpy(out + kept, kept < n ? "..." : "");
    return out;
}

void normalise_put(struct normaliser *n, struct json_object *object, const char *key, struct json_object *value) {
    if (value != NULL && json_object_object_add(object, key, value) == 0) return;
    json_object_put(value);
    n->no_memory = true;
}

void normalise_put_text(struct normaliser *n, struct json_object *object, const char *key, const char *s, size_t n_bytes) {
    normalise_put(n, object, key, json_object_new_string_len(s, (int)n_bytes));
}

void normalise_append(struct normaliser *n, struct json_object *array, struct json_object *value) {
    if (value != NULL && json_object_array_add(array, value) == 0) return;
    json_object_put(value);
    n->no_memory = true;
}

struct json_object *normalise_new_text(const struct calla_buf *b) {
    return b->failed ? NULL : json_object_new_string_len(b->data != NULL ? b->data : "", (int)b->n);
}

void calla_normalised_free(struct calla_normalised *n) {
    json_object_put(n->messages);
    json_object_put(n->tools);
    json_object_put(n->warnings);
    *n = (struct calla_normalised){ 0 };
}

static struct calla_span trimmed(struct json_object *string) {
    return calla_python_strip(json_object_get_string(string),
                              (struct calla_span){ 0, (size_t)json_object_get_string_len(string) });
}

static bool is_blank(struct json_object *string) {
    if (string == NULL) return true;
    const struct calla_span s = trimmed(string);
    return s.begin == s.end;
}

/* The system and developer messages before all others as one, a line between;
 * *at is left at the first other one. */
static int take_leading_system(struct normaliser *n, struct json_object *in, size_t *at) {
    struct calla_buf text = { 0 };
    int rc = 0;
    const size_t n_in = json_object_array_length(in);
    for (*at = 0; *at < n_in && rc == 0; ++*at) {
        struct json_object *message = NULL, *role = normalise_get(json_object_array_get_idx(in, *at), "role");
        if (!normalise_is(role, "system") && !normalise_is(role, "developer")) break;
        if ((rc = normalise_message(n, json_object_array_get_idx(in, *at), *at, &message)) == 0) {
            struct json_object *content = normalise_get(message, "content");
            const struct calla_span s = trimmed(content);
            if (s.begin < s.end && text.n > 0) calla_buf_char(&text, '\n');
            calla_buf_add(&text, json_object_get_string(content) + s.begin, s.end - s.begin);
        }
        json_object_put(message);
    }
    if (rc == 0 && *at > 0) {
        struct json_object *message = json_object_new_object();
        if (message != NULL) {
            normalise_put_text(n, message, "role", "system", 6);
            normalise_put(n, message, "content", normalise_new_text(&text));
        }
        normalise_append(n, n->out->messages, message);
    }
    calla_buf_free(&text);
    return rc;
}

/* Empty assistant messages at the end are dropped; another one stays open, so
 * that the model goes on with it. */
static void close_list(struct normaliser *n) {
    struct json_object *all = n->out->messages;
    size_t len;
    while ((len = json_object_array_length(all)) > 0) {
        struct json_object *last = json_object_array_get_idx(all, len - 1);
        if (!normalise_is(normalise_get(last, "role"), "assistant")) return;
        if (!is_blank(normalise_get(last, "content")) || !is_blank(normalise_get(last, "reasoning_content")) ||
            normalise_get(last, "tool_calls") != NULL) {
            n->out->render.open_last = true;
            return;
        }
        json_object_array_del_idx(all, len - 1, 1);
    }
}

static int normalise_messages(struct normaliser *n, struct json_object *request) {
    struct json_object *in = normalise_get(request, "messages");
    size_t at;
    if (in == NULL) return normalise_refuse(n, "messages", "is missing; it is a list of at least one message");
    if (!json_object_is_type(in, json_type_array)) return normalise_refuse(n, "messages", "must be a list of messages");
    if (json_object_array_length(in) == 0) return normalise_refuse(n, "messages", "is empty; send at least one message");
    if ((n->out->messages = json_object_new_array()) == NULL) n->no_memory = true;
    if (n->no_memory) return 0;
    int rc = take_leading_system(n, in, &at);
    for (; at < json_object_array_length(in) && rc == 0 && !n->no_memory; at++) {
        struct json_object *message = NULL;
        rc = normalise_message(n, json_object_array_get_idx(in, at), at, &message);
        if (rc == 0) normalise_append(n, n->out->messages, message);
    }
    if (rc != 0 || n->no_memory) return rc;
    close_list(n);
    if (json_object_array_length(n->out->messages) == 0)
        return normalise_refuse(n, "messages", "holds only empty assistant messages; send what is to be answered");
    return 0;
}

int calla_normalise(struct calla_normalised *out, struct json_object *request, char *field, size_t field_cap,
                    struct calla_err *err) {
    struct normaliser n = { .out = out, .field = field, .field_cap = field_cap, .err = err };
    int rc;
    *out = (struct calla_normalised){ 0 };
    if (field != NULL && field_cap > 0) field[0] = 0;
    out->render = (struct calla_render_input){ .add_generation_prompt = true, .thinking = true, .extensions = true };
    if (!json_object_is_type(request, json_type_object))
        rc = calla_fail(err, CALLA_ERR_ARGUMENT, "the body must be a JSON object");
    else if ((rc = normalise_switches(&n, request)) == 0 && (rc = normalise_tools(&n, request)) == 0)
        rc = normalise_messages(&n, request);
    if (rc == 0 && n.no_memory) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory to normalise a request");
    if (rc != 0) calla_normalised_free(out);
    out->render.messages = out->messages;
    out->render.tools = out->tools;
    return rc;
}
