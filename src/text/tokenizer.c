/* tokenizer.c - opening, encoding, and what is known of an id. */
#include "text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"

void calla_ids_free(struct calla_ids *ids) {
    free(ids->v);
    *ids = (struct calla_ids){ 0 };
}

bool calla_ids_add(struct calla_ids *ids, int32_t id) {
    if (ids->n == ids->cap) {
        if (ids->cap > SIZE_MAX / 2 / sizeof *ids->v) return false;
        const size_t cap = ids->cap ? 2 * ids->cap : 64;
        int32_t *p = realloc(ids->v, cap * sizeof *p);
        if (p == NULL) return false;
        ids->v = p;
        ids->cap = cap;
    }
    ids->v[ids->n++] = id;
    return true;
}

/* ---- opening --------------------------------------------------------------- */

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

/* path, or in a folder its tokenizer.json or tokenizer.json.zst. */
static int find_file(struct calla_buf *file, const char *path, struct calla_err *err) {
    struct stat st;
    if (stat(path, &st) != 0) return calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
    calla_buf_str(file, path);
    if (S_ISDIR(st.st_mode)) {
        calla_buf_str(file, "/tokenizer.json");
        if (!file->failed && !exists(file->data)) calla_buf_str(file, ".zst");
        if (!file->failed && !exists(file->data))
            return calla_fail(err, CALLA_ERR_IO, "%s: has neither tokenizer.json nor tokenizer.json.zst; get one from the "
                              "model's checkpoint, or work with ids", path);
    }
    return file->failed ? calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory", path) : 0;
}

/* The text of the tokenizer_config.json beside file; *path stays empty where
 * there is none. */
static int read_beside(struct calla_buf *path, struct calla_buf *text, const char *file, struct calla_err *err) {
    const char *slash = strrchr(file, '/');
    calla_buf_add(path, file, slash ? (size_t)(slash - file) + 1 : 0);
    calla_buf_str(path, "tokenizer_config.json");
    if (path->failed) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory", file);
    if (exists(path->data)) return calla_tokenizer_read_file(text, path->data, err);
    calla_buf_clear(path);
    return 0;
}

int calla_tokenizer_new(struct calla_tokenizer **out, const char *file, const char *text, size_t n,
                        const char *config_file, const char *config, size_t n_config, struct calla_err *err) {
    struct calla_tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    int rc = t ? 0 : calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory", file);
    if (rc == 0) rc = calla_tokenizer_read(t, file, text, n, err);
    if (rc == 0 && config != NULL) rc = calla_tokenizer_read_config(t, config_file, config, n_config, err);
    if (rc == 0) rc = calla_vocab_check(t, file, err);
    if (rc == 0) rc = calla_split_compile(&t->split, err);
    if (rc != 0) {
        calla_tokenizer_close(&t);
        return rc;
    }
    free(t->by_bytes);
    t->by_bytes = NULL;
    *out = t;
    return 0;
}

int calla_tokenizer_open(struct calla_tokenizer **out, const char *path, struct calla_err *err) {
    struct calla_buf file = { 0 }, text = { 0 }, config_file = { 0 }, config = { 0 };
    *out = NULL;
    int rc = find_file(&file, path, err);
    if (rc == 0) rc = calla_tokenizer_read_file(&text, file.data, err);
    if (rc == 0) rc = read_beside(&config_file, &config, file.data, err);
    if (rc == 0) rc = calla_tokenizer_new(out, file.data, text.data, text.n, config_file.data, config_file.n ? config.data : NULL,
                                          config.n, err);
    calla_buf_free(&config);
    calla_buf_free(&config_file);
    calla_buf_free(&text);
    calla_buf_free(&file);
    return rc;
}

void calla_tokenizer_close(struct calla_tokenizer **t) {
    if (*t == NULL) return;
    free((*t)->tokens);
    free((*t)->by_bytes);
    free((*t)->merges);
    free((*t)->filter);
    free((*t)->trie);
    calla_buf_free(&(*t)->bytes);
    calla_split_free(&(*t)->split);
    free(*t);
    *t = NULL;
}

/* ---- encoding -------------------------------------------------------------- */

struct encoder {
    const struct calla_tokenizer *t;
    struct calla_bpe *bpe;
    struct calla_buf repaired, normal;   /* of the text between two added tokens */
    struct calla_ids *out;
    struct calla_err *err;
};

static bool put_piece(void *user, const char *piece, size_t n) {
    struct encoder *e = user;
    return calla_bpe_encode(e->bpe, piece, n, e->out);
}

/* Text without added tokens. */
static int encode_plain(struct encoder *e, const char *text, size_t n) {
    if (n == 0) return 0;
    if (calla_utf8_valid_prefix(text, n) != n) {
        calla_buf_clear(&e->repaired);
        calla_utf8_repair(&e->repaired, text, n);
        if (e->repaired.failed) return calla_fail(e->err, CALLA_ERR_MEMORY, "no memory to encode %zu bytes of text", n);
        text = e->repaired.data;
        n = e->repaired.n;
    }
    if (calla_nfc_quick_prefix(text, n) != n) {
        calla_buf_clear(&e->normal);
        if (!calla_nfc_add(&e->normal, text, n))
            return calla_fail(e->err, CALLA_ERR_MEMORY, "no memory to encode %zu bytes of text", n);
        text = e->normal.data;
        n = e->normal.n;
    }
    return calla_split_run(e->t->split, text, n, put_piece, e, e->err);
}

/* The added token at text[at] that no opaque span touches; span_idx is moved to
 * the first span that ends after at. */
static int32_t added_at(const struct calla_tokenizer *t, const char *text, size_t n, size_t at,
                        const struct calla_span *opaque, size_t n_opaque, size_t *span_idx, size_t *len) {
    while (*span_idx < n_opaque && opaque[*span_idx].end <= at) ++*span_idx;
    size_t end = n;
    for (size_t i = *span_idx; i < n_opaque && opaque[i].begin < at + CALLA_TOKENIZER_MAX_ADDED_BYTES; i++) {
        if (opaque[i].begin == opaque[i].end) continue;
        if (opaque[i].begin <= at) return -1;
        if (opaque[i].begin < n) end = opaque[i].begin;
        break;
    }
    return calla_vocab_match_added(t, text + at, text + end, len);
}

int calla_tokenizer_encode(const struct calla_tokenizer *t, const char *text, size_t n,
                           const struct calla_span *opaque, size_t n_opaque,
                           struct calla_ids *out, struct calla_err *err) {
    if (n == 0) return 0;
    if (n > CALLA_TOKENIZER_TEXT_LIMIT)
        return calla_fail(err, CALLA_ERR_LIMIT, "%zu bytes of text, at most %zu are encoded at once", n, CALLA_TOKENIZER_TEXT_LIMIT);
    struct encoder e = { .t = t, .bpe = calla_bpe_new(t, n), .out = out, .err = err };
    size_t begin = 0, span_idx = 0, len = 0;
    int rc = e.bpe ? 0 : calla_fail(err, CALLA_ERR_MEMORY, "no memory to encode %zu bytes of text", n);
    for (size_t at = 0; rc == 0 && at < n;) {
        if (t->trie_root[(unsigned char)text[at]] == 0) {
            at++;
            continue;
        }
        const int32_t id = added_at(t, text, n, at, opaque, n_opaque, &span_idx, &len);
        if (id < 0) {
            at++;
            continue;
        }
        rc = encode_plain(&e, text + begin, at - begin);
        if (rc == 0 && !calla_ids_add(out, id)) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu ids", out->n);
        begin = at += len;
    }
    if (rc == 0) rc = encode_plain(&e, text + begin, n - begin);
    calla_bpe_free(e.bpe);
    calla_buf_free(&e.repaired);
    calla_buf_free(&e.normal);
    return rc;
}

/* ---- ids ------------------------------------------------------------------- */

static const struct calla_token *token(const struct calla_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->n_ids ? &t->tokens[id] : NULL;
}

int calla_tokenizer_n_ids(const struct calla_tokenizer *t) { return t->n_ids; }

const char *calla_tokenizer_bytes(const struct calla_tokenizer *t, int32_t id, size_t *n) {
    const struct calla_token *k = token(t, id);
    *n = k ? k->n : 0;
    return k ? t->bytes.data + k->begin : NULL;
}

bool calla_tokenizer_is_special(const struct calla_tokenizer *t, int32_t id) {
    const struct calla_token *k = token(t, id);
    return k != NULL && (k->flags & TOKEN_SPECIAL) != 0;
}

bool calla_tokenizer_is_added(const struct calla_tokenizer *t, int32_t id) {
    const struct calla_token *k = token(t, id);
    return k != NULL && (k->flags & TOKEN_ADDED) != 0;
}

int32_t calla_tokenizer_added_id(const struct calla_tokenizer *t, const char *text) {
    size_t n = 0;
    const int32_t id = calla_vocab_match_added(t, text, text + strlen(text), &n);
    return id >= 0 && text[n] == 0 ? id : -1;
}
