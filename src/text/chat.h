/* chat.h - a conversation to ids, and an answer's ids to its parts: what every
 * front end (run, chat, serve) does around the engine, written once.
 *
 * Plain functions over tokenizer.h, render.h and parser.h; any thread, one
 * value a request. */
#ifndef CALLA_TEXT_CHAT_H
#define CALLA_TEXT_CHAT_H

#include "text/parser.h"
#include "text/render.h"
#include "text/tokenizer.h"

struct calla_chat_prompt {
    struct calla_prompt rendered;
    struct calla_ids    ids;
    int32_t *boundaries;     /* positions where a message begins (<|im_start|>), but 0; owned */
    int      n_boundaries;
};
int  calla_chat_prompt_make(struct calla_chat_prompt *out, const struct calla_tokenizer *t,
                            const struct calla_render_input *in, struct calla_err *err);
void calla_chat_prompt_free(struct calla_chat_prompt *p);

/* An answer as it streams: ids in, deltas out through opt->on_delta.  Special
 * tokens (end of turn) are dropped; what is emitted is whole UTF-8. */
struct calla_answer;
int  calla_answer_new(struct calla_answer **out, const struct calla_tokenizer *t,
                      const struct calla_parser_options *opt, struct calla_err *err);
void calla_answer_free(struct calla_answer **a);
int  calla_answer_feed(struct calla_answer *a, int32_t id, struct calla_err *err);
int  calla_answer_finish(struct calla_answer *a, bool cut, struct calla_err *err);
/* The answer's whole text so far, unparsed; borrowed until the next feed. */
const char *calla_answer_text(const struct calla_answer *a, size_t *n);
const struct calla_parser *calla_answer_parser(const struct calla_answer *a);

#endif
