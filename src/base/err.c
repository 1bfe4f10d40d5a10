#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int calla_fail(struct calla_err *err, int code, const char *fmt, ...) {
    if (err == NULL) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
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
    if (n < 0 || (size_t)n >= sizeof err->message) return;
    snprintf(err->message + n, sizeof err->message - (size_t)n, ": %s", old);
}
