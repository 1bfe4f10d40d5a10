/* fixture.h - reads the committed golden data.
 *
 * The data is ours and whole: a fault in it ends the program with a message. */
#ifndef CALLA_TESTS_GOLDEN_FIXTURE_H
#define CALLA_TESTS_GOLDEN_FIXTURE_H

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

__attribute__((format(printf, 1, 2), noreturn)) void fixture_die(const char *fmt, ...);
void *fixture_alloc(size_t n, size_t size);              /* zeroed, never NULL */

/* DIR/NAME.zst, decompressed; freed by the caller. */
char *fixture_read(const char *dir, const char *name, size_t *n);
struct json_object *fixture_json(const char *dir, const char *name);
struct json_object *fixture_get(struct json_object *object, const char *key);

int32_t *fixture_ids(struct json_object *array, int *n); /* freed by the caller */
float   *fixture_floats(struct json_object *array, int *n);

/* A checkpoint folder with its *.zst files decompressed; done once, later calls
 * find it there. */
void fixture_unpack(const char *src, const char *dst);

#endif
