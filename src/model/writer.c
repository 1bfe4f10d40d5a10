#include "model/writer.h"

#include "base/buf.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MAX_SHARDS = 64, NAME_BYTES = 160, PATH_BYTES = 4096 };

struct tensor {
    char        name[NAME_BYTES];
    const char *dtype;
    int         n_dims, shard_idx;
    int64_t     dims[CALLA_WRITER_DIMS];
    uint64_t    begin, end;          /* in the shard's data */
};

struct shard { int fd; uint64_t data_at, n_bytes; };

struct calla_writer {
    char           dir[PATH_BYTES / 2];
    uint64_t       shard_bytes, total_bytes;
    struct tensor *tensors;
    int            n_tensors, cap_tensors, n_shards;
    struct shard   shards[MAX_SHARDS];
};

static void shard_name(const struct calla_writer *w, int i, char *out, size_t cap) {
    if (w->n_shards == 1) snprintf(out, cap, "model.safetensors");
    else snprintf(out, cap, "model-%05d-of-%05d.safetensors", i + 1, w->n_shards);
}

static void path_of(const struct calla_writer *w, const char *name, const char *ending, char *out) {
    snprintf(out, PATH_BYTES, "%s/%.512s%s", w->dir, name, ending);
}

int calla_writer_new(struct calla_writer **out, const char *dir, uint64_t shard_bytes, struct calla_err *err) {
    *out = NULL;
    if (strlen(dir) >= sizeof ((struct calla_writer *)0)->dir)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "the folder's name has %zu bytes, at most %zu fit", strlen(dir),
                          sizeof ((struct calla_writer *)0)->dir - 1);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return calla_fail(err, CALLA_ERR_IO, "%s: cannot make the folder: %s", dir, strerror(errno));
    struct calla_writer *w = calloc(1, sizeof *w);
    if (w == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "out of memory");
    strcpy(w->dir, dir);
    w->shard_bytes = shard_bytes;
    for (int i = 0; i < MAX_SHARDS; i++) w->shards[i].fd = -1;

    static const char *const taken[] = { "config.json", "model.safetensors", "model.safetensors.index.json" };
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        char path[PATH_BYTES];
        path_of(w, taken[i], "", path);
        if (access(path, F_OK) != 0) continue;
        calla_writer_free(&w);
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%s holds a checkpoint already (%s); choose another --out or remove it",
                          dir, taken[i]);
    }
    *out = w;
    return 0;
}

static uint64_t dtype_bytes(const char *dtype) {
    return strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0 ? 2 : 4;
}

int calla_writer_add(struct calla_writer *w, const char *name, const char *dtype,
                     int n_dims, const int64_t *dims, struct calla_err *err) {
    if (w->n_tensors == w->cap_tensors) {
        const int cap = w->cap_tensors ? 2 * w->cap_tensors : 256;
        struct tensor *p = realloc(w->tensors, (size_t)cap * sizeof *p);
        if (p == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "out of memory");
        w->tensors = p;
        w->cap_tensors = cap;
    }
    struct tensor *t = &w->tensors[w->n_tensors];
    *t = (struct tensor){ .dtype = dtype, .n_dims = n_dims };
    if (strlen(name) >= sizeof t->name || n_dims > CALLA_WRITER_DIMS)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%s: a name or shape too long to write", name);
    strcpy(t->name, name);
    uint64_t n_bytes = dtype_bytes(dtype);
    for (int i = 0; i < n_dims; i++) {
        t->dims[i] = dims[i];
        n_bytes *= (uint64_t)dims[i];
    }
    if (w->n_shards == 0 ||
        (w->shard_bytes != 0 && w->shards[w->n_shards - 1].n_bytes != 0 &&
         w->shards[w->n_shards - 1].n_bytes + n_bytes > w->shard_bytes)) {
        if (w->n_shards == MAX_SHARDS)
            return calla_fail(err, CALLA_ERR_LIMIT, "%s: more than %d shards", w->dir, MAX_SHARDS);
        w->n_shards++;
    }
    struct shard *s = &w->shards[w->n_shards - 1];
    t->shard_idx = w->n_shards - 1;
    t->begin = s->n_bytes;
    t->end = s->n_bytes += n_bytes;
    w->total_bytes += n_bytes;
    return w->n_tensors++;
}

uint64_t calla_writer_bytes(const struct calla_writer *w) { return w->total_bytes; }

static void header_of(const struct calla_writer *w, int shard_idx, const char *format, struct calla_buf *out) {
    calla_buf_fmt(out, "{\"__metadata__\":{\"format\":\"%s\"}", format);
    for (int i = 0; i < w->n_tensors; i++) {
        const struct tensor *t = &w->tensors[i];
        if (t->shard_idx != shard_idx) continue;
        calla_buf_fmt(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", t->name, t->dtype);
        for (int d = 0; d < t->n_dims; d++) calla_buf_fmt(out, "%s%lld", d ? "," : "", (long long)t->dims[d]);
        calla_buf_fmt(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->begin, (unsigned long long)t->end);
    }
    calla_buf_char(out, '}');
    while ((out->n + 8) % 64 != 0 && !out->failed) calla_buf_char(out, ' ');   /* data on a cache line */
}

static int write_all(int fd, const void *data, size_t n, uint64_t at, const char *what, struct calla_err *err) {
    const char *p = data;
    while (n != 0) {
        const ssize_t k = pwrite(fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return calla_fail(err, CALLA_ERR_IO, "%s: cannot write %zu bytes at %llu: %s", what, n,
                              (unsigned long long)at, k < 0 ? strerror(errno) : "nothing was taken");
        p += k;
        at += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

static int open_shard(struct calla_writer *w, int i, const char *format, struct calla_err *err) {
    char name[64], path[PATH_BYTES];
    unsigned char length[8];
    struct calla_buf header = { 0 };
    int rc = 0;

    shard_name(w, i, name, sizeof name);
    path_of(w, name, ".part", path);
    header_of(w, i, format, &header);
    if (header.failed) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: out of memory for the header", path);
        goto out;
    }
    w->shards[i].fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (w->shards[i].fd < 0) {
        rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
        goto out;
    }
    for (int b = 0; b < 8; b++) length[b] = (unsigned char)((uint64_t)header.n >> (8 * b));
    w->shards[i].data_at = 8 + header.n;
    rc = write_all(w->shards[i].fd, length, 8, 0, path, err);
    if (rc == 0) rc = write_all(w->shards[i].fd, header.data, header.n, 8, path, err);
out:
    calla_buf_free(&header);
    return rc;
}

static int write_index(struct calla_writer *w, struct calla_err *err) {
    struct calla_buf b = { 0 };
    calla_buf_fmt(&b, "{\"metadata\": {\"total_size\": %llu}, \"weight_map\": {", (unsigned long long)w->total_bytes);
    for (int i = 0; i < w->n_tensors; i++) {
        char name[64];
        shard_name(w, w->tensors[i].shard_idx, name, sizeof name);
        calla_buf_fmt(&b, "%s\n  \"%s\": \"%s\"", i ? "," : "", w->tensors[i].name, name);
    }
    calla_buf_str(&b, "\n}}\n");
    const int rc = b.failed ? calla_fail(err, CALLA_ERR_MEMORY, "%s: out of memory for the index", w->dir)
                            : calla_writer_file(w, "model.safetensors.index.json", b.data, b.n, err);
    calla_buf_free(&b);
    return rc;
}

int calla_writer_begin(struct calla_writer *w, const char *format, struct calla_err *err) {
    struct statvfs fs;
    if (statvfs(w->dir, &fs) == 0) {
        const uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
        if (free_bytes < w->total_bytes)
            return calla_fail(err, CALLA_ERR_IO, "%s: %.2f GB to write, %.2f GB free on the disk", w->dir,
                              (double)w->total_bytes * 1e-9, (double)free_bytes * 1e-9);
    }
    for (int i = 0; i < w->n_shards; i++) {
        const int rc = open_shard(w, i, format, err);
        if (rc != 0) return rc;
    }
    return 0;
}

int calla_writer_put(struct calla_writer *w, int tensor_idx, uint64_t offset, const void *data, size_t n,
                     struct calla_err *err) {
    const struct tensor *t = &w->tensors[tensor_idx];
    const struct shard *s = &w->shards[t->shard_idx];
    if (offset > t->end - t->begin || n > t->end - t->begin - offset)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%s: bytes %llu + %zu of a tensor of %llu", t->name,
                          (unsigned long long)offset, n, (unsigned long long)(t->end - t->begin));
    return write_all(s->fd, data, n, s->data_at + t->begin + offset, t->name, err);
}

int calla_writer_file(struct calla_writer *w, const char *name, const char *data, size_t n, struct calla_err *err) {
    char part[PATH_BYTES], path[PATH_BYTES];
    path_of(w, name, ".part", part);
    path_of(w, name, "", path);
    const int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) return calla_fail(err, CALLA_ERR_IO, "%s: cannot create: %s", part, strerror(errno));
    int rc = write_all(fd, data, n, 0, part, err);
    if (close(fd) != 0 && rc == 0) rc = calla_fail(err, CALLA_ERR_IO, "%s: %s", part, strerror(errno));
    if (rc == 0 && rename(part, path) != 0)
        rc = calla_fail(err, CALLA_ERR_IO, "%s: cannot rename: %s", part, strerror(errno));
    return rc;
}

int calla_writer_finish(struct calla_writer *w, struct calla_err *err) {
    for (int i = 0; i < w->n_shards; i++) {
        char name[64], part[PATH_BYTES], path[PATH_BYTES];
        shard_name(w, i, name, sizeof name);
        path_of(w, name, ".part", part);
        path_of(w, name, "", path);
        const int fd = w->shards[i].fd;
        w->shards[i].fd = -1;
        if (fsync(fd) != 0 || close(fd) != 0)
            return calla_fail(err, CALLA_ERR_IO, "%s: cannot flush: %s", part, strerror(errno));
        if (rename(part, path) != 0) return calla_fail(err, CALLA_ERR_IO, "%s: cannot rename: %s", part, strerror(errno));
    }
    return write_index(w, err);
}

void calla_writer_free(struct calla_writer **wp) {
    struct calla_writer *w = *wp;
    if (w == NULL) return;
    for (int i = 0; i < w->n_shards; i++)
        if (w->shards[i].fd >= 0) close(w->shards[i].fd);
    free(w->tensors);
    free(w);
    *wp = NULL;
}
