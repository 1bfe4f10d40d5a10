/* conn.h - connections as such: how many, how slow, how much they hold.
 *
 * evhttp knows a read timeout, which one byte a second never reaches, and a
 * limit for one body, but none for all.  So every connection has a record that
 * counts what arrives: a request must be complete in time for its size, and all
 * unfinished ones together stay below a limit.  Event-loop thread. */
#ifndef CALLA_SERVER_CONN_H
#define CALLA_SERVER_CONN_H

#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn;

struct conns {
    struct conn *list;
    int    n;
    unsigned n_opened;
    size_t held_bytes;              /* of requests that are not read yet              */
    size_t max_body_bytes;
    struct evconnlistener *listener;/* paused while there are too many connections    */
};

/* For evhttp_set_bevcb; conns is a struct conns. */
struct bufferevent *conn_open(struct event_base *base, void *conns);
/* Once a second: forgets closed connections, ends those that are too slow. */
void conns_sweep(struct conns *c);
/* Is there a reply that has not left yet? */
bool conns_unsent(const struct conns *c);
void conns_free(struct conns *c);

/* The request has arrived and is being answered: nothing more is expected. */
void conn_request_arrived(struct conns *c, struct evhttp_request *req);
/* Its body is not needed any more. */
void conn_body_read(struct conns *c, struct evhttp_request *req);

#endif
