/* synth.h - a random checkpoint of a named shape, the same bytes for the same
 * seed however many threads write it.
 *
 * The weights lie on the quantisation grid: integers -8..7 (routers -128..127)
 * times a power of two of either sign, both ends in each group of 64, norms on multiples of
 * 1/128 or 1/64.  So both layouts hold the same weights, and quantising the hf
 * layout gives the mlx layout bit for bit.  Scales are chosen so that each
 * matrix keeps the variance of its input: activations stay in range through
 * all layers. */
#ifndef CALLA_MODEL_SYNTH_H
#define CALLA_MODEL_SYNTH_H

#include "model/shape.h"
#include "model/weights.h"

struct calla_synth_options {
    const struct calla_shape *shape;
    int         n_layers;            /* 0: all */
    bool        hf;                  /* layout; the hf one holds the MTP head too */
    uint64_t    seed;
    int         n_threads;           /* 0: all cores */
    const char *tokenizer_name;      /* NULL: none; otherwise the file beside the weights */
    const char *tokenizer;           /* [tokenizer_bytes], borrowed */
    size_t      tokenizer_bytes;
    int32_t     eos_ids[2];          /* for config and generation_config: end of turn, end of text */
    void (*progress)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes);
    void       *user;
};

int calla_synth(const char *dir, const struct calla_synth_options *opt, struct calla_err *err);

#endif
