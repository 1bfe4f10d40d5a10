#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/bf16.h"
#include "base/rng.h"
#include "model/matrix.h"
#include "mlx_groups.h"

static void check_group(const struct mlx_group *g) {
    float w[64], s, b;
    uint8_t q[64];
    for (int i = 0; i < 64; i++) w[i] = calla_bf16_to_f32(g->weights[i]);
    calla_quantise_group(w, g->bits, q, &s, &b);
    assert_memory_equal(q, g->q, 64);
    assert_true(s == g->scale_f32 && b == g->bias_f32);
    assert_int_equal(calla_bf16_from_f32(s), g->scale);
    assert_int_equal(calla_bf16_from_f32(b), g->bias);
}

static void test_quantiser_gives_what_mlx_gives(void **unused) {
    (void)unused;
    check_group(&mlx_group_4);
    check_group(&mlx_group_8);
}

/* The stored words at an odd address: what files have. */
static void check_words(const struct mlx_group *g) {
    unsigned char bytes[1 + 64];
    unsigned char scale[3], bias[3];
    uint8_t q[64];
    uint16_t s, b;
    float values[64];
    memcpy(bytes + 1, g->words, (size_t)g->bits * 8);
    memcpy(scale + 1, &g->scale, 2);
    memcpy(bias + 1, &g->bias, 2);
    const enum calla_format f = g->bits == 4 ? CALLA_Q4 : CALLA_Q8;
    const struct calla_matrix m = { .n_rows = 1, .n_cols = 64, .format = f, .stored = f, .data = bytes + 1, .scales = scale + 1, .biases = bias + 1 };
    calla_matrix_row_quant(&m, 0, q, &s, &b);
    assert_memory_equal(q, g->q, 64);
    assert_int_equal(s, g->scale);
    assert_int_equal(b, g->bias);
    calla_matrix_row_f32(&m, 0, values);
    for (int i = 0; i < 64; i++) {
        assert_true(values[i] == calla_bf16_to_f32(g->scale) * (float)q[i] + calla_bf16_to_f32(g->bias));
        /* the vector's own values were made with the f32 scale: at most half a bf16 step of scale and bias away */
        assert_true(fabsf(values[i] - g->values[i]) <= 0x1p-8f * (fabsf(g->scale_f32) * (float)q[i] + fabsf(g->bias_f32)));
    }
}

static void test_stored_words_unpack_at_any_address(void **unused) {
    (void)unused;
    check_words(&mlx_group_4);
    check_words(&mlx_group_8);
}

/* The description of docs/model.md, in its own order of operations. */
static void slow_quantise(const float *w, int bits, uint8_t *q, float *scale, float *bias) {
    float hi = w[0], lo = w[0], s, edge, b = 0;
    const float top = (float)((1 << bits) - 1);
    for (int i = 1; i < 64; i++) {
        hi = fmaxf(hi, w[i]);
        lo = fminf(lo, w[i]);
    }
    s = fmaxf((hi - lo) / top, 1e-7f);
    if (fabsf(lo) > fabsf(hi)) {
        edge = lo;
    } else {
        s = -s;
        edge = hi;
    }
    const float q0 = rintf(edge / s);
    if (q0 != 0) {
        s = edge / q0;
        b = edge;
    }
    for (int i = 0; i < 64; i++) q[i] = (uint8_t)fminf(fmaxf(rintf((w[i] - b) / s), 0), top);
    *scale = s;
    *bias = b;
}

static float random_value(uint64_t index, uint32_t kind) {
    uint32_t r[4];
    calla_rng_block(r, 20240607, kind, index);
    const float u = (float)calla_rng_unit(r[0]) * 2 - 1;
    switch (kind % 6) {
    case 0: return u;
    case 1: return calla_bf16_to_f32(calla_bf16_from_f32(u * 0.02f));
    case 2: return fabsf(u) * 1e-6f;                          /* near the least scale */
    case 3: return (float)(int)(u * 16) * 0.5f;               /* many ties           */
    case 4: return 1 + u * 0x1p-10f;                          /* far from zero       */
    default: return r[1] % 8 == 0 ? u * 1e4f : u * 1e-4f;     /* outliers            */
    }
}

static void test_quantiser_equals_its_description(void **unused) {
    (void)unused;
    for (uint32_t n = 0; n < 30000; n++) {
        float w[64], s[2], b[2];
        uint8_t q[2][64];
        const int bits = n % 2 ? 8 : 4;
        for (uint64_t i = 0; i < 64; i++) w[i] = random_value(n * 64 + i, n);
        calla_quantise_group(w, bits, q[0], &s[0], &b[0]);
        slow_quantise(w, bits, q[1], &s[1], &b[1]);
        assert_memory_equal(q[0], q[1], 64);
        assert_true(s[0] == s[1] && b[0] == b[1]);
    }
}

static void test_constant_and_hostile_groups_stay_defined(void **unused) {
    (void)unused;
    float w[64], s, b;
    uint8_t q[64];
    for (int i = 0; i < 64; i++) w[i] = 0;
    calla_quantise_group(w, 4, q, &s, &b);
    for (int i = 0; i < 64; i++) assert_true(s * q[i] + b == 0);
    for (int i = 0; i < 64; i++) w[i] = 0.75f;
    calla_quantise_group(w, 4, q, &s, &b);
    for (int i = 0; i < 64; i++) assert_true(s * q[i] + b == 0.75f);
    for (int i = 0; i < 64; i++) w[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -FLT_MAX;
    calla_quantise_group(w, 4, q, &s, &b);
    for (int i = 0; i < 64; i++) assert_true(q[i] < 16);
}

static void test_quantised_while_read_equals_stored_codes(void **unused) {
    (void)unused;
    enum { ROWS = 5, COLS = 192 };
    uint16_t plain[ROWS * COLS];
    uint8_t q[COLS];
    uint16_t s[COLS / 64], b[COLS / 64];
    float values[COLS];
    for (int i = 0; i < ROWS * COLS; i++) plain[i] = calla_bf16_from_f32(random_value((uint64_t)i, 0));
    for (int bits = 4; bits <= 8; bits += 4) {
        const struct calla_matrix m = { .n_rows = ROWS, .n_cols = COLS, .format = bits == 4 ? CALLA_Q4 : CALLA_Q8, .stored = CALLA_BF16,
                                        .data = (const unsigned char *)plain };
        for (int r = 0; r < ROWS; r++) {
            calla_matrix_row_quant(&m, r, q, s, b);
            calla_matrix_row_f32(&m, r, values);
            for (int g = 0; g < COLS / 64; g++) {
                float w[64], scale, bias;
                uint8_t want[64];
                for (int i = 0; i < 64; i++) w[i] = calla_bf16_to_f32(plain[r * COLS + g * 64 + i]);
                calla_quantise_group(w, bits, want, &scale, &bias);
                assert_memory_equal(q + g * 64, want, 64);
                assert_int_equal(s[g], calla_bf16_from_f32(scale));
                assert_int_equal(b[g], calla_bf16_from_f32(bias));
                for (int i = 0; i < 64; i++)
                    assert_true(values[g * 64 + i] == calla_bf16_to_f32(s[g]) * (float)want[i] + calla_bf16_to_f32(b[g]));
            }
        }
    }
}

static void test_plain_formats_read_as_they_are(void **unused) {
    (void)unused;
    unsigned char bytes[1 + 4 * 128];
    float out[64];
    const enum calla_format formats[] = { CALLA_F32, CALLA_F16, CALLA_BF16 };
    for (int k = 0; k < 3; k++) {
        const size_t size = formats[k] == CALLA_F32 ? 4 : 2;
        for (int i = 0; i < 128; i++) {
            const float x = (float)(i - 64) * 0.125f;
            const uint32_t bits = calla_f32_bits(x);
            const uint16_t h = formats[k] == CALLA_F16 ? calla_f16_from_f32(x) : calla_bf16_from_f32(x);
            memcpy(bytes + 1 + size * (size_t)i, size == 4 ? (const void *)&bits : (const void *)&h, size);
        }
        const struct calla_matrix m = { .n_rows = 2, .n_cols = 64, .format = formats[k], .stored = formats[k], .data = bytes + 1 };
        for (int r = 0; r < 2; r++) {
            calla_matrix_row_f32(&m, r, out);
            for (int i = 0; i < 64; i++) assert_true(out[i] == (float)(r * 64 + i - 64) * 0.125f);
        }
    }
}

static void test_bytes_count_codes_and_scales(void **unused) {
    (void)unused;
    struct calla_matrix m = { .n_rows = 10, .n_cols = 128, .format = CALLA_Q4 };
    assert_int_equal(calla_matrix_bytes(&m), 10 * (64 + 8));
    m.format = CALLA_Q8;
    assert_int_equal(calla_matrix_bytes(&m), 10 * (128 + 8));
    m.format = CALLA_BF16;
    assert_int_equal(calla_matrix_bytes(&m), 10 * 256);
    m.format = CALLA_F32;
    assert_int_equal(calla_matrix_bytes(&m), 10 * 512);
}

static void test_the_value_that_is_not_finite_is_found(void **unused) {
    (void)unused;
    enum { ROWS = 300, COLS = 128 };
    static uint16_t scales[ROWS * 2], biases[ROWS * 2];
    static uint8_t data[ROWS * COLS / 2];
    static float plain[ROWS * COLS];
    struct calla_bad_value bad;
    const struct calla_matrix m = { .n_rows = ROWS, .n_cols = COLS, .format = CALLA_Q4, .stored = CALLA_Q4, .data = data,
                                    .scales = (unsigned char *)scales, .biases = (unsigned char *)biases };
    assert_false(calla_matrix_bad_value(&m, &bad));
    biases[250 * 2 + 1] = 0xff80;   /* -inf */
    assert_true(calla_matrix_bad_value(&m, &bad));
    assert_string_equal(bad.part, "biases");
    assert_true(bad.row == 250 && bad.col == 1 && bad.value == -INFINITY);
    scales[7] = 0x7fc1;
    assert_true(calla_matrix_bad_value(&m, &bad));
    assert_string_equal(bad.part, "scales");
    assert_true(bad.row == 3 && bad.col == 1 && isnan(bad.value));
    const struct calla_matrix p = { .n_rows = ROWS, .n_cols = COLS, .format = CALLA_F32, .stored = CALLA_F32, .data = (unsigned char *)plain };
    assert_false(calla_matrix_bad_value(&p, &bad));
    plain[ROWS * COLS - 1] = INFINITY;
    assert_true(calla_matrix_bad_value(&p, &bad));
    assert_true(bad.row == ROWS - 1 && bad.col == COLS - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiser_gives_what_mlx_gives),
        cmocka_unit_test(test_stored_words_unpack_at_any_address),
        cmocka_unit_test(test_quantiser_equals_its_description),
        cmocka_unit_test(test_constant_and_hostile_groups_stay_defined),
        cmocka_unit_test(test_quantised_while_read_equals_stored_codes),
        cmocka_unit_test(test_plain_formats_read_as_they_are),
        cmocka_unit_test(test_bytes_count_codes_and_scales),
        cmocka_unit_test(test_the_value_that_is_not_finite_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
