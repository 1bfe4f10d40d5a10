/* parser.h - a model's answer, as it streams, to reasoning, content and calls.
 *
 * The rules are docs/model.md, "Answers"; the result is the same however the
 * text is cut.  Deltas are handed out as soon as they are decided. */
#ifndef CALLA_TEXT_PARSER_H
#define CALLA_TEXT_PARSER_H

#include "base/buf.h"
#include "calla.h"

struct json_object;
struct calla_parser;

enum calla_delta_kind {
    CALLA_DELTA_REASONING, CALLA_DELTA_CONTENT,
    CALLA_DELTA_CALL,        /* call_idx begins; text is the function's name   */
    CALLA_DELTA_ARGUMENTS,   /* text is a piece of call_idx's JSON arguments   */
    CALLA_DELTA_CALL_END     /* the arguments of call_idx are complete         */
};
struct calla_delta { enum calla_delta_kind kind; int call_idx; const char *text; size_t n; }; /* text borrowed for the call */

struct calla_parser_options {
    struct json_object *tools;   /* as in a chat request, borrowed and not changed; NULL: no calls */
    bool thinking;               /* the prompt ended inside a think block                          */
    void (*on_delta)(void *user, const struct calla_delta *d);
    void *user;
};

int  calla_parser_new(struct calla_parser **out, const struct calla_parser_options *opt, struct calla_err *err);
void calla_parser_free(struct calla_parser **p);
/* text [n]: valid UTF-8, cut anywhere between characters. */
int  calla_parser_feed(struct calla_parser *p, const char *text, size_t n, struct calla_err *err);
/* The answer ended: by itself, or (cut) by the token limit, which leaves an
 * unfinished call without its CALL_END. */
int  calla_parser_finish(struct calla_parser *p, bool cut, struct calla_err *err);

bool calla_parser_in_reasoning(const struct calla_parser *p);
int  calla_parser_n_calls(const struct calla_parser *p);   /* complete ones */

/* The whole answer as a message, for callers that do not stream: collects the
 * deltas of one parser.  Unfinished calls are left out. */
struct calla_message_call { struct calla_buf name, arguments; bool complete; };
struct calla_message {
    struct calla_buf reasoning, content;
    struct calla_message_call *calls;
    int n_calls;                 /* complete ones: the first of .calls                     */
    int n_begun;                 /* one more while a call is unfinished                    */
};
void calla_message_add(struct calla_message *m, const struct calla_delta *d);
bool calla_message_failed(const struct calla_message *m);   /* out of memory */
void calla_message_free(struct calla_message *m);

#endif
