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

/* Significant digits of a number 0.d1d2d3... * 10^point. */
struct decimal { char digits[24]; int n, point; };

/* d, correctly rounded to n digits. */
static struct decimal decimal_of(double d, int n) {
    struct decimal v = { .n = 0 };
    char text[48];
    snprintf(text, sizeof text, "%.*e", n - 1, d);
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') v.digits[v.n++] = *p;   /* passes over the locale's point */
    v.point = atoi(p + 1) + 1;
    return v;
}

/* The next larger decimal of as many digits. */
static struct decimal next_up(struct decimal v) {
    int i = v.n - 1;
    for (; i >= 0 && v.digits[i] == '9'; i--) v.digits[i] = '0';
    if (i >= 0) v.digits[i]++;
    else {
        v.digits[0] = '1';
        v.point++;
    }
    return v;
}

static bool reads_back(const struct decimal *v, double d) {
    char text[48];
    snprintf(text, sizeof text, "%.*se%d", v->n, v->digits, v->point - v->n);
    return strtod(text, NULL) == d;
}

/* The fewest digits that read back as d, a finite number >= 0. */
static struct decimal shortest(double d) {
    /* 15 digits of a normal double hold every shorter decimal that it came from
     * (DBL_DIG), so the search begins there. */
    int n = d >= DBL_MIN ? DBL_DIG : 1;
    struct decimal v = decimal_of(d, n);
    while (n < 17 && !reads_back(&v, d)) {
        v = decimal_of(d, ++n);
        if (n != 16) continue;
        /* Below a power of two doubles lie twice as dense: the nearest decimal of
         * 16 digits may miss there, and the next one up read back. */
        const struct decimal up = next_up(v);
        if (!reads_back(&v, d) && reads_back(&up, d)) v = up;
    }
    while (v.n > 1 && v.digits[v.n - 1] == '0') v.n--;
    v.digits[v.n] = 0;
    return v;
}

void calla_json_print_double(struct calla_buf *out, double d) {
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
    const struct decimal v = shortest(d);
    if (v.point > 16 || v.point < -3) {
        calla_buf_char(out, v.digits[0]);
        if (v.n > 1) calla_buf_fmt(out, ".%s", v.digits + 1);
        calla_buf_fmt(out, "e%c%02d", v.point > 0 ? '+' : '-', abs(v.point - 1));
    } else if (v.point <= 0) {
        calla_buf_fmt(out, "0.%.*s%s", -v.point, "000", v.digits);
    } else if (v.n <= v.point) {
        calla_buf_str(out, v.digits);
        for (int i = v.n; i < v.point; i++) calla_buf_char(out, '0');
        calla_buf_str(out, ".0");
    } else {
        calla_buf_fmt(out, "%.*s.%s", v.point, v.digits, v.digits + v.point);
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
