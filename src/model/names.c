/* names.c - the prefixes in use, and how the two layouts are told apart
 * (docs/model.md, "Checkpoints"). */
#include "model/names.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

static const char *const text_prefixes[] = { "model.language_model.", "language_model.model.", "model." };
static const char *const heads[] = { "lm_head", "language_model.lm_head", "model.language_model.lm_head",
                                     "language_model.model.lm_head", "model.lm_head" };
static const char *const mtp_prefixes[] = { "mtp.", "language_model.mtp.", "model.language_model.mtp.", "model.mtp." };
static const char *const vision_prefixes[] = { "vision_tower.", "model.visual.", "visual.", "model.vision_tower.",
                                               "language_model.visual." };
#define N(list) (sizeof(list) / sizeof *(list))

static bool starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

static const struct calla_tensor *find2(const struct calla_weights_files *f, const char *prefix, const char *rest) {
    char name[CALLA_TENSOR_NAME];
    snprintf(name, sizeof name, "%s%s", prefix, rest);
    const struct calla_entry *e = calla_weights_files_find(f, name);
    return e ? e->tensor : NULL;
}

static int find_layout(struct calla_names *n, const struct calla_weights_files *f, const char *dir, struct calla_err *err) {
    char shape[160];
    const struct calla_tensor *conv = find2(f, n->text, "layers.0.linear_attn.conv1d.weight");
    if (conv == NULL)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: tensor %slayers.0.linear_attn.conv1d.weight is missing", dir, n->text);
    if (conv->n_dims == 3 && conv->dims[1] == 1 && conv->dims[2] == CALLA_CONV) n->hf = true;
    else if (conv->n_dims == 3 && conv->dims[1] == CALLA_CONV && conv->dims[2] == 1) n->hf = false;
    else {
        calla_tensor_shape_text(conv, shape, sizeof shape);
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: tensor %s has shape %s, neither [C, 1, %d] nor [C, %d, 1]", dir, conv->name, shape,
                          CALLA_CONV, CALLA_CONV);
    }
    return 0;
}

int calla_names_find(struct calla_names *out, const struct calla_weights_files *f, const char *dir, struct calla_err *err) {
    *out = (struct calla_names){ 0 };
    for (size_t i = 0; i < N(text_prefixes) && out->text == NULL; i++)
        if (find2(f, text_prefixes[i], "embed_tokens.weight") != NULL) out->text = text_prefixes[i];
    if (out->text == NULL)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: no tensor embed_tokens.weight under any of the prefixes %s, %s and %s", dir,
                          text_prefixes[0], text_prefixes[1], text_prefixes[2]);
    for (size_t i = 0; i < N(heads) && out->head == NULL; i++)
        if (find2(f, heads[i], ".weight") != NULL) out->head = heads[i];
    if (out->head == NULL)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: no tensor lm_head.weight, alone or under the prefix language_model. or model.", dir);
    for (size_t k = 0; k < f->n_entries; k++) {
        struct calla_entry *e = &f->entries[k];
        for (size_t i = 0; i < N(mtp_prefixes); i++)
            if (out->mtp == NULL && starts(e->tensor->name, mtp_prefixes[i])) out->mtp = mtp_prefixes[i];
        for (size_t i = 0; i < N(vision_prefixes); i++) e->vision |= starts(e->tensor->name, vision_prefixes[i]);
    }
    return find_layout(out, f, dir, err);
}
