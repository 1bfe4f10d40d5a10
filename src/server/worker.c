#include "server/worker.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *first, **last;          /* to run                                    */
    struct job *ran;                    /* latest first                              */
    struct event *wake;
    bool stop;
};

static void *work(void *arg) {
    struct worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->first == NULL && !w->stop) pthread_cond_wait(&w->changed, &w->lock);
        struct job *j = w->first;
        if (j == NULL) break;
        w->first = j->next;
        if (w->first == NULL) w->last = &w->first;
        pthread_mutex_unlock(&w->lock);
        j->run(j);
        pthread_mutex_lock(&w->lock);
        j->next = w->ran;
        w->ran = j;
        event_active(w->wake, 0, 0);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int worker_start(struct worker **out, struct event *wake, struct calla_err *err) {
    struct worker *w = calloc(1, sizeof *w);
    *out = NULL;
    if (w == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a thread");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->last = &w->first;
    w->wake = wake;
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->changed);
        free(w);
        return calla_fail(err, CALLA_ERR_MEMORY, "cannot start the thread that reads requests");
    }
    *out = w;
    return 0;
}

void worker_put(struct worker *w, struct job *j) {
    j->next = NULL;
    pthread_mutex_lock(&w->lock);
    *w->last = j;
    w->last = &j->next;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void worker_reap(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    struct job *j = w->ran;
    w->ran = NULL;
    pthread_mutex_unlock(&w->lock);
    while (j != NULL) {
        struct job *next = j->next;
        j->done(j);
        j = next;
    }
}

void worker_stop(struct worker **worker) {
    struct worker *w = *worker;
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    worker_reap(w);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w);
    *worker = NULL;
}
