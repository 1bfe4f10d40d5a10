/* against_reference.c - every inner value beside the reference's, and what rounding costs in the logits. */
#include "rig.h"

#include <math.h>

#include "model/reference.h"

enum { N_ROWS = 72, MAX_LAYERS = 8 };      /* past one page */

/* All taps of N_ROWS rows; rows of a step are moved to their place in the sequence. */
struct record { float *v[CALLA_N_TAPS][MAX_LAYERS + 2][N_ROWS]; int n[CALLA_N_TAPS], row0; };

static void put(void *user, enum calla_tap tap, int layer, int row_idx, const float *v, int n) {
    struct record *r = user;
    float **to = &r->v[tap][layer + 1][r->row0 + row_idx];
    if (*to != NULL) fail_msg("tap %s of layer %d came twice", calla_tap_names[tap], layer);
    r->n[tap] = n;
    *to = malloc((size_t)n * sizeof **to);
    memcpy(*to, v, (size_t)n * sizeof **to);
}

static void forget(struct record *r) {
    for (int t = 0; t < CALLA_N_TAPS; t++)
        for (int l = 0; l < MAX_LAYERS + 2; l++)
            for (int i = 0; i < N_ROWS; i++) free(r->v[t][l][i]);
    memset(r, 0, sizeof *r);
}

/* Root mean square of a tap's differences in a layer, as a share of that of its values. */
static double difference(const struct record *a, const struct record *b, int tap, int layer, int *n_seen) {
    double values = 0, differences = 0;
    *n_seen = 0;
    for (int i = 0; i < N_ROWS; i++) {
        const float *x = a->v[tap][layer + 1][i], *y = b->v[tap][layer + 1][i];
        if ((x == NULL) != (y == NULL)) fail_msg("tap %s of layer %d, row %d: only one side has it", calla_tap_names[tap], layer, i);
        if (x == NULL) continue;
        assert_int_equal(a->n[tap], b->n[tap]);
        ++*n_seen;
        for (int c = 0; c < a->n[tap]; c++) {
            const double d = (double)x[c] - (double)y[c];
            differences += d * d;
            values += (double)x[c] * (double)x[c];
        }
    }
    return values > 0 ? sqrt(differences / values) : sqrt(differences);
}

/* Activations of products are int16 with a scale per 64: an input is off by up to amax / 65,278, amax is about 3 rms, so
 * a product by 3 / 32,639 / sqrt(12) = 3e-5; three layers, and gated norms that magnify small rows, make that ten times
 * more.  Keys and values are bf16, 2^-9 off: scores up to 64 are then off by 0.01 and the read by as many percent, and
 * in a few rows an eighth expert trades places with the ninth.  One wrong row of the 72 would be 0.12. */
static double bound_of(int tap, int layer) {
    const bool before = layer < 3 || (layer == 3 && (tap <= CALLA_TAP_ATTN_V));
    return layer < 0 ? 0.0 : before ? 3e-4 : 3e-2;
}

static void compare(const struct record *want, const struct record *got, int n_layers) {
    int n_checked = 0;
    for (int l = -1; l <= n_layers; l++)
        for (int t = 0; t < CALLA_N_TAPS; t++) {
            int n_seen;
            const double d = difference(want, got, t, l, &n_seen);
            if (!(d <= bound_of(t, l))) fail_msg("layer %d, %s: off by %.3g of its size, at most %.3g", l, calla_tap_names[t], d, bound_of(t, l));
            n_checked += n_seen;
        }
    /* 6 GDN layers of 16 taps, 2 attention layers of 12, embedding, final norm, logits */
    assert_int_equal(n_checked, N_ROWS * (6 * 16 + 2 * 12 + 3));
}

static void test_every_tap_agrees_with_the_reference_for_any_split(void **unused) {
    static const int splits[][3] = { { N_ROWS, 1, 1 }, { 5, 40, 1 }, { 1, 1, 1 } };
    static struct record want, got;
    struct calla_reference_state ref;
    struct calla_err err = { 0 };
    struct rig r;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .max_rows = N_ROWS });
    int32_t *ids = rig_ids(51, N_ROWS);
    struct calla_state *s = rig_state(&r);
    float *logits = malloc((size_t)N_ROWS * (size_t)r.n_vocab * sizeof *logits);
    const struct calla_taps ref_taps = { put, &want };
    assert_int_equal(calla_reference_state_init(&ref, r.w, N_ROWS, &err), 0);
    assert_int_equal(calla_reference_forward(r.w, &ref, ids, N_ROWS, logits, NULL, &ref_taps, &err), 0);
    for (int k = 0; k < 3; k++) {
        struct calla_row rows[N_ROWS];
        const struct calla_taps taps = { put, &got };
        r.ops->state_reset(s);
        for (int done = 0, j = 0; done < N_ROWS; j += j < 2) {
            const int n = splits[k][j] < N_ROWS - done ? splits[k][j] : N_ROWS - done;
            const struct calla_batch batch = { .rows = rows, .n_rows = n, .taps = &taps };
            for (int i = 0; i < n; i++) rows[i] = rig_row(s, ids[done + i]);
            got.row0 = done;
            if (r.ops->step(r.b, &batch, &err) != 0) fail_msg("%s", err.message);
            done += n;
        }
        compare(&want, &got, r.w->n_layers);
        forget(&got);
    }
    forget(&want);
    calla_reference_state_free(&ref);
    free(logits);
    free(ids);
    r.ops->state_free(s);
    rig_close(&r);
}

struct score { double kl, last; int n, n_best; };

static void add_row(struct score *s, const float *want, const float *got, int n, bool last) {
    const double za = calla_logsumexp(want, n), zb = calla_logsumexp(got, n);
    int32_t a, b;
    double kl = 0;
    calla_top_ids(want, n, 1, &a);
    calla_top_ids(got, n, 1, &b);
    for (int c = 0; c < n; c++) {
        const double p = (double)want[c] - za, q = (double)got[c] - zb;
        kl += exp(p) * (p - q);
        if (last && fabs((double)want[c] - (double)got[c]) > s->last) s->last = fabs((double)want[c] - (double)got[c]);
    }
    s->kl += kl;
    s->n_best += a == b;
    s->n++;
}

/* Prompts of many lengths, read at once and token by token; the bounds are the project's own (docs/testing.md). */
static void test_logits_cost_what_int16_activations_may_cost(void **unused) {
    static const int lengths[] = { 1, 2, 17, 65, 130, 150 }, one = 1;
    struct score scores[2] = { { .n = 0 }, { .n = 0 } };
    struct rig r;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .max_rows = 128 });
    struct calla_state *s = rig_state(&r);
    for (int k = 0; k < 6; k++) {
        const int n = lengths[k];
        struct calla_reference_state ref;
        struct calla_err err = { 0 };
        int32_t *ids = rig_ids(60 + (uint64_t)k, n);
        float *want = malloc((size_t)n * (size_t)r.n_vocab * sizeof *want);
        assert_int_equal(calla_reference_state_init(&ref, r.w, n, &err), 0);
        assert_int_equal(calla_reference_forward(r.w, &ref, ids, n, want, NULL, NULL, &err), 0);
        for (int mode = 0; mode < 2; mode++) {
            r.ops->state_reset(s);
            float *got = rig_feed(&r, s, ids, n, mode == 0 ? &r.max_rows : &one, 1);
            for (int i = 0; i < n; i++)
                add_row(&scores[mode], want + (size_t)i * (size_t)r.n_vocab, got + (size_t)i * (size_t)r.n_vocab, 1024, i == n - 1);
            free(got);
        }
        free(want);
        free(ids);
        calla_reference_state_free(&ref);
    }
    for (int mode = 0; mode < 2; mode++) {
        const struct score *x = &scores[mode];
        print_message("%s: best id equal in %d of %d, mean KL %.2g, last rows within %.2g\n", mode ? "decode" : "prefill",
                      x->n_best, x->n, x->kl / x->n, x->last);
        assert_true(x->n_best >= 0.998 * x->n);
        assert_true(x->kl / x->n <= 1e-5);
        assert_true(x->last <= 5e-3);
    }
    r.ops->state_free(s);
    rig_close(&r);
}

const struct CMUnitTest against_reference_tests[] = {
    cmocka_unit_test(test_every_tap_agrees_with_the_reference_for_any_split),
    cmocka_unit_test(test_logits_cost_what_int16_activations_may_cost),
};
const int n_against_reference_tests = sizeof against_reference_tests / sizeof *against_reference_tests;
