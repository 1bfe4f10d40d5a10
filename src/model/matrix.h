/* matrix.h - what the rows of weights.h's matrices are made with.
 *
 * Private to src/model and the commands about checkpoints. */
#ifndef CALLA_MODEL_MATRIX_H
#define CALLA_MODEL_MATRIX_H

#include "model/weights.h"

/* Bytes of one row's codes or elements, without scales and biases. */
size_t calla_matrix_row_bytes(enum calla_format f, int n_cols);

/* One group of 64 as mx.quantize makes it on the CPU: value = scale * q + bias,
 * q from 0 to 2^bits - 1 chosen with the f32 scale and bias, which are rounded
 * to bf16 only where they are stored. */
void calla_quantise_group(const float *w, int bits, uint8_t *q, float *scale, float *bias);

/* The first scale, bias or unquantised weight that is not finite. */
struct calla_bad_value { const char *part; int row, col; float value; };
bool calla_matrix_bad_value(const struct calla_matrix *m, struct calla_bad_value *out);

#endif
