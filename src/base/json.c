/* json.c - reads JSON text into json-c objects, by the grammar of RFC 8259.
 *
 * Pure functions: no state between calls, any thread. */
#include "base/json.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

enum {
    /* Bytes that json-c 0.16 and malloc take, rounded up: an empty object holds
     * a table of 16 entries, so `{},` costs 250 times its text. */
    OBJECT_BYTES = 832, ENTRY_BYTES = 96, ARRAY_BYTES = 160, SCALAR_BYTES = 80,
    FREE_BYTES = 256 << 20, BYTES_A_BYTE = 16,
    /* A double is decided by at most 767 significant digits; the rest only says
     * whether there is any. */
    MAX_DIGITS = 780,
};

struct reader {
    const unsigned char *s;
    size_t n, at;
    size_t budget_bytes;
    int depth;
    struct calla_buf scratch;   /* an unescaped string or key */
    struct calla_err *err;
};

static int bad(struct reader *r, const char *what) {
    if (r->at >= r->n) return calla_fail(r->err, CALLA_ERR_FORMAT, "JSON ends at byte %zu: %s", r->n, what);
    return calla_fail(r->err, CALLA_ERR_FORMAT, "JSON, byte %zu (0x%02x): %s", r->at, r->s[r->at], what);
}

static int spend(struct reader *r, size_t n_bytes) {
    if (n_bytes > r->budget_bytes)
        return calla_fail(r->err, CALLA_ERR_LIMIT,
                          "JSON, byte %zu: the values of this text of %zu bytes take more than %d MiB; send fewer of them",
                          r->at, r->n, (int)((FREE_BYTES + r->n * BYTES_A_BYTE) >> 20));
    r->budget_bytes -= n_bytes;
    return 0;
}

static int no_memory(struct reader *r) { return calla_fail(r->err, CALLA_ERR_MEMORY, "JSON: out of memory"); }

static void skip_blanks(struct reader *r) {
    while (r->at < r->n && (r->s[r->at] == ' ' || r->s[r->at] == '\n' || r->s[r->at] == '\r' || r->s[r->at] == '\t')) r->at++;
}

static int peek(const struct reader *r) { return r->at < r->n ? r->s[r->at] : -1; }

/* ---- strings --------------------------------------------------------------- */

static void add_character(struct calla_buf *b, uint32_t c) {
    char bytes[4];
    calla_buf_add(b, bytes, (size_t)calla_utf8_encode(c, bytes));
}

/* The four hex digits at s + at, or -1. */
static int hex4(const struct reader *r, size_t at) {
    int v = 0;
    if (r->n < 4 || at > r->n - 4) return -1;
    for (size_t i = at; i < at + 4; i++) {
        const int c = r->s[i];
        const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* At the character after the backslash. */
static int read_escape(struct reader *r, bool key) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const int c = peek(r);
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (known != NULL) {
        calla_buf_char(&r->scratch, to[known - from]);
        r->at++;
        return 0;
    }
    if (c != 'u') return bad(r, "a backslash is followed by one of \"\\/bfnrtu");
    const int unit = hex4(r, r->at + 1);
    if (unit < 0) return bad(r, "\\u needs four hexadecimal digits");
    r->at += 5;
    if (unit >= 0xD800 && unit < 0xDC00 && r->n - r->at >= 6 && r->s[r->at] == '\\' && r->s[r->at + 1] == 'u') {
        const int low = hex4(r, r->at + 2);
        if (low >= 0xDC00 && low < 0xE000) {
            r->at += 6;
            add_character(&r->scratch, 0x10000 + ((uint32_t)(unit - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
            return 0;
        }
    }
    if (unit >= 0xD800 && unit < 0xE000) add_character(&r->scratch, 0xFFFD);
    else if (unit == 0 && key) calla_buf_add(&r->scratch, "\xC0\x80", 2);
    else add_character(&r->scratch, (uint32_t)unit);
    return 0;
}

/* At the opening quote; leaves the unescaped bytes in r->scratch. */
static int read_string(struct reader *r, bool key) {
    calla_buf_clear(&r->scratch);
    r->at++;
    for (;;) {
        const size_t begin = r->at;
        while (r->at < r->n && r->s[r->at] >= 0x20 && r->s[r->at] < 0x80 && r->s[r->at] != '"' && r->s[r->at] != '\\') r->at++;
        calla_buf_add(&r->scratch, r->s + begin, r->at - begin);
        const int c = peek(r);
        if (c < 0) return bad(r, "a string has no closing quote");
        if (c < 0x20) return bad(r, "a control character in a string must be escaped");
        if (c == '"') break;
        if (c == '\\') {
            r->at++;
            const int rc = read_escape(r, key);
            if (rc != 0) return rc;
            continue;
        }
        uint32_t character;
        const int len = calla_utf8_decode((const char *)r->s + r->at, r->n - r->at, &character);
        if (len < 0) return bad(r, "not UTF-8");
        calla_buf_add(&r->scratch, r->s + r->at, (size_t)len);
        r->at += (size_t)len;
    }
    r->at++;
    return r->scratch.failed ? no_memory(r) : 0;
}

/* ---- numbers --------------------------------------------------------------- */

static bool is_digit(int c) { return c >= '0' && c <= '9'; }

static size_t skip_digits(struct reader *r) {
    const size_t begin = r->at;
    while (is_digit(peek(r))) r->at++;
    return r->at - begin;
}

/* s [n]: a number by JSON's grammar.  strtod gets the digits and an exponent,
 * without a decimal point, because the point depends on the locale. */
static double to_double(const unsigned char *s, size_t n) {
    char text[MAX_DIGITS + 32];
    size_t len = 0, i = 0;
    long long scale = 0, exponent = 0;
    bool fraction = false, more = false;
    if (s[0] == '-') text[len++] = (char)s[i++];
    const size_t first = len;
    for (; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') {
            fraction = true;
            continue;
        }
        const bool kept = len - first < MAX_DIGITS;
        if (len == first && s[i] == '0') scale -= fraction;
        else if (kept) {
            text[len++] = (char)s[i];
            scale -= fraction;
        } else {
            more |= s[i] != '0';
            scale += !fraction;
        }
    }
    if (len == first) text[len++] = '0';
    if (more) {
        text[len++] = '1';
        scale--;
    }
    if (i < n) {
        const bool negative = s[++i] == '-';
        if (s[i] == '-' || s[i] == '+') i++;
        for (; i < n; i++)
            if (exponent < 1000000000000) exponent = exponent * 10 + (s[i] - '0');
        if (negative) exponent = -exponent;
    }
    scale += exponent;
    scale = scale > 99999 ? 99999 : scale < -99999 ? -99999 : scale;
    snprintf(text + len, sizeof text - len, "e%lld", scale);
    return strtod(text, NULL);
}

/* s [n]: digits with an optional minus. */
static struct json_object *new_integer(const unsigned char *s, size_t n) {
    const bool negative = s[0] == '-';
    uint64_t v = 0;
    for (size_t i = negative; i < n; i++) {
        const uint64_t d = (uint64_t)(s[i] - '0');
        if (v > (UINT64_MAX - d) / 10 || (negative && v * 10 + d > (uint64_t)INT64_MAX + 1)) {
            char *digits = malloc(n + 1);
            if (digits == NULL) return NULL;
            memcpy(digits, s, n);
            digits[n] = 0;
            struct json_object *o = json_object_new_double_s(to_double(s, n), digits);
            free(digits);
            return o;
        }
        v = v * 10 + d;
    }
    if (negative) return json_object_new_int64(v == 0 ? 0 : -(int64_t)(v - 1) - 1);
    return v <= INT64_MAX ? json_object_new_int64((int64_t)v) : json_object_new_uint64(v);
}

static int read_number(struct reader *r, struct json_object **out) {
    const size_t begin = r->at;
    bool integer = true;
    if (peek(r) == '-') r->at++;
    const size_t n_int = skip_digits(r);
    if (n_int == 0) return bad(r, "a number needs a digit here");
    if (n_int > 1 && r->s[r->at - n_int] == '0') {
        r->at -= n_int;
        return bad(r, "a number has no leading zeros");
    }
    if (peek(r) == '.') {
        integer = false;
        r->at++;
        if (skip_digits(r) == 0) return bad(r, "a digit must follow the decimal point");
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        integer = false;
        r->at++;
        if (peek(r) == '+' || peek(r) == '-') r->at++;
        if (skip_digits(r) == 0) return bad(r, "an exponent needs a digit");
    }
    const int rc = spend(r, SCALAR_BYTES + r->at - begin);
    if (rc != 0) return rc;
    *out = integer ? new_integer(r->s + begin, r->at - begin) : json_object_new_double(to_double(r->s + begin, r->at - begin));
    return *out != NULL ? 0 : no_memory(r);
}

/* ---- values ---------------------------------------------------------------- */

static int read_value(struct reader *r, struct json_object **out);

static int open_container(struct reader *r, size_t n_bytes) {
    if (r->depth >= CALLA_JSON_DEPTH)
        return calla_fail(r->err, CALLA_ERR_LIMIT, "JSON, byte %zu: nested deeper than %d levels", r->at, CALLA_JSON_DEPTH);
    r->depth++;
    r->at++;
    return spend(r, n_bytes);
}

static int read_array(struct reader *r, struct json_object **out) {
    int rc = open_container(r, ARRAY_BYTES);
    if (rc != 0) return rc;
    if ((*out = json_object_new_array_ext(4)) == NULL) return no_memory(r);
    skip_blanks(r);
    if (peek(r) == ']') goto close;
    for (;;) {
        struct json_object *value = NULL;
        if ((rc = spend(r, 2 * sizeof value)) != 0 || (rc = read_value(r, &value)) != 0) {
            json_object_put(value);
            return rc;
        }
        if (json_object_array_add(*out, value) != 0) {
            json_object_put(value);
            return no_memory(r);
        }
        skip_blanks(r);
        if (peek(r) == ']') break;
        if (peek(r) != ',') return bad(r, "',' or ']' must follow a value of an array");
        r->at++;
    }
close:
    r->at++;
    r->depth--;
    return 0;
}

/* At the key; adds one member to object. */
static int read_member(struct reader *r, struct json_object *object) {
    struct json_object *value = NULL;
    char small[128], *key = small;
    int rc;
    skip_blanks(r);
    if (peek(r) != '"') return bad(r, "a key in double quotes must stand here");
    if ((rc = read_string(r, true)) != 0 || (rc = spend(r, ENTRY_BYTES + 2 * r->scratch.n)) != 0) return rc;
    const size_t key_bytes = r->scratch.n + 1;
    if (key_bytes > sizeof small && (key = malloc(key_bytes)) == NULL) return no_memory(r);
    memcpy(key, r->scratch.data != NULL ? r->scratch.data : "", key_bytes);
    skip_blanks(r);
    if (peek(r) != ':') rc = bad(r, "':' must follow a key");
    else {
        r->at++;
        rc = read_value(r, &value);
    }
    if (rc == 0 && json_object_object_add(object, key, value) != 0) rc = no_memory(r);
    if (rc != 0) json_object_put(value);
    if (key != small) free(key);
    return rc;
}

static int read_object(struct reader *r, struct json_object **out) {
    int rc = open_container(r, OBJECT_BYTES);
    if (rc != 0) return rc;
    if ((*out = json_object_new_object()) == NULL) return no_memory(r);
    skip_blanks(r);
    if (peek(r) == '}') goto close;
    for (;;) {
        if ((rc = read_member(r, *out)) != 0) return rc;
        skip_blanks(r);
        if (peek(r) == '}') break;
        if (peek(r) != ',') return bad(r, "',' or '}' must follow a value of an object");
        r->at++;
    }
close:
    r->at++;
    r->depth--;
    return 0;
}

static bool take_word(struct reader *r, const char *word) {
    const size_t n = strlen(word);
    if (r->n - r->at < n || memcmp(r->s + r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

static int read_value(struct reader *r, struct json_object **out) {
    int rc;
    skip_blanks(r);
    const int c = peek(r);
    if (c == '{') return read_object(r, out);
    if (c == '[') return read_array(r, out);
    if (c == '-' || is_digit(c)) return read_number(r, out);
    if (c == '"') {
        if ((rc = read_string(r, false)) != 0 || (rc = spend(r, SCALAR_BYTES + r->scratch.n)) != 0) return rc;
        if (r->scratch.n > INT_MAX - 64) return calla_fail(r->err, CALLA_ERR_LIMIT, "JSON: a string of %zu bytes", r->scratch.n);
        *out = json_object_new_string_len(r->scratch.data != NULL ? r->scratch.data : "", (int)r->scratch.n);
    } else if (take_word(r, "null")) return 0;
    else if (take_word(r, "true")) *out = json_object_new_boolean(1);
    else if (take_word(r, "false")) *out = json_object_new_boolean(0);
    else return bad(r, "a value must stand here");
    return *out != NULL ? 0 : no_memory(r);
}

int calla_json_parse(const char *text, size_t n, struct json_object **out, struct calla_err *err) {
    struct reader r = { .s = (const unsigned char *)text, .n = n, .err = err };
    *out = NULL;
    r.budget_bytes = n < (SIZE_MAX - FREE_BYTES) / BYTES_A_BYTE ? FREE_BYTES + n * BYTES_A_BYTE : SIZE_MAX;
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) r.at = 3;
    int rc = read_value(&r, out);
    if (rc == 0) {
        skip_blanks(&r);
        if (r.at < n) rc = bad(&r, "nothing may follow the value");
    }
    if (rc != 0) {
        json_object_put(*out);
        *out = NULL;
    }
    calla_buf_free(&r.scratch);
    return rc;
}
