/* normalise_impl.h - what the files of normalise share; nobody else's. */
#ifndef CALLA_TEXT_NORMALISE_IMPL_H
#define CALLA_TEXT_NORMALISE_IMPL_H

#include <json-c/json.h>

#include "text/normalise.h"

enum {
    NORMALISE_PATH_BYTES = 160,     /* "messages[4294967295].tool_calls[4294967295].function.arguments" */
    NORMALISE_MAX_WARNINGS = 16,    /* an answer carries them: a body of odd keys must not make it long  */
    NORMALISE_KEY_BYTES = 48        /* of a client's key in a sentence                                    */
};

struct normaliser {
    struct calla_normalised *out;
    char  *field;                   /* may be NULL */
    size_t field_cap;
    bool   no_memory;
    struct calla_err *err;
};

/* CALLA_ERR_ARGUMENT, "path: sentence"; path becomes the offending field. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
int  normalise_refuse(struct normaliser *n, const char *path, const char *fmt, ...);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void normalise_warn(struct normaliser *n, const char *fmt, ...);

/* Writes the name of a field, cut at NORMALISE_PATH_BYTES. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void normalise_path(char out[NORMALISE_PATH_BYTES], const char *fmt, ...);

/* object.key, NULL where it is missing or null; also when object is none. */
struct json_object *normalise_get(struct json_object *object, const char *key);
bool normalise_is(struct json_object *value, const char *text);
/* A string for a sentence: valid UTF-8, at most NORMALISE_KEY_BYTES. */
const char *normalise_quote(char out[NORMALISE_KEY_BYTES + 4], const char *s);
/* object.key = value (taken); a NULL value is an allocation that failed. */
void normalise_put(struct normaliser *n, struct json_object *object, const char *key, struct json_object *value);
void normalise_put_text(struct normaliser *n, struct json_object *object, const char *key, const char *s, size_t n_bytes);
void normalise_append(struct normaliser *n, struct json_object *array, struct json_object *value);
struct json_object *normalise_new_text(const struct calla_buf *b);

/* One message; *out is owned.  Roles come out as system, user, assistant, tool. */
int normalise_message(struct normaliser *n, struct json_object *in, size_t idx, struct json_object **out);
/* tools and tool_choice, to n->out->tools. */
int normalise_tools(struct normaliser *n, struct json_object *request);
/* The switches of the template, to n->out->render. */
int normalise_switches(struct normaliser *n, struct json_object *request);

#endif
