/* state_file.c - a sequence on disk.
 *
 *   header (below, little-endian) | ids, int32 [n_ids] | state, zstd [packed_bytes] | XXH3-128 of all before
 *
 * The header names the checkpoint (content hash), backend and number of layers
 * that the state belongs to.  Everything is checked before the first byte of
 * state is used: a file that was cut, changed or made elsewhere is refused. */
#include "engine/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

#include "base/err.h"

struct header {
    char     magic[8];           /* "CALLASEQ"                                      */
    uint32_t version;
    uint32_t n_ids;
    uint64_t content_hash;
    char     backend[16];
    uint32_t n_layers, reserved;
    uint64_t state_bytes, packed_bytes;
};
_Static_assert(sizeof(struct header) == 64, "the header has no padding");
enum { VERSION = 1 };
static const char magic[8] = { 'C', 'A', 'L', 'L', 'A', 'S', 'E', 'Q' };

static void fill_header(struct header *h, const struct calla_model *m, int n_ids, size_t state_bytes, size_t packed_bytes) {
    *h = (struct header){ .version = VERSION, .n_ids = (uint32_t)n_ids, .content_hash = m->weights->content_hash,
                          .n_layers = (uint32_t)m->weights->n_layers, .state_bytes = state_bytes, .packed_bytes = packed_bytes };
    memcpy(h->magic, magic, sizeof magic);
    strncpy(h->backend, m->ops->name, sizeof h->backend - 1);
}

static bool write_all(int fd, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    while (n > 0) {
        const ssize_t k = write(fd, p, n < (size_t)1 << 30 ? n : (size_t)1 << 30);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Makes the rename itself durable. */
static void sync_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *dir = slash == NULL ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    const int fd = dir ? open(dir, O_RDONLY) : -1;
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
    free(dir);
}

struct part { const void *bytes; size_t n; };

static int write_parts(const char *path, const struct part *parts, int n_parts, struct calla_err *err) {
    const size_t n_name = strlen(path) + 16;
    char *name = malloc(n_name);
    int rc = 0, fd;
    if (name == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "no memory for a file's name");
    snprintf(name, n_name, "%s.XXXXXX", path);
    fd = mkstemp(name);
    if (fd < 0) {
        rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot create: %s", name, strerror(errno));
        free(name);
        return rc;
    }
    for (int i = 0; rc == 0 && i < n_parts; i++)
        if (!write_all(fd, parts[i].bytes, parts[i].n)) rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot write: %s", name, strerror(errno));
    if (rc == 0 && fsync(fd) != 0) rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot sync: %s", name, strerror(errno));
    if (close(fd) != 0 && rc == 0) rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot close: %s", name, strerror(errno));
    if (rc == 0 && rename(name, path) != 0)
        rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot rename %s to it: %s", path, name, strerror(errno));
    if (rc == 0) sync_folder_of(path);
    else unlink(name);
    free(name);
    return rc;
}

int calla_state_file_save(const struct calla_model *m, const struct calla_state *state, const int32_t *ids, int n_ids,
                          const char *path, struct calla_err *err) {
    unsigned char *bytes = NULL, *packed = NULL;
    size_t n_bytes;
    XXH3_state_t *hash = XXH3_createState();
    int rc = m->ops->state_save(state, &bytes, &n_bytes, err);
    if (rc != 0) goto out;
    const size_t cap = ZSTD_compressBound(n_bytes);
    packed = malloc(cap);
    if (packed == NULL || hash == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory to compress %zu bytes of state", path, n_bytes);
        goto out;
    }
    const size_t n_packed = ZSTD_compress(packed, cap, bytes, n_bytes, 1);
    if (ZSTD_isError(n_packed)) {
        rc = calla_fail(err, CALLA_ERR_IO, "%s: zstd: %s", path, ZSTD_getErrorName(n_packed));
        goto out;
    }
    struct header h;
    fill_header(&h, m, n_ids, n_bytes, n_packed);
    struct part parts[4] = { { &h, sizeof h }, { ids, (size_t)n_ids * sizeof *ids }, { packed, n_packed } };
    XXH3_128bits_reset(hash);
    for (int i = 0; i < 3; i++) XXH3_128bits_update(hash, parts[i].bytes, parts[i].n);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(hash));
    parts[3] = (struct part){ &sum, sizeof sum };
    rc = write_parts(path, parts, 4, err);
out:
    XXH3_freeState(hash);
    free(packed);
    free(bytes);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------- */

static int read_file(const char *path, unsigned char **bytes, size_t *n, size_t limit, struct calla_err *err) {
    struct stat st;
    int rc = 0;
    *bytes = NULL;
    *n = 0;
    const int fd = open(path, O_RDONLY);
    if (fd < 0) return calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: not a file", path);
    else if ((uint64_t)st.st_size > limit)
        rc = calla_fail(err, CALLA_ERR_LIMIT, "%s: %lld bytes; a sequence of this model has at most %zu", path, (long long)st.st_size, limit);
    if (rc == 0 && (*bytes = malloc((size_t)st.st_size + 1)) == NULL)
        rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for its %lld bytes", path, (long long)st.st_size);
    size_t have = 0;
    while (rc == 0 && have < (size_t)st.st_size) {
        const ssize_t k = read(fd, *bytes + have, (size_t)st.st_size - have);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) rc = calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
        if (k <= 0) break;
        have += (size_t)k;
    }
    close(fd);
    *n = have;
    if (rc != 0) {
        free(*bytes);
        *bytes = NULL;
    }
    return rc;
}

/* Largest state that the backend can hold, with room for its own header. */
static uint64_t largest_state(const struct calla_model *m) {
    const struct calla_backend_plan *b = &m->plan.bytes;
    const uint64_t pages = ((uint64_t)m->plan.backend.ctx_tokens + (uint64_t)b->kv_page_tokens - 1) / (uint64_t)b->kv_page_tokens;
    return b->state_bytes + pages * b->kv_page_bytes + 65536;
}

static int check_header(const struct calla_model *m, const struct header *h, const unsigned char *bytes, size_t n,
                        const char *path, struct calla_err *err) {
    if (memcmp(h->magic, magic, sizeof magic) != 0) return calla_fail(err, CALLA_ERR_FORMAT, "%s: not a sequence saved by calla", path);
    if (h->version != VERSION)
        return calla_fail(err, CALLA_ERR_UNSUPPORTED, "%s: version %u, this build reads %d", path, h->version, VERSION);
    const uint64_t rest = n - sizeof *h;
    if (h->n_ids > (uint32_t)CALLA_MAX_CTX || h->packed_bytes > n ||
        rest != (uint64_t)h->n_ids * sizeof(int32_t) + h->packed_bytes + sizeof(XXH128_canonical_t))
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: cut short or damaged: %zu bytes, its header says %u ids and %llu bytes of state",
                          path, n, h->n_ids, (unsigned long long)h->packed_bytes);
    XXH128_canonical_t sum;
    memcpy(&sum, bytes + n - sizeof sum, sizeof sum);
    if (!XXH128_isEqual(XXH3_128bits(bytes, n - sizeof sum), XXH128_hashFromCanonical(&sum)))
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: damaged: the checksum differs", path);
    if (h->content_hash != m->weights->content_hash || h->n_layers != (uint32_t)m->weights->n_layers)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: belongs to another checkpoint (%016llx with %u layers; this is %016llx with %d)", path,
                          (unsigned long long)h->content_hash, h->n_layers, (unsigned long long)m->weights->content_hash,
                          m->weights->n_layers);
    if (strncmp(h->backend, m->ops->name, sizeof h->backend) != 0)
        return calla_fail(err, CALLA_ERR_UNSUPPORTED, "%s: saved by backend %.15s, this is %s", path, h->backend, m->ops->name);
    if ((int)h->n_ids > m->plan.backend.ctx_tokens)
        return calla_fail(err, CALLA_ERR_LIMIT, "%s: %u tokens, the context is %d", path, h->n_ids, m->plan.backend.ctx_tokens);
    if (h->state_bytes > largest_state(m))
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: %llu bytes of state; at most %llu", path, (unsigned long long)h->state_bytes,
                          (unsigned long long)largest_state(m));
    return 0;
}

int calla_state_file_load(struct calla_model *m, struct calla_state *state, int32_t **ids, int *n_ids,
                          const char *path, struct calla_err *err) {
    unsigned char *file = NULL, *bytes = NULL;
    size_t n = 0;
    struct header h;
    *ids = NULL;
    *n_ids = 0;
    const size_t limit = sizeof h + sizeof(int32_t) * (size_t)CALLA_MAX_CTX + ZSTD_compressBound((size_t)largest_state(m)) + 16;
    int rc = read_file(path, &file, &n, limit, err);
    if (rc != 0) return rc;
    if (n < sizeof h + sizeof(XXH128_canonical_t)) {
        rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: %zu bytes are too few for a saved sequence", path, n);
        goto out;
    }
    memcpy(&h, file, sizeof h);
    rc = check_header(m, &h, file, n, path, err);
    if (rc != 0) goto out;

    const unsigned char *packed = file + sizeof h + h.n_ids * sizeof(int32_t);
    bytes = malloc(h.state_bytes ? (size_t)h.state_bytes : 1);
    *ids = malloc((h.n_ids ? h.n_ids : 1) * sizeof(int32_t));
    if (bytes == NULL || *ids == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for %llu bytes of state", path, (unsigned long long)h.state_bytes);
        goto out;
    }
    memcpy(*ids, file + sizeof h, h.n_ids * sizeof(int32_t));
    for (uint32_t i = 0; rc == 0 && i < h.n_ids; i++)
        if ((*ids)[i] < 0 || (*ids)[i] >= m->n_vocab)
            rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: id %d of %d", path, (int)(*ids)[i], m->n_vocab);
    const size_t got = ZSTD_decompress(bytes, (size_t)h.state_bytes, packed, (size_t)h.packed_bytes);
    if (rc == 0 && (ZSTD_isError(got) || got != h.state_bytes))
        rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: the state does not unpack to its %llu bytes", path, (unsigned long long)h.state_bytes);
    if (rc == 0) rc = m->ops->state_load(state, bytes, (size_t)h.state_bytes, err);
    if (rc == 0 && m->ops->state_len(state) != (int)h.n_ids)
        rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: %u ids, but a state of %d", path, h.n_ids, m->ops->state_len(state));
    *n_ids = (int)h.n_ids;
out:
    if (rc != 0) {
        free(*ids);
        *ids = NULL;
        *n_ids = 0;
    }
    free(bytes);
    free(file);
    return rc;
}
