/* model.c - opens a checkpoint: weights, memory plan, backend. */
#include "engine/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu_features.h"
#include "base/err.h"

/* Everything but the backend's own memory. */
static int open_plan(struct calla_model *m, const struct calla_options *opt, bool check_values, struct calla_err *err) {
    if (opt->model_dir == NULL) return calla_fail(err, CALLA_ERR_ARGUMENT, "no folder of a checkpoint given");
    m->ops = calla_backend_named(opt->backend, err);
    if (m->ops == NULL) return err != NULL ? err->code : CALLA_ERR_UNSUPPORTED;
    m->ops->probe(m->device, sizeof m->device);
    const struct calla_weights_options wopt = { .quantise_bits = 4, .check_values = check_values, .log = check_values ? opt->log : NULL, .user = opt->user };
    int rc = calla_weights_open(&m->weights, opt->model_dir, &wopt, err);
    if (rc != 0) return rc;
    rc = calla_plan_make(&m->plan, m->ops, m->weights, opt, err);
    if (rc != 0) return rc;
    calla_plan_print(&m->plan, m->weights, m->ops->name, opt->log, opt->user);
    return 0;
}

static void fill_info(struct calla_model *m) {
    struct calla_cpu_features cpu;
    calla_cpu_features(&cpu);
    const struct calla_weights *w = m->weights;
    const struct calla_plan *p = &m->plan;
    m->n_vocab = w->shape->n_vocab;
    m->n_usable = p->backend.n_usable_ids;
    m->info = (struct calla_model_info){
        .shape_name = w->shape->name, .backend_name = m->ops->name, .device = m->device,
        .n_layers = w->n_layers, .n_vocab = m->n_vocab, .n_usable_ids = m->n_usable, .ctx_tokens = p->backend.ctx_tokens,
        .n_sequences = p->n_sequences, .max_rows = p->backend.max_rows, .n_threads = p->backend.n_threads ? p->backend.n_threads : cpu.n_cores,
        .n_params = w->n_params, .weights_bytes = w->n_bytes, .state_bytes = p->bytes.state_bytes,
        .kv_bytes_per_token = p->bytes.kv_page_bytes / (uint64_t)p->bytes.kv_page_tokens,
        .sampling = w->generation.sampling, .stop_ids = w->generation.stop_ids, .n_stop_ids = w->generation.n_stop_ids };
}

int calla_model_open(struct calla_model **out, const struct calla_options *opt, struct calla_err *err) {
    struct calla_err local = { 0 };
    struct calla_model *m = calloc(1, sizeof *m);
    *out = NULL;
    if (err == NULL) err = &local;
    if (m == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a model");
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        free(m);
        return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a lock");
    }
    int rc = open_plan(m, opt, true, err);
    if (rc == 0) rc = m->ops->open(&m->backend, m->weights, &m->plan.backend, err);
    if (rc != 0) {
        calla_model_close(&m);
        return rc;
    }
    fill_info(m);
    *out = m;
    return 0;
}

void calla_model_close(struct calla_model **model) {
    struct calla_model *m = *model;
    if (m == NULL) return;
    if (m->backend != NULL) m->ops->close(m->backend);
    calla_weights_close(&m->weights);
    pthread_mutex_destroy(&m->lock);
    free(m);
    *model = NULL;
}

int calla_model_plan(struct calla_model_info *out, const struct calla_options *opt, struct calla_err *err) {
    struct calla_err local = { 0 };
    struct calla_model m = { 0 };
    const int rc = open_plan(&m, opt, false, err != NULL ? err : &local);
    if (rc == 0 && out != NULL) {
        fill_info(&m);
        *out = m.info;
        out->stop_ids = NULL;
        out->n_stop_ids = 0;
        out->device = NULL;
    }
    calla_weights_close(&m.weights);
    return rc;
}

void calla_model_info(const struct calla_model *model, struct calla_model_info *out) { *out = model->info; }

int calla_chunk_end(int pos, int n_prompt, int n_most) {
    const int most = n_prompt - pos < n_most ? n_prompt : pos + n_most;
    if (most == n_prompt) return most;
    const int line = most / CALLA_GROUP * CALLA_GROUP;
    return line > pos ? line : most;
}
