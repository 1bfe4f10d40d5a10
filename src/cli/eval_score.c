/* eval_score.c - see eval_score.h. */
#include "cli/eval_score.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"

enum { MOST_TOP = 4096 };

struct reader {
    const struct cli_model *m;
    const int32_t *ids;
    int n, from, n_top;
    struct eval_score *score;
    struct calla_buf top, lse;
    int32_t *best;              /* [n_top] or NULL: nothing is written              */
};

static void write_row(struct reader *r, int pos, const float *logits, double lse) {
    const int n = calla_top_ids(logits, r->m->info.n_usable_ids, r->n_top, r->best);
    calla_buf_str(&r->top, pos == 0 ? "[" : ", [");
    for (int i = 0; i < n; i++) {
        calla_buf_fmt(&r->top, "%s[%d, ", i ? ", " : "", (int)r->best[i]);
        cli_print_number(&r->top, (double)logits[r->best[i]], 9);
        calla_buf_char(&r->top, ']');
    }
    calla_buf_char(&r->top, ']');
    if (pos > 0) calla_buf_str(&r->lse, ", ");
    cli_print_number(&r->lse, lse, 12);
}

static int on_read(void *user, int pos, const float *logits) {
    struct reader *r = user;
    const int next = pos + 1;
    const bool scored = next >= r->from && next < r->n;
    if (!scored && r->best == NULL) return 0;
    const double lse = calla_logsumexp(logits, r->m->info.n_usable_ids);
    if (!isfinite(lse)) return CALLA_ERR_NUMERIC;
    if (r->best != NULL) write_row(r, pos, logits, lse);
    if (!scored) return 0;
    int32_t best = 0;
    calla_top_ids(logits, r->m->info.n_usable_ids, 1, &best);
    r->score->nll += lse - (double)logits[r->ids[next]];
    r->score->n++;
    if (best != r->ids[next] && r->score->first_wrong < 0) {
        r->score->first_wrong = next;
        r->score->instead = best;
    }
    return 0;
}

int eval_read(struct calla_session *s, const struct cli_model *m, const int32_t *ids, int n, int from,
              struct eval_score *score, struct calla_buf *out, int n_top, struct calla_err *err) {
    struct reader r = { .m = m, .ids = ids, .n = n, .from = from, .n_top = n_top, .score = score };
    *score = (struct eval_score){ .first_wrong = -1 };
    if (out != NULL && (r.best = malloc((size_t)n_top * sizeof *r.best)) == NULL)
        return calla_fail(err, CALLA_ERR_MEMORY, "no memory for %d ids", n_top);
    int rc = calla_session_resume(s, 0, err);
    if (rc == 0) rc = calla_session_feed(s, ids, n, on_read, &r, NULL, err);
    if (rc == 0 && out != NULL) {
        calla_buf_str(out, "{\"ids\": ");
        cli_print_ids(out, ids, (size_t)n);
        calla_buf_fmt(out, ", \"top\": [%s], \"lse\": [%s]}\n", r.top.data ? r.top.data : "", r.lse.data ? r.lse.data : "");
        if (r.top.failed || r.lse.failed || out->failed) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for the logits of %d ids", n);
    }
    calla_buf_free(&r.top);
    calla_buf_free(&r.lse);
    free(r.best);
    return rc;
}

struct chooser { int n_usable, want; int32_t best; };

static int on_last(void *user, int pos, const float *logits) {
    struct chooser *c = user;
    if (pos == c->want) calla_top_ids(logits, c->n_usable, 1, &c->best);
    return 0;
}

static bool is_stop(const struct calla_model_info *info, int32_t id) {
    for (int i = 0; i < info->n_stop_ids; i++)
        if (info->stop_ids[i] == id) return true;
    return false;
}

int eval_decode(struct calla_session *s, const struct cli_model *m, struct calla_ids *ids, int n_most, struct calla_err *err) {
    struct chooser c = { .n_usable = m->info.n_usable_ids };
    int rc = calla_session_resume(s, 0, err);
    int n_fed = 0;
    for (int i = 0; rc == 0 && i < n_most && (int)ids->n < m->info.ctx_tokens; i++) {
        if (i > 0 && is_stop(&m->info, ids->v[ids->n - 1])) break;
        c.want = (int)ids->n - 1;
        rc = calla_session_feed(s, ids->v + n_fed, (int)ids->n - n_fed, on_last, &c, NULL, err);
        n_fed = (int)ids->n;
        if (rc == 0 && !calla_ids_add(ids, c.best)) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu ids", ids->n);
    }
    return rc;
}

struct comparer {
    struct json_object *top, *lse;
    const int32_t *ids;
    int n, n_usable;
    struct eval_agreement *a;
};

/* Entry i of a row: id and logit; false if it is not that. */
static bool entry(struct json_object *row, size_t i, int n_usable, int32_t *id, double *logit) {
    struct json_object *pair = json_object_array_get_idx(row, i);
    if (!json_object_is_type(pair, json_type_array) || json_object_array_length(pair) != 2) return false;
    const int64_t v = json_object_get_int64(json_object_array_get_idx(pair, 0));
    *logit = json_object_get_double(json_object_array_get_idx(pair, 1));
    *id = (int32_t)v;
    return v >= 0 && v < n_usable && isfinite(*logit);
}

static int on_compare(void *user, int pos, const float *logits) {
    struct comparer *c = user;
    struct json_object *row = json_object_array_get_idx(c->top, (size_t)pos);
    const double theirs = json_object_get_double(json_object_array_get_idx(c->lse, (size_t)pos));
    const double ours = calla_logsumexp(logits, c->n_usable);
    if (!json_object_is_type(row, json_type_array) || json_object_array_length(row) == 0) return CALLA_ERR_FORMAT;
    if (!isfinite(ours) || !isfinite(theirs)) return CALLA_ERR_NUMERIC;
    double kl = 0, p_rest = 1, q_rest = 1;
    int32_t best = 0, id;
    calla_top_ids(logits, c->n_usable, 1, &best);
    for (size_t i = 0; i < json_object_array_length(row); i++) {
        double logit;
        if (!entry(row, i, c->n_usable, &id, &logit)) return CALLA_ERR_FORMAT;
        const double log_p = logit - theirs, log_q = (double)logits[id] - ours, p = exp(log_p);
        kl += p * (log_p - log_q);
        p_rest -= p;
        q_rest -= exp(log_q);
        if (i == 0) c->a->n_same += id == best;
        if (pos + 1 < c->n && id == c->ids[pos + 1]) {
            c->a->n_next++;
            c->a->nll_theirs -= log_p;
            c->a->nll_ours -= log_q;
        }
    }
    if (p_rest > 1e-9 && q_rest > 1e-9) kl += p_rest * log(p_rest / q_rest);   /* below: rounding, not mass */
    c->a->n++;
    c->a->kl += kl;
    if (kl > c->a->worst_kl) c->a->worst_kl = kl;
    return 0;
}

int eval_against(struct calla_session *s, const struct cli_model *m, struct json_object *line, struct eval_agreement *a,
                 struct calla_err *err) {
    struct comparer c = { .a = a, .n_usable = m->info.n_usable_ids };
    struct json_object *list = NULL;
    struct calla_ids ids = { 0 };
    if (!json_object_object_get_ex(line, "ids", &list) || !json_object_is_type(list, json_type_array) ||
        !json_object_object_get_ex(line, "top", &c.top) || !json_object_is_type(c.top, json_type_array) ||
        !json_object_object_get_ex(line, "lse", &c.lse) || !json_object_is_type(c.lse, json_type_array))
        return calla_fail(err, CALLA_ERR_FORMAT, "a line of logits has the arrays ids, top and lse (calla eval --out writes such lines)");
    const size_t n = json_object_array_length(list);
    if (n != json_object_array_length(c.top) || n != json_object_array_length(c.lse))
        return calla_fail(err, CALLA_ERR_FORMAT, "%zu ids, %zu rows of logits, %zu log-sum-exps", n, json_object_array_length(c.top),
                          json_object_array_length(c.lse));
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_object *x = json_object_array_get_idx(list, i);
        const int64_t id = json_object_is_type(x, json_type_int) ? json_object_get_int64(x) : -1;
        if (id < 0 || id >= c.n_usable) rc = calla_fail(err, CALLA_ERR_ARGUMENT, "entry %zu of ids is not an id below %d", i, c.n_usable);
        else if (!calla_ids_add(&ids, (int32_t)id)) rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for %zu ids", n);
    }
    c.ids = ids.v;
    c.n = (int)ids.n;
    if (rc == 0) rc = calla_session_resume(s, 0, err);
    if (rc == 0) {
        rc = calla_session_feed(s, ids.v, (int)ids.n, on_compare, &c, NULL, err);
        if (rc == CALLA_ERR_FORMAT) calla_fail(err, rc, "a row of top is not a list of [id, logit] with ids below %d", c.n_usable);
    }
    calla_ids_free(&ids);
    return rc;
}
