/* arena.h - one large anonymous mapping, cut from the front.
 *
 * Asks for huge pages.  Sizes are planned first: with base NULL an arena only
 * counts, so the same code plans and cuts. */
#ifndef CALLA_BASE_ARENA_H
#define CALLA_BASE_ARENA_H

#include "calla.h"

struct calla_arena { unsigned char *base; size_t n_bytes, used; };

int   calla_arena_open(struct calla_arena *a, size_t n_bytes, struct calla_err *err); /* zeroed, lazily committed */
void  calla_arena_close(struct calla_arena *a);
/* n bytes on a 64-byte boundary; NULL while only counting.  Never fails in an arena that was planned. */
void *calla_arena_take(struct calla_arena *a, size_t n);

#endif
