/* json_print.c - prints json-c trees as Python's json.dumps(ensure_ascii=False)
 * does, because the chat template does.
 *
 * Pure functions, any thread.  No digit depends on the locale. */
#include "base/json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* d's n_digits significant digits, correctly rounded, without trailing zeros;
 * returns how many are left.  d = 0.d1d2d3... * 10^point. */
static int digits_of(double d, int n_digits, char digits[24], int *point) {
    char text[48];
    int n = 0;
    snprintf(text, sizeof text, "%.*e", n_digits - 1, d);
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;   /* passes over the locale's point */
    *point = atoi(p + 1) + 1;
    while (n > 1 && digits[n - 1] == '0') n--;
    digits[n] = 0;
    return n;
}

static bool reads_back(const char *digits, int n, int point, double d) {
    char text[48];
    snprintf(text, sizeof text, "%se%d", digits, point - n);
    return strtod(text, NULL) == d;
}

void calla_json_print_double(struct calla_buf *out, double d) {
    char digits[24];
    int point, n;
    if (isnan(d)) {
        calla_buf_str(out, "NaN");
        return;
    }
    if (signbit(d)) {
        calla_buf_char(out, '-');
        d = -d;
    }
    if (isinf(d)) {
        calla_buf_str(out, "Infinity");
        return;
    }
    /* The fewest digits that read back.  15 digits of a normal double hold every
     * shorter decimal that it came from (DBL_DIG), so the search begins there. */
    int n_digits = d >= DBL_MIN ? DBL_DIG : 1;
    n = digits_of(d, n_digits, digits, &point);
    while (n_digits < 17 && !reads_back(digits, n, point, d)) n = digits_of(d, ++n_digits, digits, &point);
    if (point > 16 || point < -3) {
        calla_buf_char(out, digits[0]);
        if (n > 1) calla_buf_fmt(out, ".%s", digits + 1);
        calla_buf_fmt(out, "e%c%02d", point > 0 ? '+' : '-', abs(point - 1));
    } else if (point <= 0) {
        calla_buf_fmt(out, "0.%.*s%s", -point, "000", digits);
    } else if (n <= point) {
        calla_buf_str(out, digits);
        for (int i = n; i < point; i++) calla_buf_char(out, '0');
        calla_buf_str(out, ".0");
    } else {
        calla_buf_fmt(out, "%.*s.%s", point, digits, digits + point);
    }
}

static void print_number(struct calla_buf *out, struct json_object *value) {
    if (json_object_get_type(value) == json_type_int) {
        const int64_t v = json_object_get_int64(value);
        if (v < 0) calla_buf_fmt(out, "%" PRId64, v);
        else calla_buf_fmt(out, "%" PRIu64, json_object_get_uint64(value));
        return;
    }
    /* The parser keeps the digits of an integer beyond 64 bits as userdata. */
    const char *digits = json_object_get_userdata(value);
    if (digits != NULL && digits[strspn(digits, "-0123456789")] == 0) calla_buf_str(out, digits);
    else calla_json_print_double(out, json_object_get_double(value));
}

void calla_json_print_string(struct calla_buf *out, const char *s, size_t n) {
    size_t begin = 0;
    calla_buf_char(out, '"');
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        calla_buf_add(out, s + begin, i - begin);
        begin = i + 1;
        switch (c) {
        case '"': calla_buf_str(out, "\\\""); break;
        case '\\': calla_buf_str(out, "\\\\"); break;
        case '\b': calla_buf_str(out, "\\b"); break;
        case '\f': calla_buf_str(out, "\\f"); break;
        case '\n': calla_buf_str(out, "\\n"); break;
        case '\r': calla_buf_str(out, "\\r"); break;
        case '\t': calla_buf_str(out, "\\t"); break;
        default: calla_buf_fmt(out, "\\u%04x", c);
        }
    }
    calla_buf_add(out, s + begin, n - begin);
    calla_buf_char(out, '"');
}

void calla_json_key(struct calla_buf *out, const char *key) {
    for (const char *nul; (nul = strstr(key, "\xC0\x80")) != NULL; key = nul + 2) {
        calla_buf_add(out, key, (size_t)(nul - key));
        calla_buf_char(out, 0);
    }
    calla_buf_str(out, key);
}

static void print_key(struct calla_buf *out, const char *key) {
    if (strstr(key, "\xC0\x80") == NULL) {
        calla_json_print_string(out, key, strlen(key));
        return;
    }
    struct calla_buf bytes = { 0 };
    calla_json_key(&bytes, key);
    calla_json_print_string(out, bytes.data, bytes.n);
    out->failed |= bytes.failed;
    calla_buf_free(&bytes);
}

static void print(struct calla_buf *out, struct json_object *value, const char *comma, const char *colon) {
    switch (json_object_get_type(value)) {
    case json_type_null: calla_buf_str(out, "null"); break;
    case json_type_boolean: calla_buf_str(out, json_object_get_boolean(value) ? "true" : "false"); break;
    case json_type_int:
    case json_type_double: print_number(out, value); break;
    case json_type_string:
        calla_json_print_string(out, json_object_get_string(value), (size_t)json_object_get_string_len(value));
        break;
    case json_type_array: {
        const size_t n = json_object_array_length(value);
        calla_buf_char(out, '[');
        for (size_t i = 0; i < n && !out->failed; i++) {
            if (i > 0) calla_buf_str(out, comma);
            print(out, json_object_array_get_idx(value, i), comma, colon);
        }
        calla_buf_char(out, ']');
        break;
    }
    case json_type_object: {
        bool first = true;
        calla_buf_char(out, '{');
        for (struct json_object_iterator i = json_object_iter_begin(value), end = json_object_iter_end(value);
             !json_object_iter_equal(&i, &end) && !out->failed; json_object_iter_next(&i)) {
            if (!first) calla_buf_str(out, comma);
            first = false;
            print_key(out, json_object_iter_peek_name(&i));
            calla_buf_str(out, colon);
            print(out, json_object_iter_peek_value(&i), comma, colon);
        }
        calla_buf_char(out, '}');
        break;
    }
    }
}

void calla_json_print(struct calla_buf *out, struct json_object *value) { print(out, value, ", ", ": "); }

void calla_json_print_compact(struct calla_buf *out, struct json_object *value) { print(out, value, ",", ":"); }
