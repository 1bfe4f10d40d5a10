/* request.h - a request, seen from inside the engine.
 *
 * Fields are fixed at submit, or belong to the engine thread, or are shared
 * under `lock`; each says which.  The caller and the engine hold one reference
 * each.  All memory is taken at submit: while it runs a request allocates
 * nothing, and events can neither be lost nor block the engine, because the
 * reader's place in them is a set of counters over these arrays. */
#ifndef CALLA_ENGINE_REQUEST_H
#define CALLA_ENGINE_REQUEST_H

#include <pthread.h>

#include "engine/backend.h"

/* Ids of a sequence, only ever appended to, so that states kept at earlier
 * positions can share it. */
struct calla_prefix {
    atomic_int refs;
    int     cap;
    int32_t ids[];          /* [cap]                                                 */
};
struct calla_prefix *calla_prefix_new(int cap);      /* NULL: no memory              */
struct calla_prefix *calla_prefix_ref(struct calla_prefix *p);
void calla_prefix_unref(struct calla_prefix *p);

enum { CALLA_MAX_PARKS = 48 };

struct calla_request {
    atomic_int refs;
    atomic_bool cancelled;

    /* fixed at submit */
    struct calla_prefix *seq;
    int      n_prompt, n_most;      /* ids at most, prompt and answer                 */
    struct calla_sampling sampling; /* bias is owned                                  */
    int32_t  stop_ids[CALLA_MAX_STOP_IDS];
    int      n_stop_ids, n_top;
    bool     wants_logprobs, prompt_logprobs;
    int32_t *boundaries;            /* [n_boundaries]                                 */
    int      n_boundaries;
    uint64_t submitted_ns;
    struct calla_request *next;     /* in the queue, under the engine's lock          */

    /* engine thread */
    struct calla_state *state;
    int      n_ids;                 /* known: prompt and what was sampled             */
    int      pos;                   /* of them, already run                           */
    int      n_cached;
    int      alone_until;           /* up to this position it runs in steps of its own */
    int      parks[CALLA_MAX_PARKS], n_parks; /* positions at which to keep a copy, rising */
    struct calla_sampler sampler;
    uint64_t admitted_ns, first_ns;
#ifdef CALLA_TEST_HOOKS
    const struct calla_script_line *script;
#endif

    /* shared, under lock */
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    void   (*notify)(void *user);   /* NULL after free                                */
    void    *user;
    float   *logprobs;              /* [n_most] by position, or NULL                  */
    struct calla_logprob *top;      /* [n_most, n_top], or NULL                       */
    int      n_read, n_prompt_out, n_out; /* there: prompt ids read, PROMPT events, ids of the answer */
    int      seen_read, seen_prompt, seen_out;
    bool     done, seen_done;
    enum calla_finish finish;
    struct calla_err  err;
    struct calla_usage usage;
};

int  calla_request_new(struct calla_request **out, const struct calla_model *m, const struct calla_request_params *p,
                       struct calla_err *err);
void calla_request_unref(struct calla_request *r);

/* Engine thread: what the reader shall see. */
void calla_request_put_read(struct calla_request *r, int n_read, int n_prompt_out);
void calla_request_put_id(struct calla_request *r, int32_t id);
void calla_request_put_done(struct calla_request *r, enum calla_finish finish, const struct calla_err *err);
/* Before put_read and put_id of that position: its log-probabilities. */
void calla_request_logprobs(struct calla_request *r, int pos, int32_t id, const float *logits, int n_usable);

#endif
