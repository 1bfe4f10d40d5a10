/* forward_gdn.c - the recurrent mixer (docs/model.md, "Gated DeltaNet").
 *
 * After the projections a thread owns whole key heads with their value heads:
 * convolution, norms, gates, scan and gated norm of its heads need no barrier.
 * The arithmetic of the scan is token by token, so a split of the prompt
 * changes no bit. */
#include "cpu/forward.h"

#include <string.h>

/* The heads of one thread: key heads [k0, k1), value heads [v0, v1). */
struct heads { int k0, k1, v0, v1; };

/* Row j of a segment before the convolution; j from -3 lies in the window. */
static const float *before_conv(const struct cpu_step *f, const struct cpu_segment *g, const float *window, int j) {
    const size_t n = (size_t)calla_conv_channels(f->shape);
    return j < 0 ? window + (size_t)(CALLA_CONV - 1 + j) * n : f->s->gdn.qkv + (size_t)(g->row0 + j) * n;
}

/* Channels [c, c + n) of a segment; then the window moves on. */
static void convolve(struct cpu_step *f, const struct cpu_gdn *w, const struct cpu_segment *g, float *window, int c, int n) {
    const size_t stride = (size_t)calla_conv_channels(f->shape);
    for (int j = 0; j < g->n_rows; j++)
        f->k->conv(f->s->gdn.conv + (size_t)(g->row0 + j) * stride + c, before_conv(f, g, window, j - 3) + c,
                   before_conv(f, g, window, j - 2) + c, before_conv(f, g, window, j - 1) + c,
                   before_conv(f, g, window, j) + c, w->conv + c, stride, n);
    for (int i = 0; i < CALLA_CONV - 1; i++) {     /* oldest first: a row moves before it is overwritten */
        const float *from = before_conv(f, g, window, g->n_rows - (CALLA_CONV - 1) + i);
        if (from != window + (size_t)i * stride)
            memcpy(window + (size_t)i * stride + c, from + c, (size_t)n * sizeof *from);
    }
}

static void norm_and_gates(struct cpu_step *f, const struct cpu_gdn *w, const struct heads *mine, int row) {
    struct cpu_gdn_scratch *s = &f->s->gdn;
    const size_t n_keys = (size_t)f->shape->n_key_heads * CALLA_RECUR, gate = (size_t)row * (size_t)s->gate_stride + (size_t)mine->v0;
    const float *conv = s->conv + (size_t)row * (size_t)calla_conv_channels(f->shape);
    float *qk = s->qk + (size_t)row * 2 * n_keys;
    for (int h = mine->k0; h < mine->k1; h++) {
        const size_t at = (size_t)h * CALLA_RECUR;
        f->k->l2norm(qk + at, conv + at, 0.08838834764831845f);   /* 128^-1/2 */
        f->k->l2norm(qk + n_keys + at, conv + n_keys + at, 1.0f);
    }
    f->k->gdn_gates(s->decay + gate, s->beta + gate, s->a + gate, s->b + gate, w->neg_exp_a_log + mine->v0,
                    w->dt_bias + mine->v0, mine->v1 - mine->v0);
}

static void scan_segment(struct cpu_step *f, const struct cpu_gdn *w, const struct heads *mine,
                         const struct cpu_segment *g, int gdn_idx) {
    struct cpu_gdn_scratch *s = &f->s->gdn;
    const struct calla_shape *shape = f->shape;
    const size_t n_keys = (size_t)shape->n_key_heads * CALLA_RECUR, n_channels = (size_t)calla_conv_channels(shape);
    const size_t width = (size_t)calla_gdn_width(shape), row0 = (size_t)g->row0;
    const int per_key = shape->n_value_heads / shape->n_key_heads;
    for (int h = mine->v0; h < mine->v1; h++) {
        const size_t at = (size_t)h * CALLA_RECUR, key = (size_t)(h / per_key) * CALLA_RECUR;
        const float *qk = s->qk + row0 * 2 * n_keys + key;
        const size_t gate = row0 * (size_t)s->gate_stride + (size_t)h;
        f->k->gdn_scan(cpu_state_s(g->state, shape, gdn_idx, h), qk, qk + n_keys, 2 * n_keys,
                       s->conv + row0 * n_channels + 2 * n_keys + at, n_channels, s->decay + gate, s->beta + gate,
                       (size_t)s->gate_stride, s->read + row0 * width + at, width, g->n_rows);
        for (size_t i = row0; i < row0 + (size_t)g->n_rows; i++)
            f->k->gated_norm(s->normed + i * width + at, s->read + i * width + at, s->z + i * width + at, w->norm,
                             CALLA_NORM_EPS);
    }
}

static void mix_heads(struct cpu_step *f, const struct cpu_gdn *w, int gdn_idx, int t) {
    const struct calla_shape *shape = f->shape;
    const int per_key = shape->n_value_heads / shape->n_key_heads, n_keys = shape->n_key_heads * CALLA_RECUR;
    struct heads mine;
    cpu_share(f, t, shape->n_key_heads, &mine.k0, &mine.k1);
    if (mine.k0 == mine.k1) return;
    mine.v0 = mine.k0 * per_key;
    mine.v1 = mine.k1 * per_key;
    for (int i = 0; i < f->n_segments; i++) {
        const struct cpu_segment *g = &f->s->segments[i];
        float *window = cpu_state_window(g->state, shape, gdn_idx);
        const int n_k = (mine.k1 - mine.k0) * CALLA_RECUR, c_k = mine.k0 * CALLA_RECUR;
        convolve(f, w, g, window, c_k, n_k);
        convolve(f, w, g, window, n_keys + c_k, n_k);
        convolve(f, w, g, window, 2 * n_keys + mine.v0 * CALLA_RECUR, (mine.v1 - mine.v0) * CALLA_RECUR);
        for (int j = 0; j < g->n_rows; j++) norm_and_gates(f, w, &mine, g->row0 + j);
        scan_segment(f, w, &mine, g, gdn_idx);
    }
}

void cpu_gdn_mixer(struct cpu_step *f, int layer, int t) {
    const struct cpu_gdn *w = &f->m->layers[layer].gdn;
    struct cpu_gdn_scratch *s = &f->s->gdn;
    const int n_channels = calla_conv_channels(f->shape), width = calla_gdn_width(f->shape);
    const int n_keys = f->shape->n_key_heads * CALLA_RECUR, n_heads = f->shape->n_value_heads;
    const size_t gate = (size_t)s->gate_stride;
    const struct cpu_product in[] = { { &w->qkv, s->qkv, (size_t)n_channels }, { &w->z, s->z, (size_t)width },
                                      { &w->b, s->b, gate }, { &w->a, s->a, gate } };
    cpu_products(f, t, in, sizeof in / sizeof *in, &f->s->in, f->n_rows);
    cpu_tap(f, t, CALLA_TAP_GDN_QKV, layer, s->qkv, (size_t)n_channels, n_channels);
    cpu_tap(f, t, CALLA_TAP_GDN_Z, layer, s->z, (size_t)width, width);
    cpu_wait(f, t);
    mix_heads(f, w, cpu_gdn_idx(layer), t);
    cpu_tap(f, t, CALLA_TAP_GDN_CONV, layer, s->conv, (size_t)n_channels, n_channels);
    cpu_tap(f, t, CALLA_TAP_GDN_Q, layer, s->qk, 2 * (size_t)n_keys, n_keys);
    cpu_tap(f, t, CALLA_TAP_GDN_K, layer, s->qk + n_keys, 2 * (size_t)n_keys, n_keys);
    cpu_tap(f, t, CALLA_TAP_GDN_DECAY, layer, s->decay, gate, n_heads);
    cpu_tap(f, t, CALLA_TAP_GDN_BETA, layer, s->beta, gate, n_heads);
    cpu_tap(f, t, CALLA_TAP_GDN_READ, layer, s->read, (size_t)width, width);
    cpu_tap(f, t, CALLA_TAP_GDN_NORMED, layer, s->normed, (size_t)width, width);
    cpu_wait(f, t);
    cpu_quantise_rows(f, t, &f->s->gdn_mix, s->normed, f->n_rows);
    cpu_wait(f, t);
    cpu_project_add(f, layer, t, &w->out, &f->s->gdn_mix);
}
