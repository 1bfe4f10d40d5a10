/* normalise.h - what a chat client sends, as messages that the template takes.
 *
 * The rules and the table of what the template would raise are in
 * docs/server.md ("Normalise").  Errors name the field. */
#ifndef CALLA_TEXT_NORMALISE_H
#define CALLA_TEXT_NORMALISE_H

#include "text/render.h"

struct calla_normalised {
    struct json_object *messages, *tools;   /* owned; tools NULL when none are offered */
    struct calla_render_input render;       /* points at the two above                  */
    struct json_object *warnings;           /* array of strings, or NULL; owned         */
};
void calla_normalised_free(struct calla_normalised *n);

/* request: the body of a chat completion (messages, tools, tool_choice,
 * chat_template_kwargs, enable_thinking, reasoning_effort, ...).  field (may be
 * NULL) receives the name of the offending field, "messages[3].content". */
int calla_normalise(struct calla_normalised *out, struct json_object *request,
                    char *field, size_t field_cap, struct calla_err *err);

#endif
