/* test_sampler.c - sampling is what docs/model.md says, whatever route is taken.
 *
 * The oracle below is written from the document alone: it sorts everything and
 * knows no shortcut.  Both sides sum in fp64, in orders that may differ, so a
 * draw within 1e-9 of a border of two ids is not compared (and counted). */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "engine/sampler.h"

enum { MOST_V = 3000 };

static struct calla_sampling plain(void) {
    return (struct calla_sampling){ .temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 1 };
}

static uint32_t word(uint64_t seed, uint64_t stream, uint64_t i) {
    uint32_t r[4];
    calla_rng_block(r, seed, stream, i / 4);
    return r[i % 4];
}

struct stream { uint64_t seed, stream, i; };
static uint32_t next(struct stream *s) { return word(s->seed, s->stream, s->i++); }

/* ---- the oracle ------------------------------------------------------------- */

struct cand { double w; float x; int32_t id; };

static int by_weight(const void *a, const void *b) {
    const struct cand *p = a, *q = b;
    if (p->x != q->x) return p->x > q->x ? -1 : 1;
    return p->id < q->id ? -1 : 1;
}

/* The id, or -1 when the draw is too near a border to say. */
static int32_t oracle(const struct calla_sampler *s, const float *logits, int n) {
    const struct calla_sampling *p = s->sampling;
    struct cand *c = malloc((size_t)n * sizeof *c);
    for (int id = 0; id < n; id++) {
        float x = logits[id];
        int in_answer = 0, anywhere = 0;
        for (int i = 0; i < p->n_bias; i++)
            if (p->bias[i].id == id) x += p->bias[i].bias;
        for (int i = 0; i < s->n_ids; i++) {
            anywhere += s->ids[i] == id;
            in_answer += i >= s->n_prompt && s->ids[i] == id;
        }
        if (anywhere) x = x > 0 ? x / p->repetition_penalty : x * p->repetition_penalty;
        if (in_answer) x -= p->presence_penalty + p->frequency_penalty * (float)in_answer;
        if (s->allowed && !(s->allowed[id / 32] >> (id % 32) & 1)) x = -INFINITY;
        c[id] = (struct cand){ .x = x, .id = id };
    }
    qsort(c, (size_t)n, sizeof *c, by_weight);
    int32_t out = c[0].id;
    if (p->temperature > 0) {
        double sum = 0, all = 0, run = 0;
        int m = n;
        for (int i = 0; i < n; i++) c[i].w = exp(((double)c[i].x - c[0].x) / p->temperature);
        if (p->top_k > 0 && p->top_k < m) m = p->top_k;
        for (int i = 0; i < m; i++) sum += c[i].w;
        if (p->top_p < 1) {
            int k = 0;
            while (k < m && (k == 0 || run < p->top_p * sum)) run += c[k++].w;
            if (fabs(run - p->top_p * sum) < 1e-9 * sum || (k > 1 && fabs(run - c[k - 1].w - p->top_p * sum) < 1e-9 * sum)) out = -1;
            m = k;
        }
        if (p->min_p > 0) {
            int k = 1;
            while (k < m && c[k].w >= (double)p->min_p * c[0].w) k++;
            m = k;
        }
        for (int i = 0; i < m; i++) all += c[i].w;
        uint32_t r[4];
        const uint32_t counter[4] = { (uint32_t)s->pos, 0, 0, 0 }, key[2] = { (uint32_t)p->seed, (uint32_t)(p->seed >> 32) };
        calla_philox(r, counter, key);
        const double target = (r[0] + 0.5) / 4294967296.0 * all;
        run = 0;
        for (int i = 0; i < m; i++) {
            if (fabs(run - target) < 1e-9 * all) out = -1;
            run += c[i].w;
            if (run > target || i == m - 1) {
                if (out >= 0) out = c[i].id;
                break;
            }
        }
    }
    free(c);
    return out;
}

static void test_agrees_with_the_slow_sampler(void **unused) {
    (void)unused;
    const uint64_t seed = 20260707;
    static float logits[MOST_V];
    static int32_t ids[400];
    static uint32_t allowed[MOST_V / 32 + 1];
    struct calla_sampler_scratch *scratch;
    int n_borders = 0, n_greedy = 0, n_cases = 6000;
    print_message("seed %llu\n", (unsigned long long)seed);
    assert_int_equal(calla_sampler_scratch_new(&scratch, MOST_V, NULL), 0);
    for (int t = 0; t < n_cases; t++) {
        struct stream stream = { seed, (uint64_t)t, 0 };
#define R() next(&stream)
        const int n = 1 + (int)(R() % (t % 10 == 0 ? MOST_V : 300));
        const int coarse = R() % 3 == 0;          /* many ties */
        for (int i = 0; i < n; i++) {
            const float x = (float)(calla_rng_unit(R()) * 16 - 8);
            logits[i] = coarse ? floorf(x) : x;
            if (R() % 50 == 0) logits[i] = -INFINITY;
        }
        logits[R() % (uint32_t)n] = 3;
        struct calla_logit_bias bias[3];
        for (int i = 0; i < 3; i++) {
            const uint32_t what = R() % 4;
            bias[i] = (struct calla_logit_bias){ (int32_t)(R() % (uint32_t)(n + 5)),
                                                 what == 0 ? -INFINITY : what == 1 ? -100 : what == 2 ? 100 : 1.5f };
        }
        if (n < 8) bias[0].bias = bias[1].bias = bias[2].bias = 1;   /* leave an id */
        struct calla_sampling p = {
            .temperature = R() % 8 == 0 ? 0 : (float)(0.1 + 2 * calla_rng_unit(R())),
            .top_k = R() % 3 == 0 ? 0 : (int)(1 + R() % 40), .top_p = R() % 2 ? 1 : (float)calla_rng_unit(R()),
            .min_p = R() % 2 ? 0 : (float)(0.3 * calla_rng_unit(R())),
            .presence_penalty = R() % 2 ? 0 : (float)(calla_rng_unit(R()) * 4 - 2),
            .frequency_penalty = R() % 2 ? 0 : (float)(calla_rng_unit(R()) * 2 - 1),
            .repetition_penalty = R() % 2 ? 1 : (float)(0.5 + calla_rng_unit(R())),
            .seed = (uint64_t)R() * 0x9e3779b97f4a7c15u, .bias = bias, .n_bias = (int)(R() % 4) };
        if (R() % 10 == 0) p.top_k = n + (int)(R() % 3);
        struct calla_sampler s = { .sampling = &p, .ids = ids, .n_ids = (int)(R() % 400), .allowed = R() % 4 ? NULL : allowed };
        s.n_prompt = s.n_ids ? (int)(R() % (uint32_t)s.n_ids) : 0;
        s.pos = s.n_ids;
        for (int i = 0; i < s.n_ids; i++) ids[i] = (int32_t)(R() % (uint32_t)(n + 10));   /* some past the usable ones */
        for (int i = 0; i < MOST_V / 32 + 1; i++) allowed[i] = R() | 1u << (R() % 32);
        int32_t id = -7;
        struct calla_err err = { 0 };
        const int rc = calla_sample(scratch, &s, logits, n, &id, &err);
        if (rc == CALLA_ERR_NUMERIC) {            /* right only when nothing is left */
            for (int i = 0; i < n; i++)
                if (s.allowed == NULL || (allowed[i / 32] >> (i % 32) & 1)) {
                    bool banned = logits[i] == -INFINITY;
                    for (int b = 0; b < p.n_bias; b++) banned |= bias[b].id == i && bias[b].bias == -INFINITY;
                    assert_true(banned);
                }
            continue;
        }
        assert_int_equal(rc, 0);
        const int32_t want = oracle(&s, logits, n);
        n_greedy += p.temperature <= 0;
        if (want < 0) n_borders++;
        else if (id != want) fail_msg("case %d: id %d, the oracle says %d (V %d, top_k %d)", t, (int)id, (int)want, n, p.top_k);
    }
    print_message("%d cases, %d of them greedy, %d draws on a border\n", n_cases, n_greedy, n_borders);
    assert_true(n_borders < 10 && n_greedy > 400);
    calla_sampler_scratch_free(&scratch);
}

/* ---- distributions ------------------------------------------------------------ */

static void test_frequencies_follow_the_probabilities(void **unused) {
    (void)unused;
    enum { N = 12, DRAWS = 60000 };
    float logits[N];
    int seen[N] = { 0 };
    double p[N], sum = 0, chi = 0;
    struct calla_sampler_scratch *scratch;
    struct calla_sampling c = plain();
    c.seed = 4711;
    c.temperature = 0.7f;
    print_message("seed %llu\n", (unsigned long long)c.seed);
    assert_int_equal(calla_sampler_scratch_new(&scratch, N, NULL), 0);
    for (int i = 0; i < N; i++) logits[i] = (float)((i * 7) % N) * 0.25f;
    for (int i = 0; i < N; i++) sum += p[i] = exp((double)logits[i] / (double)c.temperature);
    for (int pos = 0; pos < DRAWS; pos++) {
        struct calla_sampler s = { .sampling = &c, .pos = pos };
        int32_t id;
        assert_int_equal(calla_sample(scratch, &s, logits, N, &id, NULL), 0);
        seen[id]++;
    }
    for (int i = 0; i < N; i++) {
        const double want = p[i] / sum * DRAWS;
        chi += (seen[i] - want) * (seen[i] - want) / want;
    }
    print_message("chi square %.2f with %d degrees of freedom\n", chi, N - 1);
    assert_true(chi < 31.3);                       /* p = 0.001 for 11                 */
    calla_sampler_scratch_free(&scratch);
}

static int32_t take(struct calla_sampling c, const float *logits, int n, int pos) {
    struct calla_sampler_scratch *scratch;
    struct calla_sampler s = { .sampling = &c, .pos = pos };
    int32_t id = -1;
    assert_int_equal(calla_sampler_scratch_new(&scratch, n, NULL), 0);
    assert_int_equal(calla_sample(scratch, &s, logits, n, &id, NULL), 0);
    calla_sampler_scratch_free(&scratch);
    return id;
}

static void test_a_seed_repeats_and_positions_differ(void **unused) {
    (void)unused;
    float logits[64] = { 0 };
    struct calla_sampling a = plain(), b = plain();
    int same = 0;
    b.seed = (uint64_t)1 << 32 | 1;                /* differs in the high word only    */
    for (int pos = 0; pos < 200; pos++) {
        assert_int_equal(take(a, logits, 64, pos), take(a, logits, 64, pos));
        same += take(a, logits, 64, pos) == take(b, logits, 64, pos);
    }
    assert_true(same < 20);                        /* 200 / 64 expected                 */
    /* u = (r + 0.5) / 2^32 of Philox, flat logits: id = floor(64 u). */
    uint32_t r[4];
    calla_rng_block(r, 1, 0, 5);
    assert_int_equal(take(a, logits, 64, 5), r[0] >> 26);
}

static void test_ties_go_to_the_lower_id(void **unused) {
    (void)unused;
    const float logits[6] = { 1, 3, 3, 2, 3, -0.0f };
    const float zeros[3] = { -0.0f, 0.0f, -0.0f };
    struct calla_sampling c = plain();
    int32_t top[6];
    c.temperature = 0;
    assert_int_equal(take(c, logits, 6, 0), 1);
    assert_int_equal(take(c, zeros, 3, 0), 0);
    c.temperature = 1;
    c.top_k = 1;
    for (int pos = 0; pos < 50; pos++) assert_int_equal(take(c, logits, 6, pos), 1);
    c.top_k = 2;
    for (int pos = 0; pos < 50; pos++) assert_true(take(c, logits, 6, pos) != 4);
    assert_int_equal(calla_top_ids(logits, 6, 6, top), 6);
    assert_memory_equal(top, ((int32_t[]){ 1, 2, 4, 3, 0, 5 }), sizeof top);
    assert_int_equal(calla_top_ids(zeros, 3, 2, top), 2);
    assert_true(top[0] == 0 && top[1] == 1);
}

/* UR57: the penalties count the answer, repetition counts both. */
static void test_presence_and_frequency_spare_the_prompt(void **unused) {
    (void)unused;
    float logits[16] = { 0 };
    struct calla_sampling c = plain();
    struct calla_sampler_scratch *scratch;
    int32_t ids[2] = { 7, 7 }, id;
    assert_int_equal(calla_sampler_scratch_new(&scratch, 16, NULL), 0);
    c.temperature = 0;
    c.presence_penalty = 2;
    logits[7] = 1.5f;
    struct calla_sampler s = { .sampling = &c, .ids = ids, .n_ids = 1, .n_prompt = 1, .pos = 1 };
    assert_int_equal(calla_sample(scratch, &s, logits, 16, &id, NULL), 0);
    assert_int_equal(id, 7);                       /* in the prompt only                */
    s.n_ids = 2;
    assert_int_equal(calla_sample(scratch, &s, logits, 16, &id, NULL), 0);
    assert_int_equal(id, 0);                       /* 1.5 - 2 < 0                       */
    logits[7] = 2.5f;
    assert_int_equal(calla_sample(scratch, &s, logits, 16, &id, NULL), 0);
    assert_int_equal(id, 7);                       /* by exactly 2                      */
    /* Order: 3 / 2 (repetition) - 1 = 0.5 wins over 0.4; (3 - 1) / 2 = 1 would win over 0.9 too. */
    c = plain();
    c.temperature = 0;
    c.repetition_penalty = 2;
    c.presence_penalty = 1;
    logits[7] = 3;
    logits[0] = 0.9f;
    assert_int_equal(calla_sample(scratch, &s, logits, 16, &id, NULL), 0);
    assert_int_equal(id, 0);
    logits[0] = 0.4f;
    assert_int_equal(calla_sample(scratch, &s, logits, 16, &id, NULL), 0);
    assert_int_equal(id, 7);
    calla_sampler_scratch_free(&scratch);
}

static void test_bias_forces_and_bans(void **unused) {
    (void)unused;
    float logits[40];
    for (int i = 0; i < 40; i++) logits[i] = (float)(i % 9);
    struct calla_logit_bias bias[2] = { { 17, 100 }, { 39, -100 } };
    struct calla_sampling c = plain();
    c.bias = bias;
    c.n_bias = 2;
    for (int pos = 0; pos < 100; pos++) assert_int_equal(take(c, logits, 40, pos), 17);
    bias[0].bias = -INFINITY;
    bias[1] = (struct calla_logit_bias){ 8, -INFINITY };
    for (int pos = 0; pos < 500; pos++) assert_true(take(c, logits, 40, pos) != 17 && take(c, logits, 40, pos) != 8);
    bias[0] = (struct calla_logit_bias){ 4000, 100 };   /* past the usable ids: no effect, no fault */
    for (int pos = 0; pos < 20; pos++) take(c, logits, 40, pos);
}

static void test_min_p_and_top_p_keep_at_least_one(void **unused) {
    (void)unused;
    float logits[10] = { 0 };
    struct calla_sampling c = plain();
    logits[4] = 2;                                  /* e^-2 = 0.135 of the best         */
    c.min_p = 0.14f;
    for (int pos = 0; pos < 100; pos++) assert_int_equal(take(c, logits, 10, pos), 4);
    c.min_p = 0.13f;
    int other = 0;
    for (int pos = 0; pos < 100; pos++) other += take(c, logits, 10, pos) != 4;
    assert_true(other > 20);
    const float flat[4] = { 0 };
    c = plain();
    c.top_p = 0.5f;                                 /* reached exactly by two of four   */
    int seen = 0;
    for (int pos = 0; pos < 100; pos++) seen |= 1 << take(c, flat, 4, pos);
    assert_int_equal(seen, 3);
    c = plain();
    c.top_p = 0;
    for (int pos = 0; pos < 100; pos++) assert_int_equal(take(c, logits, 10, pos), 4);
    c.min_p = 1;
    for (int pos = 0; pos < 100; pos++) assert_int_equal(take(c, logits, 10, pos), 4);
}

/* UR53: what is not a number ends the request. */
static void test_a_logit_that_is_no_number_is_refused(void **unused) {
    (void)unused;
    float logits[100] = { 0 };
    struct calla_sampling c = plain();
    struct calla_sampler s = { .sampling = &c };
    struct calla_sampler_scratch *scratch;
    struct calla_err err;
    int32_t id;
    assert_int_equal(calla_sampler_scratch_new(&scratch, 100, NULL), 0);
    for (int greedy = 0; greedy < 2; greedy++) {
        c.temperature = greedy ? 0 : 1;
        logits[63] = NAN;
        assert_int_equal(calla_sample(scratch, &s, logits, 100, &id, &err), CALLA_ERR_NUMERIC);
        assert_non_null(strstr(err.message, "id 63"));
        logits[63] = INFINITY;
        assert_int_equal(calla_sample(scratch, &s, logits, 100, &id, &err), CALLA_ERR_NUMERIC);
        logits[63] = 0;
        assert_int_equal(calla_sample(scratch, &s, logits, 63, &id, &err), 0);
    }
    for (int i = 0; i < 100; i++) logits[i] = -INFINITY;
    assert_int_equal(calla_sample(scratch, &s, logits, 100, &id, &err), CALLA_ERR_NUMERIC);
    calla_sampler_scratch_free(&scratch);
}

static void test_a_large_vocabulary_is_not_sorted(void **unused) {
    (void)unused;
    enum { V = 248320 };
    float *logits = malloc(V * sizeof *logits);
    struct calla_sampler_scratch *scratch;
    assert_int_equal(calla_sampler_scratch_new(&scratch, V, NULL), 0);
    for (int i = 0; i < V; i++) logits[i] = (float)(4 * sqrt(-2 * log(calla_rng_unit(word(3, 0, (uint64_t)2 * i)))) *
                                                    cos(6.283185307 * calla_rng_unit(word(3, 0, (uint64_t)2 * i + 1))));
    static const struct { int top_k; float top_p; } kinds[] = { { 20, 0.95f }, { 0, 0.95f }, { 0, 1 }, { 5000, 1 } };
    for (int k = 0; k < 4; k++) {
        struct calla_sampling c = plain();
        c.top_k = kinds[k].top_k;
        c.top_p = kinds[k].top_p;
        int32_t id;
        const uint64_t t = calla_now_ns();
        for (int pos = 0; pos < 20; pos++) {
            struct calla_sampler s = { .sampling = &c, .pos = pos };
            assert_int_equal(calla_sample(scratch, &s, logits, V, &id, NULL), 0);
        }
        print_message("V %d, top_k %d, top_p %.2f: %.2f ms\n", V, c.top_k, (double)c.top_p, (double)(calla_now_ns() - t) / 20e6);
    }
    calla_sampler_scratch_free(&scratch);
    free(logits);
}

static void test_log_sum_exp(void **unused) {
    (void)unused;
    float logits[1000];
    double sum = 0;
    for (int i = 0; i < 1000; i++) sum += exp(logits[i] = (float)(i % 17) - 8);
    assert_true(fabs(calla_logsumexp(logits, 1000) - log(sum)) < 1e-12);
    for (int i = 0; i < 1000; i++) logits[i] += 4000;   /* no overflow */
    assert_true(fabs(calla_logsumexp(logits, 1000) - log(sum) - 4000) < 1e-9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_the_slow_sampler),
        cmocka_unit_test(test_frequencies_follow_the_probabilities),
        cmocka_unit_test(test_a_seed_repeats_and_positions_differ),
        cmocka_unit_test(test_ties_go_to_the_lower_id),
        cmocka_unit_test(test_presence_and_frequency_spare_the_prompt),
        cmocka_unit_test(test_bias_forces_and_bans),
        cmocka_unit_test(test_min_p_and_top_p_keep_at_least_one),
        cmocka_unit_test(test_a_logit_that_is_no_number_is_refused),
        cmocka_unit_test(test_a_large_vocabulary_is_not_sorted),
        cmocka_unit_test(test_log_sum_exp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
