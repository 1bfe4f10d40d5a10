/* pool.h - a fixed team of threads that work in lockstep.
 *
 * The caller is thread 0; workers spin for a while after each job (a decode
 * step has hundreds of phases) and then sleep on a futex or condition.  One
 * caller at a time. */
#ifndef CALLA_BASE_POOL_H
#define CALLA_BASE_POOL_H

#include "calla.h"

struct calla_pool;

int  calla_pool_new(struct calla_pool **out, int n_threads /* 0: one a physical core */, struct calla_err *err);
void calla_pool_free(struct calla_pool **p);
int  calla_pool_size(const struct calla_pool *p);

/* Runs fn(arg, thread_idx, n_threads) on every thread and returns when all are done. */
void calla_pool_run(struct calla_pool *p, void (*fn)(void *arg, int thread_idx, int n_threads), void *arg);
/* Inside fn: waits until every thread of the team is here. */
void calla_pool_barrier(struct calla_pool *p, int thread_idx);

/* The part [*begin, *end) of n pieces that belongs to thread t of n_threads: contiguous, sizes differ by at most one. */
static inline void calla_share(int n, int t, int n_threads, int *begin, int *end) {
    *begin = (int)((long long)n * t / n_threads);
    *end = (int)((long long)n * (t + 1) / n_threads);
}

#endif
