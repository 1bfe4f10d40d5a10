#include "server/generation.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "server/http.h"

enum {
    WORKER_BYTES = 64 << 10,        /* a larger body is read on the worker (64 KB: ~7 ms) */
    EVENTS_AT_ONCE = 256            /* of one answer before others have their turn        */
};

static bool submit_more(struct generation *g);

/* ---- the end of an answer --------------------------------------------------- */

static void destroy(struct generation *g) {
    for (struct generation **at = &g->s->live; *at != NULL; at = &(*at)->next)
        if (*at == g) {
            *at = g->next;
            break;
        }
    for (int i = 0; i < g->n_choices; i++) calla_request_free(&g->choices[i].request);
    g->api->free(g);
    params_free(&g->params);
    json_object_put(g->body);
    calla_buf_free(&g->out);
    free(g->prompts);
    free(g->choices);
    free(g);
}

/* The request leaves our hands: its reply is on the way. */
static struct evhttp_request *take_request(struct generation *g) {
    struct evhttp_request *req = g->req;
    struct evhttp_connection *evcon = evhttp_request_get_connection(req);
    if (evcon != NULL) evhttp_connection_set_closecb(evcon, NULL, NULL);
    g->req = NULL;
    return req;
}

static void send_out(struct generation *g) {
    struct evbuffer *chunk = evbuffer_new();
    if (chunk != NULL) evbuffer_add(chunk, g->out.data, g->out.n);
    calla_buf_clear(&g->out);
    g->sent_ns = calla_now_ns();
    if (chunk == NULL) return;
    evhttp_send_reply_chunk(g->req, chunk);
    evbuffer_free(chunk);
}

static void fail(struct generation *g, const char *param, const struct calla_err *err) {
    if (g->streaming) {
        struct calla_buf json = { 0 };
        http_error_body(&json, err->code == CALLA_ERR_ARGUMENT ? 400 : 500, param, NULL, err->message);
        generation_sse(g, NULL, &json);
        calla_buf_free(&json);
        send_out(g);
        evhttp_send_reply_end(take_request(g));
    } else if (err->code == CALLA_ERR_LIMIT && g->n_prompts > 0 && g->n_submitted == 0)
        http_error(g->s, take_request(g), 400, param, "context_length_exceeded", err->message);
    else http_fail(g->s, take_request(g), param, err);
    destroy(g);
}

static void finish(struct generation *g) {
    g->api->end(g);
    if (g->out.failed) {
        calla_buf_clear(&g->out);
        fail(g, NULL, &(struct calla_err){ CALLA_ERR_MEMORY, "the answer is larger than the server keeps; ask for fewer logprobs" });
        return;
    }
    if (g->streaming) {
        send_out(g);
        evhttp_send_reply_end(take_request(g));
    } else http_json(g->s, take_request(g), 200, &g->out);
    destroy(g);
}

/* The client is gone: evhttp has let the request go, which only has to be freed. */
static void on_close(struct evhttp_connection *evcon, void *arg) {
    struct generation *g = arg;
    (void)evcon;
    g->gone = true;
    if (g->preparing) return;       /* the worker reads its body; on_prepared ends it  */
    evhttp_send_reply_end(g->req);
    g->req = NULL;
    destroy(g);
}

/* ---- streaming ------------------------------------------------------------------ */

void generation_sse(struct generation *g, const char *name, const struct calla_buf *json) {
    if (name != NULL) calla_buf_fmt(&g->out, "event: %s\n", name);
    calla_buf_str(&g->out, "data: ");
    calla_buf_add(&g->out, json->data != NULL ? json->data : "", json->n);
    calla_buf_str(&g->out, "\n\n");
    if (json->failed) g->out.failed = true;
}

static void start_stream(struct generation *g) {
    struct evkeyvalq *h = evhttp_request_get_output_headers(g->req);
    http_common_headers(g->s, g->req);
    evhttp_add_header(h, "Content-Type", "text/event-stream; charset=utf-8");
    evhttp_add_header(h, "X-Accel-Buffering", "no");
    evhttp_send_reply_start(g->req, 200, "OK");
    g->streaming = true;
    g->sent_ns = calla_now_ns();
}

/* Sends what there is, or ends a client that does not read. */
static void flush(struct generation *g) {
    struct evhttp_connection *evcon = evhttp_request_get_connection(g->req);
    if (!g->streaming || g->out.n == 0 || evcon == NULL) return;
    struct bufferevent *bev = evhttp_connection_get_bufferevent(evcon);
    /* Before, not after: a single chunk may be as large as it is. */
    if (evbuffer_get_length(bufferevent_get_output(bev)) > SERVER_UNSENT_BYTES) {
        shutdown(bufferevent_getfd(bev), SHUT_RDWR);     /* on_close follows */
        return;
    }
    send_out(g);
}

/* ---- events ------------------------------------------------------------------------ */

void choice_stop(struct choice *c) {
    c->stopped = true;
    if (c->request != NULL) calla_request_cancel(c->request);
}

/* One event of one choice; negative ends the whole answer. */
static int take(struct choice *c, const struct calla_event *ev, struct calla_err *err) {
    struct generation *g = c->g;
    switch (ev->kind) {
    case CALLA_EVENT_PREFILL: c->n_read = ev->pos; return 0;
    case CALLA_EVENT_PROMPT: return c->stopped ? 0 : g->api->event(c, ev, err);
    case CALLA_EVENT_TOKEN:
        if (c->stopped) return 0;
        c->n_tokens++;
        return g->api->event(c, ev, err);
    case CALLA_EVENT_DONE: break;
    }
    c->finish = ev->finish;
    c->usage = ev->usage;
    c->ended = true;
    g->n_ended++;
    calla_request_free(&c->request);
    if (ev->finish == CALLA_FINISH_ERROR) {
        *err = ev->err;
        return ev->err.code < 0 ? ev->err.code : CALLA_ERR_DEVICE;
    }
    if (c->stopped) c->finish = CALLA_FINISH_STOP;
    else if (ev->finish == CALLA_FINISH_CANCELLED) return calla_fail(err, CALLA_ERR_CANCELLED, "the server is shutting down; the answer was cut");
    return g->api->choice_end(c, err);
}

static void pump(struct generation *g) {
    struct calla_event ev;
    struct calla_err err = { 0 };
    int n_left = EVENTS_AT_ONCE;
    for (int i = 0; i < g->n_submitted; i++) {
        struct choice *c = &g->choices[i];
        while (c->request != NULL && n_left > 0 && calla_request_next(c->request, &ev)) {
            n_left--;
            const int rc = take(c, &ev, &err);
            if (rc == 0) continue;
            err.code = rc;
            fail(g, NULL, &err);
            return;
        }
    }
    if (n_left == 0) event_active(g->s->wake, 0, 0);
    if (!submit_more(g)) return;
    if (g->n_ended == g->n_choices) finish(g);
    else flush(g);
}

void generations_pump(struct server *s) {
    struct generation *next;
    for (struct generation *g = s->live; g != NULL; g = next) {
        next = g->next;
        if (!g->preparing) pump(g);
    }
}

/* ---- submitting ----------------------------------------------------------------------- */

static void notify(void *user) { event_active(user, 0, 0); }

static int submit(struct choice *c, struct calla_err *err) {
    const struct generation *g = c->g;
    struct calla_request_params p = {
        .prompt = c->prompt->ids, .n_prompt = c->prompt->n_ids, .boundaries = c->prompt->boundaries, .n_boundaries = c->prompt->n_boundaries,
        .max_tokens = g->params.max_tokens, .sampling = g->params.sampling, .n_top_logprobs = g->n_top_logprobs,
        .prompt_logprobs = g->prompt_logprobs, .notify = notify, .user = g->s->wake };
    if (!g->params.ignore_eos) {
        p.stop_ids = g->s->info.stop_ids;
        p.n_stop_ids = g->s->info.n_stop_ids;
    }
    p.sampling.seed += (uint64_t)(c->idx % g->params.n);
    return calla_request_submit(g->s->engine, &p, &c->request, err);
}

/* False when the answer has failed and is gone.
 * As many choices of one answer as the engine runs together; the rest waits here, not in the queue that all share. */
static bool submit_more(struct generation *g) {
    struct calla_err err = { 0 };
    while (g->n_submitted < g->n_choices && g->n_submitted - g->n_ended < g->s->info.n_sequences) {
        struct choice *c = &g->choices[g->n_submitted];
        const int rc = submit(c, &err);
        if (rc == CALLA_ERR_BUSY && g->n_submitted > 0) break;       /* the next tick tries again */
        if (rc != 0) {
            err.code = rc;
            fail(g, g->api->prompt_field, &err);
            return false;
        }
        g->n_submitted++;
    }
    return true;
}

/* ---- a request arrives -------------------------------------------------------------------- */

static void prepare(struct generation *g) {
    struct evbuffer *in = evhttp_request_get_input_buffer(g->req);
    const size_t n = evbuffer_get_length(in);
    const char *text = n != 0 ? (const char *)evbuffer_pullup(in, -1) : "";
    struct fields *f = &g->fields;
    if (text == NULL) {
        f->rc = calla_fail(&f->err, CALLA_ERR_MEMORY, "no memory for a body of %zu bytes", n);
        return;
    }
    f->rc = calla_json_parse(text, n, &g->body, &f->err);
    if (f->rc != 0) {
        calla_err_prefix(&f->err, "the body is not valid JSON");
        return;
    }
    f->body = g->body;
    if (json_object_is_type(g->body, json_type_object)) g->api->prepare(g);
    else f->rc = calla_fail(&f->err, CALLA_ERR_ARGUMENT, "the body must be a JSON object");
    if (f->rc == 0 && g->out.failed) f->rc = calla_fail(&f->err, CALLA_ERR_MEMORY, "no memory for the answer");
}

static bool make_choices(struct generation *g) {
    const int n = g->n_prompts * g->params.n;
    g->choices = calloc((size_t)n + 1, sizeof *g->choices);
    if (g->choices == NULL) return false;
    g->n_choices = n;
    for (int i = 0; i < n; i++) g->choices[i] = (struct choice){ .g = g, .idx = i, .prompt = &g->prompts[i / g->params.n] };
    return true;
}

/* OpenAI's own sentence: agents look for it and shorten the conversation. */
static int check_room(const struct generation *g, struct calla_err *err) {
    const int ctx = g->s->info.ctx_tokens, n_least = g->params.max_tokens != 0;
    for (int i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].n_ids > ctx - n_least)
            return calla_fail(err, CALLA_ERR_LIMIT, "This model's maximum context length is %d tokens. However, your %s resulted in %d tokens%s. "
                              "Please reduce the length.", ctx, g->api->prompt_field, g->prompts[i].n_ids,
                              g->prompts[i].n_ids == ctx ? ", which leaves no room for an answer" : "");
    return 0;
}

static void start(struct generation *g) {
    struct calla_err err = { 0 };
    conn_body_read(&g->s->conns, g->req);
    evbuffer_drain(evhttp_request_get_input_buffer(g->req), SIZE_MAX);
    if (g->fields.rc != 0) {
        g->fields.err.code = g->fields.rc;
        fail(g, g->fields.field, &g->fields.err);
        return;
    }
    if (g->n_prompts == 0) {
        http_json(g->s, take_request(g), 200, &g->out);
        destroy(g);
        return;
    }
    int rc = check_room(g, &err);
    if (rc == 0) rc = make_choices(g) ? g->api->begin(g, &err) : calla_fail(&err, CALLA_ERR_MEMORY, "no memory for an answer");
    if (rc == 0) rc = submit(&g->choices[0], &err);
    if (rc != 0) {
        err.code = rc;
        fail(g, g->api->prompt_field, &err);
        return;
    }
    g->n_submitted = 1;
    if (g->params.stream) start_stream(g);
    flush(g);
    submit_more(g);
}

static void run_job(struct job *j) { prepare((struct generation *)j); }

static void on_prepared(struct job *j) {
    struct generation *g = (struct generation *)j;     /* job is its first member */
    g->preparing = false;
    if (g->gone) {
        evhttp_send_reply_end(g->req);
        g->req = NULL;
        destroy(g);
    } else start(g);
}

void generation_new(struct server *s, struct evhttp_request *req, const struct api *api) {
    struct generation *g = calloc(1, sizeof *g);
    unsigned char random[12];
    if (g == NULL) {
        http_error(s, req, 500, NULL, NULL, "no memory for a request");
        return;
    }
    *g = (struct generation){ .s = s, .req = req, .api = api, .job = { .run = run_job, .done = on_prepared }, .n_top_logprobs = -1, .out.limit = SERVER_REPLY_BYTES,
                              .created = (int64_t)time(NULL), .next = s->live };
    if (getentropy(random, sizeof random) != 0) memcpy(random, &g->created, sizeof g->created);
    for (size_t i = 0; i < sizeof random; i++) snprintf(g->id + 2 * i, 3, "%02x", (unsigned)random[i]);
    s->live = g;
    evhttp_connection_set_closecb(evhttp_request_get_connection(req), on_close, g);
    if (evbuffer_get_length(evhttp_request_get_input_buffer(req)) > WORKER_BYTES) {
        g->preparing = true;
        worker_put(s->worker, &g->job);
        return;
    }
    prepare(g);
    start(g);
}

/* ---- time --------------------------------------------------------------------------------- */

/* A comment says how far the answer is, at the latest SERVER_PING_S after the last bytes. */
static void ping(struct generation *g) {
    int n_read = 0, n_prompt = 0;
    for (int i = 0; i < g->n_choices; i++) {
        n_read += g->choices[i].n_read;
        n_prompt += g->choices[i].prompt->n_ids;
    }
    calla_buf_fmt(&g->out, ": %d of %d prompt tokens read\n\n", n_read, n_prompt);
    flush(g);
}

void generations_tick(struct server *s) {
    struct generation *next;
    const uint64_t now = calla_now_ns();
    for (struct generation *g = s->live; g != NULL; g = next) {
        next = g->next;
        if (g->preparing) continue;
        if (g->streaming && now - g->sent_ns >= (uint64_t)SERVER_PING_S * 1000000000 && !g->gone) ping(g);
        submit_more(g);
    }
}

void generations_cancel(struct server *s) {
    for (struct generation *g = s->live; g != NULL; g = g->next)
        for (int i = 0; i < g->n_choices; i++)
            if (g->choices[i].request != NULL && !g->choices[i].ended) calla_request_cancel(g->choices[i].request);
}
