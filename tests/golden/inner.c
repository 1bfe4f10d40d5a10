/* inner.c - taps, splits and layouts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runner.h"

/* ---- taps ------------------------------------------------------------------ */

struct recorder {
    struct json_object *taps, *rows;
    const float *golden;
    double *worst;           /* [n_taps] largest difference / largest golden value */
    int *n_seen;             /* [n_taps] rows that came                            */
};

static void put(void *user, enum calla_tap tap, int layer, int row_idx, const float *v, int n) {
    struct recorder *r = user;
    for (size_t i = 0; i < json_object_array_length(r->taps); i++) {
        struct json_object *t = json_object_array_get_idx(r->taps, i);
        if (strcmp(json_object_get_string(fixture_get(t, "tap")), calla_tap_names[tap]) != 0) continue;
        if (json_object_get_int(fixture_get(t, "layer")) != layer) continue;
        if (json_object_get_int(fixture_get(t, "n")) != n) fixture_die("tap %s has %d values", calla_tap_names[tap], n);
        for (size_t j = 0; j < json_object_array_length(r->rows); j++) {
            if (json_object_get_int(json_object_array_get_idx(r->rows, j)) != row_idx) continue;
            const float *want = r->golden + json_object_get_int(fixture_get(t, "offset")) + j * (size_t)n;
            double most = 0.0, size = 0.0;
            for (int k = 0; k < n; k++) {
                const double d = fabs((double)want[k] - (double)v[k]);
                if (!(d <= most)) most = d;
                size = fmax(size, fabs((double)want[k]));
            }
            if (!(most / size <= r->worst[i])) r->worst[i] = most / size;
            r->n_seen[i]++;
        }
    }
}

void golden_taps(struct plan *p) {
    struct json_object *golden = fixture_json(p->data, "tiny_taps.json");
    struct recorder r = { .taps = fixture_get(golden, "taps"), .rows = fixture_get(golden, "rows") };
    const struct calla_taps taps = { put, &r };
    const size_t n_taps = json_object_array_length(r.taps);
    struct calla_weights *w = open_tiny(p, "mlx", 0);
    size_t n_bytes;
    int n;
    char *values = fixture_read(p->data, "tiny_taps.f32", &n_bytes);
    int32_t *ids = fixture_ids(fixture_get(golden, "ids"), &n);
    float *logits = fixture_alloc((size_t)n * (size_t)w->shape->n_vocab, sizeof *logits);
    void *run = p->runner->open(w, n);
    r.golden = (const float *)(void *)values;
    r.worst = fixture_alloc(n_taps, sizeof *r.worst);
    r.n_seen = fixture_alloc(n_taps, sizeof *r.n_seen);
    p->runner->feed(run, ids, n, logits, &taps);
    for (size_t i = 0; i < n_taps; i++) {
        struct json_object *t = json_object_array_get_idx(r.taps, i);
        check(p, r.worst[i] <= p->runner->tap && r.n_seen[i] == (int)json_object_array_length(r.rows),
              "tap %s of layer %d: %d rows within %.1e of the largest value", json_object_get_string(fixture_get(t, "tap")),
              json_object_get_int(fixture_get(t, "layer")), r.n_seen[i], r.worst[i]);
    }
    p->runner->close(run);
    calla_weights_close(&w);
    free(r.worst);
    free(r.n_seen);
    free(logits);
    free(ids);
    free(values);
    json_object_put(golden);
}

/* ---- splits ---------------------------------------------------------------- */

void golden_splits(struct plan *p) {
    enum { N = 530 };       /* passes the 512 rows that a layer of the reference takes at once */
    static const int parts[][8] = { { 3, 60, 1, 1, 465 }, { 511, 2, 17 } };
    struct calla_weights *w = open_tiny(p, "mlx", 0);
    const size_t n_vocab = (size_t)w->shape->n_vocab, n_bytes = N * n_vocab * sizeof(float);
    float *whole = fixture_alloc(N * n_vocab, sizeof *whole), *split = fixture_alloc(N * n_vocab, sizeof *split);
    int32_t ids[N];
    void *run = p->runner->open(w, N);
    for (int i = 0; i < N; i++) ids[i] = (i * 7919 + i * i) % 1024;
    p->runner->feed(run, ids, N, whole, NULL);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        p->runner->restart(run);
        memset(split, 0, n_bytes);
        int done = 0;
        for (size_t j = 0; j < 8 && parts[i][j] != 0; done += parts[i][j++])
            p->runner->feed(run, ids + done, parts[i][j], split + (size_t)done * n_vocab, NULL);
        check(p, done == N && memcmp(whole, split, n_bytes) == 0, "%d ids in parts of %d, %d, ... give the same bits as at once",
              N, parts[i][0], parts[i][1]);
    }
    p->runner->close(run);
    calla_weights_close(&w);
    free(whole);
    free(split);
}

/* ---- layouts --------------------------------------------------------------- */

static int n_compared;

static bool same_matrix(const struct calla_matrix *a, const struct calla_matrix *b) {
    if (a->n_rows != b->n_rows || a->n_cols != b->n_cols) return false;
    float *x = fixture_alloc((size_t)a->n_cols, sizeof *x), *y = fixture_alloc((size_t)a->n_cols, sizeof *y);
    bool same = true;
    for (int r = 0; r < a->n_rows; r++) {
        calla_matrix_row_f32(a, r, x);
        calla_matrix_row_f32(b, r, y);
        for (int i = 0; i < a->n_cols; i++) same = same && x[i] == y[i];
    }
    free(x);
    free(y);
    n_compared++;
    return same;
}

static bool same_vector(const float *a, const float *b, int n) {
    bool same = true;
    for (int i = 0; i < n; i++) same = same && a[i] == b[i];
    n_compared++;
    return same;
}

static bool same_layer(const struct calla_layer_weights *a, const struct calla_layer_weights *b, const struct calla_shape *s) {
    bool same = a->is_attention == b->is_attention && same_vector(a->input_norm, b->input_norm, s->n_hidden) &&
                same_vector(a->post_norm, b->post_norm, s->n_hidden);
    if (a->is_attention)
        same = same && same_matrix(&a->attn.q, &b->attn.q) && same_matrix(&a->attn.k, &b->attn.k) && same_matrix(&a->attn.v, &b->attn.v) &&
               same_matrix(&a->attn.o, &b->attn.o) && same_vector(a->attn.q_norm, b->attn.q_norm, CALLA_HEAD) &&
               same_vector(a->attn.k_norm, b->attn.k_norm, CALLA_HEAD);
    else
        same = same && same_matrix(&a->gdn.in_qkv, &b->gdn.in_qkv) && same_matrix(&a->gdn.in_z, &b->gdn.in_z) &&
               same_matrix(&a->gdn.in_a, &b->gdn.in_a) && same_matrix(&a->gdn.in_b, &b->gdn.in_b) && same_matrix(&a->gdn.out, &b->gdn.out) &&
               same_vector(a->gdn.conv, b->gdn.conv, CALLA_CONV * calla_conv_channels(s)) && same_vector(a->gdn.norm, b->gdn.norm, CALLA_RECUR) &&
               same_vector(a->gdn.a_log, b->gdn.a_log, s->n_value_heads) && same_vector(a->gdn.dt_bias, b->gdn.dt_bias, s->n_value_heads);
    const struct calla_moe_weights *m = &a->moe, *n = &b->moe;
    same = same && same_matrix(&m->router, &n->router) && same_matrix(&m->shared_gate, &n->shared_gate) && same_matrix(&m->shared_up, &n->shared_up) &&
           same_matrix(&m->shared_down, &n->shared_down) && same_matrix(&m->shared_router, &n->shared_router);
    for (int e = 0; e < s->n_experts; e++)
        same = same && same_matrix(&m->gate[e], &n->gate[e]) && same_matrix(&m->up[e], &n->up[e]) && same_matrix(&m->down[e], &n->down[e]);
    return same;
}

void golden_layouts(struct plan *p) {
    struct calla_weights *mlx = open_tiny(p, "mlx", 0);
    for (int bits = 0; bits <= 4; bits += 4) {
        struct calla_weights *hf = open_tiny(p, "hf", bits);
        n_compared = 0;
        bool same = mlx->n_layers == hf->n_layers && same_matrix(&mlx->embed, &hf->embed) && same_matrix(&mlx->head, &hf->head) &&
                    same_vector(mlx->final_norm, hf->final_norm, mlx->shape->n_hidden);
        for (int l = 0; same && l < mlx->n_layers; l++) same = same_layer(&mlx->layers[l], &hf->layers[l], mlx->shape);
        check(p, same, "hf (%s) holds the weights of mlx: %d tensors compared", bits ? "quantised while loading" : "as stored", n_compared);
        calla_weights_close(&hf);
    }
    calla_weights_close(&mlx);
}
