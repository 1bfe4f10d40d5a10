/* backend.h - the seam between engine and device: functions at step level.
 *
 * One step runs rows of several sequences, prefill and decode mixed.  What a
 * row computes depends on its own sequence only: not on the other rows, the
 * split of the prompt or the number of threads.  The CPU backend keeps this bit
 * for bit; the engine relies on it for its caches. */
#ifndef CALLA_ENGINE_BACKEND_H
#define CALLA_ENGINE_BACKEND_H

#include "calla.h"
#include "engine/sampler.h"
#include "model/taps.h"
#include "model/weights.h"

struct calla_backend;            /* opaque to everyone but its own folder             */
struct calla_state;              /* one sequence's caches on that device              */

struct calla_backend_options {
    int    n_threads;            /* 0: one a physical core                            */
    int    max_rows;             /* most rows in one step; sizes all scratch, once    */
    int    max_logits;           /* most rows of one step that ask for logits or have a sampler */
    int    n_states;             /* most states alive, parked copies included         */
    int    ctx_tokens;           /* most positions of one state                       */
    size_t kv_tokens;            /* positions in the page pool, all states together   */
    int    n_usable_ids;         /* sampling looks at ids below                       */
    void (*progress)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes);
    void  *user;
};

/* What open() with these options would allocate. */
struct calla_backend_plan {
    uint64_t weights_bytes, scratch_bytes;
    uint64_t state_bytes;        /* one state without its pages                       */
    uint64_t kv_page_bytes;      /* one page                                          */
    int      kv_page_tokens;     /* positions in a page, a multiple of 64             */
};

/* Rows of one state stand together, in order, at consecutive positions that
 * continue the state's length. */
struct calla_row {
    struct calla_state *state;
    int32_t token;
    int32_t token_row;           /* >= 0: instead of `token`, the id that this row of
                                  * the previous step sampled; -1: `token`            */
    bool    wants_logits;
    const struct calla_sampler *sampler; /* not NULL: an id is sampled after this row */
};

struct calla_batch {
    const struct calla_row *rows;   /* [n_rows], borrowed                              */
    int n_rows;
    const atomic_bool *cancel;      /* polled between layers; may be NULL              */
    const struct calla_taps *taps;  /* tests only; may be NULL                         */
};

struct calla_backend_stats {        /* sums over all steps                             */
    uint64_t n_steps, n_rows;
    uint64_t n_expert_reads;        /* distinct experts, summed over layers and steps  */
    uint64_t n_blocks_unpacked;     /* weight blocks decoded for use                   */
    uint64_t n_blocks_needed;       /* distinct weight blocks that the steps touched   */
};

struct calla_backend_ops {
    const char *name;

    /* Can the host run it?  Writes the device's name or the reason why not. */
    bool (*probe)(char *what, size_t cap);
    void (*plan)(struct calla_backend_plan *out, const struct calla_weights *w,
                 const struct calla_backend_options *opt);

    int  (*open)(struct calla_backend **out, const struct calla_weights *w,
                 const struct calla_backend_options *opt, struct calla_err *err);
    void (*close)(struct calla_backend *b);

    /* An empty state: length 0, recurrent buffers and window zero, no pages. */
    int  (*state_new)(struct calla_state **out, struct calla_backend *b, struct calla_err *err);
    void (*state_free)(struct calla_state *s);
    void (*state_reset)(struct calla_state *s);
    int  (*state_len)(const struct calla_state *s);
    /* dst becomes src: full pages are shared, the rest is copied. */
    int  (*state_copy)(struct calla_state *dst, const struct calla_state *src, struct calla_err *err);
    /* Portable bytes: the caller frees *bytes with free(). */
    int  (*state_save)(const struct calla_state *s, unsigned char **bytes, size_t *n, struct calla_err *err);
    int  (*state_load)(struct calla_state *s, const unsigned char *bytes, size_t n, struct calla_err *err);

    /* Runs every row and samples where asked.  Checks everything (positions,
     * pages, limits) before the first change: CALLA_ERR_MEMORY when the page
     * pool is exhausted leaves all states as they were.  After any other error
     * or a cancel the batch's states must be reset, copied over or freed. */
    int  (*step)(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err);

    const float *(*logits)(struct calla_backend *b, int row_idx);  /* [V] of a row that asked; until the next step */
    /* Id of a row with a sampler; -1: calla_sample refused its logits (not
     * finite, or no id is left), which is that row's failure and not the step's. */
    int32_t      (*sampled)(struct calla_backend *b, int row_idx);
    void (*stats)(const struct calla_backend *b, struct calla_backend_stats *out);
};

/* backends.c: the table of what this build has; NULL past the last. */
const struct calla_backend_ops *calla_backend_at(int i);
/* By name, or for "auto" the first whose probe succeeds. */
const struct calla_backend_ops *calla_backend_named(const char *name, struct calla_err *err);

#endif
