/* cache.c - states worth keeping.
 *
 * What is kept, and why (docs/architecture.md, "Kept states"):
 *   the end of a finished sequence        the next turn that echoes it extends it
 *   a prompt's last message boundary,     agents render their history anew, and it
 *     or its end less one id              agrees up to there, not into the answer
 *   the end of the first message          system prompt and tools, shared by all
 *   where an earlier prompt parted        two prompts have shown that they share it
 *   every 8,192 ids                       bounds what a change in the middle costs */
#include "engine/cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

enum {
    LADDER_TOKENS = 8192,
    GAP_TOKENS = 256,       /* between copies that only may help: each costs a step of its own */
    END_TOKENS = 16,        /* a boundary this near the prompt's end stands for the end */
    LEARN_TOKENS = 1024     /* common ids that are worth a copy of their own         */
};

int calla_cache_open(struct calla_cache *c, struct calla_model *m, struct calla_err *err) {
    *c = (struct calla_cache){ .model = m, .cap = m->plan.n_kept, .n_most = m->plan.n_kept + m->plan.n_sequences };
    c->kept = calloc((size_t)c->cap + 1, sizeof *c->kept);
    c->spare = calloc((size_t)c->n_most, sizeof *c->spare);
    if (c->kept == NULL || c->spare == NULL) {
        calla_cache_close(c);
        return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a list of %d states", m->plan.n_kept);
    }
    return 0;
}

void calla_cache_close(struct calla_cache *c) {
    while (c->kept != NULL && calla_cache_evict(c)) {}
    for (int i = 0; i < c->n_spare; i++) c->model->ops->state_free(c->spare[i]);
    free(c->kept);
    free(c->spare);
    *c = (struct calla_cache){ 0 };
}

/* ---- states -------------------------------------------------------------------------- */

void calla_cache_give_back(struct calla_cache *c, struct calla_state *state) {
    if (state == NULL) return;
    c->model->ops->state_reset(state);       /* frees its pages, and no later request finds anything of this one */
    c->spare[c->n_spare++] = state;
}

struct calla_state *calla_cache_state(struct calla_cache *c) {
    struct calla_state *state = NULL;
    if (c->n_spare == 0 && c->n_made < c->n_most && c->model->ops->state_new(&state, c->model->backend, NULL) == 0) {
        c->n_made++;
        return state;
    }
    if (c->n_spare == 0 && !calla_cache_evict(c)) return NULL;
    return c->spare[--c->n_spare];
}

static struct calla_kept take(struct calla_cache *c, int idx) {
    const struct calla_kept k = c->kept[idx];
    c->kept[idx] = c->kept[--c->n_kept];
    return k;
}

bool calla_cache_evict(struct calla_cache *c) {
    int oldest = 0;
    if (c->n_kept == 0) return false;
    for (int i = 1; i < c->n_kept; i++)
        if (c->kept[i].used < c->kept[oldest].used) oldest = i;
    const struct calla_kept k = take(c, oldest);
    calla_prefix_unref(k.seq);
    calla_cache_give_back(c, k.state);
    c->n_evicted++;
    return true;
}

/* ---- finding and keeping ----------------------------------------------------------------- */

static int common(const int32_t *a, const int32_t *b, int n) {
    int i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

int calla_cache_find(const struct calla_cache *c, const int32_t *ids, int n_most, int *n_common) {
    int best = -1;
    *n_common = 0;
    for (int i = 0; i < c->n_kept; i++) {
        const struct calla_kept *k = &c->kept[i];
        const int n = common(k->seq->ids, ids, k->n < n_most ? k->n : n_most);
        if (n > *n_common) *n_common = n;
        if (n == k->n && (best < 0 || n > c->kept[best].n)) best = i;
    }
    return best;
}

struct calla_state *calla_cache_start_from(struct calla_cache *c, int idx) {
    struct calla_kept *k = &c->kept[idx];
    struct calla_state *copy = NULL;
    k->used = ++c->clock;                    /* not the one that goes to make room    */
    if (!k->is_end) {
        const struct calla_state *from = k->state;
        copy = c->n_kept > 1 || c->n_spare > 0 || c->n_made < c->n_most ? calla_cache_state(c) : NULL;
        while (copy != NULL && c->model->ops->state_copy(copy, from, NULL) != 0) {
            if (c->n_kept > 1 && calla_cache_evict(c)) continue;
            calla_cache_give_back(c, copy);
            copy = NULL;
        }
        if (copy != NULL) return copy;
        for (idx = 0; c->kept[idx].state != from;) idx++;
    }
    const struct calla_kept moved = take(c, idx);
    calla_prefix_unref(moved.seq);
    return moved.state;
}

void calla_cache_keep(struct calla_cache *c, struct calla_state *state, struct calla_prefix *seq, int n, bool is_end) {
    int n_common;
    const int same = calla_cache_find(c, seq->ids, n, &n_common);
    if (same >= 0 && c->kept[same].n == n) {
        c->kept[same].used = ++c->clock;
        calla_cache_give_back(c, state);
        return;
    }
    if (c->cap == 0 || n == 0) {
        calla_cache_give_back(c, state);
        return;
    }
    if (c->n_kept == c->cap) calla_cache_evict(c);
    c->kept[c->n_kept++] = (struct calla_kept){ state, calla_prefix_ref(seq), n, is_end, ++c->clock };
}

void calla_cache_keep_copy(struct calla_cache *c, const struct calla_state *state, struct calla_prefix *seq, int n) {
    int n_common;
    const int same = calla_cache_find(c, seq->ids, n, &n_common);
    if (same >= 0 && c->kept[same].n == n) {
        c->kept[same].used = ++c->clock;
        return;
    }
    if (c->cap == 0) return;
    if (c->n_kept == c->cap) calla_cache_evict(c);
    struct calla_state *copy = calla_cache_state(c);
    if (copy == NULL) return;
    while (c->model->ops->state_copy(copy, state, NULL) != 0) {
        if (calla_cache_evict(c)) continue;
        calla_cache_give_back(c, copy);
        return;
    }
    calla_cache_keep(c, copy, seq, n, false);
}

/* ---- where to keep ---------------------------------------------------------------------------- */

static int rising(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

void calla_cache_plan_parks(const struct calla_cache *c, struct calla_request *r, int n_common) {
    int want[CALLA_MAX_PARKS], n = 0, end = r->n_prompt - 1;
    r->n_parks = 0;
    if (c->cap == 0) return;
    /* Half of the places at most for one prompt's ladder. */
    const int places = c->cap / 2 > 0 ? c->cap / 2 < 32 ? c->cap / 2 : 32 : 1;
    const int step = LADDER_TOKENS * (1 + r->n_prompt / LADDER_TOKENS / places);
    for (int p = step; p < end; p += step) want[n++] = p;
    if (n_common >= r->pos + LEARN_TOKENS) want[n++] = n_common / CALLA_GROUP * CALLA_GROUP;
    if (r->n_boundaries > 0) want[n++] = r->boundaries[0];
    if (r->n_boundaries > 1) want[n++] = r->boundaries[r->n_boundaries - 2];
    if (r->n_boundaries > 0) {
        const int last = r->boundaries[r->n_boundaries - 1];
        if (last <= end && last + END_TOKENS >= end) end = last;
        else want[n++] = last;
    }
    qsort(want, (size_t)n, sizeof *want, rising);
    int before = r->pos;
    for (int i = 0; i < n; i++)
        if (want[i] >= before + GAP_TOKENS && want[i] + GAP_TOKENS <= end) r->parks[r->n_parks++] = before = want[i];
    if (end > r->pos) r->parks[r->n_parks++] = end;
}
