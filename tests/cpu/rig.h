/* rig.h - an opened CPU backend and sequences on it, for tests.
 *
 * Faults of the rig itself end the test by assertion. */
#ifndef CALLA_TESTS_CPU_RIG_H
#define CALLA_TESTS_CPU_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/backend.h"
#include "cpu/cpu.h"

/* Everything 0 means a usual value. */
struct rig_options {
    int n_threads, max_rows, max_logits, n_states, ctx_tokens, kv_tokens;
    const struct cpu_kernels *kernels;
};

struct rig {
    const struct calla_weights *w;
    const struct calla_backend_ops *ops;
    struct calla_backend *b;
    int n_vocab, max_rows;
};

extern struct calla_weights *rig_tiny;   /* the tiny checkpoint, mlx layout */

void rig_open(struct rig *r, const struct calla_weights *w, struct rig_options opt);
void rig_close(struct rig *r);
struct calla_state *rig_state(struct rig *r);

/* n ids below 1024, a sequence of its own for each seed. */
int32_t *rig_ids(uint64_t seed, int n);

/* Feeds ids in steps of chunks[0], chunks[1], ... rows, the last repeated, and
 * gives back the logits [n, V], freed by the caller. */
float *rig_feed(struct rig *r, struct calla_state *s, const int32_t *ids, int n, const int *chunks, int n_chunks);
float *rig_feed_all(struct rig *r, struct calla_state *s, const int32_t *ids, int n);   /* steps of max_rows */
/* The same without logits. */
void rig_skip(struct rig *r, struct calla_state *s, const int32_t *ids, int n);

/* One step; what it returned. */
int rig_step(struct rig *r, const struct calla_row *rows, int n_rows, struct calla_err *err);
struct calla_row rig_row(struct calla_state *s, int32_t id);       /* asks for logits */

/* Fails with the first row and id that differ; bits, not values. */
void rig_same(struct rig *r, const float *a, const float *b, int n_rows, const char *what);

extern const struct CMUnitTest same_bits_tests[], against_reference_tests[], limits_tests[], state_tests[];
extern const int n_same_bits_tests, n_against_reference_tests, n_limits_tests, n_state_tests;

#endif
