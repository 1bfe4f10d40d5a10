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
    SWEEP_EACH = 64,                /* connections: closed ones do not wait for the tick */
    BODIES_AT_ONCE = 4              /* largest bodies that may be arriving together    */
};

struct conn {
    struct conns *all;
    struct conn *next;
    struct bufferevent *bev;        /* holds a reference, so that the socket is closed by forget() alone */
    uint64_t since_ns;              /* first byte of a request that has not arrived; 0: none */
    uint64_t taken_ns;              /* when the client last took bytes of a reply, or got the first */
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

static void on_output(struct evbuffer *buf, const struct evbuffer_cb_info *info, void *arg) {
    struct conn *c = arg;
    (void)buf;
    if (info->n_deleted > 0 || info->orig_size == 0) c->taken_ns = calla_now_ns();
}

struct bufferevent *conn_open(struct event_base *base, void *arg) {
    struct conns *all = arg;
    struct bufferevent *bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    struct conn *c = bev != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) return bev;
    *c = (struct conn){ .all = all, .bev = bev };
    if (evbuffer_add_cb(bufferevent_get_input(bev), on_input, c) == NULL) {
        free(c);
        return bev;
    }
    evbuffer_add_cb(bufferevent_get_output(bev), on_output, c);
    bufferevent_incref(bev);
    if (++all->n_opened % SWEEP_EACH == 0) conns_sweep(all);
    c->next = all->list;
    all->list = c;
    if (++all->n >= MAX_CONNECTIONS && all->listener != NULL) evconnlistener_disable(all->listener);
    return bev;
}

/* evhttp takes its callbacks off when it lets a connection go. */
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
    evbuffer_remove_cb(bufferevent_get_output(c->bev), on_output, c);
    bufferevent_decref(c->bev);
    c->all->n--;
    free(c);
}

void conns_sweep(struct conns *all) {
    const uint64_t now = calla_now_ns();
    for (struct conn **at = &all->list; *at != NULL;) {
        struct conn *c = *at;
        if (closed(c)) {
            forget(at);
            continue;
        }
        const uint64_t allowed_ns = (REQUEST_S + c->received / SLOWEST_BYTES_PER_S) * (uint64_t)1000000000;
        if (c->since_ns != 0 && now - c->since_ns > allowed_ns) drop(c);
        /* Not by evhttp's timeout for writing, which each new chunk starts again. */
        if (evbuffer_get_length(bufferevent_get_output(c->bev)) > 0 && now - c->taken_ns > (uint64_t)SERVER_WRITE_S * 1000000000) drop(c);
        at = &c->next;
    }
    if (all->n < MAX_CONNECTIONS && all->listener != NULL) evconnlistener_enable(all->listener);
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

/* While an answer is computed the client may be silent as long as it likes. */
static void set_timeouts(struct conn *c, int read_s) {
    const struct timeval r = { read_s, 0 };
    bufferevent_set_timeouts(c->bev, read_s > 0 ? &r : NULL, NULL);
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
    /* evhttp reads on only when it writes; a client that leaves before is to be seen as well. */
    bufferevent_data_cb on_write;
    bufferevent_event_cb on_event;
    void *evcon;
    bufferevent_getcb(c->bev, NULL, &on_write, &on_event, &evcon);
    bufferevent_setcb(c->bev, NULL, on_write, on_event, evcon);
    bufferevent_enable(c->bev, EV_READ);
    evhttp_request_set_on_complete_cb(req, on_answered, all);
}

void conn_body_read(struct conns *all, struct evhttp_request *req) {
    struct conn *c = find(all, req);
    if (c == NULL) return;
    c->received = 0;
    set_held(c, 0);
}

bool conns_unsent(const struct conns *all) {
    for (const struct conn *c = all->list; c != NULL; c = c->next)
        if (!closed(c) && evbuffer_get_length(bufferevent_get_output(c->bev)) > 0) return true;
    return false;
}
