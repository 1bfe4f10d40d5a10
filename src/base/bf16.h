/* bf16.h - bf16 and f16 as 16-bit words, to and from f32.
 *
 * Rounding is to nearest, ties to even; NaN stays NaN.  Loads take any byte
 * address and read little-endian, as all files do. */
#ifndef CALLA_BASE_BF16_H
#define CALLA_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float calla_f32_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t calla_f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float calla_bf16_to_f32(uint16_t h) { return calla_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t calla_bf16_from_f32(float f) {
    const uint32_t u = calla_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40u);   /* a quiet NaN */
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float calla_f16_to_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    if (exponent == 31u) return calla_f32_from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent != 0u) return calla_f32_from_bits(sign | (exponent + 112u) << 23 | fraction << 13);
    /* zero and subnormals: fraction * 2^-24, exact */
    return calla_f32_from_bits(sign | calla_f32_bits((float)fraction * 0x1p-24f));
}

static inline uint16_t calla_f16_from_f32(float f) {
    const uint32_t u = calla_f32_bits(f), magnitude = u & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);   /* 65520 and up round to infinity */
    if (magnitude < 0x38800000u) {   /* below 2^-14: the sum with 1/2 rounds at 2^-24 */
        const float r = calla_f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (calla_f32_bits(r) - 0x3f000000u));
    }
    const uint32_t r = magnitude - 0x38000000u;   /* exponent bias 127 -> 15 */
    return (uint16_t)(sign | (r + 0xfffu + (r >> 13 & 1u)) >> 13);
}

static inline uint16_t calla_load_u16(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint64_t calla_load_u64(const unsigned char *p) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

#endif
