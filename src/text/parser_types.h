/* parser_types.h - an argument's text to the JSON value that its schema asks for.
 *
 * Part of the answer parser.  The table is docs/model.md, "Answers", A8; whatever
 * fails to convert stays the text that it is. */
#ifndef CALLA_TEXT_PARSER_TYPES_H
#define CALLA_TEXT_PARSER_TYPES_H

#include <json-c/json.h>

#include "base/buf.h"

enum calla_value_mode {
    VALUE_STRING,           /* a string whatever the text is: may be streamed  */
    VALUE_STRING_OR_NULL,   /* a string unless the text is exactly "null"      */
    VALUE_TYPED             /* known only when the text is complete            */
};

/* schema: a property's JSON schema, any JSON value or NULL. */
enum calla_value_mode calla_value_mode(struct json_object *schema);

/* Appends the JSON of text [n], printed as Python's json.dumps prints it. */
void calla_value_print(struct calla_buf *out, struct json_object *schema, const char *text, size_t n);

/* A Python literal (strings, numbers, True, False, None, lists, tuples, dicts
 * with plain keys) rewritten as JSON text; false when it is not one or is
 * nested deeper than CALLA_JSON_DEPTH. */
bool calla_literal_to_json(struct calla_buf *out, const char *text, size_t n);

#endif
