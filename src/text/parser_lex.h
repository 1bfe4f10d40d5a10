/* parser_lex.h - the pieces an answer is made of: tags, blanks, other text.
 *
 * Part of the answer parser (parser.c).  Knows the spelling of the tags and
 * nothing of what they mean where they stand.  A byte is looked at a bounded
 * number of times however the text is fed. */
#ifndef CALLA_TEXT_PARSER_LEX_H
#define CALLA_TEXT_PARSER_LEX_H

#include "base/buf.h"

enum {
    TAG_CALL = 1,           /* <tool_call>      */
    TAG_CALL_END = 2,       /* </tool_call>     */
    TAG_FUNCTION = 4,       /* <function=NAME>  */
    TAG_FUNCTION_END = 8,   /* </function>      */
    TAG_PARAMETER = 16,     /* <parameter=KEY>  */
    TAG_PARAMETER_END = 32, /* </parameter>     */
    TAG_THINK = 64,         /* <think>          */
    TAG_THINK_END = 128,    /* </think>         */
    TAG_ANY = 255
};

/* A NAME or KEY is 1 to this many bytes without '<', '>' and control characters. */
enum { CALLA_TAG_NAME_BYTES = 256 };

enum calla_lex_kind {
    LEX_TEXT, LEX_BLANKS, LEX_TAG,
    LEX_PARTIAL             /* the bytes so far may become one of .tags */
};

struct calla_lexeme {
    enum calla_lex_kind kind;
    unsigned tags;          /* LEX_TAG: the one; LEX_PARTIAL: those still possible     */
    size_t   begin, n;      /* in the lexer's held bytes                               */
    bool     line_start;    /* stands at the start of the answer or after a newline    */
    bool     parameter;     /* begins with "<parameter=", whatever follows             */
};

/* Plain value: start with calla_lexer_init.  The head of the queue is the first
 * byte not yet taken; at most N_AHEAD lexemes are looked at from there. */
enum { CALLA_LEX_AHEAD = 8 };
struct calla_lexer {
    struct calla_buf held;  /* [begin - 1] is the byte before the head                 */
    size_t begin, lexed;
    struct calla_lexeme queue[CALLA_LEX_AHEAD];
    int    n_queue;
    bool   ended;           /* no more text comes: what is partial is text             */
};

void calla_lexer_init(struct calla_lexer *lx);
void calla_lexer_free(struct calla_lexer *lx);
void calla_lexer_add(struct calla_lexer *lx, const char *text, size_t n);

/* Lexeme i from the head, NULL when the text so far does not reach it.  Valid
 * until the next call. */
const struct calla_lexeme *calla_lexer_get(struct calla_lexer *lx, int i);
const char *calla_lexer_text(const struct calla_lexer *lx, const struct calla_lexeme *l);
/* The NAME or KEY of a LEX_TAG. */
const char *calla_lexer_name(const struct calla_lexer *lx, const struct calla_lexeme *l, size_t *n);

void calla_lexer_take(struct calla_lexer *lx, size_t n_bytes);   /* of the head, at most all of it */
void calla_lexer_demote(struct calla_lexer *lx);                 /* the head, partial, is text      */

bool calla_is_blank(char c);

#endif
