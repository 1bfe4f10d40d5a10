/* server.h - one model behind HTTP.
 *
 * One thread runs the event loop and owns every connection and all text; others
 * load the model while the first already answers 503 and read big bodies; the
 * engine has its own.  They meet in calla_request, worker.h and the event `wake`. */
#ifndef CALLA_SERVER_SERVER_H
#define CALLA_SERVER_SERVER_H

#include "calla.h"

struct server_options {
    struct calla_options model;     /* n_usable_ids is filled in from the tokenizer  */
    const char *host;               /* NULL: 127.0.0.1                               */
    int         port;               /* 0: any free one                               */
    const char *api_key;            /* NULL: none                                    */
    bool        no_key;             /* other machines may come without one           */
    const char *cors;               /* origins, comma separated; NULL: none          */
    int         n_queue;            /* requests that may wait                        */
    size_t      max_body_bytes;     /* 0: 64 MB                                      */
    const char *script;             /* test build only; otherwise NULL               */
    void (*on_listen)(void *user, const char *url);  /* bound, before loading        */
    void (*on_ready)(void *user, const char *line);  /* loaded                       */
    void  *user;
};

/* Serves until SIGTERM or SIGINT; 0 after a clean end. */
int server_run(const struct server_options *opt, struct calla_err *err);

#endif
