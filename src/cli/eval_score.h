/* eval_score.h - what calla eval measures of one sequence: how probable ids
 * were, whether greedy decoding writes them, and how far another run's logits
 * are.  One session, one thread. */
#ifndef CALLA_CLI_EVAL_SCORE_H
#define CALLA_CLI_EVAL_SCORE_H

#include <json-c/json.h>

#include "base/buf.h"
#include "cli/common.h"

struct eval_score {
    double nll;             /* of the ids from `from` on, nats                      */
    long   n;
    int    first_wrong;     /* the first of them that is not the most likely; -1    */
    int32_t instead;        /* what was more likely there                           */
};

/* Feeds ids [n] to a fresh sequence and scores those from `from` >= 1 on.
 * out (may be NULL): gets a line {"ids", "top", "lse"} with n_top logits of
 * every position, as --against reads it. */
int eval_read(struct calla_session *s, const struct cli_model *m, const int32_t *ids, int n, int from,
              struct eval_score *score, struct calla_buf *out, int n_top, struct calla_err *err);

/* Appends to ids what greedy decoding says after them, until a stop id (kept)
 * or n_most more. */
int eval_decode(struct calla_session *s, const struct cli_model *m, struct calla_ids *ids, int n_most, struct calla_err *err);

struct eval_agreement {
    long   n, n_same, n_next;   /* positions; equal best ids; next id among theirs  */
    double kl;                  /* sum of KL(theirs || ours), their K ids and the rest */
    double worst_kl;
    double nll_theirs, nll_ours;/* of the next id where it is among theirs          */
};

/* One line of another run's logits, added to a. */
int eval_against(struct calla_session *s, const struct cli_model *m, struct json_object *line, struct eval_agreement *a,
                 struct calla_err *err);

#endif
