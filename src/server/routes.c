/* routes.c - which handler a request goes to. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/openai.h"

/* ---- health ------------------------------------------------------------------ */

static void live(struct server *s, struct evhttp_request *req) {
    struct calla_buf out = { 0 };
    calla_buf_str(&out, "{\"status\":\"ok\"}");
    http_json(s, req, 200, &out);
}

static bool ready(struct server *s, struct evhttp_request *req) {
    if (s->draining) http_error(s, req, 503, NULL, "shutting_down", "the server is shutting down");
    else if (!s->was_ready) http_error(s, req, 503, NULL, "model_loading", "the model is loading; try again");
    return s->was_ready && !s->draining;
}

static void health(struct server *s, struct evhttp_request *req) {
    struct calla_engine_status st;
    struct calla_buf out = { 0 };
    if (!ready(s, req)) return;
    calla_engine_status(s->engine, &st);
    if (st.failed) {
        http_error(s, req, 503, NULL, "device_failed", "the device has failed; restart the server");
        return;
    }
    calla_buf_fmt(&out, "{\"status\":\"ok\",\"n_running\":%d,\"n_queued\":%d,\"queue_limit\":%d}", st.n_running, st.n_queued, st.queue_limit);
    http_json(s, req, 200, &out);
}

static void models(struct server *s, struct evhttp_request *req) {
    if (ready(s, req)) openai_models(s, req, NULL);
}

/* ---- the table ---------------------------------------------------------------- */

static const struct route {
    const char *path;               /* without /v1                                     */
    enum evhttp_cmd_type method;
    bool keyed;                     /* needs the API key                               */
    void (*get)(struct server *s, struct evhttp_request *req);
    const struct api *post;
} routes[] = {
    { "/chat/completions", EVHTTP_REQ_POST, true, NULL, &openai_chat },
    { "/chat/completions/render", EVHTTP_REQ_POST, true, NULL, &openai_render },
    { "/completions", EVHTTP_REQ_POST, true, NULL, &openai_completions },
    { "/models", EVHTTP_REQ_GET, true, models, NULL },
    { "/health", EVHTTP_REQ_GET, false, health, NULL },
    { "/livez", EVHTTP_REQ_GET, false, live, NULL },
    { "/readyz", EVHTTP_REQ_GET, false, health, NULL },
};

static const struct route *find(const char *path) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (strcmp(routes[i].path, path) == 0) return &routes[i];
    return NULL;
}

/* The path without the query, a final slash and /v1; NULL when it is none. */
static const char *path_of(struct evhttp_request *req, char *out, size_t cap) {
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *path = uri != NULL ? evhttp_uri_get_path(uri) : NULL;
    if (path == NULL || strlen(path) >= cap) return NULL;
    strcpy(out, path);
    const size_t n = strlen(out);
    if (n > 1 && out[n - 1] == '/') out[n - 1] = 0;
    return strncmp(out, "/v1/", 4) == 0 ? out + 3 : out;
}

static void one_model(struct server *s, struct evhttp_request *req, const char *name) {
    char *id = evhttp_uridecode(name, 0, NULL);
    if (id == NULL) http_error(s, req, 500, NULL, NULL, "no memory for a name");
    else if (ready(s, req)) openai_models(s, req, id);
    free(id);
}

void server_route(struct evhttp_request *req, void *arg) {
    struct server *s = arg;
    char buf[1024];
    const enum evhttp_cmd_type method = evhttp_request_get_command(req);
    const char *path = path_of(req, buf, sizeof buf);
    const char *model = path != NULL && strncmp(path, "/models/", 8) == 0 ? path + 8 : NULL;
    const struct route *r = path != NULL ? find(model != NULL ? "/models" : path) : NULL;
    conn_request_arrived(&s->conns, req);
    if (s->draining) evhttp_add_header(evhttp_request_get_output_headers(req), "Connection", "close");
    if (method == EVHTTP_REQ_OPTIONS) {
        http_preflight(s, req);
        return;
    }
    if (!http_admit(s, req, r == NULL || r->keyed)) return;
    if (r == NULL) {
        http_error(s, req, 404, NULL, "unknown_url", "there is nothing at this path");
        return;
    }
    if (method != r->method && !(method == EVHTTP_REQ_HEAD && r->method == EVHTTP_REQ_GET)) {
        evhttp_add_header(evhttp_request_get_output_headers(req), "Allow", r->method == EVHTTP_REQ_POST ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
        http_error(s, req, 405, NULL, "method_not_allowed", "this path takes another method");
        return;
    }
    if (model != NULL) one_model(s, req, model);
    else if (r->get != NULL) r->get(s, req);
    else if (http_is_json(s, req) && ready(s, req)) generation_new(s, req, r->post);
}
