/* targets.h - the tensors of a checkpoint that is being written.
 *
 * Declares the inventory's items in a writer under one layout's names and cuts
 * the work into jobs of whole rows that any thread may take. */
#ifndef CALLA_MODEL_TARGETS_H
#define CALLA_MODEL_TARGETS_H

#include "model/inventory.h"
#include "model/writer.h"

struct calla_target {
    struct calla_item item;
    int weight, scales, biases;      /* tensors of the writer; scales and biases only in the mlx layout's matrices */
};

struct calla_targets {
    struct calla_writer *writer;     /* borrowed */
    bool hf;                         /* layout: bf16 originals; otherwise mlx affine */
    struct calla_target *v;
    int  n, cap;
    struct calla_err *err;           /* of the walk */
};

int  calla_targets_declare(struct calla_targets *t, struct calla_writer *writer, bool hf, const struct calla_shape *shape,
                           int n_layers, bool mtp, const struct calla_weights *w, struct calla_err *err);
void calla_targets_free(struct calla_targets *t);

/* Rows of quantised values go to a matrix of the mlx layout: q [n, n_cols] one
 * value a byte, scales and biases [n, n_cols / 64] bf16, rows counted through
 * the stack.  packed: scratch of n * n_cols bytes. */
int  calla_target_put_quant(const struct calla_targets *t, const struct calla_target *target, int row, int n,
                            const uint8_t *q, const uint16_t *scales, const uint16_t *biases, uint8_t *packed,
                            struct calla_err *err);
/* Rows of bf16 values go to a tensor of the hf layout, or a vector of either. */
int  calla_target_put_bf16(const struct calla_targets *t, const struct calla_target *target, int row, int n,
                           const uint16_t *values, struct calla_err *err);

/* Runs job(user, target, first row, number of rows, err) over all rows of all
 * targets, in pieces of about 4 MB, on n_threads (0: all cores).  The first
 * failure stops the rest.  progress may be NULL; called from one thread. */
int  calla_targets_run(struct calla_targets *t, int n_threads,
                       int (*job)(void *user, const struct calla_target *target, int row, int n, struct calla_err *err),
                       void *user, void (*progress)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes),
                       void *progress_user, struct calla_err *err);

/* Bits of a matrix in the published checkpoint; 0 for a vector. */
static inline int calla_item_bits(const struct calla_item *item) {
    return item->kind == CALLA_ITEM_MATRIX ? 4 : item->kind == CALLA_ITEM_ROUTER ? 8 : 0;
}

#endif
