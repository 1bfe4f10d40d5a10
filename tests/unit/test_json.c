#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"

static void prints_as(const char *text, size_t n, const char *want, size_t n_want) {
    struct json_object *v;
    struct calla_err err = { 0 };
    struct calla_buf b = { 0 };
    if (calla_json_parse(text, n, &v, &err) != 0) fail_msg("%s: %s", text, err.message);
    calla_json_print(&b, v);
    if (b.n != n_want || memcmp(b.data, want, n_want) != 0) fail_msg("%s printed as %s, not %s", text, b.data, want);
    calla_buf_free(&b);
    json_object_put(v);
}

#define SAME(text, want) prints_as(text, sizeof text - 1, want, sizeof want - 1)

static void fails(const char *text, size_t n, int code, const char *part) {
    struct json_object *v;
    struct calla_err err = { 0 };
    const int rc = calla_json_parse(text, n, &v, &err);
    if (rc != code) fail_msg("%s: status %d (%s), not %d", text, rc, err.message, code);
    if (strstr(err.message, part) == NULL) fail_msg("%s: '%s' does not say '%s'", text, err.message, part);
    assert_null(v);
}

#define BAD(text, part) fails(text, sizeof text - 1, CALLA_ERR_FORMAT, part)

static void test_integers_keep_all_digits(void **unused) {
    (void)unused;
    SAME("[0,-0,-1,9223372036854775807,-9223372036854775808,9223372036854775808,18446744073709551615]",
         "[0, 0, -1, 9223372036854775807, -9223372036854775808, 9223372036854775808, 18446744073709551615]");
    SAME("[18446744073709551616,-9223372036854775809]", "[18446744073709551616, -9223372036854775809]");
    SAME("123456789012345678901234567890123456789012345678901234567890",
         "123456789012345678901234567890123456789012345678901234567890");
}

static void test_floats_print_as_python_does(void **unused) {
    (void)unused;
    SAME("[1e5,1e-7,1E400,-1e400,-0.0,0.1,1.50,1e16,1e15,123456789012345678.0,0.0001,0.00001,5e-324,2.2250738585072014e-308]",
         "[100000.0, 1e-07, Infinity, -Infinity, -0.0, 0.1, 1.5, 1e+16, 1000000000000000.0, 1.2345678901234568e+17, 0.0001, 1e-05, "
         "5e-324, 2.2250738585072014e-308]");
    SAME("[0e99999999999999999999,1e-99999999999999999999,0.00000000000000000000000000000000000000000001e44]", "[0.0, 0.0, 1.0]");
}

/* 2^53 + 1 is half way between two doubles; any digit after it decides. */
static void test_a_late_digit_still_decides_the_rounding(void **unused) {
    (void)unused;
    char text[2048];
    memset(text, '0', sizeof text);
    memcpy(text, "9007199254740993.", 17);
    prints_as(text, 1500, "9007199254740992.0", 18);
    text[1499] = '1';
    prints_as(text, 1500, "9007199254740994.0", 18);
}

static void test_strings_survive(void **unused) {
    (void)unused;
    SAME("\"a\\u0000b\"", "\"a\\u0000b\"");
    SAME("{\"k\\u0000\\u0000x\":1}", "{\"k\\u0000\\u0000x\": 1}");
    SAME("\"\\ud83d\\ude00 \\u00e9 \\/ \\b\\f\\n\\r\\t\\\\\\\" \\u001f \x7f\"",
         "\"\xF0\x9F\x98\x80 \xC3\xA9 / \\b\\f\\n\\r\\t\\\\\\\" \\u001f \x7f\"");
    SAME("[\"\\ud83d\",\"\\ude00x\",\"\\ud83d\\ud83d\\ude00\",\"\\ud83d\\n\"]",
         "[\"\xEF\xBF\xBD\", \"\xEF\xBF\xBDx\", \"\xEF\xBF\xBD\xF0\x9F\x98\x80\", \"\xEF\xBF\xBD\\n\"]");
    SAME("\xEF\xBB\xBF \"\"", "\"\"");
}

static void test_objects_keep_order_and_the_last_of_equal_keys(void **unused) {
    (void)unused;
    SAME(" { \"b\" : 1 , \"a\" : [ ] , \"b\" : { } , \"\" : null } ", "{\"b\": {}, \"a\": [], \"\": null}");
}

static void test_compact_has_no_blanks(void **unused) {
    (void)unused;
    struct json_object *v;
    struct calla_buf b = { 0 };
    const char text[] = "{\"a\": [1, true, null, \"x, y: z\"], \"b\": {}}";
    assert_int_equal(calla_json_parse(text, sizeof text - 1, &v, NULL), 0);
    calla_json_print_compact(&b, v);
    assert_string_equal(b.data, "{\"a\":[1,true,null,\"x, y: z\"],\"b\":{}}");
    calla_buf_free(&b);
    json_object_put(v);
}

static void test_what_is_not_json_is_named_with_its_byte(void **unused) {
    (void)unused;
    BAD("", "ends at byte 0");
    BAD("  ", "ends at byte 2");
    BAD("NaN", "byte 0");
    BAD("[1,Infinity]", "byte 3");
    BAD("[-Infinity]", "byte 2");
    BAD("{'a':1}", "byte 1");
    BAD("\"a\nb\"", "byte 2 (0x0a)");
    BAD("[1] x", "byte 4");
    BAD("[1]]", "nothing may follow");
    BAD("[1,]", "byte 3");
    BAD("{\"a\":1,}", "byte 7");
    BAD("{\"a\" 1}", "byte 5");
    BAD("{\"a\":}", "byte 5");
    BAD("{\"a\":1 \"b\":2}", "byte 7");
    BAD("/* c */ 1", "byte 0");
    BAD("01", "leading zeros");
    BAD("-01", "leading zeros");
    BAD("1.", "ends at byte 2");
    BAD(".5", "byte 0");
    BAD("1.e5", "byte 2");
    BAD("1e", "exponent");
    BAD("+1", "byte 0");
    BAD("-", "ends at byte 1");
    BAD("0x10", "byte 1");
    BAD("tru", "byte 0");
    BAD("True", "byte 0");
    BAD("\"abc", "no closing quote");
    BAD("\"\\x\"", "byte 2");
    BAD("\"\\u12g4\"", "byte 2");
    BAD("\"\\u12", "byte 2");
    BAD("[1", "ends at byte 2");
    BAD("\0", "byte 0 (0x00)");
    BAD("\"a\0b\"", "byte 2 (0x00)");
}

static void test_bytes_that_are_not_utf8_are_refused(void **unused) {
    (void)unused;
    BAD("\"a\xff\"", "byte 2 (0xff): not UTF-8");
    BAD("\"\xC3\"", "not UTF-8");
    BAD("\"\xC0\x80\"", "not UTF-8");
    BAD("{\"\xC0\x80\":1}", "not UTF-8");
    BAD("\"\xE0\x9F\xBF\"", "not UTF-8");
    BAD("\"\xED\xA0\x80\"", "not UTF-8");
    BAD("\"\xF0\x8F\xBF\xBF\"", "not UTF-8");
    BAD("\"\xF4\x90\x80\x80\"", "not UTF-8");
    BAD("\"\xF0\x9F\x98", "not UTF-8");
    SAME("\"\xEF\xBF\xBF\xF4\x8F\xBF\xBF\xED\x9F\xBF\"", "\"\xEF\xBF\xBF\xF4\x8F\xBF\xBF\xED\x9F\xBF\"");
}

static void nested(int depth, int want) {
    const size_t n = (size_t)depth * 2;
    char *text = malloc(n + 1);
    struct json_object *v;
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    assert_int_equal(calla_json_parse(text, n, &v, NULL), want);
    json_object_put(v);
    free(text);
}

static void test_depth_is_bounded(void **unused) {
    (void)unused;
    nested(1, 0);
    nested(CALLA_JSON_DEPTH, 0);
    nested(CALLA_JSON_DEPTH + 1, CALLA_ERR_LIMIT);
    nested(1000000, CALLA_ERR_LIMIT);
}

static void test_a_tree_that_outgrows_its_text_is_refused(void **unused) {
    (void)unused;
    const size_t n = 3000000;
    char *text = malloc(n);
    memset(text, ' ', n);
    text[0] = '[';
    for (size_t i = 1; i + 2 < n; i += 3) memcpy(text + i, "{},", 3);
    fails(text, n, CALLA_ERR_LIMIT, "send fewer");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_keep_all_digits),
        cmocka_unit_test(test_floats_print_as_python_does),
        cmocka_unit_test(test_a_late_digit_still_decides_the_rounding),
        cmocka_unit_test(test_strings_survive),
        cmocka_unit_test(test_objects_keep_order_and_the_last_of_equal_keys),
        cmocka_unit_test(test_compact_has_no_blanks),
        cmocka_unit_test(test_what_is_not_json_is_named_with_its_byte),
        cmocka_unit_test(test_bytes_that_are_not_utf8_are_refused),
        cmocka_unit_test(test_depth_is_bounded),
        cmocka_unit_test(test_a_tree_that_outgrows_its_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
