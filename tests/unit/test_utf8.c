#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/utf8.h"
#include "text/tokenizer.h"

#define FFFD "\xEF\xBF\xBD"

/* Text and what Python's bytes.decode("utf-8", "replace") makes of it. */
static const struct { const char *in, *out; } repairs[] = {
    { "abc", "abc" },
    { "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\xA9", "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\xA9" },
    { "\xFF", FFFD },
    { "a\x80z", "a" FFFD "z" },
    { "\xC0\xAF", FFFD FFFD },                             /* overlong             */
    { "\xE0\x80\xAF", FFFD FFFD FFFD },
    { "\xED\xA0\x80", FFFD FFFD FFFD },                    /* a surrogate          */
    { "\xF4\x90\x80\x80", FFFD FFFD FFFD FFFD },           /* above U+10FFFF       */
    { "\xE4\xB8", FFFD },                                  /* one part, one U+FFFD */
    { "\xE4\xB8z", FFFD "z" },
    { "\xF0\x9F\x91" "\xF0\x9F\x91\xA9", FFFD "\xF0\x9F\x91\xA9" },
    { "\xF0\x9F\xC3\xA9", FFFD "\xC3\xA9" },
    { "\xF0\x80\x80\x41", FFFD FFFD FFFD "A" },
    { "\xF1\x80\x80\xE1\x80\xC2", FFFD FFFD FFFD },
};
enum { N_REPAIRS = sizeof repairs / sizeof *repairs };

static void test_repair_replaces_each_maximal_part_once(void **unused) {
    (void)unused;
    for (int i = 0; i < N_REPAIRS; i++) {
        struct calla_buf b = { 0 };
        calla_utf8_repair(&b, repairs[i].in, strlen(repairs[i].in));
        assert_string_equal(b.data, repairs[i].out);
        calla_buf_free(&b);
    }
}

static void test_detokenizer_gives_the_same_for_every_cut(void **unused) {
    (void)unused;
    for (int i = 0; i < N_REPAIRS; i++) {
        const char *in = repairs[i].in;
        const size_t n = strlen(in);
        for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
            struct calla_detokenizer d = { 0 };
            struct calla_buf b = { 0 };
            size_t begin = 0;
            for (size_t end = 1; end <= n; end++) {
                if (end < n && !(cuts >> (end - 1) & 1)) continue;
                calla_detokenizer_push(&d, in + begin, end - begin, &b);
                assert_int_equal(calla_utf8_valid_prefix(b.data ? b.data : "", b.n), b.n);
                begin = end;
            }
            calla_detokenizer_finish(&d, &b);
            assert_string_equal(b.data, repairs[i].out);
            calla_buf_free(&b);
        }
    }
}

static void test_every_code_point_survives(void **unused) {
    (void)unused;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char s[4];
        uint32_t back;
        const int n = calla_utf8_encode(cp, s);
        if (cp >= 0xD800 && cp < 0xE000) {
            assert_int_equal(calla_utf8_decode(s, (size_t)n, &back), -1);
            continue;
        }
        assert_int_equal(calla_utf8_decode(s, (size_t)n, &back), n);
        assert_int_equal(back, cp);
        for (int k = 1; k < n; k++) {
            assert_int_equal(calla_utf8_decode(s, (size_t)k, &back), -k);
            assert_int_equal(calla_utf8_unfinished(s, (size_t)k), k);
        }
        assert_int_equal(calla_utf8_unfinished(s, (size_t)n), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repair_replaces_each_maximal_part_once),
        cmocka_unit_test(test_detokenizer_gives_the_same_for_every_cut),
        cmocka_unit_test(test_every_code_point_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
