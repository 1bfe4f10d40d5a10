#include "text/tokenizer_scan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/utf8.h"

enum { MAX_DEPTH = 64 };

int calla_scan_fail(struct calla_scan *s, const char *fmt, ...) {
    char what[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    /* Names come from the file, cut anywhere: keep the message one line of UTF-8. */
    const size_t n = strlen(what);
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        const int k = calla_utf8_decode(what + i, n - i, &cp);
        if (k < 0 || cp < 0x20 || cp == 0x7F) what[i++] = '?';
        else i += (size_t)k;
    }
    return calla_fail(s->err, CALLA_ERR_FORMAT, "%s: byte %zu: %s", s->file, s->at, what);
}

static int unexpected(struct calla_scan *s, const char *wanted) {
    if (s->at >= s->n) return calla_scan_fail(s, "the file ends where %s should be", wanted);
    return calla_scan_fail(s, "%s should be here", wanted);
}

char calla_scan_peek(struct calla_scan *s) {
    while (s->at < s->n) {
        const char c = s->text[s->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return c;
        s->at++;
    }
    return 0;
}

bool calla_scan_is(const struct calla_scan *s, const char *text) {
    const size_t n = strlen(text);
    return s->string.n == n && memcmp(s->string.data, text, n) == 0;
}

/* Bytes from at on that stand for themselves inside a string. */
static size_t plain(const struct calla_scan *s) {
    size_t i = s->at;
    while (i < s->n && s->text[i] != '"' && s->text[i] != '\\' && (unsigned char)s->text[i] >= 0x20) i++;
    return i - s->at;
}

static int hex4(struct calla_scan *s, uint32_t *v) {
    *v = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        const char c = s->at < s->n ? s->text[s->at] : 0;
        const int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 :
                      c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (d < 0) return unexpected(s, "a hexadecimal digit of \\u");
        *v = *v << 4 | (uint32_t)d;
    }
    return 0;
}

/* After a backslash. */
static int escape(struct calla_scan *s) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = s->at < s->n ? s->text[s->at] : 0;
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple != NULL) {
        calla_buf_char(&s->string, to[simple - from]);
        s->at++;
        return 0;
    }
    if (c != 'u') return unexpected(s, "an escape of JSON");
    uint32_t cp, low;
    char utf8[4];
    s->at++;
    int rc = hex4(s, &cp);
    if (rc != 0) return rc;
    if (cp >= 0xD800 && cp < 0xE000) {
        if (cp >= 0xDC00 || s->n - s->at < 2 || s->text[s->at] != '\\' || s->text[s->at + 1] != 'u')
            return calla_scan_fail(s, "half a surrogate pair");
        s->at += 2;
        if ((rc = hex4(s, &low)) != 0) return rc;
        if (low < 0xDC00 || low >= 0xE000) return calla_scan_fail(s, "half a surrogate pair");
        cp = 0x10000 + ((cp - 0xD800) << 10) + (low - 0xDC00);
    }
    calla_buf_add(&s->string, utf8, (size_t)calla_utf8_encode(cp, utf8));
    return 0;
}

int calla_scan_string(struct calla_scan *s) {
    if (calla_scan_peek(s) != '"') return unexpected(s, "a string");
    s->at++;
    calla_buf_clear(&s->string);
    for (;;) {
        const size_t k = plain(s);
        calla_buf_add(&s->string, s->text + s->at, k);
        s->at += k;
        if (s->at >= s->n) return unexpected(s, "the end of a string");
        if (s->text[s->at] == '"') break;
        if (s->text[s->at] != '\\') return calla_scan_fail(s, "a control character in a string");
        s->at++;
        const int rc = escape(s);
        if (rc != 0) return rc;
    }
    s->at++;
    if (s->string.failed) return calla_fail(s->err, CALLA_ERR_MEMORY, "%s: out of memory for a string", s->file);
    return 0;
}

static int literal(struct calla_scan *s, const char *word) {
    const size_t n = strlen(word);
    if (s->n - s->at < n || memcmp(s->text + s->at, word, n) != 0) return unexpected(s, "a value");
    s->at += n;
    return 0;
}

static bool digit_at(const struct calla_scan *s) {
    return s->at < s->n && s->text[s->at] >= '0' && s->text[s->at] <= '9';
}

static int number(struct calla_scan *s) {
    if (s->text[s->at] == '-') s->at++;
    if (!digit_at(s)) return unexpected(s, "a value");
    const bool zero = s->text[s->at] == '0';
    s->at++;
    if (zero && digit_at(s)) return calla_scan_fail(s, "a number begins with 0");
    while (digit_at(s)) s->at++;
    if (s->at < s->n && s->text[s->at] == '.') {
        s->at++;
        if (!digit_at(s)) return unexpected(s, "a digit");
        while (digit_at(s)) s->at++;
    }
    if (s->at < s->n && (s->text[s->at] == 'e' || s->text[s->at] == 'E')) {
        s->at++;
        if (s->at < s->n && (s->text[s->at] == '+' || s->text[s->at] == '-')) s->at++;
        if (!digit_at(s)) return unexpected(s, "a digit");
        while (digit_at(s)) s->at++;
    }
    return 0;
}

int calla_scan_int(struct calla_scan *s, int64_t *v) {
    const char c = calla_scan_peek(s);
    if (c != '-' && !digit_at(s)) return unexpected(s, "a whole number");
    const size_t begin = s->at;
    const int rc = number(s);
    if (rc != 0) return rc;
    const size_t len = s->at - begin;
    *v = 0;
    for (size_t i = c == '-'; i < len; i++) {
        const char d = s->text[begin + i];
        if (d < '0' || d > '9' || len > 18) {
            s->at = begin;
            return calla_scan_fail(s, "%.*s is not a whole number of at most 18 digits", (int)(len > 40 ? 40 : len), s->text + begin);
        }
        *v = *v * 10 + (d - '0');
    }
    if (c == '-') *v = -*v;
    return 0;
}

int calla_scan_bool(struct calla_scan *s, bool *v) {
    const char c = calla_scan_peek(s);
    *v = c == 't';
    if (c != 't' && c != 'f') return unexpected(s, "true or false");
    return literal(s, c == 't' ? "true" : "false");
}

int calla_scan_open(struct calla_scan *s, char open) {
    if (calla_scan_peek(s) != open) return unexpected(s, open == '{' ? "an object" : "an array");
    s->at++;
    return 0;
}

int calla_scan_next(struct calla_scan *s, char close, bool first, bool *more) {
    char c = calla_scan_peek(s);
    *more = c != close;
    if (!*more) {
        s->at++;
        return 0;
    }
    if (!first) {
        if (c != ',') return unexpected(s, close == '}' ? "',' or '}'" : "',' or ']'");
        s->at++;
        c = calla_scan_peek(s);
    }
    if (close != '}') return 0;
    if (c != '"') return unexpected(s, "a key");
    const int rc = calla_scan_string(s);
    if (rc != 0) return rc;
    if (calla_scan_peek(s) != ':') return unexpected(s, "':'");
    s->at++;
    return 0;
}

/* Most strings have no escape; those are passed over without a copy. */
static int skip_string(struct calla_scan *s) {
    const size_t begin = s->at++;
    s->at += plain(s);
    if (s->at < s->n && s->text[s->at] == '"') {
        s->at++;
        return 0;
    }
    s->at = begin;
    return calla_scan_string(s);
}

static int skip(struct calla_scan *s, int depth) {
    const char c = calla_scan_peek(s);
    int rc = 0;
    switch (c) {
    case '"': return skip_string(s);
    case 't': return literal(s, "true");
    case 'f': return literal(s, "false");
    case 'n': return literal(s, "null");
    case '{': case '[': {
        if (depth == MAX_DEPTH) return calla_scan_fail(s, "deeper than %d", MAX_DEPTH);
        const char close = c == '{' ? '}' : ']';
        bool more = true;
        s->at++;
        for (bool first = true; (rc = calla_scan_next(s, close, first, &more)) == 0 && more; first = false)
            if ((rc = skip(s, depth + 1)) != 0) break;
        return rc;
    }
    default:
        if (c != '-' && !digit_at(s)) return unexpected(s, "a value");
        return number(s);
    }
}

int calla_scan_skip(struct calla_scan *s) { return skip(s, 0); }

int calla_scan_begin(struct calla_scan *s) {
    s->at = calla_utf8_valid_prefix(s->text, s->n);
    if (s->at != s->n) return calla_scan_fail(s, "not UTF-8");
    s->at = 0;
    return 0;
}

int calla_scan_end(struct calla_scan *s) {
    if (calla_scan_peek(s) != 0 || s->at != s->n) return calla_scan_fail(s, "something follows the JSON value");
    return 0;
}

int calla_scan_fields(struct calla_scan *s, struct calla_scan_field *fields, int n) {
    bool more;
    for (int i = 0; i < n; i++) fields[i].at = 0;
    int rc = calla_scan_open(s, '{');
    if (rc != 0) return rc;
    for (bool first = true; (rc = calla_scan_next(s, '}', first, &more)) == 0 && more; first = false) {
        for (int i = 0; i < n; i++) {
            if (!calla_scan_is(s, fields[i].name)) continue;
            if (fields[i].at != 0) return calla_scan_fail(s, "\"%s\" comes twice", fields[i].name);
            fields[i].at = s->at;
        }
        if ((rc = calla_scan_skip(s)) != 0) return rc;
    }
    return rc;
}
