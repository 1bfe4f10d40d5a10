/* openai_completions.c - POST /v1/completions: bare text or ids, with echo and the logprobs that evaluation harnesses read. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/utf8.h"
#include "server/openai.h"

enum { DEFAULT_MAX_TOKENS = 16, MAX_PROMPTS = 2048 };   /* 16: OpenAI's; harnesses send batches */

struct text_choice {
    struct calla_detokenizer detok;
    struct stop_matcher stop;
    struct calla_buf text;              /* not yet sent: of a chunk, or the whole answer */
    struct calla_buf tokens, logprobs, top, offsets;   /* what these arrays hold so far, since the last chunk */
    size_t n_chars;                     /* characters of the tokens so far: text_offset */
};

struct completions {
    struct calla_ids *ids;              /* [n_prompts]                                */
    int n_prompts;
    struct text_choice *choices;        /* [g->n_choices]                             */
    bool echo;
};

/* ---- prepare -------------------------------------------------------------------- */

static void add_ids(struct generation *g, struct calla_ids *out, struct json_object *array) {
    const size_t n = json_object_array_length(array);
    for (size_t i = 0; i < n && g->fields.rc == 0; i++) {
        struct json_object *v = json_object_array_get_idx(array, i);
        const int64_t id = json_object_get_int64(v);
        if (!json_object_is_type(v, json_type_int) || id < 0 || id >= g->s->info.n_usable_ids)
            field_fail(&g->fields, "prompt", "element %zu is not a token id from 0 to %d", i, g->s->info.n_usable_ids - 1);
        else if (!calla_ids_add(out, (int32_t)id)) g->fields.rc = calla_fail(&g->fields.err, CALLA_ERR_MEMORY, "no memory for a prompt");
    }
}

/* A prompt is a string (its control tokens count) or an array of ids. */
static void add_prompt(struct generation *g, struct completions *data, struct json_object *v) {
    struct fields *f = &g->fields;
    struct calla_ids *ids = &data->ids[data->n_prompts++];
    if (json_object_is_type(v, json_type_string))
        f->rc = calla_tokenizer_encode(g->s->tokenizer, json_object_get_string(v), (size_t)json_object_get_string_len(v), NULL, 0, ids, &f->err);
    else if (json_object_is_type(v, json_type_array)) add_ids(g, ids, v);
    else field_fail(f, "prompt", "a string, an array of token ids, or an array of either is expected");
    if (f->rc == 0 && ids->n == 0) field_fail(f, "prompt", "it is empty; there is nothing to go on from");
    if (f->rc == 0 && ids->n > INT32_MAX) field_fail(f, "prompt", "%zu tokens are too many", ids->n);
}

static void read_prompts(struct generation *g, struct completions *data) {
    struct fields *f = &g->fields;
    struct json_object *v = field_get(f, "prompt");
    if (f->rc != 0) return;
    if (v == NULL) {
        field_fail(f, "prompt", "it is missing");
        return;
    }
    const bool array = json_object_is_type(v, json_type_array);
    const size_t n_elements = array ? json_object_array_length(v) : 1;
    const bool many = array && n_elements > 0 && !json_object_is_type(json_object_array_get_idx(v, 0), json_type_int);
    const size_t n = many ? n_elements : 1;
    if (n > MAX_PROMPTS) {
        field_fail(f, "prompt", "%zu prompts; at most %d are taken", n, MAX_PROMPTS);
        return;
    }
    data->ids = calloc(n, sizeof *data->ids);
    g->prompts = calloc(n, sizeof *g->prompts);
    if (data->ids == NULL || g->prompts == NULL) {
        f->rc = calla_fail(&f->err, CALLA_ERR_MEMORY, "no memory for %zu prompts", n);
        return;
    }
    for (size_t i = 0; i < n && f->rc == 0; i++) {
        add_prompt(g, data, many ? json_object_array_get_idx(v, i) : v);
        g->prompts[i] = (struct prompt){ .ids = data->ids[i].v, .n_ids = (int)data->ids[i].n };
    }
    g->n_prompts = (int)n;
}

static void prepare(struct generation *g) {
    struct fields *f = &g->fields;
    struct completions *data = g->data = calloc(1, sizeof *data);
    int64_t n_top = -1, best_of = 1;
    size_t n;
    if (data == NULL) {
        f->rc = calla_fail(&f->err, CALLA_ERR_MEMORY, "no memory for a request");
        return;
    }
    field_string(f, "model", &n);
    params_read(&g->params, f, g->s);
    if (g->params.max_tokens < 0) g->params.max_tokens = DEFAULT_MAX_TOKENS;
    field_bool(f, "echo", &data->echo);
    if (field_int(f, "logprobs", 0, CALLA_MAX_TOP_LOGPROBS, &n_top)) g->n_top_logprobs = (int)n_top;
    g->prompt_logprobs = data->echo && n_top >= 0;
    const char *suffix = field_string(f, "suffix", &n);
    if (suffix != NULL && n > 0) field_fail(f, "suffix", "filling in is not supported");
    if (field_int(f, "best_of", 1, SERVER_MAX_ANSWERS, &best_of) && best_of != g->params.n) field_fail(f, "best_of", "it must be equal to n (%d)", g->params.n);
    read_prompts(g, data);
}

/* ---- tokens ------------------------------------------------------------------------ */

static void comma(struct calla_buf *b) {
    if (b->n > 0) calla_buf_char(b, ',');
}

/* Characters of a token; the bytes that continue one do not count. */
static size_t n_characters(const char *bytes, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    return count;
}

/* The best ids and, as OpenAI has it, the token itself where it is none of them. */
static void add_top(struct text_choice *tc, const struct server *s, const struct calla_event *ev) {
    bool seen = false;
    comma(&tc->top);
    if (isnan(ev->logprob)) {
        calla_buf_str(&tc->top, "null");
        return;
    }
    calla_buf_char(&tc->top, '{');
    for (int i = 0; i < ev->n_top; i++) {
        seen |= ev->top[i].id == ev->id;
        if (i > 0) calla_buf_char(&tc->top, ',');
        openai_token(&tc->top, s, ev->top[i].id);
        calla_buf_char(&tc->top, ':');
        openai_number(&tc->top, (double)ev->top[i].logprob);
    }
    if (!seen) {
        if (ev->n_top > 0) calla_buf_char(&tc->top, ',');
        openai_token(&tc->top, s, ev->id);
        calla_buf_char(&tc->top, ':');
        openai_number(&tc->top, (double)ev->logprob);
    }
    calla_buf_char(&tc->top, '}');
}

static void add_logprob(struct text_choice *tc, const struct server *s, const struct calla_event *ev) {
    size_t n = 0;
    const char *bytes = calla_tokenizer_bytes(s->tokenizer, ev->id, &n);
    comma(&tc->tokens);
    openai_token(&tc->tokens, s, ev->id);
    comma(&tc->logprobs);
    openai_number(&tc->logprobs, (double)ev->logprob);
    add_top(tc, s, ev);
    comma(&tc->offsets);
    calla_buf_fmt(&tc->offsets, "%zu", tc->n_chars);
    if (bytes != NULL) tc->n_chars += n_characters(bytes, n);
}

static void print_logprobs(struct calla_buf *out, const struct generation *g, struct text_choice *tc) {
    if (g->n_top_logprobs < 0) {
        calla_buf_str(out, "null");
        return;
    }
    struct { const char *name; struct calla_buf *b; } parts[] = {
        { "{\"tokens\":[", &tc->tokens }, { "],\"token_logprobs\":[", &tc->logprobs }, { "],\"top_logprobs\":[", &tc->top }, { "],\"text_offset\":[", &tc->offsets } };
    for (int i = 0; i < 4; i++) {
        calla_buf_str(out, parts[i].name);
        calla_buf_add(out, parts[i].b->data, parts[i].b->n);
        if (parts[i].b->failed) out->failed = true;
        calla_buf_clear(parts[i].b);
    }
    calla_buf_str(out, "]}");
}

/* ---- an answer ------------------------------------------------------------------------ */

static void print_choice(struct calla_buf *out, struct choice *c, const char *finish) {
    struct text_choice *tc = &((struct completions *)c->g->data)->choices[c->idx];
    calla_buf_fmt(out, "{\"index\":%d,\"text\":", c->idx);
    openai_string(out, &tc->text);
    calla_buf_str(out, ",\"logprobs\":");
    print_logprobs(out, c->g, tc);
    if (finish != NULL) calla_buf_fmt(out, ",\"finish_reason\":\"%s\"}", finish);
    else calla_buf_str(out, ",\"finish_reason\":null}");
    calla_buf_clear(&tc->text);
}

static void chunk(struct choice *c, const char *finish) {
    struct generation *g = c->g;
    struct calla_buf json = { 0 };
    openai_head(&json, g, "cmpl", "text_completion");
    calla_buf_str(&json, ",\"choices\":[");
    print_choice(&json, c, finish);
    calla_buf_char(&json, ']');
    if (finish != NULL && !g->params.include_usage && g->n_ended == g->n_choices) {
        calla_buf_char(&json, ',');
        openai_timings(&json, g);
    }
    calla_buf_char(&json, '}');
    generation_sse(g, NULL, &json);
    calla_buf_free(&json);
}

/* Text of ids; special tokens show in an echoed prompt only. */
static void add_text(struct choice *c, struct text_choice *tc, int32_t id, bool prompt) {
    size_t n;
    const struct calla_tokenizer *t = c->g->s->tokenizer;
    const char *bytes = calla_tokenizer_bytes(t, id, &n);
    if (bytes == NULL) return;
    if (prompt) calla_detokenizer_push(&tc->detok, bytes, n, &tc->text);
    else if (!calla_tokenizer_is_special(t, id)) {
        struct calla_buf piece = { 0 };
        calla_detokenizer_push(&tc->detok, bytes, n, &piece);
        stop_feed(&tc->stop, piece.data != NULL ? piece.data : "", piece.n, &tc->text);
        if (piece.failed) tc->text.failed = true;
        calla_buf_free(&piece);
        if (tc->stop.matched) choice_stop(c);
    }
}

static int begin(struct generation *g, struct calla_err *err) {
    struct completions *data = g->data;
    data->choices = calloc((size_t)g->n_choices, sizeof *data->choices);
    if (data->choices == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for %d answers", g->n_choices);
    for (int i = 0; i < g->n_choices; i++) {
        struct text_choice *tc = &data->choices[i];
        const struct prompt *p = g->choices[i].prompt;
        tc->stop.strings = &g->params.stop;
        tc->top.limit = SERVER_REPLY_BYTES;
        if (!data->echo) continue;
        for (int k = 0; k < p->n_ids; k++) add_text(&g->choices[i], tc, p->ids[k], true);
        calla_detokenizer_finish(&tc->detok, &tc->text);
        if (g->params.stream && !g->prompt_logprobs) chunk(&g->choices[i], NULL);
    }
    return 0;
}

static int event(struct choice *c, const struct calla_event *ev, struct calla_err *err) {
    struct generation *g = c->g;
    struct text_choice *tc = &((struct completions *)g->data)->choices[c->idx];
    (void)err;
    if (g->n_top_logprobs >= 0) add_logprob(tc, g->s, ev);
    if (ev->kind != CALLA_EVENT_TOKEN) return 0;
    add_text(c, tc, ev->id, false);
    if (g->params.stream && tc->text.n > 0 && !c->stopped) chunk(c, NULL);
    return 0;
}

static int choice_end(struct choice *c, struct calla_err *err) {
    struct text_choice *tc = &((struct completions *)c->g->data)->choices[c->idx];
    (void)err;
    if (!c->stopped) {
        struct calla_buf piece = { 0 };
        calla_detokenizer_finish(&tc->detok, &piece);
        stop_feed(&tc->stop, piece.data != NULL ? piece.data : "", piece.n, &tc->text);
        stop_finish(&tc->stop, &tc->text);
        if (piece.failed) tc->text.failed = true;
        calla_buf_free(&piece);
    }
    if (c->g->params.stream) chunk(c, openai_finish(c, false));
    return 0;
}

static void end(struct generation *g) {
    struct calla_buf json = { 0 }, *out = g->params.stream ? &json : &g->out;
    if (!g->params.stream || g->params.include_usage) {
        openai_head(out, g, "cmpl", "text_completion");
        calla_buf_str(out, ",\"choices\":[");
        for (int i = 0; i < g->n_choices && !g->params.stream; i++) {
            if (i > 0) calla_buf_char(out, ',');
            print_choice(out, &g->choices[i], openai_finish(&g->choices[i], false));
        }
        calla_buf_str(out, "],");
        openai_usage(out, g, -1);
        calla_buf_char(out, ',');
        openai_timings(out, g);
        calla_buf_char(out, '}');
        if (g->params.stream) generation_sse(g, NULL, &json);
    }
    if (g->params.stream) calla_buf_str(&g->out, "data: [DONE]\n\n");
    calla_buf_free(&json);
}

static void free_data(struct generation *g) {
    struct completions *data = g->data;
    if (data == NULL) return;
    for (int i = 0; data->choices != NULL && i < g->n_choices; i++) {
        struct text_choice *tc = &data->choices[i];
        struct calla_buf *owned[] = { &tc->text, &tc->tokens, &tc->logprobs, &tc->top, &tc->offsets };
        for (int k = 0; k < 5; k++) calla_buf_free(owned[k]);
        stop_free(&tc->stop);
    }
    for (int i = 0; i < data->n_prompts; i++) calla_ids_free(&data->ids[i]);
    free(data->ids);
    free(data->choices);
    free(data);
    g->data = NULL;
}

const struct api openai_completions = { "prompt", prepare, begin, event, choice_end, end, free_data };
