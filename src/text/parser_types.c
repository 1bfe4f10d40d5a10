/* parser_types.c - typed arguments: docs/model.md, "Answers", A8.
 *
 * Pure functions of the schema and the text; any thread. */
#include "text/parser_types.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "text/parser_lex.h"

enum { MAX_BRANCH_DEPTH = 16 };   /* anyOf inside anyOf */

static bool equals(struct json_object *string, const char *text, size_t n) {
    return json_object_is_type(string, json_type_string) && (size_t)json_object_get_string_len(string) == n &&
           (n == 0 || memcmp(json_object_get_string(string), text, n) == 0);
}

static struct json_object *member(struct json_object *object, const char *key, enum json_type type) {
    struct json_object *v = NULL;
    if (!json_object_is_type(object, json_type_object) || !json_object_object_get_ex(object, key, &v)) return NULL;
    return json_object_is_type(v, type) ? v : NULL;
}

static bool lists_type(struct json_object *types, const char *name) {
    for (size_t i = 0; i < json_object_array_length(types); i++)
        if (equals(json_object_array_get_idx(types, i), name, strlen(name))) return true;
    return false;
}

static bool is_null_branch(struct json_object *branch) {
    struct json_object *t = member(branch, "type", json_type_string);
    return t != NULL && equals(t, "null", 4);
}

/* The first branch of anyOf or oneOf that is not null itself; NULL without one. */
static struct json_object *first_branch(struct json_object *schema, bool *nullable) {
    struct json_object *list = member(schema, "anyOf", json_type_array), *found = NULL;
    if (list == NULL) list = member(schema, "oneOf", json_type_array);
    *nullable = false;
    if (list == NULL) return NULL;
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        struct json_object *branch = json_object_array_get_idx(list, i);
        if (is_null_branch(branch)) *nullable = true;
        else if (found == NULL) found = branch;
    }
    return found;
}

static enum calla_value_mode mode_of(struct json_object *schema, int depth) {
    struct json_object *t;
    bool nullable;
    if (member(schema, "enum", json_type_array) != NULL) return VALUE_TYPED;
    if ((t = member(schema, "type", json_type_string)) != NULL) return equals(t, "string", 6) ? VALUE_STRING : VALUE_TYPED;
    if ((t = member(schema, "type", json_type_array)) != NULL) {
        if (!lists_type(t, "string")) return VALUE_TYPED;
        return lists_type(t, "null") ? VALUE_STRING_OR_NULL : VALUE_STRING;
    }
    struct json_object *branch = first_branch(schema, &nullable);
    const enum calla_value_mode mode = branch != NULL && depth < MAX_BRANCH_DEPTH ? mode_of(branch, depth + 1) : VALUE_STRING;
    return mode == VALUE_STRING && nullable ? VALUE_STRING_OR_NULL : mode;
}

enum calla_value_mode calla_value_mode(struct json_object *schema) { return mode_of(schema, 0); }

/* ---- one type -------------------------------------------------------------- */

/* A number by Python's float(), split: sign, digits, fraction, exponent. */
struct number { bool negative, integer; const char *digits, *fraction, *exponent; size_t n_digits, n_fraction, n_exponent; };

static size_t count_digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && isdigit((unsigned char)s[i])) i++;
    return i;
}

static bool read_number(struct number *out, const char *s, size_t n) {
    size_t at = 0;
    *out = (struct number){ .integer = true };
    if (at < n && (s[at] == '-' || s[at] == '+')) out->negative = s[at++] == '-';
    out->digits = s + at;
    at += out->n_digits = count_digits(s + at, n - at);
    if (at < n && s[at] == '.') {
        out->integer = false;
        out->fraction = s + ++at;
        at += out->n_fraction = count_digits(s + at, n - at);
    }
    if (out->n_digits + out->n_fraction == 0) return false;
    if (at < n && (s[at] == 'e' || s[at] == 'E')) {
        const size_t sign = at + 1 < n && (s[at + 1] == '-' || s[at + 1] == '+');
        out->integer = false;
        out->exponent = s + at + 1;
        out->n_exponent = sign + count_digits(s + at + 1 + sign, n - at - 1 - sign);
        if (out->n_exponent == sign) return false;
        at += 1 + out->n_exponent;
    }
    while (out->n_digits > 1 && out->digits[0] == '0') {   /* JSON has no leading zeros */
        out->digits++;
        out->n_digits--;
    }
    return at == n;
}

static void print_integer(struct calla_buf *out, const struct number *v) {
    if (v->negative && !(v->n_digits == 1 && v->digits[0] == '0')) calla_buf_char(out, '-');
    calla_buf_add(out, v->digits, v->n_digits);
}

static bool integer(struct calla_buf *out, const char *s, size_t n) {
    struct number v;
    if (!read_number(&v, s, n) || !v.integer) return false;
    print_integer(out, &v);
    return true;
}

/* An integer where the value is one, all its digits kept; else a float's repr. */
static bool number(struct calla_buf *out, const char *s, size_t n) {
    struct number v;
    struct calla_buf json = { 0 };
    struct json_object *o = NULL;
    if (!read_number(&v, s, n)) return false;
    if (v.integer) {
        print_integer(out, &v);
        return true;
    }
    if (v.negative) calla_buf_char(&json, '-');
    if (v.n_digits > 0) calla_buf_add(&json, v.digits, v.n_digits);
    else calla_buf_char(&json, '0');
    calla_buf_char(&json, '.');
    if (v.n_fraction > 0) calla_buf_add(&json, v.fraction, v.n_fraction);
    else calla_buf_char(&json, '0');
    if (v.n_exponent > 0) {
        calla_buf_char(&json, 'e');
        calla_buf_add(&json, v.exponent, v.n_exponent);
    }
    bool ok = !json.failed && calla_json_parse(json.data, json.n, &o, NULL) == 0 && json_object_is_type(o, json_type_double);
    const double d = ok ? json_object_get_double(o) : 0;
    ok = ok && isfinite(d);
    if (ok && d == trunc(d)) calla_buf_fmt(out, "%.0f", d == 0 ? 0.0 : d);
    else if (ok) calla_json_print(out, o);
    json_object_put(o);
    calla_buf_free(&json);
    return ok;
}

static bool is_word(const char *s, size_t n, const char *word) {
    if (n != strlen(word)) return false;
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)s[i]) != word[i]) return false;
    return true;
}

static bool is_finite_json(struct json_object *o) {
    /* An integer too long for a double keeps its digits as userdata (json.c). */
    if (json_object_is_type(o, json_type_double))
        return json_object_get_userdata(o) != NULL || isfinite(json_object_get_double(o));
    if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            if (!is_finite_json(json_object_array_get_idx(o, i))) return false;
    } else if (json_object_is_type(o, json_type_object)) {
        json_object_object_foreach(o, key, value) {
            (void)key;
            if (!is_finite_json(value)) return false;
        }
    }
    return true;
}

static bool print_parsed(struct calla_buf *out, const char *s, size_t n) {
    struct json_object *o = NULL;
    if (calla_json_parse(s, n, &o, NULL) != 0) return false;
    const bool ok = is_finite_json(o);   /* 1e999 has no JSON */
    if (ok) calla_json_print(out, o);
    json_object_put(o);
    return ok;
}

static bool structure(struct calla_buf *out, const char *s, size_t n) {
    if (print_parsed(out, s, n)) return true;
    struct calla_buf json = { 0 };
    const bool ok = calla_literal_to_json(&json, s, n) && print_parsed(out, json.data, json.n);
    calla_buf_free(&json);
    return ok;
}

/* strict: only "true" and "false" are booleans (a list of types goes on to the next). */
static bool convert(struct calla_buf *out, struct json_object *type, const char *s, size_t n, bool strict) {
    while (n > 0 && calla_is_blank(s[0])) s++, n--;
    while (n > 0 && calla_is_blank(s[n - 1])) n--;
    const char *t = json_object_get_string(type);
    if (n == 4 && memcmp(s, "null", 4) == 0) {
        calla_buf_str(out, "null");
        return true;
    }
    if (strncmp(t, "int", 3) == 0) return integer(out, s, n);
    if (strcmp(t, "number") == 0 || strcmp(t, "float") == 0) return number(out, s, n);
    if (strncmp(t, "bool", 4) == 0) {
        const bool yes = is_word(s, n, "true");
        if (strict && !yes && !is_word(s, n, "false")) return false;
        calla_buf_str(out, yes ? "true" : "false");
        return true;
    }
    if (strcmp(t, "object") == 0 || strcmp(t, "array") == 0) return structure(out, s, n);
    return false;
}

/* ---- a schema -------------------------------------------------------------- */

static bool enumerated(struct calla_buf *out, struct json_object *list, const char *text, size_t n) {
    struct calla_buf form = { 0 };
    bool found = false;
    for (size_t i = 0; i < json_object_array_length(list) && !found; i++)
        if (equals(json_object_array_get_idx(list, i), text, n)) {
            calla_json_print_string(out, text, n);
            found = true;
        }
    for (size_t i = 0; i < json_object_array_length(list) && !found; i++) {
        calla_buf_clear(&form);
        calla_json_print(&form, json_object_array_get_idx(list, i));
        found = !form.failed && form.n == n && memcmp(form.data, text, n) == 0;
        if (found) calla_buf_add(out, text, n);
    }
    calla_buf_free(&form);
    return found;
}

static bool convert_listed(struct calla_buf *out, struct json_object *types, const char *text, size_t n) {
    const bool is_null = n == 4 && memcmp(text, "null", 4) == 0;
    if (lists_type(types, "string")) {
        if (is_null && lists_type(types, "null")) calla_buf_str(out, "null");
        else calla_json_print_string(out, text, n);
        return true;
    }
    for (size_t i = 0; i < json_object_array_length(types); i++) {
        struct json_object *t = json_object_array_get_idx(types, i);
        if (json_object_is_type(t, json_type_string) && convert(out, t, text, n, true)) return true;
    }
    return false;
}

static bool print_by(struct calla_buf *out, struct json_object *schema, const char *text, size_t n, int depth) {
    struct json_object *v;
    bool nullable;
    if ((v = member(schema, "enum", json_type_array)) != NULL && enumerated(out, v, text, n)) return true;
    if ((v = member(schema, "type", json_type_string)) != NULL)
        return !equals(v, "string", 6) && convert(out, v, text, n, false);
    if ((v = member(schema, "type", json_type_array)) != NULL) return convert_listed(out, v, text, n);
    v = first_branch(schema, &nullable);
    if (nullable && n == 4 && memcmp(text, "null", 4) == 0) {
        calla_buf_str(out, "null");
        return true;
    }
    return v != NULL && depth < MAX_BRANCH_DEPTH && print_by(out, v, text, n, depth + 1);
}

void calla_value_print(struct calla_buf *out, struct json_object *schema, const char *text, size_t n) {
    if (!print_by(out, schema, text, n, 0)) calla_json_print_string(out, text, n);
}
