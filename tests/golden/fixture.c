#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

void fixture_die(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n0 passed, 1 failed, 0 skipped\n");
    fflush(stdout);
    exit(2);
}

void *fixture_alloc(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    if (p == NULL) fixture_die("no memory for %zu x %zu bytes", n, size);
    return p;
}

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) != 0) fixture_die("%s: %s", path, strerror(errno));
    *n = (size_t)st.st_size;
    char *bytes = fixture_alloc(*n + 1, 1);
    if (fread(bytes, 1, *n, f) != *n) fixture_die("%s: %s", path, strerror(errno));
    fclose(f);
    return bytes;
}

static char *read_zst(const char *path, size_t *n) {
    size_t n_packed;
    char *packed = read_file(path, &n_packed);
    const unsigned long long size = ZSTD_getFrameContentSize(packed, n_packed);
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) fixture_die("%s: no zstd frame of known size", path);
    *n = (size_t)size;
    char *bytes = fixture_alloc(*n + 1, 1);
    const size_t rc = ZSTD_decompress(bytes, *n, packed, n_packed);
    if (ZSTD_isError(rc) || rc != *n) fixture_die("%s: does not decompress", path);
    free(packed);
    return bytes;
}

char *fixture_read(const char *dir, const char *name, size_t *n) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.zst", dir, name);
    return read_zst(path, n);
}

struct json_object *fixture_json(const char *dir, const char *name) {
    size_t n;
    char *text = fixture_read(dir, name, &n);
    struct json_object *v = json_tokener_parse(text);
    if (v == NULL) fixture_die("%s/%s.zst: not JSON", dir, name);
    free(text);
    return v;
}

struct json_object *fixture_get(struct json_object *object, const char *key) {
    struct json_object *v;
    if (!json_object_object_get_ex(object, key, &v)) fixture_die("a golden case has no \"%s\"", key);
    return v;
}

int32_t *fixture_ids(struct json_object *array, int *n) {
    *n = (int)json_object_array_length(array);
    int32_t *ids = fixture_alloc((size_t)*n, sizeof *ids);
    for (int i = 0; i < *n; i++) ids[i] = json_object_get_int(json_object_array_get_idx(array, (size_t)i));
    return ids;
}

float *fixture_floats(struct json_object *array, int *n) {
    *n = (int)json_object_array_length(array);
    float *v = fixture_alloc((size_t)*n, sizeof *v);
    for (int i = 0; i < *n; i++) v[i] = (float)json_object_get_double(json_object_array_get_idx(array, (size_t)i));
    return v;
}

static void write_file(const char *path, const char *bytes, size_t n) {
    char temporary[1100];
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    FILE *f = fopen(temporary, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0 || rename(temporary, path) != 0)
        fixture_die("%s: %s", path, strerror(errno));
}

static void make_folders(const char *path) {
    char part[1024];
    snprintf(part, sizeof part, "%s/", path);
    for (char *p = part + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            if (mkdir(part, 0777) != 0 && errno != EEXIST) fixture_die("%s: %s", part, strerror(errno));
            *p = '/';
        }
}

void fixture_unpack(const char *src, const char *dst) {
    DIR *dir = opendir(src);
    if (dir == NULL) fixture_die("%s: %s", src, strerror(errno));
    make_folders(dst);
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char from[1024], to[1024];
        struct stat a, b;
        size_t n = strlen(e->d_name);
        const bool packed = n > 4 && strcmp(e->d_name + n - 4, ".zst") == 0;
        snprintf(from, sizeof from, "%s/%s", src, e->d_name);
        snprintf(to, sizeof to, "%s/%.*s", dst, (int)(packed ? n - 4 : n), e->d_name);
        if (stat(from, &a) != 0 || !S_ISREG(a.st_mode)) continue;
        if (stat(to, &b) == 0 && b.st_mtime > a.st_mtime) continue;
        char *bytes = packed ? read_zst(from, &n) : read_file(from, &n);
        write_file(to, bytes, n);
        free(bytes);
    }
    closedir(dir);
}
