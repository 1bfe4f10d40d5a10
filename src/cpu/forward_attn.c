/* forward_attn.c - full attention (docs/model.md, "Full attention").
 *
 * Keys and values go to pages of 64 positions on the absolute grid first; then
 * units of up to eight rows of one sequence read one kv head's pages together.
 * A row meets its pages in ascending order whatever unit it is in. */
#include "cpu/forward.h"

#include <math.h>

/* Queries of one kv head, and its key and value, of one row. */
static void rotate_and_store(struct cpu_step *f, const struct cpu_attn *w, const struct cpu_segment *g, int row,
                             int kv_head, int attn_idx) {
    struct cpu_attn_scratch_rows *s = &f->s->attn;
    const size_t width = (size_t)calla_attn_width(f->shape), kv = (size_t)calla_kv_width(f->shape);
    const int per_kv = f->shape->n_heads / f->shape->n_kv_heads;
    const float *cosines = f->s->cos + (size_t)row * (CALLA_ROTARY / 2), *sines = f->s->sin + (size_t)row * (CALLA_ROTARY / 2);
    const int pos = f->s->pos[row], slot = pos % CPU_PAGE;
    const int32_t page = g->state->pages[pos / CPU_PAGE];
    for (int h = kv_head * per_kv; h < (kv_head + 1) * per_kv; h++) {
        float *q = s->q + (size_t)row * width + (size_t)h * CALLA_HEAD;
        f->k->rmsnorm(q, s->q_gate + (size_t)row * 2 * width + (size_t)h * 2 * CALLA_HEAD, w->q_norm, CALLA_HEAD, CALLA_NORM_EPS);
        f->k->rope(q, cosines, sines);
    }
    const size_t at = (size_t)row * kv + (size_t)kv_head * CALLA_HEAD;
    f->k->rmsnorm(s->k + at, s->k_raw + at, w->k_norm, CALLA_HEAD, CALLA_NORM_EPS);
    f->k->rope(s->k + at, cosines, sines);
    f->k->store_k(cpu_page_k(f->pages, page, attn_idx, kv_head), slot, s->k + at);
    f->k->store_v(cpu_page_v(f->pages, page, attn_idx, kv_head), slot, s->v + at);
}

/* All rows, shared out kv head by kv head, so that two threads write different panels. */
static void store_rows(struct cpu_step *f, const struct cpu_attn *w, int attn_idx, int t) {
    const int n_rows = f->n_rows;
    int begin, end;
    cpu_share(f, t, n_rows * f->shape->n_kv_heads, &begin, &end);
    for (int g = begin / n_rows; g * n_rows < end; g++) {
        int first = g * n_rows;                     /* of the segment, in the shared count */
        for (int i = 0; i < f->n_segments; i++) {
            const struct cpu_segment *seg = &f->s->segments[i];
            for (int j = 0; j < seg->n_rows; j++)
                if (first + j >= begin && first + j < end) rotate_and_store(f, w, seg, seg->row0 + j, g, attn_idx);
            first += seg->n_rows;
        }
    }
}

static void attend(struct cpu_step *f, const struct cpu_attn_unit *u, int attn_idx, int t) {
    struct cpu_attn_scratch_rows *s = &f->s->attn;
    struct cpu_thread *me = f->s->threads[t];
    const struct cpu_segment *seg = &f->s->segments[u->segment_idx];
    const size_t width = (size_t)calla_attn_width(f->shape);
    const int per_kv = f->shape->n_heads / f->shape->n_kv_heads, n_q = u->n_rows * per_kv;
    const int last = f->s->pos[u->row0 + u->n_rows - 1];
    const float *q[CPU_MAX_QUERIES];
    float *acc[CPU_MAX_QUERIES], m[CPU_MAX_QUERIES], l[CPU_MAX_QUERIES];
    int n_keys[CPU_MAX_QUERIES];

    for (int i = 0; i < n_q; i++) {
        const size_t row = (size_t)(u->row0 + i / per_kv), head = (size_t)(u->g * per_kv + i % per_kv);
        q[i] = s->q + row * width + head * CALLA_HEAD;
        acc[i] = me->acc + (size_t)i * CALLA_HEAD;
        for (int c = 0; c < CALLA_HEAD; c++) acc[i][c] = 0.0f;
        m[i] = -INFINITY;
        l[i] = 0.0f;
    }
    for (int p = 0; p <= last / CPU_PAGE; p++) {
        const int32_t page = seg->state->pages[p];
        for (int i = 0; i < n_q; i++) {
            const int seen = f->s->pos[u->row0 + i / per_kv] + 1 - p * CPU_PAGE;
            n_keys[i] = seen < 0 ? 0 : seen < CPU_PAGE ? seen : CPU_PAGE;
        }
        f->k->attn_page(acc, m, l, q, n_keys, n_q, cpu_page_k(f->pages, page, attn_idx, u->g),
                        cpu_page_v(f->pages, page, attn_idx, u->g), me->attn);
    }
    for (int i = 0; i < n_q; i++) {
        const size_t row = (size_t)(u->row0 + i / per_kv), head = (size_t)(u->g * per_kv + i % per_kv);
        const size_t at = row * width + head * CALLA_HEAD;
        f->k->attn_finish(s->read + at, acc[i], l[i]);
        f->k->sigmoid_mul(s->gated + at, s->read + at,
                          s->q_gate + row * 2 * width + head * 2 * CALLA_HEAD + CALLA_HEAD, CALLA_HEAD);
    }
}

/* The recorder wants queries without the scale of 1/16. */
static void tap_queries(struct cpu_step *f, int layer, int t) {
    const int width = calla_attn_width(f->shape);
    if (f->taps == NULL) return;
    cpu_wait(f, t);
    if (t == 0)
        for (int i = 0; i < f->n_rows; i++) {
            float *row = f->s->threads[t]->row;
            for (int c = 0; c < width; c++) row[c] = 16.0f * f->s->attn.q[(size_t)i * (size_t)width + (size_t)c];
            f->taps->put(f->taps->user, CALLA_TAP_ATTN_Q, layer, i, row, width);
        }
    cpu_wait(f, t);
}

void cpu_attn_mixer(struct cpu_step *f, int layer, int t) {
    const struct cpu_attn *w = &f->m->layers[layer].attn;
    struct cpu_attn_scratch_rows *s = &f->s->attn;
    const size_t width = (size_t)calla_attn_width(f->shape), kv = (size_t)calla_kv_width(f->shape);
    const int attn_idx = cpu_attn_idx(layer);
    const struct cpu_product in[] = { { &w->q, s->q_gate, 2 * width }, { &w->k, s->k_raw, kv }, { &w->v, s->v, kv } };
    cpu_products(f, t, in, sizeof in / sizeof *in, &f->s->in, f->n_rows);
    cpu_wait(f, t);
    store_rows(f, w, attn_idx, t);
    tap_queries(f, layer, t);
    cpu_tap(f, t, CALLA_TAP_ATTN_K, layer, s->k, kv, (int)kv);
    cpu_tap(f, t, CALLA_TAP_ATTN_V, layer, s->v, kv, (int)kv);
    cpu_wait(f, t);
    for (int i = 0; i < f->n_units; i++)
        if ((int)(f->s->units[i].middle * f->n_threads / f->attn_cost) == t) attend(f, &f->s->units[i], attn_idx, t);
    cpu_tap(f, t, CALLA_TAP_ATTN_READ, layer, s->read, width, (int)width);
    cpu_tap(f, t, CALLA_TAP_ATTN_GATED, layer, s->gated, width, (int)width);
    cpu_wait(f, t);
    cpu_quantise_rows(f, t, &f->s->attn_mix, s->gated, f->n_rows);
    cpu_wait(f, t);
    cpu_project_add(f, layer, t, &w->o, &f->s->attn_mix);
}
