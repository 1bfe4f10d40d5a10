/* sampler.c - from logits to an id (docs/model.md, "Sampling").
 *
 * Owns no state between calls but buffers of one vocabulary.  Ids are ordered
 * by one 64-bit key, falling logit first and the lower id first among equals,
 * and only as much of that order is made as the draw needs: with 248,320 ids a
 * full sort costs 20 ms, top_k = 20 costs 0.2 ms. */
#include "engine/sampler.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"

enum { HEAP_MOST = 4096, FIRST_SORTED = 256 };

struct calla_sampler_scratch {
    int       n_vocab;
    float    *adjusted;    /* [n_vocab]                                              */
    uint64_t *keys;        /* [n_vocab], the first n_sorted falling                  */
    int32_t  *counts;      /* [n_vocab], zero between calls                          */
};

int calla_sampler_scratch_new(struct calla_sampler_scratch **out, int n_vocab, struct calla_err *err) {
    struct calla_sampler_scratch *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s != NULL) {
        s->n_vocab = n_vocab;
        s->adjusted = malloc((size_t)n_vocab * sizeof *s->adjusted);
        s->keys = malloc((size_t)n_vocab * sizeof *s->keys);
        s->counts = calloc((size_t)n_vocab, sizeof *s->counts);
    }
    if (s == NULL || s->adjusted == NULL || s->keys == NULL || s->counts == NULL) {
        calla_sampler_scratch_free(&s);
        return calla_fail(err, CALLA_ERR_MEMORY, "no memory to sample from %d ids", n_vocab);
    }
    *out = s;
    return 0;
}

void calla_sampler_scratch_free(struct calla_sampler_scratch **s) {
    if (*s == NULL) return;
    free((*s)->adjusted);
    free((*s)->keys);
    free((*s)->counts);
    free(*s);
    *s = NULL;
}

/* ---- the order: falling logit, lower id first among equals ------------------ */

static uint64_t key_of(float x, int32_t id) {
    uint32_t bits;
    x += 0.0f;                                  /* -0 and 0 are equal               */
    memcpy(&bits, &x, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}
static int32_t id_of(uint64_t key) { return (int32_t)~(uint32_t)key; }

static void sift_down(uint64_t *heap, int n, int i) {
    const uint64_t v = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (v <= heap[child]) break;
        heap[i] = heap[child];
    }
    heap[i] = v;
}

/* The n (> 0) largest keys of x, falling; for small n.  Returns how many. */
static int top_keys(const float *x, int n_x, int n, uint64_t *keys) {
    int n_heap = 0;
    float least = -INFINITY;                    /* once the heap is full            */
    for (int i = 0; i < n_x; i++) {
        if (n_heap == n) {
            if (!(x[i] > least)) continue;      /* an equal one has a higher id     */
            keys[0] = key_of(x[i], i);
        } else {
            keys[n_heap++] = key_of(x[i], i);
            if (n_heap < n) continue;
            for (int j = n / 2 - 1; j >= 0; j--) sift_down(keys, n, j);
        }
        if (n_heap == n) {
            sift_down(keys, n, 0);
            least = x[id_of(keys[0])];
        }
    }
    if (n_heap < n)
        for (int j = n_heap / 2 - 1; j >= 0; j--) sift_down(keys, n_heap, j);
    for (int m = n_heap - 1; m > 0; m--) {      /* heap sort: the least goes to the end */
        const uint64_t v = keys[m];
        keys[m] = keys[0];
        keys[0] = v;
        sift_down(keys, m, 0);
    }
    return n_heap;
}

static int by_falling_key(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* Puts the n largest of keys [n_keys] first, in any order (Hoare's selection). */
static void select_keys(uint64_t *keys, int n_keys, int n) {
    int lo = 0, hi = n_keys - 1;
    while (lo < hi) {
        const uint64_t a = keys[lo], b = keys[lo + (hi - lo) / 2], c = keys[hi];
        const uint64_t pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        int i = lo, j = hi;
        while (i <= j) {
            while (keys[i] > pivot) i++;
            while (keys[j] < pivot) j--;
            if (i > j) break;
            const uint64_t t = keys[i];
            keys[i++] = keys[j];
            keys[j--] = t;
        }
        if (n - 1 <= j) hi = j;
        else if (n - 1 >= i) lo = i;
        else return;
    }
}

struct order {             /* the candidates, sorted as far as somebody looked      */
    uint64_t *keys;
    int n, n_sorted;
    const float *x;
    double max, temperature;
};

static double weight(const struct order *o, float x) { return exp(((double)x - o->max) / o->temperature); }

static double weight_at(struct order *o, int i) {
    while (i >= o->n_sorted) {
        const int rest = o->n - o->n_sorted;
        int more = o->n_sorted == 0 ? FIRST_SORTED : 3 * o->n_sorted;
        if (more > rest) more = rest;
        select_keys(o->keys + o->n_sorted, rest, more);
        qsort(o->keys + o->n_sorted, (size_t)more, sizeof *o->keys, by_falling_key);
        o->n_sorted += more;
    }
    return weight(o, o->x[id_of(o->keys[i])]);
}

/* ---- the stages ------------------------------------------------------------- */

static int check_finite(const float *x, int n, struct calla_err *err) {
    bool bad = false;
    for (int i = 0; i < n; i++) bad |= !(x[i] <= FLT_MAX);
    if (!bad) return 0;
    for (int i = 0; i < n; i++)
        if (!(x[i] <= FLT_MAX)) return calla_fail(err, CALLA_ERR_NUMERIC, "the logit of id %d is %s", i, x[i] > 0 ? "infinite" : "not a number");
    return 0;
}

static bool changes_logits(const struct calla_sampler *s) {
    const struct calla_sampling *p = s->sampling;
    return p->n_bias > 0 || p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0 || s->allowed != NULL;
}

/* bias, repetition, presence and frequency, mask: in this order */
static void adjust(struct calla_sampler_scratch *scratch, const struct calla_sampler *s, float *x, int n) {
    const struct calla_sampling *p = s->sampling;
    int32_t *counts = scratch->counts;
    for (int i = 0; i < p->n_bias; i++)
        if (p->bias[i].id >= 0 && p->bias[i].id < n) x[p->bias[i].id] += p->bias[i].bias;
    if (p->repetition_penalty != 1) {
        for (int i = 0; i < s->n_ids; i++) {
            const int32_t id = s->ids[i];
            if (id < 0 || id >= n || counts[id] != 0) continue;
            counts[id] = 1;
            x[id] = x[id] > 0 ? x[id] / p->repetition_penalty : x[id] * p->repetition_penalty;
        }
        for (int i = 0; i < s->n_ids; i++)
            if (s->ids[i] >= 0 && s->ids[i] < n) counts[s->ids[i]] = 0;
    }
    if (p->presence_penalty != 0 || p->frequency_penalty != 0) {
        for (int i = s->n_prompt; i < s->n_ids; i++)
            if (s->ids[i] >= 0 && s->ids[i] < n) counts[s->ids[i]]++;
        for (int i = s->n_prompt; i < s->n_ids; i++) {
            const int32_t id = s->ids[i];
            if (id < 0 || id >= n || counts[id] == 0) continue;
            x[id] -= p->presence_penalty + p->frequency_penalty * (float)counts[id];
            counts[id] = 0;
        }
    }
    if (s->allowed != NULL)
        for (int i = 0; i < n; i++)
            if (!(s->allowed[i / 32] >> (i % 32) & 1)) x[i] = -INFINITY;
}

/* Keeps what top_k, top_p and min_p leave: the number of ids and the sum of
 * their weights. */
static int keep(struct order *o, const struct calla_sampling *p, bool all_weighed, double *total) {
    int n = o->n;
    double sum = 0;
    if (all_weighed) {                          /* top_k is off: over the ids in their own order */
        for (int i = 0; i < n; i++) sum += weight(o, o->x[id_of(o->keys[i])]);
    } else {
        for (int i = 0; i < n; i++) sum += weight_at(o, i);
    }
    if (p->top_p < 1) {
        const double want = (double)p->top_p * sum;
        double run = weight_at(o, 0);
        int m = 1;
        while (m < n && run < want) run += weight_at(o, m++);
        n = m;
        sum = run;
    }
    if (p->min_p > 0) {
        const double least = (double)p->min_p * weight_at(o, 0);
        double run = weight_at(o, 0);
        int m = 1;
        for (double w; m < n && (w = weight_at(o, m)) >= least; m++) run += w;
        n = m;
        sum = run;
    }
    *total = sum;
    return n;
}

static int32_t draw(struct order *o, int n, double total, uint64_t seed, int pos) {
    uint32_t r[4];
    calla_rng_block(r, seed, 0, (uint64_t)pos);
    const double target = calla_rng_unit(r[0]) * total;
    double run = 0;
    for (int i = 0; i < n; i++) {
        run += weight_at(o, i);
        if (run > target) return id_of(o->keys[i]);
    }
    return id_of(o->keys[n - 1]);               /* rounding of the last sum          */
}

static int32_t best_id(const float *x, int n) {
    int32_t best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

int calla_sample(struct calla_sampler_scratch *scratch, const struct calla_sampler *s,
                 const float *logits, int n_usable, int32_t *id, struct calla_err *err) {
    const struct calla_sampling *p = s->sampling;
    const float *x = logits;
    const int rc = check_finite(logits, n_usable, err);
    if (rc != 0) return rc;
    if (changes_logits(s)) {
        memcpy(scratch->adjusted, logits, (size_t)n_usable * sizeof *logits);
        adjust(scratch, s, scratch->adjusted, n_usable);
        x = scratch->adjusted;
    }
    const int32_t best = best_id(x, n_usable);
    if (!(x[best] > -INFINITY))
        return calla_fail(err, CALLA_ERR_NUMERIC, "no id can be sampled: the logits of all %d ids are -inf%s", n_usable,
                          x == logits ? "" : " after bias and mask");
    if (p->temperature <= 0) {
        *id = best;
        return 0;
    }

    struct order o = { .keys = scratch->keys, .x = x, .max = x[best], .temperature = p->temperature };
    const bool cut = p->top_k > 0 && p->top_k < n_usable;
    if (cut && p->top_k <= HEAP_MOST) {
        o.n = o.n_sorted = top_keys(x, n_usable, p->top_k, o.keys);
    } else {
        for (int i = 0; i < n_usable; i++) o.keys[i] = key_of(x[i], i);
        o.n = n_usable;
        if (cut) {
            select_keys(o.keys, n_usable, p->top_k);
            o.n = p->top_k;
        }
    }
    double total;
    const int n = keep(&o, p, !cut, &total);
    *id = draw(&o, n, total, p->seed, s->pos);
    return 0;
}

/* ---- log-probabilities -------------------------------------------------------- */

double calla_logsumexp(const float *logits, int n_usable) {
    const double max = logits[best_id(logits, n_usable)];
    double sum = 0;
    for (int i = 0; i < n_usable; i++) sum += exp((double)logits[i] - max);
    return max + log(sum);
}

int calla_top_ids(const float *logits, int n_usable, int n, int32_t *ids) {
    uint64_t keys[HEAP_MOST];
    int found = 0;
    if (n > n_usable) n = n_usable;
    if (n > HEAP_MOST) n = HEAP_MOST;
    if (n > 0) found = top_keys(logits, n_usable, n, keys);
    for (int i = 0; i < found; i++) ids[i] = id_of(keys[i]);
    return found;
}
