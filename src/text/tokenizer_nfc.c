/* tokenizer_nfc.c - Unicode NFC, spent only where a text may not be in it.
 *
 * Between two characters of the quick list nothing composes or changes order,
 * so only the stretch from the last listed character before an unlisted one to
 * the next listed character goes through utf8proc. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/tokenizer_impl.h"

/* Combining class 0, NFC_Quick_Check = Yes (a test checks every one). */
static const struct { uint32_t first, last; } quick[] = {
    { 0x0, 0x2FF }, { 0x400, 0x482 }, { 0x48A, 0x52F }, { 0x2010, 0x2027 }, { 0x2030, 0x205E }, { 0x2190, 0x22FF },
    { 0x2500, 0x27BF }, { 0x3001, 0x3029 }, { 0x3041, 0x3096 }, { 0x30A1, 0x30FF }, { 0x3400, 0x4DBF }, { 0x4E00, 0x9FFF },
    { 0xAC00, 0xD7A3 }, { 0xFF01, 0xFF60 }, { 0xFFFD, 0xFFFD }, { 0x1F300, 0x1F6FF }, { 0x1F900, 0x1F9FF },
};

static bool is_quick(uint32_t cp) {
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        if (cp <= quick[i].last) return cp >= quick[i].first;
    return false;
}

size_t calla_nfc_quick_prefix(const char *s, size_t n) {
    size_t i = 0;
    uint32_t cp;
    while (i < n) {
        const unsigned char c = (unsigned char)s[i];
        if (c < 0x80) {
            uint64_t w;
            while (n - i >= sizeof w && (memcpy(&w, s + i, sizeof w), (w & 0x8080808080808080u) == 0)) i += sizeof w;
            while (i < n && (unsigned char)s[i] < 0x80) i++;
        } else if (c < 0xCC) {
            i += 2;
        } else {
            const int k = calla_utf8_decode(s + i, n - i, &cp);
            if (k < 0 || !is_quick(cp)) break;
            i += (size_t)k;
        }
    }
    return i;
}

struct codepoints { utf8proc_int32_t *v; size_t n, cap; };

static bool grow(struct codepoints *c) {
    const size_t cap = c->cap ? 2 * c->cap : 64;
    utf8proc_int32_t *p = realloc(c->v, cap * sizeof *p);
    if (p == NULL) return false;
    c->v = p;
    c->cap = cap;
    return true;
}

static bool add_decomposed(struct codepoints *c, uint32_t cp) {
    enum { MOST = 4 };    /* of one character, canonically (UAX #15, table 8) */
    int boundary = 0;
    if (c->cap - c->n < MOST && !grow(c)) return false;
    const utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)cp, c->v + c->n, MOST,
                                                       UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
    if (k < 0 || k > MOST) return false;
    c->n += (size_t)k;
    return true;
}

static int class_of(utf8proc_int32_t cp) { return utf8proc_get_property(cp)->combining_class; }

/* Canonical order of a run of marks: stable, by class.  utf8proc's own order
 * loop takes the square of the run: 6 s for 100 KB of two marks in turn. */
static bool order_run(utf8proc_int32_t *v, size_t n) {
    if (n < 16) {
        for (size_t i = 1; i < n; i++) {
            const utf8proc_int32_t x = v[i];
            size_t k = i;
            for (; k > 0 && class_of(v[k - 1]) > class_of(x); k--) v[k] = v[k - 1];
            v[k] = x;
        }
        return true;
    }
    size_t at[257] = { 0 };
    utf8proc_int32_t *copy = malloc(n * sizeof *copy);
    if (copy == NULL) return false;
    memcpy(copy, v, n * sizeof *copy);
    for (size_t i = 0; i < n; i++) at[class_of(v[i]) + 1]++;
    for (int k = 0; k < 256; k++) at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++) v[at[class_of(copy[i])]++] = copy[i];
    free(copy);
    return true;
}

static bool compose(struct calla_buf *out, struct codepoints *c) {
    for (size_t i = 0; i < c->n;) {
        size_t end = i;
        while (end < c->n && class_of(c->v[end]) != 0) end++;
        if (end - i > 1 && !order_run(c->v + i, end - i)) return false;
        i = end + 1;
    }
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(c->v, (utf8proc_ssize_t)c->n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        char utf8[4];
        calla_buf_add(out, utf8, (size_t)calla_utf8_encode((uint32_t)c->v[i], utf8));
    }
    c->n = 0;
    return n >= 0;
}

bool calla_nfc_add(struct calla_buf *out, const char *s, size_t n) {
    struct codepoints c = { 0 };
    bool ok = true;
    size_t i = 0;
    while (ok && i < n) {
        size_t q = calla_nfc_quick_prefix(s + i, n - i);
        if (q < n - i)
            while (q > 0 && ((unsigned char)s[i + --q] & 0xC0) == 0x80) {}
        calla_buf_add(out, s + i, q);
        i += q;
        for (bool first = true; ok && i < n; first = false) {
            uint32_t cp;
            const int k = calla_utf8_decode(s + i, n - i, &cp);
            if (!first && is_quick(cp)) break;
            ok = add_decomposed(&c, cp);
            i += (size_t)(k < 0 ? -k : k);
        }
        if (ok && c.n > 0) ok = compose(out, &c);
    }
    free(c.v);
    return ok && !out->failed;
}
