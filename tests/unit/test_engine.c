/* test_engine.c - what the engine promises, whatever backend is below it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fake_backend.h"

enum { MOST_N = 2048 };

static struct calla_sampling sampling(float temperature, uint64_t seed) {
    return (struct calla_sampling){ .temperature = temperature, .top_k = 20, .top_p = 0.95f, .repetition_penalty = 1, .seed = seed };
}

/* A prompt without FAKE_NAN_ID, different for every seed from its first id on. */
static int32_t *make_ids(uint64_t seed, int n) {
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int i = 0; i < n; i++) ids[i] = (int32_t)(fake_mix(seed, (uint64_t)i) % FAKE_USABLE);
    return ids;
}

struct answer { int32_t ids[MOST_N]; int n; struct calla_event done; int n_events; };

static struct calla_request *submit(struct calla_engine *e, const int32_t *ids, int n, int max_tokens, struct calla_sampling s) {
    struct calla_request *r;
    struct calla_err err = { 0 };
    const struct calla_request_params p = { .prompt = ids, .n_prompt = n, .max_tokens = max_tokens, .sampling = s, .n_top_logprobs = -1 };
    if (calla_request_submit(e, &p, &r, &err) != 0) fail_msg("%s", err.message);
    return r;
}

static void collect(struct calla_request **r, struct answer *a) {
    struct calla_event ev;
    *a = (struct answer){ 0 };
    for (;;) {
        if (!calla_request_wait(*r, &ev, 20000)) fail_msg("no event in 20 s");
        a->n_events++;
        if (ev.kind == CALLA_EVENT_TOKEN) {
            assert_true(a->n < MOST_N && ev.id >= 0 && ev.id < FAKE_USABLE);
            a->ids[a->n++] = ev.id;
        }
        if (ev.kind == CALLA_EVENT_DONE) break;
    }
    a->done = ev;
    assert_int_equal(ev.usage.n_sampled, a->n);
    assert_false(calla_request_next(*r, &ev));      /* nothing after the end */
    calla_request_free(r);
}

static void ask(struct calla_engine *e, const int32_t *ids, int n, int max_tokens, struct calla_sampling s, struct answer *a) {
    struct calla_request *r = submit(e, ids, n, max_tokens, s);
    collect(&r, a);
}

static void is_right(const struct answer *a, const int32_t *ids, int n_prompt, int n, struct calla_sampling s) {
    int32_t want[MOST_N];
    fake_answer(ids, n_prompt, n, &s, want);
    assert_int_equal(a->n, n);
    assert_memory_equal(a->ids, want, (size_t)n * sizeof *want);
}

static struct calla_engine *start(struct calla_model *m, int n_queue) {
    struct calla_engine *e;
    assert_int_equal(calla_engine_start(&e, m, n_queue, NULL), 0);
    return e;
}

static void stop(struct calla_engine **e, struct calla_model *m) {
    calla_engine_stop(e);
    assert_int_equal(m->backend->n_states, 0);
    assert_int_equal(m->backend->n_pages_used, 0);
    fake_close(m->backend);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

/* ---- the same answer in every company (UR05, UR15, UR48, UR49) ---------------------------- */

static void test_any_concurrency_and_any_cache_give_the_solo_answer(void **unused) {
    (void)unused;
    enum { N = 24 };
    static const int together[] = { 1, 2, 3, 4, 8, N };
    struct calla_model *m = fake_model((struct fake_options){ .kept = 10, .sequences = 8 });
    struct calla_engine *e = start(m, N);
    static struct answer a;
    for (int t = 0; t < 6; t++)
        for (int round = 0; round < 2; round++)           /* the second is warm */
            for (int base = 0; base + together[t] <= N; base += together[t]) {
                struct calla_request *r[N];
                int32_t *ids[N];
                for (int i = 0; i < together[t]; i++) {
                    const int n = 1 + (base + i) * 97 % 1500;
                    ids[i] = make_ids((uint64_t)(base + i), n);
                    r[i] = submit(e, ids[i], n, 20 + i, sampling((base + i) % 2 ? 1 : 0, (uint64_t)i));
                }
                for (int i = 0; i < together[t]; i++) {
                    const int n = 1 + (base + i) * 97 % 1500;
                    collect(&r[i], &a);
                    assert_int_equal(a.done.finish, CALLA_FINISH_LENGTH);
                    is_right(&a, ids[i], n, 20 + i, sampling((base + i) % 2 ? 1 : 0, (uint64_t)i));
                    free(ids[i]);
                }
            }
    assert_true(m->backend->n_states_most <= 18);
    stop(&e, m);
}

static void test_the_same_prompt_again_is_read_from_the_cache(void **unused) {   /* UR05, UR06 */
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 8 });
    struct calla_engine *e = start(m, 4);
    int32_t *ids = make_ids(1, 1200);
    static struct answer first, again;
    ask(e, ids, 1200, 40, sampling(0, 0), &first);
    assert_int_equal(first.done.usage.n_cached, 0);
    ask(e, ids, 1200, 40, sampling(0, 0), &again);
    assert_int_equal(again.done.usage.n_cached, 1199);
    is_right(&first, ids, 1200, 40, sampling(0, 0));
    is_right(&again, ids, 1200, 40, sampling(0, 0));
    free(ids);
    stop(&e, m);
}

static void test_append_only_turns_run_only_what_is_new(void **unused) {         /* UR01, UR03, UR08 */
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 4 });
    struct calla_engine *e = start(m, 4);
    int32_t *all = make_ids(2, 20000);
    int n = 300;
    static struct answer a;
    for (int turn = 0; turn < 10; turn++) {
        ask(e, all, n, 30, sampling(0, 0), &a);
        is_right(&a, all, n, 30, sampling(0, 0));
        /* All of the last prompt and answer but its last id, which had not run. */
        if (turn > 0) assert_int_equal(a.done.usage.n_cached, n - 70 - 1);
        memcpy(all + n, a.ids, 30 * sizeof *all);
        n += 30 + 70;                                    /* the answer, then 70 new ids */
    }
    assert_true(m->backend->n_states <= 4 + 8);
    free(all);
    stop(&e, m);
}

static void test_a_change_in_the_middle_costs_at_most_a_ladder_step(void **unused) { /* UR04 */
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 16 });
    struct calla_engine *e = start(m, 4);
    int32_t *ids = make_ids(3, 12000);
    static struct answer a;
    ask(e, ids, 12000, 4, sampling(0, 0), &a);
    ids[11500] ^= 1;
    ask(e, ids, 12000, 4, sampling(0, 0), &a);
    is_right(&a, ids, 12000, 4, sampling(0, 0));
    assert_true(12000 - a.done.usage.n_cached <= 500 + 8192);
    ids[11600] ^= 1;                                     /* the place has been learned   */
    ask(e, ids, 12000, 4, sampling(0, 0), &a);
    is_right(&a, ids, 12000, 4, sampling(0, 0));
    assert_int_equal(a.done.usage.n_cached, 11500 / 64 * 64);
    free(ids);
    stop(&e, m);
}

/* A history that is rendered anew agrees up to the last message's begin, not into the answer (UR09, UR10). */
static void test_a_message_boundary_is_a_place_to_resume(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 8 });
    struct calla_engine *e = start(m, 4);
    int32_t *ids = make_ids(4, 4000);
    const int32_t boundaries[] = { 700, 1500, 1994 };
    static struct answer a;
    struct calla_request *r;
    struct calla_request_params p = { .prompt = ids, .n_prompt = 2000, .max_tokens = 5, .sampling = sampling(0, 0), .n_top_logprobs = -1,
                                      .boundaries = boundaries, .n_boundaries = 3 };
    assert_int_equal(calla_request_submit(e, &p, &r, NULL), 0);
    collect(&r, &a);
    for (int i = 1996; i < 4000; i++) ids[i] = (ids[i] + 1) % 50;    /* parts after the header's begin */
    ask(e, ids, 2300, 5, sampling(0, 0), &a);
    assert_int_equal(a.done.usage.n_cached, 1994);
    is_right(&a, ids, 2300, 5, sampling(0, 0));
    for (int i = 1000; i < 4000; i++) ids[i] = (ids[i] + 1) % 50;    /* another conversation under the same first message */
    ask(e, ids, 2300, 5, sampling(0, 0), &a);
    assert_int_equal(a.done.usage.n_cached, 700);
    is_right(&a, ids, 2300, 5, sampling(0, 0));
    free(ids);
    stop(&e, m);
}

/* ---- fairness (UR75) ------------------------------------------------------------------------- */

static void test_a_short_prompt_passes_a_long_one_and_decoding_goes_on(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .rows = 256, .kept = 4 });
    m->backend->step_us = 500;
    struct calla_engine *e = start(m, 4);
    int32_t *running = make_ids(7, 10), *big = make_ids(8, 20000), *small = make_ids(9, 10);
    static struct answer a;
    struct calla_event ev;
    struct calla_request *r0 = submit(e, running, 10, 2000, sampling(0, 0)), *r1, *r2;
    while (calla_request_wait(r0, &ev, 5000) && ev.kind != CALLA_EVENT_TOKEN) {}
    r1 = submit(e, big, 20000, 4, sampling(0, 0));
    while (calla_request_wait(r1, &ev, 5000) && ev.kind != CALLA_EVENT_PREFILL) {}
    const int begin = m->backend->n_steps;
    r2 = submit(e, small, 10, 4, sampling(0, 0));
    collect(&r2, &a);
    const int end = m->backend->n_steps;
    assert_true(end - begin <= 8);                       /* the short one: at once       */
    is_right(&a, small, 10, 4, sampling(0, 0));
    assert_true(calla_request_next(r1, &ev) ? ev.kind == CALLA_EVENT_PREFILL && ev.pos < 20000 : true);
    collect(&r1, &a);
    is_right(&a, big, 20000, 4, sampling(0, 0));
    const int whole = m->backend->n_steps;
    for (int i = begin; i < whole - 1; i++) assert_true(m->backend->log[i].n_single >= 1);   /* r0 has a row in each */
    int n_off = 0;
    for (int i = begin; i < whole; i++) n_off += m->backend->log[i].n_off_grid;
    assert_true(n_off <= 3);                             /* ends of prompts and copies only */
    calla_request_free(&r0);
    free(running); free(big); free(small);
    stop(&e, m);
}

static void test_two_long_prompts_are_read_side_by_side(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .rows = 256, .kept = 2 });
    m->backend->step_us = 300;
    struct calla_engine *e = start(m, 4);
    int32_t *a_ids = make_ids(30, 10000), *b_ids = make_ids(31, 12000);
    static struct answer a;
    struct calla_event ev = { 0 };
    int n_read = 0;
    struct calla_request *ra = submit(e, a_ids, 10000, 1, sampling(0, 0)), *rb = submit(e, b_ids, 12000, 1, sampling(0, 0));
    collect(&ra, &a);
    while (calla_request_next(rb, &ev)) n_read = ev.kind == CALLA_EVENT_PREFILL ? ev.pos : n_read;
    assert_true(n_read >= 9000 && n_read < 12000);       /* it has had its half of the rows */
    collect(&rb, &a);
    free(a_ids); free(b_ids);
    stop(&e, m);
}

static void test_a_short_prompt_passes_many_long_ones(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .rows = 64, .kept = 2 });
    m->backend->step_us = 300;
    struct calla_engine *e = start(m, 8);
    struct calla_request *r[7];
    int32_t *ids = make_ids(33, 4000), *few = make_ids(32, 10);
    struct calla_event ev;
    static struct answer a;
    for (int i = 0; i < 7; i++) r[i] = submit(e, ids + i, 3000, 1, sampling(0, 0));
    for (int i = 0; i < 7; i++) assert_true(calla_request_wait(r[i], &ev, 5000));
    const int begin = m->backend->n_steps;
    ask(e, few, 10, 1, sampling(0, 0), &a);
    assert_true(m->backend->n_steps - begin <= 6);       /* two chunks, every other step */
    for (int i = 0; i < 7; i++) calla_request_free(&r[i]);
    free(ids); free(few);
    stop(&e, m);
}

static void test_many_long_prompts_all_move_when_few_rows_fit(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .rows = 64, .kept = 2 });
    struct calla_engine *e = start(m, 8);
    struct calla_request *r[8];
    int32_t *ids[8];
    static struct answer a;
    for (int i = 0; i < 8; i++) r[i] = submit(e, ids[i] = make_ids((uint64_t)(20 + i), 900 + i), 900 + i, 8, sampling(1, (uint64_t)i));
    for (int i = 0; i < 8; i++) {
        collect(&r[i], &a);
        is_right(&a, ids[i], 900 + i, 8, sampling(1, (uint64_t)i));
        free(ids[i]);
    }
    stop(&e, m);
}

/* ---- limits -------------------------------------------------------------------------------------- */

static void test_the_queue_is_bounded(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .sequences = 2 });
    m->backend->step_us = 1000;
    struct calla_engine *e = start(m, 3);
    struct calla_request *r[5], *more = NULL;
    struct calla_err err;
    struct calla_engine_status st;
    int32_t *ids = make_ids(1, 10);
    static struct answer a;
    for (int i = 0; i < 5; i++) r[i] = submit(e, ids, 10, 30, sampling(1, (uint64_t)i));
    const struct calla_request_params p = { .prompt = ids, .n_prompt = 10, .max_tokens = 5, .sampling = sampling(0, 0), .n_top_logprobs = -1 };
    assert_int_equal(calla_request_submit(e, &p, &more, &err), CALLA_ERR_BUSY);
    assert_null(more);
    calla_engine_status(e, &st);
    assert_int_equal(st.n_running + st.n_queued, 5);
    assert_int_equal(st.queue_limit, 3);
    for (int i = 0; i < 5; i++) {
        collect(&r[i], &a);
        is_right(&a, ids, 10, 30, sampling(1, (uint64_t)i));
    }
    ask(e, ids, 10, 5, sampling(0, 0), &a);              /* and there is room again      */
    calla_engine_status(e, &st);
    assert_int_equal(st.n_sampled, 5 * 30 + 5);
    free(ids);
    stop(&e, m);
}

/* A place is free when the end of the request that had it can be read. */
static void test_a_reader_of_the_end_can_ask_at_once(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .sequences = 1, .kept = 2 });
    struct calla_engine *e = start(m, 0);
    int32_t *ids = make_ids(1, 40);
    static struct answer a;
    for (int i = 0; i < 500; i++) ask(e, ids, 1 + i % 40, i % 3, sampling(0, 0), &a);
    free(ids);
    stop(&e, m);
}

static void test_pages_run_out_and_every_request_still_ends_right(void **unused) {
    (void)unused;
    /* 40 pages; eight requests that want up to 17 each, with kept states in between. */
    struct calla_model *m = fake_model((struct fake_options){ .kept = 6, .kv_tokens = 40 * 64, .ctx = 2048 });
    struct calla_engine *e = start(m, 16);
    struct calla_request *r[12];
    int32_t *ids[12];
    static struct answer a;
    for (int i = 0; i < 12; i++) r[i] = submit(e, ids[i] = make_ids((uint64_t)(40 + i), 500 + 40 * i), 500 + 40 * i, 150, sampling(1, (uint64_t)i));
    for (int i = 0; i < 12; i++) {
        collect(&r[i], &a);
        assert_int_equal(a.done.finish, CALLA_FINISH_LENGTH);
        is_right(&a, ids[i], 500 + 40 * i, 150, sampling(1, (uint64_t)i));
        free(ids[i]);
    }
    stop(&e, m);
}

static void test_a_request_larger_than_the_pool_fails_with_numbers(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 2, .kv_tokens = 640, .ctx = 2048 });
    struct calla_engine *e = start(m, 4);
    int32_t *ids = make_ids(1, 1000);
    static struct answer a;
    ask(e, ids, 1000, 5, sampling(0, 0), &a);
    assert_int_equal(a.done.finish, CALLA_FINISH_ERROR);
    assert_int_equal(a.done.err.code, CALLA_ERR_MEMORY);
    assert_non_null(strstr(a.done.err.message, "of 10"));
    ask(e, ids, 300, 5, sampling(0, 0), &a);
    is_right(&a, ids, 300, 5, sampling(0, 0));
    free(ids);
    stop(&e, m);
}

static void test_lengths_and_stop_ids(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 2, .ctx = 128 });
    struct calla_engine *e = start(m, 4);
    int32_t *ids = make_ids(5, 128), want[64];
    struct calla_sampling s = sampling(1, 3);
    struct calla_request *r = NULL;
    struct calla_err err;
    static struct answer a;
    ask(e, ids, 100, 0, s, &a);                          /* reads only                   */
    assert_true(a.n == 0 && a.done.finish == CALLA_FINISH_LENGTH);
    ask(e, ids, 100, -1, s, &a);                         /* to the context's end         */
    assert_true(a.n == 28 && a.done.finish == CALLA_FINISH_LENGTH);
    is_right(&a, ids, 100, 28, s);
    ask(e, ids, 127, 50, s, &a);
    assert_int_equal(a.n, 1);
    ask(e, ids, 128, 0, s, &a);
    assert_int_equal(a.done.finish, CALLA_FINISH_LENGTH);
    struct calla_request_params p = { .prompt = ids, .n_prompt = 128, .max_tokens = 1, .sampling = s, .n_top_logprobs = -1 };
    assert_int_equal(calla_request_submit(e, &p, &r, &err), CALLA_ERR_LIMIT);
    assert_true(strstr(err.message, "128 tokens") != NULL);
    fake_answer(ids, 50, 20, &s, want);
    int at = 1;
    for (int seen = 1; seen; at++) {                     /* the first id that is new     */
        seen = 0;
        for (int i = 0; i < at; i++) seen |= want[i] == want[at];
        if (!seen) break;
    }
    p = (struct calla_request_params){ .prompt = ids, .n_prompt = 50, .max_tokens = 60, .sampling = s, .n_top_logprobs = -1, .stop_ids = &want[at], .n_stop_ids = 1 };
    assert_int_equal(calla_request_submit(e, &p, &r, &err), 0);
    collect(&r, &a);
    assert_int_equal(a.done.finish, CALLA_FINISH_STOP);
    assert_int_equal(a.n, at + 1);
    assert_int_equal(a.ids[at], want[at]);               /* the stop id is the last      */
    free(ids);
    stop(&e, m);
}

static void test_parameters_out_of_range_are_refused_by_name(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ 0 });
    struct calla_engine *e = start(m, 4);
    int32_t ids[4] = { 1, 2, 3, 4 }, bad[2] = { 1, FAKE_V };
    const int32_t falling[2] = { 3, 2 };
    const struct calla_logit_bias bias = { 1, INFINITY };
    struct calla_request *r = NULL;
    struct calla_err err;
    const struct calla_request_params ok = { .prompt = ids, .n_prompt = 4, .max_tokens = 1, .sampling = sampling(1, 0), .n_top_logprobs = -1 };
#define REFUSED(change, what) do { struct calla_request_params p = ok; change; err.message[0] = 0; \
        assert_int_equal(calla_request_submit(e, &p, &r, &err), CALLA_ERR_ARGUMENT); \
        if (strstr(err.message, what) == NULL) fail_msg("'%s' does not name %s", err.message, what); \
        assert_null(r); } while (0)
    REFUSED(p.n_prompt = 0, "empty");
    REFUSED((p.prompt = bad, p.n_prompt = 2), "position 1");
    REFUSED(p.sampling.temperature = -1, "temperature");
    REFUSED(p.sampling.temperature = NAN, "temperature");
    REFUSED(p.sampling.top_k = -1, "top_k");
    REFUSED(p.sampling.top_p = 1.5f, "top_p");
    REFUSED(p.sampling.min_p = NAN, "min_p");
    REFUSED(p.sampling.presence_penalty = INFINITY, "presence_penalty");
    REFUSED(p.sampling.frequency_penalty = NAN, "frequency_penalty");
    REFUSED(p.sampling.repetition_penalty = 0, "repetition_penalty");
    REFUSED((p.sampling.bias = &bias, p.sampling.n_bias = 1), "bias");
    REFUSED(p.n_stop_ids = 17, "stop ids");
    REFUSED(p.n_top_logprobs = 21, "logprobs");
    REFUSED((p.boundaries = falling, p.n_boundaries = 2), "boundary");
    stop(&e, m);
}

/* ---- log-probabilities -------------------------------------------------------------------------------- */

static void test_log_probabilities_are_of_the_raw_logits(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 4 });
    struct calla_engine *e = start(m, 4);
    enum { N = 200, ANSWER = 10 };
    int32_t *ids = make_ids(6, N + ANSWER);
    struct calla_request *r;
    struct calla_event ev;
    float logits[FAKE_V];
    int n_prompt = 0, n_answer = 0;
    static struct answer a;
    ask(e, ids, N, 4, sampling(0, 0), &a);               /* a cache that must not be used for prompt logprobs */
    struct calla_sampling s = sampling(0.5f, 1);
    s.presence_penalty = 1;                              /* changes what is sampled, not what is reported */
    const struct calla_request_params p = { .prompt = ids, .n_prompt = N, .max_tokens = ANSWER, .sampling = s, .n_top_logprobs = 5, .prompt_logprobs = true };
    assert_int_equal(calla_request_submit(e, &p, &r, NULL), 0);
    for (;;) {
        assert_true(calla_request_wait(r, &ev, 20000));
        if (ev.kind == CALLA_EVENT_DONE) break;
        if (ev.kind == CALLA_EVENT_PREFILL) continue;
        const int pos = n_prompt + n_answer;
        assert_int_equal(ev.pos, pos);
        if (ev.kind == CALLA_EVENT_PROMPT) n_prompt++;
        else n_answer++;
        if (ev.kind == CALLA_EVENT_TOKEN) ids[pos] = ev.id;
        assert_int_equal(ev.id, ids[pos]);
        if (pos == 0) {
            assert_true(isnan(ev.logprob));
            continue;
        }
        uint64_t hash = FAKE_START;
        int32_t top[5];
        for (int i = 0; i < pos; i++) hash = fake_mix(hash, (uint64_t)ids[i]);
        fake_logits(hash, logits);
        const double lse = calla_logsumexp(logits, FAKE_USABLE);
        assert_true(fabs((double)ev.logprob - ((double)logits[ev.id] - lse)) < 1e-6);
        assert_int_equal(ev.n_top, 5);
        calla_top_ids(logits, FAKE_USABLE, 5, top);
        for (int i = 0; i < 5; i++) {
            assert_int_equal(ev.top[i].id, top[i]);
            assert_true(fabs((double)ev.top[i].logprob - ((double)logits[top[i]] - lse)) < 1e-6);
        }
    }
    assert_true(n_prompt == N && n_answer == ANSWER && ev.usage.n_cached == 0);
    calla_request_free(&r);
    free(ids);
    stop(&e, m);
}

/* ---- ends ------------------------------------------------------------------------------------------------ */

static void test_a_cancelled_request_ends_and_its_work_is_kept(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 4, .rows = 64, .sequences = 1 });
    m->backend->step_us = 500;
    struct calla_engine *e = start(m, 4);
    int32_t *ids = make_ids(1, 20000);
    struct calla_event ev;
    static struct answer a;
    struct calla_request *r = submit(e, ids, 20000, 5, sampling(0, 0)), *queued = submit(e, ids, 100, 5, sampling(0, 0));
    while (calla_request_wait(r, &ev, 5000) && (ev.kind != CALLA_EVENT_PREFILL || ev.pos < 640)) {}
    calla_request_cancel(queued);
    collect(&queued, &a);                                /* while the other still runs   */
    assert_true(a.done.finish == CALLA_FINISH_CANCELLED && a.n == 0);
    const int step = m->backend->n_steps;
    calla_request_cancel(r);
    collect(&r, &a);
    assert_int_equal(a.done.finish, CALLA_FINISH_CANCELLED);
    assert_true(m->backend->n_steps - step <= 2);
    ask(e, ids, 20000, 5, sampling(0, 0), &a);           /* the client asks again        */
    assert_true(a.done.usage.n_cached >= 640 && a.done.usage.n_cached % 64 == 0);
    is_right(&a, ids, 20000, 5, sampling(0, 0));
    free(ids);
    stop(&e, m);
}

static _Atomic int n_told;
static void count_told(void *user) { (void)user; n_told++; }

static void test_clients_that_leave_and_an_engine_that_stops(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 4 });
    m->backend->step_us = 200;
    struct calla_engine *e = start(m, 64);
    int32_t *ids = make_ids(1, 3000);
    struct calla_request *r[40];
    static struct answer a;
    struct calla_request_params p = { .prompt = ids, .max_tokens = -1, .sampling = sampling(1, 0), .n_top_logprobs = -1, .notify = count_told };
    for (int i = 0; i < 40; i++) {
        p.n_prompt = 10 + 70 * i;
        assert_int_equal(calla_request_submit(e, &p, &r[i], NULL), 0);
    }
    for (int i = 0; i < 36; i++) calla_request_free(&r[i]);
    ask(e, ids, 50, 5, sampling(0, 0), &a);              /* while 4 go on to the context's end */
    is_right(&a, ids, 50, 5, sampling(0, 0));
    assert_true(n_told > 0);
    calla_engine_stop(&e);
    const int told = n_told;
    for (int i = 36; i < 40; i++) {                      /* readable after the stop      */
        struct calla_event ev;
        while (calla_request_next(r[i], &ev)) {}
        assert_int_equal(ev.kind, CALLA_EVENT_DONE);
        assert_int_equal(ev.finish, CALLA_FINISH_CANCELLED);
        calla_request_free(&r[i]);
    }
    assert_int_equal(n_told, told);
    free(ids);
    stop(&e, m);
}

static void test_a_row_that_is_not_finite_ends_its_own_request_only(void **unused) {   /* UR53 */
    (void)unused;
    int32_t *good = make_ids(1, 900), *bad = make_ids(2, 900);
    static struct answer a;
    bad[899] = FAKE_NAN_ID;
    for (int fails_step = 0; fails_step < 2; fails_step++) {
        struct calla_model *m = fake_model((struct fake_options){ .kept = 4 });
        m->backend->nan_fails_step = fails_step;
        struct calla_engine *e = start(m, 8);
        struct calla_request *r[6];
        for (int i = 0; i < 6; i++) r[i] = submit(e, i == 2 ? bad : good, i == 2 ? 900 : 300 + 100 * i, 300, sampling(1, (uint64_t)i));
        for (int i = 0; i < 6; i++) {
            collect(&r[i], &a);
            if (i != 2) is_right(&a, good, 300 + 100 * i, 300, sampling(1, (uint64_t)i));
            else assert_true(a.done.finish == CALLA_FINISH_ERROR && a.done.err.code == CALLA_ERR_NUMERIC && a.n == 0);
        }
        stop(&e, m);
    }
    free(good); free(bad);
}

static void test_a_device_that_faults_ends_everything_and_stays_ended(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .sequences = 2, .kept = 2 });
    m->backend->fail_at_step = 20;
    struct calla_engine *e = start(m, 8);
    struct calla_request *r[5], *more = NULL;
    struct calla_engine_status st;
    struct calla_err err;
    int32_t *ids = make_ids(1, 10);
    static struct answer a;
    for (int i = 0; i < 5; i++) r[i] = submit(e, ids, 10, 500, sampling(1, (uint64_t)i));
    for (int i = 0; i < 5; i++) {
        collect(&r[i], &a);
        assert_int_equal(a.done.finish, CALLA_FINISH_ERROR);
        assert_int_equal(a.done.err.code, CALLA_ERR_DEVICE);
        assert_non_null(strstr(a.done.err.message, "fell off the bus"));
    }
    const struct calla_request_params p = { .prompt = ids, .n_prompt = 10, .max_tokens = 5, .sampling = sampling(0, 0), .n_top_logprobs = -1 };
    int rc = 0;
    for (int i = 0; i < 1000 && (rc = calla_request_submit(e, &p, &more, &err)) == 0; i++) calla_request_free(&more);
    assert_int_equal(rc, CALLA_ERR_DEVICE);
    calla_engine_status(e, &st);
    assert_true(st.failed);
    free(ids);
    stop(&e, m);
}

static void test_a_slow_reader_loses_nothing(void **unused) {
    (void)unused;
    struct calla_model *m = fake_model((struct fake_options){ .kept = 4 });
    struct calla_engine *e = start(m, 8);
    struct calla_engine_status st;
    int32_t *ids = make_ids(1, 30);
    static struct answer a;
    struct calla_request *r = submit(e, ids, 30, 1500, sampling(1, 9));
    do {
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
        calla_engine_status(e, &st);
    } while (st.n_sampled < 1500);
    collect(&r, &a);
    is_right(&a, ids, 30, 1500, sampling(1, 9));
    free(ids);
    stop(&e, m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_concurrency_and_any_cache_give_the_solo_answer),
        cmocka_unit_test(test_the_same_prompt_again_is_read_from_the_cache),
        cmocka_unit_test(test_append_only_turns_run_only_what_is_new),
        cmocka_unit_test(test_a_change_in_the_middle_costs_at_most_a_ladder_step),
        cmocka_unit_test(test_a_message_boundary_is_a_place_to_resume),
        cmocka_unit_test(test_a_short_prompt_passes_a_long_one_and_decoding_goes_on),
        cmocka_unit_test(test_two_long_prompts_are_read_side_by_side),
        cmocka_unit_test(test_a_short_prompt_passes_many_long_ones),
        cmocka_unit_test(test_many_long_prompts_all_move_when_few_rows_fit),
        cmocka_unit_test(test_the_queue_is_bounded),
        cmocka_unit_test(test_a_reader_of_the_end_can_ask_at_once),
        cmocka_unit_test(test_pages_run_out_and_every_request_still_ends_right),
        cmocka_unit_test(test_a_request_larger_than_the_pool_fails_with_numbers),
        cmocka_unit_test(test_lengths_and_stop_ids),
        cmocka_unit_test(test_parameters_out_of_range_are_refused_by_name),
        cmocka_unit_test(test_log_probabilities_are_of_the_raw_logits),
        cmocka_unit_test(test_a_cancelled_request_ends_and_its_work_is_kept),
        cmocka_unit_test(test_clients_that_leave_and_an_engine_that_stops),
        cmocka_unit_test(test_a_row_that_is_not_finite_ends_its_own_request_only),
        cmocka_unit_test(test_a_device_that_faults_ends_everything_and_stays_ended),
        cmocka_unit_test(test_a_slow_reader_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
