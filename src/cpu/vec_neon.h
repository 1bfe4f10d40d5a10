/* vec_neon.h - sixteen lanes as four NEON registers, for kernels_vec.h. */
#ifndef CALLA_CPU_VEC_NEON_H
#define CALLA_CPU_VEC_NEON_H

#include <arm_neon.h>

#include "cpu/kernels_isa.h"

typedef struct { float32x4_t q[4]; } vec;   /* lanes 4 i .. 4 i + 3 in q[i] */

enum {
    VEC_SCAN = 2,     /* 16 accumulators and 8 differences of the 32 registers */
    VEC_ATTN_Q = 2,
    VEC_ATTN_V = 2,
    VEC_FLOAT_T = 4,
};

#define V_EACH(expr) ((vec){ { expr(0), expr(1), expr(2), expr(3) } })

static inline vec v_load(const float *p) { return (vec){ { vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12) } }; }
static inline void v_store(float *p, vec a) {
    vst1q_f32(p, a.q[0]);
    vst1q_f32(p + 4, a.q[1]);
    vst1q_f32(p + 8, a.q[2]);
    vst1q_f32(p + 12, a.q[3]);
}
static inline void v_store_first(float *p, vec a, int n) {
    float t[16];
    v_store(t, a);
    memcpy(p, t, (size_t)n * sizeof *p);
}
static inline vec v_set1(float x) { const float32x4_t a = vdupq_n_f32(x); return (vec){ { a, a, a, a } }; }

#define ADD(i)  vaddq_f32(a.q[i], b.q[i])
#define SUB(i)  vsubq_f32(a.q[i], b.q[i])
#define MUL(i)  vmulq_f32(a.q[i], b.q[i])
#define DIV(i)  vdivq_f32(a.q[i], b.q[i])
#define FMA(i)  vfmaq_f32(c.q[i], a.q[i], b.q[i])
#define FMS(i)  vfmsq_f32(c.q[i], a.q[i], b.q[i])
#define MAX(i)  vbslq_f32(vcgtq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])
#define MIN(i)  vbslq_f32(vcltq_f32(a.q[i], b.q[i]), a.q[i], b.q[i])
#define ABS(i)  vabsq_f32(a.q[i])
#define NEG(i)  vnegq_f32(a.q[i])
static inline vec v_add(vec a, vec b) { return V_EACH(ADD); }
static inline vec v_sub(vec a, vec b) { return V_EACH(SUB); }
static inline vec v_mul(vec a, vec b) { return V_EACH(MUL); }
static inline vec v_div(vec a, vec b) { return V_EACH(DIV); }
static inline vec v_fma(vec a, vec b, vec c) { return V_EACH(FMA); }
static inline vec v_fnma(vec a, vec b, vec c) { return V_EACH(FMS); }   /* c - a b */
static inline vec v_max(vec a, vec b) { return V_EACH(MAX); }           /* a > b ? a : b; vmaxq treats NaN otherwise */
static inline vec v_min(vec a, vec b) { return V_EACH(MIN); }
static inline vec v_abs(vec a) { return V_EACH(ABS); }
static inline vec v_neg(vec a) { return V_EACH(NEG); }

/* a in the first n lanes, b in the others; 0 <= n <= 16 */
static inline vec v_first(vec a, vec b, int n) {
    static const int32_t lane[4] = { 0, 1, 2, 3 };
    const int32x4_t l = vld1q_s32(lane);
#define FIRST(i) vbslq_f32(vcltq_s32(l, vdupq_n_s32(n - 4 * (i))), a.q[i], b.q[i])
    return V_EACH(FIRST);
#undef FIRST
}

static inline float v_fold(vec a) {
    const float32x4_t q = vaddq_f32(vaddq_f32(a.q[0], a.q[2]), vaddq_f32(a.q[1], a.q[3]));
    const float32x2_t d = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(d, 0) + vget_lane_f32(d, 1);
}

/* In every fold the upper half is the first operand: upper > lower ? upper : lower. */
static inline float v_fold_max(vec a) {
    float t[16];
    v_store(t, a);
    for (int half = 8; half > 0; half /= 2)
        for (int l = 0; l < half; l++) t[l] = t[l + half] > t[l] ? t[l + half] : t[l];
    return t[0];
}

static inline float32x4_t scale_quarter(float32x4_t p, float32x4_t t) {
    const int32x4_t k = vsubq_s32(vreinterpretq_s32_f32(t), vdupq_n_s32(0x4b400000));
    const int32x4_t half = vshrq_n_s32(k, 1), bias = vdupq_n_s32(127);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vsubq_s32(k, half), bias), 23)));
}
/* p * 2^k, where t is CPU_EXP_MAGIC + k. */
static inline vec v_scale(vec p, vec t) {
#define SCALE(i) scale_quarter(p.q[i], t.q[i])
    return V_EACH(SCALE);
#undef SCALE
}

static inline vec v_load_bf16(const uint16_t *p) {
    const uint16x8_t a = vld1q_u16(p), b = vld1q_u16(p + 8);
    return (vec){ { vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(a), 16)), vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(a), 16)),
                    vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(b), 16)), vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(b), 16)) } };
}

/* Natural order costs no more here than any other. */
static inline void v_load_bf16_mixed(const uint16_t *p, vec *a, vec *b) { *a = v_load_bf16(p); *b = v_load_bf16(p + 16); }
static inline void v_mix(vec *a, vec *b) { (void)a; (void)b; }
static inline void v_unmix(vec *a, vec *b) { (void)a; (void)b; }

static inline uint16x4_t bf16_quarter(float32x4_t a) {
    const uint32x4_t u = vreinterpretq_u32_f32(a), odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    const uint32x4_t near = vaddq_u32(u, vaddq_u32(odd, vdupq_n_u32(0x7fff))), quiet = vorrq_u32(u, vdupq_n_u32(0x400000));
    return vshrn_n_u32(vbslq_u32(vceqq_f32(a, a), near, quiet), 16);
}
static inline void v_store_bf16(uint16_t *p, vec a) {
    vst1q_u16(p, vcombine_u16(bf16_quarter(a.q[0]), bf16_quarter(a.q[1])));
    vst1q_u16(p + 8, vcombine_u16(bf16_quarter(a.q[2]), bf16_quarter(a.q[3])));
}

/* Whole numbers below 2^15 as int8 parts: 256 hi + lo. */
static inline void v_store_parts(int8_t *hi, int8_t *lo, vec a) {
    for (int i = 0; i < 2; i++) {
        const int16x8_t q = vcombine_s16(vmovn_s32(vcvtnq_s32_f32(a.q[2 * i])), vmovn_s32(vcvtnq_s32_f32(a.q[2 * i + 1])));
        vst1_s8(hi + 8 * i, vshrn_n_s16(vaddq_s16(q, vdupq_n_s16(128)), 8));   /* 32639 + 128 is still an int16 */
        vst1_s8(lo + 8 * i, vmovn_s16(q));
    }
}

#endif
