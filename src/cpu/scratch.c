/* scratch.c - cuts a step's memory; the same code plans and cuts. */
#include "cpu/scratch.h"

#include <limits.h>
#include <string.h>

#include "base/err.h"

static float *floats(struct calla_arena *a, size_t rows, int cols) {
    return calla_arena_take(a, rows * (size_t)cols * sizeof(float));
}

static struct cpu_acts acts(struct calla_arena *a, size_t rows, int cols) {
    const size_t n = rows * (size_t)cols;
    struct cpu_acts x = { .n_rows = (int)rows, .n_cols = cols };
    x.x = floats(a, rows, cols);
    x.hi = calla_arena_take(a, n);
    x.lo = calla_arena_take(a, n);
    x.scale = floats(a, rows, cols / CALLA_GROUP);
    x.sum = floats(a, rows, cols / CALLA_GROUP);
    return x;
}

static void cut_gdn(struct cpu_scratch *s, struct calla_arena *a, const struct calla_shape *shape, size_t n_rows) {
    struct cpu_gdn_scratch *g = &s->gdn;
    const int width = calla_gdn_width(shape), n_channels = calla_conv_channels(shape);
    g->gate_stride = (shape->n_value_heads + CPU_LANES - 1) / CPU_LANES * CPU_LANES;
    g->qkv = floats(a, n_rows, n_channels);
    g->conv = floats(a, n_rows, n_channels);
    g->z = floats(a, n_rows, width);
    g->read = floats(a, n_rows, width);
    g->normed = floats(a, n_rows, width);
    g->qk = floats(a, n_rows, 2 * shape->n_key_heads * CALLA_RECUR);
    g->a = floats(a, n_rows, g->gate_stride);
    g->b = floats(a, n_rows, g->gate_stride);
    g->decay = floats(a, n_rows, g->gate_stride);
    g->beta = floats(a, n_rows, g->gate_stride);
    s->gdn_mix = acts(a, n_rows, width);
}

static void cut_attn(struct cpu_scratch *s, struct calla_arena *a, const struct calla_shape *shape, size_t n_rows) {
    struct cpu_attn_scratch_rows *t = &s->attn;
    const int width = calla_attn_width(shape), kv = calla_kv_width(shape);
    t->q_gate = floats(a, n_rows, 2 * width);
    t->q = floats(a, n_rows, width);
    t->k_raw = floats(a, n_rows, kv);
    t->k = floats(a, n_rows, kv);
    t->v = floats(a, n_rows, kv);
    t->read = floats(a, n_rows, width);
    t->gated = floats(a, n_rows, width);
    s->attn_mix = acts(a, n_rows, width);
}

static void cut_moe(struct cpu_scratch *s, struct calla_arena *a, const struct calla_shape *shape, size_t n_rows) {
    struct cpu_moe_scratch *m = &s->moe;
    const size_t n_pairs = n_rows * (CALLA_CHOSEN + 1), n_experts = (size_t)shape->n_experts + 1;
    m->router = floats(a, n_rows, shape->n_experts);
    m->shared_logit = floats(a, n_rows, CPU_LANES);
    m->chosen = calla_arena_take(a, n_rows * CALLA_CHOSEN * sizeof *m->chosen);
    m->weight = floats(a, n_rows, CALLA_CHOSEN + 1);
    m->pair_row = calla_arena_take(a, n_pairs * sizeof *m->pair_row);
    m->pair_weight = floats(a, n_pairs, 1);
    m->count = calla_arena_take(a, n_experts * sizeof *m->count);
    m->active = calla_arena_take(a, n_experts * sizeof *m->active);
    m->hidden = floats(a, n_pairs, shape->n_expert_width);
    m->pairs = acts(a, n_pairs, shape->n_expert_width);
    m->out = floats(a, n_rows, shape->n_hidden);
}

static int widest(const struct calla_shape *shape) {
    int n = shape->n_hidden;
    if (n < calla_attn_width(shape)) n = calla_attn_width(shape);
    if (n < calla_gdn_width(shape)) n = calla_gdn_width(shape);
    return n < shape->n_experts ? shape->n_experts : n;
}

static void cut_threads(struct cpu_scratch *s, struct calla_arena *a, const struct calla_weights *w, size_t n_rows) {
    const int max_cols = cpu_model_max_cols(w);
    s->threads = calla_arena_take(a, (size_t)s->n_threads * sizeof *s->threads);
    for (int t = 0; t < s->n_threads; t++) {
        struct cpu_thread counted, *to = calla_arena_take(a, sizeof *to);
        if (to != NULL) s->threads[t] = to;
        else to = &counted;
        to->matmul = calla_arena_take(a, cpu_matmul_scratch(max_cols));
        to->attn = calla_arena_take(a, cpu_attn_scratch(CPU_MAX_QUERIES));
        to->acc = floats(a, CPU_MAX_QUERIES, CALLA_HEAD);
        to->row = floats(a, 1, widest(w->shape));
        to->up = floats(a, n_rows, w->shape->n_expert_width);
    }
}

static void cut(struct cpu_scratch *s, struct calla_arena *a, const struct calla_weights *w,
                const struct calla_backend_options *opt) {
    const struct calla_shape *shape = w->shape;
    const size_t n_rows = (size_t)opt->max_rows;
    const size_t n_logits = (size_t)opt->max_logits;
    s->tokens = calla_arena_take(a, n_rows * sizeof *s->tokens);
    s->pos = calla_arena_take(a, n_rows * sizeof *s->pos);
    s->cos = floats(a, n_rows, CALLA_ROTARY / 2);
    s->sin = floats(a, n_rows, CALLA_ROTARY / 2);
    s->segments = calla_arena_take(a, n_rows * sizeof *s->segments);
    s->units = calla_arena_take(a, n_rows * (size_t)shape->n_kv_heads * sizeof *s->units);
    s->asked = calla_arena_take(a, n_logits * sizeof *s->asked);
    s->h = floats(a, n_rows, shape->n_hidden);
    s->y = floats(a, n_rows, shape->n_hidden);
    s->in = acts(a, n_rows, shape->n_hidden);
    s->logits = floats(a, n_logits, shape->n_vocab);
    cut_threads(s, a, w, n_rows);

    const size_t mark = a->used;
    size_t most;
    cut_gdn(s, a, shape, n_rows);
    most = a->used;
    a->used = mark;
    cut_attn(s, a, shape, n_rows);
    if (a->used > most) most = a->used;
    a->used = mark;
    cut_moe(s, a, shape, n_rows);
    if (a->used < most) a->used = most;
}

size_t cpu_scratch_bytes(const struct calla_weights *w, const struct calla_backend_options *opt, int n_threads) {
    struct cpu_scratch s = { .n_threads = n_threads };
    struct calla_arena count = { 0 };
    cut(&s, &count, w, opt);
    return count.used;
}

int cpu_scratch_open(struct cpu_scratch *s, const struct calla_weights *w,
                     const struct calla_backend_options *opt, int n_threads, struct calla_err *err) {
    *s = (struct cpu_scratch){ .n_threads = n_threads };
    int rc = calla_arena_open(&s->arena, cpu_scratch_bytes(w, opt, n_threads), err);
    if (rc != 0) return rc;
    cut(s, &s->arena, w, opt);
    for (int t = 0; rc == 0 && t < n_threads; t++)
        rc = calla_sampler_scratch_new(&s->threads[t]->sampler, w->shape->n_vocab, err);
    if (rc != 0) cpu_scratch_close(s);
    return rc;
}

void cpu_scratch_close(struct cpu_scratch *s) {
    if (s->arena.base == NULL) return;
    for (int t = 0; t < s->n_threads; t++) calla_sampler_scratch_free(&s->threads[t]->sampler);
    calla_arena_close(&s->arena);
    *s = (struct cpu_scratch){ 0 };
}
