/* safetensors.h - the container: a JSON header, then raw tensors.
 *
 * The reader accepts exactly what the format says: a header that names every
 * byte of the file once, no more and no less.  It knows nothing of the model.
 * The structures serve the writer too. */
#ifndef CALLA_MODEL_SAFETENSORS_H
#define CALLA_MODEL_SAFETENSORS_H

#include "calla.h"

enum calla_dtype {
    CALLA_DT_F64, CALLA_DT_F32, CALLA_DT_F16, CALLA_DT_BF16, CALLA_DT_F8_E4M3, CALLA_DT_F8_E5M2,
    CALLA_DT_I64, CALLA_DT_I32, CALLA_DT_I16, CALLA_DT_I8,
    CALLA_DT_U64, CALLA_DT_U32, CALLA_DT_U16, CALLA_DT_U8, CALLA_DT_BOOL,
    CALLA_N_DTYPES
};
const char *calla_dtype_name(enum calla_dtype d);      /* "BF16" */
size_t      calla_dtype_bytes(enum calla_dtype d);     /* of one element */

enum { CALLA_TENSOR_DIMS = 8, CALLA_TENSOR_NAME = 512 };
#define CALLA_HEADER_LIMIT ((uint64_t)100 << 20)       /* bytes of a header */

struct calla_tensor {
    const char *name;            /* at most CALLA_TENSOR_NAME bytes, no control characters; borrowed */
    enum calla_dtype dtype;
    int      n_dims;
    uint64_t dims[CALLA_TENSOR_DIMS];   /* slowest first; the product times the dtype's bytes is end - begin */
    uint64_t begin, end;         /* bytes, from the end of the header                       */
};

struct calla_safetensors {
    uint64_t data_begin;         /* byte of the file where offset 0 lies                    */
    uint64_t data_bytes;
    struct calla_tensor *tensors;/* [n_tensors], by name; owned                             */
    size_t   n_tensors;
    char    *names;              /* owned                                                   */
};

/* bytes [n_bytes]: the whole file.  path is for messages only. */
int  calla_safetensors_parse(struct calla_safetensors *out, const unsigned char *bytes, size_t n_bytes,
                             const char *path, struct calla_err *err);
void calla_safetensors_free(struct calla_safetensors *st);
const struct calla_tensor *calla_safetensors_find(const struct calla_safetensors *st, const char *name);
/* "[1088, 16]" */
void calla_tensor_shape_text(const struct calla_tensor *t, char *out, size_t cap);

#endif
