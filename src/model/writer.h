/* writer.h - writes a checkpoint folder: safetensors shards and their index.
 *
 * All tensors are declared first, so every byte has its place before the first
 * is written and any thread may put any part.  Shards carry the ending .part
 * until finish, so that an interrupted run never looks like a checkpoint. */
#ifndef CALLA_MODEL_WRITER_H
#define CALLA_MODEL_WRITER_H

#include "calla.h"

struct calla_writer;

enum { CALLA_WRITER_DIMS = 4 };

/* Makes dir if it is missing; refuses one that already holds a checkpoint.  A
 * new shard begins where the next tensor would pass shard_bytes (0: one file). */
int  calla_writer_new(struct calla_writer **out, const char *dir, uint64_t shard_bytes, struct calla_err *err);
/* dtype: "U32", "BF16", "F32".  Returns the tensor's index or a status. */
int  calla_writer_add(struct calla_writer *w, const char *name, const char *dtype,
                      int n_dims, const int64_t *dims, struct calla_err *err);
uint64_t calla_writer_bytes(const struct calla_writer *w);   /* of all tensors so far */
/* Checks the free space (both numbers in the error), writes headers and index;
 * format: the metadata entry, "mlx" or "pt". */
int  calla_writer_begin(struct calla_writer *w, const char *format, struct calla_err *err);
/* Bytes [offset, offset + n) of a tensor; any thread, each byte once. */
int  calla_writer_put(struct calla_writer *w, int tensor_idx, uint64_t offset, const void *data, size_t n,
                      struct calla_err *err);
int  calla_writer_finish(struct calla_writer *w, struct calla_err *err);  /* flushes and renames */
void calla_writer_free(struct calla_writer **w);

/* A small file beside the shards, written whole. */
int  calla_writer_file(struct calla_writer *w, const char *name, const char *data, size_t n, struct calla_err *err);

#endif
