/* kernels_vec.h - the float kernels, written once on sixteen lanes.
 *
 * Included by a kernels_<isa>.c after its vec_<isa>.h, with ISA(name) defined
 * as name_<isa>; everything is static.  The operations and their order are
 * those of kernels.c, so the bits are; widths that are not whole vectors end
 * in the scalar functions of math.h, which do the same operations. */
#ifndef CALLA_CPU_KERNELS_VEC_H
#define CALLA_CPU_KERNELS_VEC_H

#define INLINE static inline __attribute__((always_inline))

INLINE vec v_exp(vec x) {   /* cpu_exp */
    x = v_min(v_set1(CPU_EXP_HI), x);
    x = v_max(v_set1(CPU_EXP_LO), x);
    const vec t = v_fma(x, v_set1(CPU_EXP_LOG2E), v_set1(CPU_EXP_MAGIC)), n = v_sub(t, v_set1(CPU_EXP_MAGIC));
    const vec r = v_fma(n, v_set1(-CPU_EXP_LN2_LO), v_fma(n, v_set1(-CPU_EXP_LN2_HI), x));
    vec p = v_fma(v_set1(CPU_EXP_C5), r, v_set1(CPU_EXP_C4));
    p = v_fma(p, r, v_set1(CPU_EXP_C3));
    p = v_fma(p, r, v_set1(CPU_EXP_C2));
    p = v_fma(p, r, v_set1(CPU_EXP_C1));
    p = v_fma(p, r, v_set1(CPU_EXP_C0));
    return v_scale(v_add(v_fma(p, v_mul(r, r), r), v_set1(1.0f)), t);
}

INLINE vec v_one_plus_exp_neg(vec x) { return v_add(v_set1(1.0f), v_exp(v_neg(x))); }
INLINE vec v_sigmoid(vec x) { return v_div(v_set1(1.0f), v_one_plus_exp_neg(x)); }
INLINE vec v_silu(vec x) { return v_div(x, v_one_plus_exp_neg(x)); }

INLINE vec v_softplus(vec x) {   /* cpu_softplus; min(x, -x) and max(0, x) keep a NaN in x */
    const vec e = v_exp(v_min(v_neg(x), x)), z = v_div(e, v_add(v_set1(2.0f), e)), w = v_mul(z, z);
    vec p = v_fma(v_set1(1.0f / 17), w, v_set1(1.0f / 15));
    p = v_fma(p, w, v_set1(1.0f / 13));
    p = v_fma(p, w, v_set1(1.0f / 11));
    p = v_fma(p, w, v_set1(1.0f / 9));
    p = v_fma(p, w, v_set1(1.0f / 7));
    p = v_fma(p, w, v_set1(1.0f / 5));
    p = v_fma(p, w, v_set1(1.0f / 3));
    return v_add(v_max(v_set1(0.0f), x), v_mul(v_set1(2.0f), v_fma(v_mul(p, w), z, z)));
}

INLINE float v_dot(const float *x, const float *y, int n) {
    vec acc = v_set1(0.0f);
    for (int i = 0; i < n; i += CPU_LANES) acc = v_fma(v_load(x + i), v_load(y + i), acc);
    return v_fold(acc);
}

static void ISA(quantise)(struct cpu_acts *a, int row_idx, const float *x) {
    const size_t n_groups = (size_t)a->n_cols / CALLA_GROUP, row = (size_t)row_idx * n_groups;

    memcpy(a->x + row * CALLA_GROUP, x, (size_t)a->n_cols * sizeof *x);
    for (size_t g = 0; g < n_groups; g++, x += CALLA_GROUP) {
        int8_t *hi = a->hi + (row + g) * CALLA_GROUP, *lo = a->lo + (row + g) * CALLA_GROUP;
        vec top = v_set1(0.0f), nan = v_set1(0.0f), sum = v_set1(0.0f);
        float scale = 0.0f, inverse = 0.0f;

        for (int c = 0; c < CALLA_GROUP; c += CPU_LANES) {
            const vec u = v_load(x + c);
            top = v_max(v_abs(u), top);
            nan = v_fma(u, v_set1(0.0f), nan);   /* NaN as soon as one is not finite */
        }
        const float amax = v_fold_max(top), is_nan = v_fold(nan);
        if (is_nan != is_nan) scale = NAN;
        else if (amax >= CPU_ACT_TINY) { scale = amax / CPU_ACT_MAX; inverse = CPU_ACT_MAX / amax; }
        for (int c = 0; c < CALLA_GROUP; c += CPU_LANES) {
            const vec magic = v_set1(CPU_EXP_MAGIC);
            vec q = v_set1(0.0f);
            if (inverse > 0.0f) q = v_sub(v_add(v_mul(v_load(x + c), v_set1(inverse)), magic), magic);
            v_store_parts(hi + c, lo + c, q);
            sum = v_add(sum, q);   /* whole numbers below 2^24: exact in any order */
        }
        a->scale[row + g] = scale;
        a->sum[row + g] = scale * v_fold(sum);
    }
}

static void ISA(rmsnorm)(float *out, const float *x, const float *w, int n, float eps) {
    const vec r = v_set1(1.0f / sqrtf(v_dot(x, x, n) / (float)n + eps));
    for (int c = 0; c < n; c += CPU_LANES) v_store(out + c, v_mul(v_mul(v_load(x + c), r), v_load(w + c)));
}

static void ISA(add)(float *out, const float *x, const float *y, int n) {
    int c = 0;
    for (; c + CPU_LANES <= n; c += CPU_LANES) v_store(out + c, v_add(v_load(x + c), v_load(y + c)));
    for (; c < n; c++) out[c] = x[c] + y[c];
}

static void ISA(weighted_sum)(float *out, const float *const *y, const float *weight, int n_terms, int n) {
    int c = 0;
    for (; c + CPU_LANES <= n; c += CPU_LANES) {
        vec acc = v_set1(0.0f);
        for (int i = 0; i < n_terms; i++) acc = v_fma(v_set1(weight[i]), v_load(y[i] + c), acc);
        v_store(out + c, acc);
    }
    for (; c < n; c++) {
        float acc = 0.0f;
        for (int i = 0; i < n_terms; i++) acc = fmaf(weight[i], y[i][c], acc);
        out[c] = acc;
    }
}

static void ISA(silu_mul)(float *out, const float *gate, const float *up, int n) {
    int c = 0;
    for (; c + CPU_LANES <= n; c += CPU_LANES) v_store(out + c, v_mul(v_silu(v_load(gate + c)), v_load(up + c)));
    for (; c < n; c++) out[c] = cpu_silu(gate[c]) * up[c];
}

static void ISA(sigmoid_mul)(float *out, const float *x, const float *gate, int n) {
    int c = 0;
    for (; c + CPU_LANES <= n; c += CPU_LANES) v_store(out + c, v_mul(v_load(x + c), v_sigmoid(v_load(gate + c))));
    for (; c < n; c++) out[c] = x[c] * cpu_sigmoid(gate[c]);
}

static void ISA(conv)(float *out, const float *u0, const float *u1, const float *u2, const float *u3, const float *w,
                      size_t w_stride, int n) {
    const float *w1 = w + w_stride, *w2 = w1 + w_stride, *w3 = w2 + w_stride;
    int c = 0;
    for (; c + CPU_LANES <= n; c += CPU_LANES) {
        vec s = v_mul(v_load(w + c), v_load(u0 + c));
        s = v_fma(v_load(w1 + c), v_load(u1 + c), s);
        s = v_fma(v_load(w2 + c), v_load(u2 + c), s);
        s = v_fma(v_load(w3 + c), v_load(u3 + c), s);
        v_store(out + c, v_silu(s));
    }
    for (; c < n; c++) out[c] = cpu_silu(fmaf(w3[c], u3[c], fmaf(w2[c], u2[c], fmaf(w1[c], u1[c], w[c] * u0[c]))));
}

static void ISA(gdn_gates)(float *decay, float *beta, const float *a, const float *b, const float *neg_exp_a_log,
                           const float *dt_bias, int n_heads) {
    int h = 0;
    for (; h + CPU_LANES <= n_heads; h += CPU_LANES) {
        const vec s = v_softplus(v_add(v_load(a + h), v_load(dt_bias + h)));
        v_store(decay + h, v_exp(v_mul(v_load(neg_exp_a_log + h), s)));
        v_store(beta + h, v_sigmoid(v_load(b + h)));
    }
    for (; h < n_heads; h++) {
        decay[h] = cpu_exp(neg_exp_a_log[h] * cpu_softplus(a[h] + dt_bias[h]));
        beta[h] = cpu_sigmoid(b[h]);
    }
}

static void ISA(l2norm)(float *out, const float *x, float scale) {
    const vec r = v_set1(scale / sqrtf(v_dot(x, x, CALLA_RECUR) + 1e-6f));
    for (int c = 0; c < CALLA_RECUR; c += CPU_LANES) v_store(out + c, v_mul(v_load(x + c), r));
}

static void ISA(gated_norm)(float *out, const float *x, const float *z, const float *w, float eps) {
    const vec r = v_set1(1.0f / sqrtf(v_dot(x, x, CALLA_RECUR) / (float)CALLA_RECUR + eps));
    for (int c = 0; c < CALLA_RECUR; c += CPU_LANES)
        v_store(out + c, v_mul(v_mul(v_mul(v_load(x + c), r), v_load(w + c)), v_silu(v_load(z + c))));
}

static void ISA(rope)(float *x, const float *cos, const float *sin) {
    for (int i = 0; i < CALLA_ROTARY / 2; i += CPU_LANES) {
        const vec a = v_load(x + i), b = v_load(x + i + CALLA_ROTARY / 2), s = v_load(sin + i), c = v_load(cos + i);
        v_store(x + i, v_fma(a, c, v_neg(v_mul(b, s))));
        v_store(x + i + CALLA_ROTARY / 2, v_fma(b, c, v_mul(a, s)));
    }
}

static void ISA(store_k)(uint16_t *panel, int slot, const float *k) {
    for (int c = 0; c < CALLA_HEAD; c += CPU_LANES) {
        uint16_t h[CPU_LANES];
        v_store_bf16(h, v_load(k + c));
        for (int l = 0; l < CPU_LANES; l++) panel[(c + l) * CPU_PAGE + slot] = h[l];
    }
}

static void ISA(store_v)(uint16_t *panel, int slot, const float *v) {
    for (int c = 0; c < CALLA_HEAD; c += CPU_LANES) v_store_bf16(panel + slot * CALLA_HEAD + c, v_load(v + c));
}

static void ISA(attn_finish)(float *out, const float *acc, float l) {
    for (int c = 0; c < CALLA_HEAD; c += CPU_LANES) v_store(out + c, v_div(v_load(acc + c), v_set1(l)));
}

#define VEC_SLOTS .quantise = ISA(quantise), .rmsnorm = ISA(rmsnorm), .add = ISA(add), \
    .weighted_sum = ISA(weighted_sum), .silu_mul = ISA(silu_mul), .sigmoid_mul = ISA(sigmoid_mul), \
    .conv = ISA(conv), .gdn_gates = ISA(gdn_gates), .l2norm = ISA(l2norm), .gdn_scan = ISA(gdn_scan), \
    .gated_norm = ISA(gated_norm), .rope = ISA(rope), .store_k = ISA(store_k), .store_v = ISA(store_v), \
    .attn_page = ISA(attn_page), .attn_finish = ISA(attn_finish)

#include "cpu/kernels_vec_heads.h"

#endif
