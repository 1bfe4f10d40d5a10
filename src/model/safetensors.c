/* safetensors.c - reads a header strictly: every byte of the file belongs to
 * the header or to exactly one tensor, and everything else is an error that
 * names the file, the tensor and both numbers.
 *
 * The header's JSON has one narrow form, so it is read in one pass straight
 * into the table: memory stays in proportion to the tensors, and a name that
 * stands twice is seen, which a general parser hides. */
#include "model/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/err.h"
#include "base/utf8.h"

static const struct { const char *name; size_t bytes; } dtypes[CALLA_N_DTYPES] = {
    [CALLA_DT_F64] = { "F64", 8 }, [CALLA_DT_F32] = { "F32", 4 }, [CALLA_DT_F16] = { "F16", 2 },
    [CALLA_DT_BF16] = { "BF16", 2 }, [CALLA_DT_F8_E4M3] = { "F8_E4M3", 1 }, [CALLA_DT_F8_E5M2] = { "F8_E5M2", 1 },
    [CALLA_DT_I64] = { "I64", 8 }, [CALLA_DT_I32] = { "I32", 4 }, [CALLA_DT_I16] = { "I16", 2 }, [CALLA_DT_I8] = { "I8", 1 },
    [CALLA_DT_U64] = { "U64", 8 }, [CALLA_DT_U32] = { "U32", 4 }, [CALLA_DT_U16] = { "U16", 2 }, [CALLA_DT_U8] = { "U8", 1 },
    [CALLA_DT_BOOL] = { "BOOL", 1 } };

const char *calla_dtype_name(enum calla_dtype d) { return dtypes[d].name; }
size_t calla_dtype_bytes(enum calla_dtype d) { return dtypes[d].bytes; }

void calla_tensor_shape_text(const struct calla_tensor *t, char *out, size_t cap) {
    size_t n = 0;
    for (int i = 0; i < t->n_dims && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%" PRIu64, i ? ", " : "[", t->dims[i]);
    if (n < cap) snprintf(out + n, cap - n, "%s]", t->n_dims ? "" : "[");
}

struct cursor {
    const unsigned char *begin, *p, *end;   /* of the header's JSON */
    const char *path;
    const char *tensor;                     /* whose entry is read; NULL: none     */
    char *names;                            /* where the next decoded string goes; room for the whole header */
    struct calla_err *err;
};

static int bad(const struct cursor *c, const char *what) {
    const size_t at = (size_t)(c->p - c->begin) + 8;
    if (c->tensor != NULL) return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: header, byte %zu: %s", c->path, c->tensor, at, what);
    return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: header, byte %zu: %s", c->path, at, what);
}

static void blanks(struct cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\t' || *c->p == '\n' || *c->p == '\r')) c->p++;
}

static bool take(struct cursor *c, char want) {
    blanks(c);
    if (c->p >= c->end || *c->p != (unsigned char)want) return false;
    c->p++;
    return true;
}

static bool hex4(struct cursor *c, uint32_t *out) {
    uint32_t v = 0;
    if (c->end - c->p < 4) return false;
    for (int i = 0; i < 4; i++) {
        const unsigned char d = *c->p++;
        if (d >= '0' && d <= '9') v = v * 16 + (uint32_t)(d - '0');
        else if ((d | 32) >= 'a' && (d | 32) <= 'f') v = v * 16 + (uint32_t)((d | 32) - 'a') + 10;
        else return false;
    }
    *out = v;
    return true;
}

/* After a backslash; appends the character's bytes at *w, never more than were read. */
static bool unescape(struct cursor *c, char **w) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (c->p >= c->end) return false;
    const unsigned char e = *c->p++;
    const char *at = e != 0 ? strchr(from, e) : NULL;
    if (at != NULL) {
        *(*w)++ = to[at - from];
        return true;
    }
    uint32_t u, low;
    if (e != 'u' || !hex4(c, &u)) return false;
    if (u >= 0xD800 && u < 0xDC00) {
        if (c->end - c->p < 2 || c->p[0] != '\\' || c->p[1] != 'u') return false;
        c->p += 2;
        if (!hex4(c, &low) || low < 0xDC00 || low > 0xDFFF) return false;
        u = 0x10000 + ((u - 0xD800) << 10) + (low - 0xDC00);
    } else if (u >= 0xDC00 && u <= 0xDFFF) {
        return false;
    }
    *w += calla_utf8_encode(u, *w);
    return true;
}

/* A JSON string, decoded and NUL-terminated, in c->names. */
static int string(struct cursor *c, const char **out, size_t *n_out) {
    if (!take(c, '"')) return bad(c, "a string is expected");
    char *w = c->names;
    *out = w;
    for (;;) {
        if (c->p >= c->end) return bad(c, "the header ends inside a string");
        const unsigned char ch = *c->p++;
        if (ch == '"') break;
        if (ch < 0x20 || ch == 0x7f) return bad(c, "a control character inside a string");
        if (ch != '\\') *w++ = (char)ch;
        else if (!unescape(c, &w)) return bad(c, "a wrong escape inside a string");
    }
    *n_out = (size_t)(w - *out);
    if (memchr(*out, 0, *n_out) != NULL) return bad(c, "a NUL character inside a string");
    *w++ = 0;
    c->names = w;
    return 0;
}

/* A whole number without sign, fraction, exponent or leading zero. */
static int whole(struct cursor *c, uint64_t *out) {
    blanks(c);
    const unsigned char *first = c->p;
    uint64_t v = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        const uint64_t d = (uint64_t)(*c->p - '0');
        if (v > (UINT64_MAX - d) / 10) return bad(c, "the number is above 2^64 - 1");
        v = v * 10 + d;
    }
    if (c->p == first || (*first == '0' && c->p - first > 1)) return bad(c, "a whole number from 0 on is expected");
    if (c->p < c->end && strchr(".eE+-", *c->p) != NULL && *c->p != 0) return bad(c, "the number is not whole");
    *out = v;
    return 0;
}

/* [a, b, ...]: at most cap numbers. */
static int numbers(struct cursor *c, uint64_t *v, int cap, int *n) {
    *n = 0;
    if (!take(c, '[')) return bad(c, "a list of numbers is expected");
    if (take(c, ']')) return 0;
    for (;;) {
        if (*n == cap) return bad(c, cap == 2 ? "more than 2 numbers in a list" : "more than 8 numbers in a list");
        const int rc = whole(c, &v[*n]);
        if (rc != 0) return rc;
        ++*n;
        if (take(c, ']')) return 0;
        if (!take(c, ',')) return bad(c, "',' or ']' is expected");
    }
}

static int metadata(struct cursor *c) {
    const char *text;
    size_t n;
    int rc;
    if (!take(c, '{')) return bad(c, "__metadata__ is not an object");
    if (take(c, '}')) return 0;
    for (;;) {
        char *const keep = c->names;
        if ((rc = string(c, &text, &n)) != 0) return rc;
        if (!take(c, ':')) return bad(c, "':' is expected");
        if ((rc = string(c, &text, &n)) != 0) return rc;
        c->names = keep;
        if (take(c, '}')) return 0;
        if (!take(c, ',')) return bad(c, "',' or '}' is expected");
    }
}

/* How much of a text from the file a message shows: at most 40 bytes, whole
 * characters, up to the first control character. */
static int shown(const char *text) {
    size_t n = 0;
    while (n < 40 && (unsigned char)text[n] >= 0x20 && text[n] != 0x7f) n++;
    return (int)calla_utf8_valid_prefix(text, n);
}

static int dtype_of(const struct cursor *c, const char *text, struct calla_tensor *t) {
    for (int d = 0; d < CALLA_N_DTYPES; d++)
        if (strcmp(text, dtypes[d].name) == 0) {
            t->dtype = (enum calla_dtype)d;
            return 0;
        }
    return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: unknown dtype '%.*s'", c->path, t->name, shown(text), text);
}

/* {"dtype": .., "shape": [..], "data_offsets": [begin, end]}, in any order, each once. */
static int tensor_body(struct cursor *c, struct calla_tensor *t) {
    uint64_t offsets[2];
    int n_offsets = 0, rc;
    unsigned seen = 0;
    if (!take(c, '{')) return bad(c, "an object with dtype, shape and data_offsets is expected");
    do {
        char *const keep = c->names;
        const char *key, *text;
        size_t n;
        if ((rc = string(c, &key, &n)) != 0) return rc;
        if (!take(c, ':')) return bad(c, "':' is expected");
        const unsigned bit = strcmp(key, "dtype") == 0 ? 1 : strcmp(key, "shape") == 0 ? 2 : strcmp(key, "data_offsets") == 0 ? 4 : 0;
        if (bit == 0 || (seen & bit) != 0)
            return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: %s key '%.*s'", c->path, t->name,
                              bit ? "repeated" : "unknown", shown(key), key);
        seen |= bit;
        if (bit == 1) rc = string(c, &text, &n) || dtype_of(c, text, t);
        else if (bit == 2) rc = numbers(c, t->dims, CALLA_TENSOR_DIMS, &t->n_dims);
        else rc = numbers(c, offsets, 2, &n_offsets);
        if (rc != 0) return CALLA_ERR_FORMAT;
        c->names = keep;
    } while (take(c, ','));
    if (!take(c, '}')) return bad(c, "',' or '}' is expected");
    if (seen != 7 || n_offsets != 2)
        return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: %s", c->path, t->name,
                          (seen & 1) == 0 ? "no dtype" : (seen & 2) == 0 ? "no shape" :
                          (seen & 4) == 0 ? "no data_offsets" : "data_offsets does not hold two numbers");
    t->begin = offsets[0];
    t->end = offsets[1];
    return 0;
}

/* Does the byte range fit shape and dtype, and the file? */
static int tensor_range(const struct cursor *c, const struct calla_tensor *t, uint64_t data_bytes) {
    char shape[160];
    uint64_t bytes = calla_dtype_bytes(t->dtype);
    calla_tensor_shape_text(t, shape, sizeof shape);
    for (int i = 0; i < t->n_dims; i++) {
        if (t->dims[i] != 0 && bytes > UINT64_MAX / t->dims[i])
            return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: shape %s has more than 2^64 bytes", c->path, t->name, shape);
        bytes *= t->dims[i];
    }
    if (t->end < t->begin)
        return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: data_offsets end at %" PRIu64 ", before their begin %" PRIu64,
                          c->path, t->name, t->end, t->begin);
    if (t->end > data_bytes)
        return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s ends at byte %" PRIu64 " of the data, the file has %" PRIu64
                          " (%" PRIu64 " bytes are missing); is the download complete?",
                          c->path, t->name, t->end, data_bytes, t->end - data_bytes);
    if (bytes != t->end - t->begin)
        return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s: shape %s of %s is %" PRIu64 " bytes, data_offsets hold %" PRIu64,
                          c->path, t->name, shape, calla_dtype_name(t->dtype), bytes, t->end - t->begin);
    return 0;
}

static int by_offset(const void *a, const void *b) {
    const struct calla_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct calla_tensor *)a)->name, ((const struct calla_tensor *)b)->name);
}

/* Every data byte belongs to one tensor, and every name stands once.  Leaves the table by name. */
static int check_table(const struct cursor *c, struct calla_safetensors *st) {
    uint64_t at = 0;
    if (st->n_tensors == 0) return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: holds no tensor", c->path);
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, by_offset);
    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct calla_tensor *t = &st->tensors[i];
        if (t->begin != at)
            return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: tensor %s begins at byte %" PRIu64 " of the data, %s %s%s%" PRIu64,
                              c->path, t->name, t->begin, t->begin < at ? "inside" : "after a gap:",
                              i ? st->tensors[i - 1].name : "the data", i ? " ends at " : " begins at ", at);
        at = t->end;
    }
    if (at != st->data_bytes)
        return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: the last tensor (%s) ends at byte %" PRIu64 " of the data, the file goes on to %" PRIu64,
                          c->path, st->tensors[st->n_tensors - 1].name, at, st->data_bytes);
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, by_name);
    for (size_t i = 1; i < st->n_tensors; i++)
        if (strcmp(st->tensors[i - 1].name, st->tensors[i].name) == 0)
            return calla_fail(c->err, CALLA_ERR_FORMAT, "%s: the header names tensor %s twice", c->path, st->tensors[i].name);
    return 0;
}

static int tensor_name(const struct cursor *c, const char *name, size_t n) {
    if (n == 0 || n > CALLA_TENSOR_NAME) return bad(c, "a tensor's name is empty or longer than 512 bytes");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) return bad(c, "a control character in a tensor's name");
    return 0;
}

static int table(struct cursor *c, struct calla_safetensors *st) {
    size_t cap = 0;
    bool has_metadata = false;
    int rc;
    if (c->p >= c->end || *c->p != '{') return bad(c, "'{' is expected");
    c->p++;
    if (!take(c, '}')) for (;;) {
        const char *name;
        size_t n;
        if ((rc = string(c, &name, &n)) != 0) return rc;
        if (!take(c, ':')) return bad(c, "':' is expected");
        if (strcmp(name, "__metadata__") == 0) {
            if (has_metadata) return bad(c, "__metadata__ stands twice");
            has_metadata = true;
            if ((rc = metadata(c)) != 0) return rc;
        } else {
            if ((rc = tensor_name(c, name, n)) != 0) return rc;
            if (st->n_tensors == cap) {
                cap = cap ? 2 * cap : 256;
                struct calla_tensor *more = realloc(st->tensors, cap * sizeof *more);
                if (more == NULL) return calla_fail(c->err, CALLA_ERR_MEMORY, "%s: no memory for %zu tensors", c->path, cap);
                st->tensors = more;
            }
            struct calla_tensor *t = &st->tensors[st->n_tensors];
            *t = (struct calla_tensor){ .name = name };
            c->tensor = name;
            if ((rc = tensor_body(c, t)) != 0 || (rc = tensor_range(c, t, st->data_bytes)) != 0) return rc;
            st->n_tensors++;
            c->tensor = NULL;
        }
        if (take(c, '}')) break;
        if (!take(c, ',')) return bad(c, "',' or '}' is expected");
    }
    blanks(c);
    if (c->p != c->end) return bad(c, "something stands behind the last '}'");
    return check_table(c, st);
}

int calla_safetensors_parse(struct calla_safetensors *out, const unsigned char *bytes, size_t n_bytes,
                            const char *path, struct calla_err *err) {
    static const char lfs[] = "version https://git-lfs";
    *out = (struct calla_safetensors){ 0 };
    if (n_bytes >= sizeof lfs - 1 && memcmp(bytes, lfs, sizeof lfs - 1) == 0)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'", path);
    if (n_bytes < 8)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: %zu bytes, a safetensors file has at least 8; is the download complete?", path, n_bytes);
    const uint64_t n_header = calla_load_u64(bytes);
    if (n_header > CALLA_HEADER_LIMIT)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: the header is said to have %" PRIu64 " bytes, at most %" PRIu64
                          " are read; this is not a safetensors file", path, n_header, CALLA_HEADER_LIMIT);
    if (n_header > n_bytes - 8)
        return calla_fail(err, CALLA_ERR_FORMAT, "%s: the header is said to have %" PRIu64 " bytes, the file has %zu behind its length; "
                          "is the download complete?", path, n_header, n_bytes - 8);
    struct cursor c = { .begin = bytes + 8, .p = bytes + 8, .end = bytes + 8 + n_header, .path = path, .err = err };
    out->data_begin = 8 + n_header;
    out->data_bytes = n_bytes - 8 - n_header;
    /* a decoded string is shorter than its raw form with both quotes, so all fit */
    out->names = malloc((size_t)n_header + 1);
    if (out->names == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory for a header of %" PRIu64 " bytes", path, n_header);
    c.names = out->names;
    const size_t n_valid = calla_utf8_valid_prefix((const char *)c.begin, (size_t)n_header);
    int rc;
    if (n_valid == n_header) {
        rc = table(&c, out);
    } else {
        c.p += n_valid;
        rc = bad(&c, "not UTF-8");
    }
    if (rc != 0) calla_safetensors_free(out);
    return rc;
}

void calla_safetensors_free(struct calla_safetensors *st) {
    free(st->tensors);
    free(st->names);
    *st = (struct calla_safetensors){ 0 };
}

const struct calla_tensor *calla_safetensors_find(const struct calla_safetensors *st, const char *name) {
    const struct calla_tensor key = { .name = name };
    return st->n_tensors ? bsearch(&key, st->tensors, st->n_tensors, sizeof key, by_name) : NULL;
}
