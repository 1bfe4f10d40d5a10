#include "server/conn.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "server/context.h"

enum {
    MAX_CONNECTIONS = 1000,
    REQUEST_S = 30,                 /* for a request to arrive,                        */
    SLOWEST_BYTES_PER_S = 32 << 10, /* and so much more for a long one                 */
    BODIES_AT_ONCE = 4              /* largest bodies that may be arriving together    */
};

struct conn {
    struct conns *all;
    struct conn *next;
    struct bufferevent *bev;        /* holds a reference: evhttp's own end is seen by its callbacks being gone */
    uint64_t since_ns;              /* first byte of a request that has not arrived; 0: none */
    bool     answering;             /* what arrives now belongs to the next request    */
    size_t received, held;
};

static void drop(struct conn *c) {
    const evutil_socket_t fd = bufferevent_getfd(c->bev);
    if (fd >= 0) shutdown(fd, SHUT_RDWR);     /* evhttp finds the end of the stream */
}

static void set_held(struct conn *c, size_t held) {
    c->all->held_bytes += held - c->held;
    c->held = held;
}

static void on_input(struct evbuffer *buf, const struct evbuffer_cb_info *info, void *arg) {
    struct conn *c = arg;
    if (info->n_added == 0) return;
    if (c->answering) {
        if (evbuffer_get_length(buf) > SERVER_HEADER_BYTES) drop(c);
        return;
    }
    if (c->since_ns == 0) c->since_ns = calla_now_ns();
    c->received += info->n_added;
    /* Past the limit evhttp has answered 413 and throws the rest away. */
    const size_t most = c->all->max_body_bytes + SERVER_HEADER_BYTES;
    set_held(c, c->received <= most ? c->received : 0);
    if (c->all->held_bytes > BODIES_AT_ONCE * most) drop(c);
}

struct bufferevent *conn_open(struct event_base *base, void *arg) {
    struct conns *all = arg;
    struct bufferevent *bev = bufferevent_socket_new(base, -1, 0);
    struct conn *c = bev != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) return bev;
    *c = (struct conn){ .all = all, .next = all->list, .bev = bev };
    if (evbuffer_add_cb(bufferevent_get_input(bev), on_input, c) == NULL) {
        free(c);
        return bev;
    }
    bufferevent_incref(bev);
    all->list = c;
    if (++all->n == MAX_CONNECTIONS && all->listener != NULL) evconnlistener_disable(all->listener);
    return bev;
}

static bool closed(const struct conn *c) {
    bufferevent_event_cb on_event;
    bufferevent_getcb(c->bev, NULL, NULL, &on_event, NULL);
    return on_event == NULL;
}

static void forget(struct conn **at) {
    struct conn *c = *at;
    *at = c->next;
    set_held(c, 0);
    evbuffer_remove_cb(bufferevent_get_input(c->bev), on_input, c);
    bufferevent_decref(c->bev);
    c->all->n--;
    free(c);
}

void conns_sweep(struct conns *all) {
    const uint64_t now = calla_now_ns();
    const int before = all->n;
    for (struct conn **at = &all->list; *at != NULL;) {
        struct conn *c = *at;
        if (closed(c)) {
            forget(at);
            continue;
        }
        const uint64_t allowed_ns = (REQUEST_S + c->received / SLOWEST_BYTES_PER_S) * (uint64_t)1000000000;
        if (c->since_ns != 0 && now - c->since_ns > allowed_ns) drop(c);
        at = &c->next;
    }
    if (before >= MAX_CONNECTIONS && all->n < MAX_CONNECTIONS && all->listener != NULL) evconnlistener_enable(all->listener);
}

void conns_free(struct conns *all) {
    while (all->list != NULL) forget(&all->list);
}

static struct conn *find(struct conns *all, struct evhttp_request *req) {
    struct evhttp_connection *evcon = evhttp_request_get_connection(req);
    struct bufferevent *bev = evcon != NULL ? evhttp_connection_get_bufferevent(evcon) : NULL;
    struct conn *c = all->list;
    while (c != NULL && c->bev != bev) c = c->next;
    return c;
}

/* While an answer is computed the client may be silent as long as it likes, but must read. */
static void set_timeouts(struct conn *c, int read_s) {
    const struct timeval r = { read_s, 0 }, w = { SERVER_WRITE_S, 0 };
    bufferevent_set_timeouts(c->bev, read_s > 0 ? &r : NULL, &w);
}

static void on_answered(struct evhttp_request *req, void *arg) {
    struct conn *c = find(arg, req);
    if (c == NULL) return;
    set_timeouts(c, SERVER_IDLE_S);
    const size_t left = evbuffer_get_length(bufferevent_get_input(c->bev));   /* of the next request */
    c->answering = false;
    c->since_ns = left > 0 ? calla_now_ns() : 0;
    c->received = left;
    set_held(c, left);
}

void conn_request_arrived(struct conns *all, struct evhttp_request *req) {
    struct conn *c = find(all, req);
    if (c == NULL) return;
    c->since_ns = 0;
    c->answering = true;
    set_timeouts(c, 0);
    evhttp_request_set_on_complete_cb(req, on_answered, all);
}

void conn_body_read(struct conns *all, struct evhttp_request *req) {
    struct conn *c = find(all, req);
    if (c == NULL) return;
    c->received = 0;
    set_held(c, 0);
}
