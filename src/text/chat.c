#include "text/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void calla_chat_prompt_free(struct calla_chat_prompt *p) {
    calla_prompt_free(&p->rendered);
    calla_ids_free(&p->ids);
    free(p->boundaries);
    *p = (struct calla_chat_prompt){ 0 };
}

int calla_chat_prompt_make(struct calla_chat_prompt *out, const struct calla_tokenizer *t,
                           const struct calla_render_input *in, struct calla_err *err) {
    int rc;
    *out = (struct calla_chat_prompt){ 0 };
    rc = calla_render(&out->rendered, in, err);
    if (rc == 0)
        rc = calla_tokenizer_encode(t, out->rendered.text.data ? out->rendered.text.data : "", out->rendered.text.n,
                                    out->rendered.opaque, out->rendered.n_opaque, &out->ids, err);
    if (rc != 0) goto out;

    const int32_t start = calla_tokenizer_added_id(t, "<|im_start|>");
    int n = 0;
    for (size_t i = 1; i < out->ids.n; i++) n += out->ids.v[i] == start;
    if (start < 0 || n == 0) goto out;
    out->boundaries = malloc((size_t)n * sizeof *out->boundaries);
    if (out->boundaries == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for the boundaries of %d messages", n);
        goto out;
    }
    for (size_t i = 1; i < out->ids.n; i++)
        if (out->ids.v[i] == start) out->boundaries[out->n_boundaries++] = (int32_t)i;
out:
    if (rc != 0) calla_chat_prompt_free(out);
    return rc;
}

struct calla_answer {
    const struct calla_tokenizer *tokenizer;
    struct calla_detokenizer detok;
    struct calla_parser *parser;
    struct calla_buf text;      /* all of it                                        */
};

int calla_answer_new(struct calla_answer **out, const struct calla_tokenizer *t,
                     const struct calla_parser_options *opt, struct calla_err *err) {
    struct calla_answer *a = calloc(1, sizeof *a);
    *out = NULL;
    if (a == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for an answer");
    a->tokenizer = t;
    const int rc = calla_parser_new(&a->parser, opt, err);
    if (rc != 0) {
        free(a);
        return rc;
    }
    *out = a;
    return 0;
}

void calla_answer_free(struct calla_answer **a) {
    if (*a == NULL) return;
    calla_parser_free(&(*a)->parser);
    calla_buf_free(&(*a)->text);
    free(*a);
    *a = NULL;
}

static int feed_from(struct calla_answer *a, size_t begin, struct calla_err *err) {
    if (a->text.failed) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for the text of an answer");
    if (a->text.n == begin) return 0;
    return calla_parser_feed(a->parser, a->text.data + begin, a->text.n - begin, err);
}

int calla_answer_feed(struct calla_answer *a, int32_t id, struct calla_err *err) {
    size_t n;
    const size_t begin = a->text.n;
    const char *bytes = calla_tokenizer_bytes(a->tokenizer, id, &n);
    if (bytes == NULL) return calla_fail(err, CALLA_ERR_ARGUMENT, "id %d is not in the tokenizer", (int)id);
    if (calla_tokenizer_is_special(a->tokenizer, id)) return 0;
    calla_detokenizer_push(&a->detok, bytes, n, &a->text);
    return feed_from(a, begin, err);
}

int calla_answer_finish(struct calla_answer *a, bool cut, struct calla_err *err) {
    const size_t begin = a->text.n;
    calla_detokenizer_finish(&a->detok, &a->text);
    const int rc = feed_from(a, begin, err);
    return rc != 0 ? rc : calla_parser_finish(a->parser, cut, err);
}

const char *calla_answer_text(const struct calla_answer *a, size_t *n) {
    *n = a->text.n;
    return a->text.data ? a->text.data : "";
}

const struct calla_parser *calla_answer_parser(const struct calla_answer *a) { return a->parser; }
