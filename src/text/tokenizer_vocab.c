/* tokenizer_vocab.c - the tables of a tokenizer: tokens, merges, added tokens. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"

/* The byte that a character of the byte-level alphabet stands for, -1 for
 * none: 33-126, 161-172 and 174-255 stand for themselves, the 68 other bytes,
 * ascending, are U+0100 on. */
static void alphabet(int16_t byte_of[0x144]) {
    int next = 0x100;
    for (int c = 0; c < 0x144; c++) byte_of[c] = -1;
    for (int b = 0; b < 256; b++) {
        const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        byte_of[itself ? b : next++] = (int16_t)b;
    }
}

/* Appends to out the bytes that text [n] stands for; false for a character
 * outside the alphabet. */
static bool to_bytes(struct calla_buf *out, const int16_t *byte_of, const char *text, size_t n) {
    uint32_t cp;
    if (!calla_buf_reserve(out, n)) return true;     /* seen by the caller as out->failed */
    while (n > 0) {
        const int k = calla_utf8_decode(text, n, &cp);
        if (k < 0 || cp >= 0x144 || byte_of[cp] < 0) return false;
        out->data[out->n++] = (char)byte_of[cp];
        text += k;
        n -= (size_t)k;
    }
    return true;
}

static int no_memory(struct calla_scan *s) {
    return calla_fail(s->err, CALLA_ERR_MEMORY, "%s: no memory for the vocabulary", s->file);
}

static int32_t *slot_of(const struct calla_tokenizer *t, const char *bytes, size_t n) {
    for (uint32_t i = (uint32_t)XXH3_64bits(bytes, n);; i++) {
        int32_t *slot = &t->by_bytes[i & t->by_bytes_mask];
        if (*slot < 0) return slot;
        const struct calla_token *k = &t->tokens[*slot];
        if (k->n == n && memcmp(t->bytes.data + k->begin, bytes, n) == 0) return slot;
    }
}

static uint32_t table_size(size_t n) {
    uint32_t size = 16;
    while (size < 2 * n) size *= 2;
    return size;
}

/* The token of a new id, its bytes already at [begin, begin + n) of t->bytes. */
static int put(struct calla_tokenizer *t, struct calla_scan *s, int64_t id, size_t begin, size_t n, uint8_t flags) {
    if (id < 0 || id >= CALLA_TOKENIZER_MAX_IDS)
        return calla_scan_fail(s, "id %lld of token \"%.80s\" is outside 0 to %d", (long long)id, s->string.data,
                               CALLA_TOKENIZER_MAX_IDS - 1);
    if (n == 0) return calla_scan_fail(s, "token %lld is empty", (long long)id);
    if (id >= t->cap_ids) {
        int cap = t->cap_ids ? t->cap_ids : 4096;
        while (cap <= id) cap *= 2;
        struct calla_token *p = realloc(t->tokens, (size_t)cap * sizeof *p);
        if (p == NULL) return no_memory(s);
        memset(p + t->cap_ids, 0, (size_t)(cap - t->cap_ids) * sizeof *p);
        t->tokens = p;
        t->cap_ids = cap;
    }
    if (t->tokens[id].flags & TOKEN_KNOWN)
        return calla_scan_fail(s, "id %lld is used twice, the second time by \"%.80s\"", (long long)id, s->string.data);
    t->tokens[id] = (struct calla_token){ (uint32_t)begin, (uint32_t)n, flags };
    if (id >= t->n_ids) t->n_ids = (int)id + 1;
    return 0;
}

int calla_vocab_read(struct calla_tokenizer *t, struct calla_scan *s) {
    int16_t byte_of[0x144];
    bool more;
    size_t n_tokens = 0;
    int rc = calla_scan_open(s, '{');
    alphabet(byte_of);
    for (bool first = true; rc == 0 && (rc = calla_scan_next(s, '}', first, &more)) == 0 && more; first = false) {
        const size_t begin = t->bytes.n;
        int64_t id;
        if (!to_bytes(&t->bytes, byte_of, s->string.data, s->string.n))
            return calla_scan_fail(s, "token \"%.80s\" has a character outside the byte-level alphabet", s->string.data);
        if (t->bytes.failed) return no_memory(s);
        if ((rc = calla_scan_int(s, &id)) == 0) rc = put(t, s, id, begin, t->bytes.n - begin, TOKEN_KNOWN);
        n_tokens++;
    }
    if (rc != 0) return rc;
    const uint32_t size = table_size(n_tokens);
    t->by_bytes = malloc(size * sizeof *t->by_bytes);
    if (t->by_bytes == NULL) return no_memory(s);
    memset(t->by_bytes, -1, size * sizeof *t->by_bytes);
    t->by_bytes_mask = size - 1;
    for (int id = 0; id < t->n_ids; id++) {
        if (t->tokens[id].flags == 0) continue;      /* reported by calla_vocab_check */
        int32_t *slot = slot_of(t, t->bytes.data + t->tokens[id].begin, t->tokens[id].n);
        if (*slot >= 0) return calla_scan_fail(s, "ids %d and %d are the same token", *slot, id);
        *slot = id;
    }
    for (int b = 0; b < 256; b++) {
        const char c = (char)b;
        t->byte_id[b] = *slot_of(t, &c, 1);
        if (t->byte_id[b] < 0) return calla_scan_fail(s, "the vocabulary has no token for byte %d", b);
    }
    return 0;
}

/* Both forms of a merge, "left right" and ["left", "right"], to the bytes of
 * left and right, one behind the other; *n_left says where right begins. */
static int read_pair(struct calla_scan *s, const int16_t *byte_of, struct calla_buf *both, size_t *n_left) {
    const char c = calla_scan_peek(s);
    bool more, ok = true;
    int rc;
    both->n = 0;
    if (c == '[') {
        s->at++;
        for (int i = 0; i < 2; i++) {
            if (i == 1) *n_left = both->n;
            if ((rc = calla_scan_next(s, ']', i == 0, &more)) != 0) return rc;
            if (!more) return calla_scan_fail(s, "a merge of %d tokens", i);
            if ((rc = calla_scan_string(s)) != 0) return rc;
            ok = ok && to_bytes(both, byte_of, s->string.data, s->string.n);
        }
        if ((rc = calla_scan_next(s, ']', false, &more)) != 0) return rc;
        if (more) return calla_scan_fail(s, "a merge of more than two tokens");
    } else {
        if ((rc = calla_scan_string(s)) != 0) return rc;
        const char *blank = memchr(s->string.data, ' ', s->string.n);
        if (blank == NULL) return calla_scan_fail(s, "merge \"%.80s\" has no blank", s->string.data);
        const size_t k = (size_t)(blank - s->string.data);
        ok = to_bytes(both, byte_of, s->string.data, k);
        *n_left = both->n;
        ok = ok && to_bytes(both, byte_of, blank + 1, s->string.n - k - 1);
    }
    if (both->failed) return no_memory(s);
    if (!ok) return calla_scan_fail(s, "merge \"%.80s\" has a character outside the byte-level alphabet", s->string.data);
    return 0;
}

static int count_elements(struct calla_scan *s, size_t *n) {
    const size_t begin = s->at;
    bool more;
    int rc = calla_scan_open(s, '[');
    *n = 0;
    for (bool first = true; rc == 0 && (rc = calla_scan_next(s, ']', first, &more)) == 0 && more; first = false) {
        rc = calla_scan_skip(s);
        ++*n;
    }
    s->at = begin;
    return rc;
}

int calla_vocab_read_merges(struct calla_tokenizer *t, struct calla_scan *s) {
    int16_t byte_of[0x144];
    struct calla_buf both = { 0 };
    size_t n_merges, n_left = 0;
    bool more;
    int rc = count_elements(s, &n_merges);
    if (rc != 0) return rc;
    if (n_merges > CALLA_TOKENIZER_MAX_MERGES)
        return calla_scan_fail(s, "%zu merges, at most %d are read", n_merges, CALLA_TOKENIZER_MAX_MERGES);
    const uint32_t size = table_size(n_merges);
    t->merges = malloc(size * sizeof *t->merges);
    t->filter = calloc(size / 8, sizeof *t->filter);     /* 8 bits a slot */
    if (t->merges == NULL || t->filter == NULL) return no_memory(s);
    t->filter_mask = size * 8 - 1;
    memset(t->merges, -1, size * sizeof *t->merges);  /* left -1, rank UINT32_MAX */
    t->merges_mask = size - 1;
    alphabet(byte_of);
    rc = calla_scan_open(s, '[');
    for (uint32_t rank = 0; rc == 0 && (rc = calla_scan_next(s, ']', rank == 0, &more)) == 0 && more; rank++) {
        if ((rc = read_pair(s, byte_of, &both, &n_left)) != 0) break;
        const int32_t left = *slot_of(t, both.data, n_left);
        const int32_t right = *slot_of(t, both.data + n_left, both.n - n_left);
        const int32_t id = *slot_of(t, both.data, both.n);
        if (left < 0 || right < 0 || id < 0) {
            rc = calla_scan_fail(s, "merge %u: %s is not in the vocabulary", rank,
                                 left < 0 ? "its left half" : right < 0 ? "its right half" : "what it makes");
            break;
        }
        uint32_t i = calla_merge_hash(left, right);
        while (t->merges[i & t->merges_mask].rank != UINT32_MAX) {
            const struct calla_merge_slot *m = &t->merges[i++ & t->merges_mask];
            if (m->left == left && m->right == right) {
                rc = calla_scan_fail(s, "merge %u is the same as merge %u", rank, m->rank);
                break;
            }
        }
        if (rc != 0) break;
        t->merges[i & t->merges_mask] = (struct calla_merge_slot){ left, right, rank, id };
        const uint32_t bit = calla_merge_bit(left, right) & t->filter_mask;
        t->filter[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    calla_buf_free(&both);
    return rc;
}

static int trie_add(struct calla_tokenizer *t, struct calla_scan *s, const char *bytes, size_t n, int32_t id) {
    int32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        int32_t next = i == 0 ? t->trie_root[c] : t->trie[at].child;
        while (i > 0 && next != 0 && t->trie[next].byte != c) next = t->trie[next].sibling;
        if (next == 0) {
            if (t->n_trie >= t->cap_trie) {
                const int cap = t->cap_trie ? 2 * t->cap_trie : 1024;
                struct calla_trie_node *p = realloc(t->trie, (size_t)cap * sizeof *p);
                if (p == NULL) return no_memory(s);
                t->trie = p;
                t->cap_trie = cap;
                if (t->n_trie == 0) t->trie[t->n_trie++] = (struct calla_trie_node){ .id = -1 };
            }
            next = t->n_trie++;
            t->trie[next] = (struct calla_trie_node){ .id = -1, .byte = c };
            if (i == 0) {
                t->trie_root[c] = next;
            } else {
                t->trie[next].sibling = t->trie[at].child;
                t->trie[at].child = next;
            }
        }
        at = next;
    }
    t->trie[at].id = id;
    return 0;
}

int32_t calla_vocab_match_added(const struct calla_tokenizer *t, const char *p, const char *end, size_t *n) {
    int32_t best = -1, at = p < end ? t->trie_root[(unsigned char)*p] : 0;
    for (size_t i = 1; at != 0; i++) {
        if (t->trie[at].id >= 0) {
            best = t->trie[at].id;
            *n = i;
        }
        if (p + i >= end) break;
        at = t->trie[at].child;
        while (at != 0 && t->trie[at].byte != (unsigned char)p[i]) at = t->trie[at].sibling;
    }
    return best;
}

int calla_vocab_add(struct calla_tokenizer *t, struct calla_scan *s, int64_t id, const char *bytes, size_t n, bool special) {
    const uint8_t flags = (uint8_t)(TOKEN_KNOWN | TOKEN_ADDED | (special ? TOKEN_SPECIAL : 0));
    size_t k = 0;
    if (n > CALLA_TOKENIZER_MAX_ADDED_BYTES)
        return calla_scan_fail(s, "added token %lld has %zu bytes, at most %d are read", (long long)id, n,
                               CALLA_TOKENIZER_MAX_ADDED_BYTES);
    const int32_t same = n == 0 ? -1 : calla_vocab_match_added(t, bytes, bytes + n, &k);
    if (same >= 0 && k == n) {
        if (same != id || t->tokens[same].flags != flags)
            return calla_scan_fail(s, "added token \"%.*s\" is id %lld, %s; it was id %d, %s", (int)n, bytes, (long long)id,
                                   special ? "special" : "not special", same,
                                   t->tokens[same].flags & TOKEN_SPECIAL ? "special" : "not special");
        return 0;
    }
    const int32_t word = n == 0 ? -1 : *slot_of(t, bytes, n);
    if (word >= 0) {     /* some writers list added tokens in the vocabulary too */
        if (word != id)
            return calla_scan_fail(s, "added token \"%.*s\" is id %lld, the vocabulary has it as %d", (int)n, bytes,
                                   (long long)id, word);
        t->tokens[word].flags = flags;
    } else {
        const size_t begin = t->bytes.n;
        calla_buf_add(&t->bytes, bytes, n);
        if (t->bytes.failed) return no_memory(s);
        const int rc = put(t, s, id, begin, n, flags);
        if (rc != 0) return rc;
    }
    return trie_add(t, s, bytes, n, (int32_t)id);
}

int calla_vocab_check(struct calla_tokenizer *t, const char *file, struct calla_err *err) {
    for (int id = 0; id < t->n_ids; id++)
        if (t->tokens[id].flags == 0)
            return calla_fail(err, CALLA_ERR_FORMAT, "%s: id %d has no token, though ids go up to %d", file, id, t->n_ids - 1);
    /* Plain text must never become an added token: that is what keeps control
     * tokens out of what clients send. */
    for (int b = 0; b < 256; b++)
        if (t->tokens[t->byte_id[b]].flags & TOKEN_ADDED)
            return calla_fail(err, CALLA_ERR_FORMAT, "%s: added token %d is the token of byte %d", file, t->byte_id[b], b);
    for (uint32_t i = 0; i <= t->merges_mask; i++)
        if (t->merges[i].rank != UINT32_MAX && (t->tokens[t->merges[i].id].flags & TOKEN_ADDED))
            return calla_fail(err, CALLA_ERR_FORMAT, "%s: merge %u makes added token %d", file, t->merges[i].rank, t->merges[i].id);
    return 0;
}
