/* eval.c - calla eval: perplexity, task accuracy on a held-out set, agreement
 * with another run's logits.
 *
 * --in is JSON lines (tools/demo/make_heldout.py says which) or any text file.
 * A task's item is right when greedy decoding writes its answer.  It is read
 * with the wanted text given: where every id is the most likely one, that is
 * the greedy text; only the others are really decoded. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "cli/eval_score.h"

enum { LINE_LIMIT = 64 << 20, MOST_TASKS = 256, MORE_IDS = 48, NAME_BYTES = 64 };

struct task {
    char name[NAME_BYTES];
    long n, n_right, n_thinking, n_closed;
    long n_ids;                 /* of text of which the probability is asked        */
    double nll, log_p;          /* log_p: the true one, where it is known           */
    bool is_text, known;
};

struct eval {
    const struct cli_options *o;
    struct cli_model m;
    struct calla_session *s;
    struct task tasks[MOST_TASKS];
    int n_tasks;
    struct calla_buf logits;    /* one line for --out                               */
    FILE *out;
    bool verbose;
};

static struct task *task_of(struct eval *e, const char *name, bool think, struct calla_err *err) {
    char full[NAME_BYTES];
    if (snprintf(full, sizeof full, "%s%s", name, think ? "+t" : "") >= (int)sizeof full) {
        calla_fail(err, CALLA_ERR_LIMIT, "a task's name has at most %d bytes", NAME_BYTES - 3);
        return NULL;
    }
    for (int i = 0; i < e->n_tasks; i++)
        if (strcmp(e->tasks[i].name, full) == 0) return &e->tasks[i];
    if (e->n_tasks == MOST_TASKS) {
        calla_fail(err, CALLA_ERR_LIMIT, "more than %d tasks", MOST_TASKS);
        return NULL;
    }
    struct task *t = &e->tasks[e->n_tasks++];
    memcpy(t->name, full, sizeof full);
    return t;
}

static int add_text(const struct eval *e, struct calla_ids *ids, const char *text, size_t n, struct calla_err *err) {
    return calla_tokenizer_encode(e->m.tokenizer, text, n, NULL, 0, ids, err);
}

static int add_string(const struct eval *e, struct calla_ids *ids, struct json_object *text, struct calla_err *err) {
    return add_text(e, ids, json_object_get_string(text), (size_t)json_object_get_string_len(text), err);
}

/* Scores ids from `from` on; writes the line of --out for texts. */
static int score(struct eval *e, const struct calla_ids *ids, int from, bool is_text, struct eval_score *out, struct calla_err *err) {
    if (ids->n > (size_t)e->m.info.ctx_tokens)
        return calla_fail(err, CALLA_ERR_LIMIT, "%zu ids do not fit in a context of %d; --ctx makes it longer", ids->n, e->m.info.ctx_tokens);
    struct calla_buf *logits = is_text && e->out ? &e->logits : NULL;
    calla_buf_clear(&e->logits);
    int rc = eval_read(e->s, &e->m, ids->v, (int)ids->n, from, out, logits, e->o->top, err);
    if (rc == 0 && logits && fwrite(logits->data, 1, logits->n, e->out) != logits->n)
        rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot write", e->o->out);
    return rc;
}

static const char *after_thinking(const char *text) {
    static const char end[] = "</think>\n\n";
    const char *at = NULL;
    for (const char *p = strstr(text, end); p != NULL; p = strstr(p + 1, end)) at = p + sizeof end - 1;
    return at;
}

/* Is what was written from id `from` on the answer, and was the thinking closed? */
static void judge(const struct eval *e, const struct calla_ids *ids, int from, bool think, struct json_object *answer, struct task *t,
                  struct calla_buf *text) {
    size_t n = ids->n;
    calla_buf_clear(text);
    for (int i = 0; i < e->m.info.n_stop_ids; i++)
        if (n > (size_t)from && ids->v[n - 1] == e->m.info.stop_ids[i]) {
            n--;
            break;
        }
    for (size_t i = (size_t)from; i < n; i++) {
        size_t n_bytes;
        const char *bytes = calla_tokenizer_bytes(e->m.tokenizer, ids->v[i], &n_bytes);
        if (bytes != NULL) calla_buf_add(text, bytes, n_bytes);
    }
    const char *said = text->data ? text->data : "";
    if (think) {
        const char *rest = after_thinking(said);
        t->n_closed += rest != NULL;
        if (rest == NULL) return;
        said = rest;
    }
    const size_t n_said = text->n - (size_t)(said - (text->data ? text->data : said));
    const size_t n_want = (size_t)json_object_get_string_len(answer);
    const bool right = n < ids->n && n_said == n_want && memcmp(said, json_object_get_string(answer), n_want) == 0;
    t->n_right += right;
    if (!right && e->verbose) fprintf(stderr, "%s: wanted %s\n  got %s\n", t->name, json_object_get_string(answer), said);
}

static int run_item(struct eval *e, struct task *t, struct json_object *prompt, struct json_object *want, struct json_object *answer, bool think,
                    struct calla_err *err) {
    struct calla_ids ids = { 0 };
    struct calla_buf text = { .limit = LINE_LIMIT };
    struct eval_score got;
    int rc = add_string(e, &ids, prompt, err);
    const int from = (int)ids.n;
    if (rc == 0) rc = add_string(e, &ids, want, err);
    if (rc == 0 && (from == 0 || ids.n == (size_t)from)) rc = calla_fail(err, CALLA_ERR_FORMAT, "prompt and want may not be empty");
    if (rc == 0) rc = score(e, &ids, from, false, &got, err);
    if (rc == 0 && got.first_wrong >= 0) {
        const int n_most = (int)ids.n - got.first_wrong + MORE_IDS;
        ids.n = (size_t)got.first_wrong;
        ids.v[ids.n++] = got.instead;
        bool stops = false;
        for (int i = 0; i < e->m.info.n_stop_ids; i++) stops |= e->m.info.stop_ids[i] == got.instead;
        if (!stops) rc = eval_decode(e->s, &e->m, &ids, n_most, err);
    }
    if (rc == 0) {
        t->n++;
        t->n_thinking += think;
        judge(e, &ids, from, think, answer, t, &text);
        if (text.failed) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for an answer");
    }
    calla_buf_free(&text);
    calla_ids_free(&ids);
    return rc;
}

static int run_text(struct eval *e, struct task *t, struct json_object *prompt, struct json_object *text, struct json_object *log_p, struct calla_err *err) {
    struct calla_ids ids = { 0 };
    struct eval_score got;
    int rc = add_string(e, &ids, prompt, err);
    const int from = (int)ids.n;
    if (rc == 0) rc = add_string(e, &ids, text, err);
    if (rc == 0 && from == 0) rc = calla_fail(err, CALLA_ERR_FORMAT, "prompt may not be empty");
    if (rc == 0) rc = score(e, &ids, from, true, &got, err);
    if (rc == 0) {
        t->is_text = true;
        t->n++;
        t->n_ids += got.n;
        t->nll += got.nll;
        t->known = log_p != NULL;
        if (log_p) t->log_p += json_object_get_double(log_p);
    }
    calla_ids_free(&ids);
    return rc;
}

static struct json_object *string_of(struct json_object *line, const char *key) {
    struct json_object *v;
    return json_object_object_get_ex(line, key, &v) && json_object_is_type(v, json_type_string) ? v : NULL;
}

static int run_line(struct eval *e, const char *bytes, size_t n, struct calla_err *err) {
    struct json_object *line = NULL, *flag = NULL, *log_p = NULL;
    int rc = calla_json_parse(bytes, n, &line, err);
    if (rc != 0) return rc;
    struct json_object *task = NULL, *prompt = NULL, *want = NULL, *answer = NULL, *text = NULL;
    if (json_object_is_type(line, json_type_object)) {
        task = string_of(line, "task");
        prompt = string_of(line, "prompt");
        want = string_of(line, "want");
        answer = string_of(line, "answer");
        text = string_of(line, "text");
    }
    if (task == NULL || prompt == NULL || (text == NULL && (want == NULL || answer == NULL)))
        rc = calla_fail(err, CALLA_ERR_FORMAT, "an item has the strings task, prompt, want and answer, or task, prompt and text");
    const bool think = rc == 0 && json_object_object_get_ex(line, "think", &flag) && json_object_get_boolean(flag);
    struct task *t = rc == 0 ? task_of(e, json_object_get_string(task), think, err) : NULL;
    if (rc == 0 && t == NULL) rc = CALLA_ERR_LIMIT;
    if (rc == 0 && !(e->o->items > 0 && t->n >= e->o->items)) {
        if (text == NULL) rc = run_item(e, t, prompt, want, answer, think, err);
        else {
            if (!json_object_object_get_ex(line, "log_p", &log_p) || !json_object_is_type(log_p, json_type_double)) log_p = NULL;
            rc = run_text(e, t, prompt, text, log_p, err);
        }
    }
    json_object_put(line);
    return rc;
}

/* Any text: pieces as long as the context, each from a fresh state; the first id of a piece is not scored. */
static int run_plain(struct eval *e, const struct calla_buf *text, struct calla_err *err) {
    struct calla_ids all = { 0 };
    struct task *t = task_of(e, "text", false, err);
    int rc = t == NULL ? CALLA_ERR_LIMIT : add_text(e, &all, text->data ? text->data : "", text->n, err);
    const size_t step = (size_t)e->m.info.ctx_tokens;
    for (size_t at = 0; rc == 0 && at + 1 < all.n; at += step) {
        const struct calla_ids piece = { .v = all.v + at, .n = all.n - at < step ? all.n - at : step };
        struct eval_score got;
        if (piece.n < 2) break;
        rc = score(e, &piece, 1, true, &got, err);
        if (rc != 0) break;
        t->is_text = true;
        t->n++;
        t->n_ids += got.n;
        t->nll += got.nll;
    }
    if (rc == 0 && t->n_ids == 0) rc = calla_fail(err, CALLA_ERR_FORMAT, "a text of fewer than two ids has no perplexity");
    calla_ids_free(&all);
    return rc;
}

static int read_in(struct eval *e, struct calla_err *err) {
    FILE *f = fopen(e->o->in, "rb");
    struct calla_buf line = { .limit = LINE_LIMIT };
    if (f == NULL) return calla_fail(err, CALLA_ERR_IO, "%s: cannot open", e->o->in);
    const int first = getc(f);
    int rc = 0;
    if (first != EOF) ungetc(first, f);
    if (first == '{') {
        for (int n_line = 1; rc == 0; n_line++) {
            const int got = cli_read_line(f, &line, err);
            if (got <= 0) {
                rc = got;
                break;
            }
            rc = run_line(e, line.data, line.n, err);
            if (rc != 0) calla_err_prefix(err, "%s: line %d", e->o->in, n_line);
        }
    } else {
        char bytes[65536];
        for (size_t n; (n = fread(bytes, 1, sizeof bytes, f)) > 0;) calla_buf_add(&line, bytes, n);
        if (ferror(f)) rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot read", e->o->in);
        else if (line.failed) rc = calla_fail(err, CALLA_ERR_LIMIT, "%s: more than %d MiB of text", e->o->in, LINE_LIMIT >> 20);
        else rc = run_plain(e, &line, err);
    }
    calla_buf_free(&line);
    fclose(f);
    return rc;
}

static int read_against(struct eval *e, struct eval_agreement *a, struct calla_err *err) {
    FILE *f = fopen(e->o->against, "rb");
    struct calla_buf line = { .limit = LINE_LIMIT };
    if (f == NULL) return calla_fail(err, CALLA_ERR_IO, "%s: cannot open", e->o->against);
    int rc = 0;
    for (int n_line = 1; rc == 0; n_line++) {
        struct json_object *v = NULL;
        const int got = cli_read_line(f, &line, err);
        if (got <= 0) {
            rc = got;
            break;
        }
        rc = calla_json_parse(line.data, line.n, &v, err);
        if (rc == 0) rc = eval_against(e->s, &e->m, v, a, err);
        if (rc != 0) calla_err_prefix(err, "%s: line %d", e->o->against, n_line);
        json_object_put(v);
    }
    if (rc == 0 && a->n == 0) rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: no logits", e->o->against);
    calla_buf_free(&line);
    fclose(f);
    return rc;
}

static void print_row(struct calla_buf *b, const struct task *t, bool jsonl) {
    if (!t->is_text) {
        const double share = t->n ? (double)t->n_right / (double)t->n : 0;
        if (jsonl) {
            calla_buf_str(b, "{\"task\": ");
            calla_json_print_string(b, t->name, strlen(t->name));
            calla_buf_fmt(b, ", \"n\": %ld, \"accuracy\": ", t->n);
            cli_print_number(b, share, 6);
            if (t->n_thinking) calla_buf_fmt(b, ", \"thinking_closed\": %ld", t->n_closed);
            calla_buf_str(b, "}\n");
        } else {
            calla_buf_fmt(b, "| %s | %ld | ", t->name, t->n);
            cli_print_number(b, 100 * share, 4);
            calla_buf_str(b, " % |\n");
        }
        return;
    }
    const double ppl = exp(t->nll / (double)t->n_ids), real = exp(-t->log_p / (double)t->n_ids);
    calla_buf_str(b, jsonl ? "{\"task\": " : "| perplexity of ");
    if (jsonl) calla_json_print_string(b, t->name, strlen(t->name));
    else calla_buf_str(b, t->name);
    calla_buf_fmt(b, jsonl ? ", \"n\": %ld, \"perplexity\": " : " | %ld ids | ", t->n_ids);
    cli_print_number(b, ppl, 7);
    if (t->known) {
        calla_buf_str(b, jsonl ? ", \"true\": " : ", true ");
        cli_print_number(b, real, 7);
    }
    calla_buf_str(b, jsonl ? "}\n" : " |\n");
}

static void print_agreement(struct calla_buf *b, const struct eval_agreement *a, bool jsonl) {
    const double v[] = { (double)a->n_same / (double)a->n, a->kl / (double)a->n, a->worst_kl,
                         a->n_next ? exp((a->nll_ours - a->nll_theirs) / (double)a->n_next) : 1 };
    static const char *const keys[] = { "top1", "kl", "worst_kl", "perplexity_ratio" };
    static const char *const names[] = { "equal best id", "mean KL", "worst KL", "perplexity ratio" };
    if (jsonl) calla_buf_fmt(b, "{\"task\": \"against\", \"n\": %ld", a->n);
    for (int i = 0; i < 4; i++) {
        if (jsonl) calla_buf_fmt(b, ", \"%s\": ", keys[i]);
        else calla_buf_fmt(b, "| against: %s | %ld ids | ", names[i], i < 3 ? a->n : a->n_next);
        cli_print_number(b, v[i], 7);
        if (!jsonl) calla_buf_str(b, " |\n");
    }
    if (jsonl) calla_buf_str(b, "}\n");
}

static int print_result(const struct eval *e, const struct eval_agreement *a, struct calla_err *err) {
    struct calla_buf b = { 0 };
    struct task all = { .name = "all", .is_text = true, .known = true };
    if (!e->o->jsonl) calla_buf_str(&b, "| task | n | result |\n| --- | --- | --- |\n");
    int n_texts = 0;
    for (int i = 0; i < e->n_tasks; i++) {
        print_row(&b, &e->tasks[i], e->o->jsonl);
        if (!e->tasks[i].is_text) continue;
        n_texts++;
        all.n_ids += e->tasks[i].n_ids;
        all.nll += e->tasks[i].nll;
        all.log_p += e->tasks[i].log_p;
        all.known &= e->tasks[i].known;
    }
    if (e->o->jsonl && n_texts) {
        calla_buf_fmt(&b, "{\"task\": \"perplexity\", \"n\": %ld, \"perplexity\": ", all.n_ids);
        cli_print_number(&b, exp(all.nll / (double)all.n_ids), 7);
        calla_buf_str(&b, "}\n");
    } else if (n_texts > 1) print_row(&b, &all, false);
    if (e->o->against) print_agreement(&b, a, e->o->jsonl);
    int rc = b.failed ? calla_fail(err, CALLA_ERR_MEMORY, "no memory for the result") : 0;
    if (rc == 0 && (fwrite(b.data, 1, b.n, stdout) != b.n || fflush(stdout) != 0)) rc = calla_fail(err, CALLA_ERR_IO, "cannot write to stdout");
    calla_buf_free(&b);
    return rc;
}

int cmd_eval(const struct cli_options *o) {
    struct calla_err err = { 0 };
    struct eval_agreement a = { 0 };
    if (o->in == NULL && o->against == NULL) {
        fprintf(stderr, "calla: eval needs --in FILE or --against FILE\n");
        return CLI_USAGE;
    }
    struct eval *e = calloc(1, sizeof *e);
    if (e == NULL) {
        calla_fail(&err, CALLA_ERR_MEMORY, "no memory");
        return cli_fail(&err);
    }
    e->o = o;
    e->verbose = o->verbose;
    int rc = cli_model_open(&e->m, o, &(struct cli_model_options){ .n_sequences = 1, .no_cache = true, .needs_text = o->in != NULL }, &err);
    if (rc == 0) rc = calla_session_new(&e->s, e->m.model, &err);
    if (rc == 0 && o->out && (e->out = fopen(o->out, "wb")) == NULL) rc = calla_fail(&err, CALLA_ERR_IO, "%s: cannot write", o->out);
    if (rc == 0 && o->in) rc = read_in(e, &err);
    if (rc == 0 && o->against) rc = read_against(e, &a, &err);
    if (e->out && fclose(e->out) != 0 && rc == 0) rc = calla_fail(&err, CALLA_ERR_IO, "%s: cannot write", o->out);
    if (rc == 0) rc = print_result(e, &a, &err);
    calla_buf_free(&e->logits);
    calla_session_free(&e->s);
    cli_model_close(&e->m);
    free(e);
    return rc == 0 ? CLI_OK : cli_fail(&err);
}
