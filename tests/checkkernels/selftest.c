/* selftest.c - four planted faults, each of which the harness must find.
 *
 * The broken kernels exist only here; the rest of the table is C's. */
#include "check.h"

#include <stdio.h>
#include <string.h>

static void add_without_tail(float *out, const float *x, const float *y, int n) {
    for (int c = 0; c < n / 16 * 16; c++) out[c] = x[c] + y[c];
}

/* One part in eight million too much, and only in the last lane. */
static void rmsnorm_with_wrong_gain(float *out, const float *x, const float *w, int n, float eps) {
    cpu_kernels_at(0, NULL)->rmsnorm(out, x, w, n, eps);
    out[n - 1] *= 1.0f + 0x1p-22f;
}

static volatile float sink;
static void silu_mul_that_reads_on(float *out, const float *gate, const float *up, int n) {
    cpu_kernels_at(0, NULL)->silu_mul(out, gate, up, n);
    sink = *(const volatile float *)(gate + n);
}

static void add_that_writes_on(float *out, const float *x, const float *y, int n) {
    for (int c = 0; c < n; c++) out[c] = x[c] + y[c];
    *(volatile float *)(out + n) = 0.0f;
}

/* Writes into the gap between two rows of y: no guard page is there. */
static uint64_t matmul_that_writes_whole_lanes(float *y, size_t y_stride, const struct cpu_matrix *w, int block0, int block1,
                                               const struct cpu_acts *a, const int32_t *rows, int n, void *scratch) {
    const uint64_t n_blocks = cpu_kernels_at(0, NULL)->matmul[CPU_Q4](y, y_stride, w, block0, block1, a, rows, n, scratch);
    for (int t = 0; t + 1 < n; t++)
        for (size_t r = (size_t)w->n_rows; r < y_stride; r++) y[(size_t)t * y_stride + r] = 0.0f;
    return n_blocks;
}

/* The lowest address before a buffer. */
static void rope_that_reads_before(float *x, const float *cos, const float *sin) {
    cpu_kernels_at(0, NULL)->rope(x, cos, sin);
    sink = *(const volatile float *)(cos - 1);
}

int self_test(uint64_t seed, int *n_failed) {
    struct cpu_kernels broken[6];
    static const struct { const char *fault, *kernel, *says; } want[6] = {
        { "a dropped tail", "add", "the specification has" },
        { "a wrong gain", "rmsnorm", "the specification has" },
        { "an over-read", "silu_mul", "past a buffer's end" },
        { "an over-wide write", "add", "past a buffer's end" },
        { "an over-wide write between rows", "matmul_q4", "the specification has" },
        { "a read before a buffer", "rope", "before a buffer" },
    };
    const struct kernel_case *const lists[] = { matmul_cases, vector_cases, head_cases };
    int n_passed = 0;

    for (int i = 0; i < 6; i++) {
        broken[i] = *cpu_kernels_at(0, NULL);
        broken[i].name = "broken";
    }
    broken[0].add = add_without_tail;
    broken[1].rmsnorm = rmsnorm_with_wrong_gain;
    broken[2].silu_mul = silu_mul_that_reads_on;
    broken[3].add = add_that_writes_on;
    broken[4].matmul[CPU_Q4] = matmul_that_writes_whole_lanes;
    broken[5].rope = rope_that_reads_before;
    for (int i = 0; i < 6; i++) {
        bool found = false;
        char why[512] = "nothing";
        for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
            for (const struct kernel_case *k = lists[l]; k->name && !found; k++) {
                int shape[MAX_SHAPE] = { 0 };
                bool all_inputs = true;
                if (strcmp(k->name, want[i].kernel) != 0) continue;
                for (int n = 0; !found && k->shape(n, shape, &all_inputs); n++, all_inputs = true) {
                    struct check x = { .c = cpu_kernels_at(0, NULL), .k = &broken[i] };
                    found = !run_case(&x, k, shape, all_inputs, seed + (uint64_t)n, NULL);
                    if (found) snprintf(why, sizeof why, "%s", x.why);
                    memset(shape, 0, sizeof shape);
                }
            }
        const bool ok = found && strstr(why, want[i].says);
        printf("%-32s %s: %s\n", want[i].fault, ok ? "found" : "NOT FOUND", why);
        if (ok) n_passed++;
        else ++*n_failed;
    }
    return n_passed;
}
