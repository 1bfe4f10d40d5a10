/* http.h - whole replies, errors in OpenAI's shape, and who may ask. */
#ifndef CALLA_SERVER_HTTP_H
#define CALLA_SERVER_HTTP_H

#include "base/buf.h"
#include "server/context.h"

/* Sends body as application/json (with the CORS header where allowed); frees the buffer. */
void http_json(struct server *s, struct evhttp_request *req, int code, struct calla_buf *body);
/* {"error": {message, type, param, code}}; param and code may be NULL. */
void http_error(struct server *s, struct evhttp_request *req, int status, const char *param, const char *code,
                const char *message);
/* The same from a library error: CALLA_ERR_ARGUMENT is 400, _LIMIT 400, _BUSY 429, else 500. */
void http_fail(struct server *s, struct evhttp_request *req, const char *param, const struct calla_err *err);
void http_error_body(struct calla_buf *out, int status, const char *param, const char *code, const char *message);

/* Key, Host, Origin.  Answers and returns false when the request may not go on. */
bool http_admit(struct server *s, struct evhttp_request *req, bool needs_key);
/* Headers that every reply carries. */
void http_common_headers(struct server *s, struct evhttp_request *req);
/* Is the body said to be JSON?  Answers 415 otherwise. */
bool http_is_json(struct server *s, struct evhttp_request *req);
/* Answers a preflight (OPTIONS). */
void http_preflight(struct server *s, struct evhttp_request *req);

#endif
