/* plan.h - how much memory the model will take, decided before any of it is. */
#ifndef CALLA_ENGINE_PLAN_H
#define CALLA_ENGINE_PLAN_H

#include "engine/backend.h"

struct calla_plan {
    struct calla_backend_options backend;  /* what open() is called with             */
    struct calla_backend_plan    bytes;    /* what the backend says to that          */
    int      n_sequences;                  /* states that run                        */
    int      n_kept;                       /* states that are parked                 */
    uint64_t limit_bytes;                  /* what the plan had to fit               */
    uint64_t states_bytes, kv_bytes, total_bytes;
};

/* Bytes that this process may still take: free memory of the machine or what
 * the control group leaves, whichever is less; the page cache counts as free. */
uint64_t calla_memory_free(void);

/* Chooses context, sequences, kept states and pages.  CALLA_ERR_MEMORY with
 * both numbers and the way out when it cannot fit. */
int  calla_plan_make(struct calla_plan *out, const struct calla_backend_ops *ops, const struct calla_weights *w,
                     const struct calla_options *opt, struct calla_err *err);
void calla_plan_print(const struct calla_plan *p, const struct calla_weights *w, const char *backend,
                      void (*log)(void *user, const char *line), void *user);

#endif
