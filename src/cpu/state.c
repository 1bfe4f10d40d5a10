/* state.c - making, copying, saving and loading states (state.h). */
#include "cpu/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cpu/backend.h"

/* ---- sizes and life ---------------------------------------------------------------- */

static size_t s_bytes(const struct calla_weights *w) {
    return (size_t)cpu_gdn_idx(w->n_layers) * (size_t)w->shape->n_value_heads * cpu_head_floats() * sizeof(float);
}

static size_t window_bytes(const struct calla_weights *w) {
    return (size_t)cpu_gdn_idx(w->n_layers) * (CALLA_CONV - 1) * (size_t)calla_conv_channels(w->shape) * sizeof(float);
}

static void cut(struct calla_state *s, struct calla_arena *a, const struct calla_weights *w, int ctx_tokens) {
    s->s = calla_arena_take(a, s_bytes(w));
    s->window = calla_arena_take(a, window_bytes(w));
    s->pages = calla_arena_take(a, (size_t)cpu_pages_for(ctx_tokens) * sizeof *s->pages);
}

size_t cpu_state_bytes(const struct calla_weights *w, int ctx_tokens) {
    struct calla_state s;
    struct calla_arena count = { 0 };
    cut(&s, &count, w, ctx_tokens);
    return count.used;
}

int cpu_state_new(struct calla_state **out, struct calla_backend *b, struct calla_err *err) {
    struct calla_state *s;
    *out = NULL;
    if (b->n_states >= b->opt.n_states)
        return calla_fail(err, CALLA_ERR_MEMORY, "%d states are alive and %d were planned", b->n_states, b->opt.n_states);
    s = calloc(1, sizeof *s);
    if (s == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a state");
    const int rc = calla_arena_open(&s->arena, cpu_state_bytes(b->model.w, b->opt.ctx_tokens), err);
    if (rc != 0) {
        free(s);
        return rc;
    }
    cut(s, &s->arena, b->model.w, b->opt.ctx_tokens);
    s->b = b;
    b->n_states++;
    *out = s;
    return 0;
}

static void release_pages(struct calla_state *s) {
    for (int i = 0; i < s->n_pages; i++) cpu_pages_release(&s->b->pages, s->pages[i]);
    s->n_pages = 0;
}

void cpu_state_free(struct calla_state *s) {
    if (s == NULL) return;
    release_pages(s);
    s->b->n_states--;
    calla_arena_close(&s->arena);
    free(s);
}

void cpu_state_reset(struct calla_state *s) {
    release_pages(s);
    if (s->n_tokens > 0 || s->broken) {
        memset(s->s, 0, s_bytes(s->b->model.w));
        memset(s->window, 0, window_bytes(s->b->model.w));
    }
    s->n_tokens = 0;
    s->broken = false;
}

int cpu_state_len(const struct calla_state *s) { return s->n_tokens; }

void cpu_state_grow(struct calla_state *s, int n_tokens) {
    while (s->n_pages < cpu_pages_for(n_tokens)) s->pages[s->n_pages++] = cpu_pages_take(&s->b->pages);
}

/* ---- copies -------------------------------------------------------------------------- */

/* Pages that would be free if s let go of its own. */
static int pages_within_reach(const struct calla_state *s) {
    int n = s->b->pages.n_free;
    for (int i = 0; i < s->n_pages; i++) n += s->b->pages.n_refs[s->pages[i]] == 1;
    return n;
}

static int no_pages(const struct calla_state *s, int n_want, struct calla_err *err) {
    return calla_fail(err, CALLA_ERR_MEMORY, "the state needs %d pages of %d tokens and %d of %d are free; free other sequences",
                      n_want, CPU_PAGE, pages_within_reach(s), s->b->pages.n_pages);
}

static int refuse_broken(struct calla_err *err) {
    return calla_fail(err, CALLA_ERR_ARGUMENT, "the state was left by a failed step; reset it first");
}

int cpu_state_copy(struct calla_state *dst, const struct calla_state *src, struct calla_err *err) {
    struct cpu_pages *pages = &dst->b->pages;
    const int n_full = src->n_tokens / CPU_PAGE, n_part = src->n_tokens % CPU_PAGE != 0;
    if (src->broken) return refuse_broken(err);
    if (dst == src) return 0;
    if (n_part > pages_within_reach(dst)) return no_pages(dst, n_part, err);
    for (int i = 0; i < n_full; i++) cpu_pages_share(pages, src->pages[i]);
    release_pages(dst);
    memcpy(dst->pages, src->pages, (size_t)n_full * sizeof *dst->pages);
    dst->n_pages = n_full;
    if (n_part) {                        /* the page being written: never shared */
        const int32_t page = cpu_pages_take(pages);
        memcpy(cpu_page_base(pages, page), cpu_page_base(pages, src->pages[n_full]), pages->page_bytes);
        dst->pages[dst->n_pages++] = page;
    }
    memcpy(dst->s, src->s, s_bytes(dst->b->model.w));
    memcpy(dst->window, src->window, window_bytes(dst->b->model.w));
    dst->n_tokens = src->n_tokens;
    dst->broken = false;
    return 0;
}

/* ---- bytes ------------------------------------------------------------------------------ */

/* Head of a saved state; then s, windows, and for each attention layer and kv
 * head the keys and the values [n_tokens, A] bf16.  Little-endian, as the
 * machines that this backend is built for. */
struct saved_head {
    char     magic[8];
    uint64_t content_hash;
    uint32_t n_layers, n_value_heads, n_channels, n_kv_heads, n_tokens, zero;
};
static const char saved_magic[8] = { 'c', 'a', 'l', 'l', 'a', 'C', 'P', '1' };

static struct saved_head head_of(const struct calla_state *s) {
    const struct calla_weights *w = s->b->model.w;
    struct saved_head h = { .content_hash = w->content_hash, .n_layers = (uint32_t)w->n_layers,
                            .n_value_heads = (uint32_t)w->shape->n_value_heads,
                            .n_channels = (uint32_t)calla_conv_channels(w->shape),
                            .n_kv_heads = (uint32_t)w->shape->n_kv_heads, .n_tokens = (uint32_t)s->n_tokens };
    memcpy(h.magic, saved_magic, sizeof h.magic);
    return h;
}

static size_t saved_bytes(const struct calla_backend *b, int n_tokens) {
    const struct calla_weights *w = b->model.w;
    const size_t token_bytes = (size_t)b->model.n_attn * 2 * (size_t)calla_kv_width(w->shape) * sizeof(uint16_t);
    return sizeof(struct saved_head) + s_bytes(w) + window_bytes(w) + (size_t)n_tokens * token_bytes;
}

/* Position pos of one head's panels, to or from plain rows of keys and of values. */
static void keys_out(const uint16_t *panel, int slot, unsigned char *to) {
    for (int c = 0; c < CALLA_HEAD; c++) memcpy(to + 2 * c, &panel[c * CPU_PAGE + slot], 2);
}
static void keys_in(uint16_t *panel, int slot, const unsigned char *from) {
    for (int c = 0; c < CALLA_HEAD; c++) memcpy(&panel[c * CPU_PAGE + slot], from + 2 * c, 2);
}

enum { ROW_BYTES = CALLA_HEAD * 2 };

int cpu_state_save(const struct calla_state *s, unsigned char **bytes, size_t *n, struct calla_err *err) {
    const struct calla_backend *b = s->b;
    const struct saved_head head = head_of(s);
    *bytes = NULL;
    *n = 0;
    if (s->broken) return refuse_broken(err);
    const size_t want = saved_bytes(b, s->n_tokens);
    unsigned char *p = malloc(want);
    if (p == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu bytes of state", want);
    *bytes = p;
    *n = want;
    memcpy(p, &head, sizeof head);
    p += sizeof head;
    memcpy(p, s->s, s_bytes(b->model.w));
    p += s_bytes(b->model.w);
    memcpy(p, s->window, window_bytes(b->model.w));
    p += window_bytes(b->model.w);
    for (int l = 0; l < b->model.n_attn; l++)
        for (int g = 0; g < b->pages.n_kv_heads; g++) {
            unsigned char *values = p + (size_t)s->n_tokens * ROW_BYTES;
            for (int i = 0; i < s->n_tokens; i++) {
                const int32_t page = s->pages[i / CPU_PAGE];
                keys_out(cpu_page_k(&b->pages, page, l, g), i % CPU_PAGE, p + (size_t)i * ROW_BYTES);
                memcpy(values + (size_t)i * ROW_BYTES, cpu_page_v(&b->pages, page, l, g) + i % CPU_PAGE * CALLA_HEAD, ROW_BYTES);
            }
            p += 2 * (size_t)s->n_tokens * ROW_BYTES;
        }
    return 0;
}

/* Everything that can be wrong with the bytes; *n_tokens is sound on 0. */
static int check_saved(const struct calla_state *s, const unsigned char *bytes, size_t n, int *n_tokens, struct calla_err *err) {
    const struct calla_backend *b = s->b;
    const struct saved_head mine = head_of(s);
    struct saved_head head;
    if (n < sizeof head) return calla_fail(err, CALLA_ERR_FORMAT, "a saved state has at least %zu bytes, this one %zu", sizeof head, n);
    memcpy(&head, bytes, sizeof head);
    if (memcmp(head.magic, saved_magic, sizeof saved_magic) != 0)
        return calla_fail(err, CALLA_ERR_FORMAT, "not a state of this backend and version");
    if (head.content_hash != mine.content_hash)
        return calla_fail(err, CALLA_ERR_FORMAT, "the state belongs to checkpoint %016llx, this one is %016llx",
                          (unsigned long long)head.content_hash, (unsigned long long)mine.content_hash);
    if (head.n_layers != mine.n_layers || head.n_value_heads != mine.n_value_heads || head.n_channels != mine.n_channels ||
        head.n_kv_heads != mine.n_kv_heads || head.zero != 0)
        return calla_fail(err, CALLA_ERR_FORMAT, "the state has %u layers of %u heads, this model %u of %u", head.n_layers,
                          head.n_value_heads, mine.n_layers, mine.n_value_heads);
    if (head.n_tokens > (uint32_t)b->opt.ctx_tokens)
        return calla_fail(err, CALLA_ERR_LIMIT, "the state holds %u tokens, the context is %d", head.n_tokens, b->opt.ctx_tokens);
    if (n != saved_bytes(b, (int)head.n_tokens))
        return calla_fail(err, CALLA_ERR_FORMAT, "a state of %u tokens has %zu bytes, this one %zu", head.n_tokens,
                          saved_bytes(b, (int)head.n_tokens), n);
    *n_tokens = (int)head.n_tokens;
    return 0;
}

int cpu_state_load(struct calla_state *s, const unsigned char *bytes, size_t n, struct calla_err *err) {
    struct calla_backend *b = s->b;
    const unsigned char *p = bytes + sizeof(struct saved_head);
    int n_tokens = 0;
    const int rc = check_saved(s, bytes, n, &n_tokens, err);
    if (rc != 0) return rc;
    if (cpu_pages_for(n_tokens) > pages_within_reach(s)) return no_pages(s, cpu_pages_for(n_tokens), err);
    release_pages(s);
    cpu_state_grow(s, n_tokens);
    memcpy(s->s, p, s_bytes(b->model.w));
    p += s_bytes(b->model.w);
    memcpy(s->window, p, window_bytes(b->model.w));
    p += window_bytes(b->model.w);
    for (int l = 0; l < b->model.n_attn; l++)
        for (int g = 0; g < b->pages.n_kv_heads; g++) {
            const unsigned char *values = p + (size_t)n_tokens * ROW_BYTES;
            for (int i = 0; i < n_tokens; i++) {
                const int32_t page = s->pages[i / CPU_PAGE];
                keys_in(cpu_page_k(&b->pages, page, l, g), i % CPU_PAGE, p + (size_t)i * ROW_BYTES);
                memcpy(cpu_page_v(&b->pages, page, l, g) + i % CPU_PAGE * CALLA_HEAD, values + (size_t)i * ROW_BYTES, ROW_BYTES);
            }
            p += 2 * (size_t)n_tokens * ROW_BYTES;
        }
    s->n_tokens = n_tokens;
    s->broken = false;
    return 0;
}
