/* kernels_avx2.c - AVX2 with FMA: quantised matrices by vpmaddubsw and vpmaddwd.
 *
 * 4-bit weights: a pair of products is at most 2 x 15 x 128, so eight of them
 * add up in 16 bits without saturation.  8-bit weights would saturate; they
 * and the activations are widened to 16 bits.  Integer sums are exact, so tiles
 * may be cut freely.  Float kernels: kernels_vec.h. */
#define ISA(name) name##_avx2
#include "cpu/vec_avx2.h"
#include "cpu/kernels_vec.h"

enum {
    TILE_T = 4,       /* rows of a tile of 4-bit weights: eight 16-bit sums in registers */
    TILE_T8 = 2,
    AHEAD = 4096,     /* bytes that decoding fetches ahead */
};

/* What a tile reads of one row of activations. */
struct row { const int8_t *hi, *lo; const float *scale, *sum; };

INLINE struct row row_at(const struct cpu_acts *a, const int32_t *rows, int t) {
    const size_t i = (size_t)(rows ? rows[t] : t), n_cols = (size_t)a->n_cols, n_groups = n_cols / CALLA_GROUP;
    return (struct row){ a->hi + i * n_cols, a->lo + i * n_cols, a->scale + i * n_groups, a->sum + i * n_groups };
}

INLINE __m256i four(const int8_t *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm256_set1_epi32(x);
}

INLINE void store_rows(const struct cpu_matrix *w, int block, float *y, vec acc) {
    const int left = w->n_rows - block * CPU_LANES;
    if (left >= CPU_LANES) v_store(y + block * CPU_LANES, acc);
    else v_store_first(y + block * CPU_LANES, acc, left);
}

INLINE __m256 bf16_eight(const unsigned char *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128((const void *)p)), 16));
}

/* acc += f32(256 hi + lo) * (s * scale) + b * sum, for the eight rows of one half */
INLINE __m256 add_group(__m256 acc, __m256i sum, const unsigned char *scales, int half, const struct row *x, int g) {
    const __m256 s = bf16_eight(scales + 16 * half), b = bf16_eight(scales + 32 + 16 * half);
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(s, _mm256_set1_ps(x->scale[g])), acc);
    return _mm256_fmadd_ps(b, _mm256_set1_ps(x->sum[g]), acc);
}

/* nt rows against one row block of 4-bit weights, either unpacked in registers or
 * taken as bytes from `panel` [n_groups][16][64]. */
INLINE void tile_q4(float *y, size_t y_stride, const struct cpu_matrix *w, int block, const unsigned char *panel,
                    const struct row *x, int nt) {
    const int n_groups = w->n_cols / CALLA_GROUP;
    const unsigned char *p = w->data + (size_t)block * (size_t)n_groups * CPU_Q4_BLOCK;
    const __m256i nibble = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    __m256 acc[2][TILE_T];

    for (int t = 0; t < nt; t++) acc[0][t] = acc[1][t] = _mm256_setzero_ps();
    for (int g = 0; g < n_groups; g++, p += CPU_Q4_BLOCK) {
        if (!panel)
            for (int i = 0; i < CPU_Q4_BLOCK; i += 64) _mm_prefetch((const char *)p + AHEAD + i, _MM_HINT_T0);
        for (int half = 0; half < 2; half++) {
            __m256i hi[TILE_T], lo[TILE_T];
            for (int t = 0; t < nt; t++) hi[t] = lo[t] = _mm256_setzero_si256();
            for (int part = 0; part < 2; part++) {
                __m256i h[TILE_T], l[TILE_T];
                for (int t = 0; t < nt; t++) h[t] = l[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
                for (int j = 0; j < 8; j++) {
                    const int k = part * 8 + j;
                    __m256i q;
                    if (panel) {
                        q = _mm256_load_si256((const void *)(panel + (size_t)g * 1024 + k * 64 + half * 32));
                    } else {
                        q = _mm256_load_si256((const void *)(p + k / 2 * 64 + half * 32));
                        q = _mm256_and_si256(k % 2 ? _mm256_srli_epi16(q, 4) : q, nibble);
                    }
                    for (int t = 0; t < nt; t++) {
                        h[t] = _mm256_add_epi16(h[t], _mm256_maddubs_epi16(q, four(x[t].hi + g * CALLA_GROUP + 4 * k)));
                        l[t] = _mm256_add_epi16(l[t], _mm256_maddubs_epi16(q, four(x[t].lo + g * CALLA_GROUP + 4 * k)));
                    }
                }
                for (int t = 0; t < nt; t++) {
                    hi[t] = _mm256_add_epi32(hi[t], _mm256_madd_epi16(h[t], one));
                    lo[t] = _mm256_add_epi32(lo[t], _mm256_madd_epi16(l[t], one));
                }
            }
            for (int t = 0; t < nt; t++)
                acc[half][t] = add_group(acc[half][t], _mm256_add_epi32(_mm256_slli_epi32(hi[t], 8), lo[t]),
                                         p + CPU_Q4_BLOCK - 64, half, &x[t], g);
        }
    }
    for (int t = 0; t < nt; t++) store_rows(w, block, y + (size_t)t * y_stride, (vec){ acc[0][t], acc[1][t] });
}

INLINE void tile_q8(float *y, size_t y_stride, const struct cpu_matrix *w, int block, const struct row *x, int nt) {
    const int n_groups = w->n_cols / CALLA_GROUP;
    const unsigned char *p = w->data + (size_t)block * (size_t)n_groups * CPU_Q8_BLOCK;
    const __m256i low = _mm256_set1_epi16(0xff);
    __m256 acc[2][TILE_T8];

    for (int t = 0; t < nt; t++) acc[0][t] = acc[1][t] = _mm256_setzero_ps();
    for (int g = 0; g < n_groups; g++, p += CPU_Q8_BLOCK) {
        __m256i sum[2][TILE_T8];
        for (int t = 0; t < nt; t++) sum[0][t] = sum[1][t] = _mm256_setzero_si256();
        for (int i = 0; i < CPU_Q8_BLOCK; i += 64) _mm_prefetch((const char *)p + AHEAD + i, _MM_HINT_T0);
        for (int k = 0; k < 16; k++) {
            const __m256i q0 = _mm256_load_si256((const void *)(p + k * 64)), q1 = _mm256_load_si256((const void *)(p + k * 64 + 32));
            for (int t = 0; t < nt; t++) {   /* columns 0 and 2, then 1 and 3, as 16 bits */
                const __m256i h = four(x[t].hi + g * CALLA_GROUP + 4 * k), l = four(x[t].lo + g * CALLA_GROUP + 4 * k);
                const __m256i even = _mm256_add_epi16(_mm256_slli_epi16(h, 8), _mm256_srai_epi16(_mm256_slli_epi16(l, 8), 8));
                const __m256i odd = _mm256_add_epi16(_mm256_andnot_si256(low, h), _mm256_srai_epi16(l, 8));
                sum[0][t] = _mm256_add_epi32(sum[0][t], _mm256_add_epi32(_mm256_madd_epi16(_mm256_and_si256(q0, low), even),
                                                                         _mm256_madd_epi16(_mm256_srli_epi16(q0, 8), odd)));
                sum[1][t] = _mm256_add_epi32(sum[1][t], _mm256_add_epi32(_mm256_madd_epi16(_mm256_and_si256(q1, low), even),
                                                                         _mm256_madd_epi16(_mm256_srli_epi16(q1, 8), odd)));
            }
        }
        for (int t = 0; t < nt; t++)
            for (int half = 0; half < 2; half++)
                acc[half][t] = add_group(acc[half][t], sum[half][t], p + CPU_Q8_BLOCK - 64, half, &x[t], g);
    }
    for (int t = 0; t < nt; t++) store_rows(w, block, y + (size_t)t * y_stride, (vec){ acc[0][t], acc[1][t] });
}

INLINE void unpack(unsigned char *q, const struct cpu_matrix *w, int block) {
    const int n_groups = w->n_cols / CALLA_GROUP;
    const unsigned char *p = w->data + (size_t)block * (size_t)n_groups * CPU_Q4_BLOCK;
    const __m256i nibble = _mm256_set1_epi8(15);

    for (int g = 0; g < n_groups; g++, p += CPU_Q4_BLOCK)
        for (int k = 0; k < 8; k++, q += 128)
            for (int half = 0; half < 64; half += 32) {
                const __m256i u = _mm256_load_si256((const void *)(p + k * 64 + half));
                _mm256_store_si256((void *)(q + half), _mm256_and_si256(u, nibble));
                _mm256_store_si256((void *)(q + 64 + half), _mm256_and_si256(_mm256_srli_epi16(u, 4), nibble));
            }
}

uint64_t cpu_matmul_q4_avx2(CPU_MATMUL_ARGS) {
    if (block1 <= block0 || n <= 0) return 0;
    for (int i = block0; i < block1; i++) {
        unsigned char *panel = n > TILE_T ? scratch : NULL;
        if (panel) unpack(panel, w, i);
        for (int t = 0; t < n;) {
            struct row x[TILE_T];
            const int left = n - t, nt = left < TILE_T ? left : TILE_T;
            float *to = y + (size_t)t * y_stride;
            for (int j = 0; j < nt; j++) x[j] = row_at(a, rows, t + j);
            if (nt == 1) tile_q4(to, y_stride, w, i, panel, x, 1);
            else if (nt == 2) tile_q4(to, y_stride, w, i, panel, x, 2);
            else if (nt == 3) tile_q4(to, y_stride, w, i, panel, x, 3);
            else tile_q4(to, y_stride, w, i, panel, x, TILE_T);
            t += nt;
        }
    }
    return (uint64_t)(block1 - block0) * (uint64_t)(w->n_cols / CALLA_GROUP);
}

uint64_t cpu_matmul_q8_avx2(CPU_MATMUL_ARGS) {
    (void)scratch;
    if (block1 <= block0 || n <= 0) return 0;
    for (int i = block0; i < block1; i++)
        for (int t = 0; t < n; t += TILE_T8) {
            struct row x[TILE_T8];
            const int nt = n - t < TILE_T8 ? 1 : TILE_T8;
            for (int j = 0; j < nt; j++) x[j] = row_at(a, rows, t + j);
            if (nt == 1) tile_q8(y + (size_t)t * y_stride, y_stride, w, i, x, 1);
            else tile_q8(y + (size_t)t * y_stride, y_stride, w, i, x, TILE_T8);
        }
    return (uint64_t)(block1 - block0) * (uint64_t)(w->n_cols / CALLA_GROUP);
}

const struct cpu_kernels cpu_kernels_avx2 = {
    .name = "avx2",
    .matmul = { [CPU_Q4] = cpu_matmul_q4_avx2, [CPU_Q8] = cpu_matmul_q8_avx2,
                [CPU_BF16] = ISA(matmul_bf16), [CPU_F32] = ISA(matmul_f32) },
    VEC_SLOTS,
};
