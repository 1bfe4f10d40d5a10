/* json.h - JSON at the border: strict, bounded, and printed as Python's json
 * module prints it.  The tree is json-c's; its tokener is not used, because it
 * accepts what JSON does not (NaN, single quotes, raw control characters, 01)
 * and saturates long integers.
 *
 * What a text becomes:
 *   - objects keep their key order; the last of equal keys wins, at the place
 *     of the first, as in Python;
 *   - an integer is json_type_int while it fits int64 or uint64; a longer one
 *     is json_type_double that still prints all its digits;
 *   - any other number is json_type_double and prints as Python's repr of it:
 *     1e5 as 100000.0, 1e-7 as 1e-07, 1E400 as Infinity;
 *   - a lone surrogate escape becomes U+FFFD; bytes that are not UTF-8 are an
 *     error; a byte order mark at the start is skipped;
 *   - strings may hold U+0000 (json_object_get_string_len).  Keys are C strings
 *     in json-c, so a U+0000 in a key is kept as the bytes C0 80, which no
 *     valid text has; calla_json_key and the printers turn it back. */
#ifndef CALLA_BASE_JSON_H
#define CALLA_BASE_JSON_H

#include <json-c/json.h>

#include "base/buf.h"
#include "calla.h"

enum { CALLA_JSON_DEPTH = 128 };

/* The caller releases *out (NULL for the text `null`) with json_object_put.
 * CALLA_ERR_FORMAT says what is wrong and at which byte, counted from 0;
 * CALLA_ERR_LIMIT: deeper than CALLA_JSON_DEPTH, or a tree far larger than its
 * text (256 MiB and 16 bytes more for each byte of the text). */
int  calla_json_parse(const char *text, size_t n, struct json_object **out, struct calla_err *err);
/* json.dumps(value, ensure_ascii=False): ", " and ": " between. */
void calla_json_print(struct calla_buf *out, struct json_object *value);
/* One JSON string with its quotes. */
void calla_json_print_string(struct calla_buf *out, const char *s, size_t n);
/* Compact, for wire output: json.dumps(value, ensure_ascii=False, separators=(",", ":")). */
void calla_json_print_compact(struct calla_buf *out, struct json_object *value);
/* Python's repr of a float, in any locale: 0.1, 1e-07, 100000.0, Infinity, NaN. */
void calla_json_print_double(struct calla_buf *out, double d);
/* The bytes of an object's key. */
void calla_json_key(struct calla_buf *out, const char *key);

#endif
