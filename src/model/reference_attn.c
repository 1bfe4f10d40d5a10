/* reference_attn.c - full attention (docs/model.md, "Attention"). */
#include <math.h>
#include <string.h>

#include "model/reference_parts.h"

/* Angles in f64: at position 262,143 an f32 product is off by up to 0.016 rad,
 * an f64 one by 3e-11. */
void calla_ref_rope(float *head, int pos) {
    const int half = CALLA_ROTARY / 2;
    for (int i = 0; i < half; i++) {
        const double angle = pos * pow(CALLA_ROPE_THETA, -2.0 * i / CALLA_ROTARY);
        const float c = (float)cos(angle), s = (float)sin(angle);
        const float a = head[i], b = head[i + half];
        head[i] = a * c - b * s;
        head[i + half] = b * c + a * s;
    }
}

/* Scores become the weights of a softmax before its division; returns the sum
 * that divides. */
static double softmax_weights(float *scores, int n) {
    float max = scores[0];
    double sum = 0.0;
    for (int i = 1; i < n; i++) max = fmaxf(max, scores[i]);
    for (int i = 0; i < n; i++) {
        scores[i] = expf(scores[i] - max);
        sum += (double)scores[i];
    }
    return sum;
}

/* out [A] = sum over positions of weights[p] * v[p], divided by `sum` */
static void read_values(float *out, const float *weights, double sum, const float *v, int n, size_t stride) {
    enum { L = CALLA_REF_LANES };
    for (int d = 0; d < CALLA_HEAD; d += L) {
        double acc[L] = { 0.0 };
        for (int p = 0; p < n; p++)
            for (int l = 0; l < L; l++) acc[l] += (double)weights[p] * (double)v[(size_t)p * stride + (size_t)(d + l)];
        for (int l = 0; l < L; l++) out[d + l] = (float)(acc[l] / sum);
    }
}

/* One key/value head.  Its queries are the rows' H / G query heads, row by
 * row; eight of them at once meet every key that the last of them may see. */
static void attend(struct calla_ref_work *work, const struct calla_shape *shape, float *read, const float *q,
                   int n_rows, int kv_head, const float *k, const float *v, int n_past) {
    enum { L = CALLA_REF_LANES };
    const int n_shared = shape->n_heads / shape->n_kv_heads, n_queries = n_rows * n_shared;
    const size_t stride = (size_t)calla_kv_width(shape);
    const int cap = n_past + n_rows;

    for (int first = 0; first < n_queries; first += L) {
        size_t at[L];
        int n_seen[L];
        const int n = n_queries - first < L ? n_queries - first : L;
        for (int l = 0; l < L; l++) {
            const int i = first + (l < n ? l : n - 1), row = i / n_shared, head = kv_head * n_shared + i % n_shared;
            at[l] = ((size_t)row * (size_t)shape->n_heads + (size_t)head) * CALLA_HEAD;
            n_seen[l] = n_past + row + 1;   /* causal */
            for (int d = 0; d < CALLA_HEAD; d++) work->packed[(size_t)d * L + (size_t)l] = (double)q[at[l] + (size_t)d];
        }
        for (int p = 0; p < n_seen[n - 1]; p++) {
            double dots[L];
            for (int d = 0; d < CALLA_HEAD; d++)
                work->row[d] = (double)k[(size_t)p * stride + (size_t)(kv_head * CALLA_HEAD + d)];
            calla_ref_dot_lanes(dots, work->row, work->packed, CALLA_HEAD);
            for (int l = 0; l < n; l++) work->scores[l * cap + p] = (float)(dots[l] / sqrt(CALLA_HEAD));
        }
        for (int l = 0; l < n; l++) {
            float *weights = work->scores + l * cap;
            const double sum = softmax_weights(weights, n_seen[l]);
            read_values(read + at[l], weights, sum, v + kv_head * CALLA_HEAD, n_seen[l], stride);
        }
    }
}

void calla_ref_attention(struct calla_ref_work *work, const struct calla_attn_weights *w,
                         const struct calla_ref_place *at, float *out, const float *x, int n_rows,
                         float *k, float *v, int n_past) {
    const struct calla_shape *shape = at->shape;
    const size_t t_n = (size_t)n_rows, width = (size_t)calla_attn_width(shape), kv_width = (size_t)calla_kv_width(shape);
    const int n_heads = shape->n_heads, n_kv_heads = shape->n_kv_heads;
    float *q_gate = calla_ref_take(work, t_n, 2 * width);
    float *q = calla_ref_take(work, t_n, width);
    float *gate = calla_ref_take(work, t_n, width);
    float *read = calla_ref_take(work, t_n, width);
    float *new_k = k + (size_t)n_past * kv_width, *new_v = v + (size_t)n_past * kv_width;

    calla_ref_matmul(work, q_gate, &w->q, x, n_rows);
    calla_ref_matmul(work, new_k, &w->k, x, n_rows);
    calla_ref_matmul(work, new_v, &w->v, x, n_rows);

    for (int t = 0; t < n_rows; t++) {
        for (int h = 0; h < n_heads; h++) {   /* [query | gate] a head */
            const size_t i = (size_t)t * (size_t)n_heads + (size_t)h;
            const float *head = q_gate + i * 2 * CALLA_HEAD;
            calla_ref_rms_norm(q + i * CALLA_HEAD, head, w->q_norm, CALLA_HEAD);
            memcpy(gate + i * CALLA_HEAD, head + CALLA_HEAD, CALLA_HEAD * sizeof *gate);
            calla_ref_rope(q + i * CALLA_HEAD, n_past + t);
        }
        for (int g = 0; g < n_kv_heads; g++) {
            float *head = new_k + ((size_t)t * (size_t)n_kv_heads + (size_t)g) * CALLA_HEAD;
            calla_ref_rms_norm(head, head, w->k_norm, CALLA_HEAD);
            calla_ref_rope(head, n_past + t);
        }
    }
    calla_ref_tap(at, CALLA_TAP_ATTN_Q, q, n_rows, (int)width);
    calla_ref_tap(at, CALLA_TAP_ATTN_K, new_k, n_rows, (int)kv_width);
    calla_ref_tap(at, CALLA_TAP_ATTN_V, new_v, n_rows, (int)kv_width);

    for (int g = 0; g < n_kv_heads; g++) attend(work, shape, read, q, n_rows, g, k, v, n_past);
    calla_ref_tap(at, CALLA_TAP_ATTN_READ, read, n_rows, (int)width);

    for (size_t i = 0; i < t_n * width; i++) read[i] *= calla_ref_sigmoid(gate[i]);
    calla_ref_tap(at, CALLA_TAP_ATTN_GATED, read, n_rows, (int)width);

    calla_ref_matmul(work, out, &w->o, read, n_rows);
}
