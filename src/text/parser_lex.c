/* parser_lex.c - cuts an answer into tags, blanks and other text as it comes in. */
#include "text/parser_lex.h"

#include <string.h>

static const struct { const char *text; size_t n; bool named; } tag_table[] = {
    { "<tool_call>", 11, false }, { "</tool_call>", 12, false },
    { "<function=", 10, true },   { "</function>", 11, false },
    { "<parameter=", 11, true },  { "</parameter>", 12, false },
    { "<think>", 7, false },      { "</think>", 8, false },
};
enum { N_TAGS = sizeof tag_table / sizeof *tag_table };

bool calla_is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void calla_lexer_init(struct calla_lexer *lx) {
    *lx = (struct calla_lexer){ .begin = 1, .lexed = 1 };
    calla_buf_char(&lx->held, '\n');   /* the start of the answer is the start of a line */
}

void calla_lexer_free(struct calla_lexer *lx) { calla_buf_free(&lx->held); }

/* Drops taken bytes once they are the larger part, so that each byte moves a
 * bounded number of times. */
static void compact(struct calla_lexer *lx) {
    const size_t gone = lx->begin - 1;
    if (gone == 0 || gone < lx->held.n / 2) return;
    memmove(lx->held.data, lx->held.data + gone, lx->held.n - gone);
    lx->held.n -= gone;
    lx->begin -= gone;
    lx->lexed -= gone;
    for (int i = 0; i < lx->n_queue; i++) lx->queue[i].begin -= gone;
}

void calla_lexer_add(struct calla_lexer *lx, const char *text, size_t n) {
    compact(lx);
    calla_buf_add(&lx->held, text, n);
}

static void make_text(struct calla_lexer *lx, struct calla_lexeme *l) {
    l->kind = LEX_TEXT;
    l->tags = 0;
    l->n = 1;                          /* the '<' alone: what follows it is looked at again, once */
    lx->lexed = l->begin + 1;
}

static unsigned tags_after(const struct calla_lexeme *l, char c, bool *complete, bool *parameter) {
    unsigned left = 0;
    for (int t = 0; t < N_TAGS; t++) {
        if (!(l->tags & 1u << t)) continue;
        const size_t n = tag_table[t].n;
        if (l->n < n) {
            if (tag_table[t].text[l->n] != c) continue;
            *complete |= l->n + 1 == n && !tag_table[t].named;
        } else if (c == '>' && l->n > n) {
            *complete = true;
        } else if (c == '>' || c == '<' || (unsigned char)c < 0x20 || l->n - n >= CALLA_TAG_NAME_BYTES) {
            continue;
        }
        left |= 1u << t;
        *parameter |= 1u << t == TAG_PARAMETER && l->n + 1 >= n;
    }
    return left;
}

/* Lets the last lexeme grow by what has come in since. */
static void extend(struct calla_lexer *lx) {
    if (lx->n_queue == 0) return;
    struct calla_lexeme *l = &lx->queue[lx->n_queue - 1];
    const char *data = lx->held.data;
    const size_t end = lx->held.n;
    while (l->kind == LEX_PARTIAL && lx->lexed < end) {
        bool complete = false;
        const unsigned left = tags_after(l, data[lx->lexed], &complete, &l->parameter);
        if (left == 0) {
            make_text(lx, l);
            break;
        }
        l->tags = left;
        l->n++;
        lx->lexed++;
        if (complete) l->kind = LEX_TAG;
    }
    if (l->kind == LEX_PARTIAL && lx->ended) make_text(lx, l);
    if (l->kind == LEX_BLANKS)
        while (lx->lexed < end && calla_is_blank(data[lx->lexed])) lx->lexed++;
    if (l->kind == LEX_TEXT)
        while (lx->lexed < end && data[lx->lexed] != '<' && !calla_is_blank(data[lx->lexed])) lx->lexed++;
    l->n = lx->lexed - l->begin;
}

const struct calla_lexeme *calla_lexer_get(struct calla_lexer *lx, int i) {
    if (lx->held.failed) return NULL;
    extend(lx);
    while (lx->n_queue <= i) {
        if (lx->lexed == lx->held.n) return NULL;
        if (lx->n_queue > 0 && lx->queue[lx->n_queue - 1].kind == LEX_PARTIAL) return NULL;
        const char c = lx->held.data[lx->lexed];
        lx->queue[lx->n_queue++] = (struct calla_lexeme){
            .kind = c == '<' ? LEX_PARTIAL : calla_is_blank(c) ? LEX_BLANKS : LEX_TEXT,
            .tags = c == '<' ? TAG_ANY : 0,
            .begin = lx->lexed, .n = 1,
            .line_start = lx->held.data[lx->lexed - 1] == '\n' };
        lx->lexed++;
        extend(lx);
    }
    return &lx->queue[i];
}

const char *calla_lexer_text(const struct calla_lexer *lx, const struct calla_lexeme *l) {
    return lx->held.data + l->begin;
}

const char *calla_lexer_name(const struct calla_lexer *lx, const struct calla_lexeme *l, size_t *n) {
    const size_t skip = l->tags == TAG_FUNCTION ? tag_table[2].n : tag_table[4].n;
    *n = l->n - skip - 1;
    return lx->held.data + l->begin + skip;
}

void calla_lexer_take(struct calla_lexer *lx, size_t n_bytes) {
    struct calla_lexeme *head = &lx->queue[0];
    lx->begin += n_bytes;
    head->begin += n_bytes;
    head->n -= n_bytes;
    if (head->n == 0) {
        lx->n_queue--;
        memmove(lx->queue, lx->queue + 1, (size_t)lx->n_queue * sizeof *lx->queue);
    }
}

void calla_lexer_demote(struct calla_lexer *lx) {
    make_text(lx, &lx->queue[0]);
    extend(lx);
}
