/* render.h - a conversation to a prompt: the model's chat template, in C.
 *
 * Byte for byte the shipped Jinja template on every input that it accepts,
 * plus the four named extensions of docs/server.md ("Render").  Knows nothing
 * of clients: what they send goes through normalise.h first. */
#ifndef CALLA_TEXT_RENDER_H
#define CALLA_TEXT_RENDER_H

#include "base/buf.h"
#include "text/tokenizer.h"

struct json_object;

struct calla_prompt {
    struct calla_buf   text;
    struct calla_span *opaque;   /* bytes that came from the client, ascending; owned */
    size_t n_opaque, cap_opaque;
};
void calla_prompt_free(struct calla_prompt *p);

struct calla_render_input {
    struct json_object *messages, *tools;   /* borrowed; tools may be NULL             */
    bool add_generation_prompt;
    bool thinking;               /* false: the generation prompt closes the think block */
    bool preserve_thinking, add_vision_id;
    bool extensions;             /* the four extensions: false is the template alone    */
    bool open_last;              /* extension (c): the last assistant turn stays open    */
};

/* The template's variables as a chat request names them, nothing changed:
 * messages, tools, add_generation_prompt (true unless given), and the switches,
 * in chat_template_kwargs or beside it.  Borrows from request. */
void calla_render_input_of(struct calla_render_input *out, struct json_object *request);

/* CALLA_ERR_ARGUMENT with the template's own sentence where it raises. */
int calla_render(struct calla_prompt *out, const struct calla_render_input *in, struct calla_err *err);

#endif
