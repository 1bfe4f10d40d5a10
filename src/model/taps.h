/* taps.h - names of inner values, so that two forward passes can be compared.
 *
 * A tap is one row's vector at a named place of a layer.  docs/model.md uses
 * the same names. */
#ifndef CALLA_MODEL_TAPS_H
#define CALLA_MODEL_TAPS_H

enum calla_tap {
    CALLA_TAP_EMBED,        /* [D], layer -1                                           */
    CALLA_TAP_INPUT_NORM,   /* [D]                                                     */
    CALLA_TAP_GDN_QKV,      /* [C]  before the convolution                             */
    CALLA_TAP_GDN_Z,        /* [HV * S]                                                */
    CALLA_TAP_GDN_CONV,     /* [C]  after convolution and silu                         */
    CALLA_TAP_GDN_Q,        /* [HK * S] normalised and scaled                          */
    CALLA_TAP_GDN_K,        /* [HK * S] normalised                                     */
    CALLA_TAP_GDN_DECAY,    /* [HV] e^g                                                */
    CALLA_TAP_GDN_BETA,     /* [HV]                                                    */
    CALLA_TAP_GDN_READ,     /* [HV * S] o, read from the state after the update        */
    CALLA_TAP_GDN_NORMED,   /* [HV * S] after the gated norm                           */
    CALLA_TAP_ATTN_Q,       /* [H * A] normalised and rotated                          */
    CALLA_TAP_ATTN_K,       /* [G * A] normalised and rotated, before any rounding     */
    CALLA_TAP_ATTN_V,       /* [G * A]                                                 */
    CALLA_TAP_ATTN_READ,    /* [H * A] before the output gate                          */
    CALLA_TAP_ATTN_GATED,   /* [H * A]                                                 */
    CALLA_TAP_MIXER_OUT,    /* [D]  out_proj or o_proj                                 */
    CALLA_TAP_POST_NORM,    /* [D]                                                     */
    CALLA_TAP_ROUTER,       /* [E]  logits                                             */
    CALLA_TAP_ROUTER_WEIGHTS, /* [E] weight of each chosen expert, 0 elsewhere         */
    CALLA_TAP_MOE_OUT,      /* [D]  routed plus shared                                 */
    CALLA_TAP_LAYER_OUT,    /* [D]  residual after the layer                           */
    CALLA_TAP_FINAL_NORM,   /* [D], layer n_layers                                     */
    CALLA_TAP_LOGITS,       /* [V], layer n_layers; rows that asked for logits only    */
    CALLA_N_TAPS
};

extern const char *const calla_tap_names[CALLA_N_TAPS]; /* "embed", "input_norm", ... */

/* A forward pass calls put, where a recorder is given, from one thread. */
struct calla_taps {
    void (*put)(void *user, enum calla_tap tap, int layer, int row_idx, const float *v, int n);
    void *user;
};

#endif
