/* run.c - calla run: one question, one answer. */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/turn.h"

enum { CLI_INTERRUPTED = 130 };

static const char *bytes_of(const struct calla_buf *b) { return b->data ? b->data : ""; }

static void print_calls(struct calla_buf *out, const struct calla_message *m) {
    bool first = true;
    calla_buf_char(out, '[');
    for (int i = 0; i < m->n_calls; i++) {
        if (!m->calls[i].complete) continue;
        calla_buf_str(out, first ? "{\"name\": " : ", {\"name\": ");
        calla_json_print_string(out, bytes_of(&m->calls[i].name), m->calls[i].name.n);
        calla_buf_str(out, ", \"arguments\": ");
        calla_json_print_string(out, bytes_of(&m->calls[i].arguments), m->calls[i].arguments.n);
        calla_buf_char(out, '}');
        first = false;
    }
    calla_buf_char(out, ']');
}

/* llama-server's names; what was read is the prompt without what was cached. */
static void print_timings(struct calla_buf *out, const struct calla_usage *u) {
    const int n_read = u->n_prompt - u->n_cached;
    const struct { const char *name; double v; } parts[] = {
        { "cache_n", u->n_cached }, { "prompt_n", n_read }, { "prompt_ms", u->prefill_s * 1e3 },
        { "prompt_per_second", u->prefill_s > 0 ? n_read / u->prefill_s : 0 }, { "predicted_n", u->n_sampled },
        { "predicted_ms", u->decode_s * 1e3 },       /* from the first id to the last */
        { "predicted_per_second", u->decode_s > 0 && u->n_sampled > 1 ? (u->n_sampled - 1) / u->decode_s : 0 } };
    calla_buf_str(out, "{\"queue_ms\": ");
    cli_print_number(out, u->queue_s * 1e3, 9);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        calla_buf_fmt(out, ", \"%s\": ", parts[i].name);
        cli_print_number(out, parts[i].v, 9);
    }
    calla_buf_char(out, '}');
}

static int print_json(const struct cli_turn *t, struct calla_err *err) {
    const struct calla_usage *u = &t->done.usage;
    const struct calla_buf none = { 0 }, *content = t->raw ? &t->text : &t->message.content;
    const struct calla_buf *reasoning = t->raw ? &none : &t->message.reasoning;
    struct calla_buf out = { 0 };
    calla_buf_str(&out, "{\"prompt_ids\": ");
    cli_print_ids(&out, t->prompt.ids.v, t->prompt.ids.n);
    calla_buf_str(&out, ", \"ids\": ");
    cli_print_ids(&out, t->ids.v, t->ids.n);
    calla_buf_str(&out, ", \"text\": ");
    calla_json_print_string(&out, bytes_of(&t->text), t->text.n);
    calla_buf_str(&out, ", \"reasoning\": ");
    calla_json_print_string(&out, bytes_of(reasoning), reasoning->n);
    calla_buf_str(&out, ", \"content\": ");
    calla_json_print_string(&out, bytes_of(content), content->n);
    calla_buf_str(&out, ", \"tool_calls\": ");
    print_calls(&out, &t->message);
    calla_buf_fmt(&out, ", \"finish_reason\": \"%s\", \"usage\": {\"prompt_tokens\": %d, \"completion_tokens\": %d, \"total_tokens\": %d, "
                  "\"prompt_tokens_details\": {\"cached_tokens\": %d}}, \"timings\": ", cli_turn_finish(t), u->n_prompt, u->n_sampled,
                  u->n_prompt + u->n_sampled, u->n_cached);
    print_timings(&out, u);
    calla_buf_str(&out, "}\n");
    int rc = out.failed ? calla_fail(err, CALLA_ERR_MEMORY, "no memory to print the answer") : 0;
    if (rc == 0 && (fwrite(out.data, 1, out.n, stdout) != out.n || fflush(stdout) != 0)) rc = calla_fail(err, CALLA_ERR_IO, "cannot write to stdout");
    calla_buf_free(&out);
    return rc;
}

static int make_turn(struct cli_turn *t, const struct cli_model *m, const struct cli_options *o, struct calla_err *err) {
    if (o->raw) return cli_turn_from_text(t, m, o->prompt, err);
    struct json_object *messages = json_object_new_array(), *message = json_object_new_object();
    json_object_object_add(message, "role", json_object_new_string("user"));
    json_object_object_add(message, "content", json_object_new_string(o->prompt));
    json_object_array_add(messages, message);
    const int rc = cli_turn_from_messages(t, m, messages, !o->no_think, err);
    json_object_put(messages);
    return rc;
}

int cmd_run(const struct cli_options *o) {
    struct cli_model m;
    struct cli_turn t = { 0 };
    struct calla_engine *e = NULL;
    struct calla_err err = { 0 };
    if (o->prompt == NULL) {
        fprintf(stderr, "calla: run needs --prompt TEXT\n");
        return CLI_USAGE;
    }
    int rc = cli_model_open(&m, o, &(struct cli_model_options){ .n_sequences = 1, .no_cache = true, .needs_text = true }, &err);
    if (rc == 0) rc = make_turn(&t, &m, o, &err);
    if (rc == 0) rc = calla_engine_start(&e, m.model, 0, &err);
    if (rc == 0) {
        const struct calla_sampling sampling = cli_sampling(o, &m.info);
        cli_interrupt_install();
        rc = cli_turn_run(&t, &m, e, &sampling, o->n, !o->json, &err);
    }
    if (rc == 0 && o->json) rc = print_json(&t, &err);
    const bool stopped = rc == 0 && t.done.finish == CALLA_FINISH_CANCELLED;
    calla_engine_stop(&e);
    cli_turn_free(&t);
    cli_model_close(&m);
    if (rc != 0) return cli_fail(&err);
    return stopped ? CLI_INTERRUPTED : CLI_OK;
}
