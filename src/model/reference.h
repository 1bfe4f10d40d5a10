/* reference.h - the forward pass in plain scalar C: the specification.
 *
 * Every backend is compared with it, tap by tap.  It is written to be read
 * beside docs/model.md, not to be fast: f32 values, sums carried in f64, no
 * kernel table, no threads. */
#ifndef CALLA_MODEL_REFERENCE_H
#define CALLA_MODEL_REFERENCE_H

#include "model/taps.h"
#include "model/weights.h"

/* One sequence.  f32 throughout; keys rotated, values raw. */
struct calla_reference_state {
    int    n_tokens, cap_tokens;
    float *s;        /* [n_gdn_layers, HV, S, S] key axis first                  */
    float *window;   /* [n_gdn_layers, 3, C] before the convolution, oldest first */
    float *k, *v;    /* [n_attn_layers, cap_tokens, G * A]                       */
};

int  calla_reference_state_init(struct calla_reference_state *s, const struct calla_weights *w,
                                int cap_tokens, struct calla_err *err);
/* The MTP head's: k and v of its one layer, no recurrent part. */
int  calla_reference_mtp_state_init(struct calla_reference_state *s, const struct calla_weights *w,
                                    int cap_tokens, struct calla_err *err);
void calla_reference_state_free(struct calla_reference_state *s);

/* Runs ids [n] after what the state holds.  logits (may be NULL): [n, V].
 * hidden (may be NULL): [n, D] after the final norm, the MTP head's input. */
int calla_reference_forward(const struct calla_weights *w, struct calla_reference_state *s,
                            const int32_t *ids, int n, float *logits, float *hidden,
                            const struct calla_taps *taps, struct calla_err *err);

/* The MTP head (docs/model.md, "MTP"): hidden [n, D] of positions p.., ids the
 * n following tokens, kv the head's state (calla_reference_mtp_state_init).
 * logits [n, V] of the token after next; out (may be NULL) [n, D] the head's
 * own normed output, which a second draft is fed with. */
int calla_reference_mtp(const struct calla_weights *w, struct calla_reference_state *kv,
                        const float *hidden, const int32_t *ids, int n,
                        float *logits, float *out, struct calla_err *err);

#endif
