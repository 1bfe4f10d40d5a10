/* kernels_neon.c - NEON with dot products (sdot): the table.
 * Matrices: matmul_neon.h.  Float kernels: kernels_vec.h. */
#define ISA(name) name##_neon
#include "cpu/vec_neon.h"
#include "cpu/kernels_vec.h"
#include "cpu/matmul_neon.h"

const struct cpu_kernels cpu_kernels_neon = {
    .name = "neon",
    .matmul = { [CPU_Q4] = ISA(matmul_q4), [CPU_Q8] = ISA(matmul_q8),
                [CPU_BF16] = ISA(matmul_bf16), [CPU_F32] = ISA(matmul_f32) },
    VEC_SLOTS,
};
