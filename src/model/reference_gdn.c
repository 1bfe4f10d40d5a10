/* reference_gdn.c - the recurrent layers, token by token (docs/model.md,
 * "Gated DeltaNet"). */
#include <math.h>
#include <string.h>

#include "model/reference_parts.h"

float calla_ref_conv(const float *taps, float *window, float x) {
    const float y = (float)((double)taps[0] * (double)window[0] + (double)taps[1] * (double)window[1] +
                            (double)taps[2] * (double)window[2] + (double)taps[3] * (double)x);
    window[0] = window[1];
    window[1] = window[2];
    window[2] = x;
    return calla_ref_silu(y);
}

void calla_ref_l2_norm(float *out, const float *x, int n, float scale) {
    double squares = 0.0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    const float r = (float)(1.0 / sqrt(squares + (double)CALLA_NORM_EPS)) * scale;
    for (int i = 0; i < n; i++) out[i] = x[i] * r;
}

/* out [n_v] = x [n_k] times s [n_k, n_v] */
static void read_state(float *out, const float *x, const float *s, int n_k, int n_v) {
    double sums[CALLA_RECUR] = { 0.0 };
    for (int i = 0; i < n_k; i++)
        for (int j = 0; j < n_v; j++) sums[j] += (double)x[i] * (double)s[i * n_v + j];
    for (int j = 0; j < n_v; j++) out[j] = (float)sums[j];
}

void calla_ref_delta(float *s, float *o, const float *q, const float *k, const float *v,
                     float decay, float beta, int n_k, int n_v) {
    float delta[CALLA_RECUR];
    for (int i = 0; i < n_k * n_v; i++) s[i] *= decay;
    read_state(delta, k, s, n_k, n_v);
    for (int j = 0; j < n_v; j++) delta[j] = beta * (v[j] - delta[j]);
    for (int i = 0; i < n_k; i++)
        for (int j = 0; j < n_v; j++) s[i * n_v + j] += k[i] * delta[j];
    read_state(o, q, s, n_k, n_v);
}

/* Convolution of all channels; window [3, C] moves on by n_rows. */
static void convolve(float *out, const float *qkv, const float *taps, float *window, int n_rows, int n_channels) {
    const size_t c_n = (size_t)n_channels;
    for (size_t c = 0; c < c_n; c++) {
        float last[3] = { window[c], window[c_n + c], window[2 * c_n + c] };
        for (size_t t = 0; t < (size_t)n_rows; t++)
            out[t * c_n + c] = calla_ref_conv(taps + CALLA_CONV * c, last, qkv[t * c_n + c]);
        for (size_t i = 0; i < 3; i++) window[i * c_n + c] = last[i];
    }
}

void calla_ref_gdn(struct calla_ref_work *work, const struct calla_gdn_weights *w,
                   const struct calla_ref_place *at, float *out, const float *x, int n_rows,
                   float *s, float *window) {
    enum { S = CALLA_RECUR };
    const struct calla_shape *shape = at->shape;
    const int n_key_heads = shape->n_key_heads, n_value_heads = shape->n_value_heads;
    const int c_n = calla_conv_channels(shape), k_width = n_key_heads * S, v_width = n_value_heads * S;
    const size_t t_n = (size_t)n_rows;
    float *qkv = calla_ref_take(work, t_n, (size_t)c_n);
    float *mixed = calla_ref_take(work, t_n, (size_t)c_n);
    float *z = calla_ref_take(work, t_n, (size_t)v_width);
    float *read = calla_ref_take(work, t_n, (size_t)v_width);
    float *normed = calla_ref_take(work, t_n, (size_t)v_width);
    float *beta = calla_ref_take(work, t_n, (size_t)n_value_heads);
    float *decay = calla_ref_take(work, t_n, (size_t)n_value_heads);

    calla_ref_matmul(work, qkv, &w->in_qkv, x, n_rows);
    calla_ref_matmul(work, z, &w->in_z, x, n_rows);
    calla_ref_matmul(work, beta, &w->in_b, x, n_rows);
    calla_ref_matmul(work, decay, &w->in_a, x, n_rows);
    calla_ref_tap(at, CALLA_TAP_GDN_QKV, qkv, n_rows, c_n);
    calla_ref_tap(at, CALLA_TAP_GDN_Z, z, n_rows, v_width);

    convolve(mixed, qkv, w->conv, window, n_rows, c_n);
    calla_ref_tap(at, CALLA_TAP_GDN_CONV, mixed, n_rows, c_n);

    for (int t = 0; t < n_rows; t++)
        for (int h = 0; h < n_value_heads; h++) {
            float *b = beta + t * n_value_heads + h, *a = decay + t * n_value_heads + h;
            *b = calla_ref_sigmoid(*b);
            *a = expf(-expf(w->a_log[h]) * calla_ref_softplus(*a + w->dt_bias[h]));
        }
    calla_ref_tap(at, CALLA_TAP_GDN_DECAY, decay, n_rows, n_value_heads);
    calla_ref_tap(at, CALLA_TAP_GDN_BETA, beta, n_rows, n_value_heads);

    for (int t = 0; t < n_rows; t++) {
        float *q = mixed + (size_t)t * (size_t)c_n, *k = q + k_width;
        const float *v = k + k_width;
        for (int h = 0; h < n_key_heads; h++) {
            calla_ref_l2_norm(q + h * S, q + h * S, S, 1.0f / sqrtf(S));
            calla_ref_l2_norm(k + h * S, k + h * S, S, 1.0f);
        }
        const struct calla_ref_place row = { shape, at->taps, at->layer, at->row_idx + t };
        calla_ref_tap(&row, CALLA_TAP_GDN_Q, q, 1, k_width);
        calla_ref_tap(&row, CALLA_TAP_GDN_K, k, 1, k_width);
        for (int h = 0; h < n_value_heads; h++) {
            const int key_head = h / (n_value_heads / n_key_heads);
            const size_t i = (size_t)(t * n_value_heads + h);
            calla_ref_delta(s + (size_t)h * S * S, read + i * S, q + key_head * S, k + key_head * S, v + h * S,
                            decay[i], beta[i], S, S);
            calla_ref_gated_norm(normed + i * S, read + i * S, w->norm, z + i * S, S);
        }
    }
    calla_ref_tap(at, CALLA_TAP_GDN_READ, read, n_rows, v_width);
    calla_ref_tap(at, CALLA_TAP_GDN_NORMED, normed, n_rows, v_width);

    calla_ref_matmul(work, out, &w->out, normed, n_rows);
}
