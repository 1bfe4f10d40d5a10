/* common.h - what commands share: opening a model with its tokenizer, lines of
 * JSON, numbers, the sampling that the options ask for. */
#ifndef CALLA_CLI_COMMON_H
#define CALLA_CLI_COMMON_H

#include <stdio.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "text/tokenizer.h"

struct cli_model {
    struct calla_model *model;
    struct calla_tokenizer *tokenizer;   /* NULL: the checkpoint has none            */
    struct calla_model_info info;
};

struct cli_model_options {
    int  n_sequences;                    /* 0: the default                           */
    bool no_cache;                       /* no parked states                         */
    bool needs_text;                     /* a checkpoint without a tokenizer is an error */
    bool quiet;                          /* no memory plan on stderr                 */
};

/* The memory plan and the progress go to stderr. */
int  cli_model_open(struct cli_model *m, const struct cli_options *o, const struct cli_model_options *want, struct calla_err *err);
void cli_model_close(struct cli_model *m);

/* The checkpoint's defaults, changed by what the command line says; without
 * --seed the seed is new each time. */
struct calla_sampling cli_sampling(const struct cli_options *o, const struct calla_model_info *info);

/* One line without its end; 1, 0 at the end of the file, negative on an error. */
int  cli_read_line(FILE *f, struct calla_buf *line, struct calla_err *err);
int  cli_ids_from_json(struct calla_ids *out, const char *text, size_t n, struct calla_err *err);
/* %.<digits>g in every locale; null for what JSON cannot say. */
void cli_print_number(struct calla_buf *out, double v, int digits);
void cli_print_ids(struct calla_buf *out, const int32_t *ids, size_t n);   /* [1, 2] */

#endif
