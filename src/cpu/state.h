/* state.h - one sequence's caches on the CPU.
 *
 * Owns the recurrent buffers and windows of one sequence and its hold on pages
 * of keys and values.  Called by the thread that runs steps; within a step each
 * thread of the pool touches its own heads' part. */
#ifndef CALLA_CPU_STATE_H
#define CALLA_CPU_STATE_H

#include "cpu/pages.h"
#include "engine/backend.h"

struct calla_state {
    struct calla_backend *b;
    struct calla_arena arena;
    int   n_tokens;
    bool  broken;                 /* a step over it failed: reset, copy over or free */
    bool  in_batch;               /* only while a batch is checked                   */
    float *s;                     /* [n_gdn, HV, S, S] f32, key axis first           */
    float *window;                /* [n_gdn, 3, C] f32 before the convolution, oldest first */
    int32_t *pages;               /* [ctx_tokens / 64, rounded up], the first n_pages are held */
    int   n_pages;
};

size_t cpu_state_bytes(const struct calla_weights *w, int ctx_tokens);

int  cpu_state_new(struct calla_state **out, struct calla_backend *b, struct calla_err *err);
void cpu_state_free(struct calla_state *s);
void cpu_state_reset(struct calla_state *s);
int  cpu_state_len(const struct calla_state *s);
int  cpu_state_copy(struct calla_state *dst, const struct calla_state *src, struct calla_err *err);
int  cpu_state_save(const struct calla_state *s, unsigned char **bytes, size_t *n, struct calla_err *err);
int  cpu_state_load(struct calla_state *s, const unsigned char *bytes, size_t n, struct calla_err *err);

/* Takes pages until n_tokens positions have room; the caller has seen that they are free. */
void cpu_state_grow(struct calla_state *s, int n_tokens);

static inline int cpu_pages_for(int n_tokens) { return (n_tokens + CPU_PAGE - 1) / CPU_PAGE; }
static inline size_t cpu_head_floats(void) { return (size_t)CALLA_RECUR * CALLA_RECUR; }
static inline float *cpu_state_s(const struct calla_state *s, const struct calla_shape *shape, int gdn_idx, int head) {
    return s->s + ((size_t)gdn_idx * (size_t)shape->n_value_heads + (size_t)head) * cpu_head_floats();
}
static inline float *cpu_state_window(const struct calla_state *s, const struct calla_shape *shape, int gdn_idx) {
    return s->window + (size_t)gdn_idx * (CALLA_CONV - 1) * (size_t)calla_conv_channels(shape);
}

#endif
