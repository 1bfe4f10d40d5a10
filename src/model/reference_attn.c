/* reference_attn.c - full attention (docs/model.md, "Full attention"). */
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
static double softmax_weights(double *scores, int n) {
    double max = scores[0], sum = 0.0;
    for (int i = 1; i < n; i++) max = fmax(max, scores[i]);
    for (int i = 0; i < n; i++) {
        scores[i] = (double)expf((float)(scores[i] - max));
        sum += scores[i];
    }
    return sum;
}

/* One key/value head.  Its queries are the rows' H / G query heads, row by
 * row; 16 of them at once meet every key that the last of them may see. */
static void attend(struct calla_ref_work *work, const struct calla_shape *shape, float *read, const float *q,
                   int n_rows, int kv_head, const float *k, const float *v, int n_past) {
    enum { L = CALLA_REF_LANES, A = CALLA_HEAD };
    const int n_shared = shape->n_heads / shape->n_kv_heads, n_queries = n_rows * n_shared;
    const size_t stride = (size_t)calla_kv_width(shape), cap = (size_t)(n_past + n_rows);
    const float *head_k = k + kv_head * A, *head_v = v + kv_head * A;

    for (size_t p = 0; p < cap; p++)
        for (size_t d = 0; d < A; d++) work->values[(d / L * cap + p) * L + d % L] = (double)head_v[p * stride + d];
    for (int first = 0; first < n_queries; first += L) {
        const int n = n_queries - first < L ? n_queries - first : L;
        size_t at[L];     /* of a query's head in q and read */
        int n_seen[L];
        double sums[L];
        for (int l = 0; l < L; l++) {
            const int i = first + (l < n ? l : n - 1), row = i / n_shared, head = kv_head * n_shared + i % n_shared;
            at[l] = ((size_t)row * (size_t)shape->n_heads + (size_t)head) * A;
            n_seen[l] = n_past + row + 1;   /* causal */
            for (size_t d = 0; d < A; d++) work->packed[d * L + (size_t)l] = (double)q[at[l] + d];
        }
        for (int p = 0; p < n_seen[n - 1]; p++) {
            for (size_t d = 0; d < A; d++) work->row[d] = (double)head_k[(size_t)p * stride + d];
            calla_ref_dot_lanes(sums, work->row, work->packed, A);
            for (int l = 0; l < n; l++) work->scores[(size_t)l * cap + (size_t)p] = (double)(float)(sums[l] / sqrt(A));
        }
        for (int l = 0; l < n; l++) {
            double *weights = work->scores + (size_t)l * cap;
            const double total = softmax_weights(weights, n_seen[l]);
            for (size_t d = 0; d < A; d += L) {
                calla_ref_dot_lanes(sums, weights, work->values + d * cap, n_seen[l]);
                for (size_t i = 0; i < L; i++) read[at[l] + d + i] = (float)(sums[i] / total);
            }
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
