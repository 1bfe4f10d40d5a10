/* inspect.c - calla inspect: what a checkpoint holds, whether it is sound, and
 * what it needs.  Reads every scale; runs nothing. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu_features.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/cli.h"
#include "model/weights_files.h"
#include "text/tokenizer.h"

enum kind { EMBEDDING, HEAD, ATTENTION, RECURRENT, ROUTER, EXPERTS, SHARED, MTP, N_KINDS };
static const char *const kind_names[N_KINDS] = { "embedding", "head", "attention", "recurrent", "router", "experts", "shared expert", "MTP head" };
static const char *const format_names[] = { [CALLA_F32] = "f32", [CALLA_F16] = "f16", [CALLA_BF16] = "bf16", [CALLA_Q4] = "4 bit", [CALLA_Q8] = "8 bit" };
enum { N_FORMATS = 5 };

struct tally { uint64_t n_matrices, n_params, n_bytes; };

struct report {
    const struct cli_options *o;
    struct calla_weights *w;
    struct tally matrices[N_KINDS][N_FORMATS];
    uint64_t n_tensors, vector_bytes, file_bytes, n_vision, vision_bytes, n_unknown;
    int n_token_ids;             /* -1: no tokenizer                                  */
    uint64_t load_bytes;         /* of the weights as they are run                    */
    uint64_t state_bytes, kv_bytes_per_token, free_bytes;   /* free_bytes 0: unknown  */
    int64_t fit_tokens;          /* of one conversation beside the weights; -1: unknown */
    struct calla_cpu_features cpu;
    char cpu_text[128];
};

static void log_line(void *user, const char *line) {
    (void)user;
    fprintf(stderr, "calla: %s\n", line);
}

/* ---- gathering ------------------------------------------------------------ */

static enum kind kind_of(const struct calla_weights *w, const struct calla_matrix *m) {
    static const struct { const char *part; enum kind kind; } parts[] = {
        { "mtp.", MTP }, { ".self_attn.", ATTENTION }, { ".linear_attn.", RECURRENT }, { ".shared_expert", SHARED },
        { ".mlp.gate.", ROUTER }, { ".mlp.", EXPERTS } };
    if (m == &w->embed) return EMBEDDING;
    if (m == &w->head) return HEAD;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(m->name, parts[i].part) != NULL) return parts[i].kind;
    return EXPERTS;
}

static void count_matrix(void *user, const struct calla_matrix *m) {
    struct report *r = user;
    struct tally *t = &r->matrices[kind_of(r->w, m)][m->format];
    t->n_matrices++;
    t->n_params += (uint64_t)m->n_rows * (uint64_t)m->n_cols;
    t->n_bytes += calla_matrix_bytes(m);
}

static void count_tensors(struct report *r) {
    const struct calla_weights_files *f = r->w->files;
    uint64_t used = 0, matrices = 0;
    for (size_t i = 0; i < f->n_entries; i++) {
        const struct calla_entry *e = &f->entries[i];
        const uint64_t n = e->tensor->end - e->tensor->begin;
        r->n_tensors++;
        r->file_bytes += n;
        if (e->used) used += n;
        else if (e->vision) r->n_vision++, r->vision_bytes += n;
        else r->n_unknown++;
    }
    calla_weights_each(r->w, count_matrix, r);
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < N_FORMATS; i++) matrices += r->matrices[k][i].n_bytes;
    r->vector_bytes = used - matrices;
}

/* Memory that a new program may take, as the system estimates it. */
static uint64_t free_memory(void) {
    uint64_t bytes = 0;
    char line[256];
    FILE *f = fopen("/proc/meminfo", "r");
    if (f == NULL) return 0;
    while (fgets(line, sizeof line, f) != NULL) {
        unsigned long long kib;
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) bytes = (uint64_t)kib * 1024;
    }
    fclose(f);
    return bytes;
}

/* Per conversation: f32 recurrent states and convolution windows, bf16 keys and values. */
static void plan(struct report *r) {
    const struct calla_shape *s = r->w->shape;
    const uint64_t n_attn = (uint64_t)(r->w->n_layers / CALLA_INTERVAL), n_gdn = (uint64_t)r->w->n_layers - n_attn;
    r->state_bytes = n_gdn * 4 * ((uint64_t)s->n_value_heads * CALLA_RECUR * CALLA_RECUR + (CALLA_CONV - 1) * (uint64_t)calla_conv_channels(s));
    r->kv_bytes_per_token = n_attn * 2 * (uint64_t)calla_kv_width(s) * 2;
    r->free_bytes = free_memory();
    r->fit_tokens = -1;
    if (r->free_bytes == 0) return;
    const uint64_t fixed = r->load_bytes + r->state_bytes;
    const uint64_t n = r->free_bytes > fixed ? (r->free_bytes - fixed) / r->kv_bytes_per_token : 0;
    r->fit_tokens = n > CALLA_MAX_CTX ? CALLA_MAX_CTX : (int64_t)n;
}

static int check_tokenizer(struct report *r, const char *dir, struct calla_err *err) {
    static const char *const names[] = { "tokenizer.json", "tokenizer.json.zst" };
    bool there = false;
    r->n_token_ids = -1;
    for (int i = 0; i < 2; i++) {
        char path[4096];
        char link[1];
        const int n = snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        there |= n > 0 && (size_t)n < sizeof path && (access(path, F_OK) == 0 || readlink(path, link, 1) >= 0);
    }
    if (!there) return 0;
    struct calla_tokenizer *t;
    const int rc = calla_tokenizer_open(&t, dir, err);
    if (rc != 0) return rc;
    r->n_token_ids = calla_tokenizer_n_ids(t);
    calla_tokenizer_close(&t);
    if (r->n_token_ids > r->w->shape->n_vocab)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: tokenizer.json knows ids up to %d, the embedding has %d rows", dir, r->n_token_ids - 1,
                          r->w->shape->n_vocab);
    const struct calla_generation *g = &r->w->generation;
    for (int i = 0; i < g->n_stop_ids; i++)
        if (g->stop_ids[i] >= r->n_token_ids)   /* never sampled: no answer would end */
            return calla_fail(err, CALLA_ERR_FORMAT, "%s: eos_token_id %d, but tokenizer.json knows ids up to %d only", dir, g->stop_ids[i],
                              r->n_token_ids - 1);
    return 0;
}

/* A bf16 checkpoint is run with 4 bits: what it takes then. */
static int loaded_bytes(struct report *r, const char *dir, struct calla_err *err) {
    struct calla_weights *w;
    const struct calla_weights_options opt = { .quantise_bits = 4 };
    const int rc = calla_weights_open(&w, dir, &opt, err);
    if (rc != 0) return rc;
    r->load_bytes = w->n_bytes;
    calla_weights_close(&w);
    return 0;
}

/* ---- printing ------------------------------------------------------------- */

static const char *size_text(uint64_t bytes, char out[32]) {
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
    double v = (double)bytes;
    int u = 0;
    while (u < 4 && v >= 1000) {
        v /= 1000;
        u++;
    }
    snprintf(out, 32, u ? "%.2f %s" : "%.0f %s", v, units[u]);
    return out;
}

static void print_matrices(const struct report *r) {
    char size[32];
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < N_FORMATS; i++) {
            const struct tally *t = &r->matrices[k][i];
            if (t->n_matrices == 0) continue;
            printf("  %-14s %-6s %7" PRIu64 " matrices %15" PRIu64 " weights %12s\n", kind_names[k], format_names[i], t->n_matrices, t->n_params,
                   size_text(t->n_bytes, size));
        }
    printf("  %-14s %-6s %50s\n", "norms and such", "", size_text(r->vector_bytes, size));
    if (r->w->mtp == NULL) printf("  no MTP head\n");
    if (r->n_vision > 0) printf("  vision, skipped: %" PRIu64 " tensors, %s\n", r->n_vision, size_text(r->vision_bytes, size));
    if (r->n_unknown > 0) printf("  not known, not read: %" PRIu64 " tensors\n", r->n_unknown);
}

static void print_generation(const struct calla_generation *g) {
    const struct calla_sampling *s = &g->sampling;
    printf("sampling    ");
    if (s->temperature <= 0) printf("greedy");
    else printf("temperature %g, top_k %d, top_p %g, min_p %g", (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p);
    printf(", penalties: presence %g, frequency %g, repetition %g\nstops at    ", (double)s->presence_penalty, (double)s->frequency_penalty,
           (double)s->repetition_penalty);
    for (int i = 0; i < g->n_stop_ids; i++) printf("%s%d", i ? ", " : "", g->stop_ids[i]);
    printf("%s\n", g->n_stop_ids ? "" : "no id: answers end at their limit only");
}

static void print_plan(const struct report *r) {
    char a[32], b[32], c[32];
    const uint64_t ctx = r->o->ctx > 0 ? (uint64_t)r->o->ctx : CALLA_MAX_CTX;
    const uint64_t need = r->load_bytes + r->state_bytes + ctx * r->kv_bytes_per_token;
    printf("memory      weights %s, a conversation %s and %" PRIu64 " bytes a token\n", size_text(r->load_bytes, a), size_text(r->state_bytes, b),
           r->kv_bytes_per_token);
    printf("            one of %" PRIu64 " tokens: %s", ctx, size_text(need, c));
    if (r->free_bytes == 0) printf("; free memory unknown\n");
    else printf(" of %s that are free: %s; %" PRId64 " tokens fit\n", size_text(r->free_bytes, a), need <= r->free_bytes ? "fits" : "does not fit", r->fit_tokens);
}

static void print_text(const struct report *r) {
    const struct calla_weights *w = r->w;
    const struct calla_shape *s = w->shape;
    char size[32];
    printf("checkpoint  %s\n", r->o->model);
    printf("layout      %s\n", strcmp(w->layout, "mlx") == 0 ? "MLX affine, groups of 64" : "Hugging Face");
    printf("shape       %s: %d of %d layers (%d recurrent, %d attention), hidden %d, vocabulary %d, %d experts of width %d\n", s->name, w->n_layers,
           s->n_layers, w->n_layers - w->n_layers / CALLA_INTERVAL, w->n_layers / CALLA_INTERVAL, s->n_hidden, s->n_vocab, s->n_experts,
           s->n_expert_width);
    printf("files       %d with %" PRIu64 " tensors, %s\n", w->files->n_shards, r->n_tensors, size_text(r->file_bytes, size));
    printf("weights     %" PRIu64 " without MTP, %s\n", w->n_params, size_text(w->n_bytes, size));
    print_matrices(r);
    if (r->n_token_ids < 0) printf("tokenizer   none: ids only\n");
    else printf("tokenizer   ids 0 to %d\n", r->n_token_ids - 1);
    print_generation(&w->generation);
    printf("cpu         %s, %d cores: %s\n", r->cpu.model, r->cpu.n_cores, r->cpu_text);
    print_plan(r);
    printf("hash        %016" PRIx64 "\nsound       every shape, range, scale, norm and name is as it must be\n", w->content_hash);
}

static void add_int(struct json_object *o, const char *key, int64_t v) { json_object_object_add(o, key, json_object_new_int64(v)); }
static void add_text(struct json_object *o, const char *key, const char *v) { json_object_object_add(o, key, json_object_new_string(v)); }
/* A float as its shortest decimal that reads back as the same float. */
static void add_float(struct json_object *o, const char *key, float v) {
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    json_object_object_add(o, key, json_object_new_double(strtod(text, NULL)));
}

static struct json_object *json_matrices(const struct report *r) {
    struct json_object *list = json_object_new_array();
    for (int k = 0; k < N_KINDS; k++)
        for (int i = 0; i < N_FORMATS; i++) {
            const struct tally *t = &r->matrices[k][i];
            if (t->n_matrices == 0) continue;
            struct json_object *o = json_object_new_object();
            add_text(o, "kind", kind_names[k]);
            add_text(o, "format", format_names[i]);
            add_int(o, "matrices", (int64_t)t->n_matrices);
            add_int(o, "weights", (int64_t)t->n_params);
            add_int(o, "bytes", (int64_t)t->n_bytes);
            json_object_array_add(list, o);
        }
    return list;
}

static struct json_object *json_generation(const struct calla_generation *g) {
    struct json_object *o = json_object_new_object(), *stop = json_object_new_array();
    const struct calla_sampling *s = &g->sampling;
    add_float(o, "temperature", s->temperature);
    add_int(o, "top_k", s->top_k);
    add_float(o, "top_p", s->top_p);
    add_float(o, "min_p", s->min_p);
    add_float(o, "presence_penalty", s->presence_penalty);
    add_float(o, "frequency_penalty", s->frequency_penalty);
    add_float(o, "repetition_penalty", s->repetition_penalty);
    for (int i = 0; i < g->n_stop_ids; i++) json_object_array_add(stop, json_object_new_int(g->stop_ids[i]));
    json_object_object_add(o, "stop_ids", stop);
    return o;
}

static int print_json(const struct report *r, struct calla_err *err) {
    const struct calla_weights *w = r->w;
    struct json_object *o = json_object_new_object();
    struct calla_buf out = { 0 };
    char hash[20];
    snprintf(hash, sizeof hash, "%016" PRIx64, w->content_hash);
    add_text(o, "model", r->o->model);
    add_text(o, "layout", w->layout);
    add_text(o, "shape", w->shape->name);
    add_int(o, "layers", w->n_layers);
    add_int(o, "vocabulary", w->shape->n_vocab);
    add_int(o, "shards", w->files->n_shards);
    add_int(o, "tensors", (int64_t)r->n_tensors);
    add_int(o, "tensor_bytes", (int64_t)r->file_bytes);
    add_int(o, "weights", (int64_t)w->n_params);
    add_int(o, "weights_bytes", (int64_t)w->n_bytes);
    json_object_object_add(o, "matrices", json_matrices(r));
    add_int(o, "vector_bytes", (int64_t)r->vector_bytes);
    json_object_object_add(o, "mtp", json_object_new_boolean(w->mtp != NULL));
    add_int(o, "vision_tensors_skipped", (int64_t)r->n_vision);
    add_int(o, "unknown_tensors", (int64_t)r->n_unknown);
    json_object_object_add(o, "tokenizer_ids", r->n_token_ids < 0 ? NULL : json_object_new_int(r->n_token_ids));
    json_object_object_add(o, "generation", json_generation(&w->generation));
    add_text(o, "cpu", r->cpu.model);
    add_text(o, "cpu_features", r->cpu_text);
    add_int(o, "load_bytes", (int64_t)r->load_bytes);
    add_int(o, "state_bytes", (int64_t)r->state_bytes);
    add_int(o, "kv_bytes_per_token", (int64_t)r->kv_bytes_per_token);
    json_object_object_add(o, "free_bytes", r->free_bytes ? json_object_new_int64((int64_t)r->free_bytes) : NULL);
    json_object_object_add(o, "fit_tokens", r->fit_tokens < 0 ? NULL : json_object_new_int64(r->fit_tokens));
    add_text(o, "hash", hash);
    calla_json_print(&out, o);
    calla_buf_char(&out, '\n');
    const int rc = out.failed ? calla_fail(err, CALLA_ERR_MEMORY, "no memory to print the report") : 0;
    if (rc == 0) fwrite(out.data, 1, out.n, stdout);
    calla_buf_free(&out);
    json_object_put(o);
    return rc;
}

int cmd_inspect(const struct cli_options *o) {
    struct calla_err err = { 0 };
    const struct calla_weights_options opt = { .check_values = true, .log = log_line };
    struct report r = { .o = o };
    if (o->model == NULL) {
        fprintf(stderr, "calla: inspect: --model DIR is needed\n");
        return CLI_USAGE;
    }
    int rc = calla_weights_open(&r.w, o->model, &opt, &err);
    if (rc != 0) return cli_fail(&err);
    if ((rc = check_tokenizer(&r, o->model, &err)) != 0) goto out;
    r.load_bytes = r.w->n_bytes;
    if (strcmp(r.w->layout, "hf") == 0 && (rc = loaded_bytes(&r, o->model, &err)) != 0) goto out;
    count_tensors(&r);
    plan(&r);
    calla_cpu_features(&r.cpu);
    calla_cpu_features_text(&r.cpu, r.cpu_text, sizeof r.cpu_text);
    if (o->json) rc = print_json(&r, &err);
    else print_text(&r);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout))) rc = calla_fail(&err, CALLA_ERR_IO, "stdout: the report could not be written");
out:
    calla_weights_close(&r.w);
    return rc != 0 ? cli_fail(&err) : CLI_OK;
}
