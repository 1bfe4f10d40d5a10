#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Names from files go into messages: one line, no escape sequence for the
 * terminal, no character cut in half by the buffer's end. */
static void tidy(struct calla_err *err) {
    size_t n = strlen(err->message);
    if (n == sizeof err->message - 1) n -= calla_utf8_unfinished(err->message, n);
    err->message[n] = 0;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)err->message[i] < 0x20 || err->message[i] == 0x7f) err->message[i] = '?';
}

int calla_fail(struct calla_err *err, int code, const char *fmt, ...) {
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    tidy(err);
    err->code = code;
    return code;
}

void calla_err_prefix(struct calla_err *err, const char *fmt, ...) {
    if (err == NULL) return;
    char old[sizeof err->message];
    memcpy(old, err->message, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    const size_t cap = sizeof err->message - 1, at = n < 0 ? 0 : (size_t)n < cap ? (size_t)n : cap, left = cap - at;
    if (left > 2) {   /* what does not fit is cut, as everywhere in messages */
        const size_t n_old = strlen(old), k = n_old < left - 2 ? n_old : left - 2;
        memcpy(err->message + at, ": ", 2);
        memcpy(err->message + at + 2, old, k);
        err->message[at + 2 + k] = 0;
    }
    tidy(err);
}
