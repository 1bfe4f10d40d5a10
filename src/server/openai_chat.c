/* openai_chat.c - POST /v1/chat/completions and /v1/chat/completions/render. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/json.h"
#include "server/openai.h"
#include "text/chat.h"
#include "text/normalise.h"

struct chat_choice {
    struct choice *c;
    struct calla_answer *answer;
    struct stop_matcher stop;
    struct calla_message message;       /* whole answers                              */
    struct calla_buf logprobs;          /* entries that no chunk has carried yet      */
    int  n_calls, n_reasoning;
};

struct chat {
    struct calla_normalised normalised; /* its tools are the parser's: lives as long  */
    struct calla_chat_prompt prompt;
    struct chat_choice *choices;        /* [g->n_choices]                             */
    bool one_call;                      /* parallel_tool_calls false                  */
};

/* ---- prepare ------------------------------------------------------------------ */

static void read_logprobs(struct generation *g, struct fields *f) {
    bool wanted = false;
    int64_t n_top = 0;
    field_bool(f, "logprobs", &wanted);
    if (field_int(f, "top_logprobs", 0, CALLA_MAX_TOP_LOGPROBS, &n_top) && n_top > 0 && !wanted)
        field_fail(f, "top_logprobs", "logprobs must be true");
    g->n_top_logprobs = wanted ? (int)n_top : -1;
}

static void refuse_formats(struct fields *f) {
    struct json_object *v = field_get(f, "response_format"), *type = NULL;
    if (v == NULL) return;
    if (!json_object_is_type(v, json_type_object) || !json_object_object_get_ex(v, "type", &type) ||
        !json_object_is_type(type, json_type_string))
        field_fail(f, "response_format", "an object with a type is expected");
    else if (strcmp(json_object_get_string(type), "text") != 0)
        field_fail(f, "response_format", "only type text is served; output is not constrained to JSON yet");
}

static int make_prompt(struct generation *g, struct chat *chat) {
    struct fields *f = &g->fields;
    int rc = calla_normalise(&chat->normalised, g->body, f->field, sizeof f->field, &f->err);
    if (rc == 0) {
        f->field[0] = 0;
        rc = calla_chat_prompt_make(&chat->prompt, g->s->tokenizer, &chat->normalised.render, &f->err);
        if (rc == CALLA_ERR_ARGUMENT) snprintf(f->field, sizeof f->field, "messages");
    }
    return f->rc = rc;
}

static struct chat *new_chat(struct generation *g) {
    g->data = calloc(1, sizeof(struct chat));
    if (g->data == NULL) g->fields.rc = calla_fail(&g->fields.err, CALLA_ERR_MEMORY, "no memory for a request");
    return g->data;
}

static void prepare(struct generation *g) {
    struct fields *f = &g->fields;
    struct chat *chat = new_chat(g);
    bool parallel = true;
    size_t n;
    if (chat == NULL) return;
    field_string(f, "model", &n);
    params_read(&g->params, f, g->s);
    read_logprobs(g, f);
    refuse_formats(f);
    field_bool(f, "parallel_tool_calls", &parallel);
    chat->one_call = !parallel;
    if (f->rc != 0 || make_prompt(g, chat) != 0) return;
    g->prompts = malloc(sizeof *g->prompts);
    if (g->prompts == NULL) {
        f->rc = calla_fail(&f->err, CALLA_ERR_MEMORY, "no memory for a prompt");
        return;
    }
    g->prompts[0] = (struct prompt){ chat->prompt.ids.v, chat->prompt.boundaries, (int)chat->prompt.ids.n, chat->prompt.n_boundaries };
    g->n_prompts = 1;
}

/* "thinking":...,"warnings":[...]: what the request was taken for. */
static void print_mode(struct calla_buf *out, const struct chat *chat) {
    calla_buf_fmt(out, ",\"thinking\":%s", chat->normalised.render.thinking ? "true" : "false");
    if (chat->normalised.warnings == NULL) return;
    calla_buf_str(out, ",\"warnings\":");
    calla_json_print_compact(out, chat->normalised.warnings);
}

static void prepare_render(struct generation *g) {
    struct chat *chat = new_chat(g);
    if (chat == NULL || make_prompt(g, chat) != 0) return;
    const struct calla_ids *ids = &chat->prompt.ids;
    calla_buf_str(&g->out, "{\"prompt\":");
    openai_string(&g->out, &chat->prompt.rendered.text);
    calla_buf_fmt(&g->out, ",\"n_tokens\":%zu,\"ids\":[", ids->n);
    for (size_t i = 0; i < ids->n; i++) calla_buf_fmt(&g->out, "%s%d", i > 0 ? "," : "", (int)ids->v[i]);
    calla_buf_char(&g->out, ']');
    print_mode(&g->out, chat);
    calla_buf_char(&g->out, '}');
}

/* ---- chunks --------------------------------------------------------------------- */

static void open_chunk(struct calla_buf *json, const struct generation *g) {
    openai_head(json, g, "chatcmpl", "chat.completion.chunk");
}

/* {"content":[...]} of the entries that wait, or null. */
static void print_logprobs(struct calla_buf *out, struct chat_choice *cc) {
    if (cc->logprobs.n == 0) {
        calla_buf_str(out, "null");
        return;
    }
    calla_buf_str(out, "{\"content\":[");
    calla_buf_add(out, cc->logprobs.data, cc->logprobs.n);
    calla_buf_str(out, "]}");
    if (cc->logprobs.failed) out->failed = true;
    calla_buf_clear(&cc->logprobs);
}

/* A chunk with one choice; delta is a JSON object, finish a reason or NULL. */
static void chunk(struct chat_choice *cc, const struct calla_buf *delta, const char *finish) {
    struct generation *g = cc->c->g;
    const struct chat *chat = g->data;
    struct calla_buf json = { 0 };
    open_chunk(&json, g);
    if (cc->c->n_tokens == 0 && finish == NULL) print_mode(&json, chat);
    calla_buf_fmt(&json, ",\"choices\":[{\"index\":%d,\"delta\":", cc->c->idx);
    calla_buf_add(&json, delta->data, delta->n);
    if (delta->failed) json.failed = true;
    calla_buf_str(&json, ",\"logprobs\":");
    print_logprobs(&json, cc);
    if (finish != NULL) calla_buf_fmt(&json, ",\"finish_reason\":\"%s\"}]", finish);
    else calla_buf_str(&json, ",\"finish_reason\":null}]");
    if (finish != NULL && !g->params.include_usage && g->n_ended == g->n_choices) {
        calla_buf_char(&json, ',');
        openai_timings(&json, g);
    }
    calla_buf_char(&json, '}');
    generation_sse(g, NULL, &json);
    calla_buf_free(&json);
}

static void text_chunk(struct chat_choice *cc, const char *name, const char *text, size_t n) {
    struct calla_buf delta = { 0 };
    calla_buf_fmt(&delta, "{\"%s\":", name);
    calla_json_print_string(&delta, text, n);
    calla_buf_char(&delta, '}');
    chunk(cc, &delta, NULL);
    calla_buf_free(&delta);
}

static void print_call_id(struct calla_buf *out) {
    unsigned char random[12] = { 0 };
    if (getentropy(random, sizeof random) != 0) out->failed = true;
    calla_buf_str(out, "call_");
    for (size_t i = 0; i < sizeof random; i++) calla_buf_fmt(out, "%02x", (unsigned)random[i]);
}

static void call_chunk(struct chat_choice *cc, const struct calla_delta *d) {
    struct calla_buf delta = { 0 };
    calla_buf_fmt(&delta, "{\"tool_calls\":[{\"index\":%d,", d->call_idx);
    if (d->kind == CALLA_DELTA_CALL) {
        calla_buf_str(&delta, "\"id\":\"");
        print_call_id(&delta);
        calla_buf_str(&delta, "\",\"type\":\"function\",\"function\":{\"name\":");
        calla_json_print_string(&delta, d->text, d->n);
        calla_buf_str(&delta, ",\"arguments\":\"\"}}]}");
    } else {
        calla_buf_str(&delta, "\"function\":{\"arguments\":");
        calla_json_print_string(&delta, d->text, d->n);
        calla_buf_str(&delta, "}}]}");
    }
    chunk(cc, &delta, NULL);
    calla_buf_free(&delta);
}

/* ---- deltas of the parser ---------------------------------------------------------- */

/* A delta that is decided, to the stream or to the message. */
static void emit(struct chat_choice *cc, const struct calla_delta *d) {
    if (!cc->c->g->params.stream) {
        calla_message_add(&cc->message, d);
        return;
    }
    switch (d->kind) {
    case CALLA_DELTA_REASONING: text_chunk(cc, "reasoning_content", d->text, d->n); break;
    case CALLA_DELTA_CONTENT: text_chunk(cc, "content", d->text, d->n); break;
    case CALLA_DELTA_CALL:
    case CALLA_DELTA_ARGUMENTS: call_chunk(cc, d); break;
    case CALLA_DELTA_CALL_END: break;
    }
}

/* Content goes through the stop strings; text NULL: nothing follows, what they hold is text. */
static void emit_content(struct chat_choice *cc, const char *text, size_t n) {
    struct calla_buf out = { 0 };
    if (text != NULL) stop_feed(&cc->stop, text, n, &out);
    else stop_finish(&cc->stop, &out);
    if (out.failed) cc->c->g->out.failed = true;
    if (out.n > 0) emit(cc, &(struct calla_delta){ .kind = CALLA_DELTA_CONTENT, .text = out.data, .n = out.n });
    calla_buf_free(&out);
    if (cc->stop.matched) choice_stop(cc->c);
}

static void on_delta(void *user, const struct calla_delta *d) {
    struct chat_choice *cc = user;
    const struct chat *chat = cc->c->g->data;
    if (cc->c->stopped) return;
    if (d->kind == CALLA_DELTA_CONTENT) {
        emit_content(cc, d->text, d->n);
        return;
    }
    if (d->kind == CALLA_DELTA_CALL) emit_content(cc, NULL, 0);
    emit(cc, d);
    if (d->kind == CALLA_DELTA_CALL_END) {
        cc->n_calls++;
        if (chat->one_call) choice_stop(cc->c);
    }
}

/* ---- an answer ------------------------------------------------------------------------ */

static int begin(struct generation *g, struct calla_err *err) {
    struct chat *chat = g->data;
    struct calla_buf role = { 0 };
    chat->choices = calloc((size_t)g->n_choices, sizeof *chat->choices);
    if (chat->choices == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for %d answers", g->n_choices);
    const struct calla_render_input *render = &chat->normalised.render;
    calla_buf_str(&role, "{\"role\":\"assistant\",\"content\":\"\"}");
    int rc = 0;
    for (int i = 0; rc == 0 && i < g->n_choices; i++) {
        struct chat_choice *cc = &chat->choices[i];
        const struct calla_parser_options opt = { .tools = chat->normalised.tools, .on_delta = on_delta, .user = cc,
                                                  .thinking = render->thinking && render->add_generation_prompt && !render->open_last };
        cc->c = &g->choices[i];
        cc->stop.strings = &g->params.stop;
        cc->logprobs.limit = SERVER_REPLY_BYTES;
        rc = calla_answer_new(&cc->answer, g->s->tokenizer, &opt, err);
        if (rc == 0 && g->params.stream) chunk(cc, &role, NULL);
    }
    calla_buf_free(&role);
    return rc;
}

static bool is_stop_id(const struct generation *g, int32_t id) {
    for (int i = 0; i < g->s->info.n_stop_ids && !g->params.ignore_eos; i++)
        if (g->s->info.stop_ids[i] == id) return true;
    return false;
}

static int event(struct choice *c, const struct calla_event *ev, struct calla_err *err) {
    struct generation *g = c->g;
    struct chat_choice *cc = &((struct chat *)g->data)->choices[c->idx];
    if (ev->kind != CALLA_EVENT_TOKEN) return 0;
    if (g->n_top_logprobs >= 0 && !is_stop_id(g, ev->id)) {
        if (cc->logprobs.n > 0) calla_buf_char(&cc->logprobs, ',');
        openai_logprob(&cc->logprobs, g->s, ev);
    }
    if (calla_parser_in_reasoning(calla_answer_parser(cc->answer))) cc->n_reasoning++;
    return calla_answer_feed(cc->answer, ev->id, err);
}

static int choice_end(struct choice *c, struct calla_err *err) {
    struct generation *g = c->g;
    struct chat_choice *cc = &((struct chat *)g->data)->choices[c->idx];
    const struct calla_buf none = { .data = "{}", .n = 2 };
    const int rc = calla_answer_finish(cc->answer, c->finish == CALLA_FINISH_LENGTH, err);
    if (rc != 0) return rc;
    if (!c->stopped) emit_content(cc, NULL, 0);
    if (g->params.stream) chunk(cc, &none, openai_finish(c, cc->n_calls > 0));
    return 0;
}

static int n_reasoning(const struct generation *g) {
    const struct chat *chat = g->data;
    int n = 0;
    for (int i = 0; i < g->n_choices; i++) n += chat->choices[i].n_reasoning;
    return n;
}

static void end_stream(struct generation *g) {
    struct calla_buf json = { 0 };
    if (g->params.include_usage) {
        open_chunk(&json, g);
        calla_buf_str(&json, ",\"choices\":[],");
        openai_usage(&json, g, n_reasoning(g));
        calla_buf_char(&json, ',');
        openai_timings(&json, g);
        calla_buf_char(&json, '}');
        generation_sse(g, NULL, &json);
    }
    calla_buf_free(&json);
    calla_buf_str(&g->out, "data: [DONE]\n\n");
}

static void print_message(struct calla_buf *out, struct chat_choice *cc) {
    const struct calla_message *m = &cc->message;
    calla_buf_fmt(out, "{\"index\":%d,\"message\":{\"role\":\"assistant\",\"content\":", cc->c->idx);
    if (m->content.n == 0 && m->n_calls > 0) calla_buf_str(out, "null");
    else openai_string(out, &m->content);
    if (m->reasoning.n > 0) {
        calla_buf_str(out, ",\"reasoning_content\":");
        openai_string(out, &m->reasoning);
    }
    for (int i = 0; i < m->n_calls; i++) {
        calla_buf_str(out, i == 0 ? ",\"tool_calls\":[" : ",");
        calla_buf_str(out, "{\"id\":\"");
        print_call_id(out);
        calla_buf_str(out, "\",\"type\":\"function\",\"function\":{\"name\":");
        openai_string(out, &m->calls[i].name);
        calla_buf_str(out, ",\"arguments\":");
        openai_string(out, &m->calls[i].arguments);
        calla_buf_str(out, i + 1 == m->n_calls ? "}}]" : "}}");
    }
    calla_buf_str(out, "},\"logprobs\":");
    print_logprobs(out, cc);
    calla_buf_fmt(out, ",\"finish_reason\":\"%s\"}", openai_finish(cc->c, cc->n_calls > 0));
    if (calla_message_failed(m)) out->failed = true;
}

static void end(struct generation *g) {
    struct chat *chat = g->data;
    struct calla_buf *out = &g->out;
    if (g->params.stream) {
        end_stream(g);
        return;
    }
    openai_head(out, g, "chatcmpl", "chat.completion");
    print_mode(out, chat);
    calla_buf_str(out, ",\"choices\":[");
    for (int i = 0; i < g->n_choices; i++) {
        if (i > 0) calla_buf_char(out, ',');
        print_message(out, &chat->choices[i]);
    }
    calla_buf_str(out, "],");
    openai_usage(out, g, n_reasoning(g));
    calla_buf_char(out, ',');
    openai_timings(out, g);
    calla_buf_char(out, '}');
}

static void free_chat(struct generation *g) {
    struct chat *chat = g->data;
    if (chat == NULL) return;
    for (int i = 0; chat->choices != NULL && i < g->n_choices; i++) {
        struct chat_choice *cc = &chat->choices[i];
        calla_answer_free(&cc->answer);
        stop_free(&cc->stop);
        calla_message_free(&cc->message);
        calla_buf_free(&cc->logprobs);
    }
    free(chat->choices);
    calla_chat_prompt_free(&chat->prompt);
    calla_normalised_free(&chat->normalised);
    free(chat);
    g->data = NULL;
}

const struct api openai_chat = { "messages", prepare, begin, event, choice_end, end, free_chat };
const struct api openai_render = { "messages", prepare_render, begin, event, choice_end, end, free_chat };
