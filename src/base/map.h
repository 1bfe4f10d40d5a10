/* map.h - a whole file, mapped for reading.
 *
 * The bytes are those of the file while it is mapped: whoever truncates it
 * meanwhile takes the program down (SIGBUS), as with every mapped file. */
#ifndef CALLA_BASE_MAP_H
#define CALLA_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "calla.h"

struct calla_map {
    const unsigned char *data;   /* never NULL while open, also of an empty file */
    size_t n;
};

/* Only regular files (or links to them).  CALLA_ERR_IO with the path and the
 * system's reason; CALLA_ERR_LIMIT when larger than limit_bytes (0: no limit). */
int  calla_map_open(struct calla_map *out, const char *path, uint64_t limit_bytes, struct calla_err *err);
void calla_map_close(struct calla_map *m);
/* Hints about bytes that lie in a mapping; the inner whole pages are meant. */
void calla_map_drop(const void *begin, size_t n);   /* not needed soon */
void calla_map_fetch(const void *begin, size_t n);  /* needed soon     */

#endif
