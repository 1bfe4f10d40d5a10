/* checkkernels - every kernel of every instruction set against the C kernels.
 *
 * usage: checkkernels [--only TEXT] [--seed N] [--bench] [--threads N] [--self-test]
 *
 * A case runs a kernel and its specification on the same input, in memory that
 * ends (then: starts) at an unmapped page, and wants the same bits.  A fault is
 * caught and becomes a named failure.  The C kernels themselves are checked
 * against double precision (spec.c). */
#define _GNU_SOURCE 1   /* MAP_ANONYMOUS */
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { N_REGIONS = 48, REGION = 4 << 20, GUARD = 65536 };

static unsigned char *regions;      /* [N_REGIONS] of GUARD + REGION + GUARD, mapped once */

static const char *const input_names[N_INPUTS] = { "random", "zero", "huge", "tiny", "nan" };

/* ---- faults ------------------------------------------------------------------ */

static sigjmp_buf on_fault;
static volatile sig_atomic_t guarding, fault_signal;
static void *volatile fault_address;

static void caught(int sig, siginfo_t *info, void *unused) {
    (void)unused;
    if (!guarding) {
        signal(sig, SIG_DFL);
        return;
    }
    fault_signal = sig;
    fault_address = info->si_addr;
    siglongjmp(on_fault, 1);
}

static void catch_faults(void) {
    const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
    struct sigaction act;

    memset(&act, 0, sizeof act);
    act.sa_sigaction = caught;
    act.sa_flags = SA_SIGINFO;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &act, NULL);
}

/* Where an address lies, seen from the guarded buffers. */
static const char *place(const void *at) {
    const size_t one = GUARD + REGION + GUARD;
    const unsigned char *p = at;

    if (p < regions || p >= regions + N_REGIONS * one) return "far from any buffer";
    const size_t in = (size_t)(p - regions) % one;
    return in < GUARD ? "before a buffer" : in >= GUARD + REGION ? "past a buffer's end" : "inside a buffer";
}

bool guarded(struct check *x, void (*fn)(struct check *x, const void *arg), const void *arg) {
    if (sigsetjmp(on_fault, 1) == 0) {
        guarding = 1;
        fn(x, arg);
        guarding = 0;
        return true;
    }
    guarding = 0;
    fail(x, "%s %s", fault_signal == SIGILL ? "illegal instruction," : fault_signal == SIGFPE ? "arithmetic fault," :
         "touches memory", fault_signal == SIGILL || fault_signal == SIGFPE ? "" : place((const void *)fault_address));
    return false;
}

/* ---- memory and inputs ---------------------------------------------------------- */

static void map_regions(void) {
    const size_t one = GUARD + REGION + GUARD;

    regions = mmap(NULL, N_REGIONS * one, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (regions == MAP_FAILED) { perror("mmap"); exit(2); }
    for (int i = 0; i < N_REGIONS; i++)
        if (mprotect(regions + (size_t)i * one + GUARD, REGION, PROT_READ | PROT_WRITE) != 0) { perror("mprotect"); exit(2); }
}

void *buf(struct check *x, size_t n_bytes) {
    const size_t one = GUARD + REGION + GUARD;

    if (x->n_buffers == N_REGIONS || n_bytes > REGION) { fprintf(stderr, "a case wants too much memory\n"); exit(2); }
    unsigned char *p = regions + (size_t)x->n_buffers++ * one + GUARD;
    if (x->at_end) p += REGION - n_bytes;
    memset(p, 0xa5, n_bytes);
    return p;
}

uint64_t draw(struct check *x) {   /* splitmix64 */
    uint64_t z = (x->rng += 0x9e3779b97f4a7c15ull);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

int draw_below(struct check *x, int n) { return (int)(draw(x) % (uint64_t)n); }

float draw_unit(struct check *x) { return (float)(int32_t)(draw(x) >> 32) * 0x1p-31f; }

float draw_value(struct check *x) {
    const float u = draw_unit(x) * 2.0f;
    switch (x->input) {
    case IN_ZERO: return draw(x) % 2 ? 0.0f : -0.0f;
    case IN_HUGE: return u * 1e37f;
    case IN_TINY: return u * 1e-41f;
    case IN_NAN:  return draw(x) % 61 == 0 ? (draw(x) % 2 ? NAN : INFINITY) : u;
    default:      return draw(x) % 9 == 0 ? u * 16.0f : u;
    }
}

float *floats(struct check *x, size_t n) {
    float *p = buf(x, n * sizeof *p);
    for (size_t i = 0; i < n; i++) p[i] = draw_value(x);
    return p;
}

float *copy_of(struct check *x, const float *from, size_t n) {
    float *p = buf(x, n * sizeof *p);
    memcpy(p, from, n * sizeof *p);
    return p;
}

/* ---- verdicts -------------------------------------------------------------------- */

void fail(struct check *x, const char *fmt, ...) {
    va_list ap;

    if (x->failed) return;
    x->failed = true;
    va_start(ap, fmt);
    vsnprintf(x->why, sizeof x->why, fmt, ap);
    va_end(ap);
}

void same(struct check *x, const char *what, const float *want, const float *got, size_t n) {
    for (size_t i = 0; i < n && !x->failed; i++) {
        const uint32_t a = cpu_bits(want[i]), b = cpu_bits(got[i]);
        const bool both_nan = (a & 0x7fffffffu) > 0x7f800000u && (b & 0x7fffffffu) > 0x7f800000u;
        if (a != b && !both_nan)
            fail(x, "%s[%zu of %zu] is %.9g (%08x), the specification has %.9g (%08x)", what, i, n, (double)got[i], b,
                 (double)want[i], a);
    }
}

void same_bytes(struct check *x, const char *what, const void *want, const void *got, size_t n) {
    const unsigned char *a = want, *b = got;
    for (size_t i = 0; i < n && !x->failed; i++)
        if (a[i] != b[i]) fail(x, "%s: byte %zu of %zu is %u, the specification has %u", what, i, n, b[i], a[i]);
}

/* ---- running --------------------------------------------------------------------- */

struct call { const struct kernel_case *k; const int *shape; };

static void call_case(struct check *x, const void *arg) {
    const struct call *c = arg;
    c->k->run(x, c->shape);
}

/* All inputs and both ends of memory for one shape; prints the first failure. */
bool run_case(struct check *x, const struct kernel_case *k, const int *shape, bool all_inputs, uint64_t seed,
              const char *isa) {
    const struct call call = { k, shape };
    const struct cpu_kernels *c = x->c, *claim = x->k;

    for (int input = 0; input < (all_inputs ? N_INPUTS : 1); input++)
        for (int at_end = 1; at_end >= 0; at_end--) {
            *x = (struct check){ .c = c, .k = claim, .input = (enum input)input, .at_end = at_end,
                                 .rng = seed * 1000003u + (uint64_t)input };
            guarded(x, call_case, &call);
            if (!x->failed) continue;
            if (isa)
                printf("FAILED %s %s shape %d %d %d %d %d %d, %s input, buffers %s: %s\n", k->name, isa, shape[0],
                       shape[1], shape[2], shape[3], shape[4], shape[5], input_names[input],
                       at_end ? "end at a guard page" : "start at a guard page", x->why);
            return false;
        }
    return true;
}

static void run_table(const struct cpu_kernels *k, const char *only, uint64_t seed, int *n_passed, int *n_failed) {
    const struct kernel_case *const lists[] = { matmul_cases, vector_cases, head_cases };

    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const struct kernel_case *kc = lists[l]; kc->name; kc++) {
            char name[96];
            int shape[MAX_SHAPE] = { 0 }, n_shapes = 0, bad = 0;
            bool all_inputs = true;
            snprintf(name, sizeof name, "%s %s", kc->name, k->name);
            if (only && !strstr(name, only)) continue;
            for (; kc->shape(n_shapes, shape, &all_inputs); n_shapes++) {
                struct check x = { .c = cpu_kernels_at(0, NULL), .k = k };
                if (!run_case(&x, kc, shape, all_inputs, seed + (uint64_t)n_shapes, k->name) && ++bad >= 5) {
                    n_shapes++;
                    break;
                }
                memset(shape, 0, sizeof shape);
                all_inputs = true;
            }
            printf("%-28s %4d shapes %s\n", name, n_shapes, bad ? "FAILED" : "same bits");
            fflush(stdout);
            *n_passed += n_shapes - bad;
            *n_failed += bad;
        }
}

int main(int argc, char **argv) {
    const char *only = NULL;
    uint64_t seed = 1;
    int n_passed = 0, n_failed = 0, n_skipped = 0, n_threads = 0;
    bool want_bench = false, want_self_test = false;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--only") && i + 1 < argc) only = argv[++i];
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc) seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--threads") && i + 1 < argc) n_threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--bench")) want_bench = true;
        else if (!strcmp(argv[i], "--self-test")) want_self_test = true;
        else {
            fprintf(stderr, "usage: checkkernels [--only TEXT] [--seed N] [--bench] [--threads N] [--self-test]\n");
            return 2;
        }
    }
    if (want_bench) return bench(only, n_threads);
    map_regions();
    catch_faults();
    printf("seed %llu\n", (unsigned long long)seed);
    if (want_self_test) {
        n_passed = self_test(seed, &n_failed);
    } else {
        n_passed = spec_checks(seed, only, &n_failed);
        for (int t = 1, runs = 0; cpu_kernels_at(t, &runs); t++) {
            const struct cpu_kernels *k = cpu_kernels_at(t, &runs);
            if (runs) run_table(k, only, seed, &n_passed, &n_failed);
            else { printf("%s: skipped, this processor does not run it\n", k->name); n_skipped++; }
        }
    }
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed != 0;
}
