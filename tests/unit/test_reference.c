/* The pieces of the reference against vectors computed in f64, and the rotation
 * at far positions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <json-c/json.h>

#include "model/reference_parts.h"

enum { CAP = 512 };
static struct json_object *vectors;

static struct json_object *field(const char *name, const char *key) {
    struct json_object *v = NULL, *x = NULL;
    if (!json_object_object_get_ex(vectors, name, &v) || !json_object_object_get_ex(v, key, &x)) fail_msg("no %s.%s", name, key);
    return x;
}

static int flatten(struct json_object *v, float *out, int n) {
    if (!json_object_is_type(v, json_type_array)) {
        assert_true(n < CAP);
        out[n] = (float)json_object_get_double(v);
        return n + 1;
    }
    for (size_t i = 0; i < json_object_array_length(v); i++) n = flatten(json_object_array_get_idx(v, i), out, n);
    return n;
}

static int floats(float *out, const char *name, const char *key) { return flatten(field(name, key), out, 0); }

/* f32 values of f64 sums: 1e-6 of the largest value. */
static void near(const float *got, const float *want, int n) {
    float size = 0.0f;
    for (int i = 0; i < n; i++) size = fmaxf(size, fabsf(want[i]));
    for (int i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * size)) fail_msg("value %d is %.9g, not %.9g", i, (double)got[i], (double)want[i]);
}

static int read_vectors(void **state) {
    (void)state;
    vectors = json_object_from_file("tests/golden/data/math_vectors.json");
    return vectors == NULL;
}

static int free_vectors(void **state) {
    (void)state;
    json_object_put(vectors);
    return 0;
}

static void test_norm_multiplies_by_one_plus_w(void **state) {
    (void)state;
    float x[CAP], w[CAP], y[CAP], got[CAP];
    const int n = floats(x, "rmsnorm_zero_centred", "x");
    floats(w, "rmsnorm_zero_centred", "w");
    floats(y, "rmsnorm_zero_centred", "y");
    for (int i = 0; i < n; i++) w[i] += 1.0f;
    calla_ref_rms_norm(got, x, w, n);
    near(got, y, n);
}

static void test_gated_norm_gates_after_the_norm(void **state) {
    (void)state;
    float x[CAP], w[CAP], z[CAP], y[CAP], got[CAP];
    const int n = floats(x, "rmsnorm_gated", "x");
    floats(w, "rmsnorm_gated", "w");
    floats(z, "rmsnorm_gated", "z");
    floats(y, "rmsnorm_gated", "y");
    calla_ref_gated_norm(got, x, w, z, n);
    near(got, y, n);
}

static void test_conv_takes_the_oldest_tap_first(void **state) {
    (void)state;
    float x[CAP], w[CAP], y[CAP], got[CAP];
    const int n = floats(x, "conv1d_silu", "x_time_by_channel"), n_channels = floats(w, "conv1d_silu", "w_channel_by_tap") / CALLA_CONV;
    assert_int_equal(floats(y, "conv1d_silu", "y"), n);
    for (int c = 0; c < n_channels; c++) {
        float window[3] = { 0 };
        for (int t = 0; t < n / n_channels; t++)
            got[t * n_channels + c] = calla_ref_conv(w + c * CALLA_CONV, window, x[t * n_channels + c]);
    }
    near(got, y, n);
}

static void test_delta_rule_decays_then_writes_then_reads(void **state) {
    (void)state;
    const char *const name = "gated_delta_one_head";
    const int n_t = json_object_get_int(field(name, "T")), dk = json_object_get_int(field(name, "dk")), dv = json_object_get_int(field(name, "dv"));
    const float a_log = (float)json_object_get_double(field(name, "A_log")), dt_bias = (float)json_object_get_double(field(name, "dt_bias"));
    float q[CAP], k[CAP], v[CAP], a[CAP], b[CAP], g[CAP], beta[CAP], want[CAP], end[CAP], out[CAP], s[CAP] = { 0 };
    floats(q, name, "q_raw");
    floats(k, name, "k_raw");
    floats(v, name, "v");
    floats(a, name, "a");
    floats(b, name, "b");
    floats(g, name, "g");
    floats(beta, name, "beta");
    floats(want, name, "out");
    floats(end, name, "final_state_k_by_v");
    for (int t = 0; t < n_t; t++) {
        const float my_g = -expf(a_log) * calla_ref_softplus(a[t] + dt_bias), my_beta = calla_ref_sigmoid(b[t]);
        near(&my_g, &g[t], 1);
        near(&my_beta, &beta[t], 1);
        calla_ref_l2_norm(q + t * dk, q + t * dk, dk, 1.0f / sqrtf((float)dk));
        calla_ref_l2_norm(k + t * dk, k + t * dk, dk, 1.0f);
        calla_ref_delta(s, out + t * dv, q + t * dk, k + t * dk, v + t * dv, expf(my_g), my_beta, dk, dv);
    }
    near(out, want, n_t * dv);
    near(s, end, dk * dv);
}

static void test_router_renormalises_over_the_chosen(void **state) {
    (void)state;
    float logits[CAP], weights[CAP], want[CAP], ids[CAP];
    int chosen[CAP];
    const int n = floats(logits, "router_16_top4", "logits"), k = floats(ids, "router_16_top4", "ids");
    floats(want, "router_16_top4", "weights");
    calla_ref_route(logits, n, k, chosen, weights);
    for (int i = 0; i < k; i++) assert_int_equal(chosen[i], (int)ids[i]);
    near(weights, want, k);
}

static void test_router_takes_the_lower_expert_of_equals(void **state) {
    (void)state;
    const float logits[6] = { 1.0f, 2.0f, 2.0f, 2.0f, 0.0f, 1.0f };
    float weights[3];
    int chosen[3];
    calla_ref_route(logits, 6, 2, chosen, weights);
    assert_int_equal(chosen[0], 1);
    assert_int_equal(chosen[1], 2);
    assert_float_equal(weights[0], 0.5f, 0.0f);
}

static void test_rotation_of_position_five(void **state) {
    (void)state;
    float x[CAP], y[CAP];
    const int n = floats(x, "rope_partial_pos5", "x");
    assert_int_equal(floats(y, "rope_partial_pos5", "y"), n);
    calla_ref_rope(x, json_object_get_int(field("rope_partial_pos5", "position")));
    near(x, y, n < CALLA_HEAD ? n : CALLA_HEAD);
}

/* The last position of the context against long double; an f32 angle is wrong
 * by up to 0.016 there. */
static void test_rotation_is_exact_at_the_last_position(void **state) {
    (void)state;
    const int pos = CALLA_MAX_CTX - 1;
    for (int i = 0; i < CALLA_ROTARY / 2; i++) {
        float head[CALLA_HEAD] = { 0 };
        const long double angle = pos * powl(10000000.0L, -2.0L * i / CALLA_ROTARY);
        head[i] = 1.0f;
        head[100] = 3.0f;
        calla_ref_rope(head, pos);
        assert_true(fabs((double)head[i] - (double)cosl(angle)) < 1e-7);
        assert_true(fabs((double)head[i + CALLA_ROTARY / 2] - (double)sinl(angle)) < 1e-7);
        assert_true(head[100] == 3.0f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_multiplies_by_one_plus_w),
        cmocka_unit_test(test_gated_norm_gates_after_the_norm),
        cmocka_unit_test(test_conv_takes_the_oldest_tap_first),
        cmocka_unit_test(test_delta_rule_decays_then_writes_then_reads),
        cmocka_unit_test(test_router_renormalises_over_the_chosen),
        cmocka_unit_test(test_router_takes_the_lower_expert_of_equals),
        cmocka_unit_test(test_rotation_of_position_five),
        cmocka_unit_test(test_rotation_is_exact_at_the_last_position),
    };
    return cmocka_run_group_tests(tests, read_vectors, free_vectors);
}
