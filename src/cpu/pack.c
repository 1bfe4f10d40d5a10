/* pack.c - from the checkpoint's matrices to blocks of 16 rows x 64 columns.
 *
 * Owns the arena of packed weights.  The matrices are read in groups of some
 * megabytes: while all threads pack one group, the system is asked to read the
 * next, and a finished group's pages are let go, so that a checkpoint nearly as
 * large as the memory is never held twice.  Called by the opening thread. */
#include "cpu/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"

enum {
    GROUP_BYTES = 16 << 20,       /* packed at once: enough work for the threads, little page cache */
    MAX_GROUPS = 8192 / CALLA_GROUP
};

struct job { const struct calla_matrix *src; struct cpu_matrix *dst; };

/* What a walk over the matrices counts, and collects where jobs is given. */
struct walk {
    struct calla_arena *arena;
    struct job *jobs;
    int n_jobs, max_cols;
};

static enum cpu_format format_of(const struct calla_matrix *m) {
    switch (m->format) {
    case CALLA_Q4: return CPU_Q4;
    case CALLA_Q8: return CPU_Q8;
    case CALLA_BF16: return CPU_BF16;
    default: return CPU_F32;
    }
}

static size_t packed_bytes(const struct cpu_matrix *m) {
    return (size_t)cpu_row_blocks(m) * (size_t)(m->n_cols / CALLA_GROUP) * cpu_block_bytes(m->format);
}

static void see(struct walk *k, const struct calla_matrix *src, struct cpu_matrix *dst) {
    *dst = (struct cpu_matrix){ .n_rows = src->n_rows, .n_cols = src->n_cols, .format = format_of(src) };
    dst->data = calla_arena_take(k->arena, packed_bytes(dst));
    if (k->jobs != NULL) k->jobs[k->n_jobs] = (struct job){ src, dst };
    k->n_jobs++;
    if (src->n_cols > k->max_cols) k->max_cols = src->n_cols;
}

static void see_mixer(struct walk *k, const struct calla_weights *w, int l, struct cpu_layer *to) {
    const struct calla_layer_weights *from = &w->layers[l];
    const struct calla_shape *shape = w->shape;
    if (from->is_attention) {
        see(k, &from->attn.q, &to->attn.q);
        see(k, &from->attn.k, &to->attn.k);
        see(k, &from->attn.v, &to->attn.v);
        see(k, &from->attn.o, &to->attn.o);
        to->attn.q_norm = calla_arena_take(k->arena, CALLA_HEAD * sizeof(float));
        to->attn.k_norm = from->attn.k_norm;
        return;
    }
    see(k, &from->gdn.in_qkv, &to->gdn.qkv);
    see(k, &from->gdn.in_z, &to->gdn.z);
    see(k, &from->gdn.in_b, &to->gdn.b);
    see(k, &from->gdn.in_a, &to->gdn.a);
    see(k, &from->gdn.out, &to->gdn.out);
    to->gdn.conv = calla_arena_take(k->arena, CALLA_CONV * (size_t)calla_conv_channels(shape) * sizeof(float));
    to->gdn.neg_exp_a_log = calla_arena_take(k->arena, (size_t)shape->n_value_heads * sizeof(float));
    to->gdn.dt_bias = from->gdn.dt_bias;
    to->gdn.norm = from->gdn.norm;
}

/* Every matrix but the embedding, in the order in which a step reads them.  m NULL: only counts. */
static void walk_all(struct walk *k, const struct calla_weights *w, struct cpu_model *m) {
    const int n_experts = w->shape->n_experts;
    for (int l = 0; l < w->n_layers; l++) {
        const struct calla_layer_weights *from = &w->layers[l];
        const struct calla_moe_weights *moe = &from->moe;
        struct cpu_layer spare_layer, *to = m != NULL ? &m->layers[l] : &spare_layer;
        to->is_attention = from->is_attention;
        to->input_norm = from->input_norm;
        to->post_norm = from->post_norm;
        see_mixer(k, w, l, to);
        see(k, &moe->router, &to->router);
        see(k, &moe->shared_router, &to->shared_router);
        to->experts = m != NULL ? m->experts + (size_t)l * (size_t)(n_experts + 1) : NULL;
        for (int e = 0; e <= n_experts; e++) {
            struct cpu_expert spare, *x = m != NULL ? &to->experts[e] : &spare;
            see(k, e < n_experts ? &moe->gate[e] : &moe->shared_gate, &x->gate);
            see(k, e < n_experts ? &moe->up[e] : &moe->shared_up, &x->up);
            see(k, e < n_experts ? &moe->down[e] : &moe->shared_down, &x->down);
        }
    }
    struct cpu_matrix spare_head;
    see(k, &w->head, m != NULL ? &m->head : &spare_head);
}

size_t cpu_model_bytes(const struct calla_weights *w) {
    struct calla_arena count = { 0 };
    struct walk k = { .arena = &count };
    walk_all(&k, w, NULL);
    return count.used;
}

int cpu_model_max_cols(const struct calla_weights *w) {
    struct calla_arena count = { 0 };
    struct walk k = { .arena = &count };
    walk_all(&k, w, NULL);
    return k.max_cols;
}

/* ---- one block of sixteen rows --------------------------------------------- */

/* Sixteen rows as they are read, before they are interleaved. */
struct sixteen {
    union { uint8_t q[CPU_LANES][MAX_GROUPS * CALLA_GROUP]; float x[CPU_LANES][MAX_GROUPS * CALLA_GROUP]; } u;
    uint16_t scales[CPU_LANES][MAX_GROUPS], biases[CPU_LANES][MAX_GROUPS];
};

static void pack_scales(unsigned char *to, const struct sixteen *s, int r, int g) {
    memcpy(to + 2 * r, &s->scales[r][g], 2);
    memcpy(to + 2 * CPU_LANES + 2 * r, &s->biases[r][g], 2);
}

static void pack_q4(unsigned char *block, const struct sixteen *s, int n, int g) {
    for (int r = 0; r < n; r++) {
        const uint8_t *q = s->u.q[r] + g * CALLA_GROUP;
        for (int k = 0; k < 8; k++) {
            uint32_t low, high;
            memcpy(&low, q + 8 * k, 4);
            memcpy(&high, q + 8 * k + 4, 4);
            low |= high << 4;
            memcpy(block + 64 * k + 4 * r, &low, 4);
        }
        pack_scales(block + 512, s, r, g);
    }
}

static void pack_q8(unsigned char *block, const struct sixteen *s, int n, int g) {
    for (int r = 0; r < n; r++) {
        const uint8_t *q = s->u.q[r] + g * CALLA_GROUP;
        for (int k = 0; k < 16; k++) memcpy(block + 64 * k + 4 * r, q + 4 * k, 4);
        pack_scales(block + 1024, s, r, g);
    }
}

static void pack_bf16(unsigned char *block, const struct sixteen *s, int n, int g) {
    for (int r = 0; r < n; r++) {
        const float *x = s->u.x[r] + g * CALLA_GROUP;
        for (int c = 0; c < CALLA_GROUP; c++) {
            uint32_t bits;
            memcpy(&bits, &x[c], 4);
            const uint16_t top = (uint16_t)(bits >> 16);      /* exact: the row is stored as bf16 */
            memcpy(block + 2 * (c * CPU_LANES + r), &top, 2);
        }
    }
}

static void pack_f32(unsigned char *block, const struct sixteen *s, int n, int g) {
    for (int r = 0; r < n; r++) {
        const float *x = s->u.x[r] + g * CALLA_GROUP;
        for (int c = 0; c < CALLA_GROUP; c++) memcpy(block + 4 * (c * CPU_LANES + r), &x[c], 4);
    }
}

static void pack_row_block(const struct job *j, int i, struct sixteen *s) {
    static void (*const pack[CPU_N_FORMATS])(unsigned char *, const struct sixteen *, int, int) = {
        [CPU_Q4] = pack_q4, [CPU_Q8] = pack_q8, [CPU_BF16] = pack_bf16, [CPU_F32] = pack_f32 };
    const struct calla_matrix *src = j->src;
    const enum cpu_format format = j->dst->format;
    const int n_groups = src->n_cols / CALLA_GROUP, row0 = i * CPU_LANES;
    const int n = src->n_rows - row0 < CPU_LANES ? src->n_rows - row0 : CPU_LANES;
    unsigned char *out = (unsigned char *)j->dst->data + (size_t)i * (size_t)n_groups * cpu_block_bytes(format);

    for (int r = 0; r < n; r++) {
        if (format == CPU_Q4 || format == CPU_Q8)
            calla_matrix_row_quant(src, row0 + r, s->u.q[r], s->scales[r], s->biases[r]);
        else
            calla_matrix_row_f32(src, row0 + r, s->u.x[r]);
    }
    for (int g = 0; g < n_groups; g++) pack[format](out + (size_t)g * cpu_block_bytes(format), s, n, g);
}

/* ---- all of it ------------------------------------------------------------- */

struct group {
    const struct job *jobs;
    int n_jobs, n_row_blocks;     /* of all jobs together                 */
    struct sixteen *scratch;      /* one a thread                         */
};

static void pack_share(void *arg, int t, int n_threads) {
    const struct group *g = arg;
    int begin, end, first = 0;
    calla_share(g->n_row_blocks, t, n_threads, &begin, &end);
    for (int i = 0; i < g->n_jobs && first < end; i++) {
        const int n = cpu_row_blocks(g->jobs[i].dst);
        for (int b = begin > first ? begin - first : 0; b < n && first + b < end; b++)
            pack_row_block(&g->jobs[i], b, &g->scratch[t]);
        first += n;
    }
}

/* The first n jobs that make a group. */
static struct group group_at(const struct job *jobs, int n_jobs, struct sixteen *scratch) {
    struct group g = { .jobs = jobs, .scratch = scratch };
    size_t bytes = 0;
    while (g.n_jobs < n_jobs && (g.n_jobs == 0 || bytes < GROUP_BYTES)) {
        bytes += packed_bytes(jobs[g.n_jobs].dst);
        g.n_row_blocks += cpu_row_blocks(jobs[g.n_jobs++].dst);
    }
    return g;
}

static void will_need(const unsigned char *p, size_t n) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p & ~(page - 1);
    if (p != NULL) (void)posix_madvise((void *)at, n + ((uintptr_t)p - at), POSIX_MADV_WILLNEED);
}

static void read_ahead(const struct group *g) {
    for (int i = 0; i < g->n_jobs; i++) {
        const struct calla_matrix *m = g->jobs[i].src;
        const size_t n = (size_t)m->n_rows * (size_t)m->n_cols;
        switch (m->stored) {
        case CALLA_Q4: will_need(m->data, n / 2); break;
        case CALLA_Q8: will_need(m->data, n); break;
        case CALLA_F32: will_need(m->data, n * 4); break;
        default: will_need(m->data, n * 2); break;
        }
        if (m->stored == CALLA_Q4 || m->stored == CALLA_Q8) {
            will_need(m->scales, n / CALLA_GROUP * 2);
            will_need(m->biases, n / CALLA_GROUP * 2);
        }
    }
}

static void pack_vectors(struct cpu_model *m) {
    const struct calla_shape *shape = m->w->shape;
    const int n_channels = calla_conv_channels(shape);
    for (int l = 0; l < m->n_layers; l++) {
        const struct calla_layer_weights *from = &m->w->layers[l];
        struct cpu_layer *to = &m->layers[l];
        if (to->is_attention) {
            for (int c = 0; c < CALLA_HEAD; c++) to->attn.q_norm[c] = from->attn.q_norm[c] / 16.0f;
            continue;
        }
        for (int j = 0; j < CALLA_CONV; j++)
            for (int c = 0; c < n_channels; c++)
                to->gdn.conv[(size_t)j * (size_t)n_channels + (size_t)c] = from->gdn.conv[CALLA_CONV * c + j];
        for (int h = 0; h < shape->n_value_heads; h++)
            to->gdn.neg_exp_a_log[h] = (float)-exp((double)from->gdn.a_log[h]);
    }
}

static void pack_all(struct cpu_model *m, const struct job *jobs, int n_jobs, struct calla_pool *pool,
                     struct sixteen *scratch, const struct cpu_progress *progress) {
    uint64_t done = 0;
    struct group g = group_at(jobs, n_jobs, scratch);
    read_ahead(&g);
    while (g.n_jobs > 0) {
        jobs += g.n_jobs;
        n_jobs -= g.n_jobs;
        const struct group next = group_at(jobs, n_jobs, scratch);
        read_ahead(&next);
        calla_pool_run(pool, pack_share, &g);
        for (int i = 0; i < g.n_jobs; i++) {
            done += packed_bytes(g.jobs[i].dst);
            calla_matrix_drop_pages(g.jobs[i].src);
        }
        if (progress->call != NULL) progress->call(progress->user, "weights", done, m->arena.n_bytes);
        g = next;
    }
    pack_vectors(m);
    if (progress->call != NULL) progress->call(progress->user, "weights", m->arena.n_bytes, m->arena.n_bytes);
}

int cpu_model_open(struct cpu_model *m, const struct calla_weights *w, struct calla_pool *pool,
                   const struct cpu_progress *progress, struct calla_err *err) {
    const size_t n_layers = (size_t)w->n_layers, per_layer = (size_t)w->shape->n_experts + 1;
    const int n_threads = calla_pool_size(pool);
    struct calla_arena count = { 0 };
    struct walk k = { .arena = &count };
    struct sixteen *scratch = NULL;
    int rc = 0;

    walk_all(&k, w, NULL);
    *m = (struct cpu_model){ .w = w, .n_layers = w->n_layers, .n_attn = cpu_attn_idx(w->n_layers),
                             .n_gdn = cpu_gdn_idx(w->n_layers) };
    if (k.max_cols > MAX_GROUPS * CALLA_GROUP)
        return calla_fail(err, CALLA_ERR_UNSUPPORTED, "a matrix has rows of %d values; at most %d are packed",
                          k.max_cols, MAX_GROUPS * CALLA_GROUP);
    m->layers = calloc(n_layers, sizeof *m->layers);
    m->experts = calloc(n_layers * per_layer, sizeof *m->experts);
    scratch = malloc((size_t)n_threads * sizeof *scratch);
    k.jobs = malloc((size_t)k.n_jobs * sizeof *k.jobs);
    if (m->layers == NULL || m->experts == NULL || scratch == NULL || k.jobs == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for the table of %d matrices", k.n_jobs);
        goto out;
    }
    rc = calla_arena_open(&m->arena, count.used, err);
    if (rc != 0) goto out;
    k.arena = &m->arena;
    k.n_jobs = 0;
    walk_all(&k, w, m);
    pack_all(m, k.jobs, k.n_jobs, pool, scratch, progress);
out:
    free(k.jobs);
    free(scratch);
    if (rc != 0) cpu_model_close(m);
    return rc;
}

void cpu_model_close(struct cpu_model *m) {
    if (m->arena.base != NULL) calla_arena_close(&m->arena);
    free(m->experts);
    free(m->layers);
    *m = (struct cpu_model){ 0 };
}
