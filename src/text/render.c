/* render.c - the model's chat template (Jinja) as C, branch by branch.
 *
 * The order of evaluation is the template's, so that what it raises first is
 * what is reported.  "Undefined" below is a missing member, which the template
 * treats like an empty list.  Pure functions, any thread.
 *
 * Source: chat_template.jinja of Qwen3.6-35B-A3B (docs/server.md, "Render"). */
#include "text/render.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "text/python.h"

static const char CALL_FORMAT[] =
    "\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n"
    "<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within "
    "<tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT "
    "after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge and do not tell "
    "the user about function calls\n</IMPORTANT>";

struct renderer {
    const struct calla_render_input *in;
    struct calla_prompt *out;
    struct calla_prompt content;    /* of the message at hand, not trimmed */
    int n_images, n_videos;
    struct calla_err *err;
};

/* ---- the prompt and who wrote which part of it ------------------------------ */

void calla_prompt_free(struct calla_prompt *p) {
    calla_buf_free(&p->text);
    free(p->opaque);
    *p = (struct calla_prompt){ 0 };
}

static void clear(struct calla_prompt *p) {
    calla_buf_clear(&p->text);
    p->n_opaque = 0;
}

static void add(struct calla_prompt *p, const char *template_text) { calla_buf_str(&p->text, template_text); }

/* Marks what was appended from `begin` on as the client's. */
static void mark(struct calla_prompt *p, size_t begin) {
    if (p->text.n == begin || p->text.failed) return;
    if (p->n_opaque > 0 && p->opaque[p->n_opaque - 1].end == begin) {
        p->opaque[p->n_opaque - 1].end = p->text.n;
        return;
    }
    if (p->n_opaque == p->cap_opaque) {
        const size_t cap = p->cap_opaque > 0 ? 2 * p->cap_opaque : 16;
        struct calla_span *more = realloc(p->opaque, cap * sizeof *more);
        if (more == NULL) {
            p->text.failed = true;
            return;
        }
        p->opaque = more;
        p->cap_opaque = cap;
    }
    p->opaque[p->n_opaque++] = (struct calla_span){ begin, p->text.n };
}

static void add_client(struct calla_prompt *p, const char *s, size_t n) {
    const size_t begin = p->text.n;
    calla_buf_add(&p->text, s, n);
    mark(p, begin);
}

static void add_string(struct calla_prompt *p, struct json_object *string) {
    add_client(p, json_object_get_string(string), (size_t)json_object_get_string_len(string));
}

static void add_json(struct calla_prompt *p, struct json_object *value) {
    const size_t begin = p->text.n;
    calla_json_print(&p->text, value);
    mark(p, begin);
}

/* The bytes of `part` of another prompt, with their marks. */
static void add_slice(struct calla_prompt *p, const struct calla_prompt *from, struct calla_span part) {
    size_t at = part.begin;
    if (from->text.failed) p->text.failed = true;
    for (size_t i = 0; i < from->n_opaque && at < part.end; i++) {
        const struct calla_span o = from->opaque[i];
        if (o.end <= at) continue;
        if (o.begin >= part.end) break;
        const size_t begin = o.begin > at ? o.begin : at, end = o.end < part.end ? o.end : part.end;
        calla_buf_add(&p->text, from->text.data + at, begin - at);
        add_client(p, from->text.data + begin, end - begin);
        at = end;
    }
    if (at < part.end) calla_buf_add(&p->text, from->text.data + at, part.end - at);
}

/* ---- values ----------------------------------------------------------------- */

/* value.key; false where that is undefined. */
static bool member(struct json_object *value, const char *key, struct json_object **out) {
    *out = NULL;
    return json_object_is_type(value, json_type_object) && json_object_object_get_ex(value, key, out);
}

static bool is_string(struct json_object *value) { return json_object_is_type(value, json_type_string); }

static bool equals(struct json_object *value, const char *text) {
    return is_string(value) && (size_t)json_object_get_string_len(value) == strlen(text) &&
           memcmp(json_object_get_string(value), text, strlen(text)) == 0;
}

static bool member_is(struct json_object *value, const char *key, const char *text) {
    struct json_object *v;
    return member(value, key, &v) && equals(v, text);
}

/* Where word begins in s[span]: the first place or the last; SIZE_MAX: nowhere. */
static size_t find(const char *s, struct calla_span span, const char *word, bool last) {
    const size_t n = strlen(word);
    size_t found = SIZE_MAX;
    for (size_t at = span.begin; span.end - at >= n; at++) {
        const char *p = memchr(s + at, word[0], span.end - at - n + 1);
        if (p == NULL) break;
        at = (size_t)(p - s);
        if (memcmp(p, word, n) != 0) continue;
        found = at;
        if (!last) break;
    }
    return found;
}

static bool contains(const char *s, size_t n, const char *word) {
    return find(s, (struct calla_span){ 0, n }, word, false) != SIZE_MAX;
}

/* word in item: a key, an element or a part of a string, as in Python. */
static bool is_in(const char *word, struct json_object *item) {
    struct json_object *v;
    if (is_string(item)) return contains(json_object_get_string(item), (size_t)json_object_get_string_len(item), word);
    if (json_object_is_type(item, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(item); i++)
            if (equals(json_object_array_get_idx(item, i), word)) return true;
        return false;
    }
    return member(item, word, &v);
}

static int raise_sentence(struct renderer *r, const char *sentence) {
    return calla_fail(r->err, CALLA_ERR_ARGUMENT, "%s", sentence);
}

/* ---- content ---------------------------------------------------------------- */

static int read_item(struct renderer *r, struct json_object *item, bool count, bool is_system) {
    struct calla_prompt *content = &r->content;
    struct json_object *v;
    if (item == NULL || json_object_is_type(item, json_type_boolean) || json_object_is_type(item, json_type_int) ||
        json_object_is_type(item, json_type_double))
        return raise_sentence(r, "An item of a content list must be an object.");
    if (is_in("image", item) || is_in("image_url", item) || member_is(item, "type", "image")) {
        if (is_system) return raise_sentence(r, "System message cannot contain images.");
        r->n_images += count;
        if (r->in->add_vision_id) calla_buf_fmt(&content->text, "Picture %d: ", r->n_images);
        add(content, "<|vision_start|><|image_pad|><|vision_end|>");
    } else if (is_in("video", item) || member_is(item, "type", "video")) {
        if (is_system) return raise_sentence(r, "System message cannot contain videos.");
        r->n_videos += count;
        if (r->in->add_vision_id) calla_buf_fmt(&content->text, "Video %d: ", r->n_videos);
        add(content, "<|vision_start|><|video_pad|><|vision_end|>");
    } else if (is_in("text", item)) {
        if (member(item, "text", &v)) {
            const size_t begin = content->text.n;
            calla_python_str(&content->text, v);
            mark(content, begin);
        }
    } else return raise_sentence(r, "Unexpected item type in content.");
    return 0;
}

/* The template's render_content: leaves r->content. */
static int read_content(struct renderer *r, struct json_object *message, bool count, bool is_system) {
    struct json_object *v;
    int rc = 0;
    clear(&r->content);
    if (!member(message, "content", &v) || v == NULL) return 0;
    if (is_string(v)) add_string(&r->content, v);
    else if (json_object_is_type(v, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(v) && rc == 0; i++)
            rc = read_item(r, json_object_array_get_idx(v, i), count, is_system);
    } else rc = raise_sentence(r, "Unexpected content type.");
    return rc;
}

/* r->content|trim */
static struct calla_span trimmed(const struct renderer *r) {
    return calla_python_strip(r->content.text.data, (struct calla_span){ 0, r->content.text.n });
}

/* ---- the parts of a prompt -------------------------------------------------- */

static void add_tools(struct renderer *r, struct json_object *tools) {
    add(r->out, "<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>");
    if (is_string(tools)) {   /* iterable too: a tool a character */
        const char *s = json_object_get_string(tools);
        const size_t n = (size_t)json_object_get_string_len(tools);
        for (size_t i = 0, len; i < n; i += len) {
            for (len = 1; i + len < n && ((unsigned char)s[i + len] & 0xC0) == 0x80;) len++;
            add(r->out, "\n");
            const size_t begin = r->out->text.n;
            calla_json_print_string(&r->out->text, s + i, len);
            mark(r->out, begin);
        }
    } else {
        for (size_t i = 0; i < json_object_array_length(tools); i++) {
            add(r->out, "\n");
            add_json(r->out, json_object_array_get_idx(tools, i));
        }
    }
    add(r->out, "\n</tools>");
    add(r->out, CALL_FORMAT);
}

/* Tools and the first message, if it is the system's. */
static int add_opening(struct renderer *r, struct json_object *first) {
    struct json_object *tools = r->in->tools;
    const bool has_tools = (is_string(tools) || json_object_is_type(tools, json_type_array)) && calla_python_true(tools);
    const bool has_system = member_is(first, "role", "system");
    struct calla_span content = { 0, 0 };
    if (has_system) {
        const int rc = read_content(r, first, false, true);
        if (rc != 0) return rc;
        content = trimmed(r);
    }
    if (has_tools) {
        add_tools(r, tools);
        if (content.begin < content.end) add(r->out, "\n\n");
    } else if (has_system) add(r->out, "<|im_start|>system\n");
    if (has_system) add_slice(r->out, &r->content, content);
    if (has_tools || has_system) add(r->out, "<|im_end|>\n");
    return 0;
}

/* The last user message that is not a wrapped tool response.  Without one the
 * template raises; extension (d): -1, before all messages. */
static int find_last_query(struct renderer *r, struct json_object *messages, int *idx) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    for (*idx = (int)json_object_array_length(messages) - 1; *idx >= 0; --*idx) {
        struct json_object *message = json_object_array_get_idx(messages, (size_t)*idx);
        if (!member_is(message, "role", "user")) continue;
        const int rc = read_content(r, message, false, false);
        if (rc != 0) return rc;
        const struct calla_span c = trimmed(r);
        const char *s = r->content.text.data;
        const size_t n = c.end - c.begin;
        if (n < sizeof close - 1 || memcmp(s + c.begin, open, sizeof open - 1) != 0 ||
            memcmp(s + c.end - (sizeof close - 1), close, sizeof close - 1) != 0)
            return 0;
    }
    return r->in->extensions ? 0 : raise_sentence(r, "No user query found in messages.");
}

static int add_call(struct renderer *r, struct json_object *call, const char *before) {
    struct json_object *v;
    if (member(call, "function", &v)) call = v;
    if (!member(call, "name", &v) || !is_string(v)) return raise_sentence(r, "The name of a called function must be a string.");
    add(r->out, before);
    add(r->out, "<tool_call>\n<function=");
    add_string(r->out, v);
    add(r->out, ">\n");
    if (member(call, "arguments", &v)) {
        if (is_string(v) && r->in->extensions) {   /* extension (b) */
            add_string(r->out, v);
            add(r->out, "\n");
        } else if (!json_object_is_type(v, json_type_object)) {
            return raise_sentence(r, "Can only get item pairs from a mapping.");
        } else {
            for (struct json_object_iterator i = json_object_iter_begin(v), end = json_object_iter_end(v);
                 !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
                struct json_object *value = json_object_iter_peek_value(&i);
                add(r->out, "<parameter=");
                const size_t begin = r->out->text.n;
                calla_json_key(&r->out->text, json_object_iter_peek_name(&i));
                mark(r->out, begin);
                add(r->out, ">\n");
                if (is_string(value)) add_string(r->out, value);
                else add_json(r->out, value);
                add(r->out, "\n</parameter>\n");
            }
        }
    }
    add(r->out, "</function>\n</tool_call>");
    return 0;
}

static struct calla_span strip_newlines(const char *s, struct calla_span span, bool left, bool right) {
    while (left && span.begin < span.end && s[span.begin] == '\n') span.begin++;
    while (right && span.begin < span.end && s[span.end - 1] == '\n') span.end--;
    return span;
}

/* Cuts the thinking out of content.  The first closing tag ends it, the last
 * one begins the answer, and what stands between or before is lost. */
static struct calla_span split_thinking(const char *s, struct calla_span *content) {
    static const char open[] = "<think>", close[] = "</think>";
    struct calla_span reasoning = { 0, 0 };
    const size_t first = content->begin < content->end ? find(s, *content, close, false) : SIZE_MAX;
    if (first == SIZE_MAX) return reasoning;
    reasoning = strip_newlines(s, (struct calla_span){ content->begin, first }, false, true);
    const size_t last_open = find(s, reasoning, open, true);
    if (last_open != SIZE_MAX) reasoning.begin = last_open + sizeof open - 1;
    reasoning = strip_newlines(s, reasoning, true, false);
    content->begin = find(s, *content, close, true) + sizeof close - 1;
    *content = strip_newlines(s, *content, true, false);
    return reasoning;
}

static int add_assistant(struct renderer *r, struct json_object *message, bool keep_thinking, bool open) {
    struct calla_span content = trimmed(r), reasoning;
    struct json_object *v;
    int rc = 0;
    add(r->out, "<|im_start|>assistant\n");
    if (member(message, "reasoning_content", &v) && is_string(v)) {
        const char *s = json_object_get_string(v);
        reasoning = calla_python_strip(s, (struct calla_span){ 0, (size_t)json_object_get_string_len(v) });
        if (keep_thinking) {
            add(r->out, "<think>\n");
            add_client(r->out, s + reasoning.begin, reasoning.end - reasoning.begin);
        }
    } else {
        reasoning = calla_python_strip(r->content.text.data, split_thinking(r->content.text.data, &content));
        if (keep_thinking) {
            add(r->out, "<think>\n");
            add_slice(r->out, &r->content, reasoning);
        }
    }
    if (keep_thinking) add(r->out, "\n</think>\n\n");
    add_slice(r->out, &r->content, content);

    const struct calla_span seen = calla_python_strip(r->content.text.data, content);
    if (member(message, "tool_calls", &v) && calla_python_true(v)) {
        if (is_string(v)) return raise_sentence(r, "A tool call must be an object.");
        if (json_object_is_type(v, json_type_array))
            for (size_t i = 0; i < json_object_array_length(v) && rc == 0; i++)
                rc = add_call(r, json_object_array_get_idx(v, i), i > 0 ? "\n" : seen.begin < seen.end ? "\n\n" : "");
    }
    if (!open) add(r->out, "<|im_end|>\n");
    return rc;
}

static int add_message(struct renderer *r, struct json_object *messages, int idx, int last_query_idx) {
    const int n = (int)json_object_array_length(messages);
    struct json_object *message = json_object_array_get_idx(messages, (size_t)idx);
    int rc = read_content(r, message, true, false);
    if (rc != 0) return rc;
    if (member_is(message, "role", "system")) {
        if (idx == 0) return 0;
        if (!r->in->extensions) return raise_sentence(r, "System message must be at the beginning.");
        add(r->out, "<|im_start|>system\n");   /* extension (a) */
        add_slice(r->out, &r->content, trimmed(r));
        add(r->out, "<|im_end|>\n");
    } else if (member_is(message, "role", "user")) {
        add(r->out, "<|im_start|>user\n");
        add_slice(r->out, &r->content, trimmed(r));
        add(r->out, "<|im_end|>\n");
    } else if (member_is(message, "role", "assistant")) {
        const bool open = r->in->extensions && r->in->open_last && idx == n - 1;   /* extension (c) */
        rc = add_assistant(r, message, r->in->preserve_thinking || idx > last_query_idx, open);
    } else if (member_is(message, "role", "tool")) {
        if (idx > 0 && !member_is(json_object_array_get_idx(messages, (size_t)idx - 1), "role", "tool"))
            add(r->out, "<|im_start|>user");
        add(r->out, "\n<tool_response>\n");
        add_slice(r->out, &r->content, trimmed(r));
        add(r->out, "\n</tool_response>");
        if (idx == n - 1 || !member_is(json_object_array_get_idx(messages, (size_t)idx + 1), "role", "tool"))
            add(r->out, "<|im_end|>\n");
    } else rc = raise_sentence(r, "Unexpected message role.");
    return rc;
}

static bool opens_last(const struct calla_render_input *in, int n) {
    return in->extensions && in->open_last &&
           member_is(json_object_array_get_idx(in->messages, (size_t)n - 1), "role", "assistant");
}

static int render(struct renderer *r) {
    const struct calla_render_input *in = r->in;
    int last_query_idx, rc;
    if (!calla_python_true(in->messages)) return raise_sentence(r, "No messages provided.");
    if (!json_object_is_type(in->messages, json_type_array))
        return raise_sentence(r, is_string(in->messages) ? "No user query found in messages." : "The messages must be a list.");
    const int n = (int)json_object_array_length(in->messages);
    if ((rc = add_opening(r, json_object_array_get_idx(in->messages, 0))) != 0 ||
        (rc = find_last_query(r, in->messages, &last_query_idx)) != 0)
        return rc;
    for (int i = 0; i < n; i++)
        if ((rc = add_message(r, in->messages, i, last_query_idx)) != 0) return rc;
    if (in->add_generation_prompt && !opens_last(in, n)) {
        add(r->out, "<|im_start|>assistant\n");
        add(r->out, in->thinking ? "<think>\n" : "<think>\n\n</think>\n\n");
    }
    return 0;
}

int calla_render(struct calla_prompt *out, const struct calla_render_input *in, struct calla_err *err) {
    struct renderer r = { .in = in, .out = out, .err = err };
    *out = (struct calla_prompt){ 0 };
    int rc = render(&r);
    if (rc == 0 && (out->text.failed || r.content.text.failed))
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for a prompt of more than %zu bytes", out->text.n);
    if (rc != 0) calla_prompt_free(out);
    calla_prompt_free(&r.content);
    return rc;
}

void calla_render_input_of(struct calla_render_input *out, struct json_object *request) {
    struct json_object *kwargs, *v;
    *out = (struct calla_render_input){ .add_generation_prompt = true, .thinking = true };
    member(request, "chat_template_kwargs", &kwargs);
    member(request, "messages", &out->messages);
    if (!member(kwargs, "tools", &out->tools)) member(request, "tools", &out->tools);
    if (member(kwargs, "add_generation_prompt", &v) || member(request, "add_generation_prompt", &v))
        out->add_generation_prompt = calla_python_true(v);
    if (member(kwargs, "enable_thinking", &v) || member(request, "enable_thinking", &v))
        out->thinking = !json_object_is_type(v, json_type_boolean) || json_object_get_boolean(v);
    if (member(kwargs, "preserve_thinking", &v) || member(request, "preserve_thinking", &v))
        out->preserve_thinking = json_object_is_type(v, json_type_boolean) && json_object_get_boolean(v);
    if (member(kwargs, "add_vision_id", &v) || member(request, "add_vision_id", &v)) out->add_vision_id = calla_python_true(v);
}
