/* cases_vector.c - element-wise kernels and norms. */
#include "check.h"

#include <string.h>

/* Lengths around each vector width. */
static bool any_length(int i, int *s, bool *all_inputs) {
    static const int n[] = { 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 127, 512, 2048, 2049 };
    (void)all_inputs;
    if (i >= (int)(sizeof n / sizeof *n)) return false;
    s[0] = n[i];
    return true;
}

static bool whole_vectors(int i, int *s, bool *all_inputs) {
    static const int n[] = { 16, 32, 48, 64, 128, 256, 272, 2048 };
    (void)all_inputs;
    if (i >= (int)(sizeof n / sizeof *n)) return false;
    s[0] = n[i];
    return true;
}

static bool one_shape(int i, int *s, bool *all_inputs) {
    (void)all_inputs;
    s[0] = i;      /* a few draws of the only shape there is */
    return i < 4;
}

static void run_rmsnorm(struct check *x, const int *s) {
    const size_t n = (size_t)s[0];
    const float *in = floats(x, n), *w = floats(x, n);
    float *a = buf(x, n * sizeof *a), *b = buf(x, n * sizeof *b);
    x->c->rmsnorm(a, in, w, s[0], 1e-6f);
    x->k->rmsnorm(b, in, w, s[0], 1e-6f);
    same(x, "out", a, b, n);
    float *in_place = copy_of(x, in, n);
    x->k->rmsnorm(in_place, in_place, w, s[0], 1e-6f);
    same(x, "in place", a, in_place, n);
}

static void run_add(struct check *x, const int *s) {
    const size_t n = (size_t)s[0];
    const float *p = floats(x, n), *q = floats(x, n);
    float *a = buf(x, n * sizeof *a), *b = copy_of(x, p, n);
    x->c->add(a, p, q, s[0]);
    x->k->add(b, b, q, s[0]);
    same(x, "out", a, b, n);
}

static void run_weighted_sum(struct check *x, const int *s) {
    const size_t n = (size_t)s[0];
    for (int n_terms = 0; n_terms <= 9; n_terms += 3) {
        const float *y[9];
        const float *weight = floats(x, 9);
        for (int i = 0; i < n_terms; i++) y[i] = floats(x, n);
        float *a = buf(x, n * sizeof *a), *b = buf(x, n * sizeof *b);
        x->c->weighted_sum(a, y, weight, n_terms, s[0]);
        x->k->weighted_sum(b, y, weight, n_terms, s[0]);
        same(x, "out", a, b, n);
    }
}

static void run_silu_mul(struct check *x, const int *s) {
    const size_t n = (size_t)s[0];
    const float *p = floats(x, n), *q = floats(x, n);
    float *a = buf(x, n * sizeof *a), *b = buf(x, n * sizeof *b);
    x->c->silu_mul(a, p, q, s[0]);
    x->k->silu_mul(b, p, q, s[0]);
    same(x, "out", a, b, n);
}

static void run_sigmoid_mul(struct check *x, const int *s) {
    const size_t n = (size_t)s[0];
    const float *p = floats(x, n), *q = floats(x, n);
    float *a = buf(x, n * sizeof *a), *b = buf(x, n * sizeof *b);
    x->c->sigmoid_mul(a, p, q, s[0]);
    x->k->sigmoid_mul(b, p, q, s[0]);
    same(x, "out", a, b, n);
}

/* silu over every exponent, also far outside what a network produces */
static void run_exp_range(struct check *x, const int *s) {
    const size_t n = (size_t)s[0];
    float *p = buf(x, n * sizeof *p), *q = buf(x, n * sizeof *q);
    for (size_t i = 0; i < n; i++) {
        p[i] = x->input == IN_RANDOM ? draw_unit(x) * 130.0f : cpu_float((uint32_t)draw(x));
        q[i] = 1.0f;
    }
    float *a = buf(x, n * sizeof *a), *b = buf(x, n * sizeof *b);
    x->c->silu_mul(a, p, q, s[0]);
    x->k->silu_mul(b, p, q, s[0]);
    same(x, "silu", a, b, n);
}

static void run_conv(struct check *x, const int *s) {
    const size_t n = (size_t)s[0], stride = n + (size_t)draw_below(x, 9);
    const float *u0 = floats(x, n), *u1 = floats(x, n), *u2 = floats(x, n), *u3 = floats(x, n);
    const float *w = floats(x, 3 * stride + n);
    float *a = buf(x, n * sizeof *a), *b = buf(x, n * sizeof *b);
    x->c->conv(a, u0, u1, u2, u3, w, stride, s[0]);
    x->k->conv(b, u0, u1, u2, u3, w, stride, s[0]);
    same(x, "out", a, b, n);
}

static void run_gdn_gates(struct check *x, const int *s) {
    const size_t n = (size_t)s[0];
    const float *p = floats(x, n), *q = floats(x, n), *na = floats(x, n), *dt = floats(x, n);
    float *a = buf(x, n * sizeof *a), *b = buf(x, n * sizeof *b), *c = buf(x, n * sizeof *c), *d = buf(x, n * sizeof *d);
    x->c->gdn_gates(a, b, p, q, na, dt, s[0]);
    x->k->gdn_gates(c, d, p, q, na, dt, s[0]);
    same(x, "decay", a, c, n);
    same(x, "beta", b, d, n);
}

static void run_l2norm(struct check *x, const int *s) {
    const float *in = floats(x, CALLA_RECUR);
    float *a = buf(x, CALLA_RECUR * sizeof *a), *b = copy_of(x, in, CALLA_RECUR);
    (void)s;
    x->c->l2norm(a, in, 0.08838834764f);
    x->k->l2norm(b, b, 0.08838834764f);
    same(x, "out", a, b, CALLA_RECUR);
}

static void run_gated_norm(struct check *x, const int *s) {
    const float *in = floats(x, CALLA_RECUR), *z = floats(x, CALLA_RECUR), *w = floats(x, CALLA_RECUR);
    float *a = buf(x, CALLA_RECUR * sizeof *a), *b = buf(x, CALLA_RECUR * sizeof *b);
    (void)s;
    x->c->gated_norm(a, in, z, w, 1e-6f);
    x->k->gated_norm(b, in, z, w, 1e-6f);
    same(x, "out", a, b, CALLA_RECUR);
}

static void run_rope(struct check *x, const int *s) {
    const float *co = floats(x, CALLA_ROTARY / 2), *si = floats(x, CALLA_ROTARY / 2);
    float *a = floats(x, CALLA_HEAD), *b = copy_of(x, a, CALLA_HEAD);
    (void)s;
    x->c->rope(a, co, si);
    x->k->rope(b, co, si);
    same(x, "x", a, b, CALLA_HEAD);
}

const struct kernel_case vector_cases[] = {
    { "rmsnorm", run_rmsnorm, whole_vectors },
    { "add", run_add, any_length },
    { "weighted_sum", run_weighted_sum, any_length },
    { "silu_mul", run_silu_mul, any_length },
    { "sigmoid_mul", run_sigmoid_mul, any_length },
    { "exp", run_exp_range, any_length },
    { "conv", run_conv, any_length },
    { "gdn_gates", run_gdn_gates, any_length },
    { "l2norm", run_l2norm, one_shape },
    { "gated_norm", run_gated_norm, one_shape },
    { "rope", run_rope, one_shape },
    { 0 },
};
