/* step.c - a batch is checked, laid out, run, and what it did is recorded.
 *
 * Everything that can be refused is refused before the first state changes.
 * Called by the thread that runs steps; it is thread 0 of the pool. */
#include <limits.h>
#include <string.h>

#include "base/err.h"
#include "cpu/backend.h"

static int check_row(const struct calla_backend *b, const struct calla_row *row, int i, int32_t *token, struct calla_err *err) {
    const int n_vocab = b->model.w->shape->n_vocab;
    if (row->state == NULL || row->state->b != b) return calla_fail(err, CALLA_ERR_ARGUMENT, "row %d has no state of this backend", i);
    if (row->state->broken)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "row %d: its state was left by a failed step; reset it first", i);
    *token = row->token;
    if (row->token_row >= 0) {
        if (row->token_row >= b->opt.max_rows || b->sampled[row->token_row] < 0)
            return calla_fail(err, CALLA_ERR_ARGUMENT, "row %d wants the id of row %d, which sampled none", i, row->token_row);
        *token = b->sampled[row->token_row];
    }
    if (*token < 0 || *token >= n_vocab)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "row %d has id %d; the vocabulary has %d", i, (int)*token, n_vocab);
    return 0;
}

/* Fills tokens, positions, segments and asking rows; changes nothing else. */
static int lay_out(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err) {
    struct cpu_scratch *s = &b->scratch;
    struct cpu_step *f = &b->step;
    int rc = 0;
    if (batch->n_rows < 1 || batch->n_rows > b->opt.max_rows)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "a step of %d rows; 1 to %d are possible", batch->n_rows, b->opt.max_rows);
    for (int i = 0; rc == 0 && i < batch->n_rows; i++) {
        const struct calla_row *row = &batch->rows[i];
        rc = check_row(b, row, i, &s->tokens[i], err);
        if (rc != 0) break;
        if (i == 0 || row->state != batch->rows[i - 1].state) {
            if (row->state->in_batch)
                rc = calla_fail(err, CALLA_ERR_ARGUMENT, "row %d: the rows of its state do not stand together", i);
            row->state->in_batch = true;
            s->segments[f->n_segments++] = (struct cpu_segment){ row->state, i, 0, row->state->n_tokens };
        }
        struct cpu_segment *g = &s->segments[f->n_segments - 1];
        s->pos[i] = g->pos0 + g->n_rows++;
        if (rc == 0 && s->pos[i] >= b->opt.ctx_tokens)
            rc = calla_fail(err, CALLA_ERR_LIMIT, "row %d would be token %d of its sequence; the context is %d tokens", i,
                            s->pos[i] + 1, b->opt.ctx_tokens);
        if (row->wants_logits || row->sampler != NULL) {
            if (rc == 0 && f->n_asked == b->opt.max_logits)
                rc = calla_fail(err, CALLA_ERR_LIMIT, "more than %d rows of one step ask for logits", b->opt.max_logits);
            if (rc == 0) s->asked[f->n_asked++] = i;
        }
    }
    for (int i = 0; i < f->n_segments; i++) s->segments[i].state->in_batch = false;
    return rc;
}

static int check_pages(const struct calla_backend *b, struct calla_err *err) {
    int n_want = 0;
    for (int i = 0; i < b->step.n_segments; i++) {
        const struct cpu_segment *g = &b->scratch.segments[i];
        n_want += cpu_pages_for(g->pos0 + g->n_rows) - g->state->n_pages;
    }
    if (n_want <= b->pages.n_free) return 0;
    return calla_fail(err, CALLA_ERR_MEMORY, "the step needs %d more pages of %d tokens and %d of %d are free; free other sequences",
                      n_want, CPU_PAGE, b->pages.n_free, b->pages.n_pages);
}

/* Attention's units: kv head by kv head, so that few threads share a head's pages. */
static void cut_units(struct calla_backend *b) {
    struct cpu_step *f = &b->step;
    struct cpu_scratch *s = &b->scratch;
    const int most = CPU_MAX_QUERIES / (f->shape->n_heads / f->shape->n_kv_heads);
    for (int g = 0; g < f->shape->n_kv_heads; g++)
        for (int i = 0; i < f->n_segments; i++) {
            const struct cpu_segment *seg = &s->segments[i];
            for (int j = 0; j < seg->n_rows; j += most) {
                const int n = seg->n_rows - j < most ? seg->n_rows - j : most;
                /* A pass over a page costs what two more rows cost. */
                const int64_t cost = (int64_t)cpu_pages_for(seg->pos0 + j + n) * (n + 2);
                s->units[f->n_units++] = (struct cpu_attn_unit){ i, seg->row0 + j, n, g, f->attn_cost + cost / 2 };
                f->attn_cost += cost;
            }
        }
}

static int first_bad(const struct calla_backend *b) {
    int first = INT_MAX;
    for (int t = 0; t < b->scratch.n_threads; t++)
        if (b->scratch.threads[t]->bad_asked < first) first = b->scratch.threads[t]->bad_asked;
    return first;
}

static void record(struct calla_backend *b) {
    b->stats.n_steps++;
    b->stats.n_rows += (uint64_t)b->step.n_rows;
    b->stats.n_expert_reads += b->step.n_expert_reads;
    b->stats.n_blocks_needed += b->step.n_needed;
    for (int t = 0; t < b->scratch.n_threads; t++) b->stats.n_blocks_unpacked += b->scratch.threads[t]->n_unpacked;
    for (int i = 0; i < b->step.n_segments; i++) {
        struct cpu_segment *g = &b->scratch.segments[i];
        g->state->n_tokens += g->n_rows;
        g->state->broken = false;
    }
}

int cpu_backend_step(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err) {
    struct cpu_step *f = &b->step;
    struct cpu_scratch *s = &b->scratch;
    *f = (struct cpu_step){ .pool = b->pool, .m = &b->model, .shape = b->model.w->shape, .k = b->kernels, .pages = &b->pages,
                            .s = s, .rope_freq = b->rope_freq, .rows = batch->rows, .cancel = batch->cancel,
                            .taps = batch->taps, .sampled = b->sampled, .n_threads = s->n_threads, .n_rows = batch->n_rows,
                            .n_usable_ids = b->opt.n_usable_ids };
    int rc = lay_out(b, batch, err);
    if (rc == 0) rc = check_pages(b, err);
    if (rc != 0) return rc;

    cut_units(b);
    for (int i = 0; i < b->opt.max_rows; i++) b->sampled[i] = b->logits_idx[i] = -1;
    for (int i = 0; i < f->n_asked; i++) b->logits_idx[s->asked[i]] = i;
    for (int i = 0; i < f->n_segments; i++) {
        const struct cpu_segment *g = &s->segments[i];
        cpu_state_grow(g->state, g->pos0 + g->n_rows);
        g->state->broken = true;           /* until the step has ended well */
    }
    for (int t = 0; t < s->n_threads; t++) s->threads[t]->n_unpacked = 0;
    calla_pool_run(b->pool, cpu_forward, f);

    const int bad = first_bad(b);
    if (f->stop) return calla_fail(err, CALLA_ERR_CANCELLED, "the step of %d rows was cancelled", f->n_rows);
    if (bad != INT_MAX)
        return calla_fail(err, CALLA_ERR_NUMERIC, "row %d, position %d of its sequence: the logits are not finite; the "
                          "checkpoint or a loaded state holds values that are not", (int)s->asked[bad], (int)s->pos[s->asked[bad]]);
    record(b);
    return 0;
}
