#include "model/targets.h"

#include "base/err.h"
#include "base/pool.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOB_BYTES = 4 << 20 };

static int add(struct calla_targets *t, const char *name, const char *ending, const char *dtype, const struct calla_item *item,
               int64_t rows, int64_t cols, bool stacked) {
    char full[CALLA_ITEM_NAME + 16];
    const int64_t with[3] = { item->n_mats, rows, cols };
    snprintf(full, sizeof full, "%s%s", name, ending);
    return calla_writer_add(t->writer, full, dtype, stacked ? 3 : 2, stacked ? with : with + 1, t->err);
}

static int add_vector(struct calla_targets *t, const struct calla_item *item) {
    const char *name = t->hf ? item->hf : item->mlx;
    const int64_t one[1] = { item->n_rows };
    const int64_t hf_conv[3] = { item->n_rows, 1, CALLA_CONV }, mlx_conv[3] = { item->n_rows, CALLA_CONV, 1 };
    if (item->kind == CALLA_ITEM_CONV)
        return calla_writer_add(t->writer, name, "BF16", 3, t->hf ? hf_conv : mlx_conv, t->err);
    return calla_writer_add(t->writer, name, "BF16", 1, one, t->err);
}

static int add_matrix(struct calla_targets *t, struct calla_target *target) {
    const struct calla_item *item = &target->item;
    if (t->hf) {
        if (item->hf_part != 0) {      /* a later part of the tensor that the item before declared */
            target->weight = t->v[t->n - 1].weight;
            return 0;
        }
        return target->weight = add(t, item->hf, "", "BF16", item, (int64_t)item->n_rows * item->hf_parts, item->n_cols,
                                    item->stacked);
    }
    const int bits = calla_item_bits(item);
    target->weight = add(t, item->mlx, ".weight", "U32", item, item->n_rows, (int64_t)item->n_cols * bits / 32, item->stacked);
    target->scales = add(t, item->mlx, ".scales", "BF16", item, item->n_rows, item->n_cols / CALLA_GROUP, item->stacked);
    target->biases = add(t, item->mlx, ".biases", "BF16", item, item->n_rows, item->n_cols / CALLA_GROUP, item->stacked);
    return target->weight < 0 ? target->weight : target->scales < 0 ? target->scales : target->biases;
}

static int visit(void *user, const struct calla_item *item) {
    struct calla_targets *t = user;
    if (t->n == t->cap) {
        const int cap = t->cap ? 2 * t->cap : 256;
        struct calla_target *p = realloc(t->v, (size_t)cap * sizeof *p);
        if (p == NULL) return calla_fail(t->err, CALLA_ERR_MEMORY, "out of memory");
        t->v = p;
        t->cap = cap;
    }
    struct calla_target *target = &t->v[t->n];
    *target = (struct calla_target){ .item = *item, .scales = -1, .biases = -1 };
    const int rc = calla_item_bits(item) != 0 ? add_matrix(t, target) : (target->weight = add_vector(t, item));
    if (rc < 0) return rc;
    t->n++;
    return 0;
}

int calla_targets_declare(struct calla_targets *t, struct calla_writer *writer, bool hf, const struct calla_shape *shape,
                          int n_layers, bool mtp, const struct calla_weights *w, struct calla_err *err) {
    *t = (struct calla_targets){ .writer = writer, .hf = hf, .err = err };
    return calla_inventory(shape, n_layers, mtp, w, visit, t);
}

void calla_targets_free(struct calla_targets *t) {
    free(t->v);
    t->v = NULL;
    t->n = t->cap = 0;
}

int calla_target_put_quant(const struct calla_targets *t, const struct calla_target *target, int row, int n,
                           const uint8_t *q, const uint16_t *scales, const uint16_t *biases, uint8_t *packed,
                           struct calla_err *err) {
    const size_t cols = (size_t)target->item.n_cols, groups = cols / CALLA_GROUP, count = (size_t)n * cols;
    const uint8_t *weight = q;
    size_t row_bytes = cols;
    if (calla_item_bits(&target->item) == 4) {
        for (size_t i = 0; i < count / 2; i++) packed[i] = (uint8_t)(q[2 * i] | q[2 * i + 1] << 4);
        weight = packed;
        row_bytes = cols / 2;
    }
    int rc = calla_writer_put(t->writer, target->weight, (uint64_t)row * row_bytes, weight, (size_t)n * row_bytes, err);
    if (rc == 0) rc = calla_writer_put(t->writer, target->scales, (uint64_t)row * groups * 2, scales, (size_t)n * groups * 2, err);
    if (rc == 0) rc = calla_writer_put(t->writer, target->biases, (uint64_t)row * groups * 2, biases, (size_t)n * groups * 2, err);
    return rc;
}

int calla_target_put_bf16(const struct calla_targets *t, const struct calla_target *target, int row, int n,
                          const uint16_t *values, struct calla_err *err) {
    const struct calla_item *item = &target->item;
    const size_t row_bytes = (size_t)item->n_cols * 2;
    while (n > 0) {                    /* rows of one matrix are contiguous in a fused tensor, the next ones lie further on */
        const int mat = row / item->n_rows, in_mat = row % item->n_rows;
        const int run = item->n_rows - in_mat < n ? item->n_rows - in_mat : n;
        const uint64_t at = ((uint64_t)mat * (uint64_t)item->hf_parts + (uint64_t)item->hf_part) * (uint64_t)item->n_rows + (uint64_t)in_mat;
        const int rc = calla_writer_put(t->writer, target->weight, at * row_bytes, values, (size_t)run * row_bytes, err);
        if (rc != 0) return rc;
        values += (size_t)run * (size_t)item->n_cols;
        row += run;
        n -= run;
    }
    return 0;
}

/* ---- jobs ----------------------------------------------------------------- */

struct run {
    struct calla_targets *t;
    int (*job)(void *user, const struct calla_target *target, int row, int n, struct calla_err *err);
    void *user;
    void (*progress)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_user;
    uint64_t total_bytes;
    pthread_mutex_t lock;              /* guards the fields below */
    int target_idx, row, rc;
    uint64_t done_bytes;
    struct calla_err *err;
};

static uint64_t row_cost(const struct run *r, const struct calla_item *item) {
    const int bits = r->t->hf ? 0 : calla_item_bits(item);
    return bits != 0 ? (uint64_t)item->n_cols * (uint64_t)bits / 8 + (uint64_t)item->n_cols / CALLA_GROUP * 4 : (uint64_t)item->n_cols * 2;
}

static int total_rows(const struct calla_item *item) { return item->n_mats * item->n_rows; }

/* Takes the next piece, false when there is none left or something failed. */
static bool take(struct run *r, const struct calla_target **target, int *row, int *n) {
    bool found = false;
    pthread_mutex_lock(&r->lock);
    while (r->rc == 0 && r->target_idx < r->t->n) {
        const struct calla_item *item = &r->t->v[r->target_idx].item;
        const int left = total_rows(item) - r->row;
        if (left == 0) {
            r->target_idx++;
            r->row = 0;
            continue;
        }
        const int most = (int)(JOB_BYTES / row_cost(r, item)) + 1;
        *target = &r->t->v[r->target_idx];
        *row = r->row;
        *n = left < most ? left : most;
        r->row += *n;
        found = true;
        break;
    }
    pthread_mutex_unlock(&r->lock);
    return found;
}

static void worker(void *arg, int thread_idx, int n_threads) {
    struct run *r = arg;
    const struct calla_target *target;
    int row, n;
    (void)n_threads;
    while (take(r, &target, &row, &n)) {
        struct calla_err err;
        const int rc = r->job(r->user, target, row, n, &err);
        pthread_mutex_lock(&r->lock);
        if (rc != 0 && r->rc == 0) {
            r->rc = rc;
            if (r->err != NULL) *r->err = err;
        }
        r->done_bytes += row_cost(r, &target->item) * (uint64_t)n;
        const uint64_t done = r->done_bytes;
        pthread_mutex_unlock(&r->lock);
        if (thread_idx == 0 && r->progress != NULL) r->progress(r->progress_user, "writing", done, r->total_bytes);
    }
}

int calla_targets_run(struct calla_targets *t, int n_threads,
                      int (*job)(void *user, const struct calla_target *target, int row, int n, struct calla_err *err),
                      void *user, void (*progress)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes),
                      void *progress_user, struct calla_err *err) {
    struct run r = { .t = t, .job = job, .user = user, .progress = progress, .progress_user = progress_user,
                     .total_bytes = calla_writer_bytes(t->writer), .lock = PTHREAD_MUTEX_INITIALIZER, .err = err };
    struct calla_pool *pool;
    const int rc = calla_pool_new(&pool, n_threads, err);
    if (rc != 0) return rc;
    calla_pool_run(pool, worker, &r);
    calla_pool_free(&pool);
    if (r.rc == 0 && progress != NULL) progress(progress_user, "writing", r.total_bytes, r.total_bytes);
    return r.rc;
}
