/* config.c - reads config.json: which row of shape.h it is, and what it says
 * of quantisation.  Nothing is defaulted in silence. */
#include "model/config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/map.h"

void calla_weights_log(const struct calla_weights_options *opt, const char *fmt, ...) {
    char line[1024];
    va_list ap;
    if (opt == NULL || opt->log == NULL) return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    opt->log(opt->user, line);
}

char *calla_path_join(const char *dir, const char *name) {
    const size_t n = strlen(dir) + strlen(name) + 2;
    char *p = malloc(n);
    if (p != NULL) snprintf(p, n, "%s/%s", dir, name);
    return p;
}

int calla_json_file(struct json_object **out, const char *path, struct calla_err *err) {
    struct calla_map map;
    *out = NULL;
    int rc = calla_map_open(&map, path, (uint64_t)64 << 20, err);
    if (rc != 0) return rc;
    rc = calla_json_parse((const char *)map.data, map.n, out, err);
    if (rc != 0) calla_err_prefix(err, "%s", path);
    calla_map_close(&map);
    if (rc == 0 && !json_object_is_type(*out, json_type_object)) {
        json_object_put(*out);
        *out = NULL;
        rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: not a JSON object", path);
    }
    return rc;
}

/* ---- single values ------------------------------------------------------ */

static struct json_object *get(struct json_object *o, const char *key) {
    struct json_object *v = NULL;
    return json_object_object_get_ex(o, key, &v) ? v : NULL;
}

static bool has(struct json_object *o, const char *key) { return json_object_object_get_ex(o, key, NULL); }

static const char *text_of(struct json_object *v) {
    return v == NULL ? "null" : json_object_to_json_string_ext(v, JSON_C_TO_STRING_PLAIN);
}

static int wrong(const struct calla_config *c, const char *key, struct json_object *o, const char *want, struct calla_err *err) {
    if (!has(o, key)) return calla_fail(err, CALLA_ERR_FORMAT, "%s: %s is missing, it must be %s", c->path, key, want);
    return calla_fail(err, CALLA_ERR_FORMAT, "%s: %s is %.80s, it must be %s", c->path, key, text_of(get(o, key)), want);
}

static int check_int(const struct calla_config *c, struct json_object *o, const char *key, int64_t want, struct calla_err *err) {
    struct json_object *v = get(o, key);
    char text[32];
    if (v != NULL && json_object_is_type(v, json_type_int) && json_object_get_int64(v) == want) return 0;
    snprintf(text, sizeof text, "%" PRId64, want);
    return wrong(c, key, o, text, err);
}

static int check_number(const struct calla_config *c, struct json_object *o, const char *key, double want, struct calla_err *err) {
    struct json_object *v = get(o, key);
    char text[32];
    const bool number = v != NULL && (json_object_is_type(v, json_type_int) || json_object_is_type(v, json_type_double));
    if (number && json_object_get_double(v) == want) return 0;
    snprintf(text, sizeof text, "%g", want);
    return wrong(c, key, o, text, err);
}

static int check_string(const struct calla_config *c, struct json_object *o, const char *key, const char *want, struct calla_err *err) {
    struct json_object *v = get(o, key);
    if (v != NULL && json_object_is_type(v, json_type_string) && strcmp(json_object_get_string(v), want) == 0) return 0;
    return wrong(c, key, o, want, err);
}

/* Where the key is there at all; null counts as absent. */
static int check_bool_if(const struct calla_config *c, struct json_object *o, const char *key, bool want, struct calla_err *err) {
    struct json_object *v = get(o, key);
    if (v == NULL || (json_object_is_type(v, json_type_boolean) && json_object_get_boolean(v) == want)) return 0;
    return wrong(c, key, o, want ? "true" : "false", err);
}

/* ---- the network -------------------------------------------------------- */

static const struct { const char *key; size_t at; } counts[] = {
    { "hidden_size", offsetof(struct calla_shape, n_hidden) },
    { "vocab_size", offsetof(struct calla_shape, n_vocab) },
    { "num_attention_heads", offsetof(struct calla_shape, n_heads) },
    { "num_key_value_heads", offsetof(struct calla_shape, n_kv_heads) },
    { "linear_num_key_heads", offsetof(struct calla_shape, n_key_heads) },
    { "linear_num_value_heads", offsetof(struct calla_shape, n_value_heads) },
    { "num_experts", offsetof(struct calla_shape, n_experts) },
    { "moe_intermediate_size", offsetof(struct calla_shape, n_expert_width) },
    { "shared_expert_intermediate_size", offsetof(struct calla_shape, n_expert_width) } };
enum { N_COUNTS = sizeof counts / sizeof *counts };

static int count_of(const struct calla_shape *s, int i) {
    int v;
    memcpy(&v, (const char *)s + counts[i].at, sizeof v);
    return v;
}

/* The row that all counts equal; the message compares with the row that most of them equal. */
static int pick_shape(struct calla_config *c, struct json_object *text, struct calla_err *err) {
    int best = -1;
    for (int i = 0; i < N_COUNTS; i++) {
        struct json_object *v = get(text, counts[i].key);
        if (v == NULL || !json_object_is_type(v, json_type_int)) return wrong(c, counts[i].key, text, "a whole number", err);
    }
    for (int row = 0; calla_shape_at(row) != NULL; row++) {
        int same = 0;
        for (int i = 0; i < N_COUNTS; i++)
            same += json_object_get_int64(get(text, counts[i].key)) == count_of(calla_shape_at(row), i);
        if (same > best) {
            best = same;
            c->shape = calla_shape_at(row);
        }
    }
    for (int i = 0; i < N_COUNTS; i++) {
        struct json_object *v = get(text, counts[i].key);
        if (json_object_get_int64(v) != count_of(c->shape, i))
            return calla_fail(err, CALLA_ERR_FORMAT, "%s: %s is %s, the nearest shape that calla runs (%s) has %d",
                              c->path, counts[i].key, text_of(v), c->shape->name, count_of(c->shape, i));
    }
    struct json_object *v = get(text, "num_hidden_layers");
    const int64_t n = v != NULL && json_object_is_type(v, json_type_int) ? json_object_get_int64(v) : 0;
    if (n < CALLA_INTERVAL || n > c->shape->n_layers || n % CALLA_INTERVAL != 0) {
        char want[80];
        snprintf(want, sizeof want, "a multiple of %d up to %d (shape %s)", CALLA_INTERVAL, c->shape->n_layers, c->shape->name);
        return wrong(c, "num_hidden_layers", text, want, err);
    }
    c->n_layers = (int)n;
    return 0;
}

static int check_layer_types(const struct calla_config *c, struct json_object *text, struct calla_err *err) {
    struct json_object *list = get(text, "layer_types");
    if (list == NULL) return check_int(c, text, "full_attention_interval", CALLA_INTERVAL, err);
    if (get(text, "full_attention_interval") != NULL) {
        const int rc = check_int(c, text, "full_attention_interval", CALLA_INTERVAL, err);
        if (rc != 0) return rc;
    }
    if (!json_object_is_type(list, json_type_array)) return wrong(c, "layer_types", text, "a list", err);
    if (json_object_array_length(list) != (size_t)c->n_layers)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: layer_types has %zu entries, num_hidden_layers is %d", c->path,
                          json_object_array_length(list), c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        struct json_object *v = json_object_array_get_idx(list, (size_t)i);
        const char *want = calla_is_attention(i) ? "full_attention" : "linear_attention";
        if (v == NULL || !json_object_is_type(v, json_type_string) || strcmp(json_object_get_string(v), want) != 0)
            return calla_fail(err, CALLA_ERR_FORMAT, "%s: layer_types[%d] is %.60s, it must be %s", c->path, i, text_of(v), want);
    }
    return 0;
}

/* rope_theta and partial_rotary_factor stand in rope_parameters, in older
 * files beside it, or in both. */
static int check_rope(const struct calla_config *c, struct json_object *text, struct calla_err *err) {
    static const struct { const char *key; double want; } numbers[] = {
        { "rope_theta", CALLA_ROPE_THETA }, { "partial_rotary_factor", (double)CALLA_ROTARY / CALLA_HEAD } };
    struct json_object *places[] = { get(text, "rope_parameters"), get(text, "rope_scaling"), text };
    static const char *const place_names[] = { "rope_parameters", "rope_scaling" };
    for (int i = 0; i < 2; i++) {
        if (places[i] == NULL) continue;
        if (!json_object_is_type(places[i], json_type_object)) return wrong(c, place_names[i], text, "an object", err);
        for (int k = 0; k < 2; k++) {
            const char *key = k ? "type" : "rope_type";
            if (!has(places[i], key)) continue;
            const int rc = check_string(c, places[i], key, "default", err);
            if (rc != 0) return rc;
        }
    }
    for (int k = 0; k < 2; k++) {
        int found = 0;
        for (int i = 0; i < 3; i++) {
            if (places[i] == NULL || !has(places[i], numbers[k].key)) continue;
            const int rc = check_number(c, places[i], numbers[k].key, numbers[k].want, err);
            if (rc != 0) return rc;
            found++;
        }
        if (found == 0) return check_number(c, text, numbers[k].key, numbers[k].want, err);
    }
    return 0;
}

static int check_fixed(const struct calla_config *c, struct json_object *text, struct calla_err *err) {
    static const struct { const char *key; int want; } ints[] = {
        { "head_dim", CALLA_HEAD }, { "linear_key_head_dim", CALLA_RECUR }, { "linear_value_head_dim", CALLA_RECUR },
        { "linear_conv_kernel_dim", CALLA_CONV }, { "num_experts_per_tok", CALLA_CHOSEN } };
    /* not in the published file, or with one value only; another would be another network */
    static const struct { const char *key; bool want; } bools[] = {
        { "attention_bias", false }, { "attn_output_gate", true }, { "tie_word_embeddings", false },
        { "norm_topk_prob", true }, { "use_sliding_window", false }, { "mtp_use_dedicated_embeddings", false } };
    int rc;
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if ((rc = check_int(c, text, ints[i].key, ints[i].want, err)) != 0) return rc;
    for (size_t i = 0; i < sizeof bools / sizeof *bools; i++)
        if ((rc = check_bool_if(c, text, bools[i].key, bools[i].want, err)) != 0) return rc;
    if ((rc = check_bool_if(c, c->root, "tie_word_embeddings", false, err)) != 0) return rc;
    if ((rc = check_number(c, text, "rms_norm_eps", 1e-6, err)) != 0) return rc;
    if ((rc = check_string(c, text, "hidden_act", "silu", err)) != 0) return rc;
    if (get(text, "decoder_sparse_step") != NULL && (rc = check_int(c, text, "decoder_sparse_step", 1, err)) != 0) return rc;
    struct json_object *v = get(text, "mlp_only_layers");
    if (v != NULL && !(json_object_is_type(v, json_type_array) && json_object_array_length(v) == 0))
        return wrong(c, "mlp_only_layers", text, "[]", err);
    v = get(text, "mtp_num_hidden_layers");
    if (v != NULL && !(json_object_is_type(v, json_type_int) && (json_object_get_int64(v) == 0 || json_object_get_int64(v) == 1)))
        return wrong(c, "mtp_num_hidden_layers", text, "0 or 1", err);
    if ((rc = check_layer_types(c, text, err)) != 0) return rc;
    return check_rope(c, text, err);
}

/* ---- quantisation ------------------------------------------------------- */

static int find_quant(struct calla_config *c, struct calla_err *err) {
    const char *key = has(c->root, "quantization") ? "quantization" : "quantization_config";
    struct json_object *q = get(c->root, key), *v;
    if (q == NULL) return 0;
    if (!json_object_is_type(q, json_type_object)) return wrong(c, key, c->root, "an object", err);
    if ((v = get(q, "quant_method")) != NULL && strcmp(json_object_get_string(v), "affine") != 0)
        return calla_fail(err, CALLA_ERR_UNSUPPORTED, "%s: quantised with %.40s; read are MLX affine weights of 4 and 8 bits in groups of %d, "
                          "and bf16, f16 and f32", c->path, text_of(v), CALLA_GROUP);
    c->quant = q;
    struct calla_quant_rule rule;
    return calla_config_rule(c, "", &rule, err);
}

static int rule_int(const struct calla_config *c, struct json_object *o, const char *module, const char *key, int *out, struct calla_err *err) {
    struct json_object *v = get(o, key);
    if (!has(o, key)) return 0;
    const int64_t n = v != NULL && json_object_is_type(v, json_type_int) ? json_object_get_int64(v) : 0;
    if (n < 1 || n > 65536)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: quantization%s%s: %s is %.60s, it must be a whole number from 1 on",
                          c->path, module[0] ? " of " : "", module, key, text_of(v));
    *out = (int)n;
    return 0;
}

static int rule_from(const struct calla_config *c, struct json_object *o, const char *module, struct calla_quant_rule *r, struct calla_err *err) {
    int rc = rule_int(c, o, module, "bits", &r->bits, err);
    if (rc == 0) rc = rule_int(c, o, module, "group_size", &r->group, err);
    if (rc != 0) return rc;
    struct json_object *mode = get(o, "mode");
    if (mode == NULL && !has(o, "mode")) return 0;
    if (mode == NULL || !json_object_is_type(mode, json_type_string))
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: quantization%s%s: mode is %.60s, it must be a string", c->path,
                          module[0] ? " of " : "", module, text_of(mode));
    snprintf(r->mode, sizeof r->mode, "%s", json_object_get_string(mode));
    return 0;
}

int calla_config_rule(const struct calla_config *c, const char *module, struct calla_quant_rule *out, struct calla_err *err) {
    struct json_object *entry;
    *out = (struct calla_quant_rule){ .known = c->quant != NULL, .quantised = c->quant != NULL, .mode = "affine" };
    if (c->quant == NULL) return 0;
    if (module[0] == 0 || !json_object_object_get_ex(c->quant, module, &entry)) return rule_from(c, c->quant, "", out, err);
    out->named = true;
    if (entry != NULL && json_object_is_type(entry, json_type_boolean)) {
        out->quantised = json_object_get_boolean(entry);
        return out->quantised ? rule_from(c, c->quant, "", out, err) : 0;
    }
    if (entry == NULL || !json_object_is_type(entry, json_type_object))
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: quantization: the entry %.200s is %.60s, neither an object nor true or false",
                          c->path, module, text_of(entry));
    return rule_from(c, entry, module, out, err);
}

/* ------------------------------------------------------------------------- */

static int check_model_type(const struct calla_config *c, struct json_object *text, struct calla_err *err) {
    static const char *const want[] = { "qwen3_5_moe", "qwen3_5_moe_text" };
    struct json_object *places[] = { c->root, text };
    for (int i = 0; i < 2; i++) {
        struct json_object *v = get(places[i], "model_type");
        const char *s = v != NULL && json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
        if (i == 1 && !has(text, "model_type")) continue;
        if (strcmp(s, want[0]) != 0 && strcmp(s, want[1]) != 0) return wrong(c, "model_type", places[i], "qwen3_5_moe", err);
    }
    return 0;
}

/* bf16 and f16 tensors have the same size, so a wrong dtype in a header shows only here. */
static int find_half(struct calla_config *c, struct json_object *text, struct calla_err *err) {
    struct json_object *const places[] = { text, text, c->root, c->root };
    static const char *const keys[] = { "dtype", "torch_dtype", "dtype", "torch_dtype" };
    for (int i = 3; i >= 0; i--) {   /* the first place has the last word */
        struct json_object *v = get(places[i], keys[i]);
        if (v == NULL) continue;
        const char *s = json_object_is_type(v, json_type_string) ? json_object_get_string(v) : "";
        const bool bf16 = strcmp(s, "bfloat16") == 0, f16 = strcmp(s, "float16") == 0;
        if (!bf16 && !f16 && strcmp(s, "float32") != 0) return wrong(c, keys[i], places[i], "bfloat16, float16 or float32", err);
        c->says_half = bf16 || f16;
        c->half = f16 ? CALLA_DT_F16 : CALLA_DT_BF16;
    }
    return 0;
}

int calla_config_open(struct calla_config *out, const char *dir, struct calla_err *err) {
    int rc;
    *out = (struct calla_config){ .path = calla_path_join(dir, "config.json") };
    if (out->path == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for a path", dir);
    if ((rc = calla_json_file(&out->root, out->path, err)) != 0) goto out;
    struct json_object *text = get(out->root, "text_config");
    if (!has(out->root, "text_config")) text = out->root;   /* a text-only export is flat */
    if (text == NULL || !json_object_is_type(text, json_type_object)) {
        rc = wrong(out, "text_config", out->root, "an object", err);
        goto out;
    }
    if ((rc = check_model_type(out, text, err)) != 0) goto out;
    if ((rc = pick_shape(out, text, err)) != 0) goto out;
    if ((rc = check_fixed(out, text, err)) != 0) goto out;
    if ((rc = find_half(out, text, err)) != 0) goto out;
    rc = find_quant(out, err);
out:
    if (rc != 0) calla_config_close(out);
    return rc;
}

void calla_config_close(struct calla_config *c) {
    if (c->root != NULL) json_object_put(c->root);
    free(c->path);
    *c = (struct calla_config){ 0 };
}
