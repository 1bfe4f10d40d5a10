/* packed.h - how the CPU backend keeps matrices and activations.
 *
 * A weight matrix [n_rows, n_cols] is cut into blocks of 16 rows x 64 columns
 * (one quantisation group), the blocks of 16 rows following one another:
 * block (i, g) lies at data + (i * n_cols / 64 + g) * block_bytes.  Rows past
 * n_rows are zero.  Blocks start on 64 bytes and hold, rows as lanes:
 *
 *   Q4    576 B  8 x 64 bytes: in chunk k byte 4 r + j has row r's column
 *                8 k + j in the low nibble and 8 k + 4 + j in the high one;
 *                then 16 bf16 scales, 16 bf16 biases
 *   Q8   1088 B  16 x 64 bytes: in chunk k byte 4 r + j is row r's column
 *                4 k + j; then scales and biases as above
 *   BF16 2048 B  [64 columns][16 rows] bf16
 *   F32  4096 B  [64 columns][16 rows] f32 (f16 tensors are kept so)
 *
 * Same bytes as the checkpoint has; one instruction reads four columns of
 * sixteen rows. */
#ifndef CALLA_CPU_PACKED_H
#define CALLA_CPU_PACKED_H

#include <stddef.h>
#include <stdint.h>

enum cpu_format { CPU_Q4, CPU_Q8, CPU_BF16, CPU_F32, CPU_N_FORMATS };
enum { CPU_LANES = 16, CPU_Q4_BLOCK = 576, CPU_Q8_BLOCK = 1088, CPU_BF16_BLOCK = 2048, CPU_F32_BLOCK = 4096 };

struct cpu_matrix {
    int n_rows, n_cols;           /* n_cols a multiple of 64                      */
    enum cpu_format format;
    const unsigned char *data;    /* [ceil(n_rows / 16)][n_cols / 64] blocks      */
};

static inline size_t cpu_block_bytes(enum cpu_format f) {
    return f == CPU_Q4 ? CPU_Q4_BLOCK : f == CPU_Q8 ? CPU_Q8_BLOCK : f == CPU_BF16 ? CPU_BF16_BLOCK : CPU_F32_BLOCK;
}
static inline int cpu_row_blocks(const struct cpu_matrix *m) { return (m->n_rows + CPU_LANES - 1) / CPU_LANES; }

/* Activations as the inputs of matrices.  Each row is kept twice: as f32 for
 * unquantised matrices, and in groups of 64 as 16-bit integers cut into two
 * int8 parts for quantised ones:
 *     x[c] ~ scale[c / 64] * (256 * hi[c] + lo[c]),  |256 hi + lo| <= 32639.
 * int16 costs a KL of 4e-6..1e-5 where bf16 costs 2e-4 (docs/performance.md).
 * scale is amax / 32639 and an integer is x * (32639 / amax), to nearest even;
 * a group with a NaN or an infinity has scale NaN and zero integers, so that it
 * reaches the logits; one with amax below 2^-100 counts as zero (32639 / amax
 * must not overflow).  sum[g] = scale[g] * f32(sum of
 * the group's integers), the partner of the weights' biases. */
#define CPU_ACT_MAX  32639.0f
#define CPU_ACT_TINY 0x1p-100f

struct cpu_acts {
    int n_rows, n_cols;
    float  *x;                    /* [n_rows, n_cols]                             */
    int8_t *hi, *lo;              /* [n_rows, n_cols]                             */
    float  *scale, *sum;          /* [n_rows, n_cols / 64]                        */
};

#endif
