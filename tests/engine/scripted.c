/* scripted.c - the scripted engine of calla_test.h says what its script says: usage scripted MODEL DIR */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "calla_test.h"

static int n_passed, n_failed;
static void check(const char *promise, bool right) {
    printf("%s  %s\n", right ? "ok  " : "FAIL", promise);
    if (right) n_passed++;
    else n_failed++;
}

struct heard { int32_t ids[64]; int n; struct calla_event done; };

static bool ask(struct calla_engine *e, int n_prompt, int n, int32_t stop, struct heard *h) {
    static int32_t prompt[1000];
    struct calla_request *r;
    struct calla_err err;
    for (int i = 0; i < n_prompt; i++) prompt[i] = i % 500;
    const struct calla_request_params p = { .prompt = prompt, .n_prompt = n_prompt, .max_tokens = n, .n_top_logprobs = 2, .stop_ids = &stop, .n_stop_ids = 1,
                                            .sampling = { .temperature = 0, .top_p = 1, .repetition_penalty = 1 } };
    *h = (struct heard){ 0 };
    if (calla_request_submit(e, &p, &r, &err) != 0) return false;
    while (calla_request_wait(r, &h->done, 60000) && h->done.kind != CALLA_EVENT_DONE)
        if (h->done.kind == CALLA_EVENT_TOKEN) h->ids[h->n++] = h->done.id;
    calla_request_free(&r);
    return true;
}

static void write_script(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    if (f == NULL || fputs(text, f) < 0 || fclose(f) != 0) exit(1);
}

int main(int argc, char **argv) {
    struct calla_model *m;
    struct calla_engine *e;
    struct calla_err err;
    struct heard plain, h;
    char path[1024];
    if (argc != 3) return 2;
    const struct calla_options o = { .model_dir = argv[1], .ctx_tokens = 1024, .max_rows = 64, .n_sequences = 2, .cache_bytes = 1 };
    if (calla_model_open(&m, &o, &err) != 0 || calla_engine_start(&e, m, 4, &err) != 0) {
        printf("%s\n", err.message);
        return 1;
    }
    snprintf(path, sizeof path, "%s/script", argv[2]);
    ask(e, 20, 6, 9999, &plain);
    write_script(path, "[7, 8, 9]\n\n{\"ids\": [7, 42, 9]}\n{\"prefill_delay_ms\": 50}\n{\"ids\": [1, 2], \"decode_delay_ms\": 40}\n{\"ids\": [3, 4], \"fail_after\": 2}\n");
    if (calla_engine_script(e, path, &err) != 0) {
        printf("%s\n", err.message);
        return 1;
    }
    ask(e, 20, 6, 9999, &h);
    check("a line's ids come first, then the model's own", h.n == 6 && h.ids[0] == 7 && h.ids[1] == 8 && h.ids[2] == 9);
    ask(e, 20, 6, 42, &h);
    check("a stop id in the script ends the answer", h.n == 2 && h.ids[1] == 42 && h.done.finish == CALLA_FINISH_STOP);
    uint64_t t = calla_now_ns();
    ask(e, 640, 1, 9999, &h);
    check("a delay before each chunk of the prompt", calla_now_ns() - t >= 10 * 50000000ull && h.n == 1);
    t = calla_now_ns();
    ask(e, 20, 5, 9999, &h);
    check("a delay before each id", calla_now_ns() - t >= 4 * 40000000ull && h.n == 5 && h.ids[0] == 1 && h.ids[1] == 2);
    ask(e, 20, 6, 9999, &h);
    check("an engine that fails where the script says", h.n == 2 && h.done.finish == CALLA_FINISH_ERROR && h.done.err.code == CALLA_ERR_DEVICE);
    struct calla_engine_status st;
    calla_engine_status(e, &st);
    check("and stays failed", st.failed);
    calla_engine_stop(&e);
    if (calla_engine_start(&e, m, 4, &err) != 0) return 1;
    ask(e, 20, 6, 9999, &h);
    check("without a script the model speaks", h.n == plain.n && memcmp(h.ids, plain.ids, sizeof plain.ids) == 0);
    write_script(path, "[1, 2]\n[1, \n");
    check("a broken script is refused with its line", calla_engine_script(e, path, &err) != 0 && strstr(err.message, "line 2") != NULL);
    write_script(path, "[100000000]\n");
    check("and so is an id that does not exist", calla_engine_script(e, path, &err) != 0 && strstr(err.message, "line 1") != NULL);
    calla_engine_stop(&e);
    calla_model_close(&m);
    printf("%d passed, %d failed, 0 skipped\n", n_passed, n_failed);
    return n_failed > 0;
}
