/* kernels.h - the kernel table: the seam inside the CPU backend.
 *
 * kernels.c fills every slot with portable C, which is the specification; the
 * files of the instruction sets overwrite slots they do better.  Every kernel
 * is defined on sixteen lanes with written fused multiply-adds and one order of
 * sums, so that all instruction sets give the same bits as the C, and a row's
 * result does not depend on the other rows of the call.
 *
 * Sums over a vector: lane l adds elements l, l + 16, ... in ascending order,
 * starting from 0 (acc = fma(a, b, acc)); then lanes are folded as
 * l += l + 8, l += l + 4, l += l + 2, l += l + 1.
 *
 * exp is cpu_exp (math.h of this folder): range reduction by ln 2 in two parts,
 * a polynomial, within 1.1 ulp; the same operations in every instruction set.
 * sigmoid(x) = 1 / (1 + exp(-x)), silu(x) = x * sigmoid(x) = x / (1 + exp(-x)).
 * NaN in gives NaN out; for finite inputs nothing else is NaN unless a sum
 * overflows.  Bits are equal up to the payload of a NaN.  Pointers need no more
 * alignment than their type, but for the matrices' blocks and the scratch. */
#ifndef CALLA_CPU_KERNELS_H
#define CALLA_CPU_KERNELS_H

#include "cpu/packed.h"

enum { CPU_PAGE = 64 };           /* positions in a page of keys and values   */

struct cpu_kernels {
    const char *name;             /* "c", "avx2", "avx512", "avx512-vnni", "neon", "neon-i8mm" */

    /* One row: acts row_idx of *a is filled from x [n_cols] (see packed.h);
     * round to nearest even. */
    void (*quantise)(struct cpu_acts *a, int row_idx, const float *x);

    /* y[i * y_stride + r] = sum over c of W[r, c] * x[rows[i], c]
     * for i < n and the rows r of row blocks [block0, block1); r past
     * W->n_rows is not written.  rows NULL: 0 .. n-1.
     * Q4, Q8: with s, b of row r and group g, and I the exact integer sum of
     *     q * (256 hi + lo) over the group,
     *     acc = fma(f32(I), s * scale[g], acc); acc = fma(b, sum[g], acc)
     * for g ascending, acc from 0.  BF16, F32: acc = fma(w, x, acc) for c
     * ascending.  Every weight block is unpacked once a call, however many
     * rows; returns the number of blocks unpacked (0 for n = 0).  scratch: cpu_matmul_scratch
     * bytes, 64-byte aligned, of the calling thread. */
    uint64_t (*matmul[CPU_N_FORMATS])(float *y, size_t y_stride, const struct cpu_matrix *w, int block0, int block1,
                                      const struct cpu_acts *a, const int32_t *rows, int n, void *scratch);

    /* out[c] = x[c] * r * w[c], r = 1 / sqrt(sum(x^2) / n + eps); (x * r) * w.  n a multiple of 16. */
    void (*rmsnorm)(float *out, const float *x, const float *w, int n, float eps);

    /* out[c] = x[c] + y[c] */
    void (*add)(float *out, const float *x, const float *y, int n);

    /* out[c] = sum over i < n_terms of weight[i] * y[i][c], i ascending, fma from 0.   */
    void (*weighted_sum)(float *out, const float *const *y, const float *weight, int n_terms, int n);

    /* out[c] = silu(gate[c]) * up[c] */
    void (*silu_mul)(float *out, const float *gate, const float *up, int n);

    /* out[c] = x[c] * sigmoid(gate[c]) */
    void (*sigmoid_mul)(float *out, const float *x, const float *gate, int n);

    /* One row of the convolution, channels [0, n): u0..u2 the three rows before, oldest first, u3 this one;
     * s = w[c][0] u0; s = fma(w[c][j], uj, s); out = silu(s).   w is [4][n] here (repacked by tap). */
    void (*conv)(float *out, const float *u0, const float *u1, const float *u2, const float *u3,
                 const float *w, size_t w_stride, int n);

    /* decay[h] = exp(-exp(a_log[h]) * softplus(a[h] + dt_bias[h])), beta[h] = sigmoid(b[h]);
     * softplus is cpu_softplus, good to 3 ulp everywhere.  neg_exp_a_log[h] = -exp(a_log[h]) is given. */
    void (*gdn_gates)(float *decay, float *beta, const float *a, const float *b,
                      const float *neg_exp_a_log, const float *dt_bias, int n_heads);

    /* out = x * (scale / sqrt(sum(x^2) + 1e-6)), 128 wide */
    void (*l2norm)(float *out, const float *x, float scale);

    /* The delta rule of one value head over n_rows rows (docs/model.md, "Gated DeltaNet"):
     * s [128 key][128 value] is read and written; q, k, v, o row i at q + i * q_stride ...; decay, beta row i at
     * decay[i * gate_stride].  With P = k^T s and R = q^T s (each value column: fma over key rows ascending from 0),
     * kq = sum(k * q):  d = beta * (v - decay * P);  o = fma(kq, d, decay * R);  s = fma(k, d, decay * s).
     * v - decay * P is fma(-decay, P, v). */
    void (*gdn_scan)(float *s, const float *q, const float *k, size_t qk_stride, const float *v, size_t v_stride,
                     const float *decay, const float *beta, size_t gate_stride, float *o, size_t o_stride, int n_rows);

    /* One head: out = x * r * w * silu(z), r as in rmsnorm over 128; ((x * r) * w) * silu(z). */
    void (*gated_norm)(float *out, const float *x, const float *z, const float *w, float eps);

    /* One head of 256, after its norm: the first 64 dims rotate in pairs (i, i + 32) by cos, sin [32]:
     * y_i = fma(x_i, cos, -(x_{i+32} * sin)), y_{i+32} = fma(x_{i+32}, cos, x_i * sin).  In place. */
    void (*rope)(float *x, const float *cos, const float *sin);

    /* f32 -> bf16, nearest even; k goes to column `slot` of a page's [256][64] bf16 key panel. */
    void (*store_k)(uint16_t *panel, int slot, const float *k);
    void (*store_v)(uint16_t *panel, int slot, const float *v);   /* row `slot` of a page's [64][256] value panel */

    /* Attention of n_q query rows that share a kv head, over one page, as an online softmax.
     * q[i] [256] is already scaled by 1/16.  Row i sees the first n_keys[i] slots of the page (0..64).
     * Scores: fma over dims ascending from 0.  With m the row's running maximum, l its running sum, acc [256]:
     *     m' = max(m, max of the visible scores); c = exp(m - m'); p_j = exp(score_j - m');
     *     l = fma(l, c, sum of p_j);  acc = acc * c, then acc = fma(p_j, v_j, acc) for j ascending.
     * The sum of p_j is the lane sum above over 64 slots (invisible ones 0).  A row with n_keys 0 is left alone.
     * The maximum skips NaN (a NaN score makes its p NaN); invisible slots may hold anything.
     * m starts at -inf, l and acc at 0 (then c counts as 0).  scratch: cpu_attn_scratch bytes a thread. */
    void (*attn_page)(float *const *acc, float *m, float *l, const float *const *q, const int *n_keys, int n_q,
                      const uint16_t *k_panel, const uint16_t *v_panel, void *scratch);
    /* out = acc / l */
    void (*attn_finish)(float *out, const float *acc, float l);
};

size_t cpu_matmul_scratch(int max_cols);      /* bytes for matrices of up to that many columns */
size_t cpu_attn_scratch(int max_q);

/* The best table that this machine can run.  Tables are const data. */
const struct cpu_kernels *cpu_kernels_best(void);
/* The i-th table of this build (0 is "c"), NULL past the last; *runs says whether this machine can run it. */
const struct cpu_kernels *cpu_kernels_at(int i, int *runs);

#endif
