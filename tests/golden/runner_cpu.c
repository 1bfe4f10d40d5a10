#include "fixture.h"
#include "runner.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"

enum { STEP_ROWS = 512 };

struct run {
    struct calla_backend *b;
    struct calla_state *s;
    size_t n_vocab;
    int n_threads, row0;                   /* row0: of the present step in the feed */
    const struct calla_taps *taps;
    struct calla_row rows[STEP_ROWS];
};

static void on_tap(void *user, enum calla_tap tap, int layer, int row_idx, const float *v, int n) {
    struct run *r = user;
    r->taps->put(r->taps->user, tap, layer, r->row0 + row_idx, v, n);
}

static void restart(void *user) {
    struct run *r = user;
    calla_cpu_backend.state_reset(r->s);
}

static void *open_run(const struct calla_weights *w, int cap_tokens) {
    const struct calla_backend_options opt = { .n_threads = 2, .max_rows = STEP_ROWS, .max_logits = STEP_ROWS, .n_states = 1,
                                               .ctx_tokens = cap_tokens, .kv_tokens = (size_t)cap_tokens, .n_usable_ids = w->shape->n_vocab };
    struct run *r = fixture_alloc(1, sizeof *r);
    struct calla_err err = { 0 };
    r->n_vocab = (size_t)w->shape->n_vocab;
    if (calla_cpu_backend.open(&r->b, w, &opt, &err) != 0 || calla_cpu_backend.state_new(&r->s, r->b, &err) != 0)
        fixture_die("%s", err.message);
    return r;
}

static void close_run(void *user) {
    struct run *r = user;
    calla_cpu_backend.state_free(r->s);
    calla_cpu_backend.close(r->b);
    free(r);
}

static void feed(void *user, const int32_t *ids, int n, float *logits, const struct calla_taps *taps) {
    struct run *r = user;
    const struct calla_taps moved = { on_tap, r };
    struct calla_err err = { 0 };
    r->taps = taps;
    for (int m; n > 0; n -= m, ids += m, logits += (size_t)m * r->n_vocab, r->row0 += m) {
        const struct calla_batch batch = { .rows = r->rows, .n_rows = m = n < STEP_ROWS ? n : STEP_ROWS, .taps = taps ? &moved : NULL };
        for (int i = 0; i < m; i++)
            r->rows[i] = (struct calla_row){ .state = r->s, .token = ids[i], .token_row = -1, .wants_logits = true };
        if (calla_cpu_backend.step(r->b, &batch, &err) != 0) fixture_die("%s", err.message);
        for (int i = 0; i < m; i++) memcpy(logits + (size_t)i * r->n_vocab, calla_cpu_backend.logits(r->b, i), r->n_vocab * sizeof *logits);
    }
    r->row0 = 0;
}

/* Activations are int16 and keys and values bf16 (docs/architecture.md).  Seen: 1.5e-3 in a last row of the tiny model,
 * 1.1e-2 of the demo's, 4e-3 of a tap. */
const struct runner runner_cpu = {
    .name = "cpu", .open = open_run, .close = close_run, .restart = restart, .feed = feed,
    .last_row = 5e-3, .last_row_demo = 2e-2, .best_share = 0.998, .tap = 1e-2 };
