#include "model/inventory.h"

#include <stdio.h>
#include <string.h>

struct walk {
    int (*visit)(void *user, const struct calla_item *item);
    void *user;
    int   rc;                  /* the first failure; later items are passed over */
    const char *mlx, *hf;      /* prefixes of the present layer                  */
};

static void put(struct walk *k, struct calla_item *item, const char *mlx, const char *hf) {
    if (k->rc < 0) return;
    snprintf(item->mlx, sizeof item->mlx, "%s%s", k->mlx, mlx);
    snprintf(item->hf, sizeof item->hf, "%s%s", k->hf, hf);
    if (item->n_mats == 0) item->n_mats = 1;
    if (item->hf_parts == 0) item->hf_parts = 1;
    k->rc = k->visit(k->user, item);
}

/* A matrix that both layouts call `name`. */
static void matrix(struct walk *k, const char *name, const struct calla_matrix *m, int n_rows, int n_cols,
                   enum calla_item_kind kind) {
    char hf[CALLA_ITEM_NAME];
    snprintf(hf, sizeof hf, "%s.weight", name);
    put(k, &(struct calla_item){ .kind = kind, .n_rows = n_rows, .n_cols = n_cols, .matrices = m }, name, hf);
}

static void vector(struct walk *k, const char *name, const float *v, int n, enum calla_item_kind kind) {
    put(k, &(struct calla_item){ .kind = kind, .n_rows = n, .n_cols = kind == CALLA_ITEM_CONV ? CALLA_CONV : 1,
                                 .values = v }, name, name);
}

static void expert(struct walk *k, const char *mlx, const char *hf, const struct calla_matrix *m, int n_mats,
                   int n_rows, int n_cols, int hf_parts, int hf_part) {
    put(k, &(struct calla_item){ .kind = CALLA_ITEM_MATRIX, .n_mats = n_mats, .n_rows = n_rows, .n_cols = n_cols,
                                 .stacked = true, .hf_parts = hf_parts, .hf_part = hf_part, .matrices = m }, mlx, hf);
}

#define OF(w, field) ((w) != NULL ? &(w)->field : NULL)
#define IN(w, field) ((w) != NULL ? (w)->field : NULL)

static void gdn(struct walk *k, const struct calla_shape *s, const struct calla_gdn_weights *w) {
    const int d = s->n_hidden, hv = s->n_value_heads, width = calla_gdn_width(s);
    matrix(k, "linear_attn.in_proj_qkv", OF(w, in_qkv), calla_conv_channels(s), d, CALLA_ITEM_MATRIX);
    matrix(k, "linear_attn.in_proj_z", OF(w, in_z), width, d, CALLA_ITEM_MATRIX);
    matrix(k, "linear_attn.in_proj_b", OF(w, in_b), hv, d, CALLA_ITEM_MATRIX);
    matrix(k, "linear_attn.in_proj_a", OF(w, in_a), hv, d, CALLA_ITEM_MATRIX);
    matrix(k, "linear_attn.out_proj", OF(w, out), d, width, CALLA_ITEM_MATRIX);
    vector(k, "linear_attn.conv1d.weight", IN(w, conv), calla_conv_channels(s), CALLA_ITEM_CONV);
    vector(k, "linear_attn.A_log", IN(w, a_log), hv, CALLA_ITEM_A_LOG);
    vector(k, "linear_attn.dt_bias", IN(w, dt_bias), hv, CALLA_ITEM_DT_BIAS);
    vector(k, "linear_attn.norm.weight", IN(w, norm), CALLA_RECUR, CALLA_ITEM_GDN_NORM);
}

static void attention(struct walk *k, const struct calla_shape *s, const struct calla_attn_weights *w) {
    const int d = s->n_hidden, width = calla_attn_width(s), kv = calla_kv_width(s);
    matrix(k, "self_attn.q_proj", OF(w, q), 2 * width, d, CALLA_ITEM_MATRIX);
    matrix(k, "self_attn.k_proj", OF(w, k), kv, d, CALLA_ITEM_MATRIX);
    matrix(k, "self_attn.v_proj", OF(w, v), kv, d, CALLA_ITEM_MATRIX);
    matrix(k, "self_attn.o_proj", OF(w, o), d, width, CALLA_ITEM_MATRIX);
    vector(k, "self_attn.q_norm.weight", IN(w, q_norm), CALLA_HEAD, CALLA_ITEM_HEAD_NORM);
    vector(k, "self_attn.k_norm.weight", IN(w, k_norm), CALLA_HEAD, CALLA_ITEM_HEAD_NORM);
}

static void moe(struct walk *k, const struct calla_shape *s, const struct calla_moe_weights *w) {
    const int d = s->n_hidden, f = s->n_expert_width, e = s->n_experts;
    matrix(k, "mlp.gate", OF(w, router), e, d, CALLA_ITEM_ROUTER);
    expert(k, "mlp.switch_mlp.gate_proj", "mlp.experts.gate_up_proj", IN(w, gate), e, f, d, 2, 0);
    expert(k, "mlp.switch_mlp.up_proj", "mlp.experts.gate_up_proj", IN(w, up), e, f, d, 2, 1);
    expert(k, "mlp.switch_mlp.down_proj", "mlp.experts.down_proj", IN(w, down), e, d, f, 1, 0);
    matrix(k, "mlp.shared_expert.gate_proj", OF(w, shared_gate), f, d, CALLA_ITEM_MATRIX);
    matrix(k, "mlp.shared_expert.up_proj", OF(w, shared_up), f, d, CALLA_ITEM_MATRIX);
    matrix(k, "mlp.shared_expert.down_proj", OF(w, shared_down), d, f, CALLA_ITEM_MATRIX);
    matrix(k, "mlp.shared_expert_gate", OF(w, shared_router), 1, d, CALLA_ITEM_ROUTER);
}

static void layer(struct walk *k, const struct calla_shape *s, const struct calla_layer_weights *w, bool is_attention) {
    vector(k, "input_layernorm.weight", IN(w, input_norm), s->n_hidden, CALLA_ITEM_NORM);
    if (is_attention) attention(k, s, OF(w, attn));
    else gdn(k, s, OF(w, gdn));
    vector(k, "post_attention_layernorm.weight", IN(w, post_norm), s->n_hidden, CALLA_ITEM_NORM);
    moe(k, s, OF(w, moe));
}

int calla_inventory(const struct calla_shape *s, int n_layers, bool mtp, const struct calla_weights *w,
                    int (*visit)(void *user, const struct calla_item *item), void *user) {
    struct walk k = { .visit = visit, .user = user };
    const int d = s->n_hidden;
    char mlx[64], hf[64];

    k.mlx = "language_model.model.";
    k.hf = "model.language_model.";
    matrix(&k, "embed_tokens", OF(w, embed), s->n_vocab, d, CALLA_ITEM_MATRIX);
    for (int l = 0; l < n_layers; l++) {
        snprintf(mlx, sizeof mlx, "language_model.model.layers.%d.", l);
        snprintf(hf, sizeof hf, "model.language_model.layers.%d.", l);
        k.mlx = mlx;
        k.hf = hf;
        layer(&k, s, w != NULL ? &w->layers[l] : NULL, calla_is_attention(l));
    }
    k.mlx = "language_model.model.";
    k.hf = "model.language_model.";
    vector(&k, "norm.weight", IN(w, final_norm), d, CALLA_ITEM_NORM);
    k.mlx = "language_model.";
    k.hf = "";
    matrix(&k, "lm_head", OF(w, head), s->n_vocab, d, CALLA_ITEM_MATRIX);
    if (!mtp) return k.rc;

    const struct calla_mtp_weights *m = w != NULL ? w->mtp : NULL;
    k.mlx = "language_model.mtp.";
    k.hf = "mtp.";
    vector(&k, "pre_fc_norm_embedding.weight", IN(m, norm_embed), d, CALLA_ITEM_NORM);
    vector(&k, "pre_fc_norm_hidden.weight", IN(m, norm_hidden), d, CALLA_ITEM_NORM);
    matrix(&k, "fc", OF(m, fc), d, 2 * d, CALLA_ITEM_MATRIX);
    k.mlx = "language_model.mtp.layers.0.";
    k.hf = "mtp.layers.0.";
    layer(&k, s, OF(m, layer), true);
    k.mlx = "language_model.mtp.";
    k.hf = "mtp.";
    vector(&k, "norm.weight", IN(m, norm), d, CALLA_ITEM_NORM);
    return k.rc;
}
