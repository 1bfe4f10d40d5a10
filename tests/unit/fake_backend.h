/* fake_backend.h - a backend whose logits are a hash of the prefix, so that the
 * engine's own promises can be tested in milliseconds.
 *
 * A state is a running hash; any row that lands in the wrong state, twice or not
 * at all gives other ids.  Pages are counted as on a device. */
#ifndef CALLA_TESTS_FAKE_BACKEND_H
#define CALLA_TESTS_FAKE_BACKEND_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "engine/model.h"

enum { FAKE_V = 64, FAKE_USABLE = 60, FAKE_NAN_ID = 63, FAKE_STEPS = 100000 };
#define FAKE_START 0x243f6a8885a308d3ull

struct calla_backend {
    struct calla_backend_options opt;
    size_t n_pages, n_pages_used;
    int    n_states, n_states_most;
    float  *logits;                   /* [max_rows, V]                                */
    int32_t *sampled;                 /* [max_rows]                                   */
    struct calla_sampler_scratch *sampler;
    int    fail_at_step, step_us;     /* 0: never, none                               */
    bool   nan_fails_step;            /* as the CPU backend: all states of the step are void */
    _Atomic int n_steps;
    int    n_rows_run;
    struct { int n_rows, n_single, n_off_grid, n_states; } log[FAKE_STEPS]; /* of each step: rows, states with one row, pieces that end off the grid, states */
};
struct calla_state { struct calla_backend *b; uint64_t hash; int len; size_t n_pages; };

static uint64_t fake_mix(uint64_t h, uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull;
    return h ^ h >> 33;
}
static void fake_logits(uint64_t hash, float *out) {
    for (int i = 0; i < FAKE_V; i++) out[i] = (float)(fake_mix(hash, (uint64_t)i) % 4096) / 512.0f;
    for (int i = FAKE_USABLE; i < FAKE_V; i++) out[i] += 100;   /* never to be sampled */
}
static size_t fake_pages(int n) { return ((size_t)n + 63) / 64; }

static bool fake_probe(char *what, size_t cap) { snprintf(what, cap, "fake"); return true; }
static void fake_plan(struct calla_backend_plan *out, const struct calla_weights *w, const struct calla_backend_options *opt) {
    (void)w; (void)opt;
    *out = (struct calla_backend_plan){ .state_bytes = 1000, .kv_page_bytes = 640, .kv_page_tokens = 64 };
}
static int fake_open(struct calla_backend **out, const struct calla_weights *w, const struct calla_backend_options *opt, struct calla_err *err) {
    (void)w; (void)err;
    struct calla_backend *b = calloc(1, sizeof *b);
    b->opt = *opt;
    b->n_pages = fake_pages((int)opt->kv_tokens);
    b->logits = calloc((size_t)opt->max_rows * FAKE_V, sizeof *b->logits);
    b->sampled = calloc((size_t)opt->max_rows, sizeof *b->sampled);
    calla_sampler_scratch_new(&b->sampler, FAKE_V, NULL);
    *out = b;
    return 0;
}
static void fake_close(struct calla_backend *b) {
    free(b->logits);
    free(b->sampled);
    calla_sampler_scratch_free(&b->sampler);
    free(b);
}
static int fake_state_new(struct calla_state **out, struct calla_backend *b, struct calla_err *err) {
    *out = NULL;
    if (b->n_states == b->opt.n_states) return calla_fail(err, CALLA_ERR_MEMORY, "all %d states are alive", b->n_states);
    *out = calloc(1, sizeof **out);
    **out = (struct calla_state){ .b = b, .hash = FAKE_START };
    if (++b->n_states > b->n_states_most) b->n_states_most = b->n_states;
    return 0;
}
static void fake_state_reset(struct calla_state *s) {
    s->b->n_pages_used -= s->n_pages;
    *s = (struct calla_state){ .b = s->b, .hash = FAKE_START };
}
static void fake_state_free(struct calla_state *s) {
    s->b->n_pages_used -= s->n_pages;
    s->b->n_states--;
    free(s);
}
static int fake_state_len(const struct calla_state *s) { return s->len; }
static int fake_take(struct calla_state *s, int len, struct calla_err *err) {
    const size_t want = fake_pages(len);
    if (want > s->n_pages && want - s->n_pages > s->b->n_pages - s->b->n_pages_used)
        return calla_fail(err, CALLA_ERR_MEMORY, "%zu pages more, %zu of %zu are used", want - s->n_pages, s->b->n_pages_used, s->b->n_pages);
    s->b->n_pages_used += want;
    s->b->n_pages_used -= s->n_pages;
    s->n_pages = want;
    return 0;
}
static int fake_state_copy(struct calla_state *dst, const struct calla_state *src, struct calla_err *err) {
    const int rc = fake_take(dst, src->len, err);
    if (rc != 0) return rc;
    dst->hash = src->hash;
    dst->len = src->len;
    return 0;
}
static int fake_state_save(const struct calla_state *s, unsigned char **bytes, size_t *n, struct calla_err *err) {
    (void)err;
    *n = sizeof s->hash + sizeof s->len;
    *bytes = malloc(*n);
    memcpy(*bytes, &s->hash, sizeof s->hash);
    memcpy(*bytes + sizeof s->hash, &s->len, sizeof s->len);
    return 0;
}
static int fake_state_load(struct calla_state *s, const unsigned char *bytes, size_t n, struct calla_err *err) {
    int len;
    if (n != sizeof s->hash + sizeof s->len) return calla_fail(err, CALLA_ERR_FORMAT, "a state of %zu bytes", n);
    memcpy(&len, bytes + sizeof s->hash, sizeof len);
    const int rc = fake_take(s, len, err);
    if (rc != 0) return rc;
    memcpy(&s->hash, bytes, sizeof s->hash);
    s->len = len;
    return 0;
}

static int fake_check(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err) {
    int n_logits = 0;
    size_t want = 0;
    if (batch->n_rows < 1 || batch->n_rows > b->opt.max_rows) abort();
    for (int i = 0, end; i < batch->n_rows; i = end) {
        struct calla_state *s = batch->rows[i].state;
        for (end = i; end < batch->n_rows && batch->rows[end].state == s; end++) n_logits += batch->rows[end].wants_logits || batch->rows[end].sampler;
        for (int j = end; j < batch->n_rows; j++)
            if (batch->rows[j].state == s) abort();            /* rows of a state stand together */
        if (s->len + end - i > b->opt.ctx_tokens) abort();
        if (s->len == 0 && s->hash != FAKE_START) abort();     /* not reset */
        if (fake_pages(s->len + end - i) > s->n_pages) want += fake_pages(s->len + end - i) - s->n_pages;
    }
    if (n_logits > b->opt.max_logits) abort();
    if (want > b->n_pages - b->n_pages_used)
        return calla_fail(err, CALLA_ERR_MEMORY, "the step needs %zu pages, %zu of %zu are used", want, b->n_pages_used, b->n_pages);
    return 0;
}

static int fake_step(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err) {
    const int rc = fake_check(b, batch, err), step = b->n_steps;
    if (rc != 0) return rc;
    if (b->step_us > 0) nanosleep(&(struct timespec){ 0, b->step_us * 1000L }, NULL);
    if (batch->cancel != NULL && atomic_load(batch->cancel)) return calla_fail(err, CALLA_ERR_CANCELLED, "cancelled");
    if (b->fail_at_step > 0 && step + 1 >= b->fail_at_step) return calla_fail(err, CALLA_ERR_DEVICE, "the device fell off the bus");
    for (int i = 0; i < batch->n_rows; i++) {
        const struct calla_row *row = &batch->rows[i];
        struct calla_state *s = row->state;
        fake_take(s, s->len + 1, NULL);
        s->hash = fake_mix(s->hash, (uint64_t)row->token);
        s->len++;
        b->sampled[i] = -1;
        float *logits = b->logits + (size_t)i * FAKE_V;
        fake_logits(s->hash, logits);
        if (row->token == FAKE_NAN_ID) logits[3] = NAN;
        if (row->sampler != NULL && calla_sample(b->sampler, row->sampler, logits, b->opt.n_usable_ids, &b->sampled[i], NULL) != 0) b->sampled[i] = -1;
        if (step < FAKE_STEPS) {
            const bool first = i == 0 || batch->rows[i - 1].state != s, last = i == batch->n_rows - 1 || batch->rows[i + 1].state != s;
            b->log[step].n_rows++;
            b->log[step].n_states += first;
            b->log[step].n_single += first && last;
            b->log[step].n_off_grid += last && !first && s->len % 64 != 0;
        }
    }
    b->n_rows_run += batch->n_rows;
    b->n_steps++;
    for (int i = 0; b->nan_fails_step && i < batch->n_rows; i++)
        if (batch->rows[i].sampler != NULL && batch->rows[i].token == FAKE_NAN_ID) {
            for (int j = 0; j < batch->n_rows; j++) batch->rows[j].state->hash ^= 1;
            return calla_fail(err, CALLA_ERR_NUMERIC, "row %d is not finite", i);
        }
    return 0;
}
static const float *fake_row_logits(struct calla_backend *b, int i) { return b->logits + (size_t)i * FAKE_V; }
static int32_t fake_sampled(struct calla_backend *b, int i) { return b->sampled[i]; }
static void fake_stats(const struct calla_backend *b, struct calla_backend_stats *out) {
    *out = (struct calla_backend_stats){ .n_steps = (uint64_t)b->n_steps, .n_rows = (uint64_t)b->n_rows_run };
}

static const struct calla_backend_ops fake_backend = {
    .name = "fake", .probe = fake_probe, .plan = fake_plan, .open = fake_open, .close = fake_close,
    .state_new = fake_state_new, .state_free = fake_state_free, .state_reset = fake_state_reset, .state_len = fake_state_len,
    .state_copy = fake_state_copy, .state_save = fake_state_save, .state_load = fake_state_load,
    .step = fake_step, .logits = fake_row_logits, .sampled = fake_sampled, .stats = fake_stats };

struct fake_options { int ctx, rows, sequences, kept; size_t kv_tokens; };

static struct calla_model *fake_model(struct fake_options o) {
    struct calla_model *m = calloc(1, sizeof *m);
    if (o.ctx == 0) o.ctx = 32768;
    if (o.rows == 0) o.rows = 512;
    if (o.sequences == 0) o.sequences = 8;
    m->ops = &fake_backend;
    m->plan.n_sequences = o.sequences;
    m->plan.n_kept = o.kept;
    m->plan.backend = (struct calla_backend_options){
        .max_rows = o.rows, .max_logits = o.rows < o.sequences + 64 ? o.rows : o.sequences + 64, .n_states = o.sequences + o.kept + 1,
        .ctx_tokens = o.ctx, .kv_tokens = o.kv_tokens ? o.kv_tokens : (size_t)1 << 22, .n_usable_ids = FAKE_USABLE };
    fake_plan(&m->plan.bytes, NULL, &m->plan.backend);
    m->n_vocab = FAKE_V;
    m->n_usable = FAKE_USABLE;
    pthread_mutex_init(&m->lock, NULL);
    fake_open(&m->backend, NULL, &m->plan.backend, NULL);
    return m;
}

/* The ids that a request must give, from the definition alone. */
static int fake_answer(const int32_t *prompt, int n_prompt, int n, const struct calla_sampling *sampling, int32_t *out) {
    struct calla_sampler_scratch *scratch;
    int32_t *ids = malloc((size_t)(n_prompt + n) * sizeof *ids);
    uint64_t hash = FAKE_START;
    float logits[FAKE_V];
    calla_sampler_scratch_new(&scratch, FAKE_V, NULL);
    memcpy(ids, prompt, (size_t)n_prompt * sizeof *ids);
    for (int i = 0; i < n_prompt + n - 1; i++) {
        hash = fake_mix(hash, (uint64_t)ids[i]);
        if (i + 1 < n_prompt) continue;
        const struct calla_sampler s = { .sampling = sampling, .ids = ids, .n_ids = i + 1, .n_prompt = n_prompt, .pos = i + 1 };
        fake_logits(hash, logits);
        calla_sample(scratch, &s, logits, FAKE_USABLE, &ids[i + 1], NULL);
    }
    memcpy(out, ids + n_prompt, (size_t)n * sizeof *out);
    calla_sampler_scratch_free(&scratch);
    free(ids);
    return n;
}

#endif
