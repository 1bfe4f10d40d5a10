#include "model/synth.h"

#include "base/bf16.h"
#include "base/err.h"
#include "model/config_write.h"
#include "model/targets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers: a function of (seed, tensor, index), so any thread may
 * write any part.  The finaliser of SplitMix64. ------------------------------ */

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t name_key(uint64_t seed, const char *name) {
    uint64_t h = mix(seed);
    for (; *name != 0; name++) h = mix(h ^ (unsigned char)*name);
    return h;
}

static double uniform(uint64_t key, uint64_t i) { return ((double)(mix(key + i) >> 11) + 0.5) * 0x1p-53; }

static double normal(uint64_t key, uint64_t i) {
    return sqrt(-2 * log(uniform(key, 2 * i))) * cos(6.283185307179586 * uniform(key, 2 * i + 1));
}

/* ---- matrices ------------------------------------------------------------- */

/* One group of 64 codes, with the lowest and the highest at two random places; returns the sign of the group.  Codes
 * are -half .. half - 1, so without signs every matrix would have the mean of half a step, all channels would drift
 * together, and all tokens choose the same experts (67 of 256 for 512 tokens instead of nearly all). */
static int group_codes(uint8_t *q, uint64_t key, uint64_t group, int bits) {
    const uint64_t at = key + group * 16;
    if (bits == 4) {
        for (int w = 0; w < 4; w++) {
            const uint64_t r = mix(at + (uint64_t)w);
            for (int i = 0; i < 16; i++) q[16 * w + i] = (uint8_t)(r >> (4 * i) & 15);
        }
    } else {
        for (int w = 0; w < 8; w++) {
            const uint64_t r = mix(at + (uint64_t)w);
            for (int i = 0; i < 8; i++) q[8 * w + i] = (uint8_t)(r >> (8 * i));
        }
    }
    const uint64_t ends = mix(at + 15);
    const int lo = (int)(ends & 63), hi = (lo + 1 + (int)(ends >> 6 & 0xffff) % 63) & 63;
    q[lo] = 0;
    q[hi] = (uint8_t)((1 << bits) - 1);
    return ends >> 22 & 1 ? -1 : 1;
}

/* log2 of the step between codes. */
static int step_log2(const struct calla_item *item) {
    if (strcmp(item->hf, "model.language_model.embed_tokens.weight") == 0) return -3;
    if (item->kind == CALLA_ITEM_ROUTER)     /* codes' deviation 74: logits of deviation 1.6 */
        return -(int)lround(log2(74 * sqrt(item->n_cols) / 1.6));
    return -(int)lround(log2(4.6 * sqrt(item->n_cols))) + (strcmp(item->hf, "lm_head.weight") == 0);
}

struct synth {
    const struct calla_synth_options *opt;
    const struct calla_targets *targets;
};

static int matrix_rows(const struct synth *s, const struct calla_target *target, int row, int n, struct calla_err *err) {
    const struct calla_item *item = &target->item;
    const size_t cols = (size_t)item->n_cols, groups = cols / CALLA_GROUP, count = (size_t)n * cols;
    const int bits = calla_item_bits(item), half = 1 << (bits - 1);
    const uint64_t key = name_key(s->opt->seed, item->mlx);
    const float step = ldexpf(1, step_log2(item));
    uint8_t *q = malloc(count + count / 2);
    uint16_t *wide = malloc(2 * (s->targets->hf ? count : 2 * (size_t)n * groups));
    int rc;

    if (q == NULL || wide == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: out of memory for %d rows", item->mlx, n);
        goto out;
    }
    uint16_t *biases = wide + (size_t)n * groups;
    for (size_t g = 0; g < (size_t)n * groups; g++) {
        uint8_t *codes = q + g * CALLA_GROUP;
        const float scale = step * (float)group_codes(codes, key, (uint64_t)row * groups + g, bits);
        if (s->targets->hf)
            for (size_t i = 0; i < CALLA_GROUP; i++)
                wide[g * CALLA_GROUP + i] = calla_bf16_from_f32((float)(codes[i] - half) * scale);
        else {
            wide[g] = calla_bf16_from_f32(scale);
            biases[g] = calla_bf16_from_f32(-(float)half * scale);
        }
    }
    rc = s->targets->hf ? calla_target_put_bf16(s->targets, target, row, n, wide, err)
                        : calla_target_put_quant(s->targets, target, row, n, q, wide, biases, q + count, err);
out:
    free(q);
    free(wide);
    return rc;
}

/* ---- vectors -------------------------------------------------------------- */

/* The stored value of the hf layout. */
static double vector_value(enum calla_item_kind kind, uint64_t key, uint64_t i) {
    const double u = uniform(key, i);
    switch (kind) {
    case CALLA_ITEM_HEAD_NORM: return (48 + floor(u * 33)) / 64;        /* query and key norms near 2: sharp attention */
    case CALLA_ITEM_NORM: return (floor(u * 49) - 24) / 128;
    case CALLA_ITEM_GDN_NORM: return 1 + (floor(u * 49) - 24) / 128;
    case CALLA_ITEM_CONV: return 0.35 * normal(key, i);
    case CALLA_ITEM_A_LOG: return u * log(16);
    case CALLA_ITEM_DT_BIAS: return 0.5 * normal(key, i) - 2;
    default: return 0;
    }
}

static int vector_rows(const struct synth *s, const struct calla_target *target, int row, int n, struct calla_err *err) {
    const struct calla_item *item = &target->item;
    const bool plus_one = !s->targets->hf && (item->kind == CALLA_ITEM_NORM || item->kind == CALLA_ITEM_HEAD_NORM);
    const uint64_t key = name_key(s->opt->seed, item->mlx);
    const size_t cols = (size_t)item->n_cols, count = (size_t)n * cols;
    uint16_t *v = malloc(count * 2);
    if (v == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: out of memory for %d rows", item->mlx, n);
    for (size_t i = 0; i < count; i++)
        v[i] = calla_bf16_from_f32((float)(vector_value(item->kind, key, (uint64_t)row * cols + i) + plus_one));
    const int rc = calla_target_put_bf16(s->targets, target, row, n, v, err);
    free(v);
    return rc;
}

static int job(void *user, const struct calla_target *target, int row, int n, struct calla_err *err) {
    return calla_item_bits(&target->item) != 0 ? matrix_rows(user, target, row, n, err) : vector_rows(user, target, row, n, err);
}

int calla_synth(const char *dir, const struct calla_synth_options *opt, struct calla_err *err) {
    const int n_layers = opt->n_layers ? opt->n_layers : opt->shape->n_layers;
    struct calla_writer *writer = NULL;
    struct calla_targets targets = { 0 };
    struct synth s = { .opt = opt, .targets = &targets };
    int rc;

    if (n_layers > opt->shape->n_layers || n_layers % CALLA_INTERVAL != 0)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "--layers %d: a multiple of %d up to %d is possible for %s", n_layers,
                          CALLA_INTERVAL, opt->shape->n_layers, opt->shape->name);
    rc = calla_writer_new(&writer, dir, (uint64_t)5 << 30, err);
    if (rc == 0) rc = calla_targets_declare(&targets, writer, opt->hf, opt->shape, n_layers, opt->hf, NULL, err);
    if (rc == 0) rc = calla_writer_begin(writer, opt->hf ? "pt" : "mlx", err);
    if (rc == 0) rc = calla_targets_run(&targets, opt->n_threads, job, &s, opt->progress, opt->user, err);
    if (rc == 0) rc = calla_write_generation(writer, opt->eos_ids, err);
    if (rc == 0 && opt->tokenizer_name != NULL)
        rc = calla_writer_file(writer, opt->tokenizer_name, opt->tokenizer, opt->tokenizer_bytes, err);
    if (rc == 0) rc = calla_writer_finish(writer, err);
    if (rc == 0) rc = calla_write_config(writer, opt->shape, n_layers, !opt->hf, opt->eos_ids, err);
    calla_targets_free(&targets);
    calla_writer_free(&writer);
    return rc;
}
