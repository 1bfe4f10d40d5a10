/* weights_files.c - opens the shards, by their index, and makes one table of
 * all tensors.  Knows no model: which tensors are wanted is weights.c's matter. */
#include "model/weights_files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "model/config.h"

enum { MAX_SHARDS = 4096, SHARD_NAME = 255 };
#define INDEX "model.safetensors.index.json"
#define SINGLE "model.safetensors"

struct calla_block { struct calla_block *next; };

void *calla_weights_files_alloc(struct calla_weights_files *f, size_t n_bytes) {
    const size_t head = (sizeof(struct calla_block) + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    struct calla_block *b = n_bytes <= SIZE_MAX - head ? calloc(1, head + n_bytes) : NULL;
    if (b == NULL) return NULL;
    b->next = f->blocks;
    f->blocks = b;
    return (char *)b + head;
}

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static int compare_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int open_shard(struct calla_weights_files *f, const char *dir, const char *name, struct calla_err *err) {
    struct calla_shard *s = &f->shards[f->n_shards++];
    s->path = calla_path_join(dir, name);
    s->name = strdup(name);
    if (s->path == NULL || s->name == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s/%s: no memory for a path", dir, name);
    int rc = calla_map_open(&s->map, s->path, 0, err);
    if (rc == 0) rc = calla_safetensors_parse(&s->st, s->map.data, s->map.n, s->path, err);
    return rc;
}

/* A shard is a file of the folder itself: an index can't reach elsewhere. */
static int check_shard_name(const char *index, const char *tensor, struct json_object *file, struct calla_err *err) {
    const char *s = file != NULL && json_object_is_type(file, json_type_string) ? json_object_get_string(file) : NULL;
    if (s != NULL && s[0] != 0 && s[0] != '.' && strlen(s) <= SHARD_NAME && strchr(s, '/') == NULL && ends_with(s, ".safetensors")) return 0;
    return calla_fail(err, CALLA_ERR_FORMAT, "%s: weight_map puts %.200s into %.80s, which is not the name of a .safetensors file of this folder",
                      index, tensor, file ? json_object_to_json_string_ext(file, JSON_C_TO_STRING_PLAIN) : "null");
}

/* The distinct shard names of weight_map, sorted, into *names (owned by the caller with its strings borrowed). */
static int shard_names(const char *index, struct json_object *map, const char ***names, int *n_names, struct calla_err *err) {
    const int n_map = json_object_object_length(map);
    int n = 0, n_distinct = 0;
    const char **v = malloc(((size_t)n_map + 1) * sizeof *v);
    if (v == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for %d names", index, n_map);
    *names = v;
    json_object_object_foreach(map, tensor, file) {
        const int rc = check_shard_name(index, tensor, file, err);
        if (rc != 0) return rc;
        v[n++] = json_object_get_string(file);
    }
    qsort(v, (size_t)n, sizeof *v, compare_text);
    for (int i = 0; i < n; i++)
        if (i == 0 || strcmp(v[i], v[n_distinct - 1]) != 0) v[n_distinct++] = v[i];
    if (n_distinct == 0 || n_distinct > MAX_SHARDS)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: weight_map names %d files, 1 to %d are read", index, n_distinct, MAX_SHARDS);
    *n_names = n_distinct;
    return 0;
}

static const struct calla_shard *shard_named(const struct calla_weights_files *f, const char *name) {
    for (int i = 0; i < f->n_shards; i++)
        if (strcmp(f->shards[i].name, name) == 0) return &f->shards[i];
    return NULL;
}

/* Every line of weight_map is true. */
static int check_weight_map(const struct calla_weights_files *f, const char *index, struct json_object *map,
                            const struct calla_weights_options *opt, struct calla_err *err) {
    size_t n_listed = 0, n_all = 0;
    json_object_object_foreach(map, tensor, file) {
        const char *name = json_object_get_string(file);
        if (calla_safetensors_find(&shard_named(f, name)->st, tensor) != NULL) {
            n_listed++;
            continue;
        }
        const char *where = NULL;
        for (int i = 0; i < f->n_shards; i++)
            if (calla_safetensors_find(&f->shards[i].st, tensor) != NULL) where = f->shards[i].name;
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: weight_map puts tensor %.200s into %s, %s%s", index, tensor, name,
                          where ? "but it stands in " : "but no shard holds it", where ? where : "");
    }
    for (int i = 0; i < f->n_shards; i++) n_all += f->shards[i].st.n_tensors;
    if (n_all != n_listed)
        calla_weights_log(opt, "warning: %s lists %zu tensors, its shards hold %zu", index, n_listed, n_all);
    return 0;
}

static void check_total_size(const struct calla_weights_files *f, const char *index, struct json_object *root,
                             const struct calla_weights_options *opt) {
    struct json_object *meta = NULL, *total = NULL;
    uint64_t bytes = 0;
    for (int i = 0; i < f->n_shards; i++) bytes += f->shards[i].st.data_bytes;
    if (!json_object_object_get_ex(root, "metadata", &meta) || meta == NULL || !json_object_is_type(meta, json_type_object)) return;
    if (!json_object_object_get_ex(meta, "total_size", &total) || total == NULL) return;
    if ((!json_object_is_type(total, json_type_int) && !json_object_is_type(total, json_type_double)) ||
        json_object_get_double(total) != (double)bytes)
        calla_weights_log(opt, "warning: %s: total_size is %.40s, the tensors have %" PRIu64 " bytes", index,
                          json_object_to_json_string_ext(total, JSON_C_TO_STRING_PLAIN), bytes);
}

static int open_indexed(struct calla_weights_files *f, const char *dir, const char *index,
                        const struct calla_weights_options *opt, struct calla_err *err) {
    struct json_object *root = NULL, *map = NULL;
    const char **names = NULL;
    int n_names = 0;
    int rc = calla_json_file(&root, index, err);
    if (rc != 0) return rc;
    if (!json_object_object_get_ex(root, "weight_map", &map) || map == NULL || !json_object_is_type(map, json_type_object)) {
        rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: weight_map is missing or not an object", index);
        goto out;
    }
    if ((rc = shard_names(index, map, &names, &n_names, err)) != 0) goto out;
    f->shards = calloc((size_t)n_names, sizeof *f->shards);
    if (f->shards == NULL) {
        rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for %d shards", index, n_names);
        goto out;
    }
    for (int i = 0; i < n_names; i++)
        if ((rc = open_shard(f, dir, names[i], err)) != 0) {
            if (rc == CALLA_ERR_IO) calla_err_prefix(err, "%s names shard %s, which cannot be read", index, names[i]);
            goto out;
        }
    if ((rc = check_weight_map(f, index, map, opt, err)) != 0) goto out;
    check_total_size(f, index, root, opt);
out:
    free(names);
    json_object_put(root);
    return rc;
}

/* Neither index nor model.safetensors: say what is there instead. */
static int nothing_to_open(const char *dir, struct calla_err *err) {
    int n = 0;
    char first[SHARD_NAME + 1] = "";
    DIR *d = opendir(dir);
    if (d == NULL) return calla_fail(err, CALLA_ERR_IO, "%s: %s", dir, strerror(errno));
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (ends_with(e->d_name, ".safetensors") && strlen(e->d_name) <= SHARD_NAME) {
            if (n++ == 0 || strcmp(e->d_name, first) < 0) strcpy(first, e->d_name);
        }
    closedir(d);
    if (n == 0) return calla_fail(err, CALLA_ERR_IO, "%s: holds neither %s nor %s", dir, SINGLE, INDEX);
    return calla_fail(err, CALLA_ERR_IO, "%s: holds %d shards (%s ...) but no %s; is the download complete?", dir, n, first, INDEX);
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp(((const struct calla_entry *)a)->tensor->name, ((const struct calla_entry *)b)->tensor->name);
}

static int make_table(struct calla_weights_files *f, const char *dir, struct calla_err *err) {
    size_t n = 0;
    for (int i = 0; i < f->n_shards; i++) n += f->shards[i].st.n_tensors;
    f->entries = calloc(n, sizeof *f->entries);
    if (f->entries == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for a table of %zu tensors", dir, n);
    for (int i = 0; i < f->n_shards; i++) {
        const struct calla_shard *s = &f->shards[i];
        for (size_t k = 0; k < s->st.n_tensors; k++)
            f->entries[f->n_entries++] = (struct calla_entry){
                .tensor = &s->st.tensors[k], .shard = s, .data = s->map.data + s->st.data_begin + s->st.tensors[k].begin };
    }
    qsort(f->entries, n, sizeof *f->entries, by_tensor_name);
    for (size_t i = 1; i < n; i++)
        if (by_tensor_name(&f->entries[i - 1], &f->entries[i]) == 0)
            return calla_fail(err, CALLA_ERR_FORMAT, "%s: tensor %s stands in both %s and %s", dir, f->entries[i].tensor->name,
                              f->entries[i - 1].shard->name, f->entries[i].shard->name);
    return 0;
}

int calla_weights_files_open(struct calla_weights_files **out, const char *dir,
                             const struct calla_weights_options *opt, struct calla_err *err) {
    int rc = CALLA_ERR_MEMORY;
    struct calla_weights_files *f = calloc(1, sizeof *f);
    char *index = calla_path_join(dir, INDEX), *single = calla_path_join(dir, SINGLE);
    *out = NULL;
    if (f == NULL || index == NULL || single == NULL) {
        calla_fail(err, rc, "%s: no memory", dir);
        goto out;
    }
    /* lstat-like: a broken link must reach open(), which says why */
    char unused[1];
    const bool has_index = access(index, F_OK) == 0 || readlink(index, unused, 1) >= 0;
    const bool has_single = access(single, F_OK) == 0 || readlink(single, unused, 1) >= 0;
    if (has_index) {
        rc = open_indexed(f, dir, index, opt, err);
    } else if (has_single) {
        f->shards = calloc(1, sizeof *f->shards);
        rc = f->shards == NULL ? calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory", dir) : open_shard(f, dir, SINGLE, err);
    } else {
        rc = nothing_to_open(dir, err);
    }
    if (rc == 0) rc = make_table(f, dir, err);
out:
    if (rc == 0) *out = f;
    else calla_weights_files_close(&f);
    free(index);
    free(single);
    return rc;
}

void calla_weights_files_close(struct calla_weights_files **f) {
    if (*f == NULL) return;
    for (int i = 0; i < (*f)->n_shards; i++) {
        struct calla_shard *s = &(*f)->shards[i];
        calla_safetensors_free(&s->st);
        calla_map_close(&s->map);
        free(s->path);
        free(s->name);
    }
    for (struct calla_block *b = (*f)->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free((*f)->shards);
    free((*f)->entries);
    free(*f);
    *f = NULL;
}

struct calla_entry *calla_weights_files_find(const struct calla_weights_files *f, const char *name) {
    const struct calla_tensor t = { .name = name };
    const struct calla_entry key = { .tensor = &t };
    return f->n_entries ? bsearch(&key, f->entries, f->n_entries, sizeof key, by_tensor_name) : NULL;
}
