#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "server/fields.h"

enum kind { NUMBER, INT, BOOL, STRING };

static const struct { enum kind kind; const char *json; bool found, fault; } cases[] = {
    { NUMBER, "{}", false, false },          { NUMBER, "{\"v\":null}", false, false },
    { NUMBER, "{\"v\":1}", true, false },    { NUMBER, "{\"v\":0.5}", true, false },
    { NUMBER, "{\"v\":-0.1}", false, true }, { NUMBER, "{\"v\":2.1}", false, true },
    { NUMBER, "{\"v\":\"1\"}", false, true }, { NUMBER, "{\"v\":true}", false, true },
    { NUMBER, "{\"v\":[]}", false, true },   { NUMBER, "{\"v\":1e400}", false, true },
    { INT, "{\"v\":2}", true, false },       { INT, "{\"v\":2.0}", true, false },
    { INT, "{\"v\":1.5}", false, true },     { INT, "{\"v\":3}", false, true },
    { INT, "{\"v\":99999999999999999999}", false, true }, { INT, "{\"v\":{}}", false, true },
    { BOOL, "{\"v\":false}", true, false },  { BOOL, "{\"v\":0}", false, true },
    { BOOL, "{\"v\":\"true\"}", false, true },
    { STRING, "{\"v\":\"x\"}", true, false }, { STRING, "{\"v\":7}", false, true },
};

/* Also: null is as good as missing (UR61), and the fault names the field. */
static void types_and_ranges(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fields f = { 0 };
        double d;
        int64_t n;
        bool b, found = false;
        size_t len;
        assert_int_equal(calla_json_parse(cases[i].json, strlen(cases[i].json), &f.body, NULL), 0);
        switch (cases[i].kind) {
        case NUMBER: found = field_number(&f, "v", 0, 2, &d); break;
        case INT: found = field_int(&f, "v", 0, 2, &n); break;
        case BOOL: found = field_bool(&f, "v", &b); break;
        case STRING: found = field_string(&f, "v", &len) != NULL; break;
        }
        if (found != cases[i].found || (f.rc != 0) != cases[i].fault) fail_msg("case %zu %s: found %d, rc %d", i, cases[i].json, found, f.rc);
        if (cases[i].fault) {
            assert_string_equal(f.field, "v");
            assert_non_null(strstr(f.err.message, "v: "));
        }
        json_object_put(f.body);
    }
}

static void the_first_fault_stays(void **state) {
    struct fields f = { 0 };
    int64_t n;
    (void)state;
    assert_int_equal(calla_json_parse("{\"a\":\"x\",\"b\":\"y\",\"c\":1}", 23, &f.body, NULL), 0);
    assert_false(field_int(&f, "a", 0, 9, &n));
    assert_false(field_int(&f, "b", 0, 9, &n));
    assert_false(field_int(&f, "c", 0, 9, &n));
    assert_string_equal(f.field, "a");
    json_object_put(f.body);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(types_and_ranges), cmocka_unit_test(the_first_fault_stays) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
