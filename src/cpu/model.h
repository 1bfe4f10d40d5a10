/* model.h - the packed weights of the CPU backend.
 *
 * One anonymous arena holds every matrix as blocks of 16 x 64 (packed.h) and
 * the small vectors that are kept in another form than the checkpoint's;
 * embedding rows stay in the checkpoint's mapping, of which a step needs a few.
 * Read-only after open; any thread. */
#ifndef CALLA_CPU_MODEL_H
#define CALLA_CPU_MODEL_H

#include "base/arena.h"
#include "base/pool.h"
#include "cpu/packed.h"
#include "model/weights.h"

struct cpu_gdn {
    struct cpu_matrix qkv, z, b, a, out;
    float *conv;                  /* [4, C] by tap, oldest first          */
    float *neg_exp_a_log;         /* [HV] -exp(a_log)                     */
    const float *dt_bias;         /* [HV] borrowed                        */
    const float *norm;            /* [S]  borrowed                        */
};

struct cpu_attn {
    struct cpu_matrix q, k, v, o;
    float *q_norm;                /* [A] times 1/16, the scale of scores: exact, and rotation keeps it */
    const float *k_norm;          /* [A] borrowed                         */
};

struct cpu_expert { struct cpu_matrix gate, up, down; };

struct cpu_layer {
    bool is_attention;
    const float *input_norm, *post_norm;  /* [D] borrowed                 */
    struct cpu_gdn gdn;
    struct cpu_attn attn;
    struct cpu_matrix router, shared_router;
    struct cpu_expert *experts;   /* [E + 1], the shared one last         */
};

struct cpu_model {
    const struct calla_weights *w;        /* borrowed: outlives the backend */
    int n_layers, n_gdn, n_attn;
    struct cpu_layer *layers;     /* [n_layers]                           */
    struct cpu_expert *experts;   /* [n_layers, E + 1]                    */
    struct cpu_matrix head;
    struct calla_arena arena;
};

struct cpu_progress {
    void (*call)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes); /* may be NULL */
    void *user;
};

/* Bytes of the arena: the matrices' own, their padding to 16 rows and the vectors. */
size_t cpu_model_bytes(const struct calla_weights *w);
/* The longest row of any matrix. */
int    cpu_model_max_cols(const struct calla_weights *w);

/* Repacks with all threads of the pool; pages of the checkpoint are let go as they are done. */
int  cpu_model_open(struct cpu_model *m, const struct calla_weights *w, struct calla_pool *pool,
                    const struct cpu_progress *progress, struct calla_err *err);
void cpu_model_close(struct cpu_model *m);

/* Layers of each kind before layer l: its place among the buffers of a state. */
static inline int cpu_attn_idx(int l) { return l / CALLA_INTERVAL; }
static inline int cpu_gdn_idx(int l) { return l - l / CALLA_INTERVAL; }

#endif
