#include "fixture.h"
#include "runner.h"

#include <stdlib.h>

struct run { const struct calla_weights *w; int cap_tokens; struct calla_reference_state state; };

static void restart(void *user) {
    struct run *r = user;
    struct calla_err err = { 0 };
    calla_reference_state_free(&r->state);
    if (calla_reference_state_init(&r->state, r->w, r->cap_tokens, &err) != 0) fixture_die("%s", err.message);
}

static void *open_run(const struct calla_weights *w, int cap_tokens) {
    struct run *r = fixture_alloc(1, sizeof *r);
    r->w = w;
    r->cap_tokens = cap_tokens;
    restart(r);
    return r;
}

static void close_run(void *user) {
    struct run *r = user;
    calla_reference_state_free(&r->state);
    free(r);
}

static void feed(void *user, const int32_t *ids, int n, float *logits, const struct calla_taps *taps) {
    struct run *r = user;
    struct calla_err err = { 0 };
    if (calla_reference_forward(r->w, &r->state, ids, n, logits, NULL, taps, &err) != 0) fixture_die("%s", err.message);
}

/* Both sides are fp32: Hugging Face's sums are f32 in blocks, ours f64.  Three
 * independent fp32 and fp64 implementations differ by 8e-6 in a last row.
 * Its rotation angles are f32, ours f64: 9e-5 after 8,192 ids. */
const struct runner runner_reference = {
    .name = "reference", .open = open_run, .close = close_run, .restart = restart, .feed = feed,
    .last_row = 1e-4, .last_row_demo = 1e-4, .last_row_long = 2e-4, .best_share = 1.0, .tap = 1e-5 };
