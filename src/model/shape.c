#include "model/shape.h"

#include <string.h>

const struct calla_shape calla_shape_full = {
    .name = "full", .n_layers = 40, .n_hidden = 2048, .n_vocab = 248320, .n_heads = 16, .n_kv_heads = 2,
    .n_key_heads = 16, .n_value_heads = 32, .n_experts = 256, .n_expert_width = 512 };
const struct calla_shape calla_shape_demo = {
    .name = "demo", .n_layers = 8, .n_hidden = 384, .n_vocab = 4096, .n_heads = 4, .n_kv_heads = 2,
    .n_key_heads = 2, .n_value_heads = 4, .n_experts = 24, .n_expert_width = 64 };
const struct calla_shape calla_shape_tiny = {
    .name = "tiny", .n_layers = 8, .n_hidden = 128, .n_vocab = 1088, .n_heads = 16, .n_kv_heads = 2,
    .n_key_heads = 2, .n_value_heads = 4, .n_experts = 16, .n_expert_width = 64 };

static const struct calla_shape *const shapes[] = { &calla_shape_full, &calla_shape_demo, &calla_shape_tiny };
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

const struct calla_shape *calla_shape_at(int i) { return i >= 0 && i < N_SHAPES ? shapes[i] : NULL; }

const struct calla_shape *calla_shape_named(const char *name) {
    for (int i = 0; i < N_SHAPES; i++)
        if (strcmp(shapes[i]->name, name) == 0) return shapes[i];
    return NULL;
}
