/* normalise_message.c - one message of a client as the template takes it:
 * content a string, thinking in reasoning_content, arguments an object or text. */
#include "text/normalise_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "text/python.h"

enum role { SYSTEM, USER, ASSISTANT, TOOL, UNKNOWN };

static const char *const ROLE_NAMES[] = { "system", "user", "assistant", "tool" };

static enum role role_of(struct json_object *name) {
    for (int i = 0; i < UNKNOWN; i++)
        if (normalise_is(name, ROLE_NAMES[i])) return (enum role)i;
    return normalise_is(name, "developer") ? SYSTEM : normalise_is(name, "function") ? TOOL : UNKNOWN;
}

/* ---- content ---------------------------------------------------------------- */

/* A line that Claude Code puts before its system prompt, different in every
 * conversation: with it no two conversations share a prefix. */
static void add_text(struct calla_buf *out, const char *s, size_t n, enum role role) {
    static const char billing[] = "x-anthropic-billing-header:";
    if (role == SYSTEM && n >= sizeof billing - 1 && memcmp(s, billing, sizeof billing - 1) == 0) {
        const char *end = memchr(s, '\n', n);
        const size_t line = end != NULL ? (size_t)(end - s) + 1 : n;
        s += line;
        n -= line;
    }
    calla_buf_add(out, s, n);
}

static void add_string(struct calla_buf *out, struct json_object *string, enum role role) {
    add_text(out, json_object_get_string(string), (size_t)json_object_get_string_len(string), role);
}

/* What a part that is no text is called; NULL for an unknown one. */
static const char *kind_of(struct json_object *part, struct json_object *type) {
    static const char *const kinds[][2] = {
        { "image", "images" }, { "image_url", "images" }, { "input_image", "images" },
        { "video", "videos" }, { "video_url", "videos" }, { "input_video", "videos" },
        { "audio", "audio" }, { "audio_url", "audio" }, { "input_audio", "audio" },
        { "file", "files" }, { "input_file", "files" }, { "document", "files" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (type != NULL ? normalise_is(type, kinds[i][0]) : normalise_get(part, kinds[i][0]) != NULL) return kinds[i][1];
    return NULL;
}

/* A part of an assistant's content that is thinking: its text, or NULL. */
static struct json_object *thinking_part(struct json_object *part, struct json_object *type) {
    if (normalise_is(type, "thinking")) return normalise_get(part, "thinking");
    return normalise_is(type, "reasoning") ? normalise_get(part, "text") : NULL;
}

static int add_part(struct normaliser *n, struct json_object *part, const char *path, enum role role,
                    struct calla_buf *text, struct calla_buf *thinking) {
    char quoted[NORMALISE_KEY_BYTES + 4], text_path[NORMALISE_PATH_BYTES];
    struct json_object *type = normalise_get(part, "type"), *v;
    if (!json_object_is_type(part, json_type_object))
        return normalise_refuse(n, path, "a part of a content is an object, {\"type\": \"text\", \"text\": ...}");
    if (type != NULL && !json_object_is_type(type, json_type_string))
        return normalise_refuse(n, path, "the type of a part must be a string");
    if (role == ASSISTANT && (v = thinking_part(part, type)) != NULL && json_object_is_type(v, json_type_string)) {
        add_string(thinking, v, role);
        return 0;
    }
    if (role == ASSISTANT && normalise_is(type, "redacted_thinking")) return 0;
    const char *kind = kind_of(part, type);
    if (kind != NULL) return normalise_refuse(n, path, "%s are not supported; send text", kind);
    if (normalise_is(type, "refusal")) v = normalise_get(part, "refusal");
    else if (type == NULL || normalise_is(type, "text") || normalise_is(type, "input_text") || normalise_is(type, "output_text"))
        v = normalise_get(part, "text");
    else
        return normalise_refuse(n, path, "parts of type '%s' are not known; send text",
                                normalise_quote(quoted, json_object_get_string(type)));
    if (!json_object_is_type(v, json_type_string)) {
        normalise_path(text_path, "%s.%s", path, normalise_is(type, "refusal") ? "refusal" : "text");
        return normalise_refuse(n, text_path, "must be a string");
    }
    add_string(text, v, role);
    return 0;
}

static int add_content(struct normaliser *n, struct json_object *content, const char *message_path, enum role role,
                       struct calla_buf *text, struct calla_buf *thinking) {
    char path[NORMALISE_PATH_BYTES];
    int rc = 0;
    if (content == NULL) return 0;
    if (json_object_is_type(content, json_type_string)) {
        add_string(text, content, role);
        return 0;
    }
    if (!json_object_is_type(content, json_type_array)) {
        normalise_path(path, "%s.content", message_path);
        return normalise_refuse(n, path, "must be a string, a list of text parts or null");
    }
    for (size_t i = 0; i < json_object_array_length(content) && rc == 0; i++) {
        normalise_path(path, "%s.content[%zu]", message_path, i);
        rc = add_part(n, json_object_array_get_idx(content, i), path, role, text, thinking);
    }
    return rc;
}

/* ---- thinking --------------------------------------------------------------- */

/* The first `word` at or after s; NULL: none.  s may hold NUL bytes. */
static const char *find(const char *s, const char *end, const char *word) {
    const size_t n = strlen(word);
    for (; (size_t)(end - s) >= n && (s = memchr(s, word[0], (size_t)(end - s) - n + 1)) != NULL; s++)
        if (memcmp(s, word, n) == 0) return s;
    return NULL;
}

static struct calla_span strip_newlines(const char *s, struct calla_span span) {
    while (span.begin < span.end && s[span.begin] == '\n') span.begin++;
    while (span.begin < span.end && s[span.end - 1] == '\n') span.end--;
    return span;
}

/* Without reasoning_content the template cuts at every </think>: it takes what
 * is before the first for thinking, what is after the last for the answer, and
 * loses the rest.  That is right for `<think>...</think>answer` and for
 * `...</think>\nanswer`; it may stand only if there is one.  A second tag is the
 * answer's own text, so the cut is made here; a tag in the middle of a line is
 * no end of thinking at all. */
static void put_assistant_text(struct normaliser *n, struct json_object *message, const struct calla_buf *text) {
    static const char open[] = "<think>", close[] = "</think>";
    const size_t n_open = sizeof open - 1, n_close = sizeof close - 1;
    const char *s = text->data != NULL ? text->data : "", *end = s + text->n;
    const struct calla_span all = calla_python_strip(s, (struct calla_span){ 0, text->n });
    const bool leading = all.end - all.begin >= n_open && memcmp(s + all.begin, open, n_open) == 0;
    const char *cut = find(s, end, close);
    if (cut != NULL && !leading)
        while (cut != NULL && !(cut + n_close < end && cut[n_close] == '\n')) cut = find(cut + n_close, end, close);
    if (find(s, end, close) != NULL && cut == NULL) normalise_put_text(n, message, "reasoning_content", "", 0);
    const bool one = cut == find(s, end, close) && cut != NULL && find(cut + n_close, end, close) == NULL;
    if (cut == NULL || one) {
        normalise_put(n, message, "content", normalise_new_text(text));
        return;
    }
    const struct calla_span thought =
        strip_newlines(s, (struct calla_span){ leading ? all.begin + n_open : 0, (size_t)(cut - s) });
    const struct calla_span answer = calla_python_strip(s, (struct calla_span){ (size_t)(cut - s) + n_close, text->n });
    normalise_put_text(n, message, "reasoning_content", s + thought.begin, thought.end - thought.begin);
    normalise_put_text(n, message, "content", s + answer.begin, answer.end - answer.begin);
}

/* The thinking that a client sends back, under either name, once; NULL: none. */
static int find_reasoning(struct normaliser *n, struct json_object *in, const char *message_path, struct json_object **out) {
    static const char *const names[] = { "reasoning_content", "reasoning" };
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        char path[NORMALISE_PATH_BYTES];
        struct json_object *v = normalise_get(in, names[i]);
        if (v == NULL) continue;
        normalise_path(path, "%s.%s", message_path, names[i]);
        if (!json_object_is_type(v, json_type_string)) return normalise_refuse(n, path, "must be a string or null");
        if (*out == NULL || json_object_get_string_len(*out) == 0) *out = v;
    }
    return 0;
}

/* ---- calls ------------------------------------------------------------------ */

static bool only_blanks(struct json_object *string) {
    const struct calla_span all = { 0, (size_t)json_object_get_string_len(string) };
    const struct calla_span left = calla_python_strip(json_object_get_string(string), all);
    return left.begin == left.end;
}

/* Arguments as an object where they are one, in JSON text or plain; any other
 * text stays as it is, because the model wrote it. */
static struct json_object *arguments_of(struct json_object *v) {
    struct json_object *parsed = NULL;
    struct calla_buf text = { 0 };
    if (v == NULL) return json_object_new_object();
    if (json_object_is_type(v, json_type_object)) return json_object_get(v);
    if (json_object_is_type(v, json_type_string)) {
        if (only_blanks(v)) return json_object_new_object();
        if (calla_json_parse(json_object_get_string(v), (size_t)json_object_get_string_len(v), &parsed, NULL) == 0 &&
            json_object_is_type(parsed, json_type_object))
            return parsed;
        json_object_put(parsed);
        return json_object_get(v);
    }
    calla_json_print(&text, v);
    struct json_object *out = normalise_new_text(&text);
    calla_buf_free(&text);
    return out;
}

static int add_call(struct normaliser *n, struct json_object *function, const char *path, struct json_object *calls) {
    char name_path[NORMALISE_PATH_BYTES];
    struct json_object *name = normalise_get(function, "name");
    if (!json_object_is_type(function, json_type_object)) return normalise_refuse(n, path, "must be an object with a name");
    if (!json_object_is_type(name, json_type_string) || json_object_get_string_len(name) == 0) {
        normalise_path(name_path, "%s.name", path);
        return normalise_refuse(n, name_path, "must be the name of the called function");
    }
    struct json_object *call = json_object_new_object();
    if (call != NULL) {
        normalise_put(n, call, "name", json_object_get(name));
        normalise_put(n, call, "arguments", arguments_of(normalise_get(function, "arguments")));
    }
    normalise_append(n, calls, call);
    return 0;
}

static int add_calls(struct normaliser *n, struct json_object *in, const char *message_path, struct json_object *message) {
    char path[NORMALISE_PATH_BYTES];
    struct json_object *list = normalise_get(in, "tool_calls"), *one = normalise_get(in, "function_call");
    int rc = 0;
    normalise_path(path, "%s.tool_calls", message_path);
    if (list != NULL && !json_object_is_type(list, json_type_array)) return normalise_refuse(n, path, "must be a list or null");
    const size_t n_calls = list != NULL ? json_object_array_length(list) : 0;
    if (n_calls == 0 && one == NULL) return 0;
    struct json_object *calls = json_object_new_array();
    if (calls == NULL) {
        n->no_memory = true;
        return 0;
    }
    for (size_t i = 0; i < n_calls && rc == 0; i++) {
        struct json_object *call = json_object_array_get_idx(list, i), *function = normalise_get(call, "function");
        normalise_path(path, "%s.tool_calls[%zu]%s", message_path, i, function != NULL ? ".function" : "");
        rc = add_call(n, function != NULL ? function : call, path, calls);
    }
    if (n_calls == 0) {
        normalise_path(path, "%s.function_call", message_path);
        rc = add_call(n, one, path, calls);
    }
    normalise_put(n, message, "tool_calls", calls);
    return rc;
}

/* ---- the message ------------------------------------------------------------ */

static int fill(struct normaliser *n, struct json_object *in, const char *path, enum role role, struct json_object *message,
                struct calla_buf *text, struct calla_buf *thinking) {
    struct json_object *reasoning = NULL;
    int rc = add_content(n, normalise_get(in, "content"), path, role, text, thinking);
    if (rc != 0) return rc;
    normalise_put_text(n, message, "role", ROLE_NAMES[role], strlen(ROLE_NAMES[role]));
    if (role != ASSISTANT) {
        normalise_put(n, message, "content", normalise_new_text(text));
        return 0;
    }
    if ((rc = find_reasoning(n, in, path, &reasoning)) != 0) return rc;
    if (reasoning == NULL && thinking->n == 0) put_assistant_text(n, message, text);
    else {
        normalise_put(n, message, "content", normalise_new_text(text));
        normalise_put(n, message, "reasoning_content", reasoning != NULL ? json_object_get(reasoning) : normalise_new_text(thinking));
    }
    return add_calls(n, in, path, message);
}

int normalise_message(struct normaliser *n, struct json_object *in, size_t idx, struct json_object **out) {
    char path[NORMALISE_PATH_BYTES], role_path[NORMALISE_PATH_BYTES], quoted[NORMALISE_KEY_BYTES + 4];
    struct json_object *name = normalise_get(in, "role");
    struct calla_buf text = { 0 }, thinking = { 0 };
    *out = NULL;
    normalise_path(path, "messages[%zu]", idx);
    if (!json_object_is_type(in, json_type_object)) return normalise_refuse(n, path, "a message is an object with role and content");
    normalise_path(role_path, "%s.role", path);
    if (!json_object_is_type(name, json_type_string))
        return normalise_refuse(n, role_path, "must be system, developer, user, assistant or tool");
    const enum role role = role_of(name);
    if (role == UNKNOWN)
        return normalise_refuse(n, role_path, "'%s' is not known; it is system, developer, user, assistant or tool",
                                normalise_quote(quoted, json_object_get_string(name)));
    struct json_object *message = json_object_new_object();
    if (message == NULL) {
        n->no_memory = true;
        return 0;
    }
    const int rc = fill(n, in, path, role, message, &text, &thinking);
    n->no_memory |= text.failed || thinking.failed;
    calla_buf_free(&text);
    calla_buf_free(&thinking);
    if (rc != 0) json_object_put(message);
    else *out = message;
    return rc;
}
