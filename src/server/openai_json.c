#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "server/http.h"
#include "server/openai.h"

void openai_string(struct calla_buf *out, const struct calla_buf *text) {
    calla_json_print_string(out, text->data != NULL ? text->data : "", text->n);
    if (text->failed) out->failed = true;
}

void openai_number(struct calla_buf *out, double v) {
    if (isnan(v)) calla_buf_str(out, "null");
    else if (isinf(v)) calla_buf_str(out, v < 0 ? "-9999.0" : "9999.0");
    else calla_json_print_double(out, v);
}

void openai_head(struct calla_buf *out, const struct generation *g, const char *prefix, const char *object) {
    calla_buf_fmt(out, "{\"id\":\"%s-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", prefix, g->id, object, (long long)g->created);
    calla_json_print_string(out, g->s->model_name, strlen(g->s->model_name));
    calla_buf_fmt(out, ",\"system_fingerprint\":\"%s\"", g->s->fingerprint);
}

/* A prompt that several choices share was sent once. */
void openai_usage(struct calla_buf *out, const struct generation *g, int n_reasoning) {
    int n_prompt = 0, n_cached = 0, n_answer = 0;
    for (int i = 0; i < g->n_choices; i++) {
        n_answer += g->choices[i].n_tokens;
        if (i % g->params.n != 0) continue;
        n_prompt += g->choices[i].prompt->n_ids;
        n_cached += g->choices[i].usage.n_cached;
    }
    calla_buf_fmt(out, "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}",
                  n_prompt, n_answer, n_prompt + n_answer, n_cached);
    if (n_reasoning >= 0) calla_buf_fmt(out, ",\"completion_tokens_details\":{\"reasoning_tokens\":%d}", n_reasoning);
    calla_buf_char(out, '}');
}

static double per(double n, double s) { return s > 0 ? n / s : 0; }

void openai_timings(struct calla_buf *out, const struct generation *g) {
    double prompt_s = 0, answer_s = 0, queue_s = 0;
    int n_read = 0, n_cached = 0, n_answer = 0, n_after_first = 0;
    for (int i = 0; i < g->n_choices; i++) {
        const struct calla_usage *u = &g->choices[i].usage;
        prompt_s += u->prefill_s;
        answer_s += u->decode_s;
        queue_s += u->queue_s;
        n_read += u->n_prompt - u->n_cached;
        n_cached += u->n_cached;
        n_answer += g->choices[i].n_tokens;
        if (u->n_sampled > 1) n_after_first += u->n_sampled - 1;   /* the first came with the prompt */
    }
    const struct { const char *name; double v; } parts[] = {
        { "queue_ms", queue_s * 1e3 }, { "prompt_ms", prompt_s * 1e3 }, { "prompt_per_second", per(n_read, prompt_s) },
        { "predicted_ms", answer_s * 1e3 }, { "predicted_per_second", per(n_after_first, answer_s) } };
    calla_buf_fmt(out, "\"timings\":{\"cache_n\":%d,\"prompt_n\":%d,\"predicted_n\":%d", n_cached, n_read, n_answer);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        calla_buf_fmt(out, ",\"%s\":", parts[i].name);
        openai_number(out, round(parts[i].v * 1e3) / 1e3);
    }
    calla_buf_char(out, '}');
}

const char *openai_finish(const struct choice *c, bool calls) {
    return c->finish == CALLA_FINISH_LENGTH ? "length" : calls ? "tool_calls" : "stop";
}

/* ---- tokens ----------------------------------------------------------------- */

void openai_token(struct calla_buf *out, const struct server *s, int32_t id) {
    size_t n = 0;
    const char *bytes = calla_tokenizer_bytes(s->tokenizer, id, &n);
    struct calla_buf text = { 0 };
    if (bytes == NULL) n = 0;
    if (n != 0 && calla_utf8_valid_prefix(bytes, n) == n) calla_buf_add(&text, bytes, n);
    else if (n != 0) {
        calla_buf_str(&text, "bytes:");
        for (size_t i = 0; i < n; i++) calla_buf_fmt(&text, "\\x%02x", (unsigned)(unsigned char)bytes[i]);
    }
    openai_string(out, &text);
    calla_buf_free(&text);
}

static void token(struct calla_buf *out, const struct server *s, int32_t id, float logprob) {
    size_t n = 0;
    const char *bytes = calla_tokenizer_bytes(s->tokenizer, id, &n);
    calla_buf_str(out, "{\"token\":");
    openai_token(out, s, id);
    calla_buf_str(out, ",\"logprob\":");
    openai_number(out, (double)logprob);
    calla_buf_str(out, ",\"bytes\":[");
    for (size_t i = 0; bytes != NULL && i < n; i++) calla_buf_fmt(out, "%s%u", i > 0 ? "," : "", (unsigned)(unsigned char)bytes[i]);
    calla_buf_char(out, ']');
}

void openai_logprob(struct calla_buf *out, const struct server *s, const struct calla_event *ev) {
    token(out, s, ev->id, ev->logprob);
    calla_buf_str(out, ",\"top_logprobs\":[");
    for (int i = 0; i < ev->n_top; i++) {
        if (i > 0) calla_buf_char(out, ',');
        token(out, s, ev->top[i].id, ev->top[i].logprob);
        calla_buf_char(out, '}');
    }
    calla_buf_str(out, "]}");
}

/* ---- models ------------------------------------------------------------------- */

static void model(struct calla_buf *out, const struct server *s) {
    const struct calla_model_info *m = &s->info;
    calla_buf_str(out, "{\"id\":");
    calla_json_print_string(out, s->model_name, strlen(s->model_name));
    calla_buf_fmt(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"calla\",\"context_length\":%d,\"max_model_len\":%d,"
                  "\"meta\":{\"n_ctx\":%d,\"n_ctx_train\":262144,\"n_vocab\":%d,\"n_params\":%llu,\"size\":%llu,\"n_parallel\":%d}}",
                  (long long)s->started, m->ctx_tokens, m->ctx_tokens, m->ctx_tokens, m->n_usable_ids, (unsigned long long)m->n_params,
                  (unsigned long long)m->weights_bytes, m->n_sequences);
}

void openai_models(struct server *s, struct evhttp_request *req, const char *id) {
    struct calla_buf out = { 0 };
    if (id != NULL && strcmp(id, s->model_name) != 0) {
        http_error(s, req, 404, "model", "model_not_found", "there is no such model here; GET /v1/models lists the one that is");
        return;
    }
    if (id == NULL) calla_buf_str(&out, "{\"object\":\"list\",\"data\":[");
    model(&out, s);
    if (id == NULL) calla_buf_str(&out, "]}");
    http_json(s, req, 200, &out);
}
