#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/progress.h"

static void test_text_has_share_size_rate_and_time_left(void **unused) {
    (void)unused;
    char s[160];
    calla_progress_text(s, sizeof s, "loading", 8000000000u, 19500000000u, 1.3e9, true);
    assert_string_equal(s, "loading  [##########..............]  41 %  8.0 of 19.5 GB  1.3 GB/s  0:09 left");
    calla_progress_text(s, sizeof s, "writing", 500, 999, 0.05, false);
    assert_string_equal(s, "writing   50 %  500 of 999 B  0.1 B/s  2:46:20 left");
    calla_progress_text(s, sizeof s, "reading", 2000000, 1000000, 0, false);   /* more than all is all */
    assert_string_equal(s, "reading  100 %  1.0 of 1.0 MB");
    calla_progress_text(s, sizeof s, "nothing", 0, 0, 0, true);
    assert_string_equal(s, "nothing  [########################] 100 %  0 of 0 B");
}

static size_t written(int fd, char *out, size_t cap) {
    const ssize_t n = read(fd, out, cap - 1);
    out[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

static void test_what_is_quick_stays_silent_off_a_terminal(void **unused) {
    (void)unused;
    int ends[2];
    char out[256];
    struct calla_progress p;
    assert_int_equal(pipe(ends), 0);
    calla_progress_init(&p, ends[1]);
    assert_false(p.is_terminal);
    for (uint64_t i = 0; i <= 100; i++) calla_progress_put(&p, "loading", i, 100);
    calla_progress_end(&p);
    close(ends[1]);
    assert_int_equal(written(ends[0], out, sizeof out), 0);
    close(ends[0]);
}

static void test_a_slow_one_gets_plain_lines(void **unused) {
    (void)unused;
    int ends[2];
    char out[256];
    struct calla_progress p;
    assert_int_equal(pipe(ends), 0);
    calla_progress_init(&p, ends[1]);
    calla_progress_put(&p, "loading", 0, 100);
    p.start_ns -= 6000000000u;   /* as if it had begun six seconds ago */
    p.shown_ns -= 6000000000u;
    calla_progress_put(&p, "loading", 50, 100);
    calla_progress_put(&p, "loading", 60, 100);
    assert_true(written(ends[0], out, sizeof out) > 0);
    assert_null(strchr(out, '\r'));
    assert_non_null(strstr(out, "50 %"));
    assert_null(strstr(out, "60 %"));
    calla_progress_put(&p, "loading", 100, 100);
    assert_true(written(ends[0], out, sizeof out) > 0);
    assert_non_null(strstr(out, "100 %"));
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_has_share_size_rate_and_time_left),
        cmocka_unit_test(test_what_is_quick_stays_silent_off_a_terminal),
        cmocka_unit_test(test_a_slow_one_gets_plain_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
