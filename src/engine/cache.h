/* cache.h - states worth keeping, and which of them a new prompt can start from.
 *
 * Recurrent state cannot be cut back, so a kept state helps exactly the prompts
 * that begin with all of its ids.  Owns the kept states and the free ones; the
 * engine thread calls it under the model's lock. */
#ifndef CALLA_ENGINE_CACHE_H
#define CALLA_ENGINE_CACHE_H

#include "engine/model.h"
#include "engine/request.h"

struct calla_kept {
    struct calla_state  *state;
    struct calla_prefix *seq;
    int      n;              /* the state has run seq->ids[0 .. n)                   */
    bool     is_end;         /* of a finished sequence: may be moved, not copied     */
    uint64_t used;           /* clock of the last use                                */
};

struct calla_cache {
    struct calla_model *model;
    struct calla_kept  *kept;      /* [cap]                                          */
    int      n_kept, cap;
    struct calla_state **spare;    /* [n_made at most], reset                        */
    int      n_spare, n_made, n_most;
    uint64_t clock, n_evicted;
};

int  calla_cache_open(struct calla_cache *c, struct calla_model *m, struct calla_err *err);
void calla_cache_close(struct calla_cache *c);

/* An empty state, for which the least recently used kept one may have to go;
 * NULL when there is none. */
struct calla_state *calla_cache_state(struct calla_cache *c);
void calla_cache_give_back(struct calla_cache *c, struct calla_state *state);

/* The kept state with the most ids, all of them the first of ids [n_most], or
 * -1.  n_common: ids that any kept sequence has in common with them. */
int  calla_cache_find(const struct calla_cache *c, const int32_t *ids, int n_most, int *n_common);
/* The running state for a request that begins with what `idx` holds: the state
 * itself if it ended a sequence, else a copy.  NULL: no memory for a copy. */
struct calla_state *calla_cache_start_from(struct calla_cache *c, int idx);
/* Takes the state.  A state with the same ids is not kept twice. */
void calla_cache_keep(struct calla_cache *c, struct calla_state *state, struct calla_prefix *seq, int n, bool is_end);
/* Keeps a copy of a running state; nothing happens where that is impossible. */
void calla_cache_keep_copy(struct calla_cache *c, const struct calla_state *state, struct calla_prefix *seq, int n);
bool calla_cache_evict(struct calla_cache *c);   /* the least recently used; false: none is left */

/* Where the prompt of r, which starts at r->pos, shall leave copies: r->parks. */
void calla_cache_plan_parks(const struct calla_cache *c, struct calla_request *r, int n_common);

#endif
