#include "base/utf8.h"

#include <string.h>

/* Length of the character that a lead byte begins, 0 for none; *lo and *hi
 * bound its second byte (the Unicode Standard, table 3-7). */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi) {
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80) return 1;
    if (c < 0xC2 || c > 0xF4) return 0;
    if (c < 0xE0) return 2;
    if (c < 0xF0) {
        if (c == 0xE0) *lo = 0xA0;
        if (c == 0xED) *hi = 0x9F;
        return 3;
    }
    if (c == 0xF0) *lo = 0x90;
    if (c == 0xF4) *hi = 0x8F;
    return 4;
}

int calla_utf8_decode(const char *s, size_t n, uint32_t *cp) {
    const unsigned char *p = (const unsigned char *)s;
    unsigned char lo, hi;
    const int len = lead(p[0], &lo, &hi);
    if (len == 1) {
        *cp = p[0];
        return 1;
    }
    *cp = 0xFFFD;
    if (len == 0) return -1;
    uint32_t v = p[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n || p[i] < lo || p[i] > hi) return -i;
        v = v << 6 | (p[i] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = v;
    return len;
}

int calla_utf8_encode(uint32_t cp, char out[4]) {
    unsigned char *o = (unsigned char *)out;
    if (cp < 0x80) {
        o[0] = (unsigned char)cp;
        return 1;
    }
    const int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, cp >>= 6) o[i] = (unsigned char)(0x80 | (cp & 0x3F));
    o[0] = (unsigned char)((0xF00u >> len & 0xF0u) | cp);
    return len;
}

size_t calla_utf8_valid_prefix(const char *s, size_t n) {
    size_t i = 0;
    uint32_t cp;
    while (i < n) {
        uint64_t w;
        while (n - i >= sizeof w && (memcpy(&w, s + i, sizeof w), (w & 0x8080808080808080u) == 0)) i += sizeof w;
        if (i == n) break;
        const int k = calla_utf8_decode(s + i, n - i, &cp);
        if (k < 0) break;
        i += (size_t)k;
    }
    return i;
}

size_t calla_utf8_unfinished(const char *s, size_t n) {
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        const unsigned char c = (unsigned char)s[n - k];
        unsigned char lo, hi;
        uint32_t cp;
        if (c < 0x80) return 0;
        if (c < 0xC0) continue;
        return lead(c, &lo, &hi) > (int)k && calla_utf8_decode(s + n - k, k, &cp) == -(int)k ? k : 0;
    }
    return 0;
}

void calla_utf8_repair(struct calla_buf *out, const char *s, size_t n) {
    while (n > 0) {
        const size_t good = calla_utf8_valid_prefix(s, n);
        calla_buf_add(out, s, good);
        s += good;
        n -= good;
        if (n == 0) break;
        uint32_t cp;
        const size_t bad = (size_t)-calla_utf8_decode(s, n, &cp);
        calla_buf_add(out, "\xEF\xBF\xBD", 3);
        s += bad;
        n -= bad;
    }
}
