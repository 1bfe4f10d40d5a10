/* forward.h - one step over the layers, as the threads of the pool see it.
 *
 * Every function here is called by all threads of the pool together, t being
 * the caller's index; each does its share, and phases are parted by barriers.
 * What a row computes is independent of the other rows and of the split: every
 * product, norm and scan has one order of sums, and a row's experts are added
 * by ascending id. */
#ifndef CALLA_CPU_FORWARD_H
#define CALLA_CPU_FORWARD_H

#include "cpu/scratch.h"

struct cpu_step {
    /* Set by the caller before the threads start, read by all. */
    struct calla_pool *pool;
    const struct cpu_model *m;
    const struct calla_shape *shape;
    const struct cpu_kernels *k;
    struct cpu_pages *pages;
    struct cpu_scratch *s;
    const double *rope_freq;          /* [32]                                */
    const struct calla_row *rows;
    const atomic_bool *cancel;        /* may be NULL                         */
    const struct calla_taps *taps;    /* may be NULL                         */
    int32_t *sampled;                 /* [T] of every row, -1: none          */
    int n_threads, n_rows, n_segments, n_units, n_asked, n_usable_ids;
    int64_t attn_cost;                /* of all units                        */

    /* Written by thread 0 between two barriers, read by all. */
    bool stop;                        /* the caller cancelled                */
    int  n_active;                    /* experts of the present layer        */
    int64_t moe_cost;                 /* of a row block of all of them       */

    /* Thread 0's own. */
    uint64_t n_needed, n_expert_reads;
};

/* The whole step: embedding to sampled ids.  A function of the pool; arg is the step. */
void cpu_forward(void *arg, int t, int n_threads);

/* Mixers: from s->in to s->h, the residual, added; the last phase ends with a barrier. */
void cpu_gdn_mixer(struct cpu_step *f, int layer, int t);
void cpu_attn_mixer(struct cpu_step *f, int layer, int t);
/* Experts: from s->in, the normed rows, to s->h; the last phase ends with a barrier. */
void cpu_moe(struct cpu_step *f, int layer, int t);

/* ---- what they share (forward.c) --------------------------------------------- */

static inline void cpu_wait(struct cpu_step *f, int t) { calla_pool_barrier(f->pool, t); }

/* Hands rows of v to the recorder from thread 0; all threads call it after a phase that wrote v, and nothing happens
 * without a recorder. */
void cpu_tap(struct cpu_step *f, int t, enum calla_tap tap, int layer, const float *v, size_t stride, int n);

/* Products with one input: y = W x for n_rows rows; the row blocks of all n matrices are shared out together. */
struct cpu_product { const struct cpu_matrix *w; float *y; size_t y_stride; };
void cpu_products(struct cpu_step *f, int t, const struct cpu_product *p, int n, const struct cpu_acts *a, int n_rows);

/* Quantises this thread's share of n rows of width a->n_cols. */
void cpu_quantise_rows(struct cpu_step *f, int t, struct cpu_acts *a, const float *x, int n);

/* Quantises nothing: h += W a, by columns; the tap MIXER_OUT.  Ends with a barrier. */
void cpu_project_add(struct cpu_step *f, int layer, int t, const struct cpu_matrix *w, const struct cpu_acts *a);

/* Rows [*begin, *end) of n that are thread t's. */
static inline void cpu_share(const struct cpu_step *f, int t, int n, int *begin, int *end) {
    calla_share(n, t, f->n_threads, begin, end);
}

static inline uint64_t cpu_blocks(const struct cpu_matrix *w) {
    return (uint64_t)cpu_row_blocks(w) * (uint64_t)(w->n_cols / CALLA_GROUP);
}

/* Row blocks [b0, b1) of one matrix, counted. */
static inline void cpu_matmul(struct cpu_step *f, int t, float *y, size_t y_stride, const struct cpu_matrix *w, int b0,
                              int b1, const struct cpu_acts *a, const int32_t *rows, int n) {
    struct cpu_thread *me = f->s->threads[t];
    if (b0 < b1 && n > 0)
        me->n_unpacked += f->k->matmul[w->format](y, y_stride, w, b0, b1, a, rows, n, me->matmul);
}

#endif
