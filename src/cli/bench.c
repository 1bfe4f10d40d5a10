/* bench.c - calla bench: tokens a second under llama-bench's names. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cpu_features.h"
#include "base/err.h"
#include "base/json.h"
#include "cli/common.h"

enum { WARM_TOKENS = 64 };

struct result { struct calla_bench_test test; double avg_ts, stddev_ts, experts; };

static int n_of(const int *list) {
    int n = 0;
    while (list[n] >= 0) n++;
    return n;
}

static int most_of(const int *list) {
    int most = 0;
    for (int i = 0; list[i] >= 0; i++)
        if (list[i] > most) most = list[i];
    return most;
}

static void name_test(char *out, size_t cap, const struct calla_bench_test *t) {
    int n = t->n_prompt > 0 ? snprintf(out, cap, "pp%d", t->n_prompt) : snprintf(out, cap, "tg%d", t->n_gen);
    if (t->n_depth > 0) snprintf(out + n, cap - (size_t)n, " @ d%d", t->n_depth);
}

static int run_test(struct cli_model *m, struct result *r, int n_reps, uint64_t seed, struct calla_err *err) {
    double sum = 0, squares = 0, experts = 0;
    for (int i = 0; i < n_reps; i++) {
        struct calla_bench_result one;
        const int rc = calla_bench_run(m->model, &r->test, seed + (uint64_t)i, &one, err);
        if (rc != 0) return rc;
        const double ts = (double)r->test.n_rows * (r->test.n_prompt > 0 ? r->test.n_prompt / one.prompt_s : r->test.n_gen / one.gen_s);
        sum += ts;
        squares += ts * ts;
        experts += one.experts_per_layer;
    }
    r->avg_ts = sum / n_reps;
    r->experts = experts / n_reps;
    const double variance = n_reps > 1 ? (squares - sum * sum / n_reps) / (n_reps - 1) : 0;
    r->stddev_ts = variance > 0 ? sqrt(variance) : 0;
    return 0;
}

struct machine { struct calla_cpu_features cpu; char features[128]; };

static void print_jsonl(const struct cli_model *m, const struct machine *c, const struct result *r, int n_reps) {
    struct calla_buf b = { 0 };
    char test[64];
    name_test(test, sizeof test, &r->test);
    calla_buf_fmt(&b, "{\"test\": \"%s\", \"n_prompt\": %d, \"n_gen\": %d, \"n_depth\": %d, \"rows\": %d, \"avg_ts\": ", test,
                  r->test.n_prompt, r->test.n_gen, r->test.n_depth, r->test.n_rows);
    cli_print_number(&b, r->avg_ts, 9);
    calla_buf_str(&b, ", \"stddev_ts\": ");
    cli_print_number(&b, r->stddev_ts, 9);
    calla_buf_str(&b, ", \"experts_per_layer\": ");
    cli_print_number(&b, r->experts, 6);
    calla_buf_fmt(&b, ", \"reps\": %d, \"model\": \"%s\", \"n_layers\": %d, \"size\": %llu, \"params\": %llu, \"backend\": \"%s\", \"device\": ", n_reps,
                  m->info.shape_name, m->info.n_layers, (unsigned long long)m->info.weights_bytes, (unsigned long long)m->info.n_params,
                  m->info.backend_name);
    calla_json_print_string(&b, m->info.device, strlen(m->info.device));
    calla_buf_fmt(&b, ", \"n_threads\": %d, \"machine\": {\"cpu\": ", m->info.n_threads);
    calla_json_print_string(&b, c->cpu.model, strlen(c->cpu.model));
    calla_buf_fmt(&b, ", \"cores\": %d, \"features\": ", c->cpu.n_cores);
    calla_json_print_string(&b, c->features, strlen(c->features));
    calla_buf_fmt(&b, "}, \"version\": \"%s\"}", calla_version());
    if (!b.failed) puts(b.data);
    calla_buf_free(&b);
}

static void print_head(const struct machine *c) {
    printf("%s, %d cores: %s\n\n", c->cpu.model[0] ? c->cpu.model : "unknown processor", c->cpu.n_cores, c->features);
    printf("| %-18s | %10s | %10s | %-10s | %7s | %-16s | %4s | %17s | %13s |\n", "model", "size", "params", "backend", "threads",
           "test", "rows", "t/s", "experts/layer");
    printf("| %-18s | %10s | %10s | %-10s | %7s | %-16s | %4s | %17s | %13s |\n", "------------------", "---------:", "---------:",
           "----------", "------:", "----------------", "---:", "----------------:", "------------:");
}

static void print_markdown(const struct cli_model *m, const struct result *r) {
    char test[64], model[64], ts[64], size[24];
    const double mib = (double)m->info.weights_bytes / 1048576.0;
    name_test(test, sizeof test, &r->test);
    snprintf(model, sizeof model, "%s, %d layers", m->info.shape_name, m->info.n_layers);
    if (mib < 1024) snprintf(size, sizeof size, "%.2f MiB", mib);
    else snprintf(size, sizeof size, "%.2f GiB", mib / 1024);
    snprintf(ts, sizeof ts, "%.2f ± %.2f", r->avg_ts, r->stddev_ts);
    printf("| %-18s | %10s | %8.2f B | %-10s | %7d | %-16s | %4d | %*s | %13.1f |\n", model,
           size, (double)m->info.n_params / 1e9, m->info.backend_name, m->info.n_threads, test,
           r->test.n_rows, 18, ts, r->experts);      /* 18: ± is two bytes */
}

static int run_all(struct cli_model *m, const struct cli_options *o, const int *prompts, const int *gens, const int *depths,
                   const int *rows, struct calla_err *err) {
    const uint64_t seed = o->seed >= 0 ? (uint64_t)o->seed : 1;
    struct machine machine = { 0 };
    struct calla_bench_result warm;
    calla_cpu_features(&machine.cpu);
    calla_cpu_features_text(&machine.cpu, machine.features, sizeof machine.features);
    const int n_warm = most_of(prompts) < WARM_TOKENS ? most_of(prompts) : WARM_TOKENS;
    int rc = calla_bench_run(m->model, &(struct calla_bench_test){ .n_prompt = n_warm, .n_gen = most_of(gens) > 0, .n_rows = 1 }, seed, &warm, err);
    if (rc == 0 && !o->jsonl) print_head(&machine);
    for (int b = 0; rows[b] >= 0; b++)
        for (int d = 0; depths[d] >= 0; d++)
            for (int i = 0; rc == 0 && i < n_of(prompts) + n_of(gens); i++) {
                const bool is_prompt = i < n_of(prompts);
                struct result r = { .test = { .n_prompt = is_prompt ? prompts[i] : 0, .n_gen = is_prompt ? 0 : gens[i - n_of(prompts)],
                                              .n_depth = depths[d], .n_rows = rows[b] } };
                if (r.test.n_prompt + r.test.n_gen == 0) continue;
                rc = run_test(m, &r, o->reps, seed, err);
                if (rc != 0) break;
                if (o->jsonl) print_jsonl(m, &machine, &r, o->reps);
                else print_markdown(m, &r);
                fflush(stdout);
            }
    return rc;
}

int cmd_bench(const struct cli_options *o) {
    static const int p512[] = { 512, -1 }, n64[] = { 64, -1 }, d0[] = { 0, -1 }, b1[] = { 1, -1 };
    const int *prompts = o->n_prompt[0] >= 0 ? o->n_prompt : p512, *gens = o->n_gen[0] >= 0 ? o->n_gen : n64;
    const int *depths = o->depth[0] >= 0 ? o->depth : d0, *rows = o->n_rows[0] >= 0 ? o->n_rows : b1;
    struct cli_options opened = *o;
    struct cli_model m;
    struct calla_err err = { 0 };
    const int longest = most_of(depths) + (most_of(prompts) > most_of(gens) ? most_of(prompts) : most_of(gens));
    if (opened.ctx == 0) opened.ctx = longest < 64 ? 128 : (longest + 63) / 64 * 64;
    if (opened.ctx > 262144) opened.ctx = 262144;
    int rc = cli_model_open(&m, &opened, &(struct cli_model_options){ .n_sequences = most_of(rows), .no_cache = true }, &err);
    if (rc == 0) rc = run_all(&m, o, prompts, gens, depths, rows, &err);
    cli_model_close(&m);
    return rc == 0 ? CLI_OK : cli_fail(&err);
}
