#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"

/* The known answers that Random123 ships for philox4x32, 10 rounds. */
static void test_philox_gives_the_published_answers(void **unused) {
    (void)unused;
    static const struct { uint32_t counter[4], key[2], want[4]; } cases[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[4];
        calla_philox(out, cases[i].counter, cases[i].key);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
}

static void test_block_is_philox_of_seed_stream_and_index(void **unused) {
    (void)unused;
    const uint32_t counter[4] = { 0x9abcdef0, 0x12345678, 7, 1 }, key[2] = { 0x89abcdef, 0x01234567 };
    uint32_t a[4], b[4];
    calla_philox(a, counter, key);
    calla_rng_block(b, 0x0123456789abcdef, 0x100000007, 0x123456789abcdef0);
    assert_memory_equal(a, b, sizeof a);
}

static void test_unit_stays_inside_its_ends(void **unused) {
    (void)unused;
    assert_true(calla_rng_unit(0) == 0x1p-33);
    assert_true(calla_rng_unit(0xffffffff) < 1.0);
    assert_true(calla_rng_unit(0x80000000) > 0.5 && calla_rng_unit(0x7fffffff) < 0.5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_gives_the_published_answers),
        cmocka_unit_test(test_block_is_philox_of_seed_stream_and_index),
        cmocka_unit_test(test_unit_stays_inside_its_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
