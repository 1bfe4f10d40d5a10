/* vec_avx2.h - sixteen lanes as two AVX2 registers, for kernels_vec.h. */
#ifndef CALLA_CPU_VEC_AVX2_H
#define CALLA_CPU_VEC_AVX2_H

#include <immintrin.h>

#include "cpu/kernels_isa.h"

typedef struct { __m256 a, b; } vec;   /* lanes 0..7, 8..15 */

enum {
    VEC_SCAN = 2,     /* 32 columns: eight accumulators of the sixteen registers */
    VEC_ATTN_Q = 2,
    VEC_ATTN_V = 2,
    VEC_FLOAT_T = 4,
};

static inline vec v_load(const float *p) { return (vec){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) }; }
static inline void v_store(float *p, vec x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
static inline void v_store_first(float *p, vec x, int n) {
    float t[16];
    v_store(t, x);
    memcpy(p, t, (size_t)n * sizeof *p);
}
static inline vec v_set1(float x) { return (vec){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }
static inline vec v_add(vec x, vec y) { return (vec){ _mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b) }; }
static inline vec v_sub(vec x, vec y) { return (vec){ _mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b) }; }
static inline vec v_mul(vec x, vec y) { return (vec){ _mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b) }; }
static inline vec v_div(vec x, vec y) { return (vec){ _mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b) }; }
static inline vec v_fma(vec x, vec y, vec z) { return (vec){ _mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b) }; }
static inline vec v_fnma(vec x, vec y, vec z) { return (vec){ _mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b) }; }
static inline vec v_max(vec x, vec y) { return (vec){ _mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b) }; }   /* x > y ? x : y */
static inline vec v_min(vec x, vec y) { return (vec){ _mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b) }; }   /* x < y ? x : y */
static inline vec v_abs(vec x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vec){ _mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b) };
}
static inline vec v_neg(vec x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (vec){ _mm256_xor_ps(x.a, sign), _mm256_xor_ps(x.b, sign) };
}
/* x in the first n lanes, y in the others; 0 <= n <= 16 */
static inline vec v_first(vec x, vec y, int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), count = _mm256_set1_epi32(n);
    const __m256i lo = _mm256_cmpgt_epi32(count, lane), hi = _mm256_cmpgt_epi32(count, _mm256_add_epi32(lane, _mm256_set1_epi32(8)));
    return (vec){ _mm256_blendv_ps(y.a, x.a, _mm256_castsi256_ps(lo)), _mm256_blendv_ps(y.b, x.b, _mm256_castsi256_ps(hi)) };
}

static inline float v_fold(vec x) {
    const __m256 h = _mm256_add_ps(x.a, x.b);
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}

/* In every fold the upper half is the first operand: upper > lower ? upper : lower. */
static inline float v_fold_max(vec x) {
    const __m256 h = _mm256_max_ps(x.b, x.a);
    const __m128 q = _mm_max_ps(_mm256_extractf128_ps(h, 1), _mm256_castps256_ps128(h));
    const __m128 d = _mm_max_ps(_mm_movehl_ps(q, q), q);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(d), d));
}

static inline __m256 scale_half(__m256 p, __m256 t) {
    const __m256i k = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000));
    const __m256i half = _mm256_srai_epi32(k, 1), bias = _mm256_set1_epi32(127);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(k, half), bias), 23)));
}
/* p * 2^k, where t is CPU_EXP_MAGIC + k. */
static inline vec v_scale(vec p, vec t) { return (vec){ scale_half(p.a, t.a), scale_half(p.b, t.b) }; }

static inline vec v_load_bf16(const uint16_t *p) {
    return (vec){ _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16)),
                  _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(p + 8))), 16)) };
}

/* 32 values as two vectors whose lanes are in an order of this file's choice: the
 * first holds the even ones of the first and of the second sixteen, half a vector
 * each, the other the odd ones.  v_mix brings natural vectors into it, v_unmix goes back. */
static inline void v_load_bf16_mixed(const uint16_t *p, vec *x, vec *y) {
    const __m256i u = _mm256_loadu_si256((const void *)p), w = _mm256_loadu_si256((const void *)(p + 16));
    const __m256i odd = _mm256_set1_epi32((int)0xffff0000u);
    *x = (vec){ _mm256_castsi256_ps(_mm256_slli_epi32(u, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)) };
    *y = (vec){ _mm256_castsi256_ps(_mm256_and_si256(u, odd)), _mm256_castsi256_ps(_mm256_and_si256(w, odd)) };
}
static inline void split(__m256 lo, __m256 hi, __m256 *even, __m256 *odd) {
    const __m256 e = _mm256_shuffle_ps(lo, hi, 0x88), o = _mm256_shuffle_ps(lo, hi, 0xdd);
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xd8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xd8));
}
static inline void v_mix(vec *x, vec *y) {
    const vec u = *x, w = *y;
    split(u.a, u.b, &x->a, &y->a);
    split(w.a, w.b, &x->b, &y->b);
}
static inline vec join(__m256 even, __m256 odd) {
    const __m256 lo = _mm256_unpacklo_ps(even, odd), hi = _mm256_unpackhi_ps(even, odd);
    return (vec){ _mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31) };
}
static inline void v_unmix(vec *x, vec *y) {
    const vec u = *x, w = *y;
    *x = join(u.a, w.a);
    *y = join(u.b, w.b);
}

static inline __m256i bf16_half(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_srli_epi32(_mm256_blendv_epi8(near, quiet, nan), 16);
}
static inline void v_store_bf16(uint16_t *p, vec x) {
    const __m256i u = _mm256_packus_epi32(bf16_half(x.a), bf16_half(x.b));
    _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(u, 0xd8));
}

/* Whole numbers below 2^15 as int8 parts: 256 hi + lo. */
static inline void v_store_parts(int8_t *hi, int8_t *lo, vec x) {
    const __m256i p = _mm256_packs_epi32(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b));
    const __m256i q = _mm256_permute4x64_epi64(p, 0xd8);                                /* 16 int16 in order */
    /* 32639 + 128 is still an int16 */
    const __m256i h = _mm256_srai_epi16(_mm256_add_epi16(q, _mm256_set1_epi16(128)), 8);
    const __m256i l = _mm256_sub_epi16(q, _mm256_slli_epi16(h, 8));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi16(h, l), 0xd8);      /* 16 of hi, 16 of lo */
    _mm_storeu_si128((void *)hi, _mm256_castsi256_si128(both));
    _mm_storeu_si128((void *)lo, _mm256_extracti128_si256(both, 1));
}

#endif
