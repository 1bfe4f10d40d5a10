/* message.c - the deltas of one answer, collected to a message. */
#include <stdlib.h>
#include <string.h>

#include "text/parser.h"

/* Calls grow by doubling: the array is full when its size is a power of two. */
static struct calla_message_call *begin_call(struct calla_message *m) {
    const size_t n = (size_t)m->n_begun;
    if ((n & (n - 1)) == 0) {
        struct calla_message_call *calls = realloc(m->calls, (n == 0 ? 1 : 2 * n) * sizeof *calls);
        if (calls == NULL) return NULL;
        m->calls = calls;
    }
    m->calls[n] = (struct calla_message_call){ .complete = false };
    m->n_begun++;
    return &m->calls[n];
}

void calla_message_add(struct calla_message *m, const struct calla_delta *d) {
    struct calla_message_call *call = m->n_begun > 0 ? &m->calls[m->n_begun - 1] : NULL;
    switch (d->kind) {
    case CALLA_DELTA_REASONING: calla_buf_add(&m->reasoning, d->text, d->n); break;
    case CALLA_DELTA_CONTENT: calla_buf_add(&m->content, d->text, d->n); break;
    case CALLA_DELTA_CALL:
        if (d->call_idx != m->n_begun || (call = begin_call(m)) == NULL) m->content.failed = true;
        else calla_buf_add(&call->name, d->text, d->n);
        break;
    case CALLA_DELTA_ARGUMENTS:
        if (call != NULL && d->call_idx == m->n_begun - 1) calla_buf_add(&call->arguments, d->text, d->n);
        break;
    case CALLA_DELTA_CALL_END:
        if (call == NULL || d->call_idx != m->n_begun - 1) break;
        call->complete = true;
        m->n_calls = m->n_begun;
        break;
    }
}

bool calla_message_failed(const struct calla_message *m) {
    bool failed = m->reasoning.failed || m->content.failed;
    for (int i = 0; i < m->n_begun; i++) failed |= m->calls[i].name.failed || m->calls[i].arguments.failed;
    return failed;
}

void calla_message_free(struct calla_message *m) {
    for (int i = 0; i < m->n_begun; i++) {
        calla_buf_free(&m->calls[i].name);
        calla_buf_free(&m->calls[i].arguments);
    }
    free(m->calls);
    calla_buf_free(&m->reasoning);
    calla_buf_free(&m->content);
    *m = (struct calla_message){ .n_calls = 0 };
}
