/* states.c - copies, saved states, shared and recycled pages. */
#include "rig.h"

#include <math.h>
#include <stdio.h>

#include "base/rng.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { N_IDS = 150, CUT = 100 };   /* 100: a full page and part of another */

static void test_a_saved_and_restored_state_goes_on_as_if_never_stopped(void **unused) {
    static const int cuts[] = { 0, 1, 2, 63, 64, 65, CUT, 128 };
    struct rig r, other;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ 0 });
    rig_open(&other, rig_tiny, (struct rig_options){ .n_threads = 3 });
    int32_t *ids = rig_ids(31, N_IDS);
    struct calla_state *s = rig_state(&r), *to = rig_state(&other);
    float *whole = rig_feed_all(&r, s, ids, N_IDS);
    for (int k = 0; k < COUNT(cuts); k++) {
        struct calla_err err = { 0 };
        unsigned char *bytes, *again;
        size_t n, n_again;
        r.ops->state_reset(s);
        rig_skip(&r, s, ids, cuts[k]);
        assert_int_equal(r.ops->state_save(s, &bytes, &n, &err), 0);
        assert_int_equal(other.ops->state_load(to, bytes, n, &err), 0);
        assert_int_equal(other.ops->state_len(to), cuts[k]);
        assert_int_equal(other.ops->state_save(to, &again, &n_again, &err), 0);
        assert_int_equal(n_again, n);
        assert_memory_equal(bytes, again, n);
        float *rest = rig_feed_all(&other, to, ids + cuts[k], N_IDS - cuts[k]);
        rig_same(&r, rest, whole + (size_t)cuts[k] * (size_t)r.n_vocab, N_IDS - cuts[k], "restored");
        free(rest);
        free(bytes);
        free(again);
    }
    free(whole);
    free(ids);
    r.ops->state_free(s);
    other.ops->state_free(to);
    rig_close(&r);
    rig_close(&other);
}

static void test_a_fork_equals_its_original_and_both_go_their_own_way(void **unused) {
    static const int cuts[] = { 0, 1, 64, CUT, 128 };
    struct rig r;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ 0 });
    int32_t *ids = rig_ids(32, N_IDS), *mine = rig_ids(33, 40), *yours = rig_ids(34, 40);
    struct calla_state *s = rig_state(&r), *fork = rig_state(&r), *fresh = rig_state(&r);
    for (int k = 0; k < COUNT(cuts); k++) {
        struct calla_err err = { 0 };
        rig_skip(&r, fork, yours, 9);              /* the copy replaces what was there */
        r.ops->state_reset(s);
        rig_skip(&r, s, ids, cuts[k]);
        assert_int_equal(r.ops->state_copy(fork, s, &err), 0);
        assert_int_equal(r.ops->state_len(fork), cuts[k]);
        float *a = rig_feed_all(&r, s, mine, 40), *b = rig_feed_all(&r, fork, yours, 40);
        r.ops->state_reset(fresh);
        rig_skip(&r, fresh, ids, cuts[k]);
        float *want = rig_feed_all(&r, fresh, mine, 40);
        rig_same(&r, a, want, 40, "original");
        free(want);
        r.ops->state_reset(fresh);
        rig_skip(&r, fresh, ids, cuts[k]);
        want = rig_feed_all(&r, fresh, yours, 40);
        rig_same(&r, b, want, 40, "fork");
        free(want);
        free(a);
        free(b);
    }
    free(ids);
    free(mine);
    free(yours);
    r.ops->state_free(s);
    r.ops->state_free(fork);
    r.ops->state_free(fresh);
    rig_close(&r);
}

/* 300 tokens are five pages; seven forks of them need one page more each, not five. */
static void test_forks_share_full_pages(void **unused) {
    struct rig r;
    struct calla_state *s[8];
    struct calla_err err = { 0 };
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .kv_tokens = 12 * 64 });
    int32_t *ids = rig_ids(35, 300);
    for (int i = 0; i < 8; i++) s[i] = rig_state(&r);
    rig_skip(&r, s[0], ids, 300);
    assert_int_equal(r.b->pages.n_free, 7);
    for (int i = 1; i < 8; i++) assert_int_equal(r.ops->state_copy(s[i], s[0], &err), 0);
    assert_int_equal(r.b->pages.n_free, 0);
    struct calla_state *more = rig_state(&r);
    assert_int_equal(r.ops->state_copy(more, s[0], &err), CALLA_ERR_MEMORY);
    assert_int_equal(r.ops->state_len(more), 0);
    assert_non_null(strstr(err.message, "pages"));
    r.ops->state_free(s[0]);                       /* its full pages stay: others hold them */
    assert_int_equal(r.b->pages.n_free, 1);
    for (int i = 1; i < 8; i++) r.ops->state_free(s[i]);
    r.ops->state_free(more);
    assert_int_equal(r.b->pages.n_free, 12);
    free(ids);
    rig_close(&r);
}

/* A sequence full of NaN is loaded and freed; the next one gets its pages and must not see it. */
static void test_recycled_pages_and_states_carry_nothing_over(void **unused) {
    struct rig r;
    struct calla_err err = { 0 };
    unsigned char *bytes;
    size_t n;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .kv_tokens = 192 });
    int32_t *ids = rig_ids(36, N_IDS);
    struct calla_state *s = rig_state(&r);
    float *want = rig_feed_all(&r, s, ids, N_IDS);
    assert_int_equal(r.ops->state_save(s, &bytes, &n, &err), 0);
    memset(bytes + 40, 0xff, n - 40);              /* all values behind the head: NaN */
    assert_int_equal(r.ops->state_load(s, bytes, n, &err), 0);
    r.ops->state_reset(s);
    float *got = rig_feed_all(&r, s, ids, N_IDS);
    rig_same(&r, got, want, N_IDS, "recycled");
    free(want);
    free(got);
    free(bytes);
    free(ids);
    r.ops->state_free(s);
    rig_close(&r);
}

static void test_foreign_and_damaged_states_are_refused(void **unused) {
    struct rig r;
    struct calla_err err = { 0 };
    unsigned char *bytes;
    size_t n;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .kv_tokens = 192 });
    int32_t *ids = rig_ids(37, N_IDS);
    struct calla_state *s = rig_state(&r), *keep = rig_state(&r);
    rig_skip(&r, s, ids, 70);
    assert_int_equal(r.ops->state_save(s, &bytes, &n, &err), 0);
    for (size_t cut = 0; cut < n; cut += cut < 64 ? 1 : 40009) assert_int_equal(r.ops->state_load(s, bytes, cut, &err), CALLA_ERR_FORMAT);
    assert_int_equal(r.ops->state_len(s), 70);
    for (size_t at = 0; at < 40; at++)             /* each byte of the head matters */
        for (int bit = 0; bit < 8; bit++) {
            bytes[at] ^= (unsigned char)(1 << bit);
            err = (struct calla_err){ 0 };
            const int rc = r.ops->state_load(keep, bytes, n, &err);
            if (rc != CALLA_ERR_FORMAT && rc != CALLA_ERR_LIMIT) fail_msg("byte %zu, bit %d: %d", at, bit, rc);
            assert_true(err.message[0] != 0);
            bytes[at] ^= (unsigned char)(1 << bit);
        }
    assert_int_equal(r.ops->state_len(keep), 0);
    /* s holds 2 of 3 pages; a second copy of them does not fit, over itself it does. */
    assert_int_equal(r.ops->state_load(keep, bytes, n, &err), CALLA_ERR_MEMORY);
    assert_int_equal(r.ops->state_load(s, bytes, n, &err), 0);
    free(bytes);
    free(ids);
    r.ops->state_free(s);
    r.ops->state_free(keep);
    rig_close(&r);
}

const struct CMUnitTest state_tests[] = {
    cmocka_unit_test(test_a_saved_and_restored_state_goes_on_as_if_never_stopped),
    cmocka_unit_test(test_a_fork_equals_its_original_and_both_go_their_own_way),
    cmocka_unit_test(test_forks_share_full_pages),
    cmocka_unit_test(test_recycled_pages_and_states_carry_nothing_over),
    cmocka_unit_test(test_foreign_and_damaged_states_are_refused),
};
const int n_state_tests = COUNT(state_tests);
