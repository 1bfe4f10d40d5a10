#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "base/cpu_features.h"
#include "base/pool.h"

enum { MAX = 16, PHASES = 200 };

struct shared {
    struct calla_pool *pool;
    int seen[MAX];          /* plain on purpose: the pool must order these accesses */
    int cell[2][MAX];
    int wrong;
};

static void count(void *arg, int t, int n) {
    struct shared *s = arg;
    if (t >= n || n > MAX) s->wrong++;
    s->seen[t]++;
}

/* Every phase each thread reads what its neighbour wrote in the phase before. */
static void pass_on(void *arg, int t, int n) {
    struct shared *s = arg;
    s->cell[0][t] = t;
    calla_pool_barrier(s->pool, t);
    for (int i = 0; i < PHASES; i++) {
        s->cell[(i + 1) % 2][t] = s->cell[i % 2][(t + 1) % n] + 1;
        calla_pool_barrier(s->pool, t);
    }
}

static void check_team(int n_threads, int n_jobs) {
    struct shared s = { 0 };
    assert_int_equal(calla_pool_new(&s.pool, n_threads, NULL), 0);
    assert_int_equal(calla_pool_size(s.pool), n_threads);
    for (int job = 0; job < n_jobs; job++) calla_pool_run(s.pool, count, &s);
    for (int t = 0; t < n_threads; t++) assert_int_equal(s.seen[t], n_jobs);
    assert_int_equal(s.wrong, 0);
    calla_pool_run(s.pool, pass_on, &s);
    for (int t = 0; t < n_threads; t++)
        assert_int_equal(s.cell[PHASES % 2][t], (t + PHASES) % n_threads + PHASES);
    calla_pool_free(&s.pool);
    assert_null(s.pool);
}

static void test_every_thread_runs_every_job_once_and_barriers_order_memory(void **unused) {
    (void)unused;
    check_team(1, 100);
    check_team(2, 2000);
}

static void test_more_threads_than_cores_get_through(void **unused) {
    (void)unused;
    check_team(5, 200);
    check_team(MAX, 100);
}

static void test_sleepers_wake_for_the_next_job(void **unused) {
    (void)unused;
    struct shared s = { 0 };
    const struct timespec nap = { 0, 3000000 };   /* far longer than the spinning */
    assert_int_equal(calla_pool_new(&s.pool, 2, NULL), 0);
    for (int job = 0; job < 20; job++) {
        nanosleep(&nap, NULL);
        calla_pool_run(s.pool, count, &s);
    }
    assert_int_equal(s.seen[1], 20);
    calla_pool_free(&s.pool);
}

static void test_zero_asks_for_one_a_core_and_silly_numbers_are_refused(void **unused) {
    (void)unused;
    struct calla_pool *p;
    struct calla_err err = { 0 };
    struct calla_cpu_features f;
    calla_cpu_features(&f);
    assert_true(f.n_cores >= 1);
    assert_int_equal(calla_pool_new(&p, 0, NULL), 0);
    assert_int_equal(calla_pool_size(p), f.n_cores);
    calla_pool_free(&p);
    assert_int_equal(calla_pool_new(&p, -1, &err), CALLA_ERR_ARGUMENT);
    assert_null(p);
    assert_int_equal(calla_pool_new(&p, 100000, &err), CALLA_ERR_ARGUMENT);
}

static void test_shares_cover_all_pieces_evenly(void **unused) {
    (void)unused;
    for (int n = 0; n < 40; n++)
        for (int threads = 1; threads < 9; threads++) {
            int at = 0;
            for (int t = 0; t < threads; t++) {
                int begin, end;
                calla_share(n, t, threads, &begin, &end);
                assert_int_equal(begin, at);
                assert_true(end - begin >= n / threads && end - begin <= n / threads + 1);
                at = end;
            }
            assert_int_equal(at, n);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_runs_every_job_once_and_barriers_order_memory),
        cmocka_unit_test(test_more_threads_than_cores_get_through),
        cmocka_unit_test(test_sleepers_wake_for_the_next_job),
        cmocka_unit_test(test_zero_asks_for_one_a_core_and_silly_numbers_are_refused),
        cmocka_unit_test(test_shares_cover_all_pieces_evenly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
