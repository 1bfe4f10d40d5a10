#include "model/config_write.h"

#include "base/err.h"

void calla_quantization_json(struct calla_buf *out, int n_layers, bool mtp) {
    calla_buf_str(out, "{\"group_size\": 64, \"bits\": 4, \"mode\": \"affine\"");
    for (int l = 0; l < n_layers + mtp; l++) {
        static const char *const routers[] = { "gate", "shared_expert_gate" };
        for (int i = 0; i < 2; i++) {
            if (l < n_layers) calla_buf_fmt(out, ", \"language_model.model.layers.%d.mlp.%s\"", l, routers[i]);
            else calla_buf_fmt(out, ", \"language_model.mtp.layers.0.mlp.%s\"", routers[i]);
            calla_buf_str(out, ": {\"group_size\": 64, \"bits\": 8}");
        }
    }
    calla_buf_char(out, '}');
}

static void text_config(struct calla_buf *b, const struct calla_shape *s, int n_layers, int32_t eos) {
    calla_buf_fmt(b, "{\"model_type\": \"qwen3_5_moe_text\", \"vocab_size\": %d, \"hidden_size\": %d, \"num_hidden_layers\": %d, "
                  "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %d, ",
                  s->n_vocab, s->n_hidden, n_layers, s->n_heads, s->n_kv_heads, CALLA_HEAD);
    calla_buf_str(b, "\"attention_bias\": false, \"attention_dropout\": 0.0, \"attn_output_gate\": true, \"full_attention_interval\": 4, "
                  "\"layer_types\": [");
    for (int l = 0; l < n_layers; l++)
        calla_buf_fmt(b, "%s\"%s\"", l ? ", " : "", calla_is_attention(l) ? "full_attention" : "linear_attention");
    calla_buf_fmt(b, "], \"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, \"linear_key_head_dim\": %d, "
                  "\"linear_value_head_dim\": %d, \"linear_conv_kernel_dim\": %d, \"mamba_ssm_dtype\": \"float32\", ",
                  s->n_key_heads, s->n_value_heads, CALLA_RECUR, CALLA_RECUR, CALLA_CONV);
    calla_buf_fmt(b, "\"num_experts\": %d, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %d, "
                  "\"shared_expert_intermediate_size\": %d, \"router_aux_loss_coef\": 0.001, \"output_router_logits\": false, ",
                  s->n_experts, CALLA_CHOSEN, s->n_expert_width, s->n_expert_width);
    calla_buf_fmt(b, "\"max_position_embeddings\": %d, \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\", \"initializer_range\": 0.02, "
                  "\"dtype\": \"bfloat16\", \"tie_word_embeddings\": false, \"use_cache\": true, \"mtp_num_hidden_layers\": 1, "
                  "\"mtp_use_dedicated_embeddings\": false, \"bos_token_id\": %d, \"eos_token_id\": %d, \"pad_token_id\": null, ",
                  CALLA_MAX_CTX, eos, eos);
    calla_buf_str(b, "\"partial_rotary_factor\": 0.25, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, "
                  "\"partial_rotary_factor\": 0.25, \"mrope_interleaved\": true, \"mrope_section\": [11, 11, 10]}}");
}

int calla_write_config(struct calla_writer *w, const struct calla_shape *shape, int n_layers, bool quantised,
                       const int32_t eos_ids[2], struct calla_err *err) {
    struct calla_buf b = { 0 };
    calla_buf_str(&b, "{\"architectures\": [\"Qwen3_5MoeForConditionalGeneration\"],\n \"model_type\": \"qwen3_5_moe\",\n "
                      "\"tie_word_embeddings\": false,\n \"text_config\": ");
    text_config(&b, shape, n_layers, eos_ids[1]);
    if (quantised) {
        calla_buf_str(&b, ",\n \"quantization\": ");
        calla_quantization_json(&b, n_layers, false);
    }
    calla_buf_str(&b, "}\n");
    const int rc = b.failed ? calla_fail(err, CALLA_ERR_MEMORY, "config.json: out of memory")
                            : calla_writer_file(w, "config.json", b.data, b.n, err);
    calla_buf_free(&b);
    return rc;
}

int calla_write_generation(struct calla_writer *w, const int32_t eos_ids[2], struct calla_err *err) {
    struct calla_buf b = { 0 };
    calla_buf_fmt(&b, "{\"bos_token_id\": %d, \"pad_token_id\": %d, \"eos_token_id\": [%d, %d], \"do_sample\": true, "
                      "\"temperature\": 1.0, \"top_k\": 20, \"top_p\": 0.95}\n", eos_ids[1], eos_ids[1], eos_ids[0], eos_ids[1]);
    const int rc = b.failed ? calla_fail(err, CALLA_ERR_MEMORY, "generation_config.json: out of memory")
                            : calla_writer_file(w, "generation_config.json", b.data, b.n, err);
    calla_buf_free(&b);
    return rc;
}
