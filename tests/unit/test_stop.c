#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "server/stop.h"

/* What a reader of the whole text would send: all before the match that ends first. */
static size_t sent_of(const char *text, const char *const *stops, int n_stops) {
    const size_t n = strlen(text);
    size_t first_end = SIZE_MAX, begin = n;
    for (int i = 0; i < n_stops; i++) {
        const char *at = strstr(text, stops[i]);
        if (at == NULL || *stops[i] == 0) continue;
        const size_t end = (size_t)(at - text) + strlen(stops[i]);
        if (end < first_end || (end == first_end && (size_t)(at - text) < begin)) {
            first_end = end;
            begin = (size_t)(at - text);
        }
    }
    return begin;
}

/* Feeds text in pieces; cut[i] set: a piece ends before byte i.  At no moment is more out than the answer holds. */
static void check(const char *text, const char *const *stops, int n_stops, const unsigned char *cut) {
    struct stop_strings strings = { 0 };
    struct stop_matcher m = { .strings = &strings };
    struct calla_buf out = { 0 };
    const size_t n = strlen(text), want = sent_of(text, stops, n_stops);
    size_t from = 0;
    for (int i = 0; i < n_stops; i++) assert_int_equal(stop_add(&strings, stops[i], strlen(stops[i]), NULL), 0);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && !cut[i]) continue;
        stop_feed(&m, text + from, i - from, &out);
        from = i;
        assert_true(out.n <= want);
    }
    assert_int_equal(m.matched, want < n);
    stop_finish(&m, &out);
    assert_int_equal(out.n, want);
    assert_true(want == 0 || memcmp(out.data, text, want) == 0);
    calla_buf_free(&out);
    stop_free(&m);
    stop_strings_free(&strings);
}

static void UR45_a_stop_string_may_span_tokens_and_is_never_sent(void **state) {
    static const char *const observation[] = { "Observation:" };
    static const char *const several[] = { "END", "\n\n", "", "ENDE" };
    static const char *const overlapping[] = { "abab", "bab" };
    unsigned char cut[64];
    (void)state;
    for (int each = 0; each < 2; each++) {
        memset(cut, each, sizeof cut);
        check("AB Observation: x", observation, 1, cut);
        check("AB Observatio", observation, 1, cut);
        check("AB ObservObservation:", observation, 1, cut);
        check("x EN", several, 4, cut);
        check("x ENDE", several, 4, cut);
        check("x\n\ny", several, 4, cut);
        check("aababab", overlapping, 2, cut);
        check("", observation, 1, cut);
    }
    memset(cut, 0, sizeof cut);
    cut[8] = 1;                                   /* "AB Obser" + "vation: x" */
    check("AB Observation: x", observation, 1, cut);
}

/* Small alphabets make prefixes and overlaps; every cut. */
static void any_text_any_cut(void **state) {
    (void)state;
    uint32_t x = 12345;
    print_message("seed %u\n", (unsigned)x);
    for (int round = 0; round < 20000; round++) {
        char text[25], stop[3][5];
        unsigned char cut[25];
        const char *stops[3];
        int n_stops;
#define NEXT(n) ((int)((x = x * 1664525u + 1013904223u) >> 16) % (n))
        const int n = NEXT(24);
        for (int i = 0; i < n; i++) text[i] = (char)('a' + NEXT(2));
        text[n] = 0;
        n_stops = NEXT(4);
        for (int s = 0; s < n_stops; s++) {
            const int len = 1 + NEXT(4);
            for (int i = 0; i < len; i++) stop[s][i] = (char)('a' + NEXT(2));
            stop[s][len] = 0;
            stops[s] = stop[s];
        }
        for (int i = 0; i < 25; i++) cut[i] = (unsigned char)NEXT(2);
        check(text, stops, n_stops, cut);
    }
}

static void too_many_or_too_long_is_an_error(void **state) {
    struct stop_strings s = { 0 };
    struct calla_err err;
    char text[SERVER_MAX_STOP_BYTES + 2];
    (void)state;
    memset(text, 'x', sizeof text);
    assert_int_equal(stop_add(&s, text, sizeof text, &err), CALLA_ERR_ARGUMENT);
    for (int i = 0; i < SERVER_MAX_STOPS; i++) assert_int_equal(stop_add(&s, text, 3, &err), 0);
    assert_int_equal(stop_add(&s, text, 3, &err), CALLA_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "16"));
    stop_strings_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(UR45_a_stop_string_may_span_tokens_and_is_never_sent),
        cmocka_unit_test(any_text_any_cut),
        cmocka_unit_test(too_many_or_too_long_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
