#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bf16.h"

static void test_every_bf16_survives_the_way_through_f32(void **unused) {
    (void)unused;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = calla_bf16_to_f32((uint16_t)h);
        if (isnan(f)) assert_true(isnan(calla_bf16_to_f32(calla_bf16_from_f32(f))));
        else assert_int_equal(calla_bf16_from_f32(f), h);
    }
}

static void test_every_f16_survives_the_way_through_f32(void **unused) {
    (void)unused;
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = calla_f16_to_f32((uint16_t)h);
        if (isnan(f)) assert_true(isnan(calla_f16_to_f32(calla_f16_from_f32(f))));
        else assert_int_equal(calla_f16_from_f32(f), h);
    }
}

/* Between each pair of neighbours: the middle goes to the even one, and the
 * floats next to the middle to the nearer one. */
static void check_rounding(uint16_t (*from)(float), float (*to)(uint16_t), uint32_t last) {
    for (uint32_t h = 0; h < last; h++) {
        const float a = to((uint16_t)h), b = to((uint16_t)(h + 1)), mid = (float)(((double)a + (double)b) / 2);
        const uint32_t even = h % 2 == 0 ? h : h + 1;
        assert_int_equal(from(mid), even);
        assert_int_equal(from(-mid), even | 0x8000u);
        assert_int_equal(from(nextafterf(mid, 0)), h);
        assert_int_equal(from(nextafterf(mid, INFINITY)), h + 1);
    }
}

static void test_ties_go_to_even(void **unused) {
    (void)unused;
    check_rounding(calla_bf16_from_f32, calla_bf16_to_f32, 0x7f7f);   /* below the largest finite one */
    check_rounding(calla_f16_from_f32, calla_f16_to_f32, 0x7bff);
}

static void test_too_large_becomes_infinite(void **unused) {
    (void)unused;
    assert_int_equal(calla_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(calla_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(calla_f16_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(calla_bf16_from_f32(3.4e38f), 0x7f80);
}

static void test_f16_values(void **unused) {
    (void)unused;
    assert_true(calla_f16_to_f32(0x3c00) == 1.0f);
    assert_true(calla_f16_to_f32(0xc000) == -2.0f);
    assert_true(calla_f16_to_f32(0x0001) == 0x1p-24f);
    assert_true(calla_f16_to_f32(0x7bff) == 65504.0f);
    assert_true(isinf(calla_f16_to_f32(0x7c00)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bf16_survives_the_way_through_f32),
        cmocka_unit_test(test_every_f16_survives_the_way_through_f32),
        cmocka_unit_test(test_ties_go_to_even),
        cmocka_unit_test(test_too_large_becomes_infinite),
        cmocka_unit_test(test_f16_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
