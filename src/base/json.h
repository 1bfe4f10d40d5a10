/* json.h - JSON at the border, on json-c: strict, bounded, and printed as
 * Python's json module prints it.
 *
 * json-c accepts what JSON does not (NaN, single quotes, raw control
 * characters); calla_json_parse refuses those.  Objects keep their key order,
 * the last of equal keys wins.  Integers of any length keep all digits, floats
 * print as Python's repr of what was read.  A lone surrogate becomes U+FFFD. */
#ifndef CALLA_BASE_JSON_H
#define CALLA_BASE_JSON_H

#include <json-c/json.h>

#include "base/buf.h"
#include "calla.h"

enum { CALLA_JSON_DEPTH = 128 };

/* The caller releases *out with json_object_put.  Errors say what is wrong and
 * at which byte; CALLA_ERR_LIMIT when deeper than CALLA_JSON_DEPTH. */
int  calla_json_parse(const char *text, size_t n, struct json_object **out, struct calla_err *err);
/* json.dumps(value, ensure_ascii=False): ", " and ": " between. */
void calla_json_print(struct calla_buf *out, struct json_object *value);
/* One JSON string with its quotes, without the extra blanks. */
void calla_json_print_string(struct calla_buf *out, const char *s, size_t n);
/* Compact, for wire output: json.dumps(value, ensure_ascii=False, separators=(",", ":")). */
void calla_json_print_compact(struct calla_buf *out, struct json_object *value);

#endif
