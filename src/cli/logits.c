/* logits.c - calla logits: the model's numbers for given ids, a line of JSON each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/common.h"
#include "text/tokenizer.h"

enum { LINE_LIMIT = 16 << 20 };

struct printer {
    int n_top, n_usable;
    struct calla_buf top, lse;
    int32_t *ids;               /* [n_top]                                           */
};

static int on_logits(void *user, int pos, const float *logits) {
    struct printer *p = user;
    const int n = calla_top_ids(logits, p->n_usable, p->n_top, p->ids);
    calla_buf_str(&p->top, pos == 0 ? "[" : ", [");
    for (int i = 0; i < n; i++) {
        calla_buf_fmt(&p->top, "%s[%d, ", i ? ", " : "", (int)p->ids[i]);
        cli_print_number(&p->top, (double)logits[p->ids[i]], 9);
        calla_buf_char(&p->top, ']');
    }
    calla_buf_char(&p->top, ']');
    if (pos > 0) calla_buf_str(&p->lse, ", ");
    const double lse = calla_logsumexp(logits, p->n_usable);
    cli_print_number(&p->lse, lse, 12);
    if (!isfinite(lse)) return CALLA_ERR_NUMERIC;
    return p->top.failed || p->lse.failed ? CALLA_ERR_MEMORY : 0;
}

/* One line: the ids through a fresh sequence, and the answer's line. */
static int run_line(struct calla_session *s, const char *line, size_t n, bool decode, struct printer *p, struct calla_err *err) {
    struct calla_ids ids = { 0 };
    int rc = cli_ids_from_json(&ids, line, n, err);
    if (rc == 0) rc = calla_session_resume(s, 0, err);
    calla_buf_clear(&p->top);
    calla_buf_clear(&p->lse);
    if (rc == 0 && !decode) rc = calla_session_feed(s, ids.v, (int)ids.n, on_logits, p, NULL, err);
    for (size_t i = 0; rc == 0 && decode && i < ids.n; i++) rc = calla_session_feed(s, ids.v + i, 1, on_logits, p, NULL, err);
    if (rc == 0) {
        printf("{\"top\": [%s], \"lse\": [%s]}\n", p->top.data ? p->top.data : "", p->lse.data ? p->lse.data : "");
        if (fflush(stdout) != 0) rc = calla_fail(err, CALLA_ERR_IO, "cannot write to stdout");
    }
    calla_ids_free(&ids);
    return rc;
}

int cmd_logits(const struct cli_options *o) {
    const char *mode = o->mode ? o->mode : "prefill";
    struct cli_model m;
    struct calla_session *s = NULL;
    struct calla_err err = { 0 };
    struct calla_buf line = { .limit = LINE_LIMIT };
    if (strcmp(mode, "prefill") != 0 && strcmp(mode, "decode") != 0) {
        fprintf(stderr, "calla: --mode is prefill or decode, not '%s'\n", mode);
        return CLI_USAGE;
    }
    int rc = cli_model_open(&m, o, &(struct cli_model_options){ .n_sequences = 1, .no_cache = true }, &err);
    if (rc == 0) rc = calla_session_new(&s, m.model, &err);
    struct printer p = { .n_top = o->top };
    if (rc == 0) {
        p.n_usable = m.info.n_usable_ids;
        p.ids = malloc((size_t)o->top * sizeof *p.ids);
        if (p.ids == NULL) rc = calla_fail(&err, CALLA_ERR_MEMORY, "no memory for %d ids", o->top);
    }
    for (int n_line = 1; rc == 0; n_line++) {
        const int got = cli_read_line(stdin, &line, &err);
        if (got <= 0) {
            rc = got;
            break;
        }
        rc = run_line(s, line.data, line.n, strcmp(mode, "decode") == 0, &p, &err);
        if (rc != 0) calla_err_prefix(&err, "line %d", n_line);
    }
    free(p.ids);
    calla_buf_free(&p.top);
    calla_buf_free(&p.lse);
    calla_buf_free(&line);
    calla_session_free(&s);
    cli_model_close(&m);
    return rc == 0 ? CLI_OK : cli_fail(&err);
}
