/* generation.h - a live answer: one HTTP request, its choices, each a request of the engine.
 *
 * What endpoints have in common is here: reading the body (a big one on the
 * worker), submitting, events, streaming, pings, clients that leave or do not
 * read.  What differs is a struct api.  Event-loop thread, but for api.prepare. */
#ifndef CALLA_SERVER_GENERATION_H
#define CALLA_SERVER_GENERATION_H

#include "base/buf.h"
#include "server/context.h"
#include "server/fields.h"
#include "server/params.h"
#include "server/worker.h"

struct generation;

struct choice {
    struct generation *g;
    int    idx;
    const struct prompt *prompt;
    struct calla_request *request;  /* NULL: not yet submitted, or ended               */
    bool   ended;
    bool   stopped;                 /* nothing more is wanted: choice_stop             */
    int    n_read, n_tokens;        /* prompt ids read; ids taken of the answer        */
    enum calla_finish finish;
    struct calla_usage usage;
};

struct prompt { const int32_t *ids, *boundaries; int n_ids, n_boundaries; };   /* borrowed from the api's data */

struct api {
    const char *prompt_field;       /* "messages": where a prompt's fault lies         */
    /* Any thread.  From g->body to params, prompts and the api's own data; faults
     * go to g->fields.  Without prompts g->out is the whole reply. */
    void (*prepare)(struct generation *g);
    /* Accepted.  Makes a place for each choice's text; a stream's first chunks. */
    int  (*begin)(struct generation *g, struct calla_err *err);
    /* PROMPT and TOKEN. */
    int  (*event)(struct choice *c, const struct calla_event *ev, struct calla_err *err);
    int  (*choice_end)(struct choice *c, struct calla_err *err);
    void (*end)(struct generation *g);    /* all choices have ended: a stream's last bytes, or the whole body */
    void (*free)(struct generation *g);   /* g->data; also after a prepare that failed */
};

struct generation {
    struct job job;
    struct server *s;
    const struct api *api;
    void  *data;                    /* the api's own                                   */
    struct evhttp_request *req;
    struct generation *next;
    bool   preparing, gone, streaming;
    char   id[40];                  /* without its prefix                              */
    int64_t created;                /* seconds since 1970                              */

    struct json_object *body;
    struct fields fields;
    struct gen_params params;
    struct prompt *prompts;         /* [n_prompts], owned; choices are n_prompts x params.n */
    int    n_prompts;
    int    n_top_logprobs;          /* as in calla_request_params                      */
    bool   prompt_logprobs;

    struct choice *choices;
    int    n_choices, n_submitted, n_ended;
    struct calla_buf out;           /* to be sent                                      */
    uint64_t sent_ns;
};

/* Takes the request over: answers it now or later. */
void generation_new(struct server *s, struct evhttp_request *req, const struct api *api);
/* The choice's answer is complete as it is (a stop string was found). */
void choice_stop(struct choice *c);
/* An event of a stream into g->out; name may be NULL. */
void generation_sse(struct generation *g, const char *name, const struct calla_buf *json);

/* For the loop: after `wake`, once a second, and at the end. */
void generations_pump(struct server *s);
void generations_tick(struct server *s);
void generations_cancel(struct server *s);

#endif
