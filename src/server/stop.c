#include "server/stop.h"

#include <string.h>

#include "base/err.h"

void stop_strings_free(struct stop_strings *s) {
    for (int i = 0; i < s->n; i++) calla_buf_free(&s->v[i]);
    s->n = 0;
}

int stop_add(struct stop_strings *s, const char *text, size_t n, struct calla_err *err) {
    if (n == 0) return 0;
    if (s->n == SERVER_MAX_STOPS)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "more than %d stop strings", SERVER_MAX_STOPS);
    if (n > SERVER_MAX_STOP_BYTES)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "a stop string of %zu bytes; at most %d are taken", n, SERVER_MAX_STOP_BYTES);
    s->v[s->n] = (struct calla_buf){ 0 };
    calla_buf_add(&s->v[s->n], text, n);
    if (s->v[s->n].failed) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a stop string");
    s->n++;
    return 0;
}

void stop_free(struct stop_matcher *m) {
    calla_buf_free(&m->held);
    *m = (struct stop_matcher){ 0 };
}

/* Where the match that ends first begins in held, or held.n. */
static size_t find(const struct stop_matcher *m) {
    size_t first_end = SIZE_MAX, begin = m->held.n;
    for (int i = 0; i < m->strings->n; i++) {
        const struct calla_buf *s = &m->strings->v[i];
        for (size_t at = 0; at + s->n <= m->held.n && at + s->n <= first_end; at++) {
            if (memcmp(m->held.data + at, s->data, s->n) != 0) continue;
            if (at + s->n < first_end || at < begin) begin = at;      /* of equal ends the longer string */
            first_end = at + s->n;
            break;
        }
    }
    return begin;
}

/* Length of the longest end of held that begins a stop string. */
static size_t open_end(const struct stop_matcher *m) {
    size_t longest = 0;
    for (int i = 0; i < m->strings->n; i++) {
        const struct calla_buf *s = &m->strings->v[i];
        size_t k = s->n - 1 < m->held.n ? s->n - 1 : m->held.n;
        for (; k > longest; k--)
            if (memcmp(m->held.data + m->held.n - k, s->data, k) == 0) longest = k;
    }
    return longest;
}

void stop_feed(struct stop_matcher *m, const char *text, size_t n, struct calla_buf *out) {
    if (m->matched || n == 0) return;
    if (m->strings->n == 0) {
        calla_buf_add(out, text, n);
        return;
    }
    calla_buf_add(&m->held, text, n);
    if (m->held.failed) {
        out->failed = true;
        return;
    }
    const size_t at = find(m);
    if (at < m->held.n) {
        m->matched = true;
        calla_buf_add(out, m->held.data, at);
        calla_buf_clear(&m->held);
        return;
    }
    const size_t keep = open_end(m), send = m->held.n - keep;
    calla_buf_add(out, m->held.data, send);
    memmove(m->held.data, m->held.data + send, keep);
    m->held.n = keep;
}

void stop_finish(struct stop_matcher *m, struct calla_buf *out) {
    if (m->held.n != 0) calla_buf_add(out, m->held.data, m->held.n);
    calla_buf_clear(&m->held);
}
