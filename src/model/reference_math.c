/* reference_math.c - scratch, matrix product, norms and small functions of the
 * reference.  Threads: one call, one thread. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "model/reference_parts.h"

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

int calla_ref_work_init(struct calla_ref_work *work, const struct calla_shape *shape, int n_rows,
                        int cap_tokens, struct calla_err *err) {
    const size_t t = (size_t)n_rows, d = (size_t)shape->n_hidden, c = (size_t)calla_conv_channels(shape);
    const size_t ha = (size_t)calla_attn_width(shape), hs = (size_t)calla_gdn_width(shape);
    const size_t f = (size_t)shape->n_expert_width, hv = (size_t)shape->n_value_heads;
    const size_t cols = max_size(max_size(2 * d, CALLA_HEAD), max_size(max_size(ha, hs), f));
    const size_t attn = 3 * 2 * ha, gdn = 2 * c + 3 * hs + 4 * hv + d;
    const size_t moe = 2 * (size_t)shape->n_experts + CALLA_CHOSEN + 2 * d + 2 * f + 1;
    const size_t lanes = CALLA_REF_LANES, groups = (t + lanes - 1) / lanes;

    *work = (struct calla_ref_work){ 0 };
    /* Three rows of D outlive a part: normed input, mixer output, and the head's two halves. */
    work->cap_floats = t * (5 * d + max_size(max_size(attn, gdn), moe));
    work->packed = malloc(groups * lanes * cols * sizeof *work->packed);
    work->row = malloc(cols * sizeof *work->row);
    work->row_f32 = malloc(cols * sizeof *work->row_f32);
    work->sum = malloc(t * d * sizeof *work->sum);
    work->scores = malloc(lanes * (size_t)cap_tokens * sizeof *work->scores);
    work->values = malloc(CALLA_HEAD * (size_t)cap_tokens * sizeof *work->values);
    work->chosen = malloc(t * (CALLA_CHOSEN + 1) * sizeof *work->chosen);
    work->floats = malloc(work->cap_floats * sizeof *work->floats);
    if (work->packed && work->row && work->row_f32 && work->sum && work->scores && work->values && work->chosen &&
        work->floats)
        return 0;
    calla_ref_work_free(work);
    return calla_fail(err, CALLA_ERR_MEMORY, "reference: no memory for the scratch of %d rows at %d positions",
                      n_rows, cap_tokens);
}

void calla_ref_work_free(struct calla_ref_work *work) {
    free(work->packed);
    free(work->row);
    free(work->row_f32);
    free(work->sum);
    free(work->scores);
    free(work->values);
    free(work->chosen);
    free(work->floats);
    *work = (struct calla_ref_work){ 0 };
}

float *calla_ref_take(struct calla_ref_work *work, size_t n_rows, size_t n) {
    float *p = work->floats + work->n_floats;
    work->n_floats += n_rows * n;
    assert(work->n_floats <= work->cap_floats);
    return p;
}

void calla_ref_tap(const struct calla_ref_place *at, enum calla_tap tap, const float *v, int n_rows, int n) {
    if (at->taps == NULL) return;
    for (int t = 0; t < n_rows; t++)
        at->taps->put(at->taps->user, tap, at->layer, at->row_idx + t, v + (size_t)t * (size_t)n, n);
}

void calla_ref_dot_lanes(double *restrict sums, const double *restrict row, const double *restrict m, int n) {
    enum { L = CALLA_REF_LANES };
    int d = 0;
    for (int l = 0; l < L; l++) sums[l] = 0.0;
    for (; d + 4 <= n; d += 4) {   /* four at a time, in the same order as one at a time */
        const double w0 = row[d], w1 = row[d + 1], w2 = row[d + 2], w3 = row[d + 3];
        const double *restrict a = m + (size_t)d * L;
        for (int l = 0; l < L; l++)
            sums[l] = (((sums[l] + w0 * a[l]) + w1 * a[L + l]) + w2 * a[2 * L + l]) + w3 * a[3 * L + l];
    }
    for (; d < n; d++)
        for (int l = 0; l < L; l++) sums[l] += row[d] * m[(size_t)d * L + (size_t)l];
}

/* Few rows: a lane that nobody needs costs as much as one that somebody does. */
static void matmul_few(struct calla_ref_work *work, float *y, const struct calla_matrix *w, const float *x, int n_rows) {
    const size_t cols = (size_t)w->n_cols, out = (size_t)w->n_rows;
    for (size_t r = 0; r < out; r++) {
        calla_matrix_row_f32(w, (int)r, work->row_f32);
        for (size_t t = 0; t < (size_t)n_rows; t++) {
            double sum = 0.0;
            for (size_t d = 0; d < cols; d++) sum += (double)work->row_f32[d] * (double)x[t * cols + d];
            y[t * out + r] = (float)sum;
        }
    }
}

void calla_ref_matmul(struct calla_ref_work *work, float *y, const struct calla_matrix *w,
                      const float *x, int n_rows) {
    enum { L = CALLA_REF_LANES };
    const int n_groups = (n_rows + L - 1) / L;
    const size_t cols = (size_t)w->n_cols, out = (size_t)w->n_rows;

    if (n_rows < 4) {
        matmul_few(work, y, w, x, n_rows);
        return;
    }
    for (int t = 0; t < n_groups * L; t++)
        for (size_t d = 0; d < cols; d++)
            work->packed[((size_t)(t / L) * cols + d) * L + (size_t)(t % L)] =
                t < n_rows ? (double)x[(size_t)t * cols + d] : 0.0;
    for (size_t r = 0; r < out; r++) {
        calla_matrix_row_f32(w, (int)r, work->row_f32);
        for (size_t d = 0; d < cols; d++) work->row[d] = (double)work->row_f32[d];
        for (int g = 0; g < n_groups; g++) {
            double sums[L];
            calla_ref_dot_lanes(sums, work->row, work->packed + (size_t)g * cols * L, w->n_cols);
            for (int l = 0; l < L && g * L + l < n_rows; l++) y[(size_t)(g * L + l) * out + r] = (float)sums[l];
        }
    }
}

float calla_ref_sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

float calla_ref_silu(float x) { return x * calla_ref_sigmoid(x); }

/* log(1 + e^x); above 20 the two differ by less than an f32 can show. */
float calla_ref_softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

static float inverse_rms(const float *x, int n) {
    double squares = 0.0;
    for (int i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    return (float)(1.0 / sqrt(squares / n + (double)CALLA_NORM_EPS));
}

void calla_ref_rms_norm(float *out, const float *x, const float *w, int n) {
    const float r = inverse_rms(x, n);
    for (int i = 0; i < n; i++) out[i] = x[i] * r * w[i];
}

void calla_ref_gated_norm(float *out, const float *x, const float *w, const float *z, int n) {
    const float r = inverse_rms(x, n);
    for (int i = 0; i < n; i++) out[i] = x[i] * r * w[i] * calla_ref_silu(z[i]);
}
