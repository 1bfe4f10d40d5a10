/* context.h - what the handlers share; event-loop thread unless said otherwise. */
#ifndef CALLA_SERVER_CONTEXT_H
#define CALLA_SERVER_CONTEXT_H

#include <event2/event.h>
#include <event2/http.h>

#include "server/conn.h"
#include "server/server.h"
#include "text/tokenizer.h"

enum server_phase { SERVER_LOADING, SERVER_READY, SERVER_FAILED };

enum {
    SERVER_IDLE_S = 75,             /* a silent kept connection is closed              */
    SERVER_WRITE_S = 30,            /* a client that takes nothing for so long is gone */
    SERVER_PING_S = 3,              /* silence in a stream before a comment; a tick later at most */
    SERVER_DRAIN_S = 10,            /* running answers may end after SIGTERM           */
    SERVER_UNSENT_BYTES = 4 << 20,  /* a stream's bytes that the client has not taken  */
    SERVER_REPLY_BYTES = 256 << 20, /* a whole answer; logprobs of a long prompt are large */
    SERVER_HEADER_BYTES = 64 << 10,
    SERVER_BODY_BYTES = 64 << 20
};

struct generation;
struct worker;

struct server {
    const struct server_options *opt;
    struct event_base *base;
    struct evhttp *http;
    struct evconnlistener *listener;
    struct conns conns;
    struct event *wake, *tick, *on_term, *on_int;   /* wake is activated by the loader, the worker and the engine */
    struct worker *worker;              /* reads big bodies                               */

    _Atomic int phase;                  /* enum server_phase; the loader moves it on      */
    struct calla_err load_err;          /* written by the loader before SERVER_FAILED     */
    struct calla_tokenizer *tokenizer;  /* these four: written by the loader before       */
    struct calla_model *model;          /* SERVER_READY, read-only after                  */
    struct calla_engine *engine;
    struct calla_model_info info;
    int64_t started;                    /* seconds since 1970                             */
    bool was_ready;                     /* the loop has seen SERVER_READY                 */

    char model_name[128];               /* last part of the folder's path                 */
    char fingerprint[64];
    bool guarded_by_host;               /* bound to loopback without a key: Host is checked */
    bool draining;
    uint64_t drain_end_ns, failed_ns;   /* when answers are cut; when the engine was seen failed, or 0 */
    struct generation *live;            /* answers in progress                            */
    int rc;                             /* why the loop ended                             */
    struct calla_err err;
};

/* routes.c: every request comes here. */
void server_route(struct evhttp_request *req, void *server);

#endif
