/* fuzz_encode.c - any bytes as text with opaque spans, for the tiny tokenizer.
 *
 * Input: a byte k, 2 * (k % 5) bytes that place spans (a part of the text in 255ths), the text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct calla_tokenizer *tok;

#define MUST(x) do { if (!(x)) abort(); } while (0)

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    struct calla_err err;
    MUST(calla_tokenizer_open(&tok, "tests/golden/data/tiny/mlx", &err) == 0);
    return 0;
}

static void bytes_of(const struct calla_ids *ids, struct calla_buf *out, size_t *n_added) {
    size_t n;
    *n_added = 0;
    for (size_t i = 0; i < ids->n; i++) {
        const char *b = calla_tokenizer_bytes(tok, ids->v[i], &n);
        MUST(b != NULL);
        calla_buf_add(out, b, n);
        *n_added += calla_tokenizer_is_added(tok, ids->v[i]);
    }
    MUST(!out->failed);
}

/* All of it the client's: no added token, and the bytes are its NFC. */
static void check_all_opaque(const char *text, size_t n) {
    const struct calla_span all = { 0, n };
    struct calla_ids ids = { 0 };
    struct calla_buf repaired = { 0 }, back = { 0 };
    utf8proc_uint8_t *want = NULL;
    size_t n_added;
    MUST(calla_tokenizer_encode(tok, text, n, &all, 1, &ids, NULL) == 0);
    bytes_of(&ids, &back, &n_added);
    calla_utf8_repair(&repaired, text, n);
    const utf8proc_ssize_t k = repaired.n == 0 ? 0 : utf8proc_map((const utf8proc_uint8_t *)repaired.data, (utf8proc_ssize_t)repaired.n,
                                                                   &want, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    MUST(n_added == 0 && k >= 0 && back.n == (size_t)k && (k == 0 || memcmp(back.data, want, back.n) == 0));
    free(want);
    calla_ids_free(&ids);
    calla_buf_free(&repaired);
    calla_buf_free(&back);
}

static void check_detokenizer(const struct calla_buf *bytes, size_t cut) {
    struct calla_detokenizer d = { 0 };
    struct calla_buf parts = { 0 }, whole = { 0 };
    calla_utf8_repair(&whole, bytes->data, bytes->n);
    for (size_t at = 0; at < bytes->n; at += cut) {
        const size_t before = parts.n;
        calla_detokenizer_push(&d, bytes->data + at, bytes->n - at < cut ? bytes->n - at : cut, &parts);
        MUST(parts.n == before || calla_utf8_valid_prefix(parts.data + before, parts.n - before) == parts.n - before);
    }
    calla_detokenizer_finish(&d, &parts);
    MUST(parts.n == whole.n && (whole.n == 0 || memcmp(parts.data, whole.data, whole.n) == 0));
    calla_buf_free(&parts);
    calla_buf_free(&whole);
}

static int by_value(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const size_t n_spans = data[0] % 5;
    const size_t head = 1 + 2 * n_spans;
    if (size < head) return 0;
    const char *text = (const char *)data + head;
    const size_t n = size - head;
    size_t edge[8];
    struct calla_span spans[4];
    for (size_t i = 0; i < 2 * n_spans; i++) edge[i] = data[1 + i] * n / 255;
    qsort(edge, 2 * n_spans, sizeof *edge, by_value);
    for (size_t i = 0; i < n_spans; i++) spans[i] = (struct calla_span){ edge[2 * i], edge[2 * i + 1] };
    struct calla_ids ids = { 0 }, open = { 0 };
    struct calla_buf bytes = { 0 }, raw = { 0 };
    size_t n_added, n_open;
    MUST(calla_tokenizer_encode(tok, text, n, spans, n_spans, &ids, NULL) == 0);
    MUST(calla_tokenizer_encode(tok, text, n, NULL, 0, &open, NULL) == 0);
    bytes_of(&ids, &bytes, &n_added);
    calla_buf_add(&raw, text, n);
    bytes_of(&open, &bytes, &n_open);
    check_all_opaque(text, n);
    check_detokenizer(&bytes, 1 + data[0] / 5 % 5);
    check_detokenizer(&raw, 1 + data[0] / 5 % 5);
    calla_ids_free(&ids);
    calla_ids_free(&open);
    calla_buf_free(&bytes);
    calla_buf_free(&raw);
    return 0;
}
