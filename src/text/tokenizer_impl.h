/* tokenizer_impl.h - what the tokenizer's own files share. */
#ifndef CALLA_TEXT_TOKENIZER_IMPL_H
#define CALLA_TEXT_TOKENIZER_IMPL_H

#include "text/tokenizer.h"
#include "text/tokenizer_scan.h"

enum {
    CALLA_TOKENIZER_MAX_IDS = 1 << 20,
    CALLA_TOKENIZER_MAX_MERGES = 1 << 23,  /* a rank and a position of 7 bits are one int32_t */
    CALLA_TOKENIZER_MAX_ADDED_BYTES = 256, /* of one added token: bounds the search at a position */
};
#define CALLA_TOKENIZER_FILE_LIMIT ((size_t)64 << 20)  /* decompressed          */
#define CALLA_TOKENIZER_TEXT_LIMIT ((size_t)1 << 28)   /* of one encode         */

enum { TOKEN_KNOWN = 1, TOKEN_ADDED = 2, TOKEN_SPECIAL = 4 };

struct calla_token { uint32_t begin, n; uint8_t flags; };

/* left + right become the token of the merge; rank UINT32_MAX: an empty slot. */
struct calla_merge_slot { int32_t left, right; uint32_t rank; int32_t id; };

/* Added tokens by their bytes: a node's children are a list of siblings. */
struct calla_trie_node { int32_t child, sibling, id; unsigned char byte; };

struct calla_tokenizer {
    struct calla_token *tokens;        /* [n_ids], by id                        */
    int      n_ids, cap_ids;
    struct calla_buf bytes;            /* of all tokens, where begin points     */
    int32_t  byte_id[256];
    int32_t *by_bytes;                 /* [by_bytes_mask + 1] ids by hash of their bytes, -1: empty;
                                        * freed after loading                   */
    uint32_t by_bytes_mask;
    struct calla_merge_slot *merges;   /* [merges_mask + 1] by hash of the pair */
    uint32_t merges_mask;
    uint64_t *filter;                  /* [(filter_mask + 1) / 64] a bit a pair */
    uint32_t filter_mask;
    struct calla_trie_node *trie;      /* [n_trie], 0 is the root               */
    int      n_trie, cap_trie;
    int32_t  trie_root[256];           /* node of a first byte, 0: none         */
    void    *split;                    /* pcre2_code                            */
};

static inline uint32_t calla_merge_hash(int32_t left, int32_t right) {
    const uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32);
}

/* The pair's bit in the filter; mixed on its own, since the filter has more bits
 * than there are slots. */
static inline uint32_t calla_merge_bit(int32_t left, int32_t right) {
    return (uint32_t)(((uint64_t)(uint32_t)right << 32 | (uint32_t)left) * 0xD6E8FEB86659FD93u >> 32);
}

/* The slot of a pair, NULL where the pair does not merge.  Of the pairs that
 * Chinese and Japanese text asks for, 7 in 10 do not; the filter (512 KB for the
 * model's vocabulary, where the slots are 8 MB) settles 12 in 13 of those. */
static inline const struct calla_merge_slot *calla_merge_find(const struct calla_tokenizer *t, int32_t left, int32_t right) {
    const uint32_t bit = calla_merge_bit(left, right) & t->filter_mask;
    if (!(t->filter[bit / 64] >> bit % 64 & 1)) return NULL;
    for (uint32_t i = calla_merge_hash(left, right);; i++) {
        const struct calla_merge_slot *m = &t->merges[i & t->merges_mask];
        if (m->left == left && m->right == right) return m;
        if (m->rank == UINT32_MAX) return NULL;
    }
}

/* tokenizer.c: a tokenizer of the text of its files; config may be NULL. */
int calla_tokenizer_new(struct calla_tokenizer **out, const char *file, const char *text, size_t n,
                        const char *config_file, const char *config, size_t n_config, struct calla_err *err);

/* tokenizer_file.c: a file, decompressed where it ends in .zst. */
int calla_tokenizer_read_file(struct calla_buf *out, const char *path, struct calla_err *err);

/* tokenizer_read.c: JSON text into t. */
int calla_tokenizer_read(struct calla_tokenizer *t, const char *file, const char *text, size_t n, struct calla_err *err);
/* The added tokens of a tokenizer_config.json. */
int calla_tokenizer_read_config(struct calla_tokenizer *t, const char *file, const char *text, size_t n, struct calla_err *err);

/* tokenizer_vocab.c: the tables.  The scan says where, in messages. */
int calla_vocab_read(struct calla_tokenizer *t, struct calla_scan *s);       /* at the vocab object  */
int calla_vocab_read_merges(struct calla_tokenizer *t, struct calla_scan *s);/* at the merges array  */
int calla_vocab_add(struct calla_tokenizer *t, struct calla_scan *s, int64_t id, const char *bytes, size_t n, bool special);
int calla_vocab_check(struct calla_tokenizer *t, const char *file, struct calla_err *err); /* no id is missing */
/* Longest added token at p that ends at or before end (-1: none). */
int32_t calla_vocab_match_added(const struct calla_tokenizer *t, const char *p, const char *end, size_t *n);

/* tokenizer_nfc.c */
size_t calla_nfc_quick_prefix(const char *s, size_t n);  /* bytes that NFC leaves alone, whatever follows a
                                                          * prefix that ends before n but for its last character */
bool calla_nfc_add(struct calla_buf *out, const char *s, size_t n); /* s is valid UTF-8; false: no memory */

/* tokenizer_bpe.c: scratch of one call and the merging of one pre-token. */
struct calla_bpe;
struct calla_bpe *calla_bpe_new(const struct calla_tokenizer *t, size_t text_bytes);
void calla_bpe_free(struct calla_bpe *b);
bool calla_bpe_encode(struct calla_bpe *b, const char *piece, size_t n, struct calla_ids *out);

/* tokenizer_split.c: the model's pattern. */
extern const char calla_split_pattern[];   /* as tokenizer.json spells it */
int  calla_split_compile(void **split, struct calla_err *err);
void calla_split_free(void **split);
/* Calls put for every pre-token of text (valid UTF-8). */
int  calla_split_run(const void *split, const char *text, size_t n,
                     bool (*put)(void *user, const char *piece, size_t n), void *user, struct calla_err *err);

#endif
