/* request.c - requests: checked and copied at submit, read by their owner. */
#include "engine/request.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "engine/model.h"

/* ---- ids -------------------------------------------------------------------------- */

struct calla_prefix *calla_prefix_new(int cap) {
    struct calla_prefix *p = malloc(sizeof *p + (size_t)cap * sizeof p->ids[0]);
    if (p == NULL) return NULL;
    atomic_init(&p->refs, 1);
    p->cap = cap;
    return p;
}

struct calla_prefix *calla_prefix_ref(struct calla_prefix *p) {
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void calla_prefix_unref(struct calla_prefix *p) {
    if (p != NULL && atomic_fetch_sub(&p->refs, 1) == 1) free(p);
}

/* ---- submit ------------------------------------------------------------------------- */

static bool in_range(float v, float lo, float hi) { return v >= lo && v <= hi; }   /* false for NaN */

static int check_sampling(const struct calla_sampling *s, struct calla_err *err) {
    if (!in_range(s->temperature, 0, 1e6f))
        return calla_fail(err, CALLA_ERR_ARGUMENT, "temperature %g is not from 0 on", (double)s->temperature);
    if (s->top_k < 0) return calla_fail(err, CALLA_ERR_ARGUMENT, "top_k %d is not from 0 on", s->top_k);
    if (!in_range(s->top_p, 0, 1)) return calla_fail(err, CALLA_ERR_ARGUMENT, "top_p %g is not from 0 to 1", (double)s->top_p);
    if (!in_range(s->min_p, 0, 1)) return calla_fail(err, CALLA_ERR_ARGUMENT, "min_p %g is not from 0 to 1", (double)s->min_p);
    if (!in_range(s->presence_penalty, -100, 100))
        return calla_fail(err, CALLA_ERR_ARGUMENT, "presence_penalty %g is not from -100 to 100", (double)s->presence_penalty);
    if (!in_range(s->frequency_penalty, -100, 100))
        return calla_fail(err, CALLA_ERR_ARGUMENT, "frequency_penalty %g is not from -100 to 100", (double)s->frequency_penalty);
    if (!in_range(s->repetition_penalty, 0.01f, 100))
        return calla_fail(err, CALLA_ERR_ARGUMENT, "repetition_penalty %g is not from 0.01 to 100 (1: off)", (double)s->repetition_penalty);
    for (int i = 0; i < s->n_bias; i++)
        if (!(s->bias[i].bias <= 1e4f))
            return calla_fail(err, CALLA_ERR_ARGUMENT, "the bias of id %d is %g, not at most 10000", (int)s->bias[i].id, (double)s->bias[i].bias);
    return 0;
}

static int check_params(const struct calla_model *m, const struct calla_request_params *p, struct calla_err *err) {
    const int ctx = m->plan.backend.ctx_tokens;
    if (p->n_prompt < 1) return calla_fail(err, CALLA_ERR_ARGUMENT, "the prompt is empty");
    if (p->n_prompt > ctx || (p->n_prompt == ctx && p->max_tokens != 0))
        return calla_fail(err, CALLA_ERR_LIMIT, "the prompt has %d tokens and the context %d, which leaves no room for an answer", p->n_prompt, ctx);
    for (int i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] < 0 || p->prompt[i] >= m->n_vocab)
            return calla_fail(err, CALLA_ERR_ARGUMENT, "prompt id %d at position %d; the checkpoint has %d", (int)p->prompt[i], i, m->n_vocab);
    if (p->n_stop_ids < 0 || p->n_stop_ids > CALLA_MAX_STOP_IDS)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d stop ids; at most %d", p->n_stop_ids, CALLA_MAX_STOP_IDS);
    if (p->n_top_logprobs < -1 || p->n_top_logprobs > CALLA_MAX_TOP_LOGPROBS)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d top logprobs; at most %d", p->n_top_logprobs, CALLA_MAX_TOP_LOGPROBS);
    if (p->n_boundaries < 0 || p->n_boundaries > p->n_prompt)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d boundaries in a prompt of %d", p->n_boundaries, p->n_prompt);
    for (int i = 0; i < p->n_boundaries; i++)
        if (p->boundaries[i] < 0 || p->boundaries[i] > p->n_prompt || (i > 0 && p->boundaries[i] < p->boundaries[i - 1]))
            return calla_fail(err, CALLA_ERR_ARGUMENT, "boundary %d is at %d, not rising within %d", i, (int)p->boundaries[i], p->n_prompt);
    return check_sampling(&p->sampling, err);
}

/* malloc that has nothing to do for 0 things; false when it failed. */
static bool make(void **out, size_t n, size_t bytes) {
    *out = n > 0 ? malloc(n * bytes) : NULL;
    return n == 0 || *out != NULL;
}

int calla_request_new(struct calla_request **out, const struct calla_model *m, const struct calla_request_params *p,
                      struct calla_err *err) {
    const int ctx = m->plan.backend.ctx_tokens;
    struct calla_request *r;
    *out = NULL;
    const int rc = check_params(m, p, err);
    if (rc != 0) return rc;
    r = calloc(1, sizeof *r);
    if (r == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a request");
    atomic_init(&r->refs, 1);
    atomic_init(&r->cancelled, false);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->n_prompt = r->n_ids = p->n_prompt;
    r->n_most = p->max_tokens < 0 || p->max_tokens > ctx - p->n_prompt ? ctx : p->n_prompt + p->max_tokens;
    r->sampling = p->sampling;
    r->n_stop_ids = p->n_stop_ids;
    if (p->n_stop_ids > 0) memcpy(r->stop_ids, p->stop_ids, (size_t)p->n_stop_ids * sizeof *p->stop_ids);
    r->prompt_logprobs = p->prompt_logprobs;
    r->wants_logprobs = p->n_top_logprobs >= 0;
    r->n_top = p->n_top_logprobs > m->n_usable ? m->n_usable : p->n_top_logprobs > 0 ? p->n_top_logprobs : 0;
    r->n_boundaries = p->n_boundaries;
    r->notify = p->notify;
    r->user = p->user;

    struct calla_logit_bias *bias = NULL;
    const size_t n_logprobs = r->wants_logprobs || r->prompt_logprobs ? (size_t)r->n_most : 0;
    r->seq = calla_prefix_new(r->n_most);
    const bool made = make((void **)&bias, (size_t)p->sampling.n_bias, sizeof *bias) &&
                      make((void **)&r->boundaries, (size_t)p->n_boundaries, sizeof *r->boundaries) &&
                      make((void **)&r->logprobs, n_logprobs, sizeof *r->logprobs) &&
                      make((void **)&r->top, n_logprobs * (size_t)r->n_top, sizeof *r->top);
    r->sampling.bias = bias;
    if (!made || r->seq == NULL) {
        calla_request_unref(r);
        return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a request of %d tokens", r->n_most);
    }
    if (bias != NULL) memcpy(bias, p->sampling.bias, (size_t)p->sampling.n_bias * sizeof *bias);
    if (r->boundaries != NULL) memcpy(r->boundaries, p->boundaries, (size_t)p->n_boundaries * sizeof *r->boundaries);
    memcpy(r->seq->ids, p->prompt, (size_t)p->n_prompt * sizeof *p->prompt);
    r->sampler = (struct calla_sampler){ .sampling = &r->sampling, .ids = r->seq->ids, .n_prompt = r->n_prompt };
    r->submitted_ns = calla_now_ns();
    *out = r;
    return 0;
}

void calla_request_unref(struct calla_request *r) {
    if (r == NULL || atomic_fetch_sub(&r->refs, 1) != 1) return;
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->changed);
    calla_prefix_unref(r->seq);
    free((void *)r->sampling.bias);
    free(r->boundaries);
    free(r->logprobs);
    free(r->top);
    free(r);
}

/* ---- engine side ------------------------------------------------------------------------ */

/* notify is called under the lock, so that after calla_request_free it never is. */
static void tell(struct calla_request *r) {
    pthread_cond_broadcast(&r->changed);
    if (r->notify != NULL) r->notify(r->user);
}

void calla_request_put_read(struct calla_request *r, int n_read, int n_prompt_out) {
    pthread_mutex_lock(&r->lock);
    if (n_read > r->n_read) r->n_read = n_read;      /* a paused request reads its ids again */
    if (n_prompt_out > r->n_prompt_out) r->n_prompt_out = n_prompt_out;
    tell(r);
    pthread_mutex_unlock(&r->lock);
}

void calla_request_put_id(struct calla_request *r, int32_t id) {
    r->seq->ids[r->n_ids++] = id;
    pthread_mutex_lock(&r->lock);
    r->n_out = r->n_ids - r->n_prompt;
    tell(r);
    pthread_mutex_unlock(&r->lock);
}

void calla_request_put_done(struct calla_request *r, enum calla_finish finish, const struct calla_err *err) {
    const uint64_t now = calla_now_ns();
    const uint64_t admitted = r->admitted_ns ? r->admitted_ns : now, first = r->first_ns ? r->first_ns : now;
    pthread_mutex_lock(&r->lock);
    r->done = true;
    r->finish = finish;
    if (err != NULL) r->err = *err;
    r->usage = (struct calla_usage){ .n_prompt = r->n_prompt, .n_cached = r->n_cached, .n_sampled = r->n_ids - r->n_prompt,
                                     .queue_s = (double)(admitted - r->submitted_ns) / 1e9,
                                     .prefill_s = (double)(first - admitted) / 1e9, .decode_s = (double)(now - first) / 1e9 };
    tell(r);
    pthread_mutex_unlock(&r->lock);
}

void calla_request_logprobs(struct calla_request *r, int pos, int32_t id, const float *logits, int n_usable) {
    const double lse = calla_logsumexp(logits, n_usable);
    int32_t top[CALLA_MAX_TOP_LOGPROBS];
    r->logprobs[pos] = id < n_usable ? (float)((double)logits[id] - lse) : -INFINITY;
    const int n = calla_top_ids(logits, n_usable, r->n_top, top);
    for (int i = 0; i < n; i++)
        r->top[(size_t)pos * (size_t)r->n_top + (size_t)i] = (struct calla_logprob){ top[i], (float)((double)logits[top[i]] - lse) };
}

/* ---- reader's side -------------------------------------------------------------------------- */

static void fill_position(const struct calla_request *r, int pos, bool has_logprobs, struct calla_event *out) {
    out->pos = pos;
    out->id = r->seq->ids[pos];
    out->logprob = has_logprobs ? r->logprobs[pos] : NAN;
    if (!has_logprobs || r->n_top == 0) return;
    out->n_top = r->n_top;
    memcpy(out->top, r->top + (size_t)pos * (size_t)r->n_top, (size_t)r->n_top * sizeof *r->top);
}

static bool next_locked(struct calla_request *r, struct calla_event *out) {
    if (r->seen_read == r->n_read && r->seen_prompt == r->n_prompt_out && r->seen_out == r->n_out && (!r->done || r->seen_done)) return false;
    *out = (struct calla_event){ .logprob = NAN };
    if (r->seen_read < r->n_read) {
        out->kind = CALLA_EVENT_PREFILL;
        out->pos = r->seen_read = r->n_read;
    } else if (r->seen_prompt < r->n_prompt_out) {
        out->kind = CALLA_EVENT_PROMPT;
        fill_position(r, r->seen_prompt, r->seen_prompt > 0, out);
        r->seen_prompt++;
    } else if (r->seen_out < r->n_out) {
        out->kind = CALLA_EVENT_TOKEN;
        fill_position(r, r->n_prompt + r->seen_out, r->wants_logprobs, out);
        r->seen_out++;
    } else {
        out->kind = CALLA_EVENT_DONE;
        out->finish = r->finish;
        out->err = r->err;
        out->usage = r->usage;
        r->seen_done = true;
    }
    return true;
}

bool calla_request_next(struct calla_request *r, struct calla_event *out) {
    pthread_mutex_lock(&r->lock);
    const bool got = next_locked(r, out);
    pthread_mutex_unlock(&r->lock);
    return got;
}

bool calla_request_wait(struct calla_request *r, struct calla_event *out, int timeout_ms) {
    const uint64_t deadline_ns = timeout_ms < 0 ? UINT64_MAX : calla_now_ns() + (uint64_t)timeout_ms * 1000000;
    bool got;
    pthread_mutex_lock(&r->lock);
    while (!(got = next_locked(r, out)) && !r->seen_done) {
        const uint64_t now_ns = calla_now_ns();
        if (now_ns >= deadline_ns) break;
        /* The condition waits by the wall clock, which may jump: a second at most. */
        const uint64_t most_ns = deadline_ns - now_ns < 1000000000 ? deadline_ns - now_ns : 1000000000;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        const uint64_t ns = (uint64_t)until.tv_nsec + most_ns;
        until.tv_sec += (time_t)(ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
        pthread_cond_timedwait(&r->changed, &r->lock, &until);
    }
    pthread_mutex_unlock(&r->lock);
    return got;
}

void calla_request_cancel(struct calla_request *r) { atomic_store(&r->cancelled, true); }

void calla_request_free(struct calla_request **request) {
    struct calla_request *r = *request;
    if (r == NULL) return;
    *request = NULL;
    calla_request_cancel(r);
    pthread_mutex_lock(&r->lock);
    r->notify = NULL;
    pthread_mutex_unlock(&r->lock);
    calla_request_unref(r);
}
