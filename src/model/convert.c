#include "model/convert.h"

#include "base/bf16.h"
#include "base/err.h"
#include "base/json.h"
#include "base/map.h"
#include "model/config_write.h"
#include "model/targets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int matrix_rows(const struct calla_targets *t, const struct calla_target *target, int row, int n, struct calla_err *err) {
    const struct calla_item *item = &target->item;
    const size_t cols = (size_t)item->n_cols, groups = cols / CALLA_GROUP, count = (size_t)n * cols;
    uint8_t *q = malloc(count + count / 2);
    uint16_t *scales = malloc((size_t)n * groups * 4), *biases = scales != NULL ? scales + (size_t)n * groups : NULL;
    int rc;

    if (q == NULL || scales == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: out of memory for %d rows", item->mlx, n);
        goto out;
    }
    for (int i = 0; i < n; i++)
        calla_matrix_row_quant(&item->matrices[(row + i) / item->n_rows], (row + i) % item->n_rows, q + (size_t)i * cols,
                               scales + (size_t)i * groups, biases + (size_t)i * groups);
    rc = calla_target_put_quant(t, target, row, n, q, scales, biases, q + count, err);
out:
    free(q);
    free(scales);
    return rc;
}

static int vector_rows(const struct calla_targets *t, const struct calla_target *target, int row, int n, struct calla_err *err) {
    const size_t cols = (size_t)target->item.n_cols, count = (size_t)n * cols;
    uint16_t *v = malloc(count * 2);
    if (v == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: out of memory for %d rows", target->item.mlx, n);
    for (size_t i = 0; i < count; i++) v[i] = calla_bf16_from_f32(target->item.values[(size_t)row * cols + i]);
    const int rc = calla_target_put_bf16(t, target, row, n, v, err);
    free(v);
    return rc;
}

static int job(void *user, const struct calla_target *target, int row, int n, struct calla_err *err) {
    return calla_item_bits(&target->item) != 0 ? matrix_rows(user, target, row, n, err) : vector_rows(user, target, row, n, err);
}

/* config.json as it was, with the quantization block under both names. */
static int write_config(struct calla_writer *w, const char *in, const struct calla_weights *weights, struct calla_err *err) {
    char path[4096];
    struct calla_map map;
    struct json_object *config = NULL, *block = NULL;
    struct calla_buf text = { 0 };
    int rc;

    snprintf(path, sizeof path, "%s/config.json", in);
    rc = calla_map_open(&map, path, 1u << 30, err);
    if (rc != 0) return rc;
    rc = calla_json_parse((const char *)map.data, map.n, &config, err);
    if (rc != 0) {
        calla_err_prefix(err, "%s", path);
        goto out;
    }
    calla_quantization_json(&text, weights->n_layers, weights->mtp != NULL);
    if (!text.failed) rc = calla_json_parse(text.data, text.n, &block, err);
    if (rc == 0 && !text.failed) {
        json_object_object_add(config, "quantization", json_object_get(block));
        json_object_object_add(config, "quantization_config", json_object_get(block));
        calla_buf_clear(&text);
        calla_json_print(&text, config);
    }
    if (rc == 0) rc = text.failed ? calla_fail(err, CALLA_ERR_MEMORY, "config.json: out of memory")
                                  : calla_writer_file(w, "config.json", text.data, text.n, err);
out:
    calla_buf_free(&text);
    json_object_put(block);
    json_object_put(config);
    calla_map_close(&map);
    return rc;
}

static int copy_beside(struct calla_writer *w, const char *in, struct calla_err *err) {
    static const char *const names[] = { "tokenizer.json", "tokenizer.json.zst", "tokenizer_config.json", "generation_config.json",
                                         "chat_template.jinja", "vocab.json", "merges.txt" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4096];
        struct calla_map map;
        snprintf(path, sizeof path, "%s/%s", in, names[i]);
        if (access(path, F_OK) != 0) continue;
        int rc = calla_map_open(&map, path, 1u << 30, err);
        if (rc != 0) return rc;
        rc = calla_writer_file(w, names[i], (const char *)map.data, map.n, err);
        calla_map_close(&map);
        if (rc != 0) return rc;
    }
    return 0;
}

int calla_convert(const char *in, const char *out, const struct calla_convert_options *opt, struct calla_err *err) {
    const struct calla_weights_options load = { .quantise_bits = 4, .check_values = true, .log = opt->log, .user = opt->user };
    struct calla_weights *weights = NULL;
    struct calla_writer *writer = NULL;
    struct calla_targets targets = { 0 };
    int rc;

    rc = calla_weights_open(&weights, in, &load, err);
    if (rc != 0) return rc;
    if (strcmp(weights->layout, "hf") != 0) {
        rc = calla_fail(err, CALLA_ERR_ARGUMENT, "%s: is quantised already (layout %s); convert reads an original bf16 checkpoint",
                        in, weights->layout);
        goto out;
    }
    rc = calla_writer_new(&writer, out, (uint64_t)5 << 30, err);
    if (rc == 0)
        rc = calla_targets_declare(&targets, writer, false, weights->shape, weights->n_layers, weights->mtp != NULL, weights, err);
    if (rc == 0) rc = calla_writer_begin(writer, "mlx", err);
    if (rc == 0) rc = calla_targets_run(&targets, opt->n_threads, job, &targets, opt->progress, opt->user, err);
    if (rc == 0) rc = copy_beside(writer, in, err);
    if (rc == 0) rc = calla_writer_finish(writer, err);
    if (rc == 0) rc = write_config(writer, in, weights, err);
out:
    calla_targets_free(&targets);
    calla_writer_free(&writer);
    calla_weights_close(&weights);
    return rc;
}
