/* python.c - Python's str, bool and strip on JSON values. */
#include "text/python.h"

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <utf8proc.h>

#include "base/json.h"
#include "base/utf8.h"

/* str.isspace() of one code point. */
static bool is_blank(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* The character that begins at s; bytes that are none count as one, U+FFFD. */
static size_t next(const char *s, size_t n, uint32_t *c) {
    const int len = calla_utf8_decode(s, n, c);
    return (size_t)(len < 0 ? -len : len);
}

struct calla_span calla_python_strip(const char *s, struct calla_span span) {
    uint32_t c;
    while (span.begin < span.end) {
        const size_t len = next(s + span.begin, span.end - span.begin, &c);
        if (!is_blank(c)) break;
        span.begin += len;
    }
    while (span.begin < span.end) {
        size_t at = span.end - 1;
        while (at > span.begin && span.end - at < 4 && ((unsigned char)s[at] & 0xC0) == 0x80) at--;
        if (next(s + at, span.end - at, &c) != span.end - at || !is_blank(c)) break;
        span.end = at;
    }
    return span;
}

bool calla_python_true(struct json_object *value) {
    switch (json_object_get_type(value)) {
    case json_type_null: return false;
    case json_type_boolean: return json_object_get_boolean(value);
    case json_type_int: return json_object_get_int64(value) != 0;
    case json_type_double: return json_object_get_double(value) != 0;
    case json_type_string: return json_object_get_string_len(value) != 0;
    case json_type_array: return json_object_array_length(value) != 0;
    case json_type_object: return json_object_object_length(value) != 0;
    }
    return false;
}

static bool is_printable(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC: case UTF8PROC_CATEGORY_CF: case UTF8PROC_CATEGORY_CS: case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN: case UTF8PROC_CATEGORY_ZL: case UTF8PROC_CATEGORY_ZP: case UTF8PROC_CATEGORY_ZS:
        return c == ' ';
    default: return true;
    }
}

/* repr(s). */
static void repr_string(struct calla_buf *out, const char *s, size_t n) {
    const char quote = memchr(s, '\'', n) != NULL && memchr(s, '"', n) == NULL ? '"' : '\'';
    calla_buf_char(out, quote);
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t c;
        len = next(s + i, n - i, &c);
        if (c == (unsigned char)quote || c == '\\') calla_buf_fmt(out, "\\%c", (char)c);
        else if (c == '\t') calla_buf_str(out, "\\t");
        else if (c == '\n') calla_buf_str(out, "\\n");
        else if (c == '\r') calla_buf_str(out, "\\r");
        else if (is_printable(c)) calla_buf_add(out, s + i, len);
        else if (c < 0x100) calla_buf_fmt(out, "\\x%02x", c);
        else if (c < 0x10000) calla_buf_fmt(out, "\\u%04x", c);
        else calla_buf_fmt(out, "\\U%08x", c);
    }
    calla_buf_char(out, quote);
}

static void repr_key(struct calla_buf *out, const char *key) {
    struct calla_buf bytes = { 0 };
    calla_json_key(&bytes, key);
    repr_string(out, bytes.data != NULL ? bytes.data : "", bytes.n);
    out->failed |= bytes.failed;
    calla_buf_free(&bytes);
}

static void repr(struct calla_buf *out, struct json_object *value) {
    switch (json_object_get_type(value)) {
    case json_type_null: calla_buf_str(out, "None"); break;
    case json_type_boolean: calla_buf_str(out, json_object_get_boolean(value) ? "True" : "False"); break;
    case json_type_double: {
        const double d = json_object_get_double(value);
        if (isinf(d) && json_object_get_userdata(value) == NULL) calla_buf_str(out, d < 0 ? "-inf" : "inf");
        else calla_json_print(out, value);
        break;
    }
    case json_type_int: calla_json_print(out, value); break;
    case json_type_string: repr_string(out, json_object_get_string(value), (size_t)json_object_get_string_len(value)); break;
    case json_type_array: {
        const size_t n = json_object_array_length(value);
        calla_buf_char(out, '[');
        for (size_t i = 0; i < n; i++) {
            if (i > 0) calla_buf_str(out, ", ");
            repr(out, json_object_array_get_idx(value, i));
        }
        calla_buf_char(out, ']');
        break;
    }
    case json_type_object: {
        bool first = true;
        calla_buf_char(out, '{');
        for (struct json_object_iterator i = json_object_iter_begin(value), end = json_object_iter_end(value);
             !json_object_iter_equal(&i, &end); json_object_iter_next(&i)) {
            if (!first) calla_buf_str(out, ", ");
            first = false;
            repr_key(out, json_object_iter_peek_name(&i));
            calla_buf_str(out, ": ");
            repr(out, json_object_iter_peek_value(&i));
        }
        calla_buf_char(out, '}');
        break;
    }
    }
}

void calla_python_str(struct calla_buf *out, struct json_object *value) {
    if (json_object_get_type(value) == json_type_string)
        calla_buf_add(out, json_object_get_string(value), (size_t)json_object_get_string_len(value));
    else repr(out, value);
}
