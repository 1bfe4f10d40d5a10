/* server.c - the life of the server: bind, load, serve, drain.  The loop's thread, but for the loader. */
#include "server/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/thread.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/generation.h"
#ifdef CALLA_TEST_HOOKS
#include "calla_test.h"
#endif

static const uint64_t DRAINED_NS = 2000000000;   /* for the last bytes to leave          */
static const uint64_t FAILED_NS = 2000000000;    /* of 503 after a fault, before the end */

/* ---- loading -------------------------------------------------------------------- */

static int load_model(struct server *s, struct calla_err *err) {
    struct calla_options opt = s->opt->model;
    int rc = calla_tokenizer_open(&s->tokenizer, opt.model_dir, err);
    if (rc != 0) {
        calla_err_prefix(err, "a server needs the checkpoint's tokenizer.json");
        return rc;
    }
    opt.n_usable_ids = calla_tokenizer_n_ids(s->tokenizer);
    if ((rc = calla_model_open(&s->model, &opt, err)) != 0) return rc;
    calla_model_info(s->model, &s->info);
    if ((rc = calla_engine_start(&s->engine, s->model, s->opt->n_queue, err)) != 0) return rc;
#ifdef CALLA_TEST_HOOKS
    if (s->opt->script != NULL) rc = calla_engine_script(s->engine, s->opt->script, err);
#endif
    return rc;
}

static void *loader(void *arg) {
    struct server *s = arg;
    s->phase = load_model(s, &s->load_err) == 0 ? SERVER_READY : SERVER_FAILED;
    event_active(s->wake, 0, 0);
    return NULL;
}

static void say_ready(struct server *s) {
    char line[512];
    const struct calla_model_info *m = &s->info;
    snprintf(line, sizeof line, "ready: %s (%s), %s on %s, %d tokens of context, %d answers at once", s->model_name, m->shape_name, m->backend_name,
             m->device, m->ctx_tokens, m->n_sequences);
    if (s->opt->on_ready != NULL) s->opt->on_ready(s->opt->user, line);
}

/* ---- events of the loop ------------------------------------------------------------ */

static void leave(struct server *s, int rc) {
    s->rc = rc;
    event_base_loopbreak(s->base);
}

static void end_if_drained(struct server *s) {
    if (!s->draining || s->live != NULL) return;
    if (!conns_unsent(&s->conns) || calla_now_ns() >= s->drain_end_ns + DRAINED_NS) leave(s, 0);
}

static void on_wake(evutil_socket_t fd, short what, void *arg) {
    struct server *s = arg;
    (void)fd;
    (void)what;
    if (!s->was_ready && s->phase == SERVER_FAILED) {
        s->err = s->load_err;
        leave(s, s->load_err.code);
        return;
    }
    if (!s->was_ready && s->phase == SERVER_READY) {
        s->was_ready = true;
        say_ready(s);
    }
    worker_reap(s->worker);
    generations_pump(s);
    end_if_drained(s);
}

/* A device that faulted is dead, and so is a process that holds it: it says so for a moment, then ends for its
 * supervisor to start another. */
static void end_if_failed(struct server *s) {
    struct calla_engine_status st;
    if (!s->was_ready) return;
    calla_engine_status(s->engine, &st);
    if (!st.failed) return;
    const uint64_t now = calla_now_ns();
    if (s->failed_ns == 0) s->failed_ns = now;
    if (now - s->failed_ns < FAILED_NS || s->live != NULL) return;
    calla_fail(&s->err, CALLA_ERR_DEVICE, "the device has failed; nothing more runs on it");
    leave(s, CALLA_ERR_DEVICE);
}

static void on_tick(evutil_socket_t fd, short what, void *arg) {
    struct server *s = arg;
    (void)fd;
    (void)what;
    conns_sweep(&s->conns);
    generations_tick(s);
    if (s->draining && calla_now_ns() >= s->drain_end_ns) generations_cancel(s);
    end_if_drained(s);
    end_if_failed(s);
}

/* The first signal lets answers end, a second one cuts them. */
static void on_signal(evutil_socket_t fd, short what, void *arg) {
    struct server *s = arg;
    (void)fd;
    (void)what;
    const uint64_t now = calla_now_ns();
    evconnlistener_disable(s->listener);
    s->conns.listener = NULL;
    s->drain_end_ns = s->draining ? now : now + (uint64_t)SERVER_DRAIN_S * 1000000000;
    if (s->draining) generations_cancel(s);
    s->draining = true;
    event_add(s->tick, &(struct timeval){ 0, 20000 });   /* looks often whether all is done */
    end_if_drained(s);
}

/* ---- binding ------------------------------------------------------------------------ */

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET) return (ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24) == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static void say_listening(struct server *s, const char *host) {
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char url[256];
    int port = s->opt->port;
    if (getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&a, &n) == 0)
        port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
    const bool v6 = strchr(host, ':') != NULL;
    snprintf(url, sizeof url, "http://%s%.200s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", port);
    if (s->opt->on_listen != NULL) s->opt->on_listen(s->opt->user, url);
}

static int bind_to(struct server *s, struct calla_err *err) {
    const char *host = s->opt->host != NULL ? s->opt->host : "127.0.0.1";
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    struct addrinfo *a = NULL;
    char port[16];
    int rc = 0;
    const int one = 1;
    snprintf(port, sizeof port, "%d", s->opt->port);
    const int why = getaddrinfo(host, port, &hints, &a);
    if (why != 0) return calla_fail(err, CALLA_ERR_ARGUMENT, "--host %s: %s", host, gai_strerror(why));
    const bool loopback = is_loopback(a->ai_addr);
    if (!loopback && s->opt->api_key == NULL && !s->opt->no_key) {
        rc = calla_fail(err, CALLA_ERR_ARGUMENT, "--host %s lets other machines in; give --api-key KEY, or --no-key when everyone there may use the model", host);
        goto out;
    }
    s->guarded_by_host = loopback && s->opt->api_key == NULL;
    s->listener = evconnlistener_new_bind(s->base, NULL, NULL, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 256, a->ai_addr, (int)a->ai_addrlen);
    if (s->listener == NULL) {
        rc = calla_fail(err, CALLA_ERR_IO, "cannot listen on %s port %d: %s", host, s->opt->port, strerror(errno));
        goto out;
    }
    /* Connections inherit it: a token's chunk is not held back. */
    setsockopt(evconnlistener_get_fd(s->listener), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    evhttp_bind_listener(s->http, s->listener);
    s->conns.listener = s->listener;
    say_listening(s, host);
out:
    freeaddrinfo(a);
    return rc;
}

/* ---- setting up ------------------------------------------------------------------------ */

static void name_model(struct server *s) {
    const char *dir = s->opt->model.model_dir;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && dir[begin - 1] != '/') begin--;
    snprintf(s->model_name, sizeof s->model_name, "%.*s", (int)(n - begin), dir + begin);
    snprintf(s->fingerprint, sizeof s->fingerprint, "calla-%s", calla_version());
}

static int set_up(struct server *s, struct calla_err *err) {
    const struct timeval second = { 1, 0 };
    const size_t most = s->opt->max_body_bytes > 0 ? s->opt->max_body_bytes : SERVER_BODY_BYTES;
    if (evthread_use_pthreads() != 0 || (s->base = event_base_new()) == NULL || (s->http = evhttp_new(s->base)) == NULL)
        return calla_fail(err, CALLA_ERR_MEMORY, "cannot set up the event loop");
    s->conns.max_body_bytes = most;
    evhttp_set_max_body_size(s->http, (ev_ssize_t)most);
    evhttp_set_max_headers_size(s->http, SERVER_HEADER_BYTES);
    evhttp_set_timeout(s->http, SERVER_IDLE_S);
    evhttp_set_flags(s->http, EVHTTP_SERVER_LINGERING_CLOSE);
    evhttp_set_allowed_methods(s->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE | EVHTTP_REQ_PATCH);
    evhttp_set_default_content_type(s->http, NULL);
    evhttp_set_bevcb(s->http, conn_open, &s->conns);
    evhttp_set_gencb(s->http, server_route, s);
    s->wake = event_new(s->base, -1, 0, on_wake, s);
    s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    s->on_term = evsignal_new(s->base, SIGTERM, on_signal, s);
    s->on_int = evsignal_new(s->base, SIGINT, on_signal, s);
    if (s->wake == NULL || s->tick == NULL || s->on_term == NULL || s->on_int == NULL || event_add(s->tick, &second) != 0 ||
        event_add(s->on_term, NULL) != 0 || event_add(s->on_int, NULL) != 0)
        return calla_fail(err, CALLA_ERR_MEMORY, "cannot set up the event loop");
    return worker_start(&s->worker, s->wake, err);
}

static void tear_down(struct server *s) {
    struct event *events[] = { s->tick, s->on_term, s->on_int };
    worker_stop(&s->worker);
    if (s->http != NULL) evhttp_free(s->http);
    conns_free(&s->conns);
    calla_engine_stop(&s->engine);
    calla_model_close(&s->model);
    calla_tokenizer_close(&s->tokenizer);
    for (int i = 0; i < 3; i++)
        if (events[i] != NULL) event_free(events[i]);
    if (s->wake != NULL) event_free(s->wake);
    if (s->base != NULL) event_base_free(s->base);
    free(s);
}

int server_run(const struct server_options *opt, struct calla_err *err) {
    struct server *s = calloc(1, sizeof *s);
    pthread_t thread;
    if (s == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a server");
    s->opt = opt;
    s->started = (int64_t)time(NULL);
    signal(SIGPIPE, SIG_IGN);
    name_model(s);
    int rc = set_up(s, err);
    if (rc == 0) rc = bind_to(s, err);
    if (rc == 0 && pthread_create(&thread, NULL, loader, s) != 0) rc = calla_fail(err, CALLA_ERR_MEMORY, "cannot start the thread that loads the model");
    if (rc != 0) {
        tear_down(s);
        return rc;
    }
    event_base_dispatch(s->base);
    rc = s->rc;
    if (rc != 0 && err != NULL) *err = s->err;
    if (s->phase == SERVER_LOADING) {       /* asked to end: loading cannot be cut, the process ends under it */
        pthread_detach(thread);
        return rc;
    }
    pthread_join(thread, NULL);
    tear_down(s);
    return rc;
}
