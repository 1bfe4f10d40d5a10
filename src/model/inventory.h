/* inventory.h - every tensor of the network, once, under the names of both
 * layouts.  Writers of checkpoints (synth, convert) walk it. */
#ifndef CALLA_MODEL_INVENTORY_H
#define CALLA_MODEL_INVENTORY_H

#include "model/weights.h"

enum calla_item_kind {
    CALLA_ITEM_MATRIX,     /* published as 4 bits                                       */
    CALLA_ITEM_ROUTER,     /* published as 8 bits                                       */
    CALLA_ITEM_NORM,       /* factor = 1 + stored in the hf layout                      */
    CALLA_ITEM_HEAD_NORM,  /* as NORM; of a query or key head                           */
    CALLA_ITEM_GDN_NORM,   /* factor = stored in both                                   */
    CALLA_ITEM_CONV, CALLA_ITEM_A_LOG, CALLA_ITEM_DT_BIAS
};

enum { CALLA_ITEM_NAME = 128 };

struct calla_item {
    enum calla_item_kind kind;
    char mlx[CALLA_ITEM_NAME]; /* without .weight for matrices, whole for vectors      */
    char hf[CALLA_ITEM_NAME];  /* whole                                                 */
    int  n_mats;               /* stacked matrices: E for routed experts, otherwise 1   */
    int  n_rows, n_cols;       /* of one matrix; a vector has n_rows values, CONV 4 columns */
    bool stacked;              /* the tensor has the leading dimension [n_mats]         */
    int  hf_parts, hf_part;    /* gate and up are the two parts of the rows of one hf tensor */
    const struct calla_matrix *matrices; /* [n_mats] of `w`; NULL without weights       */
    const float *values;       /* [n_rows (, 4)] of `w`                                 */
};

/* Calls visit for every item of the shape cut to n_layers, with the MTP head's
 * if mtp; w may be NULL.  Stops at and returns the first status below 0. */
int calla_inventory(const struct calla_shape *shape, int n_layers, bool mtp, const struct calla_weights *w,
                    int (*visit)(void *user, const struct calla_item *item), void *user);

#endif
