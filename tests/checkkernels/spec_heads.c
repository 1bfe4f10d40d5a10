/* spec_heads.c - the C delta rule and attention against the textbook, in double. */
#include "spec.h"

#include <stdlib.h>
#include <string.h>

enum { S = CALLA_RECUR, LONG = 200 };

/* The recurrence as papers have it: decay the state, take out what the key
 * finds, put in beta times the difference, read with the query. */
static void textbook(double *s, const float *q, const float *k, const float *v, double decay, double beta, double *o) {
    for (int i = 0; i < S * S; i++) s[i] *= decay;
    for (int c = 0; c < S; c++) {
        double found = 0;
        for (int i = 0; i < S; i++) found += (double)k[i] * s[i * S + c];
        const double delta = beta * (v[c] - found);
        o[c] = 0;
        for (int i = 0; i < S; i++) {
            s[i * S + c] += k[i] * delta;
            o[c] += (double)q[i] * s[i * S + c];
        }
    }
}

struct scan { float s[S * S], q[LONG * S], k[LONG * S], v[LONG * S], o[LONG * S], decay[LONG], beta[LONG]; double t[S * S]; };

static struct scan *random_scan(struct check *x) {
    struct scan *r = buf(x, sizeof *r);
    for (int i = 0; i < S * S; i++) r->t[i] = r->s[i] = draw_unit(x) * 0.3f;
    for (int t = 0; t < LONG; t++) {
        for (int c = 0; c < S; c++) {
            r->q[t * S + c] = draw_unit(x);
            /* neighbouring keys are alike, as in text */
            r->k[t * S + c] = draw_unit(x) + (t > 0 ? r->k[(t - 1) * S + c] * 6 : 0);
            r->v[t * S + c] = draw_unit(x) * 2;
        }
        x->c->l2norm(r->q + t * S, r->q + t * S, 0.08838834764f);
        x->c->l2norm(r->k + t * S, r->k + t * S, 1.0f);
        r->decay[t] = t % 7 == 3 ? 1.0f : t % 7 == 5 ? 0.01f : 0.9f + 0.1f * fabsf(draw_unit(x));
        r->beta[t] = t % 5 == 2 ? 1.0f : fabsf(draw_unit(x));
    }
    return r;
}

/* Bound of the whole run, a value column at a time.  With |k| = 1 the exact step
 * s -> decay (I - beta k k^T) s never lengthens an error, so the column's error
 * in the 2-norm is the sum of what each step adds: rounding P costs 128 U |s|
 * (times beta decay <= 1, along k), forming d and d's product 6 U (|v| + |s|),
 * forming s 3 U |s| and U |d|, |d| <= |v| + |s|.  An output adds rounding R and
 * kq, 2 x 128 U |q| (|s| + |d|), |q| < 0.09. */
static void check_scan(struct check *x, int n_rows) {
    struct scan *r = random_scan(x);
    double error[S] = { 0 };

    x->c->gdn_scan(r->s, r->q, r->k, S, r->v, S, r->decay, r->beta, 1, r->o, S, n_rows);
    for (int t = 0; t < n_rows; t++) {
        double norm[S] = { 0 }, o[S];
        for (int i = 0; i < S * S; i++) norm[i % S] += r->t[i] * r->t[i];
        textbook(r->t, r->q + t * S, r->k + t * S, r->v + t * S, (double)r->decay[t], (double)r->beta[t], o);
        for (int c = 0; c < S; c++) {
            const double size = sqrt(norm[c]) + fabs((double)r->v[t * S + c]);
            /* 1e-5: |k| is 1 to within its own roundings only */
            const double before = error[c];
            error[c] = (double)r->decay[t] * before * (1 + 1e-5) + (128 + 16) * U * size;
            near(x, "o", t * S + c, o[c], r->o[t * S + c], 0.09 * (before + error[c]) + 0.09 * 300 * U * size);
        }
    }
    for (int i = 0; i < S * S; i++) near(x, "state", i, r->t[i], r->s[i], error[i % S]);
}

void spec_gdn_scan(struct check *x) {
    for (int n = 1; n <= 5; n++) {
        x->n_buffers = 0;
        check_scan(x, n);
    }
}

void spec_gdn_long(struct check *x) { check_scan(x, LONG); }

/* Plain softmax over all keys of three pages, the last one part full. */
void spec_attention(struct check *x) {
    enum { N_Q = 3, N_PAGES = 3, KEYS = N_PAGES * CPU_PAGE };
    uint16_t *k = buf(x, N_PAGES * CPU_PAGE * CALLA_HEAD * 2), *v = buf(x, N_PAGES * CPU_PAGE * CALLA_HEAD * 2);
    float *q = buf(x, N_Q * CALLA_HEAD * sizeof *q), *acc = buf(x, N_Q * CALLA_HEAD * sizeof *acc), m[N_Q], l[N_Q];
    float row[CALLA_HEAD], out[CALLA_HEAD];
    const int n_keys[N_Q] = { KEYS, 2 * CPU_PAGE + 17, 1 };

    for (int j = 0; j < KEYS; j++) {
        const size_t page = (size_t)(j / CPU_PAGE) * CPU_PAGE * CALLA_HEAD;
        for (int c = 0; c < CALLA_HEAD; c++) row[c] = draw_unit(x) * 2;
        x->c->store_k(k + page, j % CPU_PAGE, row);
        for (int c = 0; c < CALLA_HEAD; c++) row[c] = draw_unit(x);
        x->c->store_v(v + page, j % CPU_PAGE, row);
    }
    for (int i = 0; i < N_Q * CALLA_HEAD; i++) { q[i] = draw_unit(x) * (i < CALLA_HEAD ? 1.0f : 0.06f); acc[i] = 0; }
    for (int i = 0; i < N_Q; i++) { m[i] = -INFINITY; l[i] = 0; }
    for (int page = 0; page < N_PAGES; page++) {
        const float *qs[N_Q];
        float *accs[N_Q];
        int seen[N_Q];
        for (int i = 0; i < N_Q; i++) {
            const int left = n_keys[i] - page * CPU_PAGE;
            qs[i] = q + i * CALLA_HEAD;
            accs[i] = acc + i * CALLA_HEAD;
            seen[i] = left < 0 ? 0 : left < CPU_PAGE ? left : CPU_PAGE;
        }
        const size_t at = (size_t)page * CPU_PAGE * CALLA_HEAD;
        x->c->attn_page(accs, m, l, qs, seen, N_Q, k + at, v + at, NULL);
    }
    for (int i = 0; i < N_Q; i++) {
        double score[KEYS], top = -INFINITY, sum = 0, slack = 0;
        for (int j = 0; j < n_keys[i]; j++) {
            double size = 0;
            score[j] = 0;
            for (int c = 0; c < CALLA_HEAD; c++) {
                const double p = (double)q[i * CALLA_HEAD + c] * cpu_from_bf16(k[(j / CPU_PAGE * CALLA_HEAD + c) * CPU_PAGE + j % CPU_PAGE]);
                score[j] += p;
                size += fabs(p);
            }
            top = fmax(top, score[j]);
            slack = fmax(slack, 256 * U * size + U * fabs(score[j]));
        }
        for (int j = 0; j < n_keys[i]; j++) sum += exp(score[j] - top);
        /* Each p is off by twice the slack of a score (its own and the maximum's), exp's 2.2 U and a carry a page; the
         * sums of p and p v add a rounding a key. */
        const double rel = 2 * slack + (3 + 4 * N_PAGES + n_keys[i] + 8) * U;
        x->c->attn_finish(out, acc + i * CALLA_HEAD, l[i]);
        for (int c = 0; c < CALLA_HEAD; c++) {
            double want = 0, size = 0;
            for (int j = 0; j < n_keys[i]; j++) {
                const double p = exp(score[j] - top) / sum * cpu_from_bf16(v[j * CALLA_HEAD + c]);
                want += p;
                size += fabs(p);
            }
            near(x, "out", i * CALLA_HEAD + c, want, out[c], 2 * rel * size);
        }
    }
}
