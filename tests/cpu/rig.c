#include "rig.h"

#include <stdio.h>

#include "base/rng.h"

void rig_open(struct rig *r, const struct calla_weights *w, struct rig_options o) {
    struct calla_err err = { 0 };
    const int max_rows = o.max_rows ? o.max_rows : 64, ctx = o.ctx_tokens ? o.ctx_tokens : 512;
    const struct calla_backend_options opt = {
        .n_threads = o.n_threads ? o.n_threads : 2, .max_rows = max_rows, .max_logits = o.max_logits ? o.max_logits : max_rows,
        .n_states = o.n_states ? o.n_states : 9, .ctx_tokens = ctx, .kv_tokens = (size_t)(o.kv_tokens ? o.kv_tokens : 9 * ctx),
        .n_usable_ids = 1024 };
    *r = (struct rig){ .w = w, .ops = &calla_cpu_backend, .n_vocab = w->shape->n_vocab, .max_rows = max_rows };
    const int rc = cpu_backend_open_with(&r->b, w, &opt, o.kernels ? o.kernels : cpu_kernels_best(), &err);
    if (rc != 0) fail_msg("open: %s", err.message);
}

void rig_close(struct rig *r) {
    r->ops->close(r->b);
    r->b = NULL;
}

struct calla_state *rig_state(struct rig *r) {
    struct calla_err err = { 0 };
    struct calla_state *s;
    if (r->ops->state_new(&s, r->b, &err) != 0) fail_msg("state: %s", err.message);
    return s;
}

int32_t *rig_ids(uint64_t seed, int n) {
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++) {
        uint32_t words[4];
        calla_rng_block(words, seed, 0, (uint64_t)i);
        ids[i] = (int32_t)(words[0] % 1024);
    }
    return ids;
}

int rig_step(struct rig *r, const struct calla_row *rows, int n_rows, struct calla_err *err) {
    const struct calla_batch batch = { .rows = rows, .n_rows = n_rows };
    return r->ops->step(r->b, &batch, err);
}

struct calla_row rig_row(struct calla_state *s, int32_t id) {
    return (struct calla_row){ .state = s, .token = id, .token_row = -1, .wants_logits = true };
}

static void feed(struct rig *r, struct calla_state *s, const int32_t *ids, int n, const int *chunks, int n_chunks, float *logits) {
    struct calla_row *rows = malloc((size_t)r->max_rows * sizeof *rows);
    for (int done = 0, k = 0; done < n; k += k + 1 < n_chunks) {
        struct calla_err err = { 0 };
        const int m = chunks[k] < n - done ? chunks[k] : n - done;
        for (int i = 0; i < m; i++) {
            rows[i] = rig_row(s, ids[done + i]);
            rows[i].wants_logits = logits != NULL;
        }
        if (rig_step(r, rows, m, &err) != 0) fail_msg("step of %d rows at %d: %s", m, done, err.message);
        for (int i = 0; logits != NULL && i < m; i++)
            memcpy(logits + (size_t)(done + i) * (size_t)r->n_vocab, r->ops->logits(r->b, i), (size_t)r->n_vocab * sizeof *logits);
        done += m;
    }
    free(rows);
}

float *rig_feed(struct rig *r, struct calla_state *s, const int32_t *ids, int n, const int *chunks, int n_chunks) {
    float *logits = malloc((size_t)n * (size_t)r->n_vocab * sizeof *logits);
    feed(r, s, ids, n, chunks, n_chunks, logits);
    return logits;
}

float *rig_feed_all(struct rig *r, struct calla_state *s, const int32_t *ids, int n) {
    return rig_feed(r, s, ids, n, &r->max_rows, 1);
}

void rig_skip(struct rig *r, struct calla_state *s, const int32_t *ids, int n) { feed(r, s, ids, n, &r->max_rows, 1, NULL); }

void rig_same(struct rig *r, const float *a, const float *b, int n_rows, const char *what) {
    for (int i = 0; i < n_rows; i++)
        for (int c = 0; c < r->n_vocab; c++) {
            const size_t at = (size_t)i * (size_t)r->n_vocab + (size_t)c;
            if (memcmp(&a[at], &b[at], sizeof *a) != 0)
                fail_msg("%s: row %d, id %d: %.9g is not %.9g", what, i, c, (double)a[at], (double)b[at]);
        }
}
