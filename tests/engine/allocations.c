/* allocations.c - a step allocates nothing: usage allocations BACKEND MODEL
 *
 * malloc and its kin are wrapped at link time.  After two requests that warm
 * everything up, the engine decodes and reads prompts, keeps states and evicts
 * them, and not one call may be made until the last event was read.  Linked
 * with --wrap, which sees the calls of our own code; shared libraries are not
 * called in a step. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calla.h"

static atomic_bool counting;
static atomic_int  n_calls;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
int   __real_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
int   __wrap_posix_memalign(void **out, size_t align, size_t n);

static void count(void) { if (atomic_load(&counting)) atomic_fetch_add(&n_calls, 1); }
void *__wrap_malloc(size_t n) { count(); return __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { count(); return __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { count(); return __real_realloc(p, n); }
int __wrap_posix_memalign(void **out, size_t align, size_t n) { count(); return __real_posix_memalign(out, align, n); }

static void die(const char *what, const struct calla_err *err) {
    printf("%s: %s\n", what, err->message);
    exit(1);
}

enum { N_PROMPT = 300, N_TOGETHER = 3, MOST_ANSWER = 40 };

static struct calla_request *submit(struct calla_engine *e, int seed) {
    static int32_t ids[N_PROMPT];
    struct calla_request *r;
    struct calla_err err;
    for (int i = 0; i < N_PROMPT; i++) ids[i] = (i * 37 + seed * 101 + i * i * seed) % 1000;
    const struct calla_request_params p = { .prompt = ids, .n_prompt = N_PROMPT - seed, .max_tokens = MOST_ANSWER,
        .sampling = { .temperature = 1, .top_k = seed % 2 ? 20 : 0, .top_p = 0.95f, .repetition_penalty = 1.1f, .presence_penalty = 0.5f, .seed = (uint64_t)seed },
        .n_top_logprobs = 3 };
    if (calla_request_submit(e, &p, &r, &err) != 0) die("submit", &err);
    return r;
}

int main(int argc, char **argv) {
    struct calla_model *m;
    struct calla_engine *e;
    struct calla_err err;
    struct calla_model_info info;
    if (argc != 3) return 2;
    struct calla_options o = { .model_dir = argv[2], .backend = argv[1], .ctx_tokens = 512, .max_rows = 128, .n_sequences = 4, .cache_bytes = 1 };
    if (calla_model_open(&m, &o, &err) != 0) die("open", &err);
    calla_model_info(m, &info);
    calla_model_close(&m);
    o.cache_bytes = 3 * info.state_bytes;                 /* three kept states: the fourth evicts */
    if (calla_model_open(&m, &o, &err) != 0) die("open", &err);
    if (calla_engine_start(&e, m, 16, &err) != 0) die("engine", &err);
    struct calla_event ev = { 0 };
    int n_events = 0, n_steps_counted = 0;
    for (int round = 0; round < 4; round++) {
        struct calla_request *r[N_TOGETHER];
        for (int i = 0; i < N_TOGETHER; i++) r[i] = submit(e, round * N_TOGETHER + i);   /* allocates, by design */
        atomic_store(&counting, round >= 2);
        for (int i = 0; i < N_TOGETHER; i++)
            do {
                if (!calla_request_wait(r[i], &ev, 60000)) return 1;
                n_events++;
                n_steps_counted += round >= 2 && ev.kind == CALLA_EVENT_TOKEN;
                if (ev.kind == CALLA_EVENT_DONE && ev.finish != CALLA_FINISH_LENGTH) die("request", &ev.err);
            } while (ev.kind != CALLA_EVENT_DONE);
        atomic_store(&counting, false);
        for (int i = 0; i < N_TOGETHER; i++) calla_request_free(&r[i]);
    }
    const int n = atomic_load(&n_calls);
    atomic_store(&counting, true);                        /* the counter counts */
    void *volatile something = malloc(1);
    free(something);
    atomic_store(&counting, false);
    const bool works = atomic_load(&n_calls) == n + 1;
    printf("%d allocations while %d ids were sampled and %d prompts read\n", n, n_steps_counted, 2 * N_TOGETHER);
    calla_engine_stop(&e);
    calla_model_close(&m);
    const bool right = n == 0 && works && n_steps_counted == 2 * N_TOGETHER * MOST_ANSWER && n_events > 0;
    printf("%d passed, %d failed, 0 skipped\n", right, !right);
    return !right;
}
