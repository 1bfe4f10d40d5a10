/* same_bits.c - a row's logits depend on its own sequence only: not on the split of the prompt, the other rows, the
 * number of threads or the instruction set. */
#include "rig.h"

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

enum { N_IDS = 150 };              /* past two pages, the last one half full */

static void test_any_split_of_a_prompt_gives_the_same_bits(void **unused) {
    static const int splits[][4] = { { 1, 1, 1, 1 }, { 7, 7, 7, 7 }, { 64, 64, 64, 64 }, { 3, 1, 29, 2 }, { 65, 1, 63, 21 } };
    struct rig r;
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .max_rows = N_IDS });
    int32_t *ids = rig_ids(11, N_IDS);
    struct calla_state *s = rig_state(&r);
    float *whole = rig_feed_all(&r, s, ids, N_IDS);
    for (int k = 0; k < COUNT(splits); k++) {
        r.ops->state_reset(s);
        float *part = rig_feed(&r, s, ids, N_IDS, splits[k], 4);
        rig_same(&r, part, whole, N_IDS, "split");
        free(part);
    }
    free(whole);
    free(ids);
    r.ops->state_free(s);
    rig_close(&r);
}

static void check_same_as_first(const struct rig_options *options, int n, const char *what) {
    int32_t *ids = rig_ids(12, N_IDS);
    float *first = NULL;
    for (int k = 0; k < n; k++) {
        static const int chunks[] = { 70, 1, 1, 40 };
        struct rig r;
        rig_open(&r, rig_tiny, options[k]);
        struct calla_state *s = rig_state(&r);
        float *logits = rig_feed(&r, s, ids, N_IDS, chunks, COUNT(chunks));
        if (first == NULL) first = logits;
        else {
            rig_same(&r, logits, first, N_IDS, what);
            free(logits);
        }
        r.ops->state_free(s);
        rig_close(&r);
    }
    free(first);
    free(ids);
}

static void test_any_number_of_threads_gives_the_same_bits(void **unused) {
    const struct rig_options options[] = { { .n_threads = 1, .max_rows = 70 }, { .n_threads = 2, .max_rows = 70 },
                                           { .n_threads = 3, .max_rows = 70 }, { .n_threads = 5, .max_rows = 70 } };
    (void)unused;
    check_same_as_first(options, COUNT(options), "threads");
}

static void test_every_instruction_set_gives_the_same_bits(void **unused) {
    struct rig_options options[8];
    int n = 0, runs;
    (void)unused;
    for (int i = 0; cpu_kernels_at(i, &runs) != NULL && n < COUNT(options); i++) {
        print_message("%s %s\n", cpu_kernels_at(i, &runs)->name, runs ? "runs" : "skipped: not on this machine");
        if (runs) options[n++] = (struct rig_options){ .max_rows = 70, .kernels = cpu_kernels_at(i, NULL) };
    }
    check_same_as_first(options, n, "instruction set");
}

/* Four sequences of different lengths in one batch each time: some read many rows, some one. */
static void test_sequences_of_one_batch_do_not_touch_each_other(void **unused) {
    enum { N = 4 };
    static const int rows_of[N][3] = { { 1, 1, 1 }, { 13, 1, 7 }, { 1, 30, 2 }, { 5, 5, 20 } };
    struct rig r;
    struct calla_state *s[N];
    int32_t *ids[N];
    float *alone[N];
    int done[N] = { 0 };
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ 0 });
    for (int k = 0; k < N; k++) {
        s[k] = rig_state(&r);
        ids[k] = rig_ids(20 + (uint64_t)k, N_IDS);
        alone[k] = rig_feed_all(&r, s[k], ids[k], N_IDS);
        r.ops->state_reset(s[k]);
    }
    for (int step = 0; done[3] < N_IDS; step++) {
        struct calla_row rows[64];
        struct calla_err err = { 0 };
        int owner[64], at[64], n = 0;
        for (int j = 0; j < N; j++) {
            const int k = (j + step) % N;          /* the order in the batch changes too */
            for (int i = 0; i < rows_of[k][step % 3] && done[k] < N_IDS; i++, n++) {
                owner[n] = k;
                at[n] = done[k];
                rows[n] = rig_row(s[k], ids[k][done[k]++]);
            }
        }
        assert_int_equal(rig_step(&r, rows, n, &err), 0);
        for (int i = 0; i < n; i++)
            rig_same(&r, r.ops->logits(r.b, i), alone[owner[i]] + (size_t)at[i] * (size_t)r.n_vocab, 1, "batch");
    }
    for (int k = 0; k < N; k++) {
        assert_int_equal(r.ops->state_len(s[k]), done[k]);
        free(alone[k]);
        free(ids[k]);
        r.ops->state_free(s[k]);
    }
    rig_close(&r);
}

/* The rows that ask for logits may be any, and do not change the others. */
static void test_rows_that_ask_for_nothing_change_nothing(void **unused) {
    struct rig r;
    struct calla_err err = { 0 };
    struct calla_row rows[40];
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ .max_logits = 40 });
    int32_t *ids = rig_ids(13, 40);
    struct calla_state *s = rig_state(&r);
    float *all = rig_feed_all(&r, s, ids, 40);
    r.ops->state_reset(s);
    for (int i = 0; i < 40; i++) {
        rows[i] = rig_row(s, ids[i]);
        rows[i].wants_logits = i % 9 == 4;
    }
    assert_int_equal(rig_step(&r, rows, 40, &err), 0);
    for (int i = 0; i < 40; i++) {
        if (i % 9 != 4) assert_null(r.ops->logits(r.b, i));
        else rig_same(&r, r.ops->logits(r.b, i), all + (size_t)i * (size_t)r.n_vocab, 1, "asking row");
    }
    free(all);
    free(ids);
    r.ops->state_free(s);
    rig_close(&r);
}

/* Greedy ids of a step feed the next one on the device as they would from outside. */
static void test_a_row_can_take_the_id_that_the_last_step_sampled(void **unused) {
    const struct calla_sampling greedy = { .temperature = 0, .top_p = 1, .repetition_penalty = 1 };
    struct rig r;
    struct calla_err err = { 0 };
    (void)unused;
    rig_open(&r, rig_tiny, (struct rig_options){ 0 });
    int32_t *ids = rig_ids(14, 20), answer[10];
    struct calla_state *s = rig_state(&r), *again = rig_state(&r);
    rig_skip(&r, s, ids, 19);
    rig_skip(&r, again, ids, 19);
    for (int i = 0; i < 10; i++) {
        const struct calla_sampler sampler = { .sampling = &greedy, .ids = ids, .n_ids = 20, .n_prompt = 20, .pos = 20 };
        struct calla_row row = { .state = s, .token = ids[19], .token_row = i == 0 ? -1 : 0, .sampler = &sampler };
        assert_int_equal(rig_step(&r, &row, 1, &err), 0);
        answer[i] = r.ops->sampled(r.b, 0);
        int32_t best;
        calla_top_ids(r.ops->logits(r.b, 0), 1024, 1, &best);
        assert_int_equal(answer[i], best);
    }
    for (int i = 0; i < 10; i++) {
        struct calla_row row = rig_row(again, i == 0 ? ids[19] : answer[i - 1]);
        int32_t best;
        assert_int_equal(rig_step(&r, &row, 1, &err), 0);
        calla_top_ids(r.ops->logits(r.b, 0), 1024, 1, &best);
        assert_int_equal(answer[i], best);
        assert_int_equal(r.ops->sampled(r.b, 0), -1);
    }
    free(ids);
    r.ops->state_free(s);
    r.ops->state_free(again);
    rig_close(&r);
}

const struct CMUnitTest same_bits_tests[] = {
    cmocka_unit_test(test_any_split_of_a_prompt_gives_the_same_bits),
    cmocka_unit_test(test_any_number_of_threads_gives_the_same_bits),
    cmocka_unit_test(test_every_instruction_set_gives_the_same_bits),
    cmocka_unit_test(test_sequences_of_one_batch_do_not_touch_each_other),
    cmocka_unit_test(test_rows_that_ask_for_nothing_change_nothing),
    cmocka_unit_test(test_a_row_can_take_the_id_that_the_last_step_sampled),
};
const int n_same_bits_tests = COUNT(same_bits_tests);
