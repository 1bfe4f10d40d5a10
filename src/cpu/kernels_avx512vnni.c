/* kernels_avx512vnni.c - AVX-512 with VNNI: quantised matrices by vpdpbusd.
 *
 * A register of weights is four columns of sixteen rows as unsigned bytes; the
 * activations' two int8 parts ride over it one after the other.  Integer sums
 * are exact, so tiles may be cut freely.  Float kernels: kernels_vec.h. */
#define ISA(name) name##_avx512vnni
#include "cpu/vec_avx512.h"
#include "cpu/kernels_vec.h"

enum {
    FEW = 8,          /* up to so many rows go straight from the blocks: 16 integer and 8 float sums in registers */
    TILE_B = 2,       /* row blocks and rows of a tile for many rows */
    TILE_T = 4,
    AHEAD = 4096,     /* bytes that decoding fetches ahead */
};

/* What a tile reads of one row of activations. */
struct row { const int8_t *hi, *lo; const float *scale, *sum; };

INLINE struct row row_at(const struct cpu_acts *a, const int32_t *rows, int t) {
    const size_t i = (size_t)(rows ? rows[t] : t), n_cols = (size_t)a->n_cols, n_groups = n_cols / CALLA_GROUP;
    return (struct row){ a->hi + i * n_cols, a->lo + i * n_cols, a->scale + i * n_groups, a->sum + i * n_groups };
}

INLINE __m512i four(const int8_t *p) {
    int32_t x;
    memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

INLINE void store_rows(const struct cpu_matrix *w, int block, float *y, vec acc) {
    const int left = w->n_rows - block * CPU_LANES;
    if (left >= CPU_LANES) v_store(y + block * CPU_LANES, acc);
    else v_store_first(y + block * CPU_LANES, acc, left);
}

/* acc += f32(256 hi + lo) * (s * scale) + b * sum */
INLINE vec add_group(vec acc, __m512i hi, __m512i lo, vec s, vec b, const struct row *x, int g) {
    const vec i = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi, 8), lo));
    return v_fma(b, v_set1(x->sum[g]), v_fma(i, v_mul(s, v_set1(x->scale[g])), acc));
}

/* nt rows against one row block, weights unpacked in registers. */
INLINE void few_rows(float *y, size_t y_stride, const struct cpu_matrix *w, int block, const struct row *x, int nt,
                     int is_q4) {
    const size_t block_bytes = is_q4 ? CPU_Q4_BLOCK : CPU_Q8_BLOCK;
    const int n_groups = w->n_cols / CALLA_GROUP;
    const unsigned char *p = w->data + (size_t)block * (size_t)n_groups * block_bytes;
    const __m512i nibble = _mm512_set1_epi8(15);
    /* Sums in parallel: vpdpbusd takes five cycles and two start in each. */
    const int nc = nt == 1 ? 4 : nt <= 4 ? 2 : 1;
    vec acc[FEW];

    for (int t = 0; t < nt; t++) acc[t] = v_set1(0.0f);
    for (int g = 0; g < n_groups; g++, p += block_bytes) {
        __m512i hi[FEW], lo[FEW];
        for (int t = 0; t < nt * nc; t++) hi[t] = lo[t] = _mm512_setzero_si512();
        for (size_t i = 0; i < block_bytes; i += 64) _mm_prefetch((const char *)p + AHEAD + i, _MM_HINT_T0);
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            __m512i q = _mm512_load_si512(p + (is_q4 ? k / 2 : k) * 64);
            if (is_q4) q = _mm512_and_si512(k % 2 ? _mm512_srli_epi16(q, 4) : q, nibble);
            for (int t = 0; t < nt; t++) {
                const int i = t * nc + k % nc;
                hi[i] = _mm512_dpbusd_epi32(hi[i], q, four(x[t].hi + g * CALLA_GROUP + 4 * k));
                lo[i] = _mm512_dpbusd_epi32(lo[i], q, four(x[t].lo + g * CALLA_GROUP + 4 * k));
            }
        }
        for (int t = 0; t < nt; t++)
            for (int i = 1; i < nc; i++) {
                hi[t * nc] = _mm512_add_epi32(hi[t * nc], hi[t * nc + i]);
                lo[t * nc] = _mm512_add_epi32(lo[t * nc], lo[t * nc + i]);
            }
        const uint16_t *scales = (const void *)(p + block_bytes - 64);
        const vec s = v_load_bf16(scales), b = v_load_bf16(scales + CPU_LANES);
        for (int t = 0; t < nt; t++) acc[t] = add_group(acc[t], hi[t * nc], lo[t * nc], s, b, &x[t], g);
    }
    for (int t = 0; t < nt; t++) store_rows(w, block, y + (size_t)t * y_stride, acc[t]);
}

/* A row block made ready for many rows: bytes [n_groups][16][64], scales and
 * biases [n_groups][2][16] as floats.  8-bit blocks are bytes already. */
struct panel { const unsigned char *q; size_t q_step; const float *s; };

INLINE struct panel panel_of(const struct cpu_matrix *w, int block, unsigned char **scratch, int is_q4) {
    const size_t block_bytes = is_q4 ? CPU_Q4_BLOCK : CPU_Q8_BLOCK, n_groups = (size_t)w->n_cols / CALLA_GROUP;
    const unsigned char *p = w->data + (size_t)block * n_groups * block_bytes;
    const __m512i nibble = _mm512_set1_epi8(15);
    float *s = (float *)(void *)*scratch;
    unsigned char *q = *scratch + n_groups * 2 * CPU_LANES * sizeof *s;
    const struct panel out = { is_q4 ? q : p, is_q4 ? 1024 : CPU_Q8_BLOCK, s };

    for (size_t g = 0; g < n_groups; g++, p += block_bytes, s += 2 * CPU_LANES) {
        const uint16_t *scales = (const void *)(p + block_bytes - 64);
        v_store(s, v_load_bf16(scales));
        v_store(s + CPU_LANES, v_load_bf16(scales + CPU_LANES));
        if (!is_q4) continue;
        for (int k = 0; k < 8; k++, q += 128) {
            const __m512i u = _mm512_load_si512(p + k * 64);
            _mm512_store_si512(q, _mm512_and_si512(u, nibble));
            _mm512_store_si512(q + 64, _mm512_and_si512(_mm512_srli_epi16(u, 4), nibble));
        }
    }
    *scratch = q;
    return out;
}

INLINE void tile(float *y, size_t y_stride, const struct cpu_matrix *w, int block, const struct panel *panel, int nb,
                 const struct row *x, int nt) {
    const int n_groups = w->n_cols / CALLA_GROUP;
    vec acc[TILE_B][TILE_T];

    for (int b = 0; b < nb; b++)
        for (int t = 0; t < nt; t++) acc[b][t] = v_set1(0.0f);
    for (int g = 0; g < n_groups; g++) {
        __m512i hi[TILE_B][TILE_T], lo[TILE_B][TILE_T];
        for (int b = 0; b < nb; b++)
            for (int t = 0; t < nt; t++) hi[b][t] = lo[b][t] = _mm512_setzero_si512();
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            __m512i q[TILE_B];
            for (int b = 0; b < nb; b++) q[b] = _mm512_load_si512(panel[b].q + (size_t)g * panel[b].q_step + k * 64);
            for (int t = 0; t < nt; t++) {
                const __m512i h = four(x[t].hi + g * CALLA_GROUP + 4 * k), l = four(x[t].lo + g * CALLA_GROUP + 4 * k);
                for (int b = 0; b < nb; b++) {
                    hi[b][t] = _mm512_dpbusd_epi32(hi[b][t], q[b], h);
                    lo[b][t] = _mm512_dpbusd_epi32(lo[b][t], q[b], l);
                }
            }
        }
        for (int b = 0; b < nb; b++) {
            const float *s = panel[b].s + g * 2 * CPU_LANES;
            for (int t = 0; t < nt; t++)
                acc[b][t] = add_group(acc[b][t], hi[b][t], lo[b][t], v_load(s), v_load(s + CPU_LANES), &x[t], g);
        }
    }
    for (int b = 0; b < nb; b++)
        for (int t = 0; t < nt; t++) store_rows(w, block + b, y + (size_t)t * y_stride, acc[b][t]);
}

INLINE void tiles(float *y, size_t y_stride, const struct cpu_matrix *w, int block, const struct panel *panel, int nb,
                  const struct cpu_acts *a, const int32_t *rows, int n) {
    for (int t = 0; t < n;) {
        struct row x[TILE_T];
        const int left = n - t, nt = left < TILE_T ? left : TILE_T;
        float *to = y + (size_t)t * y_stride;
        for (int j = 0; j < nt; j++) x[j] = row_at(a, rows, t + j);
        switch (nt) {
        case 1: tile(to, y_stride, w, block, panel, nb, x, 1); break;
        case 2: tile(to, y_stride, w, block, panel, nb, x, 2); break;
        case 3: tile(to, y_stride, w, block, panel, nb, x, 3); break;
        default: tile(to, y_stride, w, block, panel, nb, x, TILE_T); break;
        }
        t += nt;
    }
}

INLINE uint64_t matmul_q(CPU_MATMUL_ARGS, int is_q4) {
    struct row x[FEW];

    if (block1 <= block0 || n <= 0) return 0;
    for (int t = 0; n <= FEW && t < n; t++) x[t] = row_at(a, rows, t);
    for (int i = block0; i < block1; i++) {
        switch (n) {
        case 1: few_rows(y, y_stride, w, i, x, 1, is_q4); break;
        case 2: few_rows(y, y_stride, w, i, x, 2, is_q4); break;
        case 3: few_rows(y, y_stride, w, i, x, 3, is_q4); break;
        case 4: few_rows(y, y_stride, w, i, x, 4, is_q4); break;
        case 5: few_rows(y, y_stride, w, i, x, 5, is_q4); break;
        case 6: few_rows(y, y_stride, w, i, x, 6, is_q4); break;
        case 7: few_rows(y, y_stride, w, i, x, 7, is_q4); break;
        case 8: few_rows(y, y_stride, w, i, x, 8, is_q4); break;
        default: {
            struct panel panel[TILE_B];
            unsigned char *at = scratch;
            const int nb = block1 - i < TILE_B ? 1 : TILE_B;
            for (int b = 0; b < nb; b++) panel[b] = panel_of(w, i + b, &at, is_q4);
            if (nb == TILE_B) tiles(y, y_stride, w, i, panel, TILE_B, a, rows, n);
            else tiles(y, y_stride, w, i, panel, 1, a, rows, n);
            i += nb - 1;
        } }
    }
    return (uint64_t)(block1 - block0) * (uint64_t)(w->n_cols / CALLA_GROUP);
}

static uint64_t matmul_q4_avx512vnni(CPU_MATMUL_ARGS) {
    return matmul_q(y, y_stride, w, block0, block1, a, rows, n, scratch, 1);
}

static uint64_t matmul_q8_avx512vnni(CPU_MATMUL_ARGS) {
    return matmul_q(y, y_stride, w, block0, block1, a, rows, n, scratch, 0);
}

const struct cpu_kernels cpu_kernels_avx512vnni = {
    .name = "avx512-vnni",
    .matmul = { [CPU_Q4] = matmul_q4_avx512vnni, [CPU_Q8] = matmul_q8_avx512vnni,
                [CPU_BF16] = ISA(matmul_bf16), [CPU_F32] = ISA(matmul_f32) },
    VEC_SLOTS,
};
