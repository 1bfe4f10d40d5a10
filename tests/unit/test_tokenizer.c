/* The tokenizer's promises: what it refuses, what it never makes of client
 * text, and that no input costs more than n log n. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <json-c/json.h>
#include <utf8proc.h>
#include <zstd.h>

#include "base/utf8.h"
#include "text/tokenizer_impl.h"

#define TINY "tests/golden/data/tiny/mlx/tokenizer.json"
#define REAL "tests/oracle/data/tokenizer.json.zst"

static char folder[] = "/tmp/calla-tokenizer-XXXXXX";
static struct calla_buf tiny;     /* the text of TINY */
static struct calla_tokenizer *tok;

static int setup(void **unused) {
    (void)unused;
    struct calla_err err;
    if (mkdtemp(folder) == NULL || calla_tokenizer_read_file(&tiny, TINY, &err) != 0) return -1;
    return calla_tokenizer_open(&tok, TINY, &err);
}

static int teardown(void **unused) {
    (void)unused;
    calla_buf_free(&tiny);
    calla_tokenizer_close(&tok);
    return rmdir(folder);
}

static void write_file(const char *name, const void *bytes, size_t n, char path[256]) {
    snprintf(path, 256, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* Opens bytes as name; with a tokenizer_config.json beside it where config is
 * given.  The status; *t is closed. */
static int open_bytes(const char *name, const void *bytes, size_t n, const char *config, struct calla_err *err, int *n_ids) {
    char path[256], config_path[256] = "";
    struct calla_tokenizer *t;
    write_file(name, bytes, n, path);
    if (config != NULL) write_file("tokenizer_config.json", config, strlen(config), config_path);
    const int rc = calla_tokenizer_open(&t, path, err);
    if (n_ids != NULL) *n_ids = rc == 0 ? calla_tokenizer_n_ids(t) : 0;
    calla_tokenizer_close(&t);
    unlink(path);
    if (config != NULL) unlink(config_path);
    return rc;
}

/* TINY with the first `from` replaced. */
static void edited(struct calla_buf *out, const char *from, const char *to) {
    const char *at = strstr(tiny.data, from);
    if (at == NULL) fail_msg("the tiny tokenizer has no %s", from);
    calla_buf_add(out, tiny.data, (size_t)(at - tiny.data));
    calla_buf_str(out, to);
    calla_buf_str(out, at + strlen(from));
}

/* ---- what is refused --------------------------------------------------------- */

static const struct { const char *from, *to, *says; } faults[] = {
    { "\"NFC\"", "\"NFKC\"", "normalizer is \"NFKC\"; calla reads NFC" },
    { "\"NFC\"", "7", "a string should be here" },
    { "\"normalizer\"", "\"normaliser\"", "has no \"normalizer\"" },
    { "\"BPE\"", "\"Unigram\"", "model is \"Unigram\"; calla reads BPE" },
    { "\"Split\"", "\"Digits\"", "is \"Digits\"; calla reads Split" },
    { "\"Isolated\"", "\"Removed\"", "Split is \"Removed\"" },
    { "\"invert\": false", "\"invert\": true", "\"invert\" of Split is true" },
    { "\"invert\": false", "\"invert\": null", "true or false should be here" },
    { "|\\\\p{N}|", "|\\\\p{N}{1,3}|", "the split pattern is" },
    { "\"Sequence\"", "\"Sequences\"", "pre_tokenizer is" },
    { "\"add_prefix_space\": false", "\"add_prefix_space\": true", "\"add_prefix_space\" of the second pre_tokenizer is true" },
    { "\"use_regex\": false", "\"use_regex\": true", "\"use_regex\" of the second pre_tokenizer is true" },
    { "\"ignore_merges\": false", "\"ignore_merges\": true", "\"ignore_merges\" of model is true" },
    { "\"byte_fallback\": false", "\"byte_fallback\": true", "\"byte_fallback\" of model is true" },
    { "\"dropout\": null", "\"dropout\": 0.1", "\"dropout\" of model is set" },
    { "\"version\": \"1.0\"", "\"version\": \"2.0\"", "is \"2.0\"" },
    { "\"truncation\": null", "\"truncation\": {}", "\"truncation\" of the tokenizer is set" },
    { "\"special\": true", "\"special\": 1", "true or false should be here" },
    { "\"normalized\": false", "\"normalized\": true", "\"normalized\" of an added token is true" },
    { "\"lstrip\": false", "\"lstrip\": true", "\"lstrip\" of an added token is true" },
    { "\"id\": 991", "\"id\": 992", "used twice" },
    { "\"id\": 1023", "\"id\": 1025", "id 1023 has no token" },
    { "\"id\": 1023", "\"id\": -1", "id -1 of token" },
    { "\"id\": 1023", "\"id\": 1048576", "outside 0 to 1048575" },
    { "\"id\": 1023", "\"id\": 99999999999999999999", "not a whole number" },
    { "\"id\": 1023", "\"id\": 1e3", "not a whole number" },
    { "\"id\": 1023", "\"id\": \"1023\"", "a whole number should be here" },
    { "\"content\": \"<|endoftext|>\"", "\"content\": \"\"", "token 991 is empty" },
    { "\"content\": \"<|im_end|>\"", "\"content\": \"<|im_start|>\"", "added token \"<|im_start|>\" is id" },
    { "\"!\": 0", "\"!\": 1", "id 1 is used twice" },
    { "\"!\": 0", "\"\": 0", "token 0 is empty" },
    { "\"!\": 0", "\"!!!!\": 0", "no token for byte 33" },
    { "\"!\": 0", "\"\\u4e2d\": 0", "outside the byte-level alphabet" },
    { "\"!\": 0", "\"!\": 0, \"!\": 1024", "ids 0 and 1024 are the same token" },
    { "\"!\": 0", "\"!\": [0]", "a whole number should be here" },
    { "\"merges\": [", "\"merges\": [[\"q\", \"qqqqq\"], ", "merge 0: its right half is not in the vocabulary" },
    { "\"merges\": [", "\"merges\": [[\"!\", \"~\"], ", "merge 0: what it makes is not in the vocabulary" },
    { "\"merges\": [", "\"merges\": [[\"\u0120\", \"\u0120\"], ", "merge 1 is the same as merge 0" },
    { "\"merges\": [", "\"merges\": [[\"e\"], ", "a merge of 1 tokens" },
    { "\"merges\": [", "\"merges\": [[\"e\", \"r\", \"r\"], ", "a merge of more than two" },
    { "\"merges\": [", "\"merges\": [\"er\", ", "has no blank" },
    { "\"merges\": [", "\"merges\": [\"e r r\", ", "outside the byte-level alphabet" },
    { "\"merges\": [", "\"merges\": [17, ", "a string should be here" },
    { "\"merges\": [", "\"merges\": 17, \"x\": [", "an array should be here" },
    { "\"vocab\": {", "\"vocab\": {}, \"vocab\": {", "\"vocab\" comes twice" },
    { "\"decoder\": {", "\"decoder\": {\"x\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "deeper than 64" },
    { "\"!\": 0", "\"\\ud800\": 0", "half a surrogate pair" },
    { "\"!\": 0", "\"\\x21\": 0", "an escape of JSON" },
    { "\"!\": 0", "\"!\": 00", "begins with 0" },
    { "\"!\": 0", "\"\xFF\": 0", "not UTF-8" },
};

static void test_each_fault_is_named(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct calla_buf text = { 0 };
        struct calla_err err = { 0 };
        edited(&text, faults[i].from, faults[i].to);
        const int rc = open_bytes("tokenizer.json", text.data, text.n, NULL, &err, NULL);
        if (rc >= 0 || strstr(err.message, faults[i].says) == NULL || strstr(err.message, "tokenizer.json") == NULL)
            fail_msg("%s for %s: %d \"%s\", wanted \"%s\"", faults[i].to, faults[i].from, rc, err.message, faults[i].says);
        calla_buf_free(&text);
    }
}

static void test_a_file_cut_anywhere_is_refused(void **unused) {
    (void)unused;
    struct calla_err err;
    for (size_t n = 0; n < tiny.n - 2; n += n < 3000 || n > tiny.n - 200 ? 1 : 997)
        assert_int_not_equal(open_bytes("tokenizer.json", tiny.data, n, NULL, &err, NULL), 0);
    struct calla_buf more = { 0 };
    calla_buf_add(&more, tiny.data, tiny.n);
    calla_buf_str(&more, "{}");
    assert_int_equal(open_bytes("tokenizer.json", more.data, more.n, NULL, &err, NULL), CALLA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "something follows"));
    calla_buf_free(&more);
    assert_int_equal(calla_tokenizer_open(&(struct calla_tokenizer *){ NULL }, "/nowhere/tokenizer.json", &err), CALLA_ERR_IO);
    assert_int_equal(calla_tokenizer_open(&(struct calla_tokenizer *){ NULL }, folder, &err), CALLA_ERR_IO);
    assert_non_null(strstr(err.message, "neither tokenizer.json nor tokenizer.json.zst"));
}

static void test_zstd_is_bounded(void **unused) {
    (void)unused;
    struct calla_err err;
    int n_ids;
    const size_t n_bomb = CALLA_TOKENIZER_FILE_LIMIT + (1 << 20);
    char *bomb = malloc(n_bomb);
    assert_non_null(bomb);
    memset(bomb, ' ', n_bomb);
    const size_t cap = ZSTD_compressBound(n_bomb);
    char *packed = malloc(cap);
    assert_non_null(packed);
    size_t n = ZSTD_compress(packed, cap, bomb, n_bomb, 1);
    assert_true(n < 100000);
    assert_int_equal(open_bytes("tokenizer.json.zst", packed, n, NULL, &err, NULL), CALLA_ERR_LIMIT);
    free(bomb);
    n = ZSTD_compress(packed, cap, tiny.data, tiny.n, 3);
    assert_int_equal(open_bytes("tokenizer.json.zst", packed, n, NULL, &err, &n_ids), 0);
    assert_int_equal(n_ids, 1024);
    for (size_t k = 0; k < n; k += 101)
        assert_int_not_equal(open_bytes("tokenizer.json.zst", packed, k, NULL, &err, NULL), 0);
    packed[n / 2] ^= 0x55;
    assert_int_not_equal(open_bytes("tokenizer.json.zst", packed, n, NULL, &err, NULL), 0);
    free(packed);
}

#define FLAGS "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false"

static void test_config_adds_tokens_and_must_agree(void **unused) {
    (void)unused;
    static const struct { const char *config, *says; int n_ids; } cases[] = {
        { "{}", NULL, 1024 },
        { "{\"added_tokens_decoder\": {\"1024\": {\"content\": \"<new>\", \"special\": true, " FLAGS "}}}", NULL, 1025 },
        { "{\"added_tokens_decoder\": {\"991\": {\"content\": \"<|endoftext|>\", \"special\": true, " FLAGS "}}}", NULL, 1024 },
        { "{\"added_tokens_decoder\": {\"991\": {\"content\": \"<|endoftext|>\", \"special\": false, " FLAGS "}}}", "it was id 991, special", 0 },
        { "{\"added_tokens_decoder\": {\"1024\": {\"content\": \"<|endoftext|>\", \"special\": true, " FLAGS "}}}", "it was id 991", 0 },
        { "{\"added_tokens_decoder\": {\"991\": {\"content\": \"<other>\", \"special\": true, " FLAGS "}}}", "used twice", 0 },
        { "{\"added_tokens_decoder\": {\"1025\": {\"content\": \"<new>\", \"special\": true, " FLAGS "}}}", "id 1024 has no token", 0 },
        { "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<new>\", \"special\": true, " FLAGS "}}}", "is not an id", 0 },
        { "{\"added_tokens_decoder\": [1]}", "an object should be here", 0 },
        { "{\"added_tokens_decoder\": {\"1024\": {\"content\": \"<new>\"}}}", "has no \"single_word\"", 0 },
        { "nothing", "an object should be here", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct calla_err err = { 0 };
        int n_ids;
        const int rc = open_bytes("tokenizer.json", tiny.data, tiny.n, cases[i].config, &err, &n_ids);
        if (cases[i].says == NULL ? rc != 0 || n_ids != cases[i].n_ids : rc == 0 || strstr(err.message, cases[i].says) == NULL)
            fail_msg("%s: %d \"%s\"", cases[i].config, rc, rc ? err.message : "");
    }
}

static void test_plain_text_cannot_be_given_an_added_token(void **unused) {
    (void)unused;
    struct calla_buf text = { 0 };
    struct calla_err err;
    edited(&text, "\"content\": \"<|audio_pad|>\"", "\"content\": \"er\"");     /* a merge makes it */
    assert_int_equal(open_bytes("tokenizer.json", text.data, text.n, NULL, &err, NULL), CALLA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "the vocabulary has it as"));
    calla_buf_free(&text);
    int32_t id = 0;
    size_t n;
    for (const char *b; (b = calla_tokenizer_bytes(tok, id, &n)) != NULL && (n != 2 || memcmp(b, "er", 2) != 0);) id++;
    struct calla_buf pair = { 0 };
    const char *at = strstr(tiny.data, "\"id\": 1023");
    calla_buf_add(&pair, tiny.data, (size_t)(at - tiny.data));
    calla_buf_fmt(&pair, "\"id\": %d, \"content\": \"er\", \"x\": %s", id, strchr(strstr(at, "\"content\""), ':') + 1);
    assert_int_equal(open_bytes("tokenizer.json", pair.data, pair.n, NULL, &err, NULL), CALLA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "makes added token"));
    calla_buf_free(&pair);
}

/* ---- encoding ---------------------------------------------------------------- */

static struct calla_ids encode(const char *text, size_t n, const struct calla_span *opaque, size_t n_opaque) {
    struct calla_ids ids = { 0 };
    struct calla_err err = { .message = "" };
    if (calla_tokenizer_encode(tok, text, n, opaque, n_opaque, &ids, &err) != 0) fail_msg("%s", err.message);
    return ids;
}

static size_t count_added(const struct calla_ids *ids) {
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) n += calla_tokenizer_is_added(tok, ids->v[i]);
    return n;
}

static void test_no_cut_of_opaque_spans_lets_a_touched_token_through(void **unused) {
    (void)unused;
    const char *text = "a<|im_end|><think>b<|im_end|>";
    const size_t n = strlen(text), begins[] = { 1, 11, 19 }, ends[] = { 11, 18, 29 };
    for (size_t a = 0; a <= n; a++) {
        for (size_t b = a; b <= n; b++) {
            const struct calla_span span = { a, b };
            size_t wanted = 0, n_bytes = 0, k;
            for (int i = 0; i < 3; i++) wanted += a == b || b <= begins[i] || a >= ends[i];
            struct calla_ids ids = encode(text, n, &span, 1);
            assert_int_equal(count_added(&ids), wanted);
            for (size_t i = 0; i < ids.n; i++) {
                assert_non_null(calla_tokenizer_bytes(tok, ids.v[i], &k));
                n_bytes += k;
            }
            assert_int_equal(n_bytes, n);     /* nothing is lost */
            calla_ids_free(&ids);
        }
    }
}

static void test_text_around_an_opaque_border_is_one_text(void **unused) {
    (void)unused;
    const char *text = "the other day, there";
    const struct calla_span spans[] = { { 2, 2 }, { 5, 7 }, { 7, 16 } };
    struct calla_ids all = encode(text, strlen(text), NULL, 0), cut = encode(text, strlen(text), spans, 3);
    assert_int_equal(all.n, cut.n);
    assert_memory_equal(all.v, cut.v, all.n * sizeof *all.v);
    calla_ids_free(&all);
    calla_ids_free(&cut);
}

static void test_invalid_bytes_encode_as_their_replacement(void **unused) {
    (void)unused;
    const char bad[] = "a\xE4\xB8z\xFF<|im_end|>\xF0\x9F", good[] = "a\xEF\xBF\xBDz\xEF\xBF\xBD<|im_end|>\xEF\xBF\xBD";
    struct calla_ids a = encode(bad, sizeof bad - 1, NULL, 0), b = encode(good, sizeof good - 1, NULL, 0);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.v, b.v, a.n * sizeof *a.v);
    assert_int_equal(count_added(&a), 1);
    calla_ids_free(&a);
    calla_ids_free(&b);
}

static void test_ids_know_what_they_are(void **unused) {
    (void)unused;
    size_t n;
    const int32_t end = calla_tokenizer_added_id(tok, "<|im_end|>"), think = calla_tokenizer_added_id(tok, "<think>");
    assert_int_equal(end, 993);
    assert_true(calla_tokenizer_is_special(tok, end));
    assert_false(calla_tokenizer_is_special(tok, think));
    assert_true(calla_tokenizer_is_added(tok, think));
    assert_false(calla_tokenizer_is_added(tok, 0));
    assert_int_equal(calla_tokenizer_added_id(tok, "<|im_end|"), -1);
    assert_int_equal(calla_tokenizer_added_id(tok, "<|im_end|>x"), -1);
    assert_int_equal(calla_tokenizer_added_id(tok, ""), -1);
    assert_null(calla_tokenizer_bytes(tok, -1, &n));
    assert_null(calla_tokenizer_bytes(tok, 1024, &n));
    assert_memory_equal(calla_tokenizer_bytes(tok, end, &n), "<|im_end|>", 10);
    assert_int_equal(n, 10);
}

/* The straightforward way: merge the leftmost pair of the lowest rank, again
 * and again. */
static size_t merge_plainly(const char *text, size_t n, int32_t *id) {
    for (size_t i = 0; i < n; i++) id[i] = tok->byte_id[(unsigned char)text[i]];
    for (;;) {
        const struct calla_merge_slot *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const struct calla_merge_slot *m = NULL;
            for (uint32_t k = 0; k <= tok->merges_mask && m == NULL; k++)
                if (tok->merges[k].left == id[i] && tok->merges[k].right == id[i + 1]) m = &tok->merges[k];
            if (m != NULL && (best == NULL || m->rank < best->rank)) best = m, at = i;
        }
        if (best == NULL) return n;
        id[at] = best->id;
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}

static void test_short_and_long_merging_are_the_plain_one(void **unused) {
    (void)unused;
    static const char letters[] = "etaoinshrdlu";
    uint64_t x = 88172645463325252u;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int trial = 0; trial < 40; trial++) {
        char text[300];
        int32_t want[300];
        const size_t n = trial < 30 ? (size_t)(trial * 3 + 2) : (size_t)(120 + trial);   /* 128 is the border */
        for (size_t i = 0; i < n; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            text[i] = letters[x % (sizeof letters - 1)];
        }
        const size_t k = merge_plainly(text, n, want);
        struct calla_ids ids = encode(text, n, NULL, 0);
        assert_int_equal(ids.n, k);
        assert_memory_equal(ids.v, want, k * sizeof *want);
        calla_ids_free(&ids);
    }
}

/* ---- NFC --------------------------------------------------------------------- */

static void test_quick_characters_are_inert(void **unused) {
    (void)unused;
    uint8_t *second = calloc(0x110000, 1);     /* may compose with what stands before it */
    assert_non_null(second);
    size_t n_quick = 0;
    for (int32_t cp = 0; cp < 0x110000; cp++) {
        utf8proc_int32_t parts[8];
        int boundary = 0;
        const utf8proc_ssize_t n = utf8proc_decompose_char(cp, parts, 8, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
        for (utf8proc_ssize_t i = 1; i < n; i++) second[parts[i]] = 1;
    }
    for (int32_t cp = 1; cp < 0x110000; cp++) {
        char s[5] = { 0 };
        if (cp >= 0xD800 && cp < 0xE000) continue;
        const size_t n = (size_t)calla_utf8_encode((uint32_t)cp, s);
        if (calla_nfc_quick_prefix(s, n) == 0) continue;
        char *nfc = (char *)utf8proc_NFC((const utf8proc_uint8_t *)s);
        n_quick++;
        if (strcmp(nfc, s) != 0 || second[cp] || utf8proc_get_property(cp)->combining_class != 0) fail_msg("U+%04X is not inert", cp);
        free(nfc);
    }
    assert_true(n_quick > 39000);
    free(second);
}

static void test_nfc_is_utf8procs_on_random_text(void **unused) {
    (void)unused;
    static const uint32_t pool[] = { 'a', 'e', ' ', 0xE9, 0x300, 0x301, 0x316, 0x334, 0x345, 0x344, 0x1100, 0x1161, 0x11A8, 0xAC00, 0x915, 0x93C,
                                     0x958, 0x304B, 0x3099, 0x4E2D, 0x212B, 0x1E0A, 0x323, 0x307, 0xFB1D, 0x1D15E, 0x3000, 0x2ADC };
    uint64_t x = 1234567890123u;
    print_message("seed %llu\n", (unsigned long long)x);
    for (int trial = 0; trial < 20000; trial++) {
        struct calla_buf text = { 0 }, got = { 0 };
        for (int i = 0, n = 1 + trial % 60; i < n; i++) {
            char s[4];
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            const uint32_t cp = pool[(x >> 20) % (trial % 3 ? sizeof pool / sizeof *pool : 11)];
            calla_buf_add(&text, s, (size_t)calla_utf8_encode(cp, s));
        }
        assert_true(calla_nfc_add(&got, text.data, text.n));
        char *want = (char *)utf8proc_NFC((const utf8proc_uint8_t *)text.data);
        assert_string_equal(got.data, want);
        free(want);
        calla_buf_free(&text);
        calla_buf_free(&got);
    }
}

/* ---- cost -------------------------------------------------------------------- */

static double cpu_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double least_cost(const char *text, size_t n, int n_times) {
    double least = 1e9;
    for (int i = 0; i < n_times; i++) {
        const double begin = cpu_s();
        struct calla_ids ids = encode(text, n, NULL, 0);
        const double s = cpu_s() - begin;
        calla_ids_free(&ids);
        if (s < least) least = s;
    }
    return least;
}

/* Sixteen times the text may cost at most 4 times what n log n makes of it:
 * 16 * 20 / 16 = 20, so 80; a square would cost 256. */
static void test_a_megabyte_of_anything_is_not_quadratic(void **unused) {
    (void)unused;
    static const char *const units[] = { "a", " ", "\n", " \n", "!", "7", "<", "<|im_end|", "\xC2\xA0", "e\xCC\x81", "\xCC\x81\xCC\x96", "\xE4\xB8\xAD",
                                         "\r", "'s", "\xF0\x9F\x91\xA9", "\xFF", "\xE1\x84\x80\xE1\x85\xA1", "ab", "\t " };
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        struct calla_buf text = { 0 };
        const size_t n = 1 << 20;
        while (text.n < n) calla_buf_str(&text, units[u]);
        const double whole = least_cost(text.data, n, 2), part = least_cost(text.data, n / 16, 4);
        if (whole > 80 * part) fail_msg("\"%s\": a megabyte costs %.1f times a sixteenth of it", units[u], whole / part);
        calla_buf_free(&text);
    }
}

/* Against json-c's tree of the same text, which alone took 0.2 to 0.3 s where
 * 0.5 s is what loading may take. */
static void test_loading_costs_less_than_twice_a_json_tree(void **unused) {
    (void)unused;
    struct calla_err err;
    struct calla_buf text = { 0 };
    double tree = 1e9, load = 1e9;
    assert_int_equal(calla_tokenizer_read_file(&text, REAL, &err), 0);
    for (int i = 0; i < 3; i++) {
        double begin = cpu_s();
        struct json_tokener *j = json_tokener_new();
        struct json_object *o = json_tokener_parse_ex(j, text.data, (int)text.n);
        assert_non_null(o);
        json_object_put(o);
        json_tokener_free(j);
        if (cpu_s() - begin < tree) tree = cpu_s() - begin;
        begin = cpu_s();
        struct calla_tokenizer *t;
        assert_int_equal(calla_tokenizer_open(&t, REAL, &err), 0);
        assert_int_equal(calla_tokenizer_n_ids(t), 248070);
        calla_tokenizer_close(&t);
        if (cpu_s() - begin < load) load = cpu_s() - begin;
    }
    calla_buf_free(&text);
    if (load > 2 * tree) fail_msg("loading costs %.2f of json-c's tree", load / tree);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_fault_is_named),
        cmocka_unit_test(test_a_file_cut_anywhere_is_refused),
        cmocka_unit_test(test_zstd_is_bounded),
        cmocka_unit_test(test_config_adds_tokens_and_must_agree),
        cmocka_unit_test(test_plain_text_cannot_be_given_an_added_token),
        cmocka_unit_test(test_no_cut_of_opaque_spans_lets_a_touched_token_through),
        cmocka_unit_test(test_text_around_an_opaque_border_is_one_text),
        cmocka_unit_test(test_invalid_bytes_encode_as_their_replacement),
        cmocka_unit_test(test_ids_know_what_they_are),
        cmocka_unit_test(test_short_and_long_merging_are_the_plain_one),
        cmocka_unit_test(test_quick_characters_are_inert),
        cmocka_unit_test(test_nfc_is_utf8procs_on_random_text),
        cmocka_unit_test(test_a_megabyte_of_anything_is_not_quadratic),
        cmocka_unit_test(test_loading_costs_less_than_twice_a_json_tree),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
