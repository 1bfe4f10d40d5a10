#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"

static void test_appends_add_up(void **unused) {
    (void)unused;
    struct calla_buf b = { 0 };
    calla_buf_str(&b, "abc");
    calla_buf_char(&b, '-');
    calla_buf_fmt(&b, "%d/%s", 42, "x");
    assert_string_equal(b.data, "abc-42/x");
    assert_int_equal(b.n, 8);
    calla_buf_free(&b);
}

static void test_limit_fails_and_stays_failed(void **unused) {
    (void)unused;
    struct calla_buf b = { .limit = 4 };
    calla_buf_str(&b, "abcd");
    assert_false(b.failed);
    calla_buf_char(&b, 'e');
    assert_true(b.failed);
    calla_buf_str(&b, "");
    assert_true(b.failed);
    assert_string_equal(b.data, "abcd");
    calla_buf_free(&b);
}

static void test_prefix_keeps_the_message(void **unused) {
    (void)unused;
    struct calla_err err;
    assert_int_equal(calla_fail(&err, CALLA_ERR_FORMAT, "%d is not %d", 1, 2), CALLA_ERR_FORMAT);
    calla_err_prefix(&err, "file %s", "a");
    assert_string_equal(err.message, "file a: 1 is not 2");
    assert_int_equal(err.code, CALLA_ERR_FORMAT);
}

static void test_a_message_is_one_line_of_whole_characters(void **unused) {
    (void)unused;
    struct calla_err err;
    char name[1200];
    calla_fail(&err, CALLA_ERR_FORMAT, "tensor %s", "a\nb\x1b[2J\x7f");
    assert_string_equal(err.message, "tensor a?b?[2J?");
    for (size_t i = 0; i + 1 < sizeof name; i += 2) memcpy(name + i, "\xc3\xa4", 2);
    name[sizeof name - 1] = 0;
    calla_fail(&err, CALLA_ERR_FORMAT, "%s", name);
    assert_int_equal(strlen(err.message), sizeof err.message - 2);   /* 1,023 bytes would end in half an "a umlaut" */
    calla_err_prefix(&err, "\tfile");
    assert_int_equal(strncmp(err.message, "?file: ", 7), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_appends_add_up),
        cmocka_unit_test(test_limit_fails_and_stays_failed),
        cmocka_unit_test(test_prefix_keeps_the_message),
        cmocka_unit_test(test_a_message_is_one_line_of_whole_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
