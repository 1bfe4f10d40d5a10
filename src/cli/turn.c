#include "cli/turn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "text/normalise.h"

/* ---- Ctrl-C --------------------------------------------------------------------- */

static volatile sig_atomic_t interrupted;   /* these two are all that a signal handler can reach */
static int wake[2] = { -1, -1 };

static void on_interrupt(int signal_number) {
    const int saved = errno;
    (void)signal_number;
    interrupted = 1;
    if (write(wake[1], "", 1) < 0) { /* full: somebody is woken already */ }
    errno = saved;
}

/* A flag alone is lost between its test and the read that follows, or when the
 * signal comes to another thread; a pipe that is polled beside the terminal is not. */
void cli_interrupt_install(void) {
    struct sigaction a = { .sa_handler = on_interrupt };
    if (wake[0] < 0 && pipe(wake) == 0)
        for (int i = 0; i < 2; i++) fcntl(wake[i], F_SETFL, O_NONBLOCK);
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}

bool cli_interrupt_taken(void) {
    char bytes[64];
    const bool was = interrupted != 0;
    while (read(wake[0], bytes, sizeof bytes) > 0) { }
    interrupted = 0;
    return was;
}

bool cli_wait_input(int fd) {
    struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = wake[0], .events = POLLIN } };
    while (interrupted == 0) {
        if (poll(p, 2, -1) < 0 && errno != EINTR) return true;    /* let the read say what is wrong */
        if (interrupted == 0 && p[0].revents != 0) return true;
    }
    return false;
}

/* ---- prompts ----------------------------------------------------------------------- */

int cli_turn_from_messages(struct cli_turn *t, const struct cli_model *m, struct json_object *messages, bool thinking, struct calla_err *err) {
    struct calla_normalised n = { 0 };
    struct json_object *request = json_object_new_object(), *kwargs = json_object_new_object();
    int rc = 0;
    *t = (struct cli_turn){ 0 };
    if (request == NULL || kwargs == NULL) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for a request");
    if (rc == 0) {
        json_object_object_add(request, "messages", json_object_get(messages));
        json_object_object_add(kwargs, "enable_thinking", json_object_new_boolean(thinking));
        json_object_object_add(request, "chat_template_kwargs", json_object_get(kwargs));
        rc = calla_normalise(&n, request, NULL, 0, err);
    }
    if (rc == 0) rc = calla_chat_prompt_make(&t->prompt, m->tokenizer, &n.render, err);
    if (rc == 0) t->thinking = n.render.thinking && !n.render.open_last;
    calla_normalised_free(&n);
    json_object_put(kwargs);
    json_object_put(request);
    return rc;
}

int cli_turn_from_text(struct cli_turn *t, const struct cli_model *m, const char *text, struct calla_err *err) {
    *t = (struct cli_turn){ .raw = true };
    return calla_tokenizer_encode(m->tokenizer, text, strlen(text), NULL, 0, &t->prompt.ids, err);
}

void cli_turn_free(struct cli_turn *t) {
    calla_chat_prompt_free(&t->prompt);
    calla_ids_free(&t->ids);
    calla_buf_free(&t->text);
    calla_message_free(&t->message);
    *t = (struct cli_turn){ 0 };
}

const char *cli_turn_finish(const struct cli_turn *t) {
    switch (t->done.finish) {
    case CALLA_FINISH_STOP: return t->message.n_calls > 0 ? "tool_calls" : "stop";
    case CALLA_FINISH_LENGTH: return "length";
    case CALLA_FINISH_CANCELLED: return "cancelled";
    case CALLA_FINISH_ERROR: break;
    }
    return "error";
}

/* ---- showing an answer as it comes -------------------------------------------------------- */

struct show {
    struct cli_turn *turn;
    bool on, terminal, dim;
    size_t n_shown;              /* bytes of a raw answer                             */
};

/* What a model writes must not steer the terminal. */
static void put_text(FILE *f, const char *text, size_t n, bool terminal) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (!terminal || c >= 32 || c == '\n' || c == '\t') putc(c, f);
        else putc('?', f);
    }
    fflush(f);
}

static void set_dim(struct show *s, bool dim) {
    if (dim == s->dim) return;
    s->dim = dim;
    if (s->terminal) fputs(dim ? "\033[2m" : "\033[0m\n", stdout);
    else if (!dim) putc('\n', stderr);
}

/* Thinking is dim on a terminal; elsewhere it goes to stderr, so that stdout is the answer. */
static void on_delta(void *user, const struct calla_delta *d) {
    struct show *s = user;
    calla_message_add(&s->turn->message, d);
    if (!s->on || s->turn->raw) return;
    set_dim(s, d->kind == CALLA_DELTA_REASONING);
    if (d->kind == CALLA_DELTA_CALL) fputs("\n[call] ", stdout);
    put_text(d->kind == CALLA_DELTA_REASONING && !s->terminal ? stderr : stdout, d->text, d->n, s->terminal);
    if (d->kind == CALLA_DELTA_CALL) fputs(" ", stdout);
    if (d->kind == CALLA_DELTA_CALL_END) fputs("\n", stdout);
}

static void show_raw(struct show *s, const struct calla_answer *a) {
    size_t n;
    const char *text = calla_answer_text(a, &n);
    if (s->on && s->turn->raw) put_text(stdout, text + s->n_shown, n - s->n_shown, s->terminal);
    s->n_shown = n;
}

/* ---- the turn --------------------------------------------------------------------------------- */

static int read_answer(struct cli_turn *t, struct calla_request *r, struct calla_answer *a, struct show *show, struct calla_err *err) {
    int rc = 0;
    do {
        if (cli_interrupt_taken()) calla_request_cancel(r);
        if (!calla_request_wait(r, &t->done, 100) || t->done.kind != CALLA_EVENT_TOKEN) continue;
        if (!calla_ids_add(&t->ids, t->done.id)) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu ids", t->ids.n);
        if (rc == 0) rc = calla_answer_feed(a, t->done.id, err);
        show_raw(show, a);
    } while (rc == 0 && t->done.kind != CALLA_EVENT_DONE);
    return rc;
}

int cli_turn_run(struct cli_turn *t, const struct cli_model *m, struct calla_engine *e, const struct calla_sampling *s,
                 int max_tokens, bool show_it, struct calla_err *err) {
    struct show show = { .turn = t, .on = show_it, .terminal = isatty(1) };
    struct calla_request *r = NULL;
    struct calla_answer *a = NULL;
    const struct calla_parser_options popt = { .thinking = t->thinking, .on_delta = on_delta, .user = &show };
    const struct calla_request_params p = { .prompt = t->prompt.ids.v, .n_prompt = (int)t->prompt.ids.n, .max_tokens = max_tokens,
                                            .sampling = *s, .stop_ids = m->info.stop_ids, .n_stop_ids = m->info.n_stop_ids,
                                            .boundaries = t->prompt.boundaries, .n_boundaries = t->prompt.n_boundaries, .n_top_logprobs = -1 };
    if (t->prompt.ids.n > (size_t)m->info.ctx_tokens)
        return calla_fail(err, CALLA_ERR_LIMIT, "the prompt has %zu tokens and the context %d (--ctx)", t->prompt.ids.n, m->info.ctx_tokens);
    int rc = calla_answer_new(&a, m->tokenizer, &popt, err);
    if (rc == 0) rc = calla_request_submit(e, &p, &r, err);
    if (rc == 0) rc = read_answer(t, r, a, &show, err);
    if (rc == 0) rc = calla_answer_finish(a, t->done.finish != CALLA_FINISH_STOP, err);
    if (rc == 0) {
        size_t n;
        const char *text = calla_answer_text(a, &n);
        show_raw(&show, a);
        calla_buf_add(&t->text, text, n);
        if (t->text.failed) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu bytes of an answer", n);
    }
    if (show.on) {
        set_dim(&show, false);
        fputs("\n", stdout);
        fflush(stdout);
    }
    if (rc == 0 && t->done.finish == CALLA_FINISH_ERROR) {
        if (err != NULL) *err = t->done.err;
        rc = t->done.err.code;
    }
    calla_request_free(&r);
    calla_answer_free(&a);
    return rc;
}
