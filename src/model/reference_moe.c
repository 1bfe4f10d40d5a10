/* reference_moe.c - router, routed experts and the shared expert (docs/model.md,
 * "Experts"). */
#include <math.h>
#include <string.h>

#include "model/reference_parts.h"

void calla_ref_route(const float *logits, int n_experts, int n_chosen, int *ids, float *weights) {
    double sum = 0.0;
    for (int i = 0; i < n_chosen; i++) {   /* the best that is not taken yet */
        int best = -1;
        for (int e = 0; e < n_experts; e++) {
            bool taken = false;
            for (int j = 0; j < i; j++) taken = taken || ids[j] == e;
            if (!taken && (best < 0 || logits[e] > logits[best])) best = e;
        }
        ids[i] = best;
        weights[i] = expf(logits[best] - logits[ids[0]]);
        sum += (double)weights[i];
    }
    for (int i = 0; i < n_chosen; i++) weights[i] = (float)((double)weights[i] / sum);
}

/* out [n_rows, D] = down (silu(gate x) * (up x)) */
static void expert(struct calla_ref_work *work, float *out, float *gate, float *up, const struct calla_matrix *w_gate,
                   const struct calla_matrix *w_up, const struct calla_matrix *w_down, const float *x, int n_rows) {
    const size_t n = (size_t)n_rows * (size_t)w_gate->n_rows;
    calla_ref_matmul(work, gate, w_gate, x, n_rows);
    calla_ref_matmul(work, up, w_up, x, n_rows);
    for (size_t i = 0; i < n; i++) gate[i] = calla_ref_silu(gate[i]) * up[i];
    calla_ref_matmul(work, out, w_down, gate, n_rows);
}

/* The rows of x that chose expert e, gathered: an expert's weights are decoded
 * once for all of them.  rows, weights [returned count]. */
static int gather(int *rows, float *weights, float *gathered, int e, const int *chosen, const float *chosen_weights,
                  const float *x, int n_rows, size_t width) {
    int n = 0;
    for (int t = 0; t < n_rows; t++)
        for (int i = 0; i < CALLA_CHOSEN; i++)
            if (chosen[t * CALLA_CHOSEN + i] == e) {
                memcpy(gathered + (size_t)n * width, x + (size_t)t * width, width * sizeof *x);
                weights[n] = chosen_weights[t * CALLA_CHOSEN + i];
                rows[n++] = t;
            }
    return n;
}

void calla_ref_moe(struct calla_ref_work *work, const struct calla_moe_weights *w,
                   const struct calla_ref_place *at, float *out, const float *x, int n_rows) {
    const struct calla_shape *shape = at->shape;
    const size_t t_n = (size_t)n_rows, d_n = (size_t)shape->n_hidden, f_n = (size_t)shape->n_expert_width;
    const size_t e_n = (size_t)shape->n_experts;
    float *logits = calla_ref_take(work, t_n, e_n);
    float *all_weights = calla_ref_take(work, t_n, e_n);
    float *chosen_weights = calla_ref_take(work, t_n, CALLA_CHOSEN);
    float *gathered = calla_ref_take(work, t_n, d_n);
    float *gate = calla_ref_take(work, t_n, f_n);
    float *up = calla_ref_take(work, t_n, f_n);
    float *result = calla_ref_take(work, t_n, d_n);
    float *weights = calla_ref_take(work, t_n, 1);
    int *chosen = work->chosen, *rows = work->chosen + t_n * CALLA_CHOSEN;

    calla_ref_matmul(work, logits, &w->router, x, n_rows);
    calla_ref_tap(at, CALLA_TAP_ROUTER, logits, n_rows, shape->n_experts);
    memset(all_weights, 0, t_n * e_n * sizeof *all_weights);
    for (size_t t = 0; t < t_n; t++) {
        int *ids = chosen + t * CALLA_CHOSEN;
        calla_ref_route(logits + t * e_n, shape->n_experts, CALLA_CHOSEN, ids, chosen_weights + t * CALLA_CHOSEN);
        for (size_t i = 0; i < CALLA_CHOSEN; i++)
            all_weights[t * e_n + (size_t)ids[i]] = chosen_weights[t * CALLA_CHOSEN + i];
    }
    calla_ref_tap(at, CALLA_TAP_ROUTER_WEIGHTS, all_weights, n_rows, shape->n_experts);

    for (size_t i = 0; i < t_n * d_n; i++) work->sum[i] = 0.0;
    for (int e = 0; e < shape->n_experts; e++) {
        const int n = gather(rows, weights, gathered, e, chosen, chosen_weights, x, n_rows, d_n);
        if (n == 0) continue;
        expert(work, result, gate, up, &w->gate[e], &w->up[e], &w->down[e], gathered, n);
        for (int i = 0; i < n; i++)
            for (size_t d = 0; d < d_n; d++)
                work->sum[(size_t)rows[i] * d_n + d] += (double)weights[i] * (double)result[(size_t)i * d_n + d];
    }

    expert(work, result, gate, up, &w->shared_gate, &w->shared_up, &w->shared_down, x, n_rows);
    calla_ref_matmul(work, weights, &w->shared_router, x, n_rows);
    for (size_t t = 0; t < t_n; t++) {
        const float share = calla_ref_sigmoid(weights[t]);
        for (size_t d = 0; d < d_n; d++)
            out[t * d_n + d] = (float)(work->sum[t * d_n + d] + (double)share * (double)result[t * d_n + d]);
    }
    calla_ref_tap(at, CALLA_TAP_MOE_OUT, out, n_rows, shape->n_hidden);
}
