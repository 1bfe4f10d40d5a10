/* tokenizer_read.c - tokenizer.json and tokenizer_config.json: what is read,
 * what is refused.
 *
 * Everything that Hugging Face `tokenizers` would act on is checked to be what
 * this model has; a file that asks for anything else is an error. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "text/tokenizer_impl.h"

static int unsupported(struct calla_scan *s, const char *what, const char *wanted) {
    const int rc = calla_scan_fail(s, "%s; calla reads %s", what, wanted);
    if (s->err != NULL) s->err->code = CALLA_ERR_UNSUPPORTED;
    return rc == 0 ? 0 : CALLA_ERR_UNSUPPORTED;
}

static int go(struct calla_scan *s, const struct calla_scan_field *f, const char *owner) {
    if (f->at == 0) return calla_scan_fail(s, "%s has no \"%s\"", owner, f->name);
    s->at = f->at;
    return 0;
}

static bool is_null(struct calla_scan *s) { return calla_scan_peek(s) == 'n'; }

/* A string field that must be `value`. */
static int want_string(struct calla_scan *s, const struct calla_scan_field *f, const char *owner, const char *value) {
    char what[160];
    int rc = go(s, f, owner);
    if (rc == 0) rc = calla_scan_string(s);
    if (rc != 0 || calla_scan_is(s, value)) return rc;
    snprintf(what, sizeof what, "\"%s\" of %s is \"%.60s\"", f->name, owner, s->string.data);
    return unsupported(s, what, value);
}

/* A flag that must be `value`. */
static int want_flag(struct calla_scan *s, const struct calla_scan_field *f, const char *owner, bool value) {
    char what[160];
    bool v;
    int rc = go(s, f, owner);
    if (rc == 0) rc = calla_scan_bool(s, &v);
    if (rc != 0 || v == value) return rc;
    snprintf(what, sizeof what, "\"%s\" of %s is %s", f->name, owner, v ? "true" : "false");
    return unsupported(s, what, value ? "true" : "false");
}

/* A field that must be absent, null or, where empty_too, "". */
static int want_nothing(struct calla_scan *s, const struct calla_scan_field *f, const char *owner, bool empty_too) {
    char what[160];
    if (f->at == 0) return 0;
    s->at = f->at;
    if (is_null(s)) return 0;
    if (empty_too) {
        const int rc = calla_scan_string(s);
        if (rc != 0 || s->string.n == 0) return rc;
    }
    snprintf(what, sizeof what, "\"%s\" of %s is set", f->name, owner);
    return unsupported(s, what, empty_too ? "null or \"\"" : "null");
}

static int check_normalizer(struct calla_scan *s) {
    struct calla_scan_field f[] = { { "type", 0 } };
    const int rc = calla_scan_fields(s, f, 1);
    return rc != 0 ? rc : want_string(s, &f[0], "normalizer", "NFC");
}

static int check_split(struct calla_scan *s) {
    enum { TYPE, PATTERN, BEHAVIOR, INVERT, N };
    struct calla_scan_field f[N] = { { "type", 0 }, { "pattern", 0 }, { "behavior", 0 }, { "invert", 0 } };
    struct calla_scan_field regex[] = { { "Regex", 0 } };
    int rc = calla_scan_fields(s, f, N);
    if (rc == 0) rc = want_string(s, &f[TYPE], "the first pre_tokenizer", "Split");
    if (rc == 0) rc = want_string(s, &f[BEHAVIOR], "Split", "Isolated");
    if (rc == 0) rc = want_flag(s, &f[INVERT], "Split", false);
    if (rc == 0) rc = go(s, &f[PATTERN], "Split");
    if (rc == 0) rc = calla_scan_fields(s, regex, 1);
    if (rc == 0) rc = go(s, &regex[0], "the split pattern");
    if (rc == 0) rc = calla_scan_string(s);
    if (rc != 0 || calla_scan_is(s, calla_split_pattern)) return rc;
    char what[300];
    snprintf(what, sizeof what, "the split pattern is \"%.250s\"", s->string.data);
    return unsupported(s, what, "the pattern of docs/model.md, \"Tokenizer\", only");
}

static int check_byte_level(struct calla_scan *s, bool pre) {
    struct calla_scan_field f[] = { { "type", 0 }, { "add_prefix_space", 0 }, { "use_regex", 0 } };
    const char *owner = pre ? "the second pre_tokenizer" : "decoder";
    int rc = calla_scan_fields(s, f, 3);
    if (rc == 0) rc = want_string(s, &f[0], owner, "ByteLevel");
    if (rc == 0 && pre) rc = want_flag(s, &f[1], owner, false);
    if (rc == 0 && pre) rc = want_flag(s, &f[2], owner, false);
    return rc;
}

static int check_pre_tokenizer(struct calla_scan *s) {
    struct calla_scan_field f[] = { { "type", 0 }, { "pretokenizers", 0 } };
    bool more;
    int rc = calla_scan_fields(s, f, 2);
    if (rc == 0) rc = want_string(s, &f[0], "pre_tokenizer", "Sequence");
    if (rc == 0) rc = go(s, &f[1], "pre_tokenizer");
    if (rc == 0) rc = calla_scan_open(s, '[');
    for (int i = 0; rc == 0 && i < 3; i++) {
        if ((rc = calla_scan_next(s, ']', i == 0, &more)) != 0) break;
        if (more != (i < 2)) return unsupported(s, more ? "more than two pretokenizers" : "fewer than two pretokenizers", "Split and ByteLevel");
        if (i == 2) break;
        const size_t begin = s->at;
        rc = i == 0 ? check_split(s) : check_byte_level(s, true);
        s->at = rc == 0 ? begin : s->at;
        if (rc == 0) rc = calla_scan_skip(s);
    }
    return rc;
}

/* ByteLevel only moves offsets; a template would add tokens. */
static int check_post_processor(struct calla_scan *s) {
    struct calla_scan_field f[] = { { "type", 0 } };
    if (is_null(s)) return 0;
    const int rc = calla_scan_fields(s, f, 1);
    return rc != 0 ? rc : want_string(s, &f[0], "post_processor", "ByteLevel");
}

static int read_model(struct calla_tokenizer *t, struct calla_scan *s) {
    enum { TYPE, DROPOUT, PREFIX, SUFFIX, FALLBACK, IGNORE, VOCAB, MERGES, N };
    struct calla_scan_field f[N] = {
        { "type", 0 }, { "dropout", 0 }, { "continuing_subword_prefix", 0 }, { "end_of_word_suffix", 0 },
        { "byte_fallback", 0 }, { "ignore_merges", 0 }, { "vocab", 0 }, { "merges", 0 },
    };
    int rc = calla_scan_fields(s, f, N);
    if (rc == 0) rc = want_string(s, &f[TYPE], "model", "BPE");
    if (rc == 0) rc = want_nothing(s, &f[DROPOUT], "model", false);
    if (rc == 0) rc = want_nothing(s, &f[PREFIX], "model", true);
    if (rc == 0) rc = want_nothing(s, &f[SUFFIX], "model", true);
    if (rc == 0 && f[FALLBACK].at != 0) rc = want_flag(s, &f[FALLBACK], "model", false);
    if (rc == 0 && f[IGNORE].at != 0) rc = want_flag(s, &f[IGNORE], "model", false);
    if (rc == 0) rc = go(s, &f[VOCAB], "model");
    if (rc == 0) rc = calla_vocab_read(t, s);
    if (rc == 0) rc = go(s, &f[MERGES], "model");
    if (rc == 0) rc = calla_vocab_read_merges(t, s);
    return rc;
}

/* The object of an added token; id < 0: it is in the object. */
static int read_added(struct calla_tokenizer *t, struct calla_scan *s, int64_t id) {
    enum { CONTENT, SINGLE, LSTRIP, RSTRIP, NORMALIZED, SPECIAL, ID, N };
    struct calla_scan_field f[N] = {
        { "content", 0 }, { "single_word", 0 }, { "lstrip", 0 }, { "rstrip", 0 }, { "normalized", 0 }, { "special", 0 }, { "id", 0 },
    };
    bool special = false;
    int rc = calla_scan_fields(s, f, N);
    const size_t end = s->at;
    if (rc == 0 && id < 0 && (rc = go(s, &f[ID], "an added token")) == 0) rc = calla_scan_int(s, &id);
    for (int i = SINGLE; rc == 0 && i <= NORMALIZED; i++) rc = want_flag(s, &f[i], "an added token", false);
    if (rc == 0) rc = go(s, &f[SPECIAL], "an added token");
    if (rc == 0) rc = calla_scan_bool(s, &special);
    if (rc == 0) rc = go(s, &f[CONTENT], "an added token");
    if (rc == 0) rc = calla_scan_string(s);
    if (rc == 0) rc = calla_vocab_add(t, s, id, s->string.data, s->string.n, special);
    if (rc == 0) s->at = end;
    return rc;
}

static int read_added_tokens(struct calla_tokenizer *t, struct calla_scan *s) {
    bool more;
    int rc = calla_scan_open(s, '[');
    for (bool first = true; rc == 0 && (rc = calla_scan_next(s, ']', first, &more)) == 0 && more; first = false)
        rc = read_added(t, s, -1);
    return rc;
}

int calla_tokenizer_read(struct calla_tokenizer *t, const char *file, const char *text, size_t n, struct calla_err *err) {
    enum { VERSION, TRUNCATION, PADDING, NORMALIZER, PRE, POST, DECODER, MODEL, ADDED, N };
    struct calla_scan_field f[N] = {
        { "version", 0 }, { "truncation", 0 }, { "padding", 0 }, { "normalizer", 0 }, { "pre_tokenizer", 0 },
        { "post_processor", 0 }, { "decoder", 0 }, { "model", 0 }, { "added_tokens", 0 },
    };
    static const char owner[] = "the tokenizer";
    struct calla_scan s = { .text = text, .n = n, .file = file, .err = err };
    int rc = calla_scan_begin(&s);
    if (rc == 0) rc = calla_scan_fields(&s, f, N);
    if (rc == 0) rc = calla_scan_end(&s);
    if (rc == 0) rc = want_string(&s, &f[VERSION], owner, "1.0");
    if (rc == 0) rc = want_nothing(&s, &f[TRUNCATION], owner, false);
    if (rc == 0) rc = want_nothing(&s, &f[PADDING], owner, false);
    if (rc == 0 && (rc = go(&s, &f[NORMALIZER], owner)) == 0) rc = check_normalizer(&s);
    if (rc == 0 && (rc = go(&s, &f[PRE], owner)) == 0) rc = check_pre_tokenizer(&s);
    if (rc == 0 && (rc = go(&s, &f[POST], owner)) == 0) rc = check_post_processor(&s);
    if (rc == 0 && (rc = go(&s, &f[DECODER], owner)) == 0) rc = check_byte_level(&s, false);
    if (rc == 0 && (rc = go(&s, &f[MODEL], owner)) == 0) rc = read_model(t, &s);
    if (rc == 0 && (rc = go(&s, &f[ADDED], owner)) == 0) rc = read_added_tokens(t, &s);
    calla_buf_free(&s.string);
    return rc;
}

/* {"248070": {"content": ...}, ...} */
static int read_decoder_ids(struct calla_tokenizer *t, struct calla_scan *s) {
    bool more;
    int rc = calla_scan_open(s, '{');
    for (bool first = true; rc == 0 && (rc = calla_scan_next(s, '}', first, &more)) == 0 && more; first = false) {
        char *end;
        const size_t digits = strspn(s->string.data, "0123456789");
        if (digits == 0 || digits > 9 || digits != s->string.n)
            return calla_scan_fail(s, "\"%.40s\" in added_tokens_decoder is not an id", s->string.data);
        rc = read_added(t, s, strtol(s->string.data, &end, 10));
    }
    return rc;
}

int calla_tokenizer_read_config(struct calla_tokenizer *t, const char *file, const char *text, size_t n, struct calla_err *err) {
    struct calla_scan_field f[] = { { "added_tokens_decoder", 0 } };
    struct calla_scan s = { .text = text, .n = n, .file = file, .err = err };
    int rc = calla_scan_begin(&s);
    if (rc == 0) rc = calla_scan_fields(&s, f, 1);
    if (rc == 0) rc = calla_scan_end(&s);
    if (rc == 0 && f[0].at != 0) {
        s.at = f[0].at;
        rc = read_decoder_ids(t, &s);
    }
    calla_buf_free(&s.string);
    return rc;
}
