/* fuzz_safetensors.c - any bytes as a safetensors file.
 *
 * Two bytes say how many bytes of data follow a header, which is the rest; with
 * ff ff the rest is a whole file, length and all.  What is accepted names every
 * byte once and survives being written again; what is refused says why. */
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(x) do { if (!(x)) abort(); } while (0)

static int parse(struct calla_safetensors *st, const unsigned char *head, size_t n_head, size_t n_data, struct calla_err *err) {
    unsigned char *file = calloc(1, 8 + n_head + n_data);   /* of the exact size: a read past it is seen */
    MUST(file != NULL);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)n_head >> 8 * i);
    if (n_head > 0) memcpy(file + 8, head, n_head);
    const int rc = calla_safetensors_parse(st, file, 8 + n_head + n_data, "f.safetensors", err);
    free(file);
    return rc;
}

static bool same(const struct calla_tensor *a, const struct calla_tensor *b) {
    return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->n_dims == b->n_dims && a->begin == b->begin && a->end == b->end &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

/* The table as a header, names escaped where JSON wants it. */
static void write_header(struct calla_buf *out, const struct calla_safetensors *st) {
    calla_buf_char(out, '{');
    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct calla_tensor *t = &st->tensors[i];
        calla_buf_str(out, i ? ",\"" : "\"");
        for (const char *p = t->name; *p != 0; p++) {
            if (*p == '"' || *p == '\\') calla_buf_char(out, '\\');
            calla_buf_char(out, *p);
        }
        calla_buf_fmt(out, "\":{\"dtype\":\"%s\",\"shape\":[", calla_dtype_name(t->dtype));
        for (int d = 0; d < t->n_dims; d++) calla_buf_fmt(out, "%s%" PRIu64, d ? "," : "", t->dims[d]);
        calla_buf_fmt(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->begin, t->end);
    }
    calla_buf_char(out, '}');
}

static void check_accepted(const struct calla_safetensors *st) {
    uint64_t sum = 0;
    MUST(st->n_tensors > 0);
    for (size_t i = 0; i < st->n_tensors; i++) {
        const struct calla_tensor *t = &st->tensors[i];
        uint64_t bytes = calla_dtype_bytes(t->dtype);
        for (int d = 0; d < t->n_dims; d++) bytes *= t->dims[d];
        const size_t n = strlen(t->name);
        MUST(n > 0 && n <= CALLA_TENSOR_NAME && calla_utf8_valid_prefix(t->name, n) == n);
        MUST(t->begin <= t->end && t->end <= st->data_bytes && bytes == t->end - t->begin);
        MUST(calla_safetensors_find(st, t->name) == t);
        MUST(i == 0 || strcmp(st->tensors[i - 1].name, t->name) < 0);
        for (size_t k = 0; k < i; k++)   /* no byte has two owners */
            MUST(t->end <= st->tensors[k].begin || t->begin >= st->tensors[k].end || t->begin == t->end);
        sum += bytes;
    }
    MUST(sum == st->data_bytes);         /* and none has no owner */
    if (st->data_bytes > 1 << 20) return;
    struct calla_safetensors again;
    struct calla_buf head = { 0 };
    write_header(&head, st);
    MUST(parse(&again, (const unsigned char *)head.data, head.n, (size_t)st->data_bytes, NULL) == 0);
    MUST(again.n_tensors == st->n_tensors);
    for (size_t i = 0; i < st->n_tensors; i++) MUST(same(&st->tensors[i], &again.tensors[i]));
    calla_safetensors_free(&again);
    calla_buf_free(&head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct calla_safetensors st;
    struct calla_err err = { .message = "" };
    if (size < 2) return 0;
    const size_t n_data = (size_t)data[0] | (size_t)data[1] << 8;
    unsigned char *copy = malloc(size - 2 + 1);
    MUST(copy != NULL);
    memcpy(copy, data + 2, size - 2);
    const int rc = n_data == 0xffff ? calla_safetensors_parse(&st, copy, size - 2, "f.safetensors", &err)
                                    : parse(&st, copy, size - 2, n_data, &err);
    free(copy);
    if (rc == 0) {
        check_accepted(&st);
        calla_safetensors_free(&st);
    } else {
        const size_t k = strlen(err.message);
        MUST(rc == err.code && st.tensors == NULL && st.names == NULL && strncmp(err.message, "f.safetensors: ", 15) == 0);
        MUST(strpbrk(err.message, "\n\r\x1b") == NULL && calla_utf8_valid_prefix(err.message, k) == k);
    }
    return 0;
}
