/* meaning.c - meaning DIR [4] [values]: one line that says what a checkpoint means.
 *
 * Prints shape, layers and a hash over every value that the network is defined
 * on: all rows of all matrices as f32, all vectors.  What hashes equal gives
 * equal logits.  With 4, a bf16 checkpoint is read as 4 bits.  The MTP head has
 * a hash of its own.  With "values", a line a matrix and vector instead, so that
 * the first difference can be found.  With "speed", how fast rows are read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "model/weights.h"

struct sums { XXH3_state_t *state; bool verbose; };

static void add(struct sums *s, const char *name, const void *bytes, size_t n) {
    XXH3_64bits_update(s->state, bytes, n);
    if (s->verbose) printf("%016" PRIx64 "  %s\n", (uint64_t)XXH3_64bits(bytes, n), name);
}

static void add_matrix(struct sums *s, const char *name, const struct calla_matrix *m) {
    const size_t n_cols = (size_t)m->n_cols;
    float *all = malloc((size_t)m->n_rows * n_cols * sizeof *all);
    if (all == NULL) abort();
    for (int r = 0; r < m->n_rows; r++) calla_matrix_row_f32(m, r, all + (size_t)r * n_cols);
    add(s, name, all, (size_t)m->n_rows * n_cols * sizeof *all);
    free(all);
}

static void add_vector(struct sums *s, const char *name, const float *v, int n) { add(s, name, v, (size_t)n * sizeof *v); }

static void add_layer(struct sums *s, const struct calla_shape *h, const struct calla_layer_weights *l) {
    const struct calla_gdn_weights *g = &l->gdn;
    const struct calla_attn_weights *a = &l->attn;
    const struct calla_moe_weights *m = &l->moe;
    add_vector(s, "input_norm", l->input_norm, h->n_hidden);
    add_vector(s, "post_norm", l->post_norm, h->n_hidden);
    if (l->is_attention) {
        add_matrix(s, "q", &a->q);
        add_matrix(s, "k", &a->k);
        add_matrix(s, "v", &a->v);
        add_matrix(s, "o", &a->o);
        add_vector(s, "q_norm", a->q_norm, CALLA_HEAD);
        add_vector(s, "k_norm", a->k_norm, CALLA_HEAD);
    } else {
        add_matrix(s, "in_qkv", &g->in_qkv);
        add_matrix(s, "in_z", &g->in_z);
        add_matrix(s, "in_b", &g->in_b);
        add_matrix(s, "in_a", &g->in_a);
        add_matrix(s, "out", &g->out);
        add_vector(s, "conv", g->conv, calla_conv_channels(h) * CALLA_CONV);
        add_vector(s, "a_log", g->a_log, h->n_value_heads);
        add_vector(s, "dt_bias", g->dt_bias, h->n_value_heads);
        add_vector(s, "norm", g->norm, CALLA_RECUR);
    }
    add_matrix(s, "router", &m->router);
    add_matrix(s, "shared_gate", &m->shared_gate);
    add_matrix(s, "shared_up", &m->shared_up);
    add_matrix(s, "shared_down", &m->shared_down);
    add_matrix(s, "shared_router", &m->shared_router);
    for (int e = 0; e < h->n_experts; e++) {
        add_matrix(s, "expert gate", &m->gate[e]);
        add_matrix(s, "expert up", &m->up[e]);
        add_matrix(s, "expert down", &m->down[e]);
    }
}

static uint64_t model_sum(const struct calla_weights *w, bool verbose) {
    struct sums s = { XXH3_createState(), verbose };
    XXH3_64bits_reset(s.state);
    add_matrix(&s, "embed", &w->embed);
    add_matrix(&s, "head", &w->head);
    add_vector(&s, "final_norm", w->final_norm, w->shape->n_hidden);
    for (int l = 0; l < w->n_layers; l++) add_layer(&s, w->shape, &w->layers[l]);
    const uint64_t sum = XXH3_64bits_digest(s.state);
    XXH3_freeState(s.state);
    return sum;
}

static uint64_t mtp_sum(const struct calla_weights *w, bool verbose) {
    struct sums s = { XXH3_createState(), verbose };
    if (w->mtp == NULL) {
        XXH3_freeState(s.state);
        return 0;
    }
    XXH3_64bits_reset(s.state);
    add_vector(&s, "mtp norm_embed", w->mtp->norm_embed, w->shape->n_hidden);
    add_vector(&s, "mtp norm_hidden", w->mtp->norm_hidden, w->shape->n_hidden);
    add_vector(&s, "mtp norm", w->mtp->norm, w->shape->n_hidden);
    add_matrix(&s, "mtp fc", &w->mtp->fc);
    add_layer(&s, w->shape, &w->mtp->layer);
    const uint64_t sum = XXH3_64bits_digest(s.state);
    XXH3_freeState(s.state);
    return sum;
}

static uint64_t speed_bytes;
static uint8_t codes[65536];
static uint16_t scales[1024], biases[1024];
static float values[65536];

static void read_codes(void *user, const struct calla_matrix *m) {
    (void)user;
    for (int r = 0; r < m->n_rows; r++) calla_matrix_row_quant(m, r, codes, scales, biases);
    speed_bytes += calla_matrix_bytes(m);
}

static void read_values(void *user, const struct calla_matrix *m) {
    (void)user;
    for (int r = 0; r < m->n_rows; r++) calla_matrix_row_f32(m, r, values);
    speed_bytes += calla_matrix_bytes(m);
}

static void speed(const struct calla_weights *w, const char *what, void (*f)(void *, const struct calla_matrix *)) {
    calla_weights_each(w, f, NULL);   /* pages and caches warm */
    const uint64_t from = calla_now_ns();
    speed_bytes = 0;
    while (calla_now_ns() - from < 1000000000u) calla_weights_each(w, f, NULL);
    printf("%s: %.2f GB/s of quantised weights, one core\n", what, (double)speed_bytes / (double)(calla_now_ns() - from));
}

static void log_line(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv) {
    struct calla_weights_options opt = { .check_values = true, .log = log_line };
    struct calla_weights *w;
    struct calla_err err;
    bool verbose = false, timed = false;
    if (argc < 2) {
        fprintf(stderr, "usage: meaning DIR [4] [values] [speed]\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "4") == 0) opt.quantise_bits = 4;
        verbose |= strcmp(argv[i], "values") == 0;
        timed |= strcmp(argv[i], "speed") == 0;
    }
    if (calla_weights_open(&w, argv[1], &opt, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    const uint64_t model = model_sum(w, verbose), mtp = mtp_sum(w, verbose);
    printf("%s %d %016" PRIx64 " mtp %016" PRIx64 "\n", w->shape->name, w->n_layers, model, mtp);
    if (timed) {
        speed(w, "row_quant", read_codes);
        speed(w, "row_f32", read_values);
    }
    calla_weights_close(&w);
    return 0;
}
