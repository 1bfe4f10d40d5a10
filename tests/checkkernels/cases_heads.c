/* cases_heads.c - the delta rule, keys and values, attention over a page. */
#include "check.h"

#include <string.h>

enum { STATE = CALLA_RECUR * CALLA_RECUR, PANEL = CPU_PAGE * CALLA_HEAD, MAX_Q = 24 };

/* shape: rows, further floats between two rows */
static void run_gdn_scan(struct check *x, const int *s) {
    const size_t n = (size_t)s[0], gap = (size_t)s[1], qk = CALLA_RECUR + gap, vs = CALLA_RECUR + 2 * gap, gs = 1 + gap;
    const size_t n_qk = (n - 1) * qk + CALLA_RECUR, n_v = (n - 1) * vs + CALLA_RECUR, n_g = (n - 1) * gs + 1;
    float *q = floats(x, n_qk), *k = floats(x, n_qk);
    const float *v = floats(x, n_v);
    float *decay = floats(x, n_g), *beta = floats(x, n_g);
    float *s0 = floats(x, STATE), *s1 = copy_of(x, s0, STATE);
    float *o0 = buf(x, n_v * sizeof *o0), *o1 = buf(x, n_v * sizeof *o1);

    if (x->input == IN_RANDOM) {   /* as in the network: unit keys, gates in (0, 1) */
        for (size_t i = 0; i < n; i++) {
            x->c->l2norm(q + i * qk, q + i * qk, 0.08838834764f);
            x->c->l2norm(k + i * qk, k + i * qk, 1.0f);
            decay[i * gs] = cpu_exp(-fabsf(decay[i * gs]));
            beta[i * gs] = cpu_sigmoid(beta[i * gs]);
        }
    }
    x->c->gdn_scan(s0, q, k, qk, v, vs, decay, beta, gs, o0, vs, s[0]);
    x->k->gdn_scan(s1, q, k, qk, v, vs, decay, beta, gs, o1, vs, s[0]);
    same(x, "o", o0, o1, n_v);
    same(x, "state", s0, s1, STATE);
}

static bool gdn_scan_shape(int i, int *s, bool *all_inputs) {
    static const int n[][2] = { { 1, 0 }, { 1, 7 }, { 2, 0 }, { 3, 32 }, { 9, 0 }, { 64, 0 }, { 65, 3 }, { 130, 0 } };
    if (i >= (int)(sizeof n / sizeof *n)) return false;
    memcpy(s, n[i], sizeof n[i]);
    *all_inputs = n[i][0] < 64;
    return true;
}

static void run_store(struct check *x, const int *s) {
    uint16_t *k0 = buf(x, PANEL * 2), *k1 = buf(x, PANEL * 2), *v0 = buf(x, PANEL * 2), *v1 = buf(x, PANEL * 2);
    const float *in = floats(x, CALLA_HEAD);
    const int slot = s[0] == 0 ? 0 : s[0] == 1 ? CPU_PAGE - 1 : draw_below(x, CPU_PAGE);
    x->c->store_k(k0, slot, in);
    x->k->store_k(k1, slot, in);
    x->c->store_v(v0, slot, in);
    x->k->store_v(v1, slot, in);
    if (x->input != IN_NAN) {
        same_bytes(x, "key panel", k0, k1, PANEL * 2);
        same_bytes(x, "value panel", v0, v1, PANEL * 2);
        return;
    }
    for (int e = 0; e < PANEL; e++) {   /* a NaN's payload is free */
        const float a[2] = { cpu_from_bf16(k0[e]), cpu_from_bf16(v0[e]) }, b[2] = { cpu_from_bf16(k1[e]), cpu_from_bf16(v1[e]) };
        same(x, "key and value", a, b, 2);
    }
}

static bool store_shape(int i, int *s, bool *all_inputs) {
    (void)all_inputs;
    s[0] = i;
    return i < 6;
}

/* shape: queries, how many keys they see (0: all 64, 1: any, 2: a diagonal, 3: one), pages run before */
static void run_attn(struct check *x, const int *s) {
    const int n_q = s[0];
    const float *q[MAX_Q];
    float *acc0[MAX_Q], *acc1[MAX_Q], m0[MAX_Q], m1[MAX_Q], l0[MAX_Q], l1[MAX_Q];
    const float *all_q = floats(x, (size_t)n_q * CALLA_HEAD);
    float *a0 = buf(x, (size_t)n_q * CALLA_HEAD * sizeof *a0), *a1 = buf(x, (size_t)n_q * CALLA_HEAD * sizeof *a1);
    void *scratch = buf(x, (cpu_attn_scratch(n_q) + 63) / 64 * 64);

    for (int i = 0; i < n_q; i++) {
        q[i] = all_q + (size_t)i * CALLA_HEAD;
        acc0[i] = a0 + (size_t)i * CALLA_HEAD;
        acc1[i] = a1 + (size_t)i * CALLA_HEAD;
        m0[i] = m1[i] = -INFINITY;
        l0[i] = l1[i] = 0.0f;
        for (int c = 0; c < CALLA_HEAD; c++) acc0[i][c] = acc1[i][c] = 0.0f;
    }
    for (int page = 0; page <= s[2]; page++) {
        uint16_t *k = buf(x, PANEL * 2), *v = buf(x, PANEL * 2);
        int *n_keys = buf(x, (size_t)n_q * sizeof *n_keys), most = 0;
        for (int i = 0; i < n_q; i++) {
            const int diagonal = 60 - n_q + i;
            n_keys[i] = s[1] == 0 || page < s[2] ? CPU_PAGE : s[1] == 1 ? draw_below(x, CPU_PAGE + 1)
                      : s[1] == 2 ? (diagonal > 0 ? diagonal : 0) : 1;
            most = n_keys[i] > most ? n_keys[i] : most;
        }
        for (int e = 0; e < PANEL; e++) {   /* slots that nobody sees hold NaN */
            k[e] = e % CPU_PAGE < most ? cpu_to_bf16(draw_value(x) * 0.1f) : 0x7fff;
            v[e] = e / CALLA_HEAD < most ? cpu_to_bf16(draw_value(x)) : 0xffff;
        }
        x->c->attn_page(acc0, m0, l0, q, n_keys, n_q, k, v, scratch);
        x->k->attn_page(acc1, m1, l1, q, n_keys, n_q, k, v, scratch);
        same(x, "acc", a0, a1, (size_t)n_q * CALLA_HEAD);
        same(x, "m", m0, m1, (size_t)n_q);
        same(x, "l", l0, l1, (size_t)n_q);
    }
    float *o0 = buf(x, CALLA_HEAD * sizeof *o0), *o1 = buf(x, CALLA_HEAD * sizeof *o1);
    x->c->attn_finish(o0, acc0[n_q - 1], l0[n_q - 1]);
    x->k->attn_finish(o1, acc0[n_q - 1], l0[n_q - 1]);
    same(x, "out", o0, o1, CALLA_HEAD);
}

static bool attn_shape(int i, int *s, bool *all_inputs) {
    static const int n_q[] = { 1, 2, 3, 4, 5, 7, 8, 9, 16, 23 };
    enum { N = sizeof n_q / sizeof *n_q };
    if (i >= N * 4) return false;
    s[0] = n_q[i % N];
    s[1] = i / N;
    s[2] = i % 3;
    *all_inputs = s[0] <= 5 || i % 4 == 0;
    return true;
}

const struct kernel_case head_cases[] = {
    { "gdn_scan", run_gdn_scan, gdn_scan_shape },
    { "store", run_store, store_shape },
    { "attn_page", run_attn, attn_shape },
    { 0 },
};
