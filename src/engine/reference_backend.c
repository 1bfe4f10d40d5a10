/* reference_backend.c - the forward pass of model/reference.h behind the seam.
 *
 * Scalar C, one thread, one sequence after the other; rows of one state that
 * stand together are one call.  A state's keys and values grow in pages out of
 * one counted pool, so that the engine meets an empty pool here as on a device.
 * Called under the model's lock. */
#include "engine/reference_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/reference.h"

enum { PAGE_TOKENS = 64 };

struct calla_backend {
    const struct calla_weights *w;
    struct calla_backend_options opt;
    size_t   n_pages, n_pages_used;
    int      n_states;
    size_t   s_n, window_n, kv_n;   /* floats of a state: recurrent, window, keys of one token in all layers */
    int      n_attn;
    float   *logits;                /* [max_logits, V]                               */
    int32_t *ids;                   /* [max_rows]                                    */
    int     *slot;                  /* [max_rows] in logits, -1: did not ask         */
    int32_t *sampled;               /* [max_rows] of the last step, -1: none         */
    struct calla_sampler_scratch *sampler;
    unsigned char *expert_used;     /* [n_layers, E] in this step                    */
    const struct calla_taps *taps;  /* of the batch                                  */
    int      tap_row;               /* first row of the running call                 */
    struct calla_backend_stats stats;
};

struct calla_state {
    struct calla_backend *b;
    struct calla_reference_state r;
    size_t n_pages;
};

static size_t pages_of(int n_tokens) { return ((size_t)n_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS; }

static bool ref_probe(char *what, size_t cap) {
    snprintf(what, cap, "scalar C, 1 thread");
    return true;
}

static void state_sizes(const struct calla_weights *w, size_t *s_n, size_t *window_n, size_t *kv_n, int *n_attn) {
    const size_t n_gdn = (size_t)w->n_layers - (size_t)(w->n_layers / CALLA_INTERVAL);
    *n_attn = w->n_layers / CALLA_INTERVAL;
    *s_n = n_gdn * (size_t)w->shape->n_value_heads * CALLA_RECUR * CALLA_RECUR;
    *window_n = n_gdn * (CALLA_CONV - 1) * (size_t)calla_conv_channels(w->shape);
    *kv_n = (size_t)*n_attn * (size_t)calla_kv_width(w->shape);
}

static void ref_plan(struct calla_backend_plan *out, const struct calla_weights *w, const struct calla_backend_options *opt) {
    size_t s_n, window_n, kv_n;
    int n_attn;
    state_sizes(w, &s_n, &window_n, &kv_n, &n_attn);
    *out = (struct calla_backend_plan){
        .weights_bytes = 0,              /* it reads the mapped file                 */
        .scratch_bytes = (uint64_t)opt->max_logits * (uint64_t)w->shape->n_vocab * sizeof(float) +
                         (uint64_t)opt->max_rows * (uint64_t)w->shape->n_hidden * 8 * sizeof(float),
        .state_bytes = (s_n + window_n) * sizeof(float),
        .kv_page_bytes = 2 * kv_n * PAGE_TOKENS * sizeof(float),
        .kv_page_tokens = PAGE_TOKENS,
    };
}

static void ref_close(struct calla_backend *b) {
    if (b == NULL) return;
    free(b->logits);
    free(b->ids);
    free(b->slot);
    free(b->sampled);
    free(b->expert_used);
    calla_sampler_scratch_free(&b->sampler);
    free(b);
}

static int ref_open(struct calla_backend **out, const struct calla_weights *w,
                    const struct calla_backend_options *opt, struct calla_err *err) {
    struct calla_backend *b = calloc(1, sizeof *b);
    const size_t rows = (size_t)opt->max_rows;
    *out = NULL;
    if (b == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for the reference backend");
    b->w = w;
    b->opt = *opt;
    b->n_pages = (opt->kv_tokens + PAGE_TOKENS - 1) / PAGE_TOKENS;
    state_sizes(w, &b->s_n, &b->window_n, &b->kv_n, &b->n_attn);
    b->logits = malloc((size_t)opt->max_logits * (size_t)w->shape->n_vocab * sizeof *b->logits);
    b->ids = malloc(rows * sizeof *b->ids);
    b->slot = malloc(rows * sizeof *b->slot);
    b->sampled = malloc(rows * sizeof *b->sampled);
    b->expert_used = calloc((size_t)w->n_layers, (size_t)w->shape->n_experts);
    int rc = 0;
    if (!b->logits || !b->ids || !b->slot || !b->sampled || !b->expert_used)
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for the scratch of %d rows", opt->max_rows);
    if (rc == 0) rc = calla_sampler_scratch_new(&b->sampler, w->shape->n_vocab, err);
    if (rc != 0) {
        ref_close(b);
        return rc;
    }
    for (size_t i = 0; i < rows; i++) b->sampled[i] = b->slot[i] = -1;
    *out = b;
    return 0;
}

/* ---- states --------------------------------------------------------------------- */

static int ref_state_new(struct calla_state **out, struct calla_backend *b, struct calla_err *err) {
    *out = NULL;
    if (b->n_states >= b->opt.n_states)
        return calla_fail(err, CALLA_ERR_MEMORY, "%d states are alive and %d were planned", b->n_states, b->opt.n_states);
    struct calla_state *s = calloc(1, sizeof *s);
    if (s == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a state");
    s->b = b;
    const int rc = calla_reference_state_init(&s->r, b->w, PAGE_TOKENS, err);
    if (rc != 0) {
        free(s);
        return rc;
    }
    b->n_states++;
    *out = s;
    return 0;
}

static void give_pages(struct calla_state *s, size_t n) {
    s->b->n_pages_used -= s->n_pages - n;
    s->n_pages = n;
}

static void ref_state_free(struct calla_state *s) {
    if (s == NULL) return;
    give_pages(s, 0);
    s->b->n_states--;
    calla_reference_state_free(&s->r);
    free(s);
}

static void ref_state_reset(struct calla_state *s) {
    give_pages(s, 0);
    s->r.n_tokens = 0;
    memset(s->r.s, 0, s->b->s_n * sizeof *s->r.s);
    memset(s->r.window, 0, s->b->window_n * sizeof *s->r.window);
}

static int ref_state_len(const struct calla_state *s) { return s->r.n_tokens; }

/* Makes room for n_tokens positions in the arrays; the pages are counted apart. */
static int grow(struct calla_state *s, int n_tokens, struct calla_err *err) {
    struct calla_reference_state next;
    const size_t width = (size_t)calla_kv_width(s->b->w->shape);
    int cap = s->r.cap_tokens;
    if (n_tokens <= cap) return 0;
    while (cap < n_tokens) cap = cap < s->b->opt.ctx_tokens / 2 ? 2 * cap : s->b->opt.ctx_tokens > n_tokens ? s->b->opt.ctx_tokens : n_tokens;
    const int rc = calla_reference_state_init(&next, s->b->w, cap, err);
    if (rc != 0) return rc;
    memcpy(next.s, s->r.s, s->b->s_n * sizeof *next.s);
    memcpy(next.window, s->r.window, s->b->window_n * sizeof *next.window);
    for (int l = 0; l < s->b->n_attn; l++) {
        const size_t to = (size_t)l * (size_t)cap * width, from = (size_t)l * (size_t)s->r.cap_tokens * width;
        memcpy(next.k + to, s->r.k + from, (size_t)s->r.n_tokens * width * sizeof *next.k);
        memcpy(next.v + to, s->r.v + from, (size_t)s->r.n_tokens * width * sizeof *next.v);
    }
    next.n_tokens = s->r.n_tokens;
    calla_reference_state_free(&s->r);
    s->r = next;
    return 0;
}

static int take_pages(struct calla_state *s, int n_tokens, struct calla_err *err) {
    const size_t want = pages_of(n_tokens), free_pages = s->b->n_pages - s->b->n_pages_used;
    if (want <= s->n_pages) return 0;
    if (want - s->n_pages > free_pages)
        return calla_fail(err, CALLA_ERR_MEMORY, "a sequence of %d tokens needs %zu more pages of %d and %zu of %zu are free",
                          n_tokens, want - s->n_pages, PAGE_TOKENS, free_pages, s->b->n_pages);
    s->b->n_pages_used += want - s->n_pages;
    s->n_pages = want;
    return 0;
}

static int ref_state_copy(struct calla_state *dst, const struct calla_state *src, struct calla_err *err) {
    const size_t width = (size_t)calla_kv_width(dst->b->w->shape);
    const int n = src->r.n_tokens;
    if (dst == src) return 0;
    int rc = take_pages(dst, n, err);
    if (rc != 0) return rc;
    give_pages(dst, pages_of(n));
    dst->r.n_tokens = 0;                    /* nothing of the old sequence is worth moving */
    rc = grow(dst, n, err);
    if (rc != 0) return rc;
    memcpy(dst->r.s, src->r.s, dst->b->s_n * sizeof *dst->r.s);
    memcpy(dst->r.window, src->r.window, dst->b->window_n * sizeof *dst->r.window);
    for (int l = 0; l < dst->b->n_attn; l++) {
        const size_t to = (size_t)l * (size_t)dst->r.cap_tokens * width, from = (size_t)l * (size_t)src->r.cap_tokens * width;
        memcpy(dst->r.k + to, src->r.k + from, (size_t)n * width * sizeof *dst->r.k);
        memcpy(dst->r.v + to, src->r.v + from, (size_t)n * width * sizeof *dst->r.v);
    }
    dst->r.n_tokens = n;
    return 0;
}

/* The bytes: int32 length, recurrent state, window, then keys and values of
 * each attention layer, all little-endian f32 as in memory. */
static int ref_state_save(const struct calla_state *s, unsigned char **bytes, size_t *n, struct calla_err *err) {
    const struct calla_backend *b = s->b;
    const size_t width = (size_t)calla_kv_width(b->w->shape), kv_n = (size_t)s->r.n_tokens * width;
    const int32_t len = s->r.n_tokens;
    *n = sizeof len + (b->s_n + b->window_n + 2 * (size_t)b->n_attn * kv_n) * sizeof(float);
    unsigned char *p = *bytes = malloc(*n);
    if (p == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu bytes of state", *n);
#define PUT(from, count) (memcpy(p, from, count), p += (count))
    PUT(&len, sizeof len);
    PUT(s->r.s, b->s_n * sizeof(float));
    PUT(s->r.window, b->window_n * sizeof(float));
    for (int l = 0; l < b->n_attn; l++) {
        PUT(s->r.k + (size_t)l * (size_t)s->r.cap_tokens * width, kv_n * sizeof(float));
        PUT(s->r.v + (size_t)l * (size_t)s->r.cap_tokens * width, kv_n * sizeof(float));
    }
#undef PUT
    return 0;
}

static int ref_state_load(struct calla_state *s, const unsigned char *bytes, size_t n, struct calla_err *err) {
    const struct calla_backend *b = s->b;
    const size_t width = (size_t)calla_kv_width(b->w->shape);
    int32_t len;
    if (n < sizeof len) return calla_fail(err, CALLA_ERR_FORMAT, "a state of %zu bytes", n);
    memcpy(&len, bytes, sizeof len);
    if (len < 0 || len > b->opt.ctx_tokens)
        return calla_fail(err, CALLA_ERR_LIMIT, "the state holds %d tokens, the context is %d", (int)len, b->opt.ctx_tokens);
    const size_t kv_n = (size_t)len * width, want = sizeof len + (b->s_n + b->window_n + 2 * (size_t)b->n_attn * kv_n) * sizeof(float);
    if (n != want) return calla_fail(err, CALLA_ERR_FORMAT, "a state of %d tokens has %zu bytes, this one %zu", (int)len, want, n);
    int rc = take_pages(s, len, err);
    if (rc != 0) return rc;
    give_pages(s, pages_of(len));
    s->r.n_tokens = 0;
    rc = grow(s, len, err);
    if (rc != 0) return rc;
    const unsigned char *p = bytes + sizeof len;
#define GET(to, count) (memcpy(to, p, count), p += (count))
    GET(s->r.s, b->s_n * sizeof(float));
    GET(s->r.window, b->window_n * sizeof(float));
    for (int l = 0; l < b->n_attn; l++) {
        GET(s->r.k + (size_t)l * (size_t)s->r.cap_tokens * width, kv_n * sizeof(float));
        GET(s->r.v + (size_t)l * (size_t)s->r.cap_tokens * width, kv_n * sizeof(float));
    }
#undef GET
    s->r.n_tokens = len;
    return 0;
}

/* ---- a step ----------------------------------------------------------------------- */

static int end_of_state(const struct calla_batch *batch, int i) {
    int end = i + 1;
    while (end < batch->n_rows && batch->rows[end].state == batch->rows[i].state) end++;
    return end;
}

static int check_rows(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err) {
    int n_logits = 0;
    if (batch->n_rows < 1 || batch->n_rows > b->opt.max_rows)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "a step of %d rows; at most %d", batch->n_rows, b->opt.max_rows);
    for (int i = 0; i < batch->n_rows; i++) {
        const struct calla_row *row = &batch->rows[i];
        if (row->token_row >= b->opt.max_rows || (row->token_row >= 0 && b->sampled[row->token_row] < 0))
            return calla_fail(err, CALLA_ERR_ARGUMENT, "row %d wants the id of row %d, which sampled none", i, row->token_row);
        const int32_t id = row->token_row >= 0 ? b->sampled[row->token_row] : row->token;
        if (id < 0 || id >= b->w->shape->n_vocab)
            return calla_fail(err, CALLA_ERR_ARGUMENT, "row %d has id %d of %d", i, (int)id, b->w->shape->n_vocab);
        b->ids[i] = id;
        b->slot[i] = row->wants_logits || row->sampler ? n_logits++ : -1;
    }
    if (n_logits > b->opt.max_logits)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d rows ask for logits; at most %d", n_logits, b->opt.max_logits);
    size_t want = 0;
    for (int i = 0, end; i < batch->n_rows; i = end) {
        const struct calla_state *s = batch->rows[i].state;
        end = end_of_state(batch, i);
        const int n = s->r.n_tokens + end - i;
        if (n > b->opt.ctx_tokens)
            return calla_fail(err, CALLA_ERR_LIMIT, "a sequence of %d tokens; the context is %d", n, b->opt.ctx_tokens);
        if (pages_of(n) > s->n_pages) want += pages_of(n) - s->n_pages;
    }
    if (want > b->n_pages - b->n_pages_used)
        return calla_fail(err, CALLA_ERR_MEMORY, "the step needs %zu more pages of %d tokens and %zu of %zu are free",
                          want, PAGE_TOKENS, b->n_pages - b->n_pages_used, b->n_pages);
    for (int i = 0, end; i < batch->n_rows; i = end) {
        struct calla_state *s = batch->rows[i].state;
        end = end_of_state(batch, i);
        const int rc = grow(s, s->r.n_tokens + end - i, err);
        if (rc != 0) return rc;
    }
    return 0;
}

static void on_tap(void *user, enum calla_tap tap, int layer, int row_idx, const float *v, int n) {
    struct calla_backend *b = user;
    if (tap == CALLA_TAP_ROUTER_WEIGHTS && layer < b->w->n_layers)
        for (int e = 0; e < n; e++)
            if (v[e] != 0) b->expert_used[(size_t)layer * (size_t)b->w->shape->n_experts + (size_t)e] = 1;
    if (b->taps != NULL) b->taps->put(b->taps->user, tap, layer, b->tap_row + row_idx, v, n);
}

/* Rows [begin, end) of one state, in pieces that all ask for logits or none. */
static int run_state(struct calla_backend *b, const struct calla_batch *batch, int begin, int end, struct calla_err *err) {
    const struct calla_taps taps = { .put = on_tap, .user = b };
    struct calla_state *s = batch->rows[begin].state;
    int rc = take_pages(s, s->r.n_tokens + end - begin, err);
    for (int i = begin, stop; rc == 0 && i < end; i = stop) {
        const bool asks = b->slot[i] >= 0;
        for (stop = i + 1; stop < end && (b->slot[stop] >= 0) == asks;) stop++;
        if (batch->cancel != NULL && atomic_load(batch->cancel))
            return calla_fail(err, CALLA_ERR_CANCELLED, "cancelled at row %d of %d", i, batch->n_rows);
        float *logits = asks ? b->logits + (size_t)b->slot[i] * (size_t)b->w->shape->n_vocab : NULL;
        b->tap_row = i;
        rc = calla_reference_forward(b->w, &s->r, b->ids + i, stop - i, logits, NULL, &taps, err);
    }
    return rc;
}

static int ref_step(struct calla_backend *b, const struct calla_batch *batch, struct calla_err *err) {
    const size_t n_used = (size_t)b->w->n_layers * (size_t)b->w->shape->n_experts;
    int rc = check_rows(b, batch, err);
    if (rc != 0) return rc;
    memset(b->expert_used, 0, n_used);
    b->taps = batch->taps;
    for (int i = 0, end; rc == 0 && i < batch->n_rows; i = end) {
        end = end_of_state(batch, i);
        rc = run_state(b, batch, i, end, err);
    }
    if (rc != 0) return rc;
    for (int i = 0; i < b->opt.max_rows; i++) {
        b->sampled[i] = -1;
        if (i < batch->n_rows && batch->rows[i].sampler != NULL &&
            calla_sample(b->sampler, batch->rows[i].sampler, b->logits + (size_t)b->slot[i] * (size_t)b->w->shape->n_vocab,
                         b->opt.n_usable_ids, &b->sampled[i], NULL) != 0)
            b->sampled[i] = -1;
    }
    b->stats.n_steps++;
    b->stats.n_rows += (uint64_t)batch->n_rows;
    for (size_t i = 0; i < n_used; i++) b->stats.n_expert_reads += b->expert_used[i];
    return 0;
}

static const float *ref_logits(struct calla_backend *b, int row_idx) {
    return b->logits + (size_t)b->slot[row_idx] * (size_t)b->w->shape->n_vocab;
}

static int32_t ref_sampled(struct calla_backend *b, int row_idx) { return b->sampled[row_idx]; }

static void ref_stats(const struct calla_backend *b, struct calla_backend_stats *out) { *out = b->stats; }

const struct calla_backend_ops calla_reference_backend = {
    .name = "reference", .probe = ref_probe, .plan = ref_plan, .open = ref_open, .close = ref_close,
    .state_new = ref_state_new, .state_free = ref_state_free, .state_reset = ref_state_reset, .state_len = ref_state_len,
    .state_copy = ref_state_copy, .state_save = ref_state_save, .state_load = ref_state_load,
    .step = ref_step, .logits = ref_logits, .sampled = ref_sampled, .stats = ref_stats,
};
