/* runner.h - a forward pass under test, and what the tests say about it. */
#ifndef CALLA_TESTS_GOLDEN_RUNNER_H
#define CALLA_TESTS_GOLDEN_RUNNER_H

#include <stdbool.h>

#include "model/reference.h"

/* One sequence on one forward pass.  Any fault ends the program. */
struct runner {
    const char *name;
    void *(*open)(const struct calla_weights *w, int cap_tokens);
    void  (*close)(void *run);
    void  (*restart)(void *run);                   /* an empty sequence */
    /* logits [n, V]; taps may be NULL */
    void  (*feed)(void *run, const int32_t *ids, int n, float *logits, const struct calla_taps *taps);

    /* What rounding may cost; the reasons stand where the runner is defined. */
    double last_row, last_row_demo, last_row_long; /* largest difference in a last row's logits; in
                                                    * the four last of 8,192                       */
    double best_share;                             /* of the positions with a margin above 1e-3,
                                                    * all prompts together                         */
    double mean_kl, mean_kl_demo;                  /* to the reference, over the usable ids; 0: it
                                                    * is the reference                             */
    double tap;                                    /* of a tap, as a share of its largest value    */
};

extern const struct runner runner_reference, runner_cpu, runner_cpu_decode;

/* Where the data is and what is to run. */
struct plan {
    const char *data, *work, *demo;                /* committed data, unpacked copies, models/demo */
    const struct runner *runner;
    bool stop_at_first;
    int  n_passed, n_failed;
};

/* Counts one check and prints it; with stop_at_first the first failure ends the
 * program. */
__attribute__((format(printf, 3, 4))) void check(struct plan *p, bool good, const char *fmt, ...);

/* Opens WORK/tiny/LAYOUT or another folder; warnings are silent. */
struct calla_weights *open_folder(const char *dir, int quantise_bits);
struct calla_weights *open_tiny(const struct plan *p, const char *layout, int quantise_bits);

void golden_tiny(struct plan *p);      /* prompts and greedy ids, both layouts       */
void golden_tiny_short(struct plan *p); /* both layouts, up to 65 ids                */
void golden_tiny_long(struct plan *p); /* 2,100 ids                                  */
void golden_long(struct plan *p);      /* 8,192 ids                                  */
void golden_taps(struct plan *p);
void golden_splits(struct plan *p);    /* one call = many calls                      */
void golden_layouts(struct plan *p);   /* both layouts hold the same weights         */
void golden_mtp(struct plan *p);       /* reference only: no backend has the head yet */
void golden_drafts(struct plan *p);    /* what the demo's trained head drafts        */
void golden_refusals(struct plan *p);
void golden_demo(struct plan *p);

#endif
