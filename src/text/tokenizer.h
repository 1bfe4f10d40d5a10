/* tokenizer.h - bytes to token ids and back, as tokenizer.json says.
 *
 * Byte-level BPE with the model's split pattern, NFC and added tokens
 * (docs/model.md, "Tokenizer").  A tokenizer is read-only after open and may be
 * used from any thread; what a call needs is in its own scratch. */
#ifndef CALLA_TEXT_TOKENIZER_H
#define CALLA_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "calla.h"

struct calla_tokenizer;

struct calla_ids { int32_t *v; size_t n, cap; };   /* owned; freed with calla_ids_free */
void calla_ids_free(struct calla_ids *ids);
bool calla_ids_add(struct calla_ids *ids, int32_t id);

/* Bytes [begin, end) of a prompt. */
struct calla_span { size_t begin, end; };

/* path: a tokenizer.json, plain or .zst, or a folder that holds one.  Added
 * tokens of a tokenizer_config.json beside it are read too. */
int  calla_tokenizer_open(struct calla_tokenizer **out, const char *path, struct calla_err *err);
void calla_tokenizer_close(struct calla_tokenizer **t);

/* Appends the ids of text [n].  An added token is recognised only where no
 * byte of it lies in one of the opaque spans (ascending, disjoint): those came
 * from a client.  Bytes that are not UTF-8 become U+FFFD. */
int  calla_tokenizer_encode(const struct calla_tokenizer *t, const char *text, size_t n,
                            const struct calla_span *opaque, size_t n_opaque,
                            struct calla_ids *out, struct calla_err *err);

int  calla_tokenizer_n_ids(const struct calla_tokenizer *t);   /* highest known id + 1 */
/* Bytes of an id (borrowed); NULL for an id that does not exist. */
const char *calla_tokenizer_bytes(const struct calla_tokenizer *t, int32_t id, size_t *n);
bool calla_tokenizer_is_special(const struct calla_tokenizer *t, int32_t id);  /* dropped from visible text */
bool calla_tokenizer_is_added(const struct calla_tokenizer *t, int32_t id);
/* Id of an added token by its text, -1 when there is none. */
int32_t calla_tokenizer_added_id(const struct calla_tokenizer *t, const char *text);

/* Streaming detokenizer: plain value, zero-initialised.  What it emits is
 * always whole, valid UTF-8; a maximal invalid part becomes one U+FFFD. */
struct calla_detokenizer { unsigned char held[4]; int n_held; };
void calla_detokenizer_push(struct calla_detokenizer *d, const char *bytes, size_t n, struct calla_buf *out);
void calla_detokenizer_finish(struct calla_detokenizer *d, struct calla_buf *out);

#endif
