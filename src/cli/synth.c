/* synth.c - `calla synth`: writes a random checkpoint. */
#include "cli/cli.h"

#include "base/err.h"
#include "base/progress.h"
#include "cli/synth_tokenizer.h"
#include "model/synth.h"

#include <stdio.h>
#include <string.h>

static int bad(const char *what) {
    fprintf(stderr, "calla: synth: %s\n", what);
    return CLI_USAGE;
}

/* The bytes of a tokenizer file; the name that it gets beside the weights tells plain from .zst. */
static int read_file(const char *path, struct calla_buf *out, struct calla_err *err) {
    FILE *f = fopen(path, "rb");
    char piece[65536];
    size_t n;
    if (f == NULL) return calla_fail(err, CALLA_ERR_IO, "%s: cannot open", path);
    out->limit = (size_t)256 << 20;
    while ((n = fread(piece, 1, sizeof piece, f)) != 0) calla_buf_add(out, piece, n);
    const bool failed = ferror(f) != 0;
    fclose(f);
    if (failed || out->failed) return calla_fail(err, CALLA_ERR_IO, "%s: cannot be read, or is larger than 256 MB", path);
    return 0;
}

int cmd_synth(const struct cli_options *o) {
    struct calla_buf tokenizer = { 0 };
    struct calla_progress progress;
    struct calla_err err;
    int rc = 0;

    if (o->shape == NULL) return bad("--shape NAME is missing (tiny or full)");
    if (o->out == NULL) return bad("--out DIR is missing");
    if (o->layout != NULL && strcmp(o->layout, "mlx") != 0 && strcmp(o->layout, "hf") != 0) return bad("--layout is mlx or hf");
    const struct calla_shape *shape = calla_shape_named(o->shape);
    if (shape == NULL) return bad("--shape is tiny, demo or full");

    struct calla_synth_options opt = {
        .shape = shape, .n_layers = o->layers, .hf = o->layout != NULL && strcmp(o->layout, "hf") == 0,
        .seed = o->seed < 0 ? 1 : (uint64_t)o->seed, .n_threads = o->threads,
        .eos_ids = { 248046, 248044 }, .progress = calla_progress_put, .user = &progress };
    if (o->tokenizer != NULL) {
        const size_t n = strlen(o->tokenizer);
        opt.tokenizer_name = n > 4 && strcmp(o->tokenizer + n - 4, ".zst") == 0 ? "tokenizer.json.zst" : "tokenizer.json";
        rc = read_file(o->tokenizer, &tokenizer, &err);
    } else if (shape == &calla_shape_tiny) {
        opt.tokenizer_name = "tokenizer.json";
        cli_tiny_tokenizer(&tokenizer);
    }
    if (shape == &calla_shape_tiny) {
        opt.eos_ids[0] = CLI_TINY_END_OF_TURN;
        opt.eos_ids[1] = CLI_TINY_END_OF_TEXT;
    } else if (shape == &calla_shape_demo) {
        opt.eos_ids[0] = 4065;
        opt.eos_ids[1] = 4063;
    }
    opt.tokenizer = tokenizer.data;
    opt.tokenizer_bytes = tokenizer.n;
    if (rc == 0 && tokenizer.failed) rc = calla_fail(&err, CALLA_ERR_MEMORY, "out of memory for the tokenizer");
    if (rc == 0) {
        calla_progress_init(&progress, 2);
        rc = calla_synth(o->out, &opt, &err);
        calla_progress_end(&progress);
    }
    calla_buf_free(&tokenizer);
    if (rc != 0) return cli_fail(&err);
    fprintf(stderr, "%s: a random %s checkpoint, layout %s, seed %llu%s\n", o->out, shape->name, opt.hf ? "hf" : "mlx",
            (unsigned long long)opt.seed, opt.tokenizer_name ? "" : ", without a tokenizer");
    return CLI_OK;
}
