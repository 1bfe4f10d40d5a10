/* scheduler.h - which rows the next step runs, and what becomes of its ids.
 *
 * Owns the running requests, the kept states and the step's rows.  The engine's
 * thread calls everything here; it takes the model's lock itself. */
#ifndef CALLA_ENGINE_SCHEDULER_H
#define CALLA_ENGINE_SCHEDULER_H

#include "engine/cache.h"
#include "engine/model.h"
#include "engine/request.h"

struct calla_piece { struct calla_request *r; int row_idx, n_rows; };   /* of one request in a step */

struct calla_scheduler {
    struct calla_model    *model;
    struct calla_cache     cache;
    struct calla_request **running;     /* [n_sequences], in the order of admission   */
    int      n_running, n_slots;
    struct calla_request  *paused;      /* list: gave up their state for want of pages */
    bool     wait_for_finish;           /* no admission before a running one ends      */
    struct calla_row      *rows;        /* [max_rows]                                  */
    struct calla_piece    *pieces;      /* [n_sequences]                               */
    struct calla_request **prefilling;  /* [n_sequences], scratch                      */
    int      n_rows, n_pieces;
    unsigned turn;
    const atomic_bool *stop;            /* ends a step early                           */
    _Atomic uint64_t n_sampled;
    _Atomic int n_active;               /* running and paused; falls before DONE is there to be read */
    bool     failed;
    struct calla_err failure;
};

int  calla_scheduler_open(struct calla_scheduler *s, struct calla_model *m, const atomic_bool *stop, struct calla_err *err);
/* Ends everything that runs or is paused as cancelled. */
void calla_scheduler_close(struct calla_scheduler *s);

bool calla_scheduler_has_room(const struct calla_scheduler *s);
/* Takes the reference, which n_active counts already.  The request runs from
 * the next step on. */
void calla_scheduler_admit(struct calla_scheduler *s, struct calla_request *r);
/* Ends what was cancelled, puts paused requests back, runs one step.  When the
 * device faults, `failed` is set, and no step may follow: fail_all() then ends
 * all requests with `failure`. */
void calla_scheduler_step(struct calla_scheduler *s);
void calla_scheduler_fail_all(struct calla_scheduler *s);

#endif
