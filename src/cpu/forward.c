/* forward.c - the step: rows in, residual through all layers, logits, ids.
 *
 * Owns the order of phases; the mixers and the experts are in forward_gdn.c,
 * forward_attn.c and forward_moe.c.  A pool function: all threads run it. */
#include "cpu/forward.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "cpu/math.h"

void cpu_tap(struct cpu_step *f, int t, enum calla_tap tap, int layer, const float *v, size_t stride, int n) {
    if (f->taps == NULL) return;
    cpu_wait(f, t);
    if (t == 0)
        for (int i = 0; i < f->n_rows; i++) f->taps->put(f->taps->user, tap, layer, i, v + (size_t)i * stride, n);
    cpu_wait(f, t);
}

void cpu_products(struct cpu_step *f, int t, const struct cpu_product *p, int n, const struct cpu_acts *a, int n_rows) {
    int n_blocks = 0, begin, end, first = 0;
    for (int i = 0; i < n; i++) n_blocks += cpu_row_blocks(p[i].w);
    cpu_share(f, t, n_blocks, &begin, &end);
    for (int i = 0; i < n; i++) {
        const int have = cpu_row_blocks(p[i].w);
        const int b0 = begin > first ? begin - first : 0, b1 = end - first < have ? end - first : have;
        cpu_matmul(f, t, p[i].y, p[i].y_stride, p[i].w, b0, b1, a, NULL, n_rows);
        first += have;
        if (t == 0) f->n_needed += cpu_blocks(p[i].w);
    }
}

void cpu_quantise_rows(struct cpu_step *f, int t, struct cpu_acts *a, const float *x, int n) {
    int begin, end;
    cpu_share(f, t, n, &begin, &end);
    for (int i = begin; i < end; i++) f->k->quantise(a, i, x + (size_t)i * (size_t)a->n_cols);
}

void cpu_project_add(struct cpu_step *f, int layer, int t, const struct cpu_matrix *w, const struct cpu_acts *a) {
    const size_t d = (size_t)f->shape->n_hidden;
    int begin, end;
    cpu_share(f, t, cpu_row_blocks(w), &begin, &end);
    cpu_matmul(f, t, f->s->y, d, w, begin, end, a, NULL, f->n_rows);
    if (t == 0) f->n_needed += cpu_blocks(w);
    const size_t col = (size_t)begin * CPU_LANES;
    const int n = (end - begin) * CPU_LANES;
    for (int i = 0; n > 0 && i < f->n_rows; i++) {
        float *h = f->s->h + (size_t)i * d + col;
        f->k->add(h, h, f->s->y + (size_t)i * d + col, n);
    }
    cpu_tap(f, t, CALLA_TAP_MIXER_OUT, layer, f->s->y, d, (int)d);
    cpu_wait(f, t);
}

/* The residual of this thread's rows, normed and quantised into s->in. */
static void norm_rows(struct cpu_step *f, int t, const float *w) {
    const int d = f->shape->n_hidden;
    int begin, end;
    cpu_share(f, t, f->n_rows, &begin, &end);
    for (int i = begin; i < end; i++) {
        f->k->rmsnorm(f->s->threads[t]->row, f->s->h + (size_t)i * (size_t)d, w, d, CALLA_NORM_EPS);
        f->k->quantise(&f->s->in, i, f->s->threads[t]->row);
    }
}

/* Angles in double: at position 262,143 an f32 angle is off by 0.008. */
static void embed_rows(struct cpu_step *f, int t) {
    const size_t d = (size_t)f->shape->n_hidden, half = CALLA_ROTARY / 2;
    int begin, end;
    cpu_share(f, t, f->n_rows, &begin, &end);
    for (int i = begin; i < end; i++) {
        calla_matrix_row_f32(&f->m->w->embed, f->s->tokens[i], f->s->h + (size_t)i * d);
        for (size_t j = 0; j < half; j++) {
            const double angle = (double)f->s->pos[i] * f->rope_freq[j];
            f->s->cos[(size_t)i * half + j] = (float)cos(angle);
            f->s->sin[(size_t)i * half + j] = (float)sin(angle);
        }
    }
}

static void run_layer(struct cpu_step *f, int layer, int t) {
    const struct cpu_layer *l = &f->m->layers[layer];
    const int d = f->shape->n_hidden;
    norm_rows(f, t, l->input_norm);
    cpu_tap(f, t, CALLA_TAP_INPUT_NORM, layer, f->s->in.x, (size_t)d, d);
    cpu_wait(f, t);
    if (l->is_attention) cpu_attn_mixer(f, layer, t);
    else cpu_gdn_mixer(f, layer, t);
    norm_rows(f, t, l->post_norm);
    cpu_tap(f, t, CALLA_TAP_POST_NORM, layer, f->s->in.x, (size_t)d, d);
    cpu_wait(f, t);
    cpu_moe(f, layer, t);
    cpu_tap(f, t, CALLA_TAP_LAYER_OUT, layer, f->s->h, (size_t)d, d);
}

/* ---- logits and ids ------------------------------------------------------------ */

static bool all_finite(const float *x, int n) {
    uint32_t bad = 0;
    for (int i = 0; i < n; i++) bad |= (uint32_t)((cpu_bits(x[i]) & 0x7f800000u) == 0x7f800000u);
    return bad == 0;
}

static void head_logits(struct cpu_step *f, int t) {
    const size_t v = (size_t)f->shape->n_vocab;
    const struct cpu_matrix *w = &f->m->head;
    int begin, end;
    cpu_share(f, t, cpu_row_blocks(w), &begin, &end);
    cpu_matmul(f, t, f->s->logits, v, w, begin, end, &f->s->in, NULL, f->n_asked);
    if (t == 0) f->n_needed += cpu_blocks(w);
    const int c0 = begin * CPU_LANES, c1 = end * CPU_LANES < w->n_rows ? end * CPU_LANES : w->n_rows;
    for (int i = f->n_asked - 1; i >= 0; i--)
        if (!all_finite(f->s->logits + (size_t)i * v + c0, c1 - c0)) f->s->threads[t]->bad_asked = i;
}

static void tap_head(struct cpu_step *f, int t) {
    const int d = f->shape->n_hidden, v = f->shape->n_vocab;
    if (f->taps == NULL) return;
    cpu_wait(f, t);
    if (t == 0) {
        for (int i = 0; i < f->n_rows; i++) {
            f->k->rmsnorm(f->s->threads[t]->row, f->s->h + (size_t)i * (size_t)d, f->m->w->final_norm, d, CALLA_NORM_EPS);
            f->taps->put(f->taps->user, CALLA_TAP_FINAL_NORM, f->m->n_layers, i, f->s->threads[t]->row, d);
        }
        for (int i = 0; i < f->n_asked; i++)
            f->taps->put(f->taps->user, CALLA_TAP_LOGITS, f->m->n_layers, f->s->asked[i],
                         f->s->logits + (size_t)i * (size_t)v, v);
    }
    cpu_wait(f, t);
}

static void sample_rows(struct cpu_step *f, int t) {
    int begin, end;
    cpu_share(f, t, f->n_asked, &begin, &end);
    for (int i = begin; i < end; i++) {
        const int row = f->s->asked[i];
        int32_t id = -1;
        if (f->rows[row].sampler != NULL &&
            calla_sample(f->s->threads[t]->sampler, f->rows[row].sampler,
                         f->s->logits + (size_t)i * (size_t)f->shape->n_vocab, f->n_usable_ids, &id, NULL) != 0)
            id = -1;                       /* nothing was allowed to come: the engine ends that sequence */
        f->sampled[row] = id;
    }
}

static void run_head(struct cpu_step *f, int t) {
    const int d = f->shape->n_hidden;
    int begin, end;
    if (f->n_asked > 0) {
        cpu_share(f, t, f->n_asked, &begin, &end);
        for (int i = begin; i < end; i++) {
            f->k->rmsnorm(f->s->threads[t]->row, f->s->h + (size_t)f->s->asked[i] * (size_t)d, f->m->w->final_norm, d,
                          CALLA_NORM_EPS);
            f->k->quantise(&f->s->in, i, f->s->threads[t]->row);
        }
        cpu_wait(f, t);
        head_logits(f, t);
    }
    tap_head(f, t);
    if (f->n_asked > 0) {
        cpu_wait(f, t);
        sample_rows(f, t);
    }
}

void cpu_forward(void *arg, int t, int n_threads) {
    struct cpu_step *f = arg;
    const int d = f->shape->n_hidden;
    (void)n_threads;
    f->s->threads[t]->bad_asked = INT_MAX;
    embed_rows(f, t);
    cpu_tap(f, t, CALLA_TAP_EMBED, -1, f->s->h, (size_t)d, d);
    for (int l = 0; l < f->m->n_layers; l++) {
        run_layer(f, l, t);
        if (f->stop) return;               /* set between barriers inside the layer: every thread sees the same */
    }
    run_head(f, t);
}
