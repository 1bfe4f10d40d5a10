/* engine.c - the engine's thread and its queue.
 *
 * Callers put requests into a bounded queue under `lock`; the thread moves them
 * to the scheduler, which is its own. */
#include <stdlib.h>

#include "base/err.h"
#include "engine/scheduler.h"
#ifdef CALLA_TEST_HOOKS
#include "calla_test.h"
#include "engine/script.h"
#endif

struct calla_engine {
    struct calla_model *model;
    pthread_t thread;
    atomic_bool stop;                  /* any thread sets it; also ends a running step */
    struct calla_scheduler scheduler;  /* engine thread; any thread reads its two atomics */

    pthread_mutex_t lock;
    pthread_cond_t  changed;
    struct calla_request *first, *last; /* the queue                                   */
    int  n_queued, queue_limit;
    bool failed;
    struct calla_err failure;
#ifdef CALLA_TEST_HOOKS
    struct calla_script script;
#endif
};

/* Under the lock. */
static struct calla_request *pop(struct calla_engine *e) {
    struct calla_request *r = e->first;
    if (r == NULL) return NULL;
    e->first = r->next;
    if (e->first == NULL) e->last = NULL;
    e->n_queued--;
    r->next = NULL;
    return r;
}

/* Ends queued requests: the cancelled ones, or all when the engine failed or stops. */
static void end_queued(struct calla_engine *e, bool all, const struct calla_err *err) {
    struct calla_request *r, *gone = NULL, *keep_first = NULL, *keep_last = NULL;
    pthread_mutex_lock(&e->lock);
    const int n = e->n_queued;
    for (int i = 0; i < n; i++) {
        r = pop(e);
        if (all || atomic_load(&r->cancelled)) {
            r->next = gone;
            gone = r;
            continue;
        }
        if (keep_last != NULL) keep_last->next = r;
        else keep_first = r;
        keep_last = r;
        e->n_queued++;
    }
    e->first = keep_first;
    e->last = keep_last;
    pthread_mutex_unlock(&e->lock);
    while ((r = gone) != NULL) {
        gone = r->next;
        calla_request_put_done(r, err != NULL && !atomic_load(&r->cancelled) ? CALLA_FINISH_ERROR : CALLA_FINISH_CANCELLED, err);
        calla_request_unref(r);
    }
}

static void *engine_main(void *arg) {
    struct calla_engine *e = arg;
    struct calla_scheduler *s = &e->scheduler;
    while (!atomic_load(&e->stop)) {
        end_queued(e, s->failed, s->failed ? &s->failure : NULL);
        pthread_mutex_lock(&e->lock);
        while (e->first == NULL && s->n_running == 0 && s->paused == NULL && !atomic_load(&e->stop))
            pthread_cond_wait(&e->changed, &e->lock);
        while (calla_scheduler_has_room(s) && !s->failed && e->first != NULL) {
            struct calla_request *r = pop(e);
            atomic_fetch_add(&s->n_active, 1);
            pthread_mutex_unlock(&e->lock);      /* a state may have to be copied     */
            calla_scheduler_admit(s, r);
            pthread_mutex_lock(&e->lock);
        }
        pthread_mutex_unlock(&e->lock);
        if (!s->failed) calla_scheduler_step(s);
        if (s->failed) {
            pthread_mutex_lock(&e->lock);        /* known before any request hears of it */
            e->failed = true;
            e->failure = s->failure;
            pthread_mutex_unlock(&e->lock);
            calla_scheduler_fail_all(s);
        }
    }
    calla_scheduler_close(s);
    end_queued(e, true, NULL);
    return NULL;
}

int calla_engine_start(struct calla_engine **out, struct calla_model *model, int n_queue, struct calla_err *err) {
    struct calla_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (e == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for an engine");
    e->model = model;
    e->queue_limit = n_queue > 0 ? n_queue : 0;
    atomic_init(&e->stop, false);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    int rc = calla_scheduler_open(&e->scheduler, model, &e->stop, err);
    if (rc == 0 && pthread_create(&e->thread, NULL, engine_main, e) != 0) {
        calla_scheduler_close(&e->scheduler);
        rc = calla_fail(err, CALLA_ERR_MEMORY, "cannot start the engine's thread");
    }
    if (rc != 0) {
        pthread_mutex_destroy(&e->lock);
        pthread_cond_destroy(&e->changed);
        free(e);
        return rc;
    }
    *out = e;
    return 0;
}

void calla_engine_stop(struct calla_engine **engine) {
    struct calla_engine *e = *engine;
    if (e == NULL) return;
    pthread_mutex_lock(&e->lock);
    atomic_store(&e->stop, true);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->changed);
#ifdef CALLA_TEST_HOOKS
    calla_script_free(&e->script);
#endif
    free(e);
    *engine = NULL;
}

void calla_engine_status(const struct calla_engine *engine, struct calla_engine_status *out) {
    struct calla_engine *e = (struct calla_engine *)engine;   /* for the lock */
    pthread_mutex_lock(&e->lock);
    *out = (struct calla_engine_status){ .n_running = atomic_load(&e->scheduler.n_active), .n_queued = e->n_queued, .queue_limit = e->queue_limit,
                                         .n_sampled = atomic_load(&e->scheduler.n_sampled), .failed = e->failed };
    pthread_mutex_unlock(&e->lock);
}

int calla_request_submit(struct calla_engine *e, const struct calla_request_params *params, struct calla_request **out,
                         struct calla_err *err) {
    struct calla_request *r;
    *out = NULL;
    int rc = calla_request_new(&r, e->model, params, err);
    if (rc != 0) return rc;
    pthread_mutex_lock(&e->lock);
    const int n_active = atomic_load(&e->scheduler.n_active), n_free = e->model->plan.n_sequences - n_active;   /* these will not wait */
    if (e->failed) {
        rc = calla_fail(err, CALLA_ERR_DEVICE, "the engine has failed: %s", e->failure.message);
    } else if (e->n_queued >= e->queue_limit + n_free) {
        rc = calla_fail(err, CALLA_ERR_BUSY, "%d requests run and %d wait, the most that may; try again", n_active, e->n_queued);
    } else {
        atomic_fetch_add(&r->refs, 1);
#ifdef CALLA_TEST_HOOKS
        r->script = calla_script_next(&e->script);
#endif
        if (e->last != NULL) e->last->next = r;
        else e->first = r;
        e->last = r;
        e->n_queued++;
        pthread_cond_signal(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    if (rc != 0) calla_request_unref(r);
    else *out = r;
    return rc;
}

#ifdef CALLA_TEST_HOOKS
int calla_engine_script(struct calla_engine *e, const char *path, struct calla_err *err) {
    struct calla_script s;
    const int rc = calla_script_read(&s, path, e->model->n_vocab, err);
    if (rc != 0) return rc;
    pthread_mutex_lock(&e->lock);
    calla_script_free(&e->script);
    e->script = s;
    pthread_mutex_unlock(&e->lock);
    return 0;
}
#endif
