/* turn.h - one question and its answer, for run and chat. */
#ifndef CALLA_CLI_TURN_H
#define CALLA_CLI_TURN_H

#include "cli/common.h"
#include "text/chat.h"

struct json_object;

struct cli_turn {
    struct calla_chat_prompt prompt;
    bool     thinking;            /* the prompt ends inside a think block             */
    bool     raw;                 /* no message: the answer is not taken apart        */

    struct calla_ids     ids;     /* of the answer, its stop id included              */
    struct calla_buf     text;    /* all of it                                        */
    struct calla_message message;
    struct calla_event   done;    /* CALLA_EVENT_DONE                                 */
};

/* The prompt of a conversation (messages, borrowed), as the server makes it. */
int  cli_turn_from_messages(struct cli_turn *t, const struct cli_model *m, struct json_object *messages, bool thinking,
                            struct calla_err *err);
int  cli_turn_from_text(struct cli_turn *t, const struct cli_model *m, const char *text, struct calla_err *err);
void cli_turn_free(struct cli_turn *t);

/* Asks and reads the answer; prints it as it comes where `show` says so.  An
 * answer that was stopped (Ctrl-C) is no error: done.finish says it. */
int  cli_turn_run(struct cli_turn *t, const struct cli_model *m, struct calla_engine *e, const struct calla_sampling *s,
                  int max_tokens, bool show, struct calla_err *err);

/* "stop", "length", "tool_calls", "cancelled" or "error". */
const char *cli_turn_finish(const struct cli_turn *t);

/* Ctrl-C from now on stops the answer.  taken: it was pressed, and is now forgotten. */
void cli_interrupt_install(void);
bool cli_wait_input(int fd);              /* false: Ctrl-C came first, and is still to be taken */
bool cli_interrupt_taken(void);

#endif
