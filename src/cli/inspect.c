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
    struct calla_buf plan_text;  /* the engine's memory plan, or why none fits        */
    struct calla_model_info plan;
    bool plan_fits;
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

static void plan_line(void *user, const char *line) {
    struct report *r = user;
    calla_buf_fmt(&r->plan_text, "%s\n", line);
}

/* What `calla run` would allocate.  A plan that does not fit is told, and no
 * fault of the checkpoint. */
static int plan(struct report *r, struct calla_err *err) {
    const struct calla_options opt = { .model_dir = r->o->model, .ctx_tokens = r->o->ctx, .log = plan_line, .user = r };
    const int rc = calla_model_plan(&r->plan, &opt, err);
    r->plan_fits = rc == 0;
    if (rc != 0 && rc != CALLA_ERR_MEMORY) return rc;
    if (rc != 0) plan_line(r, err->message);
    return r->plan_text.failed ? calla_fail(err, CALLA_ERR_MEMORY, "no memory for the report") : 0;
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
    printf("%s", r->plan_text.data);
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
    if (r->plan_fits) {
        struct json_object *p = json_object_new_object();
        add_text(p, "backend", r->plan.backend_name);
        add_int(p, "ctx_tokens", r->plan.ctx_tokens);
        add_int(p, "n_sequences", r->plan.n_sequences);
        add_int(p, "weights_bytes", (int64_t)r->plan.weights_bytes);
        add_int(p, "state_bytes", (int64_t)r->plan.state_bytes);
        add_int(p, "kv_bytes_per_token", (int64_t)r->plan.kv_bytes_per_token);
        json_object_object_add(o, "memory_plan", p);
    } else {
        json_object_object_add(o, "memory_plan", NULL);
    }
    add_text(o, "memory", r->plan_text.data);
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
    if ((rc = plan(&r, &err)) != 0) goto out;
    count_tensors(&r);
    calla_cpu_features(&r.cpu);
    calla_cpu_features_text(&r.cpu, r.cpu_text, sizeof r.cpu_text);
    if (o->json) rc = print_json(&r, &err);
    else print_text(&r);
    if (rc == 0 && (fflush(stdout) != 0 || ferror(stdout))) rc = calla_fail(&err, CALLA_ERR_IO, "stdout: the report could not be written");
out:
    calla_buf_free(&r.plan_text);
    calla_weights_close(&r.w);
    return rc != 0 ? cli_fail(&err) : CLI_OK;
}
