/* python.h - the parts of Python's str that the chat template leans on.
 *
 * Values are json-c trees, as Python's json.loads would have read them; pure
 * functions, any thread. */
#ifndef CALLA_TEXT_PYTHON_H
#define CALLA_TEXT_PYTHON_H

#include "base/buf.h"
#include "text/tokenizer.h"

struct json_object;

/* s[span].strip(): White_Space and U+001C..U+001F at both ends.  s is UTF-8. */
struct calla_span calla_python_strip(const char *s, struct calla_span span);
/* bool(value). */
bool calla_python_true(struct json_object *value);
/* str(value): None, True, 1e+16, inf, ['a', {"it's": 1}], a string as it is. */
void calla_python_str(struct calla_buf *out, struct json_object *value);

#endif
