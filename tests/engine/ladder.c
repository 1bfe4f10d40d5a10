/* ladder.c - the same bits, however a sequence is run: usage ladder BACKEND MODEL OTHER_MODEL DIR
 *
 * One step or many, alone or beside others, stopped and restored, resumed, warm
 * or cold, any number of threads.  Compared are the bits of all logits of all
 * positions.  `restore FILE` as a fifth argument is how the program calls itself
 * to load a file in another process. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/rng.h"
#include "engine/model.h"

static int n_passed, n_failed, n_skipped;
static bool ok;

static void check_at(bool right, const char *what, int line) {
    if (right) return;
    ok = false;
    printf("  line %d: not so: %s\n", line, what);
}
#define CHECK(x) check_at((x), #x, __LINE__)
#define BEGIN() (ok = true)
static void end_test(const char *promise) {
    printf("%s  %s\n", ok ? "ok  " : "FAIL", promise);
    fflush(stdout);
    if (ok) n_passed++;
    else n_failed++;
}

static const char *backend, *program;
static int n_ids, n_answer, n_prompts; /* of the test's sequences and requests         */
enum { MOST_IDS = 512 };

static int32_t *make_ids(uint64_t seed, int n) {
    static int32_t ids[8][MOST_IDS];
    int32_t *out = ids[seed % 8];
    for (int i = 0; i < n; i++) {
        uint32_t r[4];
        calla_rng_block(r, seed, 7, (uint64_t)i);
        out[i] = (int32_t)(r[0] % 1000);
    }
    return out;
}

static struct calla_model *open_model(const char *dir, int n_threads, size_t cache_bytes) {
    struct calla_model *m = NULL;
    struct calla_err err = { 0 };
    const struct calla_options o = { .model_dir = dir, .backend = backend, .n_threads = n_threads, .ctx_tokens = 1024,
                                     .max_rows = 128, .n_sequences = 4, .cache_bytes = cache_bytes };
    if (calla_model_open(&m, &o, &err) != 0) {
        printf("cannot open %s: %s\n", dir, err.message);
        exit(1);
    }
    return m;
}

struct bits { uint64_t of[MOST_IDS]; int n, stop_at; atomic_bool *cancel; };

static int on_logits(void *user, int pos, const float *logits) {
    struct bits *b = user;
    if (pos >= MOST_IDS) return CALLA_ERR_LIMIT;
    b->of[pos] = XXH3_64bits(logits, 900 * sizeof *logits);
    b->n = pos + 1;
    if (b->stop_at > 0 && pos + 1 == b->stop_at) atomic_store(b->cancel, true);
    return 0;
}

static struct calla_session *session(struct calla_model *m) {
    struct calla_session *s;
    struct calla_err err;
    if (calla_session_new(&s, m, &err) != 0) {
        printf("no session: %s\n", err.message);
        exit(1);
    }
    return s;
}

static bool feed(struct calla_session *s, const int32_t *ids, int n, struct bits *b) {
    struct calla_err err = { 0 };
    if (calla_session_feed(s, ids, n, on_logits, b, NULL, &err) == 0) return true;
    printf("  feed: %s\n", err.message);
    return false;
}

static bool same(const struct bits *a, const struct bits *b, int n) { return memcmp(a->of, b->of, (size_t)n * sizeof a->of[0]) == 0; }

/* ---- splits ------------------------------------------------------------------------ */

static void test_splits(struct calla_model *m, const struct bits *whole) {
    static const int pieces[][4] = { { 64, 0 }, { 1, 63, 64, 0 }, { 65, 7, 3, 0 }, { 37, 0 } };
    const int32_t *ids = make_ids(1, n_ids);
    for (int t = 0; t < 4; t++) {
        struct bits b = { 0 };
        struct calla_session *s = session(m);
        BEGIN();
        for (int at = 0, i = 0; at < n_ids && ok; i = pieces[t][i + 1] ? i + 1 : 0) {
            const int n = pieces[t][i] < n_ids - at ? pieces[t][i] : n_ids - at;
            CHECK(feed(s, ids + at, n, &b));
            at += n;
        }
        CHECK(same(&b, whole, n_ids));
        end_test("any split of the same ids gives the bits of one feed");
        calla_session_free(&s);
    }
    struct bits b = { 0 };
    struct calla_session *s = session(m);
    const int n = n_ids < 100 ? n_ids : 100;
    BEGIN();
    for (int i = 0; i < n && ok; i++) CHECK(feed(s, ids + i, 1, &b));
    CHECK(same(&b, whole, n));
    end_test("one id at a time gives the bits of one feed");
    calla_session_free(&s);
}

/* Rows of three sequences in one step, decode and prefill mixed, below the public interface. */
static void test_interleaved(struct calla_model *m, const struct bits *whole) {
    const struct calla_backend_ops *ops = m->ops;
    struct calla_state *s[3];
    const int32_t *ids[3] = { make_ids(1, n_ids), make_ids(2, n_ids), make_ids(3, n_ids) };
    struct bits alone[3] = { *whole }, mixed[3] = { 0 };
    int pos[3] = { 0 };
    static struct calla_row rows[128];
    for (int i = 1; i < 3; i++) {
        struct calla_session *one = session(m);
        feed(one, ids[i], n_ids, &alone[i]);
        calla_session_free(&one);
    }
    BEGIN();
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < 3; i++) CHECK(ops->state_new(&s[i], m->backend, NULL) == 0);
    for (int turn = 0; ok && (pos[0] < n_ids || pos[1] < n_ids || pos[2] < n_ids); turn++) {
        const int most[3] = { turn % 3 == 0 ? 20 : 1, 17, turn % 2 ? 1 : 5 };
        int n_rows = 0, first[3], n[3];
        struct calla_err err = { 0 };
        for (int j = 0; j < 3; j++) {
            const int i = (j + turn) % 3;               /* in every order */
            n[i] = most[i] < n_ids - pos[i] ? most[i] : n_ids - pos[i];
            first[i] = n_rows;
            for (int k = 0; k < n[i]; k++)
                rows[n_rows++] = (struct calla_row){ .state = s[i], .token = ids[i][pos[i] + k], .token_row = -1, .wants_logits = true };
        }
        const struct calla_batch batch = { .rows = rows, .n_rows = n_rows };
        const int rc = ops->step(m->backend, &batch, &err);
        if (rc != 0) printf("  step: %s\n", err.message);
        CHECK(rc == 0);
        for (int i = 0; ok && i < 3; i++) {
            for (int k = 0; k < n[i]; k++) on_logits(&mixed[i], pos[i] + k, ops->logits(m->backend, first[i] + k));
            pos[i] += n[i];
        }
    }
    for (int i = 0; i < 3; i++) {
        CHECK(ops->state_len(s[i]) == n_ids);
        CHECK(same(&mixed[i], &alone[i], n_ids));
        ops->state_free(s[i]);
    }
    pthread_mutex_unlock(&m->lock);
    end_test("sequences that share steps give the bits of each alone");
}

static void test_resume(struct calla_model *m, const struct bits *whole) {
    const int32_t *ids = make_ids(1, n_ids), *other = make_ids(5, n_ids);
    const int a = n_ids / 3, grid = n_ids >= 128 ? 64 : n_ids / 2;
    struct bits b = { 0 }, waste = { 0 };
    struct calla_session *s = session(m);
    int n;
    BEGIN();
    CHECK(feed(s, ids, a < grid ? a : grid, &b));
    CHECK(calla_session_checkpoint(s, NULL) == 0);
    CHECK(feed(s, ids + (a < grid ? a : grid), (a < grid ? grid : a) - (a < grid ? a : grid), &b));
    CHECK(calla_session_checkpoint(s, NULL) == 0);
    for (int i = 0; i < 2 && ok; i++) {
        const int pos = i == 0 ? (a < grid ? grid : a) : (a < grid ? a : grid);
        CHECK(feed(s, other, n_ids / 4, &waste));            /* another ending, to be forgotten */
        CHECK(calla_session_resume_point(s, pos + 1) == pos);
        CHECK(calla_session_resume(s, pos + 1, NULL) == CALLA_ERR_ARGUMENT);
        CHECK(calla_session_resume(s, pos, NULL) == 0);
        calla_session_ids(s, &n);
        CHECK(n == pos);
        b = (struct bits){ 0 };
        memcpy(b.of, whole->of, (size_t)pos * sizeof b.of[0]);
        CHECK(feed(s, ids + pos, n_ids - pos, &b));
        CHECK(same(&b, whole, n_ids));
        CHECK(calla_session_resume(s, pos, NULL) == 0);
    }
    CHECK(calla_session_resume(s, 0, NULL) == 0);
    b = (struct bits){ 0 };
    CHECK(feed(s, ids, n_ids, &b));
    CHECK(same(&b, whole, n_ids));
    end_test("a resumed sequence gives the bits of one that never left");

    atomic_bool cancel = false;
    struct bits c = { .stop_at = 1, .cancel = &cancel };
    struct calla_err err = { 0 };
    BEGIN();
    CHECK(calla_session_resume(s, 0, NULL) == 0);
    const int rc = calla_session_feed(s, ids, n_ids, on_logits, &c, &cancel, &err);
    calla_session_ids(s, &n);
    if (c.n < n_ids) CHECK(rc == CALLA_ERR_CANCELLED && n == 0);
    cancel = false;
    b = (struct bits){ 0 };
    CHECK(calla_session_resume(s, 0, NULL) == 0 && feed(s, ids, n_ids, &b) && same(&b, whole, n_ids));
    end_test("a cancelled feed stands at its resume point and can go on");

    BEGIN();
    const int32_t bad = 1 << 20;
    CHECK(calla_session_feed(s, &bad, 1, NULL, NULL, NULL, &err) == CALLA_ERR_ARGUMENT);
    static int32_t many[1100];
    CHECK(calla_session_feed(s, many, 1100, NULL, NULL, NULL, &err) == CALLA_ERR_LIMIT && strstr(err.message, "1024") != NULL);
    calla_session_ids(s, &n);
    CHECK(n == n_ids);
    end_test("ids and lengths out of range are refused and change nothing");
    calla_session_free(&s);
}

/* ---- files --------------------------------------------------------------------------- */

static void write_file(const char *path, const unsigned char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        printf("cannot write %s: %s\n", path, strerror(errno));
        exit(1);
    }
}

static unsigned char *read_whole(const char *path, size_t *n) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (f == NULL || fstat(fileno(f), &st) != 0) exit(1);
    unsigned char *bytes = malloc((size_t)st.st_size);
    *n = fread(bytes, 1, (size_t)st.st_size, f);
    fclose(f);
    return bytes;
}

/* The other process: loads the file, feeds the rest, prints the bits. */
static int restore(struct calla_model *m, const char *path) {
    struct calla_err err = { 0 };
    struct bits b = { 0 };
    struct calla_session *s = session(m);
    int n;
    if (calla_session_load(s, path, &err) != 0) {
        printf("%s\n", err.message);
        return 1;
    }
    calla_session_ids(s, &n);
    if (!feed(s, make_ids(1, n_ids) + n, n_ids - n, &b)) return 1;
    for (int i = n; i < n_ids; i++) printf("%d %016llx\n", i, (unsigned long long)b.of[i]);
    calla_session_free(&s);
    return 0;
}

static void test_files(struct calla_model *m, const char *dir, const char *model, const char *other, const struct bits *whole) {
    char path[1024], broken[1024], command[4096], line[128];
    const int32_t *ids = make_ids(1, n_ids);
    const int at = n_ids * 2 / 3;
    struct bits b = { 0 };
    struct calla_session *s = session(m), *fresh = session(m);
    struct calla_err err = { 0 };
    int n, n_lines = 0;
    snprintf(path, sizeof path, "%s/sequence-%s", dir, backend);
    snprintf(broken, sizeof broken, "%s/broken-%s", dir, backend);
    BEGIN();
    CHECK(feed(s, ids, at, &b));
    CHECK(calla_session_save(s, path, &err) == 0);
    CHECK(feed(fresh, make_ids(4, 10), 10, &b));
    CHECK(calla_session_load(fresh, path, &err) == 0);
    CHECK(memcmp(calla_session_ids(fresh, &n), ids, (size_t)at * sizeof *ids) == 0 && n == at);
    b = *whole;
    memset(b.of + at, 0, sizeof b.of - (size_t)at * sizeof b.of[0]);
    CHECK(feed(fresh, ids + at, n_ids - at, &b));
    CHECK(same(&b, whole, n_ids));
    end_test("a saved and restored sequence gives the bits of one that never stopped");

    BEGIN();
    snprintf(command, sizeof command, "'%s' %s '%s' '%s' '%s' restore '%s' %d", program, backend, model, other, dir, path, n_ids);
    FILE *p = popen(command, "r");
    while (p != NULL && fgets(line, sizeof line, p) != NULL) {
        int pos;
        unsigned long long bits;
        CHECK(sscanf(line, "%d %llx", &pos, &bits) == 2 && pos < n_ids && bits == whole->of[pos]);
        n_lines++;
    }
    CHECK(p != NULL && pclose(p) == 0);
    CHECK(n_lines == n_ids - at);
    end_test("and so does one that another process restores");

    size_t n_bytes;
    unsigned char *bytes = read_whole(path, &n_bytes);
    BEGIN();
    for (int i = 0; i < 200 && ok; i++) {
        const size_t cut = i < 80 ? (size_t)i : n_bytes * (size_t)(i - 80) / 120;
        write_file(broken, bytes, cut);
        const int rc = calla_session_load(fresh, broken, &err);
        if (rc == 0) printf("  cut at %zu of %zu was taken\n", cut, n_bytes);
        CHECK(rc != 0 && err.message[0] != 0);
    }
    end_test("a truncated file is refused");
    BEGIN();
    for (int i = 0; i < 300 && ok; i++) {
        const size_t bit = i < 64 ? (size_t)i * 8 + (size_t)i % 8 : (size_t)((n_bytes * 8 - 1) * (double)(i - 64) / 235.0);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        write_file(broken, bytes, n_bytes);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        const int rc = calla_session_load(fresh, broken, &err);
        if (rc == 0) printf("  a changed bit %zu was taken\n", bit);
        CHECK(rc != 0);
    }
    bytes = realloc(bytes, n_bytes + 1);
    bytes[n_bytes] = 0;
    write_file(broken, bytes, n_bytes + 1);
    CHECK(calla_session_load(fresh, broken, &err) != 0);
    CHECK(calla_session_load(fresh, "/dev/null", &err) != 0);
    CHECK(calla_session_load(fresh, dir, &err) != 0);
    CHECK(calla_session_load(fresh, "/nowhere/at/all", &err) == CALLA_ERR_IO);
    CHECK(calla_session_save(fresh, "/nowhere/at/all", &err) == CALLA_ERR_IO);
    end_test("a file with a changed bit, a longer one and no file are refused");
    free(bytes);

    BEGIN();                                              /* after all these refusals nothing has changed */
    calla_session_ids(fresh, &n);
    CHECK(n == n_ids);
    CHECK(calla_session_load(fresh, path, &err) == 0);
    end_test("a refused file leaves the session as it was");
    calla_session_free(&s);
    calla_session_free(&fresh);

    struct calla_model *foreign = open_model(other, 0, 0);
    s = session(foreign);
    BEGIN();
    CHECK(calla_session_load(s, path, &err) == CALLA_ERR_FORMAT && strstr(err.message, "another checkpoint") != NULL);
    end_test("a file of another checkpoint is refused by name");
    calla_session_free(&s);
    calla_model_close(&foreign);
    unlink(broken);
}

static void test_threads(const char *model, const struct bits *whole) {
    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        struct calla_model *m = open_model(model, n_threads, 0);
        struct calla_session *s = session(m);
        struct bits b = { 0 };
        BEGIN();
        CHECK(feed(s, make_ids(1, n_ids), n_ids, &b));
        CHECK(same(&b, whole, n_ids));
        end_test("any number of threads gives the same bits");
        calla_session_free(&s);
        calla_model_close(&m);
    }
}

/* ---- the engine -------------------------------------------------------------------------- */

enum { N_PROMPTS = 6, ANSWER = 12 };
struct heard { int32_t ids[ANSWER]; float logprobs[ANSWER]; struct calla_logprob top[ANSWER][5]; int n, n_cached; enum calla_finish finish; };

static struct calla_request *submit(struct calla_engine *e, int which) {
    struct calla_request *r = NULL;
    struct calla_err err;
    const struct calla_request_params p = { .prompt = make_ids((uint64_t)which, n_ids), .n_prompt = n_ids - which * (n_ids / 10), .max_tokens = n_answer,
        .sampling = { .temperature = which % 2 ? 1 : 0, .top_k = 20, .top_p = 0.95f, .repetition_penalty = 1, .seed = (uint64_t)which },
        .n_top_logprobs = 5 };
    if (calla_request_submit(e, &p, &r, &err) != 0) {
        printf("submit: %s\n", err.message);
        exit(1);
    }
    return r;
}

static void hear(struct calla_request **r, struct heard *h) {
    struct calla_event ev = { .kind = CALLA_EVENT_PREFILL };
    *h = (struct heard){ 0 };
    while (ev.kind != CALLA_EVENT_DONE && calla_request_wait(*r, &ev, 60000)) {
        if (ev.kind != CALLA_EVENT_TOKEN) continue;
        h->ids[h->n] = ev.id;
        h->logprobs[h->n] = ev.logprob;
        memcpy(h->top[h->n++], ev.top, sizeof h->top[0]);
    }
    h->finish = ev.finish;
    h->n_cached = ev.usage.n_cached;
    calla_request_free(r);
}

static bool equal(const struct heard *a, const struct heard *b) {
    return a->n == b->n && a->finish == b->finish && memcmp(a->ids, b->ids, sizeof a->ids) == 0 &&
           memcmp(a->logprobs, b->logprobs, sizeof a->logprobs) == 0 && memcmp(a->top, b->top, sizeof a->top) == 0;
}

static void test_engine(const char *model) {
    struct heard cold[N_PROMPTS], h;
    struct calla_engine *e;
    struct calla_request *r[N_PROMPTS];
    struct calla_model *m = open_model(model, 0, 1);     /* nothing is kept */
    BEGIN();
    CHECK(calla_engine_start(&e, m, 8, NULL) == 0);
    for (int i = 0; i < n_prompts; i++) {
        r[0] = submit(e, i);
        hear(&r[0], &cold[i]);
        CHECK(cold[i].n == n_answer && cold[i].n_cached == 0);
    }
    for (int i = 0; i < n_prompts; i++) r[i] = submit(e, i);
    for (int i = 0; i < n_prompts; i++) {
        hear(&r[i], &h);
        CHECK(equal(&h, &cold[i]) && h.n_cached == 0);
    }
    end_test("requests that run together give the ids and log-probabilities of each alone");
    calla_engine_stop(&e);
    calla_model_close(&m);

    m = open_model(model, 0, 0);
    BEGIN();
    CHECK(calla_engine_start(&e, m, 8, NULL) == 0);
    for (int round = 0; round < (n_prompts < N_PROMPTS ? 2 : 3); round++) {
        for (int i = 0; i < n_prompts; i++) r[i] = submit(e, i);
        for (int i = 0; i < n_prompts; i++) {
            hear(&r[i], &h);
            CHECK(equal(&h, &cold[i]));
            if (round > 0) CHECK(h.n_cached == n_ids - i * (n_ids / 10) - 1);
        }
    }
    end_test("a warm answer is the cold one, bit for bit");
    calla_engine_stop(&e);
    calla_model_close(&m);
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    program = argv[0];
    backend = argv[1];
    const bool slow = strcmp(backend, "reference") == 0;
    n_ids = slow ? 40 : 200;
    n_answer = slow ? 3 : ANSWER;
    n_prompts = slow ? 3 : N_PROMPTS;
    struct calla_model *m = open_model(argv[2], 0, 0);
    if (argc > 6 && strcmp(argv[5], "restore") == 0) {
        const int rc = restore(m, argv[6]);
        calla_model_close(&m);
        return rc;
    }
    struct bits whole = { 0 };
    struct calla_session *s = session(m);
    BEGIN();
    CHECK(feed(s, make_ids(1, n_ids), n_ids, &whole));
    CHECK(whole.n == n_ids && whole.of[0] != whole.of[1]);
    end_test("a sequence runs");
    calla_session_free(&s);
    test_splits(m, &whole);
    test_interleaved(m, &whole);
    test_resume(m, &whole);
    test_files(m, argv[4], argv[2], argv[3], &whole);
    if (!slow) test_threads(argv[2], &whole);
    calla_model_close(&m);
    test_engine(argv[2]);
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, n_skipped);
    return n_failed > 0;
}
