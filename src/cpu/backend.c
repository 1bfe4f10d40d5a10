/* backend.c - the CPU backend behind the seam: plan, open, close, table. */
#include "cpu/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu_features.h"
#include "base/err.h"
#include "cpu/cpu.h"

static int threads_for(int n_threads) {
    struct calla_cpu_features f;
    if (n_threads > 0) return n_threads;
    calla_cpu_features(&f);
    return f.n_cores;
}

static bool probe(char *what, size_t cap) {
    struct calla_cpu_features f;
    calla_cpu_features(&f);
    snprintf(what, cap, "%s, %d threads, %s", cpu_kernels_best()->name, f.n_cores, f.model);
    return true;
}

static size_t pages_of(const struct calla_backend_options *opt) {
    return opt->kv_tokens / CPU_PAGE + (opt->kv_tokens % CPU_PAGE != 0);
}

static void plan(struct calla_backend_plan *out, const struct calla_weights *w, const struct calla_backend_options *opt) {
    *out = (struct calla_backend_plan){
        .weights_bytes = cpu_model_bytes(w),
        .scratch_bytes = cpu_scratch_bytes(w, opt, threads_for(opt->n_threads)),
        .state_bytes = cpu_state_bytes(w, opt->ctx_tokens),
        .kv_page_bytes = cpu_page_bytes(cpu_attn_idx(w->n_layers), w->shape->n_kv_heads),
        .kv_page_tokens = CPU_PAGE };
}

static void backend_close(struct calla_backend *b) {
    if (b == NULL) return;
    cpu_scratch_close(&b->scratch);
    cpu_pages_close(&b->pages);
    cpu_model_close(&b->model);
    calla_pool_free(&b->pool);
    free(b->logits_idx);
    free(b->sampled);
    free(b);
}

static int check_options(const struct calla_weights *w, const struct calla_backend_options *opt, struct calla_err *err) {
    const int most_rows = 16384;
    if (opt->max_rows < 1 || opt->max_rows > most_rows || opt->max_logits < 0 || opt->max_logits > opt->max_rows)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d rows in a step and %d with logits; 1 to %d rows are possible",
                          opt->max_rows, opt->max_logits, most_rows);
    if (opt->ctx_tokens < 1 || opt->ctx_tokens > CALLA_MAX_CTX)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "a context of %d tokens; 1 to %d are possible", opt->ctx_tokens, CALLA_MAX_CTX);
    if (opt->n_usable_ids < 1 || opt->n_usable_ids > w->shape->n_vocab)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d usable ids; the vocabulary has %d", opt->n_usable_ids, w->shape->n_vocab);
    if (w->shape->n_experts < CALLA_CHOSEN || CPU_MAX_QUERIES < w->shape->n_heads / w->shape->n_kv_heads)
        return calla_fail(err, CALLA_ERR_UNSUPPORTED, "shape %s: %d experts, %d query heads for %d kv heads", w->shape->name,
                          w->shape->n_experts, w->shape->n_heads, w->shape->n_kv_heads);
    return 0;
}

int cpu_backend_open_with(struct calla_backend **out, const struct calla_weights *w,
                          const struct calla_backend_options *opt, const struct cpu_kernels *kernels,
                          struct calla_err *err) {
    const struct cpu_progress progress = { opt->progress, opt->user };
    struct calla_backend *b;
    int rc = check_options(w, opt, err);
    *out = NULL;
    if (rc != 0) return rc;
    b = calloc(1, sizeof *b);
    if (b == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for the CPU backend");
    b->opt = *opt;
    b->kernels = kernels;
    for (int i = 0; i < CALLA_ROTARY / 2; i++) b->rope_freq[i] = pow(CALLA_ROPE_THETA, -2.0 * i / CALLA_ROTARY);
    b->sampled = malloc((size_t)opt->max_rows * sizeof *b->sampled);
    b->logits_idx = malloc((size_t)opt->max_rows * sizeof *b->logits_idx);
    if (b->sampled == NULL || b->logits_idx == NULL)
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %d rows", opt->max_rows);
    if (rc == 0) rc = calla_pool_new(&b->pool, opt->n_threads, err);
    if (rc == 0) rc = cpu_scratch_open(&b->scratch, w, opt, calla_pool_size(b->pool), err);
    if (rc == 0) rc = cpu_pages_open(&b->pages, pages_of(opt), cpu_attn_idx(w->n_layers), w->shape->n_kv_heads, err);
    if (rc == 0) rc = cpu_model_open(&b->model, w, b->pool, &progress, err);
    if (rc != 0) {
        backend_close(b);
        return rc;
    }
    for (int i = 0; i < opt->max_rows; i++) b->sampled[i] = b->logits_idx[i] = -1;
    *out = b;
    return 0;
}

static int backend_open(struct calla_backend **out, const struct calla_weights *w,
                        const struct calla_backend_options *opt, struct calla_err *err) {
    return cpu_backend_open_with(out, w, opt, cpu_kernels_best(), err);
}

static const float *logits(struct calla_backend *b, int row_idx) {
    if (row_idx < 0 || row_idx >= b->opt.max_rows || b->logits_idx[row_idx] < 0) return NULL;
    return b->scratch.logits + (size_t)b->logits_idx[row_idx] * (size_t)b->model.w->shape->n_vocab;
}

static int32_t sampled(struct calla_backend *b, int row_idx) {
    return row_idx < 0 || row_idx >= b->opt.max_rows ? -1 : b->sampled[row_idx];
}

static void stats(const struct calla_backend *b, struct calla_backend_stats *out) { *out = b->stats; }

const struct calla_backend_ops calla_cpu_backend = {
    .name = "cpu", .probe = probe, .plan = plan, .open = backend_open, .close = backend_close,
    .state_new = cpu_state_new, .state_free = cpu_state_free, .state_reset = cpu_state_reset, .state_len = cpu_state_len,
    .state_copy = cpu_state_copy, .state_save = cpu_state_save, .state_load = cpu_state_load,
    .step = cpu_backend_step, .logits = logits, .sampled = sampled, .stats = stats,
};
