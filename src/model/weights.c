/* weights.c - builds the table of weights.h from the files, and refuses a
 * checkpoint that is not whole. */
#include "model/weights.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY   /* XXH3_state_t on the stack: 576 bytes, 64-byte aligned */
#include <xxhash.h>

#include "base/err.h"
#include "model/matrix.h"
#include "model/weights_read.h"

enum { NAMED_EXTRAS = 8, PREFIX = 160 };

static int vector(struct calla_reader *r, const char *prefix, const char *name, int n, float add, const float **out) {
    const uint64_t dim = (uint64_t)n;
    return calla_read_vector(r, prefix, name, &dim, 1, add, out);
}

static int matrix(struct calla_reader *r, const char *prefix, const char *name, int n_rows, int n_cols, struct calla_matrix *out) {
    return calla_read_matrix(r, prefix, name, n_rows, n_cols, CALLA_ROLE_Q4, out);
}

static int read_gdn(struct calla_reader *r, const char *prefix, struct calla_gdn_weights *g) {
    const struct calla_shape *s = r->config->shape;
    const int d = s->n_hidden, c = calla_conv_channels(s), hv = s->n_value_heads, width = calla_gdn_width(s);
    /* [C, 1, 4] and [C, 4, 1] lie in the same order: oldest tap first */
    const uint64_t conv[] = { (uint64_t)c, r->names.hf ? 1 : CALLA_CONV, r->names.hf ? CALLA_CONV : 1 };
    int rc;
    if ((rc = matrix(r, prefix, "linear_attn.in_proj_qkv", c, d, &g->in_qkv)) != 0) return rc;
    if ((rc = matrix(r, prefix, "linear_attn.in_proj_z", width, d, &g->in_z)) != 0) return rc;
    if ((rc = matrix(r, prefix, "linear_attn.in_proj_b", hv, d, &g->in_b)) != 0) return rc;
    if ((rc = matrix(r, prefix, "linear_attn.in_proj_a", hv, d, &g->in_a)) != 0) return rc;
    if ((rc = matrix(r, prefix, "linear_attn.out_proj", d, width, &g->out)) != 0) return rc;
    if ((rc = calla_read_vector(r, prefix, "linear_attn.conv1d.weight", conv, 3, 0, &g->conv)) != 0) return rc;
    if ((rc = vector(r, prefix, "linear_attn.A_log", hv, 0, &g->a_log)) != 0) return rc;
    if ((rc = vector(r, prefix, "linear_attn.dt_bias", hv, 0, &g->dt_bias)) != 0) return rc;
    return vector(r, prefix, "linear_attn.norm.weight", CALLA_RECUR, 0, &g->norm);   /* never zero-centred */
}

static int read_attn(struct calla_reader *r, const char *prefix, float one, struct calla_attn_weights *a) {
    const struct calla_shape *s = r->config->shape;
    const int d = s->n_hidden, width = calla_attn_width(s), kv = calla_kv_width(s);
    int rc;
    if ((rc = matrix(r, prefix, "self_attn.q_proj", 2 * width, d, &a->q)) != 0) return rc;
    if ((rc = matrix(r, prefix, "self_attn.k_proj", kv, d, &a->k)) != 0) return rc;
    if ((rc = matrix(r, prefix, "self_attn.v_proj", kv, d, &a->v)) != 0) return rc;
    if ((rc = matrix(r, prefix, "self_attn.o_proj", d, width, &a->o)) != 0) return rc;
    if ((rc = vector(r, prefix, "self_attn.q_norm.weight", CALLA_HEAD, one, &a->q_norm)) != 0) return rc;
    return vector(r, prefix, "self_attn.k_norm.weight", CALLA_HEAD, one, &a->k_norm);
}

static int read_moe(struct calla_reader *r, const char *prefix, struct calla_moe_weights *m) {
    const struct calla_shape *s = r->config->shape;
    const int d = s->n_hidden, f = s->n_expert_width;
    int rc;
    if ((rc = calla_read_matrix(r, prefix, "mlp.gate", s->n_experts, d, CALLA_ROLE_Q8, &m->router)) != 0) return rc;
    if ((rc = calla_read_experts(r, prefix, m)) != 0) return rc;
    if ((rc = matrix(r, prefix, "mlp.shared_expert.gate_proj", f, d, &m->shared_gate)) != 0) return rc;
    if ((rc = matrix(r, prefix, "mlp.shared_expert.up_proj", f, d, &m->shared_up)) != 0) return rc;
    if ((rc = matrix(r, prefix, "mlp.shared_expert.down_proj", d, f, &m->shared_down)) != 0) return rc;
    return calla_read_matrix(r, prefix, "mlp.shared_expert_gate", 1, d, CALLA_ROLE_Q8, &m->shared_router);
}

static int read_layer(struct calla_reader *r, const char *prefix, bool is_attention, struct calla_layer_weights *l) {
    const float one = r->names.hf ? 1 : 0;
    const int d = r->config->shape->n_hidden;
    int rc;
    l->is_attention = is_attention;
    if ((rc = vector(r, prefix, "input_layernorm.weight", d, one, &l->input_norm)) != 0) return rc;
    if ((rc = vector(r, prefix, "post_attention_layernorm.weight", d, one, &l->post_norm)) != 0) return rc;
    rc = is_attention ? read_attn(r, prefix, one, &l->attn) : read_gdn(r, prefix, &l->gdn);
    return rc != 0 ? rc : read_moe(r, prefix, &l->moe);
}

static int read_mtp(struct calla_reader *r, struct calla_mtp_weights *m) {
    const float one = r->names.hf ? 1 : 0;
    const int d = r->config->shape->n_hidden;
    char prefix[PREFIX];
    int rc;
    if ((rc = vector(r, r->names.mtp, "pre_fc_norm_embedding.weight", d, one, &m->norm_embed)) != 0) return rc;
    if ((rc = vector(r, r->names.mtp, "pre_fc_norm_hidden.weight", d, one, &m->norm_hidden)) != 0) return rc;
    if ((rc = vector(r, r->names.mtp, "norm.weight", d, one, &m->norm)) != 0) return rc;
    if ((rc = matrix(r, r->names.mtp, "fc", d, 2 * d, &m->fc)) != 0) return rc;
    snprintf(prefix, sizeof prefix, "%slayers.0.", r->names.mtp);
    return read_layer(r, prefix, true, &m->layer);
}

static int read_all(struct calla_reader *r) {
    struct calla_weights *w = r->w;
    const int v = w->shape->n_vocab, d = w->shape->n_hidden;
    char prefix[PREFIX];
    int rc;
    if ((rc = matrix(r, r->names.text, "embed_tokens", v, d, &w->embed)) != 0) return rc;
    if ((rc = matrix(r, r->names.head, "", v, d, &w->head)) != 0) return rc;
    if ((rc = vector(r, r->names.text, "norm.weight", d, r->names.hf ? 1 : 0, &w->final_norm)) != 0) return rc;
    w->layers = calla_weights_files_alloc(r->files, (size_t)w->n_layers * sizeof *w->layers);
    if (w->layers == NULL) return calla_fail(r->err, CALLA_ERR_MEMORY, "%s: no memory for %d layers", r->dir, w->n_layers);
    for (int l = 0; l < w->n_layers; l++) {
        snprintf(prefix, sizeof prefix, "%slayers.%d.", r->names.text, l);
        if ((rc = read_layer(r, prefix, calla_is_attention(l), &w->layers[l])) != 0) return rc;
    }
    if (r->names.mtp == NULL) return 0;
    w->mtp = calla_weights_files_alloc(r->files, sizeof *w->mtp);
    if (w->mtp == NULL) return calla_fail(r->err, CALLA_ERR_MEMORY, "%s: no memory", r->dir);
    r->in_mtp = true;
    return read_mtp(r, w->mtp);
}

/* A layer that config.json does not count would be left out in silence. */
static int check_layer_count(const struct calla_reader *r) {
    char prefix[PREFIX];
    const int n = snprintf(prefix, sizeof prefix, "%slayers.", r->names.text);
    for (size_t i = 0; i < r->files->n_entries; i++) {
        const struct calla_entry *e = &r->files->entries[i];
        if (e->used || strncmp(e->tensor->name, prefix, (size_t)n) != 0) continue;
        const long layer = strtol(e->tensor->name + n, NULL, 10);
        if (layer >= r->w->n_layers)
            return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: num_hidden_layers is %d, but there is a tensor %s; a cut in depth leaves out both",
                              r->config->path, r->w->n_layers, e->tensor->name);
    }
    return 0;
}

/* One line for vision, one a name for the first few of what is not known. */
static void report_extras(const struct calla_reader *r) {
    uint64_t vision_bytes = 0;
    size_t n_vision = 0, n_extra = 0;
    for (size_t i = 0; i < r->files->n_entries; i++) {
        const struct calla_entry *e = &r->files->entries[i];
        if (e->used) continue;
        if (e->vision) {
            n_vision++;
            vision_bytes += e->tensor->end - e->tensor->begin;
        } else if (n_extra++ < NAMED_EXTRAS) {
            calla_weights_log(r->opt, "warning: %s: tensor %s is not part of the model and is not read", e->shard->path, e->tensor->name);
        }
    }
    if (n_extra > NAMED_EXTRAS)
        calla_weights_log(r->opt, "warning: %s: %zu more tensors are not part of the model and are not read", r->dir, n_extra - NAMED_EXTRAS);
    if (n_vision > 0)
        calla_weights_log(r->opt, "%s: %zu tensors of the vision tower (%" PRIu64 " bytes) are skipped", r->dir, n_vision, vision_bytes);
}

static void each_layer(const struct calla_layer_weights *l, int n_experts, void (*f)(void *user, const struct calla_matrix *m), void *user) {
    const struct calla_gdn_weights *g = &l->gdn;
    const struct calla_attn_weights *a = &l->attn;
    const struct calla_moe_weights *m = &l->moe;
    const struct calla_matrix *const gdn[] = { &g->in_qkv, &g->in_z, &g->in_b, &g->in_a, &g->out };
    const struct calla_matrix *const attn[] = { &a->q, &a->k, &a->v, &a->o };
    const struct calla_matrix *const moe[] = { &m->router, &m->shared_gate, &m->shared_up, &m->shared_down, &m->shared_router };
    if (l->is_attention) for (size_t i = 0; i < sizeof attn / sizeof *attn; i++) f(user, attn[i]);
    else for (size_t i = 0; i < sizeof gdn / sizeof *gdn; i++) f(user, gdn[i]);
    for (size_t i = 0; i < sizeof moe / sizeof *moe; i++) f(user, moe[i]);
    for (int e = 0; e < n_experts; e++) {
        f(user, &m->gate[e]);
        f(user, &m->up[e]);
        f(user, &m->down[e]);
    }
}

void calla_weights_each(const struct calla_weights *w, void (*f)(void *user, const struct calla_matrix *m), void *user) {
    f(user, &w->embed);
    f(user, &w->head);
    for (int l = 0; l < w->n_layers; l++) each_layer(&w->layers[l], w->shape->n_experts, f, user);
    if (w->mtp == NULL) return;
    f(user, &w->mtp->fc);
    each_layer(&w->mtp->layer, w->shape->n_experts, f, user);
}

struct check { int rc; const char *dir; struct calla_err *err; };

static void check_matrix(void *user, const struct calla_matrix *m) {
    struct check *c = user;
    struct calla_bad_value bad;
    if (c->rc != 0 || !calla_matrix_bad_value(m, &bad)) return;
    c->rc = calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: %s, row %d, column %d is %g", c->dir, m->name, bad.part, bad.row, bad.col,
                       (double)bad.value);
}

/* Which checkpoint this is: the shape, every header, how it is read, and a
 * sample of the bytes of every tensor in use, since two checkpoints of one
 * shape have equal headers. */
static uint64_t content_hash(const struct calla_weights *w, const struct calla_weights_options *opt) {
    enum { SAMPLE = 64 };
    const int32_t numbers[] = { w->n_layers, w->shape->n_layers, w->shape->n_hidden, w->shape->n_vocab, w->shape->n_heads,
                                w->shape->n_kv_heads, w->shape->n_key_heads, w->shape->n_value_heads, w->shape->n_experts,
                                w->shape->n_expert_width, opt->quantise_bits };
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, numbers, sizeof numbers);
    for (int i = 0; i < w->files->n_shards; i++)
        XXH3_64bits_update(&state, w->files->shards[i].map.data, (size_t)w->files->shards[i].st.data_begin);
    for (size_t i = 0; i < w->files->n_entries; i++) {
        const struct calla_entry *e = &w->files->entries[i];
        if (!e->used) continue;
        const size_t n = (size_t)(e->tensor->end - e->tensor->begin), part = n < SAMPLE ? n : SAMPLE;
        XXH3_64bits_update(&state, e->data, part);
        XXH3_64bits_update(&state, e->data + n - part, part);
    }
    return XXH3_64bits_digest(&state);
}

int calla_weights_open(struct calla_weights **out, const char *dir, const struct calla_weights_options *opt, struct calla_err *err) {
    static const struct calla_weights_options plain;
    struct calla_config config = { 0 };
    int rc;
    *out = NULL;
    if (opt == NULL) opt = &plain;
    if (opt->quantise_bits != 0 && opt->quantise_bits != 4)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%s: weights are read as they are stored (0) or with 4 bits, not with %d", dir, opt->quantise_bits);
    struct calla_weights *w = calloc(1, sizeof *w);
    if (w == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory", dir);
    struct calla_reader r = { .w = w, .dir = dir, .config = &config, .opt = opt, .err = err };
    if ((rc = calla_config_open(&config, dir, err)) != 0) goto out;
    if ((rc = calla_generation_read(&w->generation, dir, &config, opt, err)) != 0) goto out;
    if ((rc = calla_weights_files_open(&w->files, dir, opt, err)) != 0) goto out;
    if ((rc = calla_names_find(&r.names, w->files, dir, err)) != 0) goto out;
    r.files = w->files;
    w->shape = config.shape;
    w->n_layers = config.n_layers;
    w->layout = r.names.hf ? "hf" : "mlx";
    if ((rc = read_all(&r)) != 0) goto out;
    if ((rc = check_layer_count(&r)) != 0) goto out;
    report_extras(&r);
    if (opt->check_values) {
        struct check c = { .dir = dir, .err = err };
        calla_weights_each(w, check_matrix, &c);
        if ((rc = c.rc) != 0) goto out;
    }
    w->content_hash = content_hash(w, opt);
out:
    calla_config_close(&config);
    if (rc == 0) *out = w;
    else calla_weights_close(&w);
    return rc;
}

void calla_weights_close(struct calla_weights **w) {
    if (*w == NULL) return;
    calla_weights_files_close(&(*w)->files);   /* with the vectors and the tables */
    free(*w);
    *w = NULL;
}
