/* pool.c - the team of threads: jobs, barriers, spinning and sleeping.
 *
 * Two counters say everything: `job` counts jobs begun, `passed` counts
 * barriers passed.  A thread that waits for one of them to change spins for a
 * while and then sleeps on the one condition variable; who changes a counter
 * wakes the sleepers, if there are any.  Counter and number of sleepers are
 * sequentially consistent: either the waker sees the sleeper, or the sleeper
 * sees the new counter. */
#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/err.h"

enum {
    /* A decode step's phases are a few to some hundred us apart; a thread that
     * slept costs 5 to 50 us to wake. */
    SPIN_NS = 50000,
    MAX_THREADS = 1024,
};

struct calla_pool {
    int n_threads;
    uint64_t spin_ns;             /* 0 where threads outnumber cores          */
    int n_started;                /* workers to join                          */
    pthread_t *workers;           /* [n_threads - 1]                          */

    void (*fn)(void *, int, int); /* caller writes before `job` changes       */
    void *arg;
    bool stop;

    _Atomic unsigned job;         /* caller adds, workers wait                */
    _Atomic int n_arrived;        /* at the present barrier; all threads      */
    _Atomic unsigned passed;      /* the last to arrive adds, the others wait */
    _Atomic int n_sleepers;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

struct worker { struct calla_pool *pool; int idx; };

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until *counter is no longer `old`. */
static void wait_change(struct calla_pool *p, _Atomic unsigned *counter, unsigned old) {
    if (p->spin_ns > 0) {
        const uint64_t end = calla_now_ns() + p->spin_ns;
        do {
            for (int i = 0; i < 32; i++) {
                if (atomic_load_explicit(counter, memory_order_acquire) != old) return;
                relax();
            }
        } while (calla_now_ns() < end);
    } else {
        /* Whoever we wait for may need this processor. */
        for (int i = 0; i < 4; i++) {
            if (atomic_load_explicit(counter, memory_order_acquire) != old) return;
            sched_yield();
        }
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleepers, 1);
    while (atomic_load(counter) == old) pthread_cond_wait(&p->changed, &p->lock);
    atomic_fetch_sub(&p->n_sleepers, 1);
    pthread_mutex_unlock(&p->lock);
}

static void change(struct calla_pool *p, _Atomic unsigned *counter) {
    atomic_fetch_add(counter, 1);
    if (atomic_load(&p->n_sleepers) == 0) return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

void calla_pool_barrier(struct calla_pool *p, int thread_idx) {
    (void)thread_idx;
    if (p->n_threads == 1) return;
    const unsigned old = atomic_load(&p->passed);
    if (atomic_fetch_add(&p->n_arrived, 1) + 1 == p->n_threads) {
        atomic_store(&p->n_arrived, 0);   /* nobody arrives again before `passed` changes */
        change(p, &p->passed);
    } else {
        wait_change(p, &p->passed, old);
    }
}

static void *work(void *arg) {
    const struct worker me = *(struct worker *)arg;
    struct calla_pool *p = me.pool;

    free(arg);
    for (unsigned seen = 0;; seen++) {
        wait_change(p, &p->job, seen);
        if (p->stop) return NULL;
        p->fn(p->arg, me.idx, p->n_threads);
        calla_pool_barrier(p, me.idx);
    }
}

void calla_pool_run(struct calla_pool *p, void (*fn)(void *arg, int thread_idx, int n_threads), void *arg) {
    if (p->n_threads == 1) { fn(arg, 0, 1); return; }
    p->fn = fn;
    p->arg = arg;
    change(p, &p->job);
    fn(arg, 0, p->n_threads);
    calla_pool_barrier(p, 0);
}

int calla_pool_size(const struct calla_pool *p) { return p->n_threads; }

static int start_workers(struct calla_pool *p, struct calla_err *err) {
    for (int i = 1; i < p->n_threads; i++) {
        struct worker *me = malloc(sizeof *me);
        if (!me) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for thread %d of %d", i, p->n_threads);
        *me = (struct worker){ p, i };
        const int rc = pthread_create(&p->workers[i - 1], NULL, work, me);
        if (rc != 0) {
            free(me);
            return calla_fail(err, CALLA_ERR_MEMORY, "cannot start thread %d of %d: %s; ask for fewer threads", i,
                              p->n_threads, strerror(rc));
        }
        p->n_started++;
    }
    return 0;
}

int calla_pool_new(struct calla_pool **out, int n_threads, struct calla_err *err) {
    struct calla_cpu_features f;
    struct calla_pool *p;

    *out = NULL;
    if (n_threads < 0 || n_threads > MAX_THREADS)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d threads: 1 to %d can be asked for, or 0 for one a core",
                          n_threads, MAX_THREADS);
    calla_cpu_features(&f);
    if (n_threads == 0) n_threads = f.n_cores < MAX_THREADS ? f.n_cores : MAX_THREADS;
    p = calloc(1, sizeof *p);
    if (!p) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a pool of %d threads", n_threads);
    p->n_threads = n_threads;
    p->spin_ns = n_threads <= f.n_cores ? SPIN_NS : 0;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    *out = p;
    p->workers = calloc((size_t)n_threads, sizeof *p->workers);
    const int rc = p->workers ? start_workers(p, err)
                              : calla_fail(err, CALLA_ERR_MEMORY, "no memory for %d threads", n_threads);
    if (rc != 0) calla_pool_free(out);
    return rc;
}

void calla_pool_free(struct calla_pool **pp) {
    struct calla_pool *p = *pp;

    if (!p) return;
    p->stop = true;
    change(p, &p->job);
    for (int i = 0; i < p->n_started; i++) pthread_join(p->workers[i], NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
    *pp = NULL;
}
