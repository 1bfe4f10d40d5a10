/* fields.h - typed fields of a request body.
 *
 * A missing field and null are the same: the default stays.  A wrong type or a
 * value out of range is an error that names the field and what is accepted. */
#ifndef CALLA_SERVER_FIELDS_H
#define CALLA_SERVER_FIELDS_H

#include "calla.h"

struct json_object;

/* The first fault of a body; functions below do nothing once there is one. */
struct fields {
    struct json_object *body;   /* borrowed */
    int  rc;                    /* 0 or a status */
    char field[128];            /* the offending one */
    struct calla_err err;
};

struct json_object *field_get(struct fields *f, const char *name);  /* NULL: missing or null */
bool field_number(struct fields *f, const char *name, double min, double max, double *out);
bool field_int(struct fields *f, const char *name, int64_t min, int64_t max, int64_t *out);
bool field_bool(struct fields *f, const char *name, bool *out);
const char *field_string(struct fields *f, const char *name, size_t *n);
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
void field_fail(struct fields *f, const char *name, const char *fmt, ...);

#endif
