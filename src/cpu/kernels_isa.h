/* kernels_isa.h - what the kernel files of this folder share: the tables
 * of this build, and the functions that one table borrows from another. */
#ifndef CALLA_CPU_KERNELS_ISA_H
#define CALLA_CPU_KERNELS_ISA_H

#include <float.h>
#include <stdbool.h>

#include "cpu/kernels.h"
#include "cpu/math.h"
#include "model/shape.h"

extern const struct cpu_kernels cpu_kernels_c;
extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx512, cpu_kernels_avx512vnni;
extern const struct cpu_kernels cpu_kernels_neon, cpu_kernels_neoni8mm;

#define CPU_MATMUL_ARGS float *y, size_t y_stride, const struct cpu_matrix *w, int block0, int block1, \
                        const struct cpu_acts *a, const int32_t *rows, int n, void *scratch

uint64_t cpu_matmul_q4_avx2(CPU_MATMUL_ARGS);   /* also AVX-512 without VNNI */
uint64_t cpu_matmul_q8_avx2(CPU_MATMUL_ARGS);

#endif
