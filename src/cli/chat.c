/* chat.c - calla chat: a conversation in the terminal.
 *
 * The engine keeps the states of the conversation, so that a turn reads only
 * what is new. */
#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/turn.h"

struct chat {
    const struct cli_options *options;
    struct cli_model model;
    struct calla_engine *engine;
    struct json_object *messages;
    struct calla_sampling sampling;
    bool thinking;
    int  n_turns;
    struct calla_usage last, all;
};

static void say_help(void) {
    puts("/think   think before answering, or not\n/stats   tokens and speed of the last answer and of the whole conversation\n"
         "/reset   forget the conversation\n/help    this\n"
         "Ctrl-C stops an answer, Ctrl-D ends the program.");
}

static void say_usage(const char *what, const struct calla_usage *u) {
    const int n_read = u->n_prompt - u->n_cached;
    printf("%s: %d prompt tokens, %d of them from the cache; read %d in %.2f s", what, u->n_prompt, u->n_cached, n_read, u->prefill_s);
    if (u->prefill_s > 0) printf(" (%.1f/s)", n_read / u->prefill_s);
    printf("; %d tokens answered in %.2f s", u->n_sampled, u->decode_s);
    if (u->decode_s > 0) printf(" (%.1f/s)", u->n_sampled / u->decode_s);
    puts("");
}

static void say_stats(const struct chat *c) {
    if (c->n_turns == 0) {
        puts("nothing was asked yet");
        return;
    }
    say_usage("last answer", &c->last);
    say_usage("conversation", &c->all);
    printf("context: %d of %d tokens; %s, %s\n", c->last.n_prompt + c->last.n_sampled, c->model.info.ctx_tokens, c->model.info.shape_name,
           c->model.info.device);
}

static void add_usage(struct calla_usage *all, const struct calla_usage *u) {
    all->n_prompt += u->n_prompt;
    all->n_cached += u->n_cached;
    all->n_sampled += u->n_sampled;
    all->prefill_s += u->prefill_s;
    all->decode_s += u->decode_s;
}

static struct json_object *message_new(const char *role, const char *text, size_t n) {
    struct json_object *m = json_object_new_object();
    json_object_object_add(m, "role", json_object_new_string(role));
    json_object_object_add(m, "content", json_object_new_string_len(text ? text : "", (int)n));
    return m;
}

static void drop_last_message(struct chat *c) {
    json_object_array_del_idx(c->messages, json_object_array_length(c->messages) - 1, 1);
}

/* The turn's question and answer join the conversation; a question that failed does not. */
static void take_turn(struct chat *c, const char *line, size_t n) {
    struct cli_turn t = { 0 };
    struct calla_err err = { 0 };
    json_object_array_add(c->messages, message_new("user", line, n));
    int rc = cli_turn_from_messages(&t, &c->model, c->messages, c->thinking, &err);
    if (rc == 0) {
        cli_interrupt_taken();
        rc = cli_turn_run(&t, &c->model, c->engine, &c->sampling, c->options->n, true, &err);
    }
    if (rc != 0) {
        cli_fail(&err);
        drop_last_message(c);
    } else {
        struct json_object *answer = message_new("assistant", t.message.content.data, t.message.content.n);
        if (t.message.reasoning.n > 0)
            json_object_object_add(answer, "reasoning_content",
                                   json_object_new_string_len(t.message.reasoning.data, (int)t.message.reasoning.n));
        json_object_array_add(c->messages, answer);
        if (t.done.finish == CALLA_FINISH_CANCELLED) puts("(stopped)");
        if (t.done.finish == CALLA_FINISH_LENGTH) puts("(cut: the limit of tokens is reached)");
        c->n_turns++;
        c->last = t.done.usage;
        add_usage(&c->all, &t.done.usage);
        c->sampling.seed++;                      /* the same question may be answered anew */
    }
    cli_turn_free(&t);
}

static void reset(struct chat *c) {
    json_object_put(c->messages);
    c->messages = json_object_new_array();
    c->n_turns = 0;
    c->last = c->all = (struct calla_usage){ 0 };
    puts("the conversation is forgotten");
}

static void take_line(struct chat *c, const char *line, size_t n) {
    if (n == 0) return;
    if (line[0] != '/') take_turn(c, line, n);
    else if (strcmp(line, "/help") == 0) say_help();
    else if (strcmp(line, "/stats") == 0) say_stats(c);
    else if (strcmp(line, "/reset") == 0) reset(c);
    else if (strcmp(line, "/think") == 0) printf("thinking is %s\n", (c->thinking = !c->thinking) ? "on" : "off");
    else printf("unknown command %s; /help lists them\n", line);
    fflush(stdout);
}

static char *prompt_of(EditLine *el) {
    (void)el;
    static char prompt[] = "> ";
    return prompt;
}

/* One character from the terminal.  libedit's own reader reads on after the
 * first Ctrl-C; this one gives the line up. */
static int read_character(EditLine *el, wchar_t *out) {
    mbstate_t state = { 0 };
    (void)el;
    for (;;) {
        char byte;
        if (!cli_wait_input(STDIN_FILENO)) return -1;
        const ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (int)n;
        if (byte == 0) return 0;                        /* a Ctrl-D typed before the editor had the terminal */
        const size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-2) continue;               /* more bytes of the character      */
        if (used == (size_t)-1) *out = L'?';
        return 1;
    }
}

static void talk(struct chat *c) {
    struct calla_buf copy = { 0 };
    EditLine *el = el_init("calla", stdin, stdout, stderr);
    History *lines = history_init();
    HistEvent event;
    if (el == NULL || lines == NULL) {
        fprintf(stderr, "calla: no memory for the line editor\n");
    } else {
        history(lines, &event, H_SETSIZE, 1000);
        el_set(el, EL_PROMPT, prompt_of);
        el_set(el, EL_EDITOR, "emacs");
        el_set(el, EL_HIST, history, lines);
        el_set(el, EL_GETCFN, read_character);
        for (;;) {
            int n = 0;
            const char *line = el_gets(el, &n);
            if (line == NULL || n <= 0) {
                if (!cli_interrupt_taken()) break;       /* Ctrl-D, or the end of a file     */
                puts("");                                /* Ctrl-C: the line is dropped      */
                el_reset(el);
                clearerr(stdin);
                continue;
            }
            if (n > 1) history(lines, &event, H_ENTER, line);
            while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
            calla_buf_clear(&copy);
            calla_buf_add(&copy, line, (size_t)n);
            take_line(c, copy.data ? copy.data : "", copy.n);
        }
    }
    if (lines != NULL) history_end(lines);
    if (el != NULL) el_end(el);
    calla_buf_free(&copy);
}

int cmd_chat(const struct cli_options *o) {
    struct chat c = { .options = o, .thinking = !o->no_think };
    struct calla_err err = { 0 };
    setlocale(LC_CTYPE, "");                             /* of what is typed; numbers stay as they are */
    int rc = cli_model_open(&c.model, o, &(struct cli_model_options){ .n_sequences = 1, .needs_text = true }, &err);
    if (rc == 0) rc = calla_engine_start(&c.engine, c.model.model, 0, &err);
    if (rc == 0) {
        c.sampling = cli_sampling(o, &c.model.info);
        c.messages = json_object_new_array();
        cli_interrupt_install();
        puts("/help lists the commands.");
        talk(&c);
    }
    json_object_put(c.messages);
    calla_engine_stop(&c.engine);
    cli_model_close(&c.model);
    return rc == 0 ? CLI_OK : cli_fail(&err);
}
