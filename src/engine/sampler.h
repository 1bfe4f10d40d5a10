/* sampler.h - from logits to an id: the specification of sampling.
 *
 * Order, ties and the draw are fixed by docs/model.md ("Sampling"), so that the
 * same seed gives the same answer on every backend, in every batch and after a
 * resume.  Sampling is part of a step, so backends may include this header. */
#ifndef CALLA_ENGINE_SAMPLER_H
#define CALLA_ENGINE_SAMPLER_H

#include "calla.h"

struct calla_sampler_scratch;    /* buffers for one vocabulary; one a thread */

int  calla_sampler_scratch_new(struct calla_sampler_scratch **out, int n_vocab, struct calla_err *err);
void calla_sampler_scratch_free(struct calla_sampler_scratch **s);

/* What one row's draw depends on; borrowed for the call. */
struct calla_sampler {
    const struct calla_sampling *sampling;
    const int32_t  *ids;         /* [n_ids] of the sequence so far, prompt first           */
    int             n_ids, n_prompt;
    int             pos;         /* position that the sampled id will have (= n_ids)       */
    const uint32_t *allowed;     /* bit i of word i/32: id i may come; NULL: all           */
};

/* logits [n_usable], not changed.  CALLA_ERR_NUMERIC when one is NaN or all are
 * -inf, with the first bad id in the message. */
int calla_sample(struct calla_sampler_scratch *scratch, const struct calla_sampler *s,
                 const float *logits, int n_usable, int32_t *id, struct calla_err *err);

#endif
