#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void calla_buf_free(struct calla_buf *b) {
    free(b->data);
    b->data = NULL;
    b->n = b->cap = 0;
    b->failed = false;
}

void calla_buf_clear(struct calla_buf *b) {
    b->n = 0;
    b->failed = false;
    if (b->data != NULL) b->data[0] = 0;
}

bool calla_buf_reserve(struct calla_buf *b, size_t n_more) {
    const size_t limit = b->limit ? b->limit : CALLA_BUF_LIMIT;
    if (b->failed) return false;
    if (n_more > limit || b->n > limit - n_more) {
        b->failed = true;
        return false;
    }
    const size_t want = b->n + n_more + 1;
    if (want <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < want) cap *= 2;
    char *p = realloc(b->data, cap);
    if (p == NULL) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

void calla_buf_add(struct calla_buf *b, const void *bytes, size_t n) {
    if (!calla_buf_reserve(b, n)) return;
    if (n != 0) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = 0;
}

void calla_buf_str(struct calla_buf *b, const char *s) { calla_buf_add(b, s, strlen(s)); }

void calla_buf_char(struct calla_buf *b, char c) { calla_buf_add(b, &c, 1); }

void calla_buf_fmt(struct calla_buf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) b->failed = true;
    else if (calla_buf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}
