#include "server/http.h"

#include <event2/buffer.h>
#include <event2/keyvalq_struct.h>
#include <openssl/crypto.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"

/* ---- headers -------------------------------------------------------------- */

static const char *header(struct evhttp_request *req, const char *name) {
    return evhttp_find_header(evhttp_request_get_input_headers(req), name);
}

static void set(struct evhttp_request *req, const char *name, const char *value) {
    struct evkeyvalq *h = evhttp_request_get_output_headers(req);
    evhttp_remove_header(h, name);
    evhttp_add_header(h, name, value);
}

/* Is origin one of the comma-separated list? */
static bool listed(const char *list, const char *origin) {
    const size_t n = strlen(origin);
    for (const char *p = list; p != NULL && *p != 0;) {
        const char *comma = strchr(p, ',');
        const size_t len = comma != NULL ? (size_t)(comma - p) : strlen(p);
        if ((len == n && memcmp(p, origin, n) == 0) || (len == 1 && *p == '*')) return true;
        p = comma != NULL ? comma + 1 : NULL;
    }
    return false;
}

void http_common_headers(struct server *s, struct evhttp_request *req) {
    const char *id = header(req, "X-Request-Id"), *origin = header(req, "Origin");
    if (id != NULL && strlen(id) <= 128) set(req, "X-Request-Id", id);
    if (origin != NULL && s->opt->cors != NULL && listed(s->opt->cors, origin)) {
        set(req, "Access-Control-Allow-Origin", origin);
        set(req, "Vary", "Origin");
    }
    set(req, "Cache-Control", "no-store");
    set(req, "X-Content-Type-Options", "nosniff");
}

/* ---- replies -------------------------------------------------------------- */

static const char *reason(int status) {
    switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Payload Too Large";
    case 415: return "Unsupported Media Type";
    case 429: return "Too Many Requests";
    case 503: return "Service Unavailable";
    default: return "Internal Server Error";
    }
}

void http_json(struct server *s, struct evhttp_request *req, int code, struct calla_buf *body) {
    struct evbuffer *out = evbuffer_new();
    http_common_headers(s, req);
    set(req, "Content-Type", "application/json");
    if (body->failed || out == NULL) code = 500;
    else if (evhttp_request_get_command(req) != EVHTTP_REQ_HEAD) evbuffer_add(out, body->data != NULL ? body->data : "", body->n);
    evhttp_send_reply(req, code, reason(code), out);
    if (out != NULL) evbuffer_free(out);
    calla_buf_free(body);
}

void http_error_body(struct calla_buf *out, int status, const char *param, const char *code, const char *message) {
    const char *type = status == 401 ? "authentication_error" : status == 403 ? "permission_error" :
                       status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";
    calla_buf_str(out, "{\"error\":{\"message\":");
    calla_json_print_string(out, message, strlen(message));
    calla_buf_fmt(out, ",\"type\":\"%s\",\"param\":", type);
    if (param != NULL && *param != 0) calla_json_print_string(out, param, strlen(param));
    else calla_buf_str(out, "null");
    calla_buf_str(out, ",\"code\":");
    if (code != NULL) calla_json_print_string(out, code, strlen(code));
    else calla_buf_str(out, "null");
    calla_buf_str(out, "}}");
}

void http_error(struct server *s, struct evhttp_request *req, int status, const char *param, const char *code,
                const char *message) {
    struct calla_buf body = { 0 };
    http_error_body(&body, status, param, code, message);
    if (status == 429 || status == 503) set(req, "Retry-After", "1");
    if (status == 401) set(req, "WWW-Authenticate", "Bearer");
    http_json(s, req, status, &body);
}

void http_fail(struct server *s, struct evhttp_request *req, const char *param, const struct calla_err *err) {
    switch (err->code) {
    case CALLA_ERR_ARGUMENT:
    case CALLA_ERR_FORMAT:
    case CALLA_ERR_LIMIT:
    case CALLA_ERR_UNSUPPORTED: http_error(s, req, 400, param, NULL, err->message); break;
    case CALLA_ERR_BUSY: http_error(s, req, 429, param, "queue_full", err->message); break;
    case CALLA_ERR_DEVICE: http_error(s, req, 503, param, "device_failed", err->message); break;
    case CALLA_ERR_CANCELLED: http_error(s, req, 503, param, "shutting_down", err->message); break;
    default: http_error(s, req, 500, param, NULL, err->message);
    }
}

/* ---- who may ask ---------------------------------------------------------- */

static bool right_key(const char *key, struct evhttp_request *req) {
    const char *given = header(req, "Authorization");
    if (given != NULL && strncasecmp(given, "Bearer ", 7) == 0) given += 7;
    else given = header(req, "X-Api-Key");
    const size_t n = strlen(key);
    return given != NULL && strlen(given) == n && CRYPTO_memcmp(given, key, n) == 0;
}

/* localhost, 127.0.0.0/8 or [::1], with or without a port. */
static bool local_host(const char *host) {
    static const char *const names[] = { "localhost", "[::1]" };
    if (host == NULL) return true;                 /* HTTP/1.0: no browser */
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(names[i]);
        if (strncasecmp(host, names[i], n) == 0 && (host[n] == 0 || host[n] == ':')) return true;
    }
    return strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strcspn(host, ":");
}

bool http_admit(struct server *s, struct evhttp_request *req, bool needs_key) {
    /* Without a key the only guard of a loopback server against web pages is that a page's own name is in Host
     * (DNS rebinding) and Origin. */
    if (s->guarded_by_host && !local_host(header(req, "Host"))) {
        http_error(s, req, 403, NULL, "host_not_allowed",
                   "the Host header does not name this machine; use 127.0.0.1 or localhost, or start the server with --api-key");
        return false;
    }
    const char *origin = header(req, "Origin");
    if (s->guarded_by_host && origin != NULL && evhttp_request_get_command(req) == EVHTTP_REQ_POST) {
        const char *host = strstr(origin, "://");
        const bool same = host != NULL && local_host(host + 3);
        if (!same && (s->opt->cors == NULL || !listed(s->opt->cors, origin))) {
            http_error(s, req, 403, NULL, "origin_not_allowed", "this origin may not call the server; start it with --cors ORIGIN");
            return false;
        }
    }
    if (needs_key && s->opt->api_key != NULL && !right_key(s->opt->api_key, req)) {
        http_error(s, req, 401, NULL, "invalid_api_key", "the API key is missing or wrong; send Authorization: Bearer KEY");
        return false;
    }
    return true;
}

bool http_is_json(struct server *s, struct evhttp_request *req) {
    const char *type = header(req, "Content-Type");
    /* A page may send text/plain to any server without asking first; JSON it may not. */
    if (type != NULL && strncasecmp(type, "application/json", 16) == 0 && (type[16] == 0 || strchr("; \t", type[16]) != NULL)) return true;
    http_error(s, req, 415, NULL, NULL, "the body must be JSON with Content-Type: application/json");
    return false;
}

void http_preflight(struct server *s, struct evhttp_request *req) {
    http_common_headers(s, req);
    if (evhttp_find_header(evhttp_request_get_output_headers(req), "Access-Control-Allow-Origin") != NULL) {
        set(req, "Access-Control-Allow-Methods", "GET, POST, OPTIONS");
        set(req, "Access-Control-Allow-Headers", "authorization, content-type, x-api-key, x-request-id");
        set(req, "Access-Control-Max-Age", "600");
    }
    evhttp_send_reply(req, 204, reason(204), NULL);
}
