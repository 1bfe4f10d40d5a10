/* model.h - what an opened model is inside the engine.
 *
 * Read-only after open but for the backend and the count of states, which
 * belong to whoever holds `lock`: a backend runs one step at a time, and the
 * logits of a step are read before the lock is given back. */
#ifndef CALLA_ENGINE_MODEL_H
#define CALLA_ENGINE_MODEL_H

#include <pthread.h>

#include "engine/backend.h"
#include "engine/plan.h"

struct calla_model {
    const struct calla_backend_ops *ops;
    struct calla_backend *backend;
    struct calla_weights *weights;      /* NULL only in tests of the scheduler        */
    struct calla_plan plan;
    int  n_vocab, n_usable;
    char device[128];
    pthread_mutex_t lock;
    struct calla_model_info info;
};

/* The end of a chunk of at most n_most rows from position pos of a prompt of
 * n_prompt ids: on the 64-grid of absolute positions, so that a prompt is cut
 * at the same places warm and cold.  Off the grid only at the prompt's end and
 * where n_most does not reach the next line. */
int calla_chunk_end(int pos, int n_prompt, int n_most);

#endif
