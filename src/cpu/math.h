/* math.h - scalar functions of the kernels, as sequences of exact operations.
 *
 * Every instruction set repeats these operations in this order, lane by lane
 * (vec.h), so all give the same bits.  Static functions only; any thread.
 * The largest errors named here are checked against double in
 * tests/checkkernels. */
#ifndef CALLA_CPU_MATH_H
#define CALLA_CPU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t cpu_bits(float x) { uint32_t u; memcpy(&u, &x, sizeof u); return u; }
static inline float cpu_float(uint32_t u) { float x; memcpy(&x, &u, sizeof x); return x; }

static inline float cpu_from_bf16(uint16_t h) { return cpu_float((uint32_t)h << 16); }

/* Nearest even; a NaN stays one. */
static inline uint16_t cpu_to_bf16(float x) {
    const uint32_t u = cpu_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

/* Range reduction after Cody and Waite, polynomial of Cephes' expf. */
#define CPU_EXP_HI     90.0f              /* above: inf; below CPU_EXP_LO: 0 */
#define CPU_EXP_LO     (-105.0f)
#define CPU_EXP_LOG2E  1.44269504f
#define CPU_EXP_MAGIC  12582912.0f        /* 1.5 * 2^23: adding it rounds to an integer */
#define CPU_EXP_LN2_HI 0.693359375f
#define CPU_EXP_LN2_LO (-2.12194440e-4f)
#define CPU_EXP_C0     5.0000001201e-1f
#define CPU_EXP_C1     1.6666665459e-1f
#define CPU_EXP_C2     4.1665795894e-2f
#define CPU_EXP_C3     8.3334519073e-3f
#define CPU_EXP_C4     1.3981999507e-3f
#define CPU_EXP_C5     1.9875691500e-4f

/* exp(x) within 1.1 ulp, subnormal results included.  2^k goes in as two
 * factors because k reaches from -151 to 130. */
static inline float cpu_exp(float x) {
    x = x > CPU_EXP_HI ? CPU_EXP_HI : x;
    x = x < CPU_EXP_LO ? CPU_EXP_LO : x;
    const float t = fmaf(x, CPU_EXP_LOG2E, CPU_EXP_MAGIC), n = t - CPU_EXP_MAGIC;
    const float r = fmaf(n, -CPU_EXP_LN2_LO, fmaf(n, -CPU_EXP_LN2_HI, x));
    float p = fmaf(CPU_EXP_C5, r, CPU_EXP_C4);
    p = fmaf(p, r, CPU_EXP_C3);
    p = fmaf(p, r, CPU_EXP_C2);
    p = fmaf(p, r, CPU_EXP_C1);
    p = fmaf(p, r, CPU_EXP_C0);
    p = fmaf(p, r * r, r) + 1.0f;
    const uint32_t k = cpu_bits(t) - cpu_bits(CPU_EXP_MAGIC);
    const uint32_t half = (k >> 1) | (k & 0x80000000u);
    return p * cpu_float((half + 127u) << 23) * cpu_float((k - half + 127u) << 23);
}

static inline float cpu_sigmoid(float x) { return 1.0f / (1.0f + cpu_exp(-x)); }
static inline float cpu_silu(float x) { return x / (1.0f + cpu_exp(-x)); }

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), within 3 ulp.  log1p(e) is
 * 2 atanh(z), z = e / (2 + e) <= 1/3, whose series is cut after z^17 / 17:
 * the rest is below 2^-33. */
static inline float cpu_softplus(float x) {
    const float e = cpu_exp(x < 0.0f ? x : -x), z = e / (2.0f + e), w = z * z;
    float p = fmaf(1.0f / 17, w, 1.0f / 15);
    p = fmaf(p, w, 1.0f / 13);
    p = fmaf(p, w, 1.0f / 11);
    p = fmaf(p, w, 1.0f / 9);
    p = fmaf(p, w, 1.0f / 7);
    p = fmaf(p, w, 1.0f / 5);
    p = fmaf(p, w, 1.0f / 3);
    return (x < 0.0f ? 0.0f : x) + 2.0f * fmaf(p * w, z, z);
}

#endif
