/* dispatch.c - the kernel tables of this build, and which of them run here.
 *
 * Any thread; no state: the tables are const data. */
#include "cpu/kernels_isa.h"

#include "base/cpu_features.h"

#if defined(__x86_64__)
static const struct cpu_kernels *const tables[] = { &cpu_kernels_c, &cpu_kernels_avx2, &cpu_kernels_avx512,
                                                  &cpu_kernels_avx512vnni };
#elif defined(__aarch64__)
static const struct cpu_kernels *const tables[] = { &cpu_kernels_c, &cpu_kernels_neon, &cpu_kernels_neoni8mm };
#else
static const struct cpu_kernels *const tables[] = { &cpu_kernels_c };
#endif
enum { N_TABLES = sizeof tables / sizeof *tables };

static bool runs_here(const struct cpu_kernels *k, const struct calla_cpu_features *f) {
#if defined(__x86_64__)
    const bool avx2 = f->avx2 && f->fma && f->f16c;
    if (k == &cpu_kernels_avx2) return avx2;
    if (k == &cpu_kernels_avx512) return avx2 && f->avx512;
    if (k == &cpu_kernels_avx512vnni) return avx2 && f->avx512vnni;
#elif defined(__aarch64__)
    if (k == &cpu_kernels_neon) return f->neon && f->dotprod;
    if (k == &cpu_kernels_neoni8mm) return f->neon && f->dotprod && f->i8mm;
#endif
    (void)f;
    return k == &cpu_kernels_c;
}

const struct cpu_kernels *cpu_kernels_at(int i, int *runs) {
    struct calla_cpu_features f;

    if (i < 0 || i >= N_TABLES) return NULL;
    calla_cpu_features(&f);
    if (runs) *runs = runs_here(tables[i], &f);
    return tables[i];
}

const struct cpu_kernels *cpu_kernels_best(void) {
    struct calla_cpu_features f;
    int i = N_TABLES - 1;

    calla_cpu_features(&f);
    while (i > 0 && !runs_here(tables[i], &f)) i--;
    return tables[i];
}

/* Four panels of 16 rows as bytes, their scales and biases as f32, and the
 * accumulators of a chunk of rows. */
size_t cpu_matmul_scratch(int max_cols) {
    const size_t cols = (size_t)(max_cols > 0 ? max_cols : 0);
    return 4 * CPU_LANES * (cols + 2 * sizeof(float) * (cols / CALLA_GROUP)) + 65536;
}

/* The scores of a page, a row of 64 for each query. */
size_t cpu_attn_scratch(int max_q) {
    return (size_t)(max_q > 0 ? max_q : 0) * CPU_PAGE * sizeof(float) + 65536;
}
