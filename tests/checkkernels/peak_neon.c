/* peak_neon.c - sdot on registers, sixteen chains. */
#include <arm_neon.h>

#include "peak.h"

double peak_int8_neon(long n) {
    const int8x16_t q = vdupq_n_s8(3), x = vdupq_n_s8(2);
    int32x4_t a0 = vdupq_n_s32(0), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0, a7 = a0;
    int32x4_t b0 = a0, b1 = a0, b2 = a0, b3 = a0, b4 = a0, b5 = a0, b6 = a0, b7 = a0;
#define DP(r) __asm__ volatile("sdot %0.4s, %1.16b, %2.16b" : "+w"(r) : "w"(q), "w"(x));
    for (long r = 0; r < n; r++) {
        DP(a0) DP(a1) DP(a2) DP(a3) DP(a4) DP(a5) DP(a6) DP(a7) DP(b0) DP(b1) DP(b2) DP(b3) DP(b4) DP(b5) DP(b6) DP(b7)
    }
    return (double)n * 16 * 32;
}
