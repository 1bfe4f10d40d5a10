/* test_plan.c - what fits is used, what does not is refused with numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/plan.h"

/* The full shape's sizes: 19.6 GB of weights, 65 MB a state, 20 KB a token. */
static const uint64_t weights_bytes = 19600000000, scratch_bytes = 300000000, state_bytes = 65000000, page_bytes = 64 * 20480;

static void plan_full(struct calla_backend_plan *out, const struct calla_weights *w, const struct calla_backend_options *opt) {
    (void)w;
    *out = (struct calla_backend_plan){ .weights_bytes = weights_bytes, .scratch_bytes = scratch_bytes + 64ull * (uint64_t)opt->ctx_tokens,
                                        .state_bytes = state_bytes, .kv_page_bytes = page_bytes, .kv_page_tokens = 64 };
}
static const struct calla_backend_ops ops = { .name = "planned", .plan = plan_full };
static const struct calla_weights weights = { .shape = &calla_shape_full, .n_layers = 40, .n_bytes = 19500000000, .layout = "mlx" };

static void within(const struct calla_plan *p) {
    const struct calla_backend_options *o = &p->backend;
    struct calla_backend_plan b;
    plan_full(&b, NULL, o);
    const uint64_t all = b.weights_bytes + b.scratch_bytes + (uint64_t)o->n_states * b.state_bytes + (o->kv_tokens + 63) / 64 * page_bytes;
    assert_true(all == p->total_bytes && all <= p->limit_bytes);
    assert_true(o->kv_tokens >= (size_t)o->ctx_tokens);
    assert_int_equal(o->n_states, p->n_sequences + p->n_kept + 1);
    assert_true(o->max_logits >= p->n_sequences && o->max_logits <= o->max_rows);
}

static int plan(struct calla_plan *p, uint64_t limit_bytes, int ctx, int n_sequences, size_t cache_bytes, struct calla_err *err) {
    const struct calla_options o = { .memory_limit_bytes = limit_bytes, .ctx_tokens = ctx, .n_sequences = n_sequences, .cache_bytes = cache_bytes };
    return calla_plan_make(p, &ops, &weights, &o, err);
}

static void test_the_default_is_what_fits(void **unused) {
    (void)unused;
    struct calla_plan p;
    assert_int_equal(plan(&p, 24000000000, 0, 0, 0, NULL), 0);        /* a 24 GB machine       */
    within(&p);
    assert_int_equal(p.n_sequences, 8);
    assert_true(p.backend.ctx_tokens >= 100000 && p.backend.ctx_tokens % 64 == 0);
    assert_true(p.n_kept >= 8);
    assert_int_equal(plan(&p, 500000000000, 0, 0, 0, NULL), 0);       /* a large one           */
    within(&p);
    assert_int_equal(p.backend.ctx_tokens, CALLA_MAX_CTX);
    assert_true(p.total_bytes < 60000000000);                         /* not all of it         */
    assert_int_equal(plan(&p, 20300000000, 0, 0, 0, NULL), 0);        /* a tight one: fewer sequences, not none */
    within(&p);
    assert_true(p.n_sequences < 8 && p.n_sequences >= 1);
}

static void test_every_limit_is_kept(void **unused) {
    (void)unused;
    int n_fit = 0;
    for (uint64_t limit = 19000000000; limit < 26000000000; limit += 37000000)
        for (int ctx = 0; ctx <= 131072; ctx += 32768)
            for (int n = 0; n <= 16; n += 8) {
                struct calla_plan p;
                struct calla_err err = { 0 };
                const int rc = plan(&p, limit, ctx, n, n == 8 ? 500000000 : 0, &err);
                if (rc == 0) {
                    within(&p);
                    n_fit++;
                    if (n > 0) assert_int_equal(p.n_sequences, n);
                    if (ctx > 0) assert_int_equal(p.backend.ctx_tokens, ctx);
                    if (n == 8) assert_true((uint64_t)p.n_kept * state_bytes <= 500000000);
                } else {
                    assert_int_equal(rc, CALLA_ERR_MEMORY);
                    assert_non_null(strstr(err.message, "are free"));
                }
            }
    assert_true(n_fit > 500);
}

static void test_the_impossible_is_refused_with_both_numbers_and_a_way_out(void **unused) {
    (void)unused;
    struct calla_plan p;
    struct calla_err err;
    int most;
    assert_int_equal(plan(&p, 24000000000, 262144, 1, 0, &err), CALLA_ERR_MEMORY);
    assert_non_null(strstr(err.message, "needs 25."));
    assert_non_null(strstr(err.message, "24.00 GB are free"));
    const char *way = strstr(err.message, "a context of ");
    assert_non_null(way);
    assert_int_equal(sscanf(way, "a context of %d", &most), 1);
    assert_int_equal(plan(&p, 24000000000, most, 1, 0, &err), 0);     /* what it advises fits */
    assert_int_equal(plan(&p, 8000000000, 0, 0, 0, &err), CALLA_ERR_MEMORY);
    assert_non_null(strstr(err.message, "8.00 GB are free"));
    assert_int_equal(plan(&p, 24000000000, -1, 0, 0, &err), CALLA_ERR_ARGUMENT);
    assert_int_equal(plan(&p, 24000000000, CALLA_MAX_CTX + 1, 0, 0, &err), CALLA_ERR_ARGUMENT);
    assert_int_equal(plan(&p, 24000000000, 0, -1, 0, &err), CALLA_ERR_ARGUMENT);
}

static int n_lines;
static void count_line(void *user, const char *line) {
    n_lines++;
    assert_true(strlen(line) > 10 && strchr(line, '\n') == NULL && user == &n_lines);
}

static void test_the_plan_is_printed_line_by_line(void **unused) {
    (void)unused;
    struct calla_plan p;
    assert_int_equal(plan(&p, 24000000000, 0, 0, 0, NULL), 0);
    calla_plan_print(&p, &weights, "planned", count_line, &n_lines);
    assert_true(n_lines >= 5);
    calla_plan_print(&p, &weights, "planned", NULL, NULL);
    assert_true(calla_memory_free() > 1000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_default_is_what_fits),
        cmocka_unit_test(test_every_limit_is_kept),
        cmocka_unit_test(test_the_impossible_is_refused_with_both_numbers_and_a_way_out),
        cmocka_unit_test(test_the_plan_is_printed_line_by_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
