/* matrix.c - rows of a matrix, as numbers or as codes.
 *
 * The quantiser is mx.quantize on the CPU, operation by operation in f32
 * (docs/model.md, "Quantisation"); its rounding to nearest even is what makes
 * a converted checkpoint equal to the published one.  Loops run over whole
 * groups of 64, so that the compiler turns them into vectors. */
#include "model/matrix.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "base/map.h"

enum { GROUP = CALLA_GROUP };

static bool is_coded(enum calla_format f) { return f == CALLA_Q4 || f == CALLA_Q8; }

static size_t element_bytes(enum calla_format f) { return f == CALLA_F32 ? 4 : f == CALLA_Q8 ? 1 : 2; }

size_t calla_matrix_row_bytes(enum calla_format f, int n_cols) {
    return f == CALLA_Q4 ? (size_t)n_cols / 2 : (size_t)n_cols * element_bytes(f);
}

size_t calla_matrix_bytes(const struct calla_matrix *m) {
    const size_t scales = is_coded(m->format) ? (size_t)m->n_cols / GROUP * 2 * sizeof(uint16_t) : 0;
    return (size_t)m->n_rows * (calla_matrix_row_bytes(m->format, m->n_cols) + scales);
}

void calla_matrix_drop_pages(const struct calla_matrix *m) {
    const size_t n_rows = (size_t)m->n_rows, n_groups = (size_t)m->n_cols / GROUP;
    calla_map_drop(m->data, n_rows * calla_matrix_row_bytes(m->stored, m->n_cols));
    if (!is_coded(m->stored)) return;
    calla_map_drop(m->scales, n_rows * n_groups * 2);
    calla_map_drop(m->biases, n_rows * n_groups * 2);
}

/* n elements of an unquantised format; src at any address. */
static void load_f32(enum calla_format f, const unsigned char *src, float *out, int n) {
    if (f == CALLA_F32) {
        memcpy(out, src, (size_t)n * sizeof *out);
        return;
    }
    uint16_t h[GROUP];
    for (int at = 0; at < n; at += GROUP) {
        const int m = n - at < GROUP ? n - at : GROUP;
        memcpy(h, src + 2 * (size_t)at, 2 * (size_t)m);
        if (f == CALLA_BF16)
            for (int i = 0; i < m; i++) out[at + i] = calla_bf16_to_f32(h[i]);
        else
            for (int i = 0; i < m; i++) out[at + i] = calla_f16_to_f32(h[i]);
    }
}

void calla_quantise_group(const float *w, int bits, uint8_t *q, float *scale_out, float *bias_out) {
    enum { LANES = 16 };
    const float top = (float)((1 << bits) - 1);
    float hi_lane[LANES], lo_lane[LANES], hi, lo, s, bias = 0;
    for (int i = 0; i < LANES; i++) hi_lane[i] = lo_lane[i] = w[i];
    for (int at = LANES; at < GROUP; at += LANES)
        for (int i = 0; i < LANES; i++) {
            hi_lane[i] = w[at + i] > hi_lane[i] ? w[at + i] : hi_lane[i];
            lo_lane[i] = w[at + i] < lo_lane[i] ? w[at + i] : lo_lane[i];
        }
    hi = hi_lane[0];
    lo = lo_lane[0];
    for (int i = 1; i < LANES; i++) {
        hi = hi_lane[i] > hi ? hi_lane[i] : hi;
        lo = lo_lane[i] < lo ? lo_lane[i] : lo;
    }
    s = (hi - lo) / top;
    if (!(s > 1e-7f)) s = 1e-7f;
    const bool low_edge = fabsf(lo) > fabsf(hi);
    if (!low_edge) s = -s;
    const float edge = low_edge ? lo : hi, q0 = nearbyintf(edge / s);
    if (q0 != 0) {
        s = edge / q0;
        bias = edge;
    }
    /* Clamped first, so that 2^23 + x rounds x to nearest even in its last bits
     * (without SSE4.1 there is no vector rounding); NaN becomes 0. */
    for (int i = 0; i < GROUP; i++) {
        float x = (w[i] - bias) / s;
        x = x > 0.0f ? x : 0.0f;
        x = x < top ? x : top;
        x += 8388608.0f;
        q[i] = (uint8_t)(calla_f32_bits(x) & 0xffu);
    }
    *scale_out = s;
    *bias_out = bias;
}

/* One group of a row that is coded while it is read. */
static void code_group(const struct calla_matrix *m, int row, int group, uint8_t *q, uint16_t *scale, uint16_t *bias) {
    float w[GROUP], s, b;
    const size_t size = element_bytes(m->stored);
    const unsigned char *src = m->data + ((size_t)row * (size_t)m->n_cols + (size_t)group * GROUP) * size;
    load_f32(m->stored, src, w, GROUP);
    calla_quantise_group(w, m->format == CALLA_Q4 ? 4 : 8, q, &s, &b);
    *scale = calla_bf16_from_f32(s);
    *bias = calla_bf16_from_f32(b);
}

static void unpack_group(const unsigned char *restrict src, uint8_t *restrict q) {
    unsigned char packed[GROUP / 2];
    memcpy(packed, src, sizeof packed);
    for (int i = 0; i < GROUP / 2; i++) {
        q[2 * i] = packed[i] & 15u;
        q[2 * i + 1] = packed[i] >> 4;
    }
}

void calla_matrix_row_quant(const struct calla_matrix *m, int row, uint8_t *q, uint16_t *scales, uint16_t *biases) {
    const int n_groups = m->n_cols / GROUP;
    if (m->stored != m->format) {
        for (int g = 0; g < n_groups; g++) code_group(m, row, g, q + g * GROUP, &scales[g], &biases[g]);
        return;
    }
    const size_t first = (size_t)row * (size_t)n_groups;
    memcpy(scales, m->scales + 2 * first, 2 * (size_t)n_groups);
    memcpy(biases, m->biases + 2 * first, 2 * (size_t)n_groups);
    if (m->stored == CALLA_Q8) {
        memcpy(q, m->data + first * GROUP, (size_t)m->n_cols);
        return;
    }
    const unsigned char *src = m->data + first * (GROUP / 2);
    for (int g = 0; g < n_groups; g++) unpack_group(src + g * (GROUP / 2), q + g * GROUP);
}

void calla_matrix_row_f32(const struct calla_matrix *m, int row, float *out) {
    const int n_groups = m->n_cols / GROUP;
    if (!is_coded(m->format)) {
        load_f32(m->stored, m->data + (size_t)row * calla_matrix_row_bytes(m->stored, m->n_cols), out, m->n_cols);
        return;
    }
    const size_t first = (size_t)row * (size_t)n_groups;
    for (int g = 0; g < n_groups; g++) {
        uint8_t q[GROUP];
        uint16_t scale, bias;
        if (m->stored != m->format) {
            code_group(m, row, g, q, &scale, &bias);
        } else {
            scale = calla_load_u16(m->scales + 2 * (first + (size_t)g));
            bias = calla_load_u16(m->biases + 2 * (first + (size_t)g));
            if (m->stored == CALLA_Q4) unpack_group(m->data + (first + (size_t)g) * (GROUP / 2), q);
            else memcpy(q, m->data + (first + (size_t)g) * GROUP, GROUP);
        }
        const float s = calla_bf16_to_f32(scale), b = calla_bf16_to_f32(bias);
        for (int i = 0; i < GROUP; i++) out[g * GROUP + i] = s * (float)q[i] + b;
    }
}

/* Elements [0, n) of a plain format: the index of the first that is not finite, or -1. */
static int64_t first_bad(enum calla_format f, const unsigned char *p, size_t n) {
    enum { BATCH = 4096 };
    uint16_t h[BATCH];
    uint32_t u[BATCH];
    const uint16_t inf = f == CALLA_F16 ? 0x7c00u : 0x7f80u;
    for (size_t at = 0; at < n; at += BATCH) {
        const size_t m = n - at < BATCH ? n - at : BATCH;
        unsigned any = 0;
        if (f == CALLA_F32) {
            memcpy(u, p + 4 * at, 4 * m);
            for (size_t i = 0; i < m; i++) any |= (u[i] & 0x7f800000u) == 0x7f800000u;
        } else {
            memcpy(h, p + 2 * at, 2 * m);
            for (size_t i = 0; i < m; i++) any |= (h[i] & inf) == inf;
        }
        if (!any) continue;
        for (size_t i = 0; i < m; i++)
            if (f == CALLA_F32 ? (u[i] & 0x7f800000u) == 0x7f800000u : (h[i] & inf) == inf) return (int64_t)(at + i);
    }
    return -1;
}

static bool found(const struct calla_matrix *m, enum calla_format f, const char *part, const unsigned char *p, size_t n_a_row,
                  struct calla_bad_value *out) {
    const int64_t at = first_bad(f, p, (size_t)m->n_rows * n_a_row);
    if (at < 0) return false;
    *out = (struct calla_bad_value){ .part = part, .row = (int)(at / (int64_t)n_a_row), .col = (int)(at % (int64_t)n_a_row) };
    load_f32(f, p + (size_t)at * element_bytes(f), &out->value, 1);
    return true;
}

bool calla_matrix_bad_value(const struct calla_matrix *m, struct calla_bad_value *out) {
    const size_t n_groups = (size_t)m->n_cols / GROUP;
    if (!is_coded(m->stored)) return found(m, m->stored, "weight", m->data, (size_t)m->n_cols, out);
    return found(m, CALLA_BF16, "scales", m->scales, n_groups, out) || found(m, CALLA_BF16, "biases", m->biases, n_groups, out);
}
