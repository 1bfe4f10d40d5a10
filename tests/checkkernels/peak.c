/* peak.c - picks the measurement that this processor runs. */
#include "peak.h"

#include <string.h>

#include "base/cpu_features.h"

#if defined(__x86_64__)
static int has_vnni(void) {
    struct calla_cpu_features f;
    calla_cpu_features(&f);
    return f.avx512vnni;
}

static int has_avx2(void) {
    struct calla_cpu_features f;
    calla_cpu_features(&f);
    return f.avx2;
}
#endif

uint64_t peak_read(const unsigned char *p, size_t n_bytes) {
    uint64_t sum[8] = { 0 };
#if defined(__x86_64__)
    if (has_vnni()) return peak_read_avx512vnni(p, n_bytes);
#endif
    for (size_t i = 0; i < n_bytes; i += 64) {
        __builtin_prefetch(p + i + 4096);
        for (int l = 0; l < 8; l++) {
            uint64_t v;
            memcpy(&v, p + i + 8 * l, sizeof v);
            sum[l] += v;
        }
    }
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

const char *peak_int8_name(void) {
#if defined(__x86_64__)
    return has_vnni() ? "vpdpbusd" : has_avx2() ? "vpmaddubsw, vpmaddwd, vpaddd" : "none";
#elif defined(__aarch64__)
    return "sdot";
#else
    return "none";
#endif
}

double peak_int8(long n) {
#if defined(__x86_64__)
    return has_vnni() ? peak_int8_avx512vnni(n) : has_avx2() ? peak_int8_avx2(n) : 0;
#elif defined(__aarch64__)
    return peak_int8_neon(n);
#else
    (void)n;
    return 0;
#endif
}
