/* scheduler.c - continuous scheduling.
 *
 * Every step has one row of each decoding request and, in the rest of its rows,
 * chunks of the prompts that are being read.  Those share the rest evenly,
 * shortest first, so a short prompt passes a long one and a running answer
 * waits for one chunk at most.  That a row's result does not depend on its
 * neighbours is the backend's promise; nothing here has to be fair to bits. */
#include "engine/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#ifdef CALLA_TEST_HOOKS
#include "engine/script.h"
#endif

int calla_scheduler_open(struct calla_scheduler *s, struct calla_model *m, const atomic_bool *stop, struct calla_err *err) {
    *s = (struct calla_scheduler){ .model = m, .n_slots = m->plan.n_sequences, .stop = stop };
    const int rc = calla_cache_open(&s->cache, m, err);
    if (rc != 0) return rc;
    s->running = calloc((size_t)s->n_slots, sizeof *s->running);
    s->prefilling = calloc((size_t)s->n_slots, sizeof *s->prefilling);
    s->pieces = calloc((size_t)s->n_slots, sizeof *s->pieces);
    s->rows = calloc((size_t)m->plan.backend.max_rows, sizeof *s->rows);
    if (s->running != NULL && s->prefilling != NULL && s->pieces != NULL && s->rows != NULL) return 0;
    calla_scheduler_close(s);
    return calla_fail(err, CALLA_ERR_MEMORY, "no memory to schedule %d sequences", s->n_slots);
}

/* ---- ends ---------------------------------------------------------------------------- */

static void remove_running(struct calla_scheduler *s, const struct calla_request *r) {
    int i = 0;
    while (i < s->n_running && s->running[i] != r) i++;
    if (i == s->n_running) return;
    memmove(s->running + i, s->running + i + 1, (size_t)(s->n_running - i - 1) * sizeof *s->running);
    s->n_running--;
}

/* The state is kept, as far as it has run, unless it is not to be trusted. */
static void finish(struct calla_scheduler *s, struct calla_request *r, enum calla_finish how, bool keep, const struct calla_err *err) {
    struct calla_state *state = r->state;
    r->state = NULL;
    if (state != NULL) {
        pthread_mutex_lock(&s->model->lock);
        if (keep) calla_cache_keep(&s->cache, state, r->seq, r->pos, true);
        else calla_cache_give_back(&s->cache, state);
        pthread_mutex_unlock(&s->model->lock);
    }
    remove_running(s, r);
    s->wait_for_finish = false;
    atomic_fetch_sub(&s->n_active, 1);
    calla_request_put_done(r, how, err);
    calla_request_unref(r);
}

static void end_all(struct calla_scheduler *s, enum calla_finish how, const struct calla_err *err) {
    while (s->n_running > 0) finish(s, s->running[s->n_running - 1], how, false, err);
    while (s->paused != NULL) {
        struct calla_request *r = s->paused;
        s->paused = r->next;
        finish(s, r, how, false, err);
    }
}

void calla_scheduler_fail_all(struct calla_scheduler *s) { end_all(s, CALLA_FINISH_ERROR, &s->failure); }

void calla_scheduler_close(struct calla_scheduler *s) {
    end_all(s, CALLA_FINISH_CANCELLED, NULL);
    if (s->cache.kept != NULL) {
        pthread_mutex_lock(&s->model->lock);
        calla_cache_close(&s->cache);
        pthread_mutex_unlock(&s->model->lock);
    }
    free(s->running);
    free(s->prefilling);
    free(s->pieces);
    free(s->rows);
    s->running = s->prefilling = NULL;
    s->pieces = NULL;
    s->rows = NULL;
}

static void end_cancelled(struct calla_scheduler *s) {
    for (int i = s->n_running - 1; i >= 0; i--)
        if (atomic_load(&s->running[i]->cancelled)) finish(s, s->running[i], CALLA_FINISH_CANCELLED, true, NULL);
    for (struct calla_request **link = &s->paused; *link != NULL;) {
        struct calla_request *r = *link;
        if (!atomic_load(&r->cancelled)) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        finish(s, r, CALLA_FINISH_CANCELLED, false, NULL);
    }
}

/* ---- admission -------------------------------------------------------------------------- */

bool calla_scheduler_has_room(const struct calla_scheduler *s) {
    return s->n_running < s->n_slots && s->paused == NULL && !s->wait_for_finish;
}

/* Gives r a state: from a kept one where its first ids are the same. */
static bool find_state(struct calla_scheduler *s, struct calla_request *r) {
    int n_common = 0, best = -1;
    r->pos = 0;
    if (!r->prompt_logprobs)             /* which need the logits of every id         */
        best = calla_cache_find(&s->cache, r->seq->ids, r->n_ids - 1, &n_common);
    if (best >= 0) {
        r->pos = s->cache.kept[best].n;
        r->state = calla_cache_start_from(&s->cache, best);
    } else {
        r->state = calla_cache_state(&s->cache);
    }
    calla_cache_plan_parks(&s->cache, r, n_common);
    return r->state != NULL;
}

void calla_scheduler_admit(struct calla_scheduler *s, struct calla_request *r) {
    const bool is_new = r->admitted_ns == 0;
    if (is_new) r->admitted_ns = calla_now_ns();
    s->running[s->n_running++] = r;
    pthread_mutex_lock(&s->model->lock);
    const bool has_state = find_state(s, r);
    pthread_mutex_unlock(&s->model->lock);
    if (!has_state) {
        struct calla_err err;
        calla_fail(&err, CALLA_ERR_MEMORY, "no state is free: %d of %d made by this engine, the rest by sessions", s->cache.n_made, s->cache.n_most);
        finish(s, r, CALLA_FINISH_ERROR, false, &err);
        return;
    }
    if (is_new) {
        r->n_cached = r->pos < r->n_prompt ? r->pos : r->n_prompt;
        if (r->n_cached > 0) calla_request_put_read(r, r->n_cached, 0);
    }
}

/* The pool of pages is empty and nothing is kept: the youngest request gives up
 * its state and reads its ids again later.  False when it is the only one. */
static bool pause_youngest(struct calla_scheduler *s) {
    if (s->n_running < 2) return false;
    struct calla_request *r = s->running[--s->n_running];
    pthread_mutex_lock(&s->model->lock);
    calla_cache_give_back(&s->cache, r->state);
    pthread_mutex_unlock(&s->model->lock);
    r->state = NULL;
    r->next = s->paused;
    s->paused = r;
    s->wait_for_finish = true;
    return true;
}

/* ---- a step: its rows --------------------------------------------------------------------- */

static int rows_left(const struct calla_request *r) { return r->n_ids - r->pos; }

/* A chunk ends on the grid, where a copy is to be kept, or with the prompt. */
static int chunk_rows(const struct calla_request *r, int n_most) {
    int end = calla_chunk_end(r->pos, r->n_ids, n_most);
    for (int i = 0; i < r->n_parks; i++)
        if (r->parks[i] > r->pos) return (end < r->parks[i] ? end : r->parks[i]) - r->pos;
    return end - r->pos;
}

static void add_piece(struct calla_scheduler *s, struct calla_request *r, int n_rows) {
    s->pieces[s->n_pieces++] = (struct calla_piece){ r, s->n_rows, n_rows };
    for (int i = 0; i < n_rows; i++) {
        const int pos = r->pos + i;
        const bool last = pos == r->n_ids - 1, samples = last && r->n_ids < r->n_most;
        s->rows[s->n_rows++] = (struct calla_row){
            .state = r->state, .token = r->seq->ids[pos], .token_row = -1, .sampler = samples ? &r->sampler : NULL,
            .wants_logits = (samples && r->wants_logprobs) || (r->prompt_logprobs && pos + 1 < r->n_prompt) };
        if (samples) {
            r->sampler.n_ids = r->n_ids;
            r->sampler.pos = r->n_ids;
        }
    }
}

static bool decodes(const struct calla_request *r) { return r->pos >= r->n_prompt && rows_left(r) == 1; }

/* The prompts being read, fewest rows first.  Where not all of them fit into a
 * step, every other step begins with the oldest, so that it moves even if
 * short ones never end. */
static int order_prefilling(struct calla_scheduler *s, int n_fit) {
    struct calla_request *oldest = NULL;
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        struct calla_request *r = s->running[i];
        if (decodes(r)) continue;
        if (oldest == NULL) oldest = r;
        int at = n++;
        for (; at > 0 && rows_left(s->prefilling[at - 1]) > rows_left(r); at--) s->prefilling[at] = s->prefilling[at - 1];
        s->prefilling[at] = r;
    }
    if (n > n_fit && s->turn % 2 == 1) {
        int at = 0;
        while (s->prefilling[at] != oldest) at++;
        for (; at > 0; at--) s->prefilling[at] = s->prefilling[at - 1];
        s->prefilling[0] = oldest;
    }
    return n;
}

static bool build_alone(struct calla_scheduler *s) {
    for (int i = 0; i < s->n_running; i++) {
        struct calla_request *r = s->running[i];
        if (r->pos >= r->alone_until) continue;
        const struct calla_backend_options *o = &s->model->plan.backend;
        add_piece(s, r, chunk_rows(r, r->prompt_logprobs ? o->max_logits : o->max_rows));
        return true;
    }
    return false;
}

static void build_rows(struct calla_scheduler *s) {
    const struct calla_backend_options *o = &s->model->plan.backend;
    int left = o->max_rows, logits = o->max_logits - s->n_running;   /* each may sample once */
    s->n_rows = s->n_pieces = 0;
    s->turn++;
    if (build_alone(s)) return;
    for (int i = 0; i < s->n_running; i++)
        if (decodes(s->running[i])) {
            add_piece(s, s->running[i], 1);
            left--;
        }
    const int n = order_prefilling(s, left / CALLA_GROUP);
    for (int i = 0; i < n && left > 0; i++) {
        struct calla_request *r = s->prefilling[i];
        int sharing = n - i, most;
        if (sharing > left / CALLA_GROUP) sharing = left / CALLA_GROUP;   /* a whole line of the grid for fewer */
        most = sharing > 1 ? left / sharing : left;
        if (r->prompt_logprobs && most > 1 + logits) most = 1 + logits;
        const int n_rows = chunk_rows(r, most);
        add_piece(s, r, n_rows);
        left -= n_rows;
        if (r->prompt_logprobs) logits -= n_rows - 1;
    }
}

/* ---- a step: its results --------------------------------------------------------------------- */

static bool stops_at(const struct calla_request *r, int32_t id) {
    for (int i = 0; i < r->n_stop_ids; i++)
        if (r->stop_ids[i] == id) return true;
    return false;
}

/* The id after the request's last row.  Under the model's lock. */
static int take_id(struct calla_scheduler *s, struct calla_request *r, int row_idx, struct calla_err *err) {
    const struct calla_model *m = s->model;
    int32_t id = m->ops->sampled(m->backend, row_idx);
    if (id < 0)
        return calla_fail(err, CALLA_ERR_NUMERIC, "no id could be sampled at position %d: the logits are not finite, or bias leaves no id", r->n_ids);
#ifdef CALLA_TEST_HOOKS
    id = calla_script_id(r, id);
#endif
    if (r->wants_logprobs) calla_request_logprobs(r, r->n_ids, id, m->ops->logits(m->backend, row_idx), m->n_usable);
    if (r->first_ns == 0) r->first_ns = calla_now_ns();
    atomic_fetch_add(&s->n_sampled, 1);
    calla_request_put_id(r, id);
    return 0;
}

/* After its rows have run: what the reader sees, what is kept, what was sampled. */
static int take_piece(struct calla_scheduler *s, const struct calla_piece *p, struct calla_err *err) {
    struct calla_request *r = p->r;
    const struct calla_model *m = s->model;
    const int begin = r->pos;
    r->pos += p->n_rows;
    if (r->prompt_logprobs)
        for (int i = 0; i < p->n_rows && begin + i + 1 < r->n_prompt; i++)
            calla_request_logprobs(r, begin + i + 1, r->seq->ids[begin + i + 1], m->ops->logits(m->backend, p->row_idx + i), m->n_usable);
    for (int i = 0; i < r->n_parks; i++)
        if (r->parks[i] == r->pos) calla_cache_keep_copy(&s->cache, r->state, r->seq, r->pos);
    if (begin < r->n_prompt) {
        const int n_out = r->pos + 1 < r->n_prompt ? r->pos + 1 : r->n_prompt;
        calla_request_put_read(r, r->pos < r->n_prompt ? r->pos : r->n_prompt, r->prompt_logprobs ? n_out : 0);
    }
    return r->pos == r->n_ids && r->n_ids < r->n_most ? take_id(s, r, p->row_idx + p->n_rows - 1, err) : 0;
}

static void take_results(struct calla_scheduler *s) {
    for (int i = 0; i < s->n_pieces; i++) {
        struct calla_request *r = s->pieces[i].r;
        struct calla_err err = { 0 };
        const int n_before = r->n_ids;
        pthread_mutex_lock(&s->model->lock);
        const int rc = take_piece(s, &s->pieces[i], &err);
        pthread_mutex_unlock(&s->model->lock);
        if (rc != 0) finish(s, r, CALLA_FINISH_ERROR, false, &err);
        else if (r->n_ids > n_before && stops_at(r, r->seq->ids[r->n_ids - 1])) finish(s, r, CALLA_FINISH_STOP, true, NULL);
        else if (r->n_ids == r->n_most && (r->n_ids > n_before || r->pos == r->n_ids)) finish(s, r, CALLA_FINISH_LENGTH, true, NULL);
#ifdef CALLA_TEST_HOOKS
        else if (calla_script_fails(r)) {
            s->failed = true;
            calla_fail(&s->failure, CALLA_ERR_DEVICE, "the script ends the device after %d ids", r->n_ids - r->n_prompt);
        }
#endif
    }
}

/* Runs the rows; kept states, then running ones, give way when pages are short.
 * 1: the rows must be chosen anew. */
static int run_rows(struct calla_scheduler *s, struct calla_err *err) {
    struct calla_model *m = s->model;
    const struct calla_batch batch = { .rows = s->rows, .n_rows = s->n_rows, .cancel = s->stop };
    int rc;
    pthread_mutex_lock(&m->lock);
    while ((rc = m->ops->step(m->backend, &batch, err)) == CALLA_ERR_MEMORY && calla_cache_evict(&s->cache)) {}
    pthread_mutex_unlock(&m->lock);
    if (rc == CALLA_ERR_MEMORY && pause_youngest(s)) return 1;
    return rc;
}

/* A row of the step was not finite, and the states of all are void: each reads
 * its ids again, alone up to where it was, and the bad one fails by itself. */
static void separate(struct calla_scheduler *s) {
    pthread_mutex_lock(&s->model->lock);
    for (int i = 0; i < s->n_pieces; i++) {
        struct calla_request *r = s->pieces[i].r;
        r->alone_until = r->pos + s->pieces[i].n_rows;
        calla_cache_give_back(&s->cache, r->state);
        r->state = NULL;
        find_state(s, r);                    /* one was given back, so one is free    */
    }
    pthread_mutex_unlock(&s->model->lock);
}

static void readmit_paused(struct calla_scheduler *s) {
    if (s->n_running == 0) s->wait_for_finish = false;
    while (s->paused != NULL && !s->wait_for_finish && s->n_running < s->n_slots) {
        struct calla_request *r = s->paused;
        s->paused = r->next;
        calla_scheduler_admit(s, r);
    }
}

void calla_scheduler_step(struct calla_scheduler *s) {
    struct calla_err err = { 0 };
    int rc = 0;
    end_cancelled(s);
    readmit_paused(s);
    if (s->n_running == 0) return;
    do {
        build_rows(s);
#ifdef CALLA_TEST_HOOKS
        for (int i = 0; i < s->n_pieces; i++) calla_script_wait(s->pieces[i].r);
#endif
        rc = run_rows(s, &err);
    } while (rc == 1);
    if (rc == 0) take_results(s);
    else if (rc == CALLA_ERR_CANCELLED) return;          /* the engine stops                 */
    else if (rc == CALLA_ERR_MEMORY) finish(s, s->running[0], CALLA_FINISH_ERROR, true, &err);
    else if (rc == CALLA_ERR_NUMERIC && s->n_pieces > 1) separate(s);
    else if (rc == CALLA_ERR_NUMERIC) finish(s, s->pieces[0].r, CALLA_FINISH_ERROR, false, &err);
    else {
        s->failed = true;
        s->failure = err;
    }
}
