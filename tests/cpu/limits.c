/* limits.c - what a step refuses, and what it may not do while it runs. */
#include "rig.h"

#include <stdatomic.h>
#include <stdio.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void test_an_exhausted_pool_leaves_all_states_as_they_were(void **unused) {
    struct rig r;
    struct calla_err err = { 0 };
    struct calla_row rows[40];
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .kv_tokens = 3 * 64 });
    int32_t *ids = rig_ids(41, 200);
    struct calla_state *a = rig_state(&r), *b = rig_state(&r);
    float *want = rig_feed_all(&r, a, ids, 140);
    r.ops->state_reset(a);
    rig_skip(&r, a, ids, 120);
    rig_skip(&r, b, ids, 60);
    for (int i = 0; i < 40; i++) rows[i] = rig_row(i < 20 ? b : a, ids[i < 20 ? 60 + i : 100 + i]);
    assert_int_equal(rig_step(&r, rows, 40, &err), CALLA_ERR_MEMORY);      /* each would need a page, none is free */
    assert_non_null(strstr(err.message, "2 more pages"));
    assert_int_equal(r.ops->state_len(a), 120);
    assert_int_equal(r.ops->state_len(b), 60);
    r.ops->state_free(b);
    float *rest = rig_feed_all(&r, a, ids + 120, 20);
    rig_same(&r, rest, want + 120 * (size_t)r.n_vocab, 20, "after exhaustion");
    free(rest);
    free(want);
    free(ids);
    r.ops->state_free(a);
    rig_close(&r);
}

static void test_a_step_refuses_what_it_cannot_run(void **unused) {
    struct rig r;
    struct calla_err err = { 0 };
    struct calla_row rows[9];
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .max_rows = 8, .max_logits = 4, .n_states = 3, .ctx_tokens = 70 });
    struct calla_state *a = rig_state(&r), *b = rig_state(&r), *c = rig_state(&r), *d;
    assert_int_equal(r.ops->state_new(&d, r.b, &err), CALLA_ERR_MEMORY);
    for (int i = 0; i < 9; i++) {
        rows[i] = rig_row(a, 1);
        rows[i].wants_logits = false;
    }
    assert_int_equal(rig_step(&r, rows, 0, &err), CALLA_ERR_ARGUMENT);
    assert_int_equal(rig_step(&r, rows, 9, &err), CALLA_ERR_ARGUMENT);
    rows[1].state = b;
    assert_int_equal(rig_step(&r, rows, 3, &err), CALLA_ERR_ARGUMENT);     /* a, b, a */
    rows[1].state = NULL;
    assert_int_equal(rig_step(&r, rows, 3, &err), CALLA_ERR_ARGUMENT);
    rows[1].state = a;
    rows[1].token = -1;
    assert_int_equal(rig_step(&r, rows, 3, &err), CALLA_ERR_ARGUMENT);
    rows[1].token = r.n_vocab;
    assert_int_equal(rig_step(&r, rows, 3, &err), CALLA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "1088"));
    rows[1].token = 1;
    rows[1].token_row = 0;
    assert_int_equal(rig_step(&r, rows, 3, &err), CALLA_ERR_ARGUMENT);     /* nothing was sampled */
    rows[1].token_row = 1 << 30;
    assert_int_equal(rig_step(&r, rows, 3, &err), CALLA_ERR_ARGUMENT);
    rows[1].token_row = -1;
    for (int i = 0; i < 5; i++) rows[i].wants_logits = true;
    assert_int_equal(rig_step(&r, rows, 5, &err), CALLA_ERR_LIMIT);
    for (int i = 0; i < 5; i++) rows[i].wants_logits = false;
    assert_int_equal(r.ops->state_len(a), 0);
    for (int i = 0; i < 8; i++) assert_int_equal(rig_step(&r, rows, 8, &err), 0);
    assert_int_equal(rig_step(&r, rows, 7, &err), CALLA_ERR_LIMIT);        /* 71 of 70 */
    assert_int_equal(r.ops->state_len(a), 64);
    assert_int_equal(rig_step(&r, rows, 6, &err), 0);
    r.ops->state_free(a);
    r.ops->state_free(b);
    r.ops->state_free(c);
    rig_close(&r);
}

static void test_a_cancelled_step_says_so_and_its_states_start_anew(void **unused) {
    struct rig r;
    struct calla_err err = { 0 };
    atomic_bool cancel;
    unsigned char *bytes;
    size_t n;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ 0 });
    int32_t *ids = rig_ids(42, 30);
    struct calla_state *s = rig_state(&r), *other = rig_state(&r);
    float *want = rig_feed_all(&r, s, ids, 30);
    const struct calla_row row = rig_row(s, 5);
    const struct calla_batch batch = { .rows = &row, .n_rows = 1, .cancel = &cancel };
    atomic_init(&cancel, false);
    assert_int_equal(r.ops->step(r.b, &batch, &err), 0);
    atomic_store(&cancel, true);
    assert_int_equal(r.ops->step(r.b, &batch, &err), CALLA_ERR_CANCELLED);
    atomic_store(&cancel, false);
    assert_int_equal(r.ops->step(r.b, &batch, &err), CALLA_ERR_ARGUMENT);  /* half written */
    assert_int_equal(r.ops->state_save(s, &bytes, &n, &err), CALLA_ERR_ARGUMENT);
    assert_int_equal(r.ops->state_copy(other, s, &err), CALLA_ERR_ARGUMENT);
    r.ops->state_reset(s);
    float *got = rig_feed_all(&r, s, ids, 30);
    rig_same(&r, got, want, 30, "after a cancel");
    free(got);
    free(want);
    free(ids);
    r.ops->state_free(s);
    r.ops->state_free(other);
    rig_close(&r);
}

/* NaN in the recurrent state of one sequence reaches its logits; the error names its position. */
static void test_logits_that_are_not_finite_end_the_step(void **unused) {
    struct rig r;
    struct calla_err err = { 0 };
    struct calla_row rows[3];
    unsigned char *bytes;
    size_t n;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ 0 });
    int32_t *ids = rig_ids(43, 30);
    struct calla_state *good = rig_state(&r), *bad = rig_state(&r);
    rig_skip(&r, good, ids, 7);
    rig_skip(&r, bad, ids, 20);
    assert_int_equal(r.ops->state_save(bad, &bytes, &n, &err), 0);
    memset(bytes + 40, 0xff, 4 * 128 * 128 * 4);
    assert_int_equal(r.ops->state_load(bad, bytes, n, &err), 0);
    rows[0] = rig_row(good, 1);
    rows[1] = rig_row(bad, 1);
    rows[2] = rig_row(bad, 2);
    rows[1].wants_logits = false;
    assert_int_equal(rig_step(&r, rows, 3, &err), CALLA_ERR_NUMERIC);
    assert_non_null(strstr(err.message, "row 2, position 21"));
    r.ops->state_reset(bad);
    r.ops->state_reset(good);
    assert_int_equal(rig_step(&r, rows, 3, &err), 0);
    free(bytes);
    free(ids);
    r.ops->state_free(good);
    r.ops->state_free(bad);
    rig_close(&r);
}

/* ---- memory ---------------------------------------------------------------------- */

static atomic_int n_allocations;
static atomic_bool counting;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static void count_one(void) { if (atomic_load(&counting)) atomic_fetch_add(&n_allocations, 1); }
void *__wrap_malloc(size_t n) { count_one(); return __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { count_one(); return __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { count_one(); return __real_realloc(p, n); }

static void test_a_step_allocates_nothing(void **unused) {
    const struct calla_sampling sampling = { .temperature = 1, .top_k = 20, .top_p = 0.9f, .repetition_penalty = 1.1f, .seed = 3 };
    struct rig r;
    struct calla_err err = { 0 };
    struct calla_row rows[64];
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .n_threads = 3 });
    int32_t *ids = rig_ids(44, 200);
    const struct calla_sampler sampler = { .sampling = &sampling, .ids = ids, .n_ids = 100, .n_prompt = 60, .pos = 100 };
    struct calla_state *a = rig_state(&r), *b = rig_state(&r);
    for (int i = 0; i < 64; i++) {
        rows[i] = rig_row(i < 40 ? a : b, ids[i]);
        if (i % 3 == 0) rows[i].sampler = &sampler;
    }
    atomic_store(&counting, true);
    void *volatile one = malloc(1);                /* the count does count */
    const int before = atomic_load(&n_allocations);
    int rc = 0;
    for (int i = 0; i < 4; i++) rc |= rig_step(&r, rows, 64, &err);
    const int n = atomic_load(&n_allocations) - before;
    atomic_store(&counting, false);
    free(one);
    assert_int_equal(before, 1);
    assert_int_equal(rc, 0);
    assert_int_equal(n, 0);
    free(ids);
    r.ops->state_free(a);
    r.ops->state_free(b);
    rig_close(&r);
}

/* ---- each block once ----------------------------------------------------------------- */

struct seen { bool expert[8][16]; };

static void put(void *user, enum calla_tap tap, int layer, int row_idx, const float *v, int n) {
    struct seen *s = user;
    (void)row_idx;
    for (int e = 0; tap == CALLA_TAP_ROUTER_WEIGHTS && e < n; e++) s->expert[layer][e] |= v[e] != 0;
}

static uint64_t blocks(const struct calla_matrix *m) { return (uint64_t)((m->n_rows + 15) / 16) * (uint64_t)(m->n_cols / 64); }

/* What a step over all layers has to read, from the checkpoint's shapes and the choice of experts. */
static uint64_t blocks_needed(const struct calla_weights *w, const struct seen *seen, uint64_t *n_experts) {
    uint64_t n = blocks(&w->head);
    *n_experts = 0;
    for (int l = 0; l < w->n_layers; l++) {
        const struct calla_layer_weights *x = &w->layers[l];
        if (x->is_attention) n += blocks(&x->attn.q) + blocks(&x->attn.k) + blocks(&x->attn.v) + blocks(&x->attn.o);
        else n += blocks(&x->gdn.in_qkv) + blocks(&x->gdn.in_z) + blocks(&x->gdn.in_a) + blocks(&x->gdn.in_b) + blocks(&x->gdn.out);
        n += blocks(&x->moe.router) + blocks(&x->moe.shared_router);
        n += blocks(&x->moe.shared_gate) + blocks(&x->moe.shared_up) + blocks(&x->moe.shared_down);
        for (int e = 0; e < w->shape->n_experts; e++) {
            if (!seen->expert[l][e]) continue;
            ++*n_experts;
            n += blocks(&x->moe.gate[e]) + blocks(&x->moe.up[e]) + blocks(&x->moe.down[e]);
        }
    }
    return n;
}

static void check_blocks(struct rig *r, const struct calla_row *rows, int n_rows) {
    struct calla_backend_stats before, after;
    struct calla_err err = { 0 };
    struct seen seen = { 0 };
    const struct calla_taps taps = { put, &seen };
    const struct calla_batch batch = { .rows = rows, .n_rows = n_rows, .taps = &taps };
    uint64_t n_experts;
    r->ops->stats(r->b, &before);
    assert_int_equal(r->ops->step(r->b, &batch, &err), 0);
    r->ops->stats(r->b, &after);
    const uint64_t want = blocks_needed(r->w, &seen, &n_experts);
    assert_int_equal(after.n_blocks_unpacked - before.n_blocks_unpacked, want);
    assert_int_equal(after.n_blocks_needed - before.n_blocks_needed, want);
    assert_int_equal(after.n_expert_reads - before.n_expert_reads, n_experts);
    assert_int_equal(after.n_steps - before.n_steps, 1);
    assert_int_equal(after.n_rows - before.n_rows, n_rows);
}

static void test_each_needed_weight_block_is_unpacked_once_a_step(void **unused) {
    (void)unused;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct rig r;
        struct calla_state *s[9];
        struct calla_row rows[64];
        rig_open(&r, rig_tiny, (struct rig_options){ .n_threads = n_threads });
        int32_t *ids = rig_ids(45, 200);
        for (int i = 0; i < 9; i++) s[i] = rig_state(&r);
        for (int i = 0; i < 8; i++) {
            rig_skip(&r, s[i], ids + i, 3 + i);
            rows[i] = rig_row(s[i], ids[50 + i]);
        }
        check_blocks(&r, rows, 1);
        check_blocks(&r, rows, 8);                 /* eight sequences */
        for (int i = 0; i < 64; i++) rows[i] = rig_row(s[8], ids[i]);
        check_blocks(&r, rows, 64);                /* one prompt      */
        for (int i = 0; i < 9; i++) r.ops->state_free(s[i]);
        free(ids);
        rig_close(&r);
    }
}

const struct CMUnitTest limits_tests[] = {
    cmocka_unit_test(test_an_exhausted_pool_leaves_all_states_as_they_were),
    cmocka_unit_test(test_a_step_refuses_what_it_cannot_run),
    cmocka_unit_test(test_a_cancelled_step_says_so_and_its_states_start_anew),
    cmocka_unit_test(test_logits_that_are_not_finite_end_the_step),
    cmocka_unit_test(test_a_step_allocates_nothing),
    cmocka_unit_test(test_each_needed_weight_block_is_unpacked_once_a_step),
};
const int n_limits_tests = COUNT(limits_tests);
