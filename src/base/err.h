/* err.h - one way to fail: write the message where the facts are, return the code. */
#ifndef CALLA_BASE_ERR_H
#define CALLA_BASE_ERR_H

#include "calla.h"

/* Fills err (may be NULL) and returns code, so that callers write
 *     return calla_fail(err, CALLA_ERR_FORMAT, "%s: ...", path, ...); */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int calla_fail(struct calla_err *err, int code, const char *fmt, ...);

/* Puts "context: " before the message of an error that is already there. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void calla_err_prefix(struct calla_err *err, const char *fmt, ...);

#endif
