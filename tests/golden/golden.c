/* golden.c - a forward pass against Hugging Face's values.
 *
 * quick: tiny in both layouts, taps, splits, MTP, demo.  long: 2,100 and 8,192
 * ids.  short: what a sanitized build has the time for.
 *
 * usage: golden quick|long|short [--backend reference|cpu] [--data DIR] [--work DIR] [--demo DIR] [--stop]
 *        golden unpack SRC DST     a checkpoint folder with its .zst files decompressed */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runner.h"

static void finish(const struct plan *p) {
    printf("%d passed, %d failed, 0 skipped\n", p->n_passed, p->n_failed);
    fflush(stdout);
    exit(p->n_failed != 0);
}

void check(struct plan *p, bool good, const char *fmt, ...) {
    va_list ap;
    printf("%s %s: ", good ? "ok  " : "FAIL", p->runner->name);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    fflush(stdout);
    if (good) p->n_passed++;
    else p->n_failed++;
    if (!good && p->stop_at_first) finish(p);
}

struct calla_weights *open_folder(const char *dir, int quantise_bits) {
    const struct calla_weights_options opt = { .quantise_bits = quantise_bits, .check_values = true };
    struct calla_weights *w;
    struct calla_err err = { 0 };
    if (calla_weights_open(&w, dir, &opt, &err) != 0) fixture_die("%s", err.message);
    return w;
}

struct calla_weights *open_tiny(const struct plan *p, const char *layout, int quantise_bits) {
    char src[1024], dst[1024];
    snprintf(src, sizeof src, "%s/tiny/%s", p->data, layout);
    snprintf(dst, sizeof dst, "%s/tiny/%s", p->work, layout);
    fixture_unpack(src, dst);
    return open_folder(dst, quantise_bits);
}

static void run_reference(struct plan *p, bool is_long) {
    if (is_long) {
        golden_tiny_long(p);
        golden_long(p);
        return;
    }
    golden_tiny(p);
    golden_taps(p);
    golden_splits(p);
    golden_layouts(p);
    golden_mtp(p);
    golden_demo(p);
    golden_drafts(p);
    golden_refusals(p);
}

static void run_backend(struct plan *p, bool is_long) {
    if (is_long) {
        golden_long(p);
        return;
    }
    golden_tiny(p);
    golden_taps(p);
    golden_splits(p);
    golden_demo(p);
    p->runner = &runner_cpu_decode;
    golden_tiny(p);
    golden_demo(p);
}

static void run_short(struct plan *p) {
    golden_tiny_short(p);
    golden_taps(p);
    if (p->runner != &runner_reference) return;
    golden_mtp(p);
    golden_refusals(p);
}

int main(int argc, char **argv) {
    struct plan p = { .data = "tests/golden/data", .work = "build/golden", .demo = "models/demo", .runner = &runner_reference };
    if (argc == 4 && strcmp(argv[1], "unpack") == 0) {
        fixture_unpack(argv[2], argv[3]);
        return 0;
    }
    if (argc < 2 || (strcmp(argv[1], "quick") != 0 && strcmp(argv[1], "long") != 0 && strcmp(argv[1], "short") != 0))
        fixture_die("usage: golden quick|long|short ...");
    const bool is_long = strcmp(argv[1], "long") == 0, is_short = strcmp(argv[1], "short") == 0;
    for (int i = 2; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--stop") == 0) { p.stop_at_first = true; continue; }
        i++;
        if (strcmp(argv[i - 1], "--data") == 0) p.data = value;
        else if (strcmp(argv[i - 1], "--work") == 0) p.work = value;
        else if (strcmp(argv[i - 1], "--demo") == 0) p.demo = value;
        else if (strcmp(argv[i - 1], "--backend") == 0 && strcmp(value, "reference") == 0) p.runner = &runner_reference;
        else if (strcmp(argv[i - 1], "--backend") == 0 && strcmp(value, "cpu") == 0) p.runner = &runner_cpu;
        else fixture_die("unknown: %s %s", argv[i - 1], value);
    }
    if (is_short) run_short(&p);
    else if (p.runner == &runner_reference) run_reference(&p, is_long);
    else run_backend(&p, is_long);
    finish(&p);
}
