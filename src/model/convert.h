/* convert.h - an original bf16 checkpoint to the published 4-bit layout, once. */
#ifndef CALLA_MODEL_CONVERT_H
#define CALLA_MODEL_CONVERT_H

#include "model/weights.h"

struct calla_convert_options {
    int   n_threads;                 /* 0: all cores */
    void (*log)(void *user, const char *line);
    void (*progress)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

/* Reads in (either bf16 form), writes out: weights in 4 bits, routers in 8,
 * the MTP head if there is one, and the small files beside them.  The same
 * codes, scales and biases as the published converter. */
int calla_convert(const char *in, const char *out, const struct calla_convert_options *opt, struct calla_err *err);

#endif
