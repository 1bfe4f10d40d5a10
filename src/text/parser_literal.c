/* parser_literal.c - Python literals, which the model sometimes writes where JSON
 * was asked for, rewritten as JSON text.
 *
 * What ast.literal_eval takes and json.dumps prints, without bytes, sets,
 * complex numbers, raw and triple-quoted strings and digits with '_'. */
#include "text/parser_types.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "text/parser_lex.h"

struct literal { const char *s; size_t n, at; int depth; struct calla_buf *out; };

static int peek(const struct literal *p) { return p->at < p->n ? (unsigned char)p->s[p->at] : -1; }

static void skip_blanks(struct literal *p) {
    while (p->at < p->n && calla_is_blank(p->s[p->at])) p->at++;
}

static bool word(struct literal *p, const char *python, const char *json) {
    const size_t n = strlen(python);
    if (p->n - p->at < n || memcmp(p->s + p->at, python, n) != 0) return false;
    const int next = p->at + n < p->n ? (unsigned char)p->s[p->at + n] : -1;
    if (isalnum(next) || next == '_' || next >= 0x80) return false;
    p->at += n;
    calla_buf_str(p->out, json);
    return true;
}

static void code_point(struct calla_buf *out, uint32_t c) {
    if (c >= 0x10000) {
        c -= 0x10000;
        calla_buf_fmt(out, "\\u%04x\\u%04x", 0xD800 + (unsigned)(c >> 10), 0xDC00 + (unsigned)(c & 0x3FF));
    } else if (c >= 0xD800 && c < 0xE000) {
        calla_buf_str(out, "\\ufffd");   /* two halves of a pair do not join in Python either */
    } else {
        calla_buf_fmt(out, "\\u%04x", (unsigned)c);
    }
}

static bool hex_escape(struct literal *p, int n_digits) {
    uint32_t c = 0;
    for (int i = 0; i < n_digits; i++, p->at++) {
        const int d = peek(p);
        if (d < 0 || !isxdigit(d)) return false;
        c = c * 16 + (uint32_t)(isdigit(d) ? d - '0' : tolower(d) - 'a' + 10);
    }
    if (c > 0x10FFFF) return false;
    code_point(p->out, c);
    return true;
}

/* At the character after the backslash. */
static bool escape(struct literal *p) {
    static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
    const int c = peek(p);
    if (c < 0 || c == 'N') return false;
    if (c >= '0' && c <= '7') {
        uint32_t v = 0;
        for (int i = 0; i < 3 && peek(p) >= '0' && peek(p) <= '7'; i++, p->at++) v = v * 8 + (uint32_t)(peek(p) - '0');
        code_point(p->out, v);
        return true;
    }
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (known != NULL) code_point(p->out, (unsigned char)to[known - from]);
    else if (c == 'x' || c == 'u' || c == 'U') {
        p->at++;
        return hex_escape(p, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c != '\n') {
        calla_buf_str(p->out, "\\\\");   /* an unknown escape keeps its backslash */
        return true;
    }
    p->at++;
    return true;
}

static bool string_body(struct literal *p) {
    const int quote = peek(p);
    for (p->at++; peek(p) != quote;) {
        const int c = peek(p);
        if (c < 0 || c == '\n' || c == '\r' || c == 0) return false;
        if (c == '\\') {
            p->at++;
            if (!escape(p)) return false;
            continue;
        }
        if (c == '"') calla_buf_str(p->out, "\\\"");
        else if (c < 0x20) code_point(p->out, (uint32_t)c);
        else calla_buf_char(p->out, (char)c);
        p->at++;
    }
    p->at++;
    return true;
}

/* 'a' "b" is one string. */
static bool string(struct literal *p) {
    calla_buf_char(p->out, '"');
    do {
        if (!string_body(p)) return false;
        skip_blanks(p);
    } while (peek(p) == '\'' || peek(p) == '"');
    calla_buf_char(p->out, '"');
    return true;
}

static size_t digits(struct literal *p) {
    const size_t begin = p->at;
    while (isdigit(peek(p))) p->at++;
    return p->at - begin;
}

static bool number(struct literal *p, bool integer_only) {
    if (peek(p) == '-') calla_buf_char(p->out, '-');
    if (peek(p) == '-' || peek(p) == '+') p->at++;
    size_t begin = p->at;
    const size_t n_int = digits(p);
    const bool is_float = peek(p) == '.' || peek(p) == 'e' || peek(p) == 'E';
    while (p->at - begin > 1 && p->s[begin] == '0') {
        if (p->s[begin + 1] != '0' && !is_float) return false;   /* 007 is none, 000 is */
        begin++;
    }
    if (n_int > 0) calla_buf_add(p->out, p->s + begin, p->at - begin);
    else calla_buf_char(p->out, '0');
    size_t n_fraction = 0;
    if (peek(p) == '.') {
        begin = ++p->at;
        n_fraction = digits(p);
        calla_buf_char(p->out, '.');
        if (n_fraction > 0) calla_buf_add(p->out, p->s + begin, n_fraction);
        else calla_buf_char(p->out, '0');
    }
    if (n_int + n_fraction == 0 || (integer_only && is_float)) return false;
    if (peek(p) == 'e' || peek(p) == 'E') {
        calla_buf_char(p->out, 'e');
        p->at++;
        if (peek(p) == '-' || peek(p) == '+') calla_buf_char(p->out, p->s[p->at++]);
        begin = p->at;
        if (digits(p) == 0) return false;
        calla_buf_add(p->out, p->s + begin, p->at - begin);
    }
    return peek(p) < 0x80 && !isalnum(peek(p)) && peek(p) != '_' && peek(p) != '.';
}

static bool value(struct literal *p);

static bool key(struct literal *p) {
    if (peek(p) == '\'' || peek(p) == '"') return string(p);
    calla_buf_char(p->out, '"');
    if (!word(p, "True", "true") && !word(p, "False", "false") && !word(p, "None", "null") && !number(p, true)) return false;
    calla_buf_char(p->out, '"');
    return true;
}

static bool dict(struct literal *p) {
    calla_buf_char(p->out, '{');
    for (bool first = true;; first = false) {
        skip_blanks(p);
        if (peek(p) == '}') break;
        if (!first) calla_buf_char(p->out, ',');
        if (!key(p)) return false;
        skip_blanks(p);
        if (peek(p) != ':') return false;
        p->at++;
        calla_buf_char(p->out, ':');
        if (!value(p)) return false;
        skip_blanks(p);
        if (peek(p) == '}') break;
        if (peek(p) != ',') return false;
        p->at++;
    }
    p->at++;
    calla_buf_char(p->out, '}');
    return true;
}

/* A list or a tuple; (x) without a comma is x itself. */
static bool sequence(struct literal *p, int close) {
    const size_t open_at = p->out->n;
    int n_values = 0, n_commas = 0;
    calla_buf_char(p->out, '[');
    for (;;) {
        skip_blanks(p);
        if (peek(p) == close) break;
        if (n_values > 0) calla_buf_char(p->out, ',');
        if (!value(p)) return false;
        n_values = 1;
        skip_blanks(p);
        if (peek(p) == close) break;
        if (peek(p) != ',') return false;
        p->at++;
        n_commas = 1;
    }
    p->at++;
    if (close == ')' && n_values == 1 && n_commas == 0 && !p->out->failed) p->out->data[open_at] = ' ';
    else calla_buf_char(p->out, ']');
    return true;
}

static bool value(struct literal *p) {
    skip_blanks(p);
    const int c = peek(p);
    if (c == '\'' || c == '"') return string(p);
    if (c == '{' || c == '[' || c == '(') {
        if (p->depth >= CALLA_JSON_DEPTH) return false;
        p->depth++;
        p->at++;
        const bool ok = c == '{' ? dict(p) : sequence(p, c == '[' ? ']' : ')');
        p->depth--;
        return ok;
    }
    if (c == 'T') return word(p, "True", "true");
    if (c == 'F') return word(p, "False", "false");
    if (c == 'N') return word(p, "None", "null");
    return number(p, false);
}

bool calla_literal_to_json(struct calla_buf *out, const char *text, size_t n) {
    struct literal p = { .s = text, .n = n, .out = out };
    if (!value(&p)) return false;
    skip_blanks(&p);
    return p.at == n && !out->failed;
}
