/* kernels_neoni8mm.c - NEON with the mixed-sign dot products of i8mm (usdot): the table.
 * Matrices: matmul_neon.h.  Float kernels: kernels_vec.h. */
#define ISA(name) name##_neoni8mm
#include "cpu/vec_neon.h"
#include "cpu/kernels_vec.h"
#include "cpu/matmul_neon.h"

const struct cpu_kernels cpu_kernels_neoni8mm = {
    .name = "neon-i8mm",
    .matmul = { [CPU_Q4] = ISA(matmul_q4), [CPU_Q8] = ISA(matmul_q8),
                [CPU_BF16] = ISA(matmul_bf16), [CPU_F32] = ISA(matmul_f32) },
    VEC_SLOTS,
};
