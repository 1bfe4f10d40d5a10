/* names.h - how a checkpoint calls its tensors.
 *
 * Private to src/model. */
#ifndef CALLA_MODEL_NAMES_H
#define CALLA_MODEL_NAMES_H

#include "model/weights_files.h"

struct calla_names {
    const char *text;         /* "language_model.model.": before embed_tokens, layers, norm */
    const char *head;         /* "language_model.lm_head"                                   */
    const char *mtp;          /* "language_model.mtp."; NULL where there is no such tensor  */
    bool hf;                  /* Hugging Face layout: norms hold w of 1 + w, conv [C, 1, 4];
                               * otherwise MLX: norms hold the factor, conv [C, 4, 1]       */
};

/* Finds the prefixes and the layout, and marks the vision tensors. */
int calla_names_find(struct calla_names *out, const struct calla_weights_files *f, const char *dir, struct calla_err *err);

#endif
