/* tokenizer_split.c - text into pre-tokens, by the model's pattern in PCRE2.
 *
 * Every character is in exactly one pre-token: what the pattern cannot match
 * does not exist (its last alternatives take any blank, the fourth anything
 * else). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/err.h"
#include "text/tokenizer_impl.h"

const char calla_split_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* The same with \s written out as White_Space: PCRE2's own \s also matches
 * U+180E, which is no blank for Hugging Face's engine. */
#define WHITE "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
static const char pcre_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WHITE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*"
    "|[" WHITE "]*[\\r\\n]+|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]+";

int calla_split_compile(void **split, struct calla_err *err) {
    PCRE2_UCHAR why[128] = { 0 };
    PCRE2_SIZE at;
    int code;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pcre_pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED,
                                   &code, &at, NULL);
    if (re == NULL) {
        pcre2_get_error_message(code, why, sizeof why);
        return calla_fail(err, CALLA_ERR_UNSUPPORTED, "PCRE2 does not compile the split pattern: %s", (const char *)why);
    }
    /* Where the system allows no JIT, the same matches come from the
     * interpreter, at a fifth of the speed. */
    pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
    *split = re;
    return 0;
}

void calla_split_free(void **split) {
    if (*split != NULL) pcre2_code_free(*split);
    *split = NULL;
}

int calla_split_run(const void *split, const char *text, size_t n,
                    bool (*put)(void *user, const char *piece, size_t n), void *user, struct calla_err *err) {
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    pcre2_match_context *ctx = pcre2_match_context_create(NULL);
    int rc = 0;
    if (m == NULL || ctx == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory to split %zu bytes of text", n);
        goto out;
    }
    /* A run is walked back at most once a character, so its length bounds the
     * steps of a match. */
    pcre2_set_match_limit(ctx, UINT32_MAX);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(m);
    for (size_t at = 0; at < n; at = span[1]) {
        const int k = pcre2_match(split, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, m, ctx);
        if (k < 0 || span[1] <= at) {
            rc = calla_fail(err, CALLA_ERR_LIMIT, "splitting the text at byte %zu of %zu failed (PCRE2 error %d)", at, n, k);
            goto out;
        }
        if (!put(user, text + at, span[1] - at)) {
            rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for the ids of %zu bytes of text", n);
            goto out;
        }
    }
out:
    pcre2_match_context_free(ctx);
    pcre2_match_data_free(m);
    return rc;
}
