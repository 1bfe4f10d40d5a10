/* bench.c - one repetition of one measurement, on states of its own.
 *
 * As llama-bench does it: random ids, no sampling, the head runs for the last
 * row of a prompt and for every generated row. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rng.h"
#include "engine/model.h"

struct bench {
    struct calla_model *model;
    struct calla_state **states;   /* [n_states]                                      */
    struct calla_row *rows;        /* [max_rows]                                      */
    int      n_states, pos;        /* every sequence stands at pos                    */
    uint64_t seed;
};

static int32_t random_id(const struct bench *b, int sequence, int pos) {
    uint32_t r[4];
    calla_rng_block(r, b->seed, (uint64_t)sequence + 1, (uint64_t)pos / 4);
    return (int32_t)((uint64_t)r[pos % 4] * (uint64_t)b->model->n_usable >> 32);
}

/* n ids more in every sequence, in as few steps as the rows allow. */
static int run(struct bench *b, int n, bool logits, struct calla_err *err) {
    const int each = b->model->plan.backend.max_rows / b->n_states;
    int rc = 0;
    for (const int end = b->pos + n; rc == 0 && b->pos < end;) {
        const int stop = calla_chunk_end(b->pos, end, each);
        int n_rows = 0;
        for (int s = 0; s < b->n_states; s++)
            for (int p = b->pos; p < stop; p++)
                b->rows[n_rows++] = (struct calla_row){ .state = b->states[s], .token = random_id(b, s, p), .token_row = -1,
                                                        .wants_logits = logits && p == end - 1 };
        const struct calla_batch batch = { .rows = b->rows, .n_rows = n_rows };
        rc = b->model->ops->step(b->model->backend, &batch, err);
        b->pos = stop;
    }
    return rc;
}

static int measure(struct bench *b, const struct calla_bench_test *t, struct calla_bench_result *out, struct calla_err *err) {
    struct calla_backend_stats before, after;
    int rc = run(b, t->n_depth, false, err);
    if (rc != 0) return rc;
    b->model->ops->stats(b->model->backend, &before);
    const uint64_t begin_ns = calla_now_ns();
    rc = run(b, t->n_prompt, true, err);
    const uint64_t prompt_ns = calla_now_ns();
    for (int i = 0; rc == 0 && i < t->n_gen; i++) rc = run(b, 1, true, err);
    const uint64_t end_ns = calla_now_ns();
    b->model->ops->stats(b->model->backend, &after);
    if (t->n_prompt > 0) out->prompt_s = (double)(prompt_ns - begin_ns) / 1e9;
    if (t->n_gen > 0) out->gen_s = (double)(end_ns - prompt_ns) / 1e9;
    const uint64_t n_steps = after.n_steps - before.n_steps;
    if (n_steps > 0)
        out->experts_per_layer = (double)(after.n_expert_reads - before.n_expert_reads) / (double)n_steps / b->model->info.n_layers;
    return rc;
}

int calla_bench_run(struct calla_model *model, const struct calla_bench_test *t, uint64_t seed,
                    struct calla_bench_result *out, struct calla_err *err) {
    const struct calla_backend_options *o = &model->plan.backend;
    *out = (struct calla_bench_result){ 0 };
    if (t->n_rows < 1 || t->n_rows > model->plan.n_sequences || t->n_rows > o->max_rows || t->n_rows > o->max_logits)
        return calla_fail(err, CALLA_ERR_LIMIT, "%d sequences; the model is open for %d and steps of %d rows", t->n_rows, model->plan.n_sequences, o->max_rows);
    if (t->n_depth < 0 || t->n_prompt < 0 || t->n_gen < 0 || (int64_t)t->n_depth + t->n_prompt + t->n_gen > o->ctx_tokens)
        return calla_fail(err, CALLA_ERR_LIMIT, "%d + %d + %d tokens do not fit the context of %d (--ctx)", t->n_depth, t->n_prompt, t->n_gen, o->ctx_tokens);
    struct bench b = { .model = model, .seed = seed };
    int rc = 0;
    b.states = calloc((size_t)t->n_rows, sizeof *b.states);
    b.rows = malloc((size_t)o->max_rows * sizeof *b.rows);
    if (b.states == NULL || b.rows == NULL) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %d rows", o->max_rows);
    pthread_mutex_lock(&model->lock);
    for (int i = 0; rc == 0 && i < t->n_rows; i++) {
        rc = model->ops->state_new(&b.states[i], model->backend, err);
        if (rc == 0) b.n_states++;
    }
    if (rc == 0) rc = measure(&b, t, out, err);
    for (int i = 0; i < b.n_states; i++) model->ops->state_free(b.states[i]);
    pthread_mutex_unlock(&model->lock);
    free(b.states);
    free(b.rows);
    return rc;
}
