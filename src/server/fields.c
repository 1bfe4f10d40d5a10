#include "server/fields.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"

void field_fail(struct fields *f, const char *name, const char *fmt, ...) {
    char why[512];
    va_list ap;
    if (f->rc != 0) return;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    snprintf(f->field, sizeof f->field, "%s", name);
    f->rc = calla_fail(&f->err, CALLA_ERR_ARGUMENT, "%s: %s", name, why);
}

struct json_object *field_get(struct fields *f, const char *name) {
    struct json_object *v = NULL;
    if (f->rc != 0 || !json_object_is_type(f->body, json_type_object)) return NULL;
    return json_object_object_get_ex(f->body, name, &v) ? v : NULL;
}

static const char *type_of(struct json_object *v) { return json_type_to_name(json_object_get_type(v)); }

bool field_number(struct fields *f, const char *name, double min, double max, double *out) {
    struct json_object *v = field_get(f, name);
    if (v == NULL) return false;
    if (!json_object_is_type(v, json_type_double) && !json_object_is_type(v, json_type_int)) {
        field_fail(f, name, "a number from %g to %g is expected, not %s", min, max, type_of(v));
        return false;
    }
    const double d = json_object_get_double(v);
    if (!isfinite(d) || d < min || d > max) {
        field_fail(f, name, "%g is out of range; a number from %g to %g is expected", d, min, max);
        return false;
    }
    *out = d;
    return true;
}

bool field_int(struct fields *f, const char *name, int64_t min, int64_t max, int64_t *out) {
    struct json_object *v = field_get(f, name);
    if (v == NULL) return false;
    const double d = json_object_is_type(v, json_type_double) ? json_object_get_double(v) : 0;
    const bool whole = json_object_is_type(v, json_type_int) ||
                       (json_object_is_type(v, json_type_double) && d == floor(d) && fabs(d) < 9e15);
    if (!whole) {
        field_fail(f, name, "a whole number from %lld to %lld is expected", (long long)min, (long long)max);
        return false;
    }
    const int64_t i = json_object_is_type(v, json_type_int) ? json_object_get_int64(v) : (int64_t)d;
    if (i < min || i > max) {
        field_fail(f, name, "%lld is out of range; a whole number from %lld to %lld is expected", (long long)i,
                   (long long)min, (long long)max);
        return false;
    }
    *out = i;
    return true;
}

bool field_bool(struct fields *f, const char *name, bool *out) {
    struct json_object *v = field_get(f, name);
    if (v == NULL) return false;
    if (!json_object_is_type(v, json_type_boolean)) {
        field_fail(f, name, "true or false is expected, not %s", type_of(v));
        return false;
    }
    *out = json_object_get_boolean(v);
    return true;
}

const char *field_string(struct fields *f, const char *name, size_t *n) {
    struct json_object *v = field_get(f, name);
    if (v == NULL) return NULL;
    if (!json_object_is_type(v, json_type_string)) {
        field_fail(f, name, "a string is expected, not %s", type_of(v));
        return NULL;
    }
    *n = (size_t)json_object_get_string_len(v);
    return json_object_get_string(v);
}
