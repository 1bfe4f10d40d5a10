/* forward_moe.c - router and experts (docs/model.md, "Experts").
 *
 * Rows are grouped by expert, so that each distinct expert's weights are read
 * once a step, however many rows chose it.  The shared expert is the last of
 * the list, with all rows.  First products are shared out by row blocks of all
 * experts together; in the second every thread has the same columns of every
 * expert and adds them up by ascending expert, so no order depends on threads. */
#include "cpu/forward.h"

#include <math.h>
#include <string.h>

#include "cpu/math.h"

enum {
    /* Unpacking a row block costs as much as about this many rows of it. */
    UNPACK_ROWS = 6
};

/* ---- the choice ------------------------------------------------------------------ */

/* The eight largest, the lower id first among equals, then by ascending id; weights are their softmax, which equals
 * the softmax over all experts renormalised over the eight. */
static void choose(const float *logits, int n, int32_t *ids, float *weight) {
    int32_t top[CALLA_CHOSEN];
    double e[CALLA_CHOSEN], sum = 0.0;
    float largest = 0.0f;
    bool sound = true;
    int have = 0;
    for (int i = 0; i < n; i++) {
        sound = sound && logits[i] == logits[i];
        if (have == CALLA_CHOSEN && !(logits[i] > logits[top[have - 1]])) continue;
        int j = have < CALLA_CHOSEN ? have++ : have - 1;
        for (; j > 0 && logits[i] > logits[top[j - 1]]; j--) top[j] = top[j - 1];
        top[j] = i;
    }
    largest = logits[top[0]];
    for (int i = 0; i < CALLA_CHOSEN; i++) {
        int j = i;
        for (; j > 0 && ids[j - 1] > top[i]; j--) ids[j] = ids[j - 1];
        ids[j] = top[i];
    }
    for (int i = 0; i < CALLA_CHOSEN; i++) sum += e[i] = (double)cpu_exp(logits[ids[i]] - largest);
    for (int i = 0; i < CALLA_CHOSEN; i++) weight[i] = sound ? (float)(e[i] / sum) : NAN;
}

static void choose_rows(struct cpu_step *f, int t) {
    struct cpu_moe_scratch *s = &f->s->moe;
    int begin, end;
    cpu_share(f, t, f->n_rows, &begin, &end);
    for (int i = begin; i < end; i++) {
        float *weight = s->weight + (size_t)i * (CALLA_CHOSEN + 1);
        choose(s->router + (size_t)i * (size_t)f->shape->n_experts, f->shape->n_experts,
               s->chosen + (size_t)i * CALLA_CHOSEN, weight);
        weight[CALLA_CHOSEN] = cpu_sigmoid(s->shared_logit[(size_t)i * CPU_LANES]);
    }
}

static void tap_choice(struct cpu_step *f, int layer, int t) {
    const struct cpu_moe_scratch *s = &f->s->moe;
    const int n = f->shape->n_experts;
    if (f->taps == NULL) return;
    cpu_wait(f, t);
    if (t == 0)
        for (int i = 0; i < f->n_rows; i++) {
            float *row = f->s->threads[t]->row;
            memset(row, 0, (size_t)n * sizeof *row);
            for (int j = 0; j < CALLA_CHOSEN; j++)
                row[s->chosen[(size_t)i * CALLA_CHOSEN + (size_t)j]] = s->weight[(size_t)i * (CALLA_CHOSEN + 1) + (size_t)j];
            f->taps->put(f->taps->user, CALLA_TAP_ROUTER_WEIGHTS, layer, i, row, n);
        }
    cpu_wait(f, t);
}

/* Rows by expert: a counting sort, stable in rows.  Thread 0 alone. */
static void group_rows(struct cpu_step *f) {
    struct cpu_moe_scratch *s = &f->s->moe;
    const int n_experts = f->shape->n_experts, n_rows = f->n_rows, n_routed = n_rows * CALLA_CHOSEN;
    memset(s->count, 0, (size_t)n_experts * sizeof *s->count);
    for (int i = 0; i < n_routed; i++) s->count[s->chosen[i]]++;

    int first = 0;
    f->n_active = 0;
    f->moe_cost = 0;
    for (int e = 0; e <= n_experts; e++) {
        const int n = e < n_experts ? s->count[e] : n_rows;
        if (n == 0) continue;
        s->active[f->n_active++] = (struct cpu_active){ e, first, n, f->moe_cost };
        f->moe_cost += n + UNPACK_ROWS;
        s->count[e] = first;                       /* now: where the expert's next row goes */
        first += n;
    }
    f->n_expert_reads += (uint64_t)f->n_active - 1;
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j <= CALLA_CHOSEN; j++) {
            const int e = j < CALLA_CHOSEN ? s->chosen[i * CALLA_CHOSEN + j] : n_experts;
            const int at = s->count[e]++;
            s->pair_row[at] = i;
            s->pair_weight[at] = s->weight[i * (CALLA_CHOSEN + 1) + j];
        }
}

/* ---- the experts ------------------------------------------------------------------ */

/* Where share t of n begins: row block *block of active expert *idx, experts costing what their rows cost. */
static void cost_split(const struct cpu_step *f, int t, int n_blocks, int *idx, int *block) {
    const struct cpu_active *a = f->s->moe.active;
    const int64_t at = f->moe_cost * n_blocks * t / f->n_threads;
    int lo = 0, hi = f->n_active;
    if (t == f->n_threads) {
        *idx = f->n_active;
        *block = 0;
        return;
    }
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (a[mid].cost0 * n_blocks <= at) lo = mid;
        else hi = mid;
    }
    *idx = lo;
    *block = (int)((at - a[lo].cost0 * n_blocks) / (a[lo].n + UNPACK_ROWS));
}

static void gate_and_up(struct cpu_step *f, const struct cpu_layer *l, int t) {
    struct cpu_moe_scratch *s = &f->s->moe;
    const size_t width = (size_t)f->shape->n_expert_width;
    const int n_blocks = f->shape->n_expert_width / CPU_LANES;
    float *up = f->s->threads[t]->up;
    int idx, block, last_idx, last_block;
    cost_split(f, t, n_blocks, &idx, &block);
    cost_split(f, t + 1, n_blocks, &last_idx, &last_block);
    for (; idx < last_idx || (idx == last_idx && block < last_block); idx++, block = 0) {
        const struct cpu_active *a = &s->active[idx];
        const struct cpu_expert *x = &l->experts[a->expert];
        const int end = idx < last_idx ? n_blocks : last_block;
        float *gate = s->hidden + (size_t)a->first * width;
        cpu_matmul(f, t, gate, width, &x->gate, block, end, &f->s->in, s->pair_row + a->first, a->n);
        cpu_matmul(f, t, up, width, &x->up, block, end, &f->s->in, s->pair_row + a->first, a->n);
        const size_t col = (size_t)block * CPU_LANES;
        for (size_t i = 0; i < (size_t)a->n; i++)
            f->k->silu_mul(gate + i * width + col, gate + i * width + col, up + i * width + col, (end - block) * CPU_LANES);
    }
}

/* The pairs of one expert as rows 0, 1, ... */
static struct cpu_acts pairs_of(const struct cpu_acts *a, int first) {
    const size_t at = (size_t)first * (size_t)a->n_cols, group = at / CALLA_GROUP;
    return (struct cpu_acts){ .n_rows = a->n_rows - first, .n_cols = a->n_cols, .x = a->x + at, .hi = a->hi + at,
                              .lo = a->lo + at, .scale = a->scale + group, .sum = a->sum + group };
}

/* out[row] = sum over its experts of weight * down(hidden): this thread's columns of all rows. */
static void down_and_sum(struct cpu_step *f, const struct cpu_layer *l, int t) {
    struct cpu_moe_scratch *s = &f->s->moe;
    const size_t d = (size_t)f->shape->n_hidden;
    int begin, end;
    cpu_share(f, t, f->shape->n_hidden / CPU_LANES, &begin, &end);
    if (begin == end) return;
    const size_t col = (size_t)begin * CPU_LANES;
    const int n = (end - begin) * CPU_LANES;
    for (size_t i = 0; i < (size_t)f->n_rows; i++) memset(s->out + i * d + col, 0, (size_t)n * sizeof *s->out);
    for (int k = 0; k < f->n_active; k++) {
        const struct cpu_active *a = &s->active[k];
        const struct cpu_acts in = pairs_of(&s->pairs, a->first);
        cpu_matmul(f, t, f->s->y, d, &l->experts[a->expert].down, begin, end, &in, NULL, a->n);
        for (int i = 0; i < a->n; i++) {
            float *out = s->out + (size_t)s->pair_row[a->first + i] * d + col;
            const float *terms[2] = { out, f->s->y + (size_t)i * d + col };
            const float weight[2] = { 1.0f, s->pair_weight[a->first + i] };
            f->k->weighted_sum(out, terms, weight, 2, n);
        }
    }
    for (size_t i = 0; i < (size_t)f->n_rows; i++) {
        float *h = f->s->h + i * d + col;
        f->k->add(h, h, s->out + i * d + col, n);
    }
}

static void count_needed(struct cpu_step *f, const struct cpu_layer *l) {
    for (int i = 0; i < f->n_active; i++) {
        const struct cpu_expert *x = &l->experts[f->s->moe.active[i].expert];
        f->n_needed += cpu_blocks(&x->gate) + cpu_blocks(&x->up) + cpu_blocks(&x->down);
    }
}

void cpu_moe(struct cpu_step *f, int layer, int t) {
    const struct cpu_layer *l = &f->m->layers[layer];
    struct cpu_moe_scratch *s = &f->s->moe;
    const size_t n_experts = (size_t)f->shape->n_experts, d = (size_t)f->shape->n_hidden;
    const struct cpu_product router[] = { { &l->router, s->router, n_experts },
                                          { &l->shared_router, s->shared_logit, CPU_LANES } };
    cpu_products(f, t, router, 2, &f->s->in, f->n_rows);
    cpu_tap(f, t, CALLA_TAP_ROUTER, layer, s->router, n_experts, (int)n_experts);
    cpu_wait(f, t);
    choose_rows(f, t);
    tap_choice(f, layer, t);
    cpu_wait(f, t);
    if (t == 0) {
        group_rows(f);
        count_needed(f, l);
        if (f->cancel != NULL && atomic_load(f->cancel)) f->stop = true;
    }
    cpu_wait(f, t);
    gate_and_up(f, l, t);
    cpu_wait(f, t);
    cpu_quantise_rows(f, t, &s->pairs, s->hidden, f->n_rows * (CALLA_CHOSEN + 1));
    cpu_wait(f, t);
    down_and_sum(f, l, t);
    cpu_tap(f, t, CALLA_TAP_MOE_OUT, layer, s->out, d, (int)d);
    cpu_wait(f, t);
}
