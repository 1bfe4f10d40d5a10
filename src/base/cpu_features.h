/* cpu_features.h - what this processor can do, asked once. */
#ifndef CALLA_BASE_CPU_FEATURES_H
#define CALLA_BASE_CPU_FEATURES_H

#include <stdbool.h>
#include <stddef.h>

struct calla_cpu_features {
    bool avx2, fma, f16c, avx512, avx512vnni, avx512bf16, amx_int8, amx_bf16;   /* with the system's consent */
    bool neon, dotprod, i8mm;
    int  n_cores;              /* physical cores that this process may use */
    char model[64];            /* "Intel(R) Xeon(R) Processor"            */
};

void calla_cpu_features(struct calla_cpu_features *out);
/* "avx2 avx512 vnni", for people. */
void calla_cpu_features_text(const struct calla_cpu_features *f, char *out, size_t cap);

#endif
