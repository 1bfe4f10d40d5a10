/* reference.c - the whole forward pass (docs/model.md, "Forward pass" and
 * "MTP"): state, layers, logits, and the head that drafts.
 *
 * Rows go through a layer CALLA_REF_ROWS at a time, so that a weight row is
 * decoded once for all of them; which rows are together changes no bit. */
#include "model/reference.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/reference_parts.h"

/* Floats of one layer's part of a state. */
static size_t s_floats(const struct calla_shape *shape) {
    return (size_t)shape->n_value_heads * CALLA_RECUR * CALLA_RECUR;
}
static size_t window_floats(const struct calla_shape *shape) {
    return (CALLA_CONV - 1) * (size_t)calla_conv_channels(shape);
}

static int state_alloc(struct calla_reference_state *s, const struct calla_shape *shape, size_t n_gdn, size_t n_attn,
                       int cap_tokens, struct calla_err *err) {
    *s = (struct calla_reference_state){ .cap_tokens = cap_tokens };
    if (cap_tokens < 1 || cap_tokens > CALLA_MAX_CTX)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "reference: a state of %d positions; 1 to %d are possible",
                          cap_tokens, CALLA_MAX_CTX);
    const size_t kv = n_attn * (size_t)cap_tokens * (size_t)calla_kv_width(shape);
    s->k = calloc(kv, sizeof *s->k);
    s->v = calloc(kv, sizeof *s->v);
    if (n_gdn != 0) {
        s->s = calloc(n_gdn * s_floats(shape), sizeof *s->s);
        s->window = calloc(n_gdn * window_floats(shape), sizeof *s->window);
    }
    if (s->k && s->v && (n_gdn == 0 || (s->s && s->window))) return 0;
    calla_reference_state_free(s);
    return calla_fail(err, CALLA_ERR_MEMORY, "reference: no memory for a state of %d positions", cap_tokens);
}

int calla_reference_state_init(struct calla_reference_state *s, const struct calla_weights *w,
                               int cap_tokens, struct calla_err *err) {
    const size_t n_attn = (size_t)(w->n_layers / CALLA_INTERVAL);
    return state_alloc(s, w->shape, (size_t)w->n_layers - n_attn, n_attn, cap_tokens, err);
}

int calla_reference_mtp_state_init(struct calla_reference_state *s, const struct calla_weights *w,
                                   int cap_tokens, struct calla_err *err) {
    return state_alloc(s, w->shape, 0, 1, cap_tokens, err);
}

void calla_reference_state_free(struct calla_reference_state *s) {
    free(s->s);
    free(s->window);
    free(s->k);
    free(s->v);
    *s = (struct calla_reference_state){ 0 };
}

/* Everything that a call can refuse is refused before the state changes. */
static int check_call(const struct calla_weights *w, const struct calla_reference_state *s, const int32_t *ids, int n,
                      struct calla_err *err) {
    if (n < 0 || n > s->cap_tokens - s->n_tokens)
        return calla_fail(err, CALLA_ERR_LIMIT, "reference: %d ids after %d do not fit a state of %d positions",
                          n, s->n_tokens, s->cap_tokens);
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= w->shape->n_vocab)
            return calla_fail(err, CALLA_ERR_ARGUMENT, "reference: id %d at %d of the call; the vocabulary has %d",
                              (int)ids[i], i, w->shape->n_vocab);
    return 0;
}

void calla_ref_layer(struct calla_ref_work *work, const struct calla_layer_weights *w,
                     const struct calla_ref_place *at, float *x, int n_rows,
                     const struct calla_ref_layer_state *state) {
    const int d_n = at->shape->n_hidden;
    const size_t kept = work->n_floats;
    float *normed = calla_ref_take(work, (size_t)n_rows, (size_t)d_n);
    float *out = calla_ref_take(work, (size_t)n_rows, (size_t)d_n);
    const size_t part = work->n_floats;

    for (int t = 0; t < n_rows; t++) calla_ref_rms_norm(normed + t * d_n, x + t * d_n, w->input_norm, d_n);
    calla_ref_tap(at, CALLA_TAP_INPUT_NORM, normed, n_rows, d_n);
    if (w->is_attention)
        calla_ref_attention(work, &w->attn, at, out, normed, n_rows, state->k, state->v, state->n_past);
    else
        calla_ref_gdn(work, &w->gdn, at, out, normed, n_rows, state->s, state->window);
    work->n_floats = part;
    calla_ref_tap(at, CALLA_TAP_MIXER_OUT, out, n_rows, d_n);
    for (int i = 0; i < n_rows * d_n; i++) x[i] += out[i];

    for (int t = 0; t < n_rows; t++) calla_ref_rms_norm(normed + t * d_n, x + t * d_n, w->post_norm, d_n);
    calla_ref_tap(at, CALLA_TAP_POST_NORM, normed, n_rows, d_n);
    calla_ref_moe(work, &w->moe, at, out, normed, n_rows);
    for (int i = 0; i < n_rows * d_n; i++) x[i] += out[i];
    calla_ref_tap(at, CALLA_TAP_LAYER_OUT, x, n_rows, d_n);
    work->n_floats = kept;
}

/* x [n, D] through all layers; s holds n_tokens positions before it. */
static void run_layers(struct calla_ref_work *work, const struct calla_weights *w, struct calla_reference_state *s,
                       float *x, int n, struct calla_ref_place at) {
    const size_t kv = (size_t)s->cap_tokens * (size_t)calla_kv_width(w->shape);
    size_t i_gdn = 0, i_attn = 0;
    for (int l = 0; l < w->n_layers; l++) {
        struct calla_ref_layer_state part = { .n_past = s->n_tokens };
        if (w->layers[l].is_attention) {
            part.k = s->k + i_attn * kv;
            part.v = s->v + i_attn++ * kv;
        } else {
            part.s = s->s + i_gdn * s_floats(w->shape);
            part.window = s->window + i_gdn++ * window_floats(w->shape);
        }
        at.layer = l;
        calla_ref_layer(work, &w->layers[l], &at, x, n, &part);
    }
}

int calla_reference_forward(const struct calla_weights *w, struct calla_reference_state *s,
                            const int32_t *ids, int n, float *logits, float *hidden,
                            const struct calla_taps *taps, struct calla_err *err) {
    const size_t d_n = (size_t)w->shape->n_hidden, v_n = (size_t)w->shape->n_vocab;
    struct calla_ref_work work;
    int rc = check_call(w, s, ids, n, err);
    if (rc != 0 || n == 0) return rc;
    const int max_rows = n < CALLA_REF_ROWS ? n : CALLA_REF_ROWS;
    rc = calla_ref_work_init(&work, w->shape, max_rows, s->n_tokens + n, err);
    if (rc != 0) return rc;

    for (int done = 0; done < n; done += max_rows) {
        const int rows = n - done < max_rows ? n - done : max_rows;
        struct calla_ref_place at = { w->shape, taps, -1, done };
        work.n_floats = 0;
        float *x = calla_ref_take(&work, (size_t)rows, d_n);
        float *normed = calla_ref_take(&work, (size_t)rows, d_n);

        for (int t = 0; t < rows; t++) calla_matrix_row_f32(&w->embed, ids[done + t], x + (size_t)t * d_n);
        calla_ref_tap(&at, CALLA_TAP_EMBED, x, rows, (int)d_n);
        run_layers(&work, w, s, x, rows, at);
        s->n_tokens += rows;

        at.layer = w->n_layers;
        for (int t = 0; t < rows; t++)
            calla_ref_rms_norm(normed + (size_t)t * d_n, x + (size_t)t * d_n, w->final_norm, (int)d_n);
        calla_ref_tap(&at, CALLA_TAP_FINAL_NORM, normed, rows, (int)d_n);
        if (hidden != NULL) memcpy(hidden + (size_t)done * d_n, normed, (size_t)rows * d_n * sizeof *hidden);
        if (logits != NULL) {
            calla_ref_matmul(&work, logits + (size_t)done * v_n, &w->head, normed, rows);
            calla_ref_tap(&at, CALLA_TAP_LOGITS, logits + (size_t)done * v_n, rows, (int)v_n);
        }
    }
    calla_ref_work_free(&work);
    return 0;
}

int calla_reference_mtp(const struct calla_weights *w, struct calla_reference_state *kv,
                        const float *hidden, const int32_t *ids, int n,
                        float *logits, float *out, struct calla_err *err) {
    const struct calla_mtp_weights *m = w->mtp;
    const size_t d_n = (size_t)w->shape->n_hidden, v_n = (size_t)w->shape->n_vocab;
    struct calla_ref_work work;
    if (m == NULL) return calla_fail(err, CALLA_ERR_UNSUPPORTED, "reference: this checkpoint has no MTP head");
    int rc = check_call(w, kv, ids, n, err);
    if (rc != 0 || n == 0) return rc;
    const int max_rows = n < CALLA_REF_ROWS ? n : CALLA_REF_ROWS;
    rc = calla_ref_work_init(&work, w->shape, max_rows, kv->n_tokens + n, err);
    if (rc != 0) return rc;

    for (int done = 0; done < n; done += max_rows) {
        const int rows = n - done < max_rows ? n - done : max_rows;
        const struct calla_ref_place at = { w->shape, NULL, w->n_layers, done };
        const struct calla_ref_layer_state part = { .k = kv->k, .v = kv->v, .n_past = kv->n_tokens };
        work.n_floats = 0;
        float *both = calla_ref_take(&work, (size_t)rows, 2 * d_n);   /* [embedding | hidden] */
        float *u = calla_ref_take(&work, (size_t)rows, d_n);

        for (int t = 0; t < rows; t++) {
            float *e = both + (size_t)t * 2 * d_n;
            calla_matrix_row_f32(&w->embed, ids[done + t], e);
            calla_ref_rms_norm(e, e, m->norm_embed, (int)d_n);
            calla_ref_rms_norm(e + d_n, hidden + (size_t)(done + t) * d_n, m->norm_hidden, (int)d_n);
        }
        calla_ref_matmul(&work, u, &m->fc, both, rows);
        calla_ref_layer(&work, &m->layer, &at, u, rows, &part);
        kv->n_tokens += rows;

        for (int t = 0; t < rows; t++)
            calla_ref_rms_norm(both + (size_t)t * d_n, u + (size_t)t * d_n, m->norm, (int)d_n);
        if (out != NULL) memcpy(out + (size_t)done * d_n, both, (size_t)rows * d_n * sizeof *out);
        if (logits != NULL) calla_ref_matmul(&work, logits + (size_t)done * v_n, &w->head, both, rows);
    }
    calla_ref_work_free(&work);
    return 0;
}
