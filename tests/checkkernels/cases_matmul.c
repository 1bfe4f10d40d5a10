/* cases_matmul.c - matrices of every format, and the activations' quantiser. */
#include "check.h"

#include <string.h>

struct cpu_matrix random_matrix(struct check *x, enum cpu_format f, int n_rows, int n_cols) {
    struct cpu_matrix m = { n_rows, n_cols, f, NULL };
    const size_t n_blocks = (size_t)cpu_row_blocks(&m) * (size_t)(n_cols / CALLA_GROUP), bytes = cpu_block_bytes(f);
    unsigned char *p = buf(x, n_blocks * bytes);

    m.data = p;
    for (size_t i = 0; i < n_blocks; i++, p += bytes) {
        if (f == CPU_F32) { for (size_t e = 0; e < bytes; e += 4) { const float v = draw_value(x); memcpy(p + e, &v, 4); } continue; }
        if (f == CPU_BF16) { for (size_t e = 0; e < bytes; e += 2) { const uint16_t v = cpu_to_bf16(draw_value(x)); memcpy(p + e, &v, 2); } continue; }
        const uint64_t all = x->input == IN_HUGE ? UINT64_MAX : 0;   /* with random_acts: the largest integer sums */
        for (size_t e = 0; e < bytes - 64; e += 8) { const uint64_t v = draw(x) | all; memcpy(p + e, &v, 8); }
        for (size_t e = bytes - 64; e < bytes; e += 2) { const uint16_t v = cpu_to_bf16(draw_value(x) * 0.01f); memcpy(p + e, &v, 2); }
    }
    return m;
}

static struct cpu_acts empty_acts(struct check *x, int n_rows, int n_cols) {
    const size_t n = (size_t)n_rows * (size_t)n_cols, g = n / CALLA_GROUP;
    struct cpu_acts a = { n_rows, n_cols, NULL, NULL, NULL, NULL, NULL };
    a.x = buf(x, n * sizeof *a.x);
    a.hi = buf(x, n);
    a.lo = buf(x, n);
    a.scale = buf(x, g * sizeof *a.scale);
    a.sum = buf(x, g * sizeof *a.sum);
    return a;
}

struct cpu_acts random_acts(struct check *x, int n_rows, int n_cols) {
    struct cpu_acts a = empty_acts(x, n_rows, n_cols);
    float *row = buf(x, (size_t)n_cols * sizeof *row);
    for (int i = 0; i < n_rows; i++) {
        const float sign = draw(x) % 2 ? 1e30f : -1e30f;
        for (int c = 0; c < n_cols; c++)   /* huge: the parts become 127 and 127, then 127 and -128 */
            row[c] = x->input != IN_HUGE ? draw_value(x) : c % CALLA_GROUP == 0 ? 32639 * sign : 32384 * sign;
        x->c->quantise(&a, i, row);
    }
    return a;
}

/* shape: n_rows, n_cols, n, first block, blocks left out at the end, index list or not */
static void run_matmul(struct check *x, const int *s, enum cpu_format f) {
    const int n = s[2], n_acts = s[5] && n > 1 ? n - 1 : n > 0 ? n : 1;
    const struct cpu_matrix w = random_matrix(x, f, s[0], s[1]);
    const struct cpu_acts a = random_acts(x, n_acts, s[1]);
    const int block0 = s[3], block1 = cpu_row_blocks(&w) - s[4];
    const size_t stride = (size_t)s[0] + (size_t)draw_below(x, 20), n_y = n > 0 ? stride * (size_t)(n - 1) + (size_t)s[0] : 1;
    const size_t scratch_bytes = cpu_matmul_scratch(s[1]);
    float *y0 = buf(x, n_y * sizeof *y0), *y1 = buf(x, n_y * sizeof *y1);
    int32_t *rows = NULL;
    unsigned char *scratch = buf(x, (scratch_bytes + 63) / 64 * 64);

    if (s[5]) {   /* any order, with repeats */
        rows = buf(x, (size_t)(n > 0 ? n : 1) * sizeof *rows);
        for (int i = 0; i < n; i++) rows[i] = draw_below(x, n_acts);
    }
    const uint64_t want = x->c->matmul[f](y0, stride, &w, block0, block1, &a, rows, n, scratch);
    const uint64_t got = x->k->matmul[f](y1, stride, &w, block0, block1, &a, rows, n, scratch);
    same(x, "y", y0, y1, n_y);
    if (want != got)
        fail(x, "unpacked %llu blocks, the specification %llu", (unsigned long long)got, (unsigned long long)want);
}

static void run_matmul_q4(struct check *x, const int *s) { run_matmul(x, s, CPU_Q4); }
static void run_matmul_q8(struct check *x, const int *s) { run_matmul(x, s, CPU_Q8); }
static void run_matmul_bf16(struct check *x, const int *s) { run_matmul(x, s, CPU_BF16); }
static void run_matmul_f32(struct check *x, const int *s) { run_matmul(x, s, CPU_F32); }

static bool matmul_shape(int i, int *s, bool *all_inputs) {
    static const int few[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 16, 17, 31, 64 };
    static const int wide[][6] = {   /* one line a route and an edge of the real model's widths */
        { 50, 2048, 1, 0, 0, 0 }, { 50, 2048, 2, 0, 0, 1 }, { 64, 2048, 3, 0, 0, 0 }, { 33, 2048, 8, 0, 0, 1 },
        { 50, 2048, 9, 0, 0, 1 }, { 50, 2048, 17, 0, 0, 0 }, { 31, 2048, 64, 0, 0, 1 }, { 17, 2112, 13, 0, 0, 0 },
        { 16, 4096, 1, 0, 0, 0 }, { 16, 4096, 10, 0, 0, 0 }, { 40, 512, 16, 0, 0, 1 }, { 40, 512, 16, 0, 0, 0 },
    };
    static const int parts[][6] = {  /* row blocks [block0, block1) inside a matrix */
        { 100, 128, 1, 2, 0, 0 }, { 100, 128, 1, 1, 3, 0 }, { 100, 128, 4, 3, 1, 1 }, { 100, 128, 9, 1, 1, 0 },
        { 100, 128, 9, 2, 2, 1 }, { 100, 128, 20, 0, 6, 0 }, { 100, 128, 20, 3, 4, 0 }, { 100, 128, 1, 5, 0, 0 },
    };
    enum { N_FEW = sizeof few / sizeof *few, N_WIDE = sizeof wide / sizeof *wide, N_PARTS = sizeof parts / sizeof *parts };
    static const int sizes[][2] = { { 16, 64 }, { 37, 192 }, { 1, 128 }, { 79, 64 } };

    if (i < N_FEW * 4) {
        s[0] = sizes[i / N_FEW][0];
        s[1] = sizes[i / N_FEW][1];
        s[2] = few[i % N_FEW];
        s[5] = (i + i / N_FEW) % 2;
        return true;
    }
    i -= N_FEW * 4;
    *all_inputs = false;
    if (i < N_WIDE) { memcpy(s, wide[i], sizeof wide[i]); return true; }
    i -= N_WIDE;
    if (i < N_PARTS) { memcpy(s, parts[i], sizeof parts[i]); return true; }
    return false;
}

static void run_quantise(struct check *x, const int *s) {
    struct cpu_acts a = empty_acts(x, 3, s[0]), b = empty_acts(x, 3, s[0]);
    const size_t n = 3 * (size_t)s[0], g = n / CALLA_GROUP;
    for (int i = 0; i < 3; i++) {
        const float *row = floats(x, (size_t)s[0]);
        x->c->quantise(&a, i, row);
        x->k->quantise(&b, i, row);
    }
    same(x, "x", a.x, b.x, n);
    same(x, "scale", a.scale, b.scale, g);
    same(x, "sum", a.sum, b.sum, g);
    same_bytes(x, "hi", a.hi, b.hi, n);
    same_bytes(x, "lo", a.lo, b.lo, n);
}

static bool quantise_shape(int i, int *s, bool *all_inputs) {
    static const int n[] = { 64, 128, 512, 2048, 2112, 4096 };
    (void)all_inputs;
    if (i >= (int)(sizeof n / sizeof *n)) return false;
    s[0] = n[i];
    return true;
}

const struct kernel_case matmul_cases[] = {
    { "matmul_q4", run_matmul_q4, matmul_shape },
    { "matmul_q8", run_matmul_q8, matmul_shape },
    { "matmul_bf16", run_matmul_bf16, matmul_shape },
    { "matmul_f32", run_matmul_f32, matmul_shape },
    { "quantise", run_quantise, quantise_shape },
    { 0 },
};
