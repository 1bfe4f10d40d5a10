/* check.h - what the parts of checkkernels share: guarded buffers, inputs, verdicts. */
#ifndef CHECKKERNELS_CHECK_H
#define CHECKKERNELS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/kernels.h"
#include "cpu/math.h"
#include "model/shape.h"

enum input { IN_RANDOM, IN_ZERO, IN_HUGE, IN_TINY, IN_NAN, N_INPUTS };

/* One run of one case.  `c` is the specification, `k` the claim. */
struct check {
    const struct cpu_kernels *c, *k;
    enum input input;
    bool at_end;              /* buffers end at an unmapped page; else they start after one */
    uint64_t rng;
    int n_buffers;            /* taken of the pool                                          */
    bool failed;
    char why[512];            /* of the first failure                                       */
};

enum { MAX_SHAPE = 6 };

struct kernel_case {
    const char *name;
    void (*run)(struct check *x, const int *shape);
    /* Fills the i-th shape; false past the last.  `all_inputs` says whether every kind of input is run. */
    bool (*shape)(int i, int *shape, bool *all_inputs);
};

extern const struct kernel_case matmul_cases[], vector_cases[], head_cases[];   /* end with name NULL */

/* Guarded memory, filled with 0xa5; valid until the run ends. */
void  *buf(struct check *x, size_t n_bytes);
/* Floats of the run's kind of input. */
float *floats(struct check *x, size_t n);
float *copy_of(struct check *x, const float *from, size_t n);
uint64_t draw(struct check *x);
int    draw_below(struct check *x, int n);
float  draw_unit(struct check *x);     /* [-1, 1) */
float  draw_value(struct check *x);    /* of the run's kind of input */

void fail(struct check *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Equal bits, or both NaN. */
void same(struct check *x, const char *what, const float *want, const float *got, size_t n);
void same_bytes(struct check *x, const char *what, const void *want, const void *got, size_t n);

/* Runs fn; false, with the failure noted, if it faults. */
bool guarded(struct check *x, void (*fn)(struct check *x, const void *arg), const void *arg);

/* A random matrix and activations in guarded memory (cases_matmul.c). */
struct cpu_matrix random_matrix(struct check *x, enum cpu_format f, int n_rows, int n_cols);
struct cpu_acts random_acts(struct check *x, int n_rows, int n_cols);

int spec_checks(uint64_t seed, const char *only, int *n_failed);   /* spec.c: the C kernels against double */
int self_test(uint64_t seed, int *n_failed);                       /* selftest.c: planted faults are found */
int bench(const char *only, int n_threads);                        /* bench.c */
bool run_case(struct check *x, const struct kernel_case *k, const int *shape, bool all_inputs, uint64_t seed,
              const char *isa);

#endif
