/* openai.h - what the OpenAI endpoints share: ids, usage, timings, logprobs. */
#ifndef CALLA_SERVER_OPENAI_H
#define CALLA_SERVER_OPENAI_H

#include "server/generation.h"

extern const struct api openai_chat, openai_completions, openai_render;

/* GET /v1/models (id NULL) and /v1/models/{id}. */
void openai_models(struct server *s, struct evhttp_request *req, const char *id);

/* {"id":"chatcmpl-...","object":...,"created":...,"model":...,"system_fingerprint":... and no closing brace. */
void openai_head(struct calla_buf *out, const struct generation *g, const char *prefix, const char *object);
/* "usage":{...} of all choices together; n_reasoning < 0: not said. */
void openai_usage(struct calla_buf *out, const struct generation *g, int n_reasoning);
/* "timings":{...} with llama-server's names; of the only choice, or of all together. */
void openai_timings(struct calla_buf *out, const struct generation *g);
const char *openai_finish(const struct choice *c, bool calls);

void openai_string(struct calla_buf *out, const struct calla_buf *text);
/* A number that JSON can say: -inf is -9999.0, as vLLM has it; NaN is null. */
void openai_number(struct calla_buf *out, double v);
/* A token's text; bytes that are no UTF-8 alone are "bytes:\\xf0\\x9f". */
void openai_token(struct calla_buf *out, const struct server *s, int32_t id);
/* {"token","logprob","bytes","top_logprobs"} of chat's logprobs.content. */
void openai_logprob(struct calla_buf *out, const struct server *s, const struct calla_event *ev);

#endif
