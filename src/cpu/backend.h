/* backend.h - the opened CPU backend.
 *
 * Owns the packed weights, the pool of threads, the pages and a step's scratch.
 * Everything but close belongs to the thread that runs steps. */
#ifndef CALLA_CPU_BACKEND_H
#define CALLA_CPU_BACKEND_H

#include "cpu/forward.h"

struct calla_backend {
    struct calla_backend_options opt;
    const struct cpu_kernels *kernels;
    struct calla_pool *pool;
    struct cpu_model model;
    struct cpu_pages pages;
    struct cpu_scratch scratch;
    struct cpu_step step;         /* of the present call                       */
    double   rope_freq[CALLA_ROTARY / 2];
    int32_t *sampled;             /* [max_rows] of the last step, -1: none     */
    int32_t *logits_idx;          /* [max_rows] in scratch.logits, -1: did not ask */
    int      n_states;
    struct calla_backend_stats stats;
};

/* Opens with a given kernel table: tests compare the tables.  open() of the
 * backend takes the best one. */
int cpu_backend_open_with(struct calla_backend **out, const struct calla_weights *w,
                          const struct calla_backend_options *opt, const struct cpu_kernels *kernels,
                          struct calla_err *err);

/* step.c */
int cpu_backend_step(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err);

#endif
