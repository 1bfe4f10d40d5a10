/* fuzz_tokenizer.c - any bytes as tokenizer.json and, behind a NUL, as the tokenizer_config.json beside it.
 *
 * What is refused names its file in one line; what is accepted encodes, and gives back every byte of plain text. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char sample[] = "er the  e <a><b>\n12 it's \xC3\xA9\xE4\xB8\xAD eeeeeeeeee";

#define MUST(x) do { if (!(x)) abort(); } while (0)

static void check_accepted(const struct calla_tokenizer *t) {
    const size_t n_sample = sizeof sample - 1;
    const struct calla_span all = { 0, n_sample };
    struct calla_ids ids = { 0 };
    struct calla_buf back = { 0 };
    size_t n;
    for (int id = 0; id < calla_tokenizer_n_ids(t); id++) MUST(calla_tokenizer_bytes(t, id, &n) != NULL && n > 0);
    MUST(calla_tokenizer_bytes(t, calla_tokenizer_n_ids(t), &n) == NULL);
    MUST(calla_tokenizer_encode(t, sample, n_sample, NULL, 0, &ids, NULL) == 0);
    ids.n = 0;
    MUST(calla_tokenizer_encode(t, sample, n_sample, &all, 1, &ids, NULL) == 0);
    for (size_t i = 0; i < ids.n; i++) {
        MUST(!calla_tokenizer_is_added(t, ids.v[i]));
        const char *bytes = calla_tokenizer_bytes(t, ids.v[i], &n);
        calla_buf_add(&back, bytes, n);
    }
    MUST(back.n == n_sample && memcmp(back.data, sample, n_sample) == 0);
    calla_ids_free(&ids);
    calla_buf_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *text = (const char *)data, *nul = size ? memchr(text, 0, size) : NULL;
    const size_t n = nul ? (size_t)(nul - text) : size;
    struct calla_tokenizer *t;
    struct calla_err err = { .message = "" };
    const int rc = calla_tokenizer_new(&t, "T.json", text, n, "C.json", nul ? nul + 1 : NULL, nul ? size - n - 1 : 0, &err);
    if (rc == 0) {
        check_accepted(t);
        calla_tokenizer_close(&t);
    } else {
        const size_t k = strlen(err.message);
        MUST(t == NULL && rc < 0 && rc == err.code && strstr(err.message, ".json: ") != NULL);
        MUST(strchr(err.message, '\n') == NULL && calla_utf8_valid_prefix(err.message, k) == k);
    }
    return 0;
}
