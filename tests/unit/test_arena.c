#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/arena.h"

static const size_t sizes[] = { 1, 64, 65, 0, 4096, 1000003, 63 };
enum { N = sizeof sizes / sizeof *sizes };

static void test_an_arena_without_memory_plans_what_one_with_memory_cuts(void **unused) {
    (void)unused;
    struct calla_arena plan = { 0 }, a;
    unsigned char *part[N];

    for (int i = 0; i < N; i++) assert_null(calla_arena_take(&plan, sizes[i]));
    assert_int_equal(calla_arena_open(&a, plan.used, NULL), 0);
    for (int i = 0; i < N; i++) {
        part[i] = calla_arena_take(&a, sizes[i]);
        assert_non_null(part[i]);
        assert_int_equal((uintptr_t)part[i] % 64, 0);
        for (size_t b = 0; b < sizes[i]; b++) assert_int_equal(part[i][b], 0);
        memset(part[i], i + 1, sizes[i]);
    }
    assert_int_equal(a.used, plan.used);
    for (int i = 0; i < N; i++)
        for (size_t b = 0; b < sizes[i]; b += 61) assert_int_equal(part[i][b], i + 1);
    calla_arena_close(&a);
    assert_null(a.base);
    calla_arena_close(&a);
}

static void test_what_cannot_be_mapped_is_an_error_with_the_number(void **unused) {
    (void)unused;
    struct calla_arena a;
    struct calla_err err = { 0 };
    assert_int_equal(calla_arena_open(&a, SIZE_MAX / 2, &err), CALLA_ERR_MEMORY);
    assert_non_null(strstr(err.message, "9223372036854775807"));
    assert_int_equal(calla_arena_open(&a, SIZE_MAX, &err), CALLA_ERR_MEMORY);
    assert_null(a.base);
}

static void test_an_arena_starts_on_a_huge_page(void **unused) {
    (void)unused;
    struct calla_arena a;
    for (size_t n = 0; n < 9000000; n = n * 2 + 12345) {
        assert_int_equal(calla_arena_open(&a, n, NULL), 0);
        assert_int_equal((uintptr_t)a.base % (2 << 20), 0);
        a.base[a.n_bytes - 1] = 1;
        calla_arena_close(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_arena_without_memory_plans_what_one_with_memory_cuts),
        cmocka_unit_test(test_what_cannot_be_mapped_is_an_error_with_the_number),
        cmocka_unit_test(test_an_arena_starts_on_a_huge_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
