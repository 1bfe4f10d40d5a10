/* plan.c - the memory plan.
 *
 * Weights, scratch and the running states are needed; what is left is shared
 * out: three quarters to pages of keys and values, the rest to parked states
 * (63 MB each with the full shape, whatever their length). */
#include "engine/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

enum {
    DEFAULT_ROWS = 512, DEFAULT_SEQUENCES = 8, MOST_KEPT = 64,
    POOL_TOKENS = 2 * CALLA_MAX_CTX,     /* a default pool does not grow past this   */
    LOGIT_ROWS = 64                      /* of one step, beside the decoding rows    */
};

/* ---- what is free ------------------------------------------------------------ */

/* The number after `key` in a small text file, or with key "" the file's first
 * word; false for "max" and for what is not there. */
static bool read_number(const char *path, const char *key, uint64_t *out) {
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    while (!found && fgets(line, sizeof line, f) != NULL) {
        const size_t n = strlen(key);
        if (strncmp(line, key, n) != 0) continue;
        char *end;
        errno = 0;
        *out = strtoull(line + n, &end, 10);
        found = end != line + n && errno == 0;
        if (n == 0) break;
    }
    fclose(f);
    return found;
}

static uint64_t control_group_free(void) {
    uint64_t most, used, cache = 0, part;
    if (!read_number("/sys/fs/cgroup/memory.max", "", &most) || !read_number("/sys/fs/cgroup/memory.current", "", &used))
        return UINT64_MAX;
    if (read_number("/sys/fs/cgroup/memory.stat", "inactive_file ", &part)) cache += part;
    if (read_number("/sys/fs/cgroup/memory.stat", "active_file ", &part)) cache += part;
    used = used > cache ? used - cache : 0;
    return most > used ? most - used : 0;
}

uint64_t calla_memory_free(void) {
    uint64_t free_bytes, kib;
    if (read_number("/proc/meminfo", "MemAvailable:", &kib)) {
        free_bytes = kib * 1024;
    } else {                             /* elsewhere: three quarters of what the machine has */
        const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
        free_bytes = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes / 4 * 3 : UINT64_MAX;
    }
    const uint64_t group = control_group_free();
    return group < free_bytes ? group : free_bytes;
}

/* ---- the plan ------------------------------------------------------------------ */

static void ask(struct calla_plan *p, const struct calla_backend_ops *ops, const struct calla_weights *w,
                int ctx_tokens, size_t kv_tokens) {
    p->backend.ctx_tokens = ctx_tokens;
    p->backend.kv_tokens = kv_tokens;
    p->backend.n_states = p->n_sequences + p->n_kept + 1;    /* one spare to load a file into */
    ops->plan(&p->bytes, w, &p->backend);
    const uint64_t page = (uint64_t)p->bytes.kv_page_tokens;
    p->states_bytes = p->bytes.state_bytes * (uint64_t)p->backend.n_states;
    p->kv_bytes = (kv_tokens + page - 1) / page * p->bytes.kv_page_bytes;
    p->total_bytes = p->bytes.weights_bytes + p->bytes.scratch_bytes + p->states_bytes + p->kv_bytes;
}

/* A pool that holds one whole sequence and a page for each of the others. */
static size_t least_pool(const struct calla_plan *p, int ctx_tokens) {
    return (size_t)ctx_tokens + 64 * (size_t)p->n_sequences;
}

static bool fits(struct calla_plan *p, const struct calla_backend_ops *ops, const struct calla_weights *w, int ctx_tokens) {
    ask(p, ops, w, ctx_tokens, least_pool(p, ctx_tokens));
    return p->total_bytes <= p->limit_bytes;
}

/* The largest context on the grid, and within three quarters of what is free
 * beside what is fixed; 0 when not even one line of the grid fits. */
static int largest_context(struct calla_plan *p, const struct calla_backend_ops *ops, const struct calla_weights *w) {
    const uint64_t limit = p->limit_bytes;
    ask(p, ops, w, CALLA_GROUP, least_pool(p, CALLA_GROUP));
    const uint64_t fixed = p->total_bytes;
    if (fixed > limit) return 0;
    p->limit_bytes = fixed + (limit - fixed) / 4 * 3;
    int lo = 1, hi = CALLA_MAX_CTX / CALLA_GROUP;
    while (lo < hi) {
        const int mid = lo + (hi - lo + 1) / 2;
        if (fits(p, ops, w, mid * CALLA_GROUP)) lo = mid;
        else hi = mid - 1;
    }
    p->limit_bytes = limit;
    return lo * CALLA_GROUP;
}

static int too_large(struct calla_plan *p, const struct calla_backend_ops *ops, const struct calla_weights *w,
                     int ctx_tokens, struct calla_err *err) {
    ask(p, ops, w, ctx_tokens, least_pool(p, ctx_tokens));
    const struct calla_plan want = *p;
    const int most = largest_context(p, ops, w);
    char way[96];
    if (most > 0 && most < ctx_tokens) snprintf(way, sizeof way, "a context of %d tokens fits (--ctx)", most);
    else snprintf(way, sizeof way, "run fewer sequences or rows, or free memory");
    return calla_fail(err, CALLA_ERR_MEMORY,
                      "the plan needs %.2f GB and %.2f GB are free: weights %.2f, scratch %.2f, %d states %.2f, "
                      "keys and values of %d tokens %.2f; %s",
                      (double)want.total_bytes / 1e9, (double)want.limit_bytes / 1e9, (double)want.bytes.weights_bytes / 1e9,
                      (double)want.bytes.scratch_bytes / 1e9, want.backend.n_states, (double)want.states_bytes / 1e9,
                      ctx_tokens, (double)want.kv_bytes / 1e9, way);
}

/* Shares out what is left between parked states and pages. */
static void share_rest(struct calla_plan *p, const struct calla_backend_ops *ops, const struct calla_weights *w,
                       const struct calla_options *opt, int ctx_tokens) {
    const uint64_t left = p->limit_bytes - p->total_bytes;
    const uint64_t state = p->bytes.state_bytes ? p->bytes.state_bytes : 1;
    uint64_t cache = opt->cache_bytes ? opt->cache_bytes : left / 4 * 3;
    if (cache > left) cache = left;
    p->n_kept = cache / state > MOST_KEPT ? MOST_KEPT : (int)(cache / state);

    const uint64_t page = p->bytes.kv_page_bytes ? p->bytes.kv_page_bytes : 1;
    const uint64_t spare_pages = (left - (uint64_t)p->n_kept * state) / page;
    uint64_t pool = (uint64_t)ctx_tokens * (uint64_t)(p->n_sequences + (p->n_kept < 4 ? p->n_kept : 4));   /* kept ones share pages */
    if (pool > POOL_TOKENS) pool = POOL_TOKENS;
    const uint64_t least = least_pool(p, ctx_tokens), most = least + spare_pages * (uint64_t)p->bytes.kv_page_tokens;
    if (pool < least) pool = least;
    ask(p, ops, w, ctx_tokens, (size_t)(pool < most ? pool : most));
}

int calla_plan_make(struct calla_plan *out, const struct calla_backend_ops *ops, const struct calla_weights *w,
                    const struct calla_options *opt, struct calla_err *err) {
    struct calla_plan p = { .n_sequences = opt->n_sequences ? opt->n_sequences : DEFAULT_SEQUENCES };
    const int n_vocab = w->shape->n_vocab;
    if (opt->n_sequences < 0 || opt->n_sequences > 1024 || opt->max_rows < 0 || opt->max_rows > 16384 ||
        opt->ctx_tokens < 0 || opt->ctx_tokens > CALLA_MAX_CTX || opt->n_threads < 0 || opt->n_threads > 1024)
        return calla_fail(err, CALLA_ERR_ARGUMENT,
                          "sequences %d (at most 1024), rows %d (at most 16384), context %d (at most %d) or threads %d (at most 1024) "
                          "out of range", opt->n_sequences, opt->max_rows, opt->ctx_tokens, CALLA_MAX_CTX, opt->n_threads);
    if (opt->n_usable_ids < 0 || opt->n_usable_ids > n_vocab)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%d usable ids, but the checkpoint has %d rows", opt->n_usable_ids, n_vocab);
    p.backend = (struct calla_backend_options){
        .n_threads = opt->n_threads, .max_rows = opt->max_rows ? opt->max_rows : DEFAULT_ROWS,
        .n_usable_ids = opt->n_usable_ids ? opt->n_usable_ids : n_vocab, .progress = opt->progress, .user = opt->user };
    p.limit_bytes = opt->memory_limit_bytes;
    if (p.limit_bytes == 0) {            /* leave the rest of the machine room to breathe */
        const uint64_t free_bytes = calla_memory_free();
        p.limit_bytes = free_bytes - free_bytes / 32;
    }

    int ctx;
    for (;;) {
        if (p.backend.max_rows < p.n_sequences) p.backend.max_rows = p.n_sequences;
        p.backend.max_logits = p.n_sequences + LOGIT_ROWS;
        if (p.backend.max_logits > p.backend.max_rows) p.backend.max_logits = p.backend.max_rows;
        ctx = opt->ctx_tokens ? opt->ctx_tokens : largest_context(&p, ops, w);
        if (ctx > 0 && fits(&p, ops, w, ctx)) break;
        if (opt->n_sequences != 0 || p.n_sequences == 1) return too_large(&p, ops, w, ctx ? ctx : CALLA_GROUP, err);
        p.n_sequences /= 2;              /* the number was ours to choose            */
    }
    share_rest(&p, ops, w, opt, ctx);
    *out = p;
    return 0;
}

void calla_plan_print(const struct calla_plan *p, const struct calla_weights *w, const char *backend,
                      void (*log)(void *user, const char *line), void *user) {
    char line[256];
    if (log == NULL) return;
#define SAY(...) (snprintf(line, sizeof line, __VA_ARGS__), log(user, line))
    SAY("%s, %d layers, layout %s, backend %s: memory plan", w->shape->name, w->n_layers, w->layout, backend);
    SAY("  weights          %9.1f MB (the checkpoint's own %.1f MB stay in reclaimable file pages)",
        (double)p->bytes.weights_bytes / 1e6, (double)w->n_bytes / 1e6);
    SAY("  scratch          %9.1f MB for %d rows a step", (double)p->bytes.scratch_bytes / 1e6, p->backend.max_rows);
    SAY("  states           %9.1f MB: %d that run, %d kept, 1 spare, %.2f MB each", (double)p->states_bytes / 1e6, p->n_sequences,
        p->n_kept, (double)p->bytes.state_bytes / 1e6);
    SAY("  keys and values  %9.1f MB for %zu tokens of all sequences, %.1f KB a token", (double)p->kv_bytes / 1e6,
        p->backend.kv_tokens, (double)p->bytes.kv_page_bytes / (double)p->bytes.kv_page_tokens / 1e3);
    SAY("  all              %9.1f MB of %.1f MB free; context %d tokens", (double)p->total_bytes / 1e6, (double)p->limit_bytes / 1e6,
        p->backend.ctx_tokens);
#undef SAY
}
