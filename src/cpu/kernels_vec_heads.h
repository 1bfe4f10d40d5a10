/* kernels_vec_heads.h - the rest of kernels_vec.h: the delta rule, attention
 * over a page, and matrices that are not quantised. */
#ifndef CALLA_CPU_KERNELS_VEC_HEADS_H
#define CALLA_CPU_KERNELS_VEC_HEADS_H

enum { SCAN_ROWS = 64, SCAN_COLS = VEC_SCAN * CPU_LANES };

/* Some columns of the state, `step` floats from key to key, over some rows.  A
 * row's update and the next row's sums P and R go over the state together: one
 * load, one store, four operations an element, so the arithmetic is the limit
 * and not L1. */
INLINE void scan_columns(float *s, size_t step, const float *q, const float *k, size_t qk_stride, const float *v, size_t v_stride,
                         const float *decay, const float *beta, size_t gate_stride, const float *kq, float *o,
                         size_t o_stride, int n_rows) {
    vec p[VEC_SCAN], r[VEC_SCAN], d[VEC_SCAN];

    for (int c = 0; c < VEC_SCAN; c++) p[c] = r[c] = v_set1(0.0f);
    for (int i = 0; i < CALLA_RECUR; i++) {
        const vec ki = v_set1(k[i]), qi = v_set1(q[i]);
        for (int c = 0; c < VEC_SCAN; c++) {
            const vec u = v_load(s + (size_t)i * step + c * CPU_LANES);
            p[c] = v_fma(ki, u, p[c]);
            r[c] = v_fma(qi, u, r[c]);
        }
    }
    for (int t = 0; t < n_rows; t++) {
        const vec f = v_set1(decay[(size_t)t * gate_stride]), b = v_set1(beta[(size_t)t * gate_stride]);
        for (int c = 0; c < VEC_SCAN; c++) {
            d[c] = v_mul(b, v_fnma(f, p[c], v_load(v + c * CPU_LANES)));
            v_store(o + c * CPU_LANES, v_fma(v_set1(kq[t]), d[c], v_mul(f, r[c])));
            p[c] = r[c] = v_set1(0.0f);
        }
        if (t + 1 == n_rows) {
            for (int i = 0; i < CALLA_RECUR; i++)
                for (int c = 0; c < VEC_SCAN; c++) {
                    float *at = s + (size_t)i * step + c * CPU_LANES;
                    v_store(at, v_fma(v_set1(k[i]), d[c], v_mul(f, v_load(at))));
                }
            return;
        }
        const float *kn = k + qk_stride, *qn = q + qk_stride;
        for (int i = 0; i < CALLA_RECUR; i++) {
            const vec ki = v_set1(k[i]), kni = v_set1(kn[i]), qni = v_set1(qn[i]);
            for (int c = 0; c < VEC_SCAN; c++) {
                float *at = s + (size_t)i * step + c * CPU_LANES;
                const vec u = v_fma(ki, d[c], v_mul(f, v_load(at)));
                v_store(at, u);
                p[c] = v_fma(kni, u, p[c]);
                r[c] = v_fma(qni, u, r[c]);
            }
        }
        k = kn;
        q = qn;
        v += v_stride;
        o += o_stride;
    }
}

/* Blocks of columns stay in L1 over the rows; for several rows they are copied
 * together, because every second 256 bytes fill only half of the cache's sets. */
static void ISA(gdn_scan)(float *s, const float *q, const float *k, size_t qk_stride, const float *v, size_t v_stride,
                          const float *decay, const float *beta, size_t gate_stride, float *o, size_t o_stride,
                          int n_rows) {
    float block[CALLA_RECUR * SCAN_COLS], kq[SCAN_ROWS];

    for (int t0 = 0; t0 < n_rows; t0 += SCAN_ROWS) {
        const int n = n_rows - t0 < SCAN_ROWS ? n_rows - t0 : SCAN_ROWS;
        for (int t = 0; t < n; t++) kq[t] = v_dot(k + (size_t)t * qk_stride, q + (size_t)t * qk_stride, CALLA_RECUR);
        for (int c = 0; c < CALLA_RECUR; c += SCAN_COLS) {
            if (n < 4) {
                scan_columns(s + c, CALLA_RECUR, q, k, qk_stride, v + c, v_stride, decay, beta, gate_stride, kq, o + c,
                             o_stride, n);
                continue;
            }
            for (int i = 0; i < CALLA_RECUR; i++) memcpy(block + i * SCAN_COLS, s + i * CALLA_RECUR + c, SCAN_COLS * sizeof *s);
            scan_columns(block, SCAN_COLS, q, k, qk_stride, v + c, v_stride, decay, beta, gate_stride, kq, o + c, o_stride, n);
            for (int i = 0; i < CALLA_RECUR; i++) memcpy(s + i * CALLA_RECUR + c, block + i * SCAN_COLS, SCAN_COLS * sizeof *s);
        }
        q += (size_t)n * qk_stride;
        k += (size_t)n * qk_stride;
        v += (size_t)n * v_stride;
        o += (size_t)n * o_stride;
        decay += (size_t)n * gate_stride;
        beta += (size_t)n * gate_stride;
    }
}

/* Scores of nq queries against the 64 slots of a page, into score [nq][64]. */
INLINE void attn_scores(float *score, const float *const *q, int nq, const uint16_t *k_panel) {
    for (int j = 0; j < CPU_PAGE; j += VEC_ATTN_V * CPU_LANES) {
        vec acc[VEC_ATTN_Q][VEC_ATTN_V];
        for (int i = 0; i < nq; i++)
            for (int b = 0; b < VEC_ATTN_V; b++) acc[i][b] = v_set1(0.0f);
        for (int c = 0; c < CALLA_HEAD; c++) {
            vec key[VEC_ATTN_V];
            for (int b = 0; b < VEC_ATTN_V; b += 2)
                v_load_bf16_mixed(k_panel + c * CPU_PAGE + j + b * CPU_LANES, &key[b], &key[b + 1]);
            for (int i = 0; i < nq; i++)
                for (int b = 0; b < VEC_ATTN_V; b++) acc[i][b] = v_fma(v_set1(q[i][c]), key[b], acc[i][b]);
        }
        for (int i = 0; i < nq; i++)
            for (int b = 0; b < VEC_ATTN_V; b += 2) {
                v_unmix(&acc[i][b], &acc[i][b + 1]);
                v_store(score + i * CPU_PAGE + j + b * CPU_LANES, acc[i][b]);
                v_store(score + i * CPU_PAGE + j + (b + 1) * CPU_LANES, acc[i][b + 1]);
            }
    }
}

/* Scores become p in place; returns the factor of what came before. */
INLINE float attn_softmax(float *score, int n_keys, float *m, float *l) {
    vec top = v_set1(-INFINITY), sum = v_set1(0.0f);

    for (int j = 0; j < n_keys; j += CPU_LANES) {
        const int n = n_keys - j < CPU_LANES ? n_keys - j : CPU_LANES;
        top = v_first(v_max(v_load(score + j), top), top, n);
    }
    const float fold = v_fold_max(top), m1 = fold > *m ? fold : *m;
    const float carry = *m == -INFINITY ? 0.0f : cpu_exp(*m - m1);
    for (int j = 0; j < n_keys; j += CPU_LANES) {
        const int n = n_keys - j < CPU_LANES ? n_keys - j : CPU_LANES;
        const vec p = v_first(v_exp(v_sub(v_load(score + j), v_set1(m1))), v_set1(0.0f), n);
        v_store(score + j, p);
        sum = v_add(sum, p);
    }
    *m = m1;
    *l = fmaf(*l, carry, v_fold(sum));
    return carry;
}

/* acc = acc * carry, then acc += p_j v_j for the slots j of [begin, end). */
INLINE void attn_values(float *const *acc, const float *p, const float *carry, int nq, int begin, int end,
                        const uint16_t *v_panel) {
    for (int c = 0; c < CALLA_HEAD; c += VEC_ATTN_V * CPU_LANES) {
        vec sum[VEC_ATTN_Q][VEC_ATTN_V];
        for (int i = 0; i < nq; i++)
            for (int b = 0; b < VEC_ATTN_V; b += 2) {
                sum[i][b] = v_mul(v_load(acc[i] + c + b * CPU_LANES), v_set1(carry[i]));
                sum[i][b + 1] = v_mul(v_load(acc[i] + c + (b + 1) * CPU_LANES), v_set1(carry[i]));
                v_mix(&sum[i][b], &sum[i][b + 1]);
            }
        for (int j = begin; j < end; j++) {
            vec val[VEC_ATTN_V];
            for (int b = 0; b < VEC_ATTN_V; b += 2)
                v_load_bf16_mixed(v_panel + j * CALLA_HEAD + c + b * CPU_LANES, &val[b], &val[b + 1]);
            for (int i = 0; i < nq; i++)
                for (int b = 0; b < VEC_ATTN_V; b++)
                    sum[i][b] = v_fma(v_set1(p[i * CPU_PAGE + j]), val[b], sum[i][b]);
        }
        for (int i = 0; i < nq; i++)
            for (int b = 0; b < VEC_ATTN_V; b += 2) {
                v_unmix(&sum[i][b], &sum[i][b + 1]);
                v_store(acc[i] + c + b * CPU_LANES, sum[i][b]);
                v_store(acc[i] + c + (b + 1) * CPU_LANES, sum[i][b + 1]);
            }
    }
}

/* The slots that all see are summed together; each query then ends at its own
 * n_keys, because what lies in invisible slots may be anything. */
INLINE void attn_some(float *const *acc, float *m, float *l, const float *const *q, const int *n_keys, int nq,
                      const uint16_t *k_panel, const uint16_t *v_panel, float *score) {
    const float one = 1.0f;
    float carry[VEC_ATTN_Q];
    int common = n_keys[0];

    attn_scores(score, q, nq, k_panel);
    for (int i = 0; i < nq; i++) {
        carry[i] = attn_softmax(score + i * CPU_PAGE, n_keys[i], &m[i], &l[i]);
        common = n_keys[i] < common ? n_keys[i] : common;
    }
    attn_values(acc, score, carry, nq, 0, common, v_panel);
    for (int i = 0; i < nq; i++)
        if (n_keys[i] > common) attn_values(acc + i, score + i * CPU_PAGE, &one, 1, common, n_keys[i], v_panel);
}

static void ISA(attn_page)(float *const *acc, float *m, float *l, const float *const *q, const int *n_keys, int n_q,
                           const uint16_t *k_panel, const uint16_t *v_panel, void *scratch) {
    for (int i = 0; i < n_q;) {
        int n = 0;
        while (i + n < n_q && n < VEC_ATTN_Q && n_keys[i + n] > 0) n++;
        if (n == 0) { i++; continue; }
        if (n < VEC_ATTN_Q) n = 1;
        if (n == 1) attn_some(acc + i, m + i, l + i, q + i, n_keys + i, 1, k_panel, v_panel, scratch);
        else attn_some(acc + i, m + i, l + i, q + i, n_keys + i, VEC_ATTN_Q, k_panel, v_panel, scratch);
        i += n;
    }
}

/* ---- BF16 and F32 matrices -------------------------------------------------- */

/* nb row blocks (their 16 x n_cols panels of floats `step` floats apart) by nt rows. */
INLINE void float_tile(float *y, size_t y_stride, const struct cpu_matrix *w, int block, const void *panel,
                       int is_bf16, int nb, const float *const *x, int nt) {
    const size_t step = (size_t)w->n_cols * CPU_LANES;
    vec acc[VEC_FLOAT_T];

    for (int i = 0; i < nb * nt; i++) acc[i] = v_set1(0.0f);
    for (int c = 0; c < w->n_cols; c++)
        for (int b = 0; b < nb; b++) {
            const size_t at = (size_t)b * step + (size_t)c * CPU_LANES;
            const vec u = is_bf16 ? v_load_bf16((const uint16_t *)panel + at) : v_load((const float *)panel + at);
            for (int t = 0; t < nt; t++) acc[b * nt + t] = v_fma(u, v_set1(x[t][c]), acc[b * nt + t]);
        }
    for (int b = 0; b < nb; b++)
        for (int t = 0; t < nt; t++) {
            float *at = y + (size_t)t * y_stride + (size_t)(block + b) * CPU_LANES;
            const int left = w->n_rows - (block + b) * CPU_LANES;
            if (left >= CPU_LANES) v_store(at, acc[b * nt + t]);
            else v_store_first(at, acc[b * nt + t], left);
        }
}

/* One row: four blocks at a time, for one chain of sums waits for itself.
 * More rows than one tile: a bf16 panel is widened once, into scratch. */
INLINE uint64_t matmul_float(CPU_MATMUL_ARGS, int is_bf16) {
    const size_t panel_bytes = (size_t)w->n_cols / CALLA_GROUP * cpu_block_bytes(w->format);
    const float *x[VEC_FLOAT_T];

    if (block1 <= block0 || n <= 0) return 0;
    for (int i = block0; i < block1;) {
        const int nb = n == 1 && block1 - i >= 4 ? 4 : 1;
        const void *panel = w->data + (size_t)i * panel_bytes;
        int bf16 = is_bf16;
        if (is_bf16 && n != 1 && n != 4 && n != VEC_FLOAT_T) {
            for (int c = 0; c < w->n_cols; c++)
                v_store((float *)scratch + c * CPU_LANES, v_load_bf16((const uint16_t *)panel + c * CPU_LANES));
            panel = scratch;
            bf16 = 0;
        }
        for (int t = 0; t < n;) {
            const int nt = n - t >= VEC_FLOAT_T ? VEC_FLOAT_T : n - t >= 4 ? 4 : 1;
            float *to = y + (size_t)t * y_stride;
            for (int j = 0; j < nt; j++) x[j] = a->x + (size_t)(rows ? rows[t + j] : t + j) * (size_t)a->n_cols;
            if (nb == 4) float_tile(to, y_stride, w, i, panel, bf16, 4, x, 1);
            else if (nt == VEC_FLOAT_T) float_tile(to, y_stride, w, i, panel, bf16, 1, x, VEC_FLOAT_T);
            else if (nt == 4) float_tile(to, y_stride, w, i, panel, bf16, 1, x, 4);
            else float_tile(to, y_stride, w, i, panel, bf16, 1, x, 1);
            t += nt;
        }
        i += nb;
    }
    return (uint64_t)(block1 - block0) * (uint64_t)(w->n_cols / CALLA_GROUP);
}

static uint64_t ISA(matmul_bf16)(CPU_MATMUL_ARGS) {
    return matmul_float(y, y_stride, w, block0, block1, a, rows, n, scratch, 1);
}

static uint64_t ISA(matmul_f32)(CPU_MATMUL_ARGS) {
    return matmul_float(y, y_stride, w, block0, block1, a, rows, n, scratch, 0);
}

#endif
