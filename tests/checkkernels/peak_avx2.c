/* peak_avx2.c - what eight-bit products cost without VNNI: multiply, widen, add. */
#include <immintrin.h>

#include "peak.h"

double peak_int8_avx2(long n) {
    const __m256i q = _mm256_set1_epi8(3), x = _mm256_set1_epi8(2), one = _mm256_set1_epi16(1);
    __m256i a0 = q, a1 = q, a2 = q, a3 = q, a4 = q, a5 = q, a6 = q, a7 = q, t;
#define DP(r) __asm__ volatile("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0" \
                               : "+x"(r), "=&x"(t) : "x"(x), "x"(q), "x"(one));
    for (long r = 0; r < n; r++) { DP(a0) DP(a1) DP(a2) DP(a3) DP(a4) DP(a5) DP(a6) DP(a7) }
    return (double)n * 8 * 64;
}
