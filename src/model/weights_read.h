/* weights_read.h - single vectors and matrices of a checkpoint, checked.
 *
 * Private to weights*.c. */
#ifndef CALLA_MODEL_WEIGHTS_READ_H
#define CALLA_MODEL_WEIGHTS_READ_H

#include "model/config.h"
#include "model/names.h"
#include "model/weights_files.h"

struct calla_reader {
    struct calla_weights *w;
    struct calla_weights_files *files;
    const char *dir;
    const struct calla_config *config;
    const struct calla_weights_options *opt;
    struct calla_names names;
    const char *half_from;        /* who says which 16-bit type is in use; NULL: nobody yet */
    enum calla_dtype half;        /* BF16 or F16: a checkpoint has one of them              */
    bool in_mtp;                  /* what is read now belongs to the MTP head: not counted */
    struct calla_err *err;
};

/* What a matrix is in the published checkpoint: decides how a bf16 one is coded. */
enum calla_role { CALLA_ROLE_Q4, CALLA_ROLE_Q8 };

/* f32 copy of `prefix + name`: exactly n values in the dims given (n_dims of them), `add` added to each. */
int calla_read_vector(struct calla_reader *r, const char *prefix, const char *name, const uint64_t *dims, int n_dims,
                      float add, const float **out);
/* Module `prefix + name` (its tensors end in .weight, .scales, .biases). */
int calla_read_matrix(struct calla_reader *r, const char *prefix, const char *name, int n_rows, int n_cols,
                      enum calla_role role, struct calla_matrix *out);
/* The experts of a layer, in any of the three forms; arrays come from the files' memory. */
int calla_read_experts(struct calla_reader *r, const char *prefix, struct calla_moe_weights *moe);
/* Is there a tensor `prefix + name`? */
bool calla_read_has(const struct calla_reader *r, const char *prefix, const char *name);

#endif
