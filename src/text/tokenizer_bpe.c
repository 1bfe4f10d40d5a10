/* tokenizer_bpe.c - merges the bytes of one pre-token into ids.
 *
 * Lowest rank first, leftmost first among equals.  Short pieces are merged in
 * an array (and remembered), long ones with a heap over a linked list, so that
 * a megabyte of one letter takes n log n steps.  One scratch belongs to one
 * call. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "text/tokenizer_impl.h"

enum {
    SHORT_BITS = 7, SHORT_BYTES = 1 << SHORT_BITS,   /* in the array; with 32 and 64, CJK text was no faster */
    CACHE_BYTES = 26, CACHE_IDS = 9,   /* what fits a line of 64 bytes                 */
    MAX_LINES = 1 << 14,
};

struct line { uint8_t n, n_ids; char bytes[CACHE_BYTES]; int32_t ids[CACHE_IDS]; };

/* prev and next are positions of neighbours, n_symbols at the ends. */
struct symbol { int32_t id; uint32_t prev, next, rank; };

struct calla_bpe {
    const struct calla_tokenizer *t;
    struct line *lines;         /* [lines_mask + 1]; NULL: no cache                    */
    uint32_t lines_mask;
    struct symbol *symbols;     /* [cap], grown for the longest piece                  */
    uint64_t *heap;             /* [n_heap of 3 * cap], rank << 32 | position          */
    size_t cap, n_heap;
};

struct calla_bpe *calla_bpe_new(const struct calla_tokenizer *t, size_t text_bytes) {
    struct calla_bpe *b = calloc(1, sizeof *b);
    if (b == NULL) return NULL;
    uint32_t n_lines = 16;
    while (n_lines < MAX_LINES && n_lines < text_bytes / 16) n_lines *= 2;
    b->t = t;
    b->lines = calloc(n_lines, sizeof *b->lines);
    b->lines_mask = n_lines - 1;
    if (b->lines == NULL) calla_bpe_free(b), b = NULL;
    return b;
}

void calla_bpe_free(struct calla_bpe *b) {
    if (b == NULL) return;
    free(b->lines);
    free(b->symbols);
    free(b->heap);
    free(b);
}

/* A pair as one number, so that the least is the next to merge and says where:
 * rank << 7 | position.  NO_PAIR: does not merge. */
#define NO_PAIR INT32_MAX

static int32_t pair_key(const struct calla_merge_slot *m, size_t at) {
    return m ? (int32_t)(m->rank << SHORT_BITS | (uint32_t)at) : NO_PAIR;
}

static size_t merge_short(const struct calla_tokenizer *t, const char *piece, size_t n, int32_t *id) {
    int32_t key[SHORT_BYTES], made[SHORT_BYTES];   /* of the pair that begins here, and what it makes */
    uint8_t prev[SHORT_BYTES + 1], next[SHORT_BYTES];
    for (size_t i = 0; i < n; i++) id[i] = t->byte_id[(unsigned char)piece[i]];
    for (size_t i = 0; i < n; i++) {
        const struct calla_merge_slot *m = i + 1 < n ? calla_merge_find(t, id[i], id[i + 1]) : NULL;
        key[i] = pair_key(m, i);
        made[i] = m ? m->id : -1;
        prev[i] = (uint8_t)(i - 1);
        next[i] = (uint8_t)(i + 1);
    }
    for (;;) {
        int32_t least = NO_PAIR;
        for (size_t i = 0; i < n; i++) least = key[i] < least ? key[i] : least;
        if (least == NO_PAIR) break;
        const size_t at = (size_t)least & (SHORT_BYTES - 1), gone = next[at], after = next[gone];
        id[at] = made[at];
        id[gone] = -1;
        key[gone] = NO_PAIR;
        next[at] = (uint8_t)after;
        prev[after] = (uint8_t)at;
        const struct calla_merge_slot *right = after < n ? calla_merge_find(t, id[at], id[after]) : NULL;
        key[at] = pair_key(right, at);
        if (right) made[at] = right->id;
        if (at == 0) continue;
        const size_t before = prev[at];
        const struct calla_merge_slot *left = calla_merge_find(t, id[before], id[at]);
        key[before] = pair_key(left, before);
        if (left) made[before] = left->id;
    }
    size_t n_ids = 0;
    for (size_t i = 0; i < n; i++)
        if (id[i] >= 0) id[n_ids++] = id[i];
    return n_ids;
}

static void sift_down(uint64_t *heap, size_t n, size_t i) {
    const uint64_t x = heap[i];
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && heap[k + 1] < heap[k]) k++;
        if (heap[k] >= x) break;
        heap[i] = heap[k];
    }
    heap[i] = x;
}

static void heap_push(struct calla_bpe *b, uint64_t x) {
    size_t i = b->n_heap++;
    for (; i > 0 && b->heap[(i - 1) / 2] > x; i = (i - 1) / 2) b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = x;
}

/* Ranks the pair that begins at position i anew; true where it merges. */
static bool rank_pair(struct calla_bpe *b, uint32_t i, size_t n) {
    struct symbol *s = &b->symbols[i];
    const struct calla_merge_slot *m = s->next == n ? NULL : calla_merge_find(b->t, s->id, b->symbols[s->next].id);
    s->rank = m ? m->rank : UINT32_MAX;
    return m != NULL;
}

static bool merge_long(struct calla_bpe *b, const char *piece, size_t n, struct calla_ids *out) {
    if (n > b->cap) {
        free(b->symbols);
        free(b->heap);
        b->cap = 0;
        b->symbols = malloc(n * sizeof *b->symbols);
        b->heap = malloc(3 * n * sizeof *b->heap);    /* n pairs at first, two more a merge */
        if (b->symbols == NULL || b->heap == NULL) return false;
        b->cap = n;
    }
    struct symbol *s = b->symbols;
    b->n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        s[i] = (struct symbol){ b->t->byte_id[(unsigned char)piece[i]], i == 0 ? (uint32_t)n : i - 1, i + 1, UINT32_MAX };
    for (uint32_t i = 0; i < n; i++)
        if (rank_pair(b, i, n)) b->heap[b->n_heap++] = (uint64_t)s[i].rank << 32 | i;
    for (size_t i = b->n_heap / 2; i-- > 0;) sift_down(b->heap, b->n_heap, i);
    while (b->n_heap > 0) {
        const uint64_t top = b->heap[0];
        b->heap[0] = b->heap[--b->n_heap];
        if (b->n_heap > 0) sift_down(b->heap, b->n_heap, 0);
        const uint32_t i = (uint32_t)top;
        if (s[i].id < 0 || s[i].rank != top >> 32) continue;      /* the pair is gone */
        const uint32_t j = s[i].next;
        s[i].id = calla_merge_find(b->t, s[i].id, s[j].id)->id;
        s[j].id = -1;
        s[i].next = s[j].next;
        if (s[i].next != n) s[s[i].next].prev = i;
        if (rank_pair(b, i, n)) heap_push(b, (uint64_t)s[i].rank << 32 | i);
        if (s[i].prev != n && rank_pair(b, s[i].prev, n)) heap_push(b, (uint64_t)s[s[i].prev].rank << 32 | s[i].prev);
    }
    for (uint32_t i = 0; i != n; i = s[i].next)
        if (!calla_ids_add(out, s[i].id)) return false;
    return true;
}

static bool add_all(struct calla_ids *out, const int32_t *ids, size_t n) {
    bool ok = true;
    for (size_t i = 0; i < n; i++) ok = ok && calla_ids_add(out, ids[i]);
    return ok;
}

bool calla_bpe_encode(struct calla_bpe *b, const char *piece, size_t n, struct calla_ids *out) {
    int32_t ids[SHORT_BYTES];
    if (n == 1) return calla_ids_add(out, b->t->byte_id[(unsigned char)*piece]);
    if (n > SHORT_BYTES) return merge_long(b, piece, n, out);
    if (n > CACHE_BYTES) return add_all(out, ids, merge_short(b->t, piece, n, ids));
    struct line *l = &b->lines[(uint32_t)XXH3_64bits(piece, n) & b->lines_mask];
    if (l->n == n && memcmp(l->bytes, piece, n) == 0) return add_all(out, l->ids, l->n_ids);
    const size_t k = merge_short(b->t, piece, n, ids);
    if (k <= CACHE_IDS) {
        l->n = (uint8_t)n;
        l->n_ids = (uint8_t)k;
        memcpy(l->bytes, piece, n);
        memcpy(l->ids, ids, k * sizeof *ids);
    }
    return add_all(out, ids, k);
}
