/* matmul_neon.h - quantised matrices by dot products of four bytes.
 *
 * Included by kernels_neon.c and kernels_neoni8mm.c.  A register of weights is
 * four columns of four rows; activations are taken by lane, so nothing is
 * broadcast.  The signed sdot takes 4-bit weights as they are and 8-bit ones
 * less 128, which the group's sum of activations gives back exactly; usdot
 * (i8mm) takes unsigned weights. */
#ifndef CALLA_CPU_MATMUL_NEON_H
#define CALLA_CPU_MATMUL_NEON_H

enum {
    TILE_T = 4,       /* rows of a tile: eight integer sums for four rows of weights */
    AHEAD = 1024,     /* bytes that decoding fetches ahead */
};

#ifdef __ARM_FEATURE_MATMUL_INT8
#define DOT(acc, q, a, lane) vusdotq_laneq_s32(acc, q, a, lane)
enum { LESS_128 = 0 };
#else
#define DOT(acc, q, a, lane) vdotq_laneq_s32(acc, vreinterpretq_s8_u8(q), a, lane)
enum { LESS_128 = 1 };
#endif

/* What a tile reads of one row of activations. */
struct row { const int8_t *hi, *lo; const float *scale, *sum; };

INLINE struct row row_at(const struct cpu_acts *a, const int32_t *rows, int t) {
    const size_t i = (size_t)(rows ? rows[t] : t), n_cols = (size_t)a->n_cols, n_groups = n_cols / CALLA_GROUP;
    return (struct row){ a->hi + i * n_cols, a->lo + i * n_cols, a->scale + i * n_groups, a->sum + i * n_groups };
}

INLINE void store_rows(const struct cpu_matrix *w, int block, float *y, vec acc) {
    const int left = w->n_rows - block * CPU_LANES;
    if (left >= CPU_LANES) v_store(y + block * CPU_LANES, acc);
    else v_store_first(y + block * CPU_LANES, acc, left);
}

INLINE float32x4_t bf16_four(const unsigned char *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)p), 16));
}

/* The group's integers added up: 128 times that is what weights less 128 lack. */
INLINE int32_t group_sum(const int8_t *hi, const int8_t *lo) {
    int32x4_t h = vdupq_n_s32(0), l = h;
    for (int c = 0; c < CALLA_GROUP; c += 16) {
        h = vdotq_s32(h, vld1q_s8(hi + c), vdupq_n_s8(1));
        l = vdotq_s32(l, vld1q_s8(lo + c), vdupq_n_s8(1));
    }
    return 256 * vaddvq_s32(h) + vaddvq_s32(l);
}

/* Weights of four rows (quarter of the block), columns 4 k .. 4 k + 3 of a group. */
INLINE uint8x16_t weights(const unsigned char *p, const unsigned char *bytes, int quarter, int k, int is_q4) {
    if (bytes) return vld1q_u8(bytes + k * 64 + quarter * 16);
    if (!is_q4) return vld1q_u8(p + k * 64 + quarter * 16);
    const uint8x16_t q = vld1q_u8(p + k / 2 * 64 + quarter * 16);
    return k % 2 ? vshrq_n_u8(q, 4) : vandq_u8(q, vdupq_n_u8(15));
}

/* nt rows against one row block, unpacked in registers or taken as bytes from
 * `panel` [n_groups][16][64]. */
INLINE void tile(float *y, size_t y_stride, const struct cpu_matrix *w, int block, const unsigned char *panel,
                 const struct row *x, int nt, int is_q4) {
    const size_t block_bytes = is_q4 ? CPU_Q4_BLOCK : CPU_Q8_BLOCK;
    const int n_groups = w->n_cols / CALLA_GROUP, less_128 = !is_q4 && LESS_128;
    const unsigned char *p = w->data + (size_t)block * (size_t)n_groups * block_bytes;
    float32x4_t acc[4][TILE_T];

    for (int t = 0; t < nt; t++)
        for (int i = 0; i < 4; i++) acc[i][t] = vdupq_n_f32(0.0f);
    for (int g = 0; g < n_groups; g++, p += block_bytes) {
        const unsigned char *bytes = panel ? panel + (size_t)g * 1024 : NULL, *scales = p + block_bytes - 64;
        int32_t lack[TILE_T];
        for (int t = 0; t < nt; t++)
            lack[t] = less_128 ? 128 * group_sum(x[t].hi + g * CALLA_GROUP, x[t].lo + g * CALLA_GROUP) : 0;
        if (!panel)
            for (size_t i = 0; i < block_bytes; i += 64) __builtin_prefetch(p + AHEAD + i);
        for (int quarter = 0; quarter < 4; quarter++) {
            int32x4_t hi[TILE_T], lo[TILE_T];
            for (int t = 0; t < nt; t++) hi[t] = lo[t] = vdupq_n_s32(0);
            for (int k = 0; k < 16; k += 4) {
                int8x16_t h[TILE_T], l[TILE_T];
                for (int t = 0; t < nt; t++) {
                    h[t] = vld1q_s8(x[t].hi + g * CALLA_GROUP + 4 * k);
                    l[t] = vld1q_s8(x[t].lo + g * CALLA_GROUP + 4 * k);
                }
#define FOUR(lane) do { \
    uint8x16_t q = weights(p, bytes, quarter, k + (lane), is_q4); \
    if (less_128) q = veorq_u8(q, vdupq_n_u8(128)); \
    for (int t = 0; t < nt; t++) { hi[t] = DOT(hi[t], q, h[t], lane); lo[t] = DOT(lo[t], q, l[t], lane); } \
} while (0)
                FOUR(0);
                FOUR(1);
                FOUR(2);
                FOUR(3);
#undef FOUR
            }
            const float32x4_t s = bf16_four(scales + 8 * quarter), b = bf16_four(scales + 32 + 8 * quarter);
            for (int t = 0; t < nt; t++) {
                const int32x4_t sum = vaddq_s32(vaddq_s32(vshlq_n_s32(hi[t], 8), lo[t]), vdupq_n_s32(lack[t]));
                acc[quarter][t] = vfmaq_f32(acc[quarter][t], vcvtq_f32_s32(sum), vmulq_f32(s, vdupq_n_f32(x[t].scale[g])));
                acc[quarter][t] = vfmaq_f32(acc[quarter][t], b, vdupq_n_f32(x[t].sum[g]));
            }
        }
    }
    for (int t = 0; t < nt; t++)
        store_rows(w, block, y + (size_t)t * y_stride, (vec){ { acc[0][t], acc[1][t], acc[2][t], acc[3][t] } });
}

INLINE void unpack(unsigned char *q, const struct cpu_matrix *w, int block) {
    const int n_groups = w->n_cols / CALLA_GROUP;
    const unsigned char *p = w->data + (size_t)block * (size_t)n_groups * CPU_Q4_BLOCK;
    for (int g = 0; g < n_groups; g++, p += CPU_Q4_BLOCK, q += 1024)
        for (int k = 0; k < 16; k++)
            for (int quarter = 0; quarter < 4; quarter++) vst1q_u8(q + k * 64 + quarter * 16, weights(p, NULL, quarter, k, 1));
}

INLINE uint64_t matmul_q(CPU_MATMUL_ARGS, int is_q4) {
    if (block1 <= block0 || n <= 0) return 0;
    for (int i = block0; i < block1; i++) {
        unsigned char *panel = is_q4 && n > TILE_T ? scratch : NULL;
        if (panel) unpack(panel, w, i);
        for (int t = 0; t < n;) {
            struct row x[TILE_T];
            const int left = n - t, nt = left < TILE_T ? left : TILE_T;
            float *to = y + (size_t)t * y_stride;
            for (int j = 0; j < nt; j++) x[j] = row_at(a, rows, t + j);
            if (nt == 1) tile(to, y_stride, w, i, panel, x, 1, is_q4);
            else if (nt == 2) tile(to, y_stride, w, i, panel, x, 2, is_q4);
            else if (nt == 3) tile(to, y_stride, w, i, panel, x, 3, is_q4);
            else tile(to, y_stride, w, i, panel, x, TILE_T, is_q4);
            t += nt;
        }
    }
    return (uint64_t)(block1 - block0) * (uint64_t)(w->n_cols / CALLA_GROUP);
}

static uint64_t ISA(matmul_q4)(CPU_MATMUL_ARGS) { return matmul_q(y, y_stride, w, block0, block1, a, rows, n, scratch, 1); }
static uint64_t ISA(matmul_q8)(CPU_MATMUL_ARGS) { return matmul_q(y, y_stride, w, block0, block1, a, rows, n, scratch, 0); }

#endif
