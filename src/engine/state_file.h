/* state_file.h - a sequence on disk: its ids and its state. */
#ifndef CALLA_ENGINE_STATE_FILE_H
#define CALLA_ENGINE_STATE_FILE_H

#include "engine/model.h"

/* Written to a temporary name beside `path`, synced and renamed into place. */
int calla_state_file_save(const struct calla_model *m, const struct calla_state *state, const int32_t *ids, int n_ids,
                          const char *path, struct calla_err *err);
/* state becomes the file's; *ids (owned by the caller, free()) [*n_ids].  After
 * an error state must be reset. */
int calla_state_file_load(struct calla_model *m, struct calla_state *state, int32_t **ids, int *n_ids,
                          const char *path, struct calla_err *err);

#endif
