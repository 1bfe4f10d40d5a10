/* reference_parts.h - the pieces of the reference forward pass.
 *
 * Private to src/model/reference*.c and to the tests that hold each piece
 * against vectors.  Values are f32, sums are carried in f64 in ascending order
 * of the summed index, so a row's result depends neither on the rows beside it
 * nor on how a prompt was split.  Section names are those of docs/model.md. */
#ifndef CALLA_MODEL_REFERENCE_PARTS_H
#define CALLA_MODEL_REFERENCE_PARTS_H

#include "model/reference.h"

enum {
    CALLA_REF_ROWS = 512,       /* rows a layer takes at once: a weight row is decoded once for them */
    CALLA_REF_LANES = 16        /* rows that one loop over a weight row serves: the adds of one row
                                 * wait for each other, those of 16 do not (5.5 to 0.9 G a second)  */
};

/* Scratch of one call; planned once, nothing inside a layer allocates. */
struct calla_ref_work {
    double *packed;             /* [ceil(T / 16), cols, 16] input of a matrix product */
    double *row;                /* [cols] one weight row, one key                    */
    float  *row_f32;            /* [cols]                                            */
    double *sum;                /* [T, D] of the experts                             */
    double *scores;             /* [16, positions]                                   */
    double *values;             /* [A / 16, positions, 16] of one kv head            */
    int    *chosen;             /* [T, K] experts of a row; then [T] rows of one     */
    float  *floats;             /* what calla_ref_take hands out, reset every part   */
    size_t  n_floats, cap_floats;
};

/* n_rows at once, positions below cap_tokens. */
int    calla_ref_work_init(struct calla_ref_work *work, const struct calla_shape *shape, int n_rows,
                           int cap_tokens, struct calla_err *err);
void   calla_ref_work_free(struct calla_ref_work *work);
float *calla_ref_take(struct calla_ref_work *work, size_t n_rows, size_t n);

/* Where a layer stands: which one, its first row in the caller's call, recorder. */
struct calla_ref_place {
    const struct calla_shape *shape;
    const struct calla_taps *taps;  /* may be NULL */
    int layer, row_idx;
};

/* Gives rows [n_rows, n] to the recorder. */
void calla_ref_tap(const struct calla_ref_place *at, enum calla_tap tap, const float *v, int n_rows, int n);

/* y [n_rows, W rows] = x [n_rows, W cols] times W transposed. */
void calla_ref_matmul(struct calla_ref_work *work, float *y, const struct calla_matrix *w,
                      const float *x, int n_rows);

/* sums [16] = row [n] times m [n, 16] */
void calla_ref_dot_lanes(double *restrict sums, const double *restrict row, const double *restrict m, int n);

float calla_ref_sigmoid(float x);
float calla_ref_silu(float x);
float calla_ref_softplus(float x);

/* "Norms".  w holds the factor itself (1 + w of a Hugging Face file). */
void calla_ref_rms_norm(float *out, const float *x, const float *w, int n);
void calla_ref_gated_norm(float *out, const float *x, const float *w, const float *z, int n);

/* "Full attention".  Rotates the first 64 values of one head in place. */
void calla_ref_rope(float *head, int pos);
/* k, v: the cache of this layer [cap, G * A] with n_past positions; the rows
 * are appended.  out [n_rows, D]. */
void calla_ref_attention(struct calla_ref_work *work, const struct calla_attn_weights *w,
                         const struct calla_ref_place *at, float *out, const float *x, int n_rows,
                         float *k, float *v, int n_past);

/* "Gated DeltaNet".  One channel: window holds its 3 last inputs, oldest
 * first, and moves on; returns silu of the convolution. */
float calla_ref_conv(const float *taps, float *window, float x);
/* out = x / sqrt(sum x^2 + 1e-6) * scale */
void  calla_ref_l2_norm(float *out, const float *x, int n, float scale);
/* One token of one head: s [n_k, n_v] moves on, o [n_v] is read. */
void  calla_ref_delta(float *s, float *o, const float *q, const float *k, const float *v,
                      float decay, float beta, int n_k, int n_v);
/* s [HV, S, S], window [3, C] of this layer move on by n_rows.  out [n_rows, D]. */
void calla_ref_gdn(struct calla_ref_work *work, const struct calla_gdn_weights *w,
                   const struct calla_ref_place *at, float *out, const float *x, int n_rows,
                   float *s, float *window);

/* "Experts".  ids [n_chosen] by falling logit, the lower id first among
 * equals; weights [n_chosen] sum to 1. */
void calla_ref_route(const float *logits, int n_experts, int n_chosen, int *ids, float *weights);
void calla_ref_moe(struct calla_ref_work *work, const struct calla_moe_weights *w,
                   const struct calla_ref_place *at, float *out, const float *x, int n_rows);

/* "Layer": x [n_rows, D] becomes the residual after it.  The pointers are the
 * layer's own part of a state: s, window of a recurrent layer, k, v of an
 * attention layer. */
struct calla_ref_layer_state { float *s, *window, *k, *v; int n_past; };
void calla_ref_layer(struct calla_ref_work *work, const struct calla_layer_weights *w,
                     const struct calla_ref_place *at, float *x, int n_rows,
                     const struct calla_ref_layer_state *state);

#endif
