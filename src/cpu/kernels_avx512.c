/* kernels_avx512.c - AVX-512 without VNNI: float kernels on whole registers;
 * quantised matrices are those of AVX2. */
#define ISA(name) name##_avx512
#include "cpu/vec_avx512.h"
#include "cpu/kernels_vec.h"

const struct cpu_kernels cpu_kernels_avx512 = {
    .name = "avx512",
    .matmul = { [CPU_Q4] = cpu_matmul_q4_avx2, [CPU_Q8] = cpu_matmul_q8_avx2,
                [CPU_BF16] = ISA(matmul_bf16), [CPU_F32] = ISA(matmul_f32) },
    VEC_SLOTS,
};
