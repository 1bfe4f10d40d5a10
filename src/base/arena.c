/* arena.c - large memory on huge pages.  Belongs to whoever opened it; not locked. */
#define _GNU_SOURCE 1   /* MADV_HUGEPAGE, MAP_ANONYMOUS */
#include "base/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"

enum { HUGE_PAGE = 2 << 20, SMALL_PAGE = 65536, LINE = 64 };

int calla_arena_open(struct calla_arena *a, size_t n_bytes, struct calla_err *err) {
    *a = (struct calla_arena){ 0 };
    if (n_bytes > SIZE_MAX - 2 * HUGE_PAGE)
        return calla_fail(err, CALLA_ERR_MEMORY, "%zu bytes are more than an address can hold", n_bytes);
    /* A multiple of every page size in use. */
    const size_t want = n_bytes == 0 ? SMALL_PAGE : (n_bytes + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    /* One huge page more, so that the start can be moved to a boundary; the
     * ends that are not needed go back at once. */
    unsigned char *map = mmap(NULL, want + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return calla_fail(err, CALLA_ERR_MEMORY, "cannot map %zu bytes of memory: %s", n_bytes, strerror(errno));
    const size_t before = (HUGE_PAGE - (uintptr_t)map % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) munmap(map, before);
    if (before < HUGE_PAGE) munmap(map + before + want, HUGE_PAGE - before);
    a->base = map + before;
    a->n_bytes = want;
#ifdef MADV_HUGEPAGE
    madvise(a->base, a->n_bytes, MADV_HUGEPAGE);   /* a wish: small pages work too */
#endif
    return 0;
}

void calla_arena_close(struct calla_arena *a) {
    if (a->base) munmap(a->base, a->n_bytes);
    *a = (struct calla_arena){ 0 };
}

void *calla_arena_take(struct calla_arena *a, size_t n) {
    const size_t at = a->used;

    assert(n <= SIZE_MAX - LINE && a->used <= SIZE_MAX - LINE - n);
    a->used += (n + LINE - 1) / LINE * LINE;
    if (!a->base) return NULL;
    assert(a->used <= a->n_bytes);
    return a->base + at;
}
