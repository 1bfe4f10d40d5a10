#define _DEFAULT_SOURCE   /* madvise: posix_madvise's "not needed" does nothing on Linux */
#if defined(__APPLE__)
#define _DARWIN_C_SOURCE
#endif
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"

int calla_map_open(struct calla_map *out, const char *path, uint64_t limit_bytes, struct calla_err *err) {
    int rc = 0;
    struct stat st;
    *out = (struct calla_map){ 0 };
    /* O_NONBLOCK: opening a pipe must not wait for a writer */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        rc = calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = calla_fail(err, CALLA_ERR_IO, "%s: not a regular file", path);
        goto out;
    }
    const uint64_t n = (uint64_t)st.st_size;
    if ((limit_bytes != 0 && n > limit_bytes) || n > SIZE_MAX / 2) {
        rc = calla_fail(err, CALLA_ERR_LIMIT, "%s: %" PRIu64 " bytes, at most %" PRIu64 " are read", path, n,
                        limit_bytes != 0 ? limit_bytes : (uint64_t)(SIZE_MAX / 2));
        goto out;
    }
    if (n == 0) {
        out->data = (const unsigned char *)"";
        goto out;
    }
    void *p = mmap(NULL, (size_t)n, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED) {
        rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot map %" PRIu64 " bytes: %s", path, n, strerror(errno));
        goto out;
    }
    out->data = p;
    out->n = (size_t)n;
out:
    close(fd);
    return rc;
}

void calla_map_close(struct calla_map *m) {
    if (m->n != 0) munmap((void *)(uintptr_t)m->data, m->n);
    *m = (struct calla_map){ 0 };
}

static void advise(const void *begin, size_t n, int advice) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = ((uintptr_t)begin + page - 1) / page * page, to = ((uintptr_t)begin + n) / page * page;
    if (to > from) (void)madvise((void *)from, to - from, advice);   /* a hint: refusal costs only speed */
}

void calla_map_drop(const void *begin, size_t n) { advise(begin, n, MADV_DONTNEED); }
void calla_map_fetch(const void *begin, size_t n) { advise(begin, n, MADV_WILLNEED); }
