/* weights_files.h - the shards of a checkpoint and the table of their tensors.
 *
 * Private to src/model and the commands about checkpoints. */
#ifndef CALLA_MODEL_WEIGHTS_FILES_H
#define CALLA_MODEL_WEIGHTS_FILES_H

#include "base/map.h"
#include "model/safetensors.h"
#include "model/weights.h"

struct calla_shard {
    char *path, *name;                  /* owned                                       */
    struct calla_map map;
    struct calla_safetensors st;
};

struct calla_entry {
    const struct calla_tensor *tensor;  /* of the shard's table                        */
    const struct calla_shard *shard;
    const unsigned char *data;          /* any alignment                               */
    bool used;                          /* part of the model                           */
    bool vision;                        /* known, and skipped                          */
    bool mtp;                           /* of the MTP head                             */
};

struct calla_weights_files {
    struct calla_shard *shards;         /* [n_shards], owned                           */
    int n_shards;
    struct calla_entry *entries;        /* [n_entries], by tensor name; owned          */
    size_t n_entries;
    struct calla_block *blocks;         /* memory that lives as long as the files      */
};

/* model.safetensors.index.json with its shards, or model.safetensors alone. */
int  calla_weights_files_open(struct calla_weights_files **out, const char *dir,
                              const struct calla_weights_options *opt, struct calla_err *err);
void calla_weights_files_close(struct calla_weights_files **f);
/* NULL when there is no such tensor. */
struct calla_entry *calla_weights_files_find(const struct calla_weights_files *f, const char *name);
/* Zeroed memory that is freed with the files; NULL when there is none. */
void *calla_weights_files_alloc(struct calla_weights_files *f, size_t n_bytes);

#endif
