/* worker.h - one thread that reads big bodies, so that they do not hold up the loop. */
#ifndef CALLA_SERVER_WORKER_H
#define CALLA_SERVER_WORKER_H

#include <event2/event.h>

#include "calla.h"

struct worker;

struct job {
    void (*run)(struct job *j);         /* on the worker                             */
    void (*done)(struct job *j);        /* on the loop, from worker_reap             */
    struct job *next;
};

/* wake is activated when a job has run. */
int  worker_start(struct worker **out, struct event *wake, struct calla_err *err);
void worker_put(struct worker *w, struct job *j);
/* Calls done of every job that has run. */
void worker_reap(struct worker *w);
/* Runs what was put to its end, joins, and reaps. */
void worker_stop(struct worker **w);

#endif
