/* prompts.c - golden prompts: best ids, last rows, greedy ids. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runner.h"

/* Below this difference to the second best, fp32 implementations may disagree. */
#define MARGIN 1e-3

static int best_of(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

struct agreement { int n_clear, n_equal; double last_row, top; };

/* All prompts of one checkpoint together. */
struct total { int n_clear, n_equal, n_compared; double kl; };

static void add(struct total *t, const struct agreement *a) {
    t->n_clear += a->n_clear;
    t->n_equal += a->n_equal;
}

static void check_total(struct plan *p, const char *what, const struct total *t, double mean_kl) {
    check(p, t->n_clear > 0 && t->n_equal >= p->runner->best_share * t->n_clear, "%s: %d of %d clear best ids, %.2f %% needed", what,
          t->n_equal, t->n_clear, 100 * p->runner->best_share);
    if (mean_kl > 0)
        check(p, t->n_compared > 0 && t->kl <= mean_kl * t->n_compared, "%s: mean KL %.1e to the reference over %d positions", what,
              t->kl / t->n_compared, t->n_compared);
}

static double log_sum(const float *x, int n) {
    double most = (double)x[0], sum = 0.0;
    for (int i = 1; i < n; i++) most = fmax(most, (double)x[i]);
    for (int i = 0; i < n; i++) sum += exp((double)x[i] - most);
    return most + log(sum);
}

/* The reference on the same ids: sum of KL(reference || runner) over the rows. */
static void add_kl(struct plan *p, struct total *t, const struct calla_weights *w, const int32_t *ids, int n, const float *logits, int n_usable) {
    if (p->runner->mean_kl == 0) return;
    const size_t v = (size_t)w->shape->n_vocab;
    float *want = fixture_alloc((size_t)n * v, sizeof *want);
    void *run = runner_reference.open(w, n);
    runner_reference.feed(run, ids, n, want, NULL);
    for (int r = 0; r < n; r++) {
        const float *x = want + (size_t)r * v, *y = logits + (size_t)r * v;
        const double x_all = log_sum(x, n_usable), y_all = log_sum(y, n_usable);
        for (int i = 0; i < n_usable; i++) t->kl += exp((double)x[i] - x_all) * ((double)x[i] - x_all - (double)y[i] + y_all);
    }
    t->n_compared += n;
    runner_reference.close(run);
    free(want);
}

/* top8: one list of [id, logit] for every row of logits */
static void compare_row(struct agreement *a, struct json_object *top8, const float *logits, int n_usable) {
    int ids[8];
    double values[8];
    for (size_t i = 0; i < 8; i++) {
        struct json_object *pair = json_object_array_get_idx(top8, i);
        ids[i] = json_object_get_int(json_object_array_get_idx(pair, 0));
        values[i] = json_object_get_double(json_object_array_get_idx(pair, 1));
        a->top = fmax(a->top, fabs(values[i] - (double)logits[ids[i]]));
    }
    if (values[0] - values[1] <= MARGIN) return;
    a->n_clear++;
    a->n_equal += best_of(logits, n_usable) == ids[0];
}

static double largest_difference(struct json_object *want, const float *got) {
    int n;
    float *v = fixture_floats(want, &n);
    double most = 0.0;
    for (int i = 0; i < n; i++) {
        const double d = fabs((double)v[i] - (double)got[i]);
        if (!(d <= most)) most = d;      /* a NaN stays */
    }
    free(v);
    return most;
}

/* Feeds the golden ids and compares what follows each, where it is clear. */
static void compare_greedy(struct plan *p, void *run, const char *what, struct json_object *golden,
                           struct json_object *margins, int first, int n_vocab, int n_usable) {
    int n, n_clear = 0, n_equal = 0, id = first;
    int32_t *ids = fixture_ids(golden, &n);
    float *logits = fixture_alloc((size_t)n_vocab, sizeof *logits);
    for (int i = 0; i < n; i++) {
        if (json_object_get_double(json_object_array_get_idx(margins, (size_t)i)) > MARGIN) {
            n_clear++;
            n_equal += id == ids[i];
        }
        if (i + 1 == n) break;
        p->runner->feed(run, &ids[i], 1, logits, NULL);
        id = best_of(logits, n_usable);
    }
    check(p, n_clear > 0 && n_equal == n_clear, "%s: %d of %d clear greedy ids", what, n_equal, n_clear);
    free(logits);
    free(ids);
}

/* The cases of tiny.json of min_ids to max_ids; greedy after those up to max_greedy. */
static void run_tiny(struct plan *p, const char *what, const struct calla_weights *w, int min_ids, int max_ids, int max_greedy) {
    struct json_object *golden = fixture_json(p->data, "tiny.json"), *cases = fixture_get(golden, "cases");
    const int n_vocab = w->shape->n_vocab, n_usable = 1024;
    void *run = p->runner->open(w, max_ids + 32);
    struct total total = { 0 };
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *c = json_object_array_get_idx(cases, i);
        struct agreement a = { 0 };
        char name[64];
        int n;
        int32_t *ids = fixture_ids(fixture_get(c, "ids"), &n);
        if (n >= min_ids && n <= max_ids) {
            float *logits = fixture_alloc((size_t)n * (size_t)n_vocab, sizeof *logits), *last = logits + (size_t)(n - 1) * (size_t)n_vocab;
            snprintf(name, sizeof name, "%s, %d ids", what, n);
            p->runner->restart(run);
            p->runner->feed(run, ids, n, logits, NULL);
            for (int t = 0; t < n; t++)
                compare_row(&a, json_object_array_get_idx(fixture_get(c, "top8"), (size_t)t), logits + (size_t)t * (size_t)n_vocab, n_usable);
            a.last_row = largest_difference(fixture_get(c, "last_logits"), last);
            check(p, a.last_row <= p->runner->last_row, "%s: %d of %d clear best ids, last row within %.1e, top 8 within %.1e", name,
                  a.n_equal, a.n_clear, a.last_row, a.top);
            add(&total, &a);
            if (n <= 300) add_kl(p, &total, w, ids, n, logits, n_usable);
            if (n <= max_greedy)
                compare_greedy(p, run, name, fixture_get(c, "greedy32"), fixture_get(c, "greedy_margin"), best_of(last, n_usable), n_vocab, n_usable);
            free(logits);
        }
        free(ids);
    }
    check_total(p, what, &total, p->runner->mean_kl);
    p->runner->close(run);
    json_object_put(golden);
}

void golden_tiny(struct plan *p) {
    struct calla_weights *w = open_tiny(p, "mlx", 0);
    /* 2,100 ids take the reference longer than all else here: golden_tiny_long has them. */
    run_tiny(p, "tiny mlx", w, 1, p->runner == &runner_reference ? 300 : 2100, 2100);
    calla_weights_close(&w);
    /* The same weights a second time (golden_layouts compares them bit by bit): short prompts show that they are used alike. */
    w = open_tiny(p, "hf", 4);
    run_tiny(p, "tiny hf, quantised", w, 1, 130, 2);
    calla_weights_close(&w);
    w = open_tiny(p, "hf", 0);
    run_tiny(p, "tiny hf, bf16", w, 1, 130, 2);
    calla_weights_close(&w);
}

void golden_tiny_short(struct plan *p) {
    struct calla_weights *w = open_tiny(p, "mlx", 0);
    run_tiny(p, "tiny mlx", w, 1, 65, 2);
    calla_weights_close(&w);
    w = open_tiny(p, "hf", 4);
    run_tiny(p, "tiny hf, quantised", w, 1, 63, 0);
    calla_weights_close(&w);
}

void golden_tiny_long(struct plan *p) {
    struct calla_weights *w = open_tiny(p, "mlx", 0);
    run_tiny(p, "tiny mlx", w, 2100, 2100, 2100);
    calla_weights_close(&w);
    w = open_tiny(p, "hf", 4);
    run_tiny(p, "tiny hf, quantised", w, 300, 2100, 2100);
    calla_weights_close(&w);
    w = open_tiny(p, "hf", 0);
    run_tiny(p, "tiny hf, bf16", w, 300, 300, 300);
    calla_weights_close(&w);
}

void golden_long(struct plan *p) {
    struct json_object *golden = fixture_json(p->data, "tiny_long.json"), *cases = fixture_get(golden, "cases");
    struct calla_weights *w = open_tiny(p, "mlx", 0);
    const size_t n_vocab = (size_t)w->shape->n_vocab;
    struct total total = { 0 };
    const size_t n_cases = p->runner == &runner_reference ? 1 : json_object_array_length(cases);   /* two minutes each */
    for (size_t i = 0; i < n_cases; i++) {
        struct json_object *c = json_object_array_get_idx(cases, i), *at = fixture_get(c, "positions"), *last = fixture_get(c, "last_rows");
        struct agreement a = { 0 };
        int n;
        int32_t *ids = fixture_ids(fixture_get(c, "ids"), &n);
        float *logits = fixture_alloc((size_t)n * n_vocab, sizeof *logits);
        void *run = p->runner->open(w, n);
        p->runner->feed(run, ids, n, logits, NULL);
        for (size_t j = 0; j < json_object_array_length(at); j++)
            compare_row(&a, json_object_array_get_idx(fixture_get(c, "top8"), j),
                        logits + (size_t)json_object_get_int(json_object_array_get_idx(at, j)) * n_vocab, 1024);
        const size_t n_last = json_object_array_length(last);
        for (size_t j = 0; j < n_last; j++)
            a.last_row = fmax(a.last_row, largest_difference(json_object_array_get_idx(last, j), logits + ((size_t)n - n_last + j) * n_vocab));
        add(&total, &a);
        check(p, a.last_row <= p->runner->last_row_long,
              "tiny mlx, %d ids (%s): %d of %d clear best ids, last rows within %.1e, top 8 within %.1e", n,
              json_object_get_string(fixture_get(c, "kind")), a.n_equal, a.n_clear, a.last_row, a.top);
        p->runner->close(run);
        free(logits);
        free(ids);
    }
    check(p, total.n_equal >= p->runner->best_share * total.n_clear, "tiny mlx, 8192 ids: %d of %d clear best ids", total.n_equal, total.n_clear);
    calla_weights_close(&w);
    json_object_put(golden);
}

void golden_demo(struct plan *p) {
    struct json_object *golden = fixture_json(p->data, "demo.json"), *cases = fixture_get(golden, "cases");
    struct calla_weights *w = open_folder(p->demo, 0);
    const int n_vocab = w->shape->n_vocab;
    void *run = p->runner->open(w, 1024);
    struct total total = { 0 };
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *c = json_object_array_get_idx(cases, i);
        struct agreement a = { 0 };
        char name[64];
        int n;
        int32_t *ids = fixture_ids(fixture_get(c, "ids"), &n);
        float *logits = fixture_alloc((size_t)n * (size_t)n_vocab, sizeof *logits), *last = logits + (size_t)(n - 1) * (size_t)n_vocab;
        snprintf(name, sizeof name, "demo, %s", json_object_get_string(fixture_get(c, "name")));
        p->runner->restart(run);
        p->runner->feed(run, ids, n, logits, NULL);
        for (int t = 0; t < n; t++)
            compare_row(&a, json_object_array_get_idx(fixture_get(c, "top8"), (size_t)t), logits + (size_t)t * (size_t)n_vocab, n_vocab);
        a.last_row = largest_difference(fixture_get(c, "last_logits"), last);
        add(&total, &a);
        add_kl(p, &total, w, ids, n, logits, n_vocab);
        check(p, a.last_row <= p->runner->last_row_demo, "%s: %d of %d clear best ids, last row within %.1e, top 8 within %.1e", name, a.n_equal, a.n_clear, a.last_row, a.top);
        compare_greedy(p, run, name, fixture_get(c, "greedy"), fixture_get(c, "greedy_margin"), best_of(last, n_vocab), n_vocab, n_vocab);
        free(logits);
        free(ids);
    }
    check_total(p, "demo", &total, p->runner->mean_kl_demo);
    p->runner->close(run);
    calla_weights_close(&w);
    json_object_put(golden);
}
