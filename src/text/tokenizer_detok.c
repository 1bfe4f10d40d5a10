/* tokenizer_detok.c - bytes of ids, as they come, to whole characters. */
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer.h"

void calla_detokenizer_push(struct calla_detokenizer *d, const char *bytes, size_t n, struct calla_buf *out) {
    while (d->n_held > 0 && n > 0) {
        uint32_t cp;
        d->held[d->n_held++] = (unsigned char)*bytes;
        const char *held = (const char *)d->held;
        const size_t n_held = (size_t)d->n_held;
        if (calla_utf8_unfinished(held, n_held) == n_held) {
            bytes++;
            n--;
            continue;
        }
        /* Whole now, or broken by the new byte, which then begins something else. */
        const int k = calla_utf8_decode(held, n_held, &cp);
        d->n_held = 0;
        if (k > 0) {
            calla_buf_add(out, held, n_held);
            bytes++;
            n--;
        } else {
            calla_buf_add(out, "\xEF\xBF\xBD", 3);
        }
    }
    if (n == 0) return;
    const size_t keep = calla_utf8_unfinished(bytes, n);
    calla_utf8_repair(out, bytes, n - keep);
    memcpy(d->held, bytes + n - keep, keep);
    d->n_held = (int)keep;
}

void calla_detokenizer_finish(struct calla_detokenizer *d, struct calla_buf *out) {
    if (d->n_held > 0) calla_buf_add(out, "\xEF\xBF\xBD", 3);
    d->n_held = 0;
}
