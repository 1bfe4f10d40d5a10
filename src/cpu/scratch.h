/* scratch.h - the memory of a step: planned once, cut from one arena.
 *
 * T is max_rows.  Buffers of the recurrent mixer, of attention and of the
 * experts lie over one another: a layer uses one kind after the other. */
#ifndef CALLA_CPU_SCRATCH_H
#define CALLA_CPU_SCRATCH_H

#include "cpu/kernels.h"
#include "cpu/model.h"
#include "cpu/state.h"

enum {
    /* Query rows that share a pass over a page: eight rows of eight heads keep
     * their sums (64 KB) and the page (64 KB) in the second-level cache. */
    CPU_MAX_QUERIES = 64
};

/* The rows of one state in a step. */
struct cpu_segment { struct calla_state *state; int row0, n_rows, pos0; };

/* Rows [row0, row0 + n_rows) of one segment that read kv head g together. */
struct cpu_attn_unit { int segment_idx, row0, n_rows, g; int64_t middle; };  /* middle: of its cost in the sum of all */

/* An expert that some row chose; its pairs are [first, first + n). */
struct cpu_active { int expert, first, n; int64_t cost0; };  /* cost0: of a row block, summed over the experts before */

struct cpu_gdn_scratch {
    float *qkv, *conv;            /* [T, C] before and after the convolution     */
    float *z, *read, *normed;     /* [T, HV * S]                                 */
    float *qk;                    /* [T, 2 * HK * S] normalised: queries, keys   */
    float *a, *b;                 /* [T, gate_stride]                            */
    float *decay, *beta;          /* [T, gate_stride]                            */
    int gate_stride;              /* HV rounded up to whole lines                */
};

struct cpu_attn_scratch_rows {
    float *q_gate;                /* [T, H * 2A] a head's query, then its gate   */
    float *q;                     /* [T, H * A] normalised, rotated, times 1/16  */
    float *k_raw, *k, *v;         /* [T, G * A]                                  */
    float *read, *gated;          /* [T, H * A]                                  */
};

struct cpu_moe_scratch {
    float *router;                /* [T, E]                                      */
    float *shared_logit;          /* [T, 16], the first of each row              */
    int32_t *chosen;              /* [T, K] ascending                            */
    float *weight;                /* [T, K + 1], the shared expert's last        */
    int32_t *pair_row;            /* [T * (K + 1)] rows by expert                */
    float *pair_weight;           /* [T * (K + 1)]                               */
    int   *count;                 /* [E + 1]                                     */
    struct cpu_active *active;    /* [E + 1] ascending, the shared one last      */
    float *hidden;                /* [T * (K + 1), F] silu(gate) * up            */
    struct cpu_acts pairs;        /* [T * (K + 1), F]                            */
    float *out;                   /* [T, D]                                      */
};

/* What one thread has for itself; each lies on lines of its own. */
struct cpu_thread {
    void  *matmul, *attn;         /* the kernels' scratch                        */
    float *acc;                   /* [CPU_MAX_QUERIES, A]                        */
    float *row;                   /* one row of any width                        */
    float *up;                    /* [T, F]                                      */
    struct calla_sampler_scratch *sampler;
    uint64_t n_unpacked;          /* weight blocks                               */
    int    bad_asked;             /* first asking row whose logits are not finite; INT_MAX: none */
};

struct cpu_scratch {
    struct calla_arena arena;
    int n_threads;
    int32_t *tokens, *pos;        /* [T]                                         */
    float *cos, *sin;             /* [T, 32] of the rows' positions              */
    float *h;                     /* [T, D] the residual                         */
    float *y;                     /* [T, D] a product before it is added         */
    struct cpu_acts in;           /* [T, D] input of the layer's first products  */
    struct cpu_acts gdn_mix, attn_mix; /* [T, HV * S] or [T, H * A] input of the mixer's last */
    struct cpu_gdn_scratch gdn;
    struct cpu_attn_scratch_rows attn;
    struct cpu_moe_scratch moe;
    struct cpu_segment *segments; /* [T]                                         */
    struct cpu_attn_unit *units;  /* [T * G]                                     */
    int32_t *asked;               /* [max_logits] rows that want logits          */
    float *logits;                /* [max_logits, V]                             */
    struct cpu_thread **threads;  /* [n_threads]                                 */
};

size_t cpu_scratch_bytes(const struct calla_weights *w, const struct calla_backend_options *opt, int n_threads);
int    cpu_scratch_open(struct cpu_scratch *s, const struct calla_weights *w,
                        const struct calla_backend_options *opt, int n_threads, struct calla_err *err);
void   cpu_scratch_close(struct cpu_scratch *s);

#endif
