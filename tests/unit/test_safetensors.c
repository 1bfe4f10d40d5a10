#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/safetensors.h"

/* A file of that header and n_data bytes, in memory of exactly its size, so
 * that the sanitizer sees a read past it. */
static int parse(const char *json, size_t n_data, struct calla_safetensors *st, struct calla_err *err) {
    const size_t n = strlen(json);
    unsigned char *file = calloc(1, 8 + n + n_data);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)(n >> 8 * i);
    memcpy(file + 8, json, n);
    const int rc = calla_safetensors_parse(st, file, 8 + n + n_data, "f.safetensors", err);
    free(file);
    return rc;
}

static void refused(const char *json, size_t n_data, const char *part) {
    struct calla_safetensors st;
    struct calla_err err = { 0 };
    assert_int_equal(parse(json, n_data, &st, &err), CALLA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "f.safetensors"));
    assert_null(strpbrk(err.message, "\n\r\x1b"));
    if (strstr(err.message, part) == NULL) fail_msg("'%s' does not say '%s'", err.message, part);
    assert_null(st.tensors);
}

static void test_a_table_is_read(void **unused) {
    (void)unused;
    struct calla_safetensors st;
    struct calla_err err;
    char shape[64];
    assert_int_equal(parse("{\"__metadata__\": {\"format\":\"mlx\"}, \"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},\n"
                           "\"\\u00e4\\ud83d\\ude00\\/\":{ \"data_offsets\":[0,4],\"shape\":[ ] ,\"dtype\":\"F32\"}, "
                           "\"empty\":{\"dtype\":\"U8\",\"shape\":[0,18446744073709551615],\"data_offsets\":[16,16]}}   ", 16, &st, &err), 0);
    assert_int_equal(st.n_tensors, 3);
    assert_int_equal(st.data_bytes, 16);
    const struct calla_tensor *b = calla_safetensors_find(&st, "b"), *u = calla_safetensors_find(&st, "\xc3\xa4\xf0\x9f\x98\x80/");
    assert_non_null(b);
    assert_non_null(u);
    assert_null(calla_safetensors_find(&st, "c"));
    assert_true(b->dtype == CALLA_DT_BF16 && b->n_dims == 2 && b->dims[0] == 2 && b->dims[1] == 3 && b->begin == 4 && b->end == 16);
    assert_true(u->dtype == CALLA_DT_F32 && u->n_dims == 0 && u->begin == 0 && u->end == 4);
    calla_tensor_shape_text(b, shape, sizeof shape);
    assert_string_equal(shape, "[2, 3]");
    calla_tensor_shape_text(u, shape, sizeof shape);
    assert_string_equal(shape, "[]");
    calla_safetensors_free(&st);
}

#define ONE(body) "{\"x\":{" body "}}"
static void test_what_is_not_json_is_refused(void **unused) {
    (void)unused;
    refused("", 0, "'{' is expected");
    refused(" {}", 0, "'{' is expected");
    refused("{}", 0, "holds no tensor");
    refused("{\"x\":", 0, "an object with dtype");
    refused("{\"x", 0, "ends inside a string");
    refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} {", 4, "behind the last");
    refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},}", 4, "string is expected");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1,],\"data_offsets\":[0,4]"), 4, "whole number");
    refused("{'x':1}", 0, "string is expected");
    refused("{\"\xff\":1}", 0, "UTF-8");
    refused("{\"\\ud800\":1}", 0, "wrong escape");
    refused("{\"\\udc00\":1}", 0, "wrong escape");
    refused("{\"\\u0000\":1}", 0, "NUL");
    refused("{\"\\u000a\":1}", 0, "control character");
    refused("{\"\":1}", 0, "empty");
    refused("{\"a\nb\":1}", 0, "control character");
    refused("{\"__metadata__\":{\"a\":1}}", 0, "string is expected");
    refused("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice");
}

static void test_numbers_are_whole_and_fit(void **unused) {
    (void)unused;
    refused(ONE("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4, "whole number");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4, "not whole");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]"), 4, "not whole");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[01],\"data_offsets\":[0,4]"), 4, "whole number");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]"), 4, "whole number");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]"), 4, "2^64");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4, "more than 8");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4, "more than 2");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4, "two numbers");
}

static void test_range_and_shape_agree(void **unused) {
    (void)unused;
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1000,1000],\"data_offsets\":[0,4]"), 4, "4000000 bytes, data_offsets hold 4");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]"), 4, "before their begin 4");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 4, "4 bytes are missing");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775808]"), 4, "are missing");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]"), 4, "more than 2^64");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]"), 4, "more than 2^64");
    refused(ONE("\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "unknown dtype 'F33'");
    refused(ONE("\"dtype\":\"F3\\n2\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "unknown dtype 'F3'");   /* found by fuzzing */
    refused(ONE("\"\\u001b[2J\":1"), 4, "unknown key ''");
    refused(ONE("\"shape\":[1],\"data_offsets\":[0,4]"), 4, "tensor x: no dtype");
    refused(ONE("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4, "tensor x: no shape");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1]"), 4, "tensor x: no data_offsets");
    refused(ONE("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4, "repeated key 'dtype'");
    refused(ONE("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"z\":1"), 4, "unknown key 'z'");
}

#define T(name, begin, end) "\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" begin "," end "]}"
static void test_every_byte_belongs_to_one_tensor(void **unused) {
    (void)unused;
    struct calla_safetensors st;
    struct calla_err err;
    assert_int_equal(parse("{" T("b", "4", "8") "," T("a", "0", "4") "}", 8, &st, &err), 0);
    calla_safetensors_free(&st);
    refused("{" T("a", "0", "4") "," T("b", "2", "6") "}", 6, "tensor b begins at byte 2 of the data, inside a ends at 4");
    refused("{" T("a", "0", "4") "," T("b", "0", "4") "}", 4, "inside");
    refused("{" T("a", "0", "4") "," T("b", "5", "9") "}", 9, "after a gap: a ends at 4");
    refused("{" T("a", "1", "5") "}", 5, "after a gap: the data begins at 0");
    refused("{" T("a", "0", "4") "}", 5, "the file goes on to 5");
    refused("{" T("a", "0", "4") "," T("a", "4", "8") "}", 8, "names tensor a twice");
    refused("{" T("a", "0", "4") "," T("\\u0061", "4", "8") "}", 8, "names tensor a twice");
}

static void test_a_cut_file_is_refused_at_every_byte(void **unused) {
    (void)unused;
    const char json[] = "{" T("a", "0", "4") "," T("b", "4", "8") "}";
    const size_t n_json = sizeof json - 1, n = 8 + n_json + 8;
    struct calla_safetensors st;
    struct calla_err err;
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *file = calloc(1, cut + 1);   /* malloc(0) may be NULL */
        for (size_t i = 0; i < cut; i++)
            file[i] = i < 8 ? (unsigned char)(n_json >> 8 * i) : i - 8 < n_json ? (unsigned char)json[i - 8] : 0;
        assert_int_equal(calla_safetensors_parse(&st, file, cut, "f.safetensors", &err), CALLA_ERR_FORMAT);
        free(file);
    }
}

static void test_length_and_pointer_files(void **unused) {
    (void)unused;
    struct calla_safetensors st;
    struct calla_err err;
    const unsigned char huge[16] = { 0, 0, 0, 0, 0, 0, 0, 0x80, '{', '}' };
    unsigned char *large = calloc(1, ((size_t)100 << 20) + 64);
    const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    assert_int_equal(calla_safetensors_parse(&st, huge, sizeof huge, "f", &err), CALLA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "9223372036854775808 bytes, at most 104857600"));
    large[3] = 0x06;                 /* 0x06400001: one more than 100 MiB, and the file has it */
    large[2] = 0x40;
    large[0] = 1;
    assert_int_equal(calla_safetensors_parse(&st, large, ((size_t)100 << 20) + 64, "f", &err), CALLA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "at most"));
    free(large);
    assert_int_equal(calla_safetensors_parse(&st, (const unsigned char *)lfs, sizeof lfs - 1, "f", &err), CALLA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "LFS pointer"));
}

static void test_dtypes_have_names_and_sizes(void **unused) {
    (void)unused;
    for (int d = 0; d < CALLA_N_DTYPES; d++) {
        char json[128];
        struct calla_safetensors st;
        struct calla_err err;
        const size_t n = 3 * calla_dtype_bytes((enum calla_dtype)d);
        snprintf(json, sizeof json, "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", calla_dtype_name((enum calla_dtype)d), n);
        assert_int_equal(parse(json, n, &st, &err), 0);
        assert_int_equal(st.tensors[0].dtype, d);
        calla_safetensors_free(&st);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_table_is_read),
        cmocka_unit_test(test_what_is_not_json_is_refused),
        cmocka_unit_test(test_numbers_are_whole_and_fit),
        cmocka_unit_test(test_range_and_shape_agree),
        cmocka_unit_test(test_every_byte_belongs_to_one_tensor),
        cmocka_unit_test(test_a_cut_file_is_refused_at_every_byte),
        cmocka_unit_test(test_length_and_pointer_files),
        cmocka_unit_test(test_dtypes_have_names_and_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
