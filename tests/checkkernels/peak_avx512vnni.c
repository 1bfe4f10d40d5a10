/* peak_avx512vnni.c - vpdpbusd on registers, sixteen chains; reading by whole lines. */
#include <immintrin.h>

#include "peak.h"

double peak_int8_avx512vnni(long n) {
    const __m512i q = _mm512_set1_epi8(3), x = _mm512_set1_epi8(2);
    __m512i a0 = q, a1 = q, a2 = q, a3 = q, a4 = q, a5 = q, a6 = q, a7 = q;
    __m512i b0 = q, b1 = q, b2 = q, b3 = q, b4 = q, b5 = q, b6 = q, b7 = q;
#define DP(r) __asm__ volatile("vpdpbusd %1, %2, %0" : "+v"(r) : "v"(x), "v"(q));   /* an array would live in memory */
    for (long r = 0; r < n; r++) {
        DP(a0) DP(a1) DP(a2) DP(a3) DP(a4) DP(a5) DP(a6) DP(a7) DP(b0) DP(b1) DP(b2) DP(b3) DP(b4) DP(b5) DP(b6) DP(b7)
    }
    return (double)n * 16 * 128;
}

uint64_t peak_read_avx512vnni(const unsigned char *p, size_t n_bytes) {
    __m512i s[4];
    for (int i = 0; i < 4; i++) s[i] = _mm512_setzero_si512();
    for (size_t i = 0; i < n_bytes; i += 256)
        for (int l = 0; l < 4; l++) {
            _mm_prefetch((const char *)p + i + 4096 + 64 * l, _MM_HINT_T0);
            s[l] = _mm512_xor_si512(s[l], _mm512_load_si512(p + i + 64 * l));
        }
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_xor_si512(_mm512_xor_si512(s[0], s[1]), _mm512_xor_si512(s[2], s[3])));
}
