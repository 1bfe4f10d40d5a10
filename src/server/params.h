/* params.h - the fields that all generating endpoints share. */
#ifndef CALLA_SERVER_PARAMS_H
#define CALLA_SERVER_PARAMS_H

#include "server/context.h"
#include "server/fields.h"
#include "server/stop.h"

enum { SERVER_MAX_TOKENS = 1 << 30, SERVER_MAX_ANSWERS = 16 };

struct gen_params {
    struct calla_sampling sampling;       /* bias points at the array below           */
    struct calla_logit_bias *bias;        /* owned                                    */
    int   max_tokens;                     /* -1: what the context leaves              */
    int   n;                              /* answers a prompt                         */
    bool  stream, include_usage, ignore_eos;
    struct stop_strings stop;             /* owned                                    */
};

/* Reads what is common to chat and completions on top of the checkpoint's defaults; faults go to f. */
void params_read(struct gen_params *p, struct fields *f, const struct server *s);
void params_free(struct gen_params *p);

#endif
