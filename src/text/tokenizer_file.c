/* tokenizer_file.c - reads a whole file, plain or zstd, within a limit. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

#include "base/err.h"
#include "text/tokenizer_impl.h"

static int too_large(const char *path, struct calla_err *err) {
    return calla_fail(err, CALLA_ERR_LIMIT, "%s: larger than %zu bytes, the limit for a tokenizer file", path,
                      CALLA_TOKENIZER_FILE_LIMIT);
}

static int read_plain(struct calla_buf *out, const char *path, struct calla_err *err) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) return calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
    int rc = 0;
    for (;;) {
        if (out->n > CALLA_TOKENIZER_FILE_LIMIT) {
            rc = too_large(path, err);
            break;
        }
        if (!calla_buf_reserve(out, 1 << 20)) {
            rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory to read it", path);
            break;
        }
        const size_t k = fread(out->data + out->n, 1, 1 << 20, f);
        if (k == 0) break;
        out->n += k;
    }
    if (rc == 0 && ferror(f)) rc = calla_fail(err, CALLA_ERR_IO, "%s: %s", path, strerror(errno));
    if (rc == 0) out->data[out->n] = 0;
    fclose(f);
    return rc;
}

/* By stream, so that a frame's own claim of its size is never trusted. */
static int decompress(struct calla_buf *out, const char *path, const struct calla_buf *packed, struct calla_err *err) {
    ZSTD_DCtx *z = ZSTD_createDCtx();
    if (z == NULL) return calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory to decompress it", path);
    ZSTD_inBuffer in = { packed->data, packed->n, 0 };
    size_t left = 1;
    bool full = true;     /* the last call left nothing of its room */
    int rc = 0;
    while (rc == 0 && (in.pos < in.size || (full && left != 0))) {
        const size_t room = ZSTD_DStreamOutSize();
        if (out->n > CALLA_TOKENIZER_FILE_LIMIT) {
            rc = too_large(path, err);
        } else if (!calla_buf_reserve(out, room)) {
            rc = calla_fail(err, CALLA_ERR_MEMORY, "%s: no memory to decompress it", path);
        } else {
            ZSTD_outBuffer o = { out->data + out->n, room, 0 };
            left = ZSTD_decompressStream(z, &o, &in);
            if (ZSTD_isError(left)) rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: not zstd: %s", path, ZSTD_getErrorName(left));
            full = o.pos == room;
            out->n += o.pos;
        }
    }
    if (rc == 0 && (left != 0 || out->n == 0)) rc = calla_fail(err, CALLA_ERR_FORMAT, "%s: the zstd data is cut short", path);
    if (rc == 0) out->data[out->n] = 0;
    ZSTD_freeDCtx(z);
    return rc;
}

int calla_tokenizer_read_file(struct calla_buf *out, const char *path, struct calla_err *err) {
    const size_t n = strlen(path);
    if (n < 4 || strcmp(path + n - 4, ".zst") != 0) return read_plain(out, path, err);
    struct calla_buf packed = { 0 };
    int rc = read_plain(&packed, path, err);
    if (rc == 0) rc = decompress(out, path, &packed, err);
    calla_buf_free(&packed);
    return rc;
}
