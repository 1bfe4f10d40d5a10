/* bench.c - `checkkernels --bench`: ns, GB/s and TOPS of the kernels that matter.
 *
 * The machine's read bandwidth and its int8 peak are measured in the same run,
 * because on shared machines both change from hour to hour.  Threads share a
 * matrix's row blocks as the backend's do.  A time is the processor time of the
 * slowest thread in the fastest of several rounds: on a machine that others use
 * too, everything else measures them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/cpu_features.h"
#include "base/pool.h"
#include "check.h"
#include "peak.h"

enum { MAX_THREADS = 256, ROUNDS = 15, COLS = 2048, BIG_BYTES = 1 << 30, STATE = CALLA_RECUR * CALLA_RECUR };

struct bench {
    struct calla_pool *pool;
    int n_threads;
    unsigned char *big;          /* [BIG_BYTES] random, read by everything that streams */
    unsigned char *own;          /* [n_threads][OWN_BYTES] */
    double read_gbs, peak_tops;
    const char *only;
    uint64_t rng;
};
enum { OWN_BYTES = 16 << 20 };

static uint64_t next(uint64_t *s) { *s ^= *s << 13; *s ^= *s >> 7; *s ^= *s << 17; return *s; }

struct timing { void (*fn)(void *, int, int); void *arg; double s[MAX_THREADS * 8]; };

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_timed(void *arg, int t, int n) {
    struct timing *j = arg;
    const double begin = thread_seconds();
    j->fn(j->arg, t, n);
    j->s[t * 8] = thread_seconds() - begin;
}

/* Seconds of fn on all threads. */
static double timed(const struct bench *b, void (*fn)(void *, int, int), void *arg) {
    static struct timing j;
    double best = 1e30;

    j.fn = fn;
    j.arg = arg;
    calla_pool_run(b->pool, run_timed, &j);
    for (int i = 0; i < ROUNDS; i++) {
        double slowest = 0;
        calla_pool_run(b->pool, run_timed, &j);
        for (int t = 0; t < b->n_threads; t++) slowest = j.s[t * 8] > slowest ? j.s[t * 8] : slowest;
        best = slowest < best ? slowest : best;
    }
    return best;
}

/* ---- the machine ----------------------------------------------------------------- */

struct read_job { const unsigned char *p; uint64_t sum[MAX_THREADS * 8]; };

static void read_all(void *arg, int t, int n) {
    struct read_job *j = arg;
    int begin, end;
    calla_share(BIG_BYTES / 4096, t, n, &begin, &end);
    j->sum[t * 8] = peak_read(j->p + (size_t)begin * 4096, (size_t)(end - begin) * 4096);
}

static double peak_ops[MAX_THREADS];
static void int8_peak(void *arg, int t, int n) {
    (void)n;
    peak_ops[t] = peak_int8(*(const long *)arg);
}

static void measure_machine(struct bench *b) {
    static struct read_job j;
    const long n = 4000000;
    struct calla_cpu_features f;
    char text[128];

    j.p = b->big;
    b->read_gbs = BIG_BYTES / timed(b, read_all, &j) * 1e-9;
    const double s = timed(b, int8_peak, (void *)(uintptr_t)&n);
    for (int t = 0; t < b->n_threads; t++) b->peak_tops += peak_ops[t] / s * 1e-12;
    calla_cpu_features(&f);
    calla_cpu_features_text(&f, text, sizeof text);
    printf("%s, %d threads (%s)\nread %.1f GB/s, int8 peak %.2f TOPS (%s)\n\n", f.model, b->n_threads, text, b->read_gbs,
           b->peak_tops, peak_int8_name());
}

/* ---- matrices ---------------------------------------------------------------------- */

struct matmul_job {
    const struct cpu_kernels *k;
    struct cpu_matrix w;
    struct cpu_acts a;
    float *y;
    int n, repeat;
    unsigned char *scratch[MAX_THREADS];
    const int32_t *rows;
};

static void run_matmul(void *arg, int t, int n) {
    struct matmul_job *j = arg;
    int begin, end;
    calla_share(cpu_row_blocks(&j->w), t, n, &begin, &end);
    for (int i = 0; i < j->repeat; i++)
        j->k->matmul[j->w.format](j->y, (size_t)j->w.n_rows, &j->w, begin, end, &j->a, j->rows, j->n, j->scratch[t]);
}

static const char *const format_names[CPU_N_FORMATS] = { "q4", "q8", "bf16", "f32" };

static void bench_matmul(struct bench *b, const struct cpu_kernels *k, enum cpu_format f, int n_cols, int n, bool big) {
    const size_t row_block = (size_t)(n_cols / CALLA_GROUP) * cpu_block_bytes(f);
    /* Large: far more than a cache holds.  Small: what one expert has. */
    const int n_rows = big ? (int)(BIG_BYTES / 2 / row_block) * CPU_LANES : 512;
    struct matmul_job j = { .k = k, .w = { n_rows, n_cols, f, b->big }, .n = n, .repeat = big ? 1 : 1 + 256 / n };
    struct calla_arena m;
    const size_t cells = (size_t)n * (size_t)n_cols, y_bytes = (size_t)n * (size_t)n_rows * sizeof(float);

    char name[96];
    snprintf(name, sizeof name, "matmul_%s %s", format_names[f], k->name);
    if (b->only && !strstr(name, b->only)) return;
    if (calla_arena_open(&m, cells * 8 + y_bytes + (64u << 20), NULL) != 0) { printf("%s: no memory\n", name); return; }
    j.a = (struct cpu_acts){ n, n_cols, calla_arena_take(&m, cells * 4), calla_arena_take(&m, cells), calla_arena_take(&m, cells),
                             calla_arena_take(&m, cells / 16), calla_arena_take(&m, cells / 16) };
    j.y = calla_arena_take(&m, y_bytes);
    for (int t = 0; t < b->n_threads; t++) j.scratch[t] = b->own + (size_t)t * OWN_BYTES;
    float *row = calla_arena_take(&m, (size_t)n_cols * sizeof *row);
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < n_cols; c++) row[c] = (float)(int32_t)next(&b->rng) * 0x1p-31f;
        k->quantise(&j.a, i, row);
    }
    const double s = timed(b, run_matmul, &j) / j.repeat;
    const double gbs = (double)row_block * (n_rows / CPU_LANES) / s * 1e-9;
    const double tops = 2.0 * n_rows * n_cols * n / s * 1e-12;
    printf("%-26s %6d x %4d  n %3d  %10.1f us  %6.1f GB/s %4.0f %%  %6.3f TOPS %3.0f %%\n", name, n_rows, n_cols, n,
           s * 1e6, gbs, 100 * gbs / b->read_gbs, tops, 100 * tops / b->peak_tops);
    calla_arena_close(&m);
}

/* ---- heads ------------------------------------------------------------------------- */

struct head_job { const struct cpu_kernels *k; unsigned char *own; int n, heads; };

static float *head_data(const struct head_job *j, int t) { return (float *)(void *)(j->own + (size_t)t * OWN_BYTES); }

static void run_scan(void *arg, int t, int n) {
    const struct head_job *j = arg;
    float *s = head_data(j, t), *q = s + (size_t)j->heads * STATE, *o = q + 4 * 512 * CALLA_RECUR;
    (void)n;
    for (int h = 0; h < j->heads; h++)
        j->k->gdn_scan(s + (size_t)h * STATE, q, q + 512 * CALLA_RECUR, CALLA_RECUR, q + 2 * 512 * CALLA_RECUR,
                       CALLA_RECUR, q + 3 * 512 * CALLA_RECUR, q + 3 * 512 * CALLA_RECUR + 512, 1, o, CALLA_RECUR, j->n);
}

static void run_attn(void *arg, int t, int n) {
    const struct head_job *j = arg;
    float *p = head_data(j, t), *acc[64], m[64], l[64];
    const float *q[64];
    int n_keys[64];
    void *scratch = p + 64 * 2 * CALLA_HEAD;
    const uint16_t *pages = (const uint16_t *)(const void *)(p + (1 << 20));

    (void)n;
    for (int i = 0; i < j->n; i++) {
        q[i] = p + i * CALLA_HEAD;
        acc[i] = p + (64 + i) * CALLA_HEAD;
        m[i] = -INFINITY;
        l[i] = 0;
        n_keys[i] = CPU_PAGE;
    }
    for (int h = 0; h < j->heads; h++)
        j->k->attn_page(acc, m, l, q, n_keys, j->n, pages + (size_t)h * 2 * CPU_PAGE * CALLA_HEAD,
                        pages + (size_t)(h * 2 + 1) * CPU_PAGE * CALLA_HEAD, scratch);
}

static void run_rows(void *arg, int t, int n) {
    const struct head_job *j = arg;
    float *x = head_data(j, t), *w = x + 8192, *o = w + 8192;
    struct cpu_acts a = { 1, COLS, o, (int8_t *)(o + 8192), (int8_t *)(o + 16384), o + 24576, o + 25600 };
    (void)n;
    for (int i = 0; i < j->heads; i++) switch (j->n) {
        case 0: j->k->rmsnorm(o, x, w, COLS, 1e-6f); break;
        case 1: j->k->quantise(&a, 0, x); break;
        case 2: j->k->silu_mul(o, x, w, 512); break;
        case 3: j->k->conv(o, x, x, x, x, w, 0, 8192); break;
        case 4: j->k->gated_norm(o, x, x, w, 1e-6f); break;
        case 5: j->k->l2norm(o, x, 1.0f); break;
        default: j->k->weighted_sum(o, (const float *const[]){ x, x, x, x, x, x, x, x, w }, w, 9, COLS); break;
    }
}

/* What ran before may have left subnormal numbers, on which arithmetic is slow. */
static void refill(struct bench *b) {
    for (int t = 0; t < b->n_threads; t++) {
        float *p = (float *)(void *)(b->own + (size_t)t * OWN_BYTES);
        for (size_t i = 0; i < OWN_BYTES / sizeof *p; i++) {   /* floats, then pages of bf16 */
            const float u = (float)(int32_t)next(&b->rng) * 0x1p-34f, v = (float)(int32_t)next(&b->rng) * 0x1p-34f;
            p[i] = i < 1 << 20 ? u : cpu_float((uint32_t)cpu_to_bf16(u) << 16 | cpu_to_bf16(v));
        }
    }
}

static void bench_heads(struct bench *b, const struct cpu_kernels *k) {
    static const int rows[] = { 1, 8, 64, 512 }, queries[] = { 1, 8, 64 };
    static const char *const row_names[] = { "rmsnorm 2048", "quantise 2048", "silu_mul 512", "conv 8192", "gated_norm", "l2norm",
                                             "weighted_sum 9 x 2048" };
    char name[96];

    refill(b);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct head_job j = { k, b->own, rows[i], rows[i] == 1 ? 32 : 16 };
        snprintf(name, sizeof name, "gdn_scan %s", k->name);
        if (b->only && !strstr(name, b->only)) continue;
        const double s = timed(b, run_scan, &j) / j.heads / j.n;
        printf("%-26s rows %3d   %8.1f ns a row and head (%.1f GFLOP/s a thread)\n", name, j.n, s * 1e9, 7 * STATE / s * 1e-9);
    }
    refill(b);
    for (size_t i = 0; i < sizeof queries / sizeof *queries; i++) {
        struct head_job j = { k, b->own, queries[i], 100 };
        snprintf(name, sizeof name, "attn_page %s", k->name);
        if (b->only && !strstr(name, b->only)) continue;
        const double s = timed(b, run_attn, &j) / j.heads / j.n / CPU_PAGE;
        printf("%-26s queries %2d %8.2f ns a key and row (%.1f GFLOP/s a thread)\n", name, j.n, s * 1e9, 4 * CALLA_HEAD / s * 1e-9);
    }
    refill(b);
    for (int i = 0; i < (int)(sizeof row_names / sizeof *row_names); i++) {
        struct head_job j = { k, b->own, i, 200 };
        snprintf(name, sizeof name, "%s %s", row_names[i], k->name);
        if (b->only && !strstr(name, b->only)) continue;
        printf("%-38s %8.1f ns\n", name, timed(b, run_rows, &j) / j.heads * 1e9);
    }
}

int bench(const char *only, int n_threads) {
    static struct bench b;
    struct calla_arena big;
    struct calla_err err;
    int runs = 0;

    b.only = only;
    b.rng = 88172645463325252ull;
    if (calla_pool_new(&b.pool, n_threads, &err) != 0) { fprintf(stderr, "%s\n", err.message); return 1; }
    b.n_threads = calla_pool_size(b.pool);
    if (b.n_threads > MAX_THREADS) { fprintf(stderr, "at most %d threads\n", MAX_THREADS); return 1; }
    if (calla_arena_open(&big, BIG_BYTES + (size_t)b.n_threads * OWN_BYTES, &err) != 0) { fprintf(stderr, "%s\n", err.message); return 1; }
    b.big = calla_arena_take(&big, BIG_BYTES);
    b.own = calla_arena_take(&big, (size_t)b.n_threads * OWN_BYTES);
    for (size_t i = 0; i < BIG_BYTES; i += 8) {   /* no exponent that makes a NaN or a subnormal */
        const uint64_t v = (next(&b.rng) & 0xbfffbfffbfffbfffull) | 0x2000200020002000ull;
        memcpy(b.big + i, &v, 8);
    }
    measure_machine(&b);
    for (int i = 0; cpu_kernels_at(i, &runs); i++) {
        const struct cpu_kernels *k = cpu_kernels_at(i, &runs);
        if (!runs || (i == 0 && !only)) continue;   /* C only when asked for: it takes minutes */
        for (int n = 1; n <= 8; n *= 2) bench_matmul(&b, k, CPU_Q4, COLS, n, true);
        bench_matmul(&b, k, CPU_Q8, COLS, 1, true);
        bench_matmul(&b, k, CPU_BF16, COLS, 1, true);
        for (int n = 1; n <= 512; n *= 2) bench_matmul(&b, k, CPU_Q4, COLS, n, false);
        bench_matmul(&b, k, CPU_Q4, 512, 16, false);
        bench_matmul(&b, k, CPU_Q8, COLS, 64, false);
        bench_matmul(&b, k, CPU_BF16, COLS, 64, false);
        bench_heads(&b, k);
    }
    calla_arena_close(&big);
    calla_pool_free(&b.pool);
    return 0;
}
