/* session.c - one sequence, driven directly by its caller's thread.
 *
 * Owns a state, its ids and the checkpoints that were asked for.  The backend
 * is shared with other sessions and the engine, so every call of it is made
 * under the model's lock, one step at a time. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "engine/model.h"
#include "engine/state_file.h"

struct checkpoint { int pos; struct calla_state *state; };

struct calla_session {
    struct calla_model *model;
    struct calla_state *state;
    struct checkpoint  *checkpoints;   /* [n_checkpoints], rising                    */
    int      n_checkpoints, cap_checkpoints;
    int32_t *ids;                      /* [ctx]                                      */
    int      n_ids;
    struct calla_row *rows;            /* [max_rows]                                 */
};

int calla_session_new(struct calla_session **out, struct calla_model *model, struct calla_err *err) {
    struct calla_session *s = calloc(1, sizeof *s);
    int rc = 0;
    *out = NULL;
    if (s != NULL) {
        s->model = model;
        s->ids = malloc((size_t)model->plan.backend.ctx_tokens * sizeof *s->ids);
        s->rows = malloc((size_t)model->plan.backend.max_rows * sizeof *s->rows);
    }
    if (s == NULL || s->ids == NULL || s->rows == NULL)
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for a session of %d tokens", model->plan.backend.ctx_tokens);
    if (rc == 0) {
        pthread_mutex_lock(&model->lock);
        rc = model->ops->state_new(&s->state, model->backend, err);
        pthread_mutex_unlock(&model->lock);
    }
    if (rc != 0) {
        calla_session_free(&s);
        return rc;
    }
    *out = s;
    return 0;
}

static void free_state(struct calla_session *s, struct calla_state *state) {
    if (state == NULL) return;
    pthread_mutex_lock(&s->model->lock);
    s->model->ops->state_free(state);
    pthread_mutex_unlock(&s->model->lock);
}

static void drop_checkpoints_after(struct calla_session *s, int pos) {
    while (s->n_checkpoints > 0 && s->checkpoints[s->n_checkpoints - 1].pos > pos)
        free_state(s, s->checkpoints[--s->n_checkpoints].state);
}

void calla_session_free(struct calla_session **session) {
    struct calla_session *s = *session;
    if (s == NULL) return;
    drop_checkpoints_after(s, -1);
    free_state(s, s->state);
    free(s->checkpoints);
    free(s->ids);
    free(s->rows);
    free(s);
    *session = NULL;
}

/* ---- resume points -------------------------------------------------------------------- */

int calla_session_checkpoint(struct calla_session *s, struct calla_err *err) {
    struct calla_state *copy = NULL;
    if (s->n_ids == 0 || (s->n_checkpoints > 0 && s->checkpoints[s->n_checkpoints - 1].pos == s->n_ids)) return 0;
    if (s->n_checkpoints == s->cap_checkpoints) {
        const int cap = s->cap_checkpoints ? 2 * s->cap_checkpoints : 8;
        struct checkpoint *more = realloc(s->checkpoints, (size_t)cap * sizeof *more);
        if (more == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for %d checkpoints", cap);
        s->checkpoints = more;
        s->cap_checkpoints = cap;
    }
    pthread_mutex_lock(&s->model->lock);
    int rc = s->model->ops->state_new(&copy, s->model->backend, err);
    if (rc == 0) rc = s->model->ops->state_copy(copy, s->state, err);
    if (rc != 0 && copy != NULL) s->model->ops->state_free(copy);
    pthread_mutex_unlock(&s->model->lock);
    if (rc != 0) {
        calla_err_prefix(err, "checkpoint at %d", s->n_ids);
        return rc;
    }
    s->checkpoints[s->n_checkpoints++] = (struct checkpoint){ s->n_ids, copy };
    return 0;
}

int calla_session_resume_point(const struct calla_session *s, int want) {
    int best = 0;
    if (s->n_ids <= want) return s->n_ids;
    for (int i = 0; i < s->n_checkpoints; i++)
        if (s->checkpoints[i].pos <= want) best = s->checkpoints[i].pos;
    return best;
}

/* Makes the state what it was at pos, 0 or a checkpoint's. */
static int go_back(struct calla_session *s, int pos, struct calla_err *err) {
    int rc = 0;
    drop_checkpoints_after(s, pos);
    pthread_mutex_lock(&s->model->lock);
    s->model->ops->state_reset(s->state);
    if (pos > 0) rc = s->model->ops->state_copy(s->state, s->checkpoints[s->n_checkpoints - 1].state, err);
    if (rc != 0) s->model->ops->state_reset(s->state);
    pthread_mutex_unlock(&s->model->lock);
    s->n_ids = rc == 0 ? pos : 0;
    return rc;
}

int calla_session_resume(struct calla_session *s, int pos, struct calla_err *err) {
    if (pos == s->n_ids) return 0;
    if (pos < 0 || pos > s->n_ids || calla_session_resume_point(s, pos) != pos)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d is not a resume point; the nearest before it is %d", pos,
                          calla_session_resume_point(s, pos));
    return go_back(s, pos, err);
}

const int32_t *calla_session_ids(const struct calla_session *s, int *n_ids) {
    *n_ids = s->n_ids;
    return s->ids;
}

/* ---- feeding ----------------------------------------------------------------------------- */

static int check_ids(const struct calla_session *s, const int32_t *ids, int n_ids, struct calla_err *err) {
    const int ctx = s->model->plan.backend.ctx_tokens;
    if (n_ids < 0 || n_ids > ctx - s->n_ids)
        return calla_fail(err, CALLA_ERR_LIMIT, "%d tokens after %d do not fit the context of %d (--ctx)", n_ids, s->n_ids, ctx);
    for (int i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= s->model->n_vocab)
            return calla_fail(err, CALLA_ERR_ARGUMENT, "id %d at position %d; the checkpoint has %d", (int)ids[i], s->n_ids + i, s->model->n_vocab);
    return 0;
}

static int run_chunk(struct calla_session *s, const int32_t *ids, int n,
                     int (*on_logits)(void *user, int pos, const float *logits), void *user,
                     const atomic_bool *cancel, struct calla_err *err) {
    struct calla_model *m = s->model;
    for (int i = 0; i < n; i++)
        s->rows[i] = (struct calla_row){ .state = s->state, .token = ids[i], .token_row = -1, .wants_logits = on_logits != NULL };
    const struct calla_batch batch = { .rows = s->rows, .n_rows = n, .cancel = cancel };
    pthread_mutex_lock(&m->lock);
    int rc = m->ops->step(m->backend, &batch, err);
    if (rc == 0) {
        memcpy(s->ids + s->n_ids, ids, (size_t)n * sizeof *ids);
        s->n_ids += n;
    }
    for (int i = 0; rc == 0 && on_logits != NULL && i < n; i++) {
        rc = on_logits(user, s->n_ids - n + i, m->ops->logits(m->backend, i));
        if (rc < 0 && err != NULL && err->code == 0) calla_fail(err, rc, "the reader of the logits stopped at position %d", s->n_ids - n + i);
    }
    pthread_mutex_unlock(&m->lock);
    return rc < 0 ? rc : 0;
}

int calla_session_feed(struct calla_session *s, const int32_t *ids, int n_ids,
                       int (*on_logits)(void *user, int pos, const float *logits), void *user,
                       const atomic_bool *cancel, struct calla_err *err) {
    const int begin = s->n_ids;
    const int most = on_logits ? s->model->plan.backend.max_logits : s->model->plan.backend.max_rows;
    int rc = check_ids(s, ids, n_ids, err);
    if (rc != 0) return rc;
    if (err != NULL) err->code = 0;
    while (rc == 0 && s->n_ids < begin + n_ids) {
        if (cancel != NULL && atomic_load(cancel)) {
            rc = calla_fail(err, CALLA_ERR_CANCELLED, "cancelled at position %d of %d", s->n_ids, begin + n_ids);
            break;
        }
        const int end = calla_chunk_end(s->n_ids, begin + n_ids, most);
        rc = run_chunk(s, ids + s->n_ids - begin, end - s->n_ids, on_logits, user, cancel, err);
    }
    if (rc != 0) go_back(s, s->n_checkpoints > 0 ? s->checkpoints[s->n_checkpoints - 1].pos : 0, NULL);
    return rc;
}

/* ---- files ---------------------------------------------------------------------------------- */

int calla_session_save(const struct calla_session *s, const char *path, struct calla_err *err) {
    pthread_mutex_lock(&s->model->lock);
    const int rc = calla_state_file_save(s->model, s->state, s->ids, s->n_ids, path, err);
    pthread_mutex_unlock(&s->model->lock);
    return rc;
}

int calla_session_load(struct calla_session *s, const char *path, struct calla_err *err) {
    struct calla_model *m = s->model;
    struct calla_state *fresh = NULL;
    int32_t *ids = NULL;
    int n_ids = 0;
    pthread_mutex_lock(&m->lock);
    int rc = m->ops->state_new(&fresh, m->backend, err);
    if (rc == 0) rc = calla_state_file_load(m, fresh, &ids, &n_ids, path, err);
    if (rc != 0 && fresh != NULL) m->ops->state_free(fresh);
    pthread_mutex_unlock(&m->lock);
    if (rc != 0) return rc;
    drop_checkpoints_after(s, -1);
    free_state(s, s->state);
    s->state = fresh;
    memcpy(s->ids, ids, (size_t)n_ids * sizeof *ids);
    s->n_ids = n_ids;
    free(ids);
    return 0;
}
