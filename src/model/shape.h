/* shape.h - the numbers of the network.
 *
 * Widths that kernels specialise on are constants; counts stand in a few const
 * rows (shape.c), and the loader accepts nothing else, apart from fewer layers
 * (a cut in depth, a multiple of four, for tests and benchmarks).
 * Letters of axes, used everywhere: T rows, D hidden, V vocabulary, E experts,
 * K chosen, F expert width, H/G query/kv heads, A head width, HV/HK recurrent
 * value/key heads, S recurrent width, C convolution channels. */
#ifndef CALLA_MODEL_SHAPE_H
#define CALLA_MODEL_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    CALLA_HEAD = 256,           /* A: width of a query, key or value head              */
    CALLA_ROTARY = 64,          /* first dims of a head that rotate                    */
    CALLA_RECUR = 128,          /* S: width of a recurrent key or value head           */
    CALLA_CONV = 4,             /* taps of the convolution                             */
    CALLA_GROUP = 64,           /* weights that share a scale; also the cache grid     */
    CALLA_CHOSEN = 8,           /* K: routed experts a token                           */
    CALLA_INTERVAL = 4,         /* layer l is full attention iff l % 4 == 3            */
    CALLA_MAX_CTX = 262144
};
#define CALLA_NORM_EPS   1e-6f
#define CALLA_ROPE_THETA 1e7

struct calla_shape {
    const char *name;
    int n_layers;               /* of the whole model                                  */
    int n_hidden;               /* D                                                   */
    int n_vocab;                /* V: rows of embedding and head                       */
    int n_heads, n_kv_heads;    /* H, G                                                */
    int n_key_heads, n_value_heads; /* HK, HV                                          */
    int n_experts;              /* E                                                   */
    int n_expert_width;         /* F, of routed and shared expert alike                */
};

extern const struct calla_shape calla_shape_full, calla_shape_demo, calla_shape_tiny;

/* The row of that name ("full", "demo", "tiny") or NULL. */
const struct calla_shape *calla_shape_named(const char *name);
/* The i-th row, NULL past the last. */
const struct calla_shape *calla_shape_at(int i);

static inline bool calla_is_attention(int layer) { return layer % CALLA_INTERVAL == CALLA_INTERVAL - 1; }
static inline int calla_conv_channels(const struct calla_shape *s) {   /* C */
    return (2 * s->n_key_heads + s->n_value_heads) * CALLA_RECUR;
}
static inline int calla_gdn_width(const struct calla_shape *s) { return s->n_value_heads * CALLA_RECUR; }
static inline int calla_attn_width(const struct calla_shape *s) { return s->n_heads * CALLA_HEAD; }
static inline int calla_kv_width(const struct calla_shape *s) { return s->n_kv_heads * CALLA_HEAD; }

#endif
