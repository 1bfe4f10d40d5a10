/* kernels.c - the kernels in portable C: the specification of all others.
 *
 * Read beside kernels.h, which states each contract.  Nothing here is tuned;
 * where an instruction set has no better version, its table points here.
 * Called by the backend's threads; all memory is the caller's. */
#include "cpu/kernels_isa.h"

/* acc[l] folded as kernels.h says. */
static float fold(float acc[CPU_LANES]) {
    for (int half = CPU_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) acc[l] += acc[l + half];
    return acc[0];
}

/* The lane sum of x[i] * y[i]; n a multiple of 16. */
static float dot(const float *x, const float *y, int n) {
    float acc[CPU_LANES] = { 0 };
    for (int i = 0; i < n; i++) acc[i % CPU_LANES] = fmaf(x[i], y[i], acc[i % CPU_LANES]);
    return fold(acc);
}

static void quantise_c(struct cpu_acts *a, int row_idx, const float *x) {
    const int n_groups = a->n_cols / CALLA_GROUP;
    const size_t row = (size_t)row_idx * (size_t)a->n_cols;

    memcpy(a->x + row, x, (size_t)a->n_cols * sizeof *x);
    for (int g = 0; g < n_groups; g++) {
        const float *xg = x + g * CALLA_GROUP;
        float amax = 0.0f, scale = 0.0f, inverse = 0.0f;
        int32_t sum = 0;
        bool finite = true;

        for (int c = 0; c < CALLA_GROUP; c++) {
            amax = fabsf(xg[c]) > amax ? fabsf(xg[c]) : amax;
            finite = finite && fabsf(xg[c]) <= FLT_MAX;
        }
        if (!finite) scale = NAN;
        else if (amax >= CPU_ACT_TINY) { scale = amax / CPU_ACT_MAX; inverse = CPU_ACT_MAX / amax; }
        for (int c = 0; c < CALLA_GROUP; c++) {
            const int32_t q = inverse > 0.0f ? (int32_t)rintf(xg[c] * inverse) : 0;
            const int32_t hi = (q + 128) >> 8;
            a->hi[row + (size_t)(g * CALLA_GROUP + c)] = (int8_t)hi;
            a->lo[row + (size_t)(g * CALLA_GROUP + c)] = (int8_t)(q - 256 * hi);
            sum += q;
        }
        a->scale[(size_t)row_idx * (size_t)n_groups + (size_t)g] = scale;
        a->sum[(size_t)row_idx * (size_t)n_groups + (size_t)g] = scale * (float)sum;
    }
}

/* One block's integers as [row][column]. */
static void unpack_q4(uint8_t q[CPU_LANES][CALLA_GROUP], const unsigned char *block) {
    for (int k = 0; k < 8; k++)
        for (int r = 0; r < CPU_LANES; r++)
            for (int j = 0; j < 4; j++) {
                const unsigned byte = block[k * 64 + 4 * r + j];
                q[r][8 * k + j] = byte & 15;
                q[r][8 * k + 4 + j] = (uint8_t)(byte >> 4);
            }
}

static void unpack_q8(uint8_t q[CPU_LANES][CALLA_GROUP], const unsigned char *block) {
    for (int k = 0; k < 16; k++)
        for (int r = 0; r < CPU_LANES; r++)
            for (int j = 0; j < 4; j++) q[r][4 * k + j] = block[k * 64 + 4 * r + j];
}

static uint64_t matmul_q_c(CPU_MATMUL_ARGS) {
    const size_t block_bytes = cpu_block_bytes(w->format);
    const int n_groups = w->n_cols / CALLA_GROUP;
    uint8_t q[CPU_LANES][CALLA_GROUP];

    (void)scratch;
    if (n <= 0) return 0;
    for (int i = block0; i < block1; i++)
        for (int g = 0; g < n_groups; g++) {
            const unsigned char *block = w->data + ((size_t)i * (size_t)n_groups + (size_t)g) * block_bytes;
            const unsigned char *scales = block + block_bytes - 64;
            if (w->format == CPU_Q4) unpack_q4(q, block);
            else unpack_q8(q, block);
            for (int t = 0; t < n; t++) {
                const size_t row = (size_t)(rows ? rows[t] : t);
                const int8_t *hi = a->hi + row * (size_t)a->n_cols + g * CALLA_GROUP;
                const int8_t *lo = a->lo + row * (size_t)a->n_cols + g * CALLA_GROUP;
                const size_t group = row * (size_t)(a->n_cols / CALLA_GROUP) + (size_t)g;
                for (int r = 0; r < CPU_LANES && i * CPU_LANES + r < w->n_rows; r++) {
                    float *acc = &y[(size_t)t * y_stride + (size_t)(i * CPU_LANES + r)];
                    uint16_t s, b;
                    int32_t sum = 0;
                    memcpy(&s, scales + 2 * r, sizeof s);
                    memcpy(&b, scales + 32 + 2 * r, sizeof b);
                    for (int c = 0; c < CALLA_GROUP; c++) sum += q[r][c] * (256 * hi[c] + lo[c]);
                    if (g == 0) *acc = 0.0f;
                    *acc = fmaf((float)sum, cpu_from_bf16(s) * a->scale[group], *acc);
                    *acc = fmaf(cpu_from_bf16(b), a->sum[group], *acc);
                }
            }
        }
    return (uint64_t)(block1 > block0 ? block1 - block0 : 0) * (uint64_t)n_groups;
}

/* BF16 and F32: the block is widened once, then used for every row. */
static uint64_t matmul_f_c(CPU_MATMUL_ARGS) {
    const size_t block_bytes = cpu_block_bytes(w->format);
    const int n_groups = w->n_cols / CALLA_GROUP;
    float f[CALLA_GROUP * CPU_LANES];

    (void)scratch;
    if (n <= 0) return 0;
    for (int i = block0; i < block1; i++)
        for (int g = 0; g < n_groups; g++) {
            const unsigned char *block = w->data + ((size_t)i * (size_t)n_groups + (size_t)g) * block_bytes;
            for (int e = 0; e < CALLA_GROUP * CPU_LANES; e++) {
                uint16_t h;
                if (w->format == CPU_F32) { memcpy(&f[e], block + 4 * e, sizeof f[e]); continue; }
                memcpy(&h, block + 2 * e, sizeof h);
                f[e] = cpu_from_bf16(h);
            }
            for (int t = 0; t < n; t++) {
                const float *x = a->x + (size_t)(rows ? rows[t] : t) * (size_t)a->n_cols + g * CALLA_GROUP;
                for (int r = 0; r < CPU_LANES && i * CPU_LANES + r < w->n_rows; r++) {
                    float *acc = &y[(size_t)t * y_stride + (size_t)(i * CPU_LANES + r)];
                    if (g == 0) *acc = 0.0f;
                    for (int c = 0; c < CALLA_GROUP; c++) *acc = fmaf(f[c * CPU_LANES + r], x[c], *acc);
                }
            }
        }
    return (uint64_t)(block1 > block0 ? block1 - block0 : 0) * (uint64_t)n_groups;
}

static void rmsnorm_c(float *out, const float *x, const float *w, int n, float eps) {
    const float r = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int c = 0; c < n; c++) out[c] = x[c] * r * w[c];
}

static void add_c(float *out, const float *x, const float *y, int n) {
    for (int c = 0; c < n; c++) out[c] = x[c] + y[c];
}

static void weighted_sum_c(float *out, const float *const *y, const float *weight, int n_terms, int n) {
    for (int c = 0; c < n; c++) {
        float acc = 0.0f;
        for (int i = 0; i < n_terms; i++) acc = fmaf(weight[i], y[i][c], acc);
        out[c] = acc;
    }
}

static void silu_mul_c(float *out, const float *gate, const float *up, int n) {
    for (int c = 0; c < n; c++) out[c] = cpu_silu(gate[c]) * up[c];
}

static void sigmoid_mul_c(float *out, const float *x, const float *gate, int n) {
    for (int c = 0; c < n; c++) out[c] = x[c] * cpu_sigmoid(gate[c]);
}

static void conv_c(float *out, const float *u0, const float *u1, const float *u2, const float *u3, const float *w,
                size_t w_stride, int n) {
    for (int c = 0; c < n; c++) {
        float s = w[c] * u0[c];
        s = fmaf(w[w_stride + (size_t)c], u1[c], s);
        s = fmaf(w[2 * w_stride + (size_t)c], u2[c], s);
        s = fmaf(w[3 * w_stride + (size_t)c], u3[c], s);
        out[c] = cpu_silu(s);
    }
}

static void gdn_gates_c(float *decay, float *beta, const float *a, const float *b, const float *neg_exp_a_log,
                     const float *dt_bias, int n_heads) {
    for (int h = 0; h < n_heads; h++) {
        decay[h] = cpu_exp(neg_exp_a_log[h] * cpu_softplus(a[h] + dt_bias[h]));
        beta[h] = cpu_sigmoid(b[h]);
    }
}

static void l2norm_c(float *out, const float *x, float scale) {
    const float r = scale / sqrtf(dot(x, x, CALLA_RECUR) + 1e-6f);
    for (int c = 0; c < CALLA_RECUR; c++) out[c] = x[c] * r;
}

static void gdn_scan_c(float *s, const float *q, const float *k, size_t qk_stride, const float *v, size_t v_stride,
                    const float *decay, const float *beta, size_t gate_stride, float *o, size_t o_stride,
                    int n_rows) {
    for (int t = 0; t < n_rows; t++, q += qk_stride, k += qk_stride, v += v_stride, o += o_stride) {
        const float f = decay[(size_t)t * gate_stride], kq = dot(k, q, CALLA_RECUR);
        for (int c = 0; c < CALLA_RECUR; c++) {
            float p = 0.0f, r = 0.0f;
            for (int i = 0; i < CALLA_RECUR; i++) {
                p = fmaf(k[i], s[i * CALLA_RECUR + c], p);
                r = fmaf(q[i], s[i * CALLA_RECUR + c], r);
            }
            const float d = beta[(size_t)t * gate_stride] * fmaf(-f, p, v[c]);
            o[c] = fmaf(kq, d, f * r);
            for (int i = 0; i < CALLA_RECUR; i++) s[i * CALLA_RECUR + c] = fmaf(k[i], d, f * s[i * CALLA_RECUR + c]);
        }
    }
}

static void gated_norm_c(float *out, const float *x, const float *z, const float *w, float eps) {
    const float r = 1.0f / sqrtf(dot(x, x, CALLA_RECUR) / (float)CALLA_RECUR + eps);
    for (int c = 0; c < CALLA_RECUR; c++) out[c] = x[c] * r * w[c] * cpu_silu(z[c]);
}

static void rope_c(float *x, const float *cos, const float *sin) {
    for (int i = 0; i < CALLA_ROTARY / 2; i++) {
        const float a = x[i], b = x[i + CALLA_ROTARY / 2];
        x[i] = fmaf(a, cos[i], -(b * sin[i]));
        x[i + CALLA_ROTARY / 2] = fmaf(b, cos[i], a * sin[i]);
    }
}

static void store_k_c(uint16_t *panel, int slot, const float *k) {
    for (int c = 0; c < CALLA_HEAD; c++) panel[c * CPU_PAGE + slot] = cpu_to_bf16(k[c]);
}

static void store_v_c(uint16_t *panel, int slot, const float *v) {
    for (int c = 0; c < CALLA_HEAD; c++) panel[slot * CALLA_HEAD + c] = cpu_to_bf16(v[c]);
}

/* The maximum skips NaN; a NaN score makes its p, and so the row, NaN. */
static float max_scores(const float *score, int n, float m) {
    float lane[CPU_LANES];
    for (int l = 0; l < CPU_LANES; l++) lane[l] = -INFINITY;
    for (int j = 0; j < n; j++) lane[j % CPU_LANES] = score[j] > lane[j % CPU_LANES] ? score[j] : lane[j % CPU_LANES];
    for (int half = CPU_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    return lane[0] > m ? lane[0] : m;
}

static void attn_page_c(float *const *acc, float *m, float *l, const float *const *q, const int *n_keys, int n_q,
                     const uint16_t *k_panel, const uint16_t *v_panel, void *scratch) {
    (void)scratch;
    for (int i = 0; i < n_q; i++) {
        float p[CPU_PAGE], lane[CPU_LANES] = { 0 };
        if (n_keys[i] <= 0) continue;
        for (int j = 0; j < n_keys[i]; j++) {
            p[j] = 0.0f;
            for (int c = 0; c < CALLA_HEAD; c++) p[j] = fmaf(q[i][c], cpu_from_bf16(k_panel[c * CPU_PAGE + j]), p[j]);
        }
        const float top = max_scores(p, n_keys[i], m[i]);
        const float carry = m[i] == -INFINITY ? 0.0f : cpu_exp(m[i] - top);
        for (int j = 0; j < n_keys[i]; j++) {
            p[j] = cpu_exp(p[j] - top);
            lane[j % CPU_LANES] += p[j];
        }
        m[i] = top;
        l[i] = fmaf(l[i], carry, fold(lane));
        for (int c = 0; c < CALLA_HEAD; c++) {
            float sum = acc[i][c] * carry;
            for (int j = 0; j < n_keys[i]; j++) sum = fmaf(p[j], cpu_from_bf16(v_panel[j * CALLA_HEAD + c]), sum);
            acc[i][c] = sum;
        }
    }
}

static void attn_finish_c(float *out, const float *acc, float l) {
    for (int c = 0; c < CALLA_HEAD; c++) out[c] = acc[c] / l;
}

const struct cpu_kernels cpu_kernels_c = {
    .name = "c",
    .quantise = quantise_c,
    .matmul = { [CPU_Q4] = matmul_q_c, [CPU_Q8] = matmul_q_c, [CPU_BF16] = matmul_f_c, [CPU_F32] = matmul_f_c },
    .rmsnorm = rmsnorm_c,
    .add = add_c,
    .weighted_sum = weighted_sum_c,
    .silu_mul = silu_mul_c,
    .sigmoid_mul = sigmoid_mul_c,
    .conv = conv_c,
    .gdn_gates = gdn_gates_c,
    .l2norm = l2norm_c,
    .gdn_scan = gdn_scan_c,
    .gated_norm = gated_norm_c,
    .rope = rope_c,
    .store_k = store_k_c,
    .store_v = store_v_c,
    .attn_page = attn_page_c,
    .attn_finish = attn_finish_c,
};
