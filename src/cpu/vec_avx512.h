/* vec_avx512.h - sixteen lanes as one AVX-512 register, for kernels_vec.h. */
#ifndef CALLA_CPU_VEC_AVX512_H
#define CALLA_CPU_VEC_AVX512_H

#include <immintrin.h>

#include "cpu/kernels_isa.h"

typedef __m512 vec;

enum {
    VEC_SCAN = 4,     /* vectors of value columns in the delta rule: 64 columns x 128 x 4 bytes are 32 KiB of L1 */
    VEC_ATTN_Q = 4,   /* queries and vectors of an attention tile: 16 accumulators                              */
    VEC_ATTN_V = 4,
    VEC_FLOAT_T = 8,  /* rows of an unquantised matmul's tile                                                   */
};

static inline vec v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
static inline void v_store_first(float *p, vec a, int n) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a); }
static inline vec v_set1(float x) { return _mm512_set1_ps(x); }
static inline vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static inline vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
static inline vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec v_fnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); }   /* c - a b */
static inline vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }                 /* a > b ? a : b */
static inline vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }                 /* a < b ? a : b */
static inline vec v_abs(vec a) { return _mm512_abs_ps(a); }
static inline vec v_neg(vec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
/* a in the first n lanes, b in the others; 0 <= n <= 16 */
static inline vec v_first(vec a, vec b, int n) { return _mm512_mask_mov_ps(b, (__mmask16)((1u << n) - 1), a); }

static inline float v_fold(vec a) {
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}

/* In every fold the upper half is the first operand: upper > lower ? upper : lower. */
static inline float v_fold_max(vec a) {
    const __m256 h = _mm256_max_ps(_mm512_extractf32x8_ps(a, 1), _mm512_castps512_ps256(a));
    const __m128 q = _mm_max_ps(_mm256_extractf128_ps(h, 1), _mm256_castps256_ps128(h));
    const __m128 d = _mm_max_ps(_mm_movehl_ps(q, q), q);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(d), d));
}

/* p * 2^k, where t is CPU_EXP_MAGIC + k. */
static inline vec v_scale(vec p, vec t) {
    const __m512i k = _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(0x4b400000));
    const __m512i half = _mm512_srai_epi32(k, 1), bias = _mm512_set1_epi32(127);
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23)));
    return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_sub_epi32(k, half), bias), 23)));
}

static inline vec v_load_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

/* 32 values as two vectors whose lanes are in an order of this file's choice
 * (even and odd ones: one operation a vector where a natural order takes two);
 * v_mix brings natural vectors into it, v_unmix goes back. */
static inline void v_load_bf16_mixed(const uint16_t *p, vec *a, vec *b) {
    const __m512i x = _mm512_loadu_si512(p);
    *a = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    *b = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000u)));
}
static inline void v_mix(vec *a, vec *b) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vec x = *a, y = *b;
    *a = _mm512_permutex2var_ps(x, even, y);
    *b = _mm512_permutex2var_ps(x, _mm512_add_epi32(even, _mm512_set1_epi32(1)), y);
}
static inline void v_unmix(vec *a, vec *b) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vec x = *a, y = *b;
    *a = _mm512_permutex2var_ps(x, low, y);
    *b = _mm512_permutex2var_ps(x, _mm512_add_epi32(low, _mm512_set1_epi32(8)), y);
}

static inline void v_store_bf16(uint16_t *p, vec a) {
    const __m512i u = _mm512_castps_si512(a);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i near = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    const __m512i r = _mm512_mask_mov_epi32(near, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16)));
}

/* Whole numbers below 2^15 as int8 parts: 256 hi + lo. */
static inline void v_store_parts(int8_t *hi, int8_t *lo, vec a) {
    const __m512i q = _mm512_cvtps_epi32(a);
    const __m512i h = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(128)), 8);
    _mm_storeu_si128((void *)hi, _mm512_cvtepi32_epi8(h));
    _mm_storeu_si128((void *)lo, _mm512_cvtepi32_epi8(q));
}

#endif
