/* weights.h - a checkpoint as typed tensors.
 *
 * Owns the mappings of the files and small f32 copies of the vectors (norms,
 * convolution, gates); matrices are borrowed from the mappings and may lie at
 * any byte offset.  Both layouts (MLX affine, Hugging Face bf16) end in the
 * same table: norms hold the factor that multiplies (1 + w is already added),
 * experts are one matrix each, convolution taps are oldest first.
 * Read-only after open; any thread. */
#ifndef CALLA_MODEL_WEIGHTS_H
#define CALLA_MODEL_WEIGHTS_H

#include "calla.h"
#include "model/shape.h"

enum calla_format { CALLA_F32, CALLA_F16, CALLA_BF16, CALLA_Q4, CALLA_Q8 };

/* [n_rows, n_cols], y = W x.  Q4 and Q8 are MLX affine: value = scale * q +
 * bias, groups of 64 along the columns (docs/model.md, "Quantisation").
 * `format` is what the rows read as; where `stored` differs (bf16 file that is
 * quantised while loading) every read quantises the row anew, always with the
 * same result. */
struct calla_matrix {
    int n_rows, n_cols;
    enum calla_format format, stored;
    const unsigned char *data;    /* stored Q4: [n_rows, n_cols / 2] bytes, low nibble first;
                                   * Q8: [n_rows, n_cols]; others: [n_rows, n_cols] elements */
    const unsigned char *scales;  /* [n_rows, n_cols / 64] bf16, stored Q only               */
    const unsigned char *biases;  /* as scales                                               */
    const char *name;             /* of the tensor, for messages                             */
};

/* One row as f32 [n_cols]; what the network is defined on. */
void calla_matrix_row_f32(const struct calla_matrix *m, int row, float *out);
/* One row of a Q4 or Q8 matrix: q [n_cols] one value a byte, bf16 scales and
 * biases [n_cols / 64]. */
void calla_matrix_row_quant(const struct calla_matrix *m, int row, uint8_t *q,
                            uint16_t *scales, uint16_t *biases);
/* Bytes that the matrix has in `format` (a backend's copy needs as many). */
size_t calla_matrix_bytes(const struct calla_matrix *m);
/* Tells the system that the file pages of the matrix are not needed soon. */
void calla_matrix_drop_pages(const struct calla_matrix *m);

struct calla_gdn_weights {
    struct calla_matrix in_qkv;   /* [C, D]: q, k (HK * S each), v (HV * S)  */
    struct calla_matrix in_z;     /* [HV * S, D]                             */
    struct calla_matrix in_b, in_a; /* [HV, D]                               */
    struct calla_matrix out;      /* [D, HV * S]                             */
    const float *conv;            /* [C, 4], oldest tap first                */
    const float *a_log;           /* [HV]                                    */
    const float *dt_bias;         /* [HV]                                    */
    const float *norm;            /* [S], shared by all heads                */
};

struct calla_attn_weights {
    struct calla_matrix q;        /* [H * 2A, D]: a head's query, then its gate */
    struct calla_matrix k, v;     /* [G * A, D]                              */
    struct calla_matrix o;        /* [D, H * A]                              */
    const float *q_norm, *k_norm; /* [A]                                     */
};

struct calla_moe_weights {
    struct calla_matrix router;   /* [E, D]                                  */
    struct calla_matrix *gate, *up; /* [E] matrices [F, D]                   */
    struct calla_matrix *down;    /* [E] matrices [D, F]                     */
    struct calla_matrix shared_gate, shared_up, shared_down; /* [F, D] x2, [D, F] */
    struct calla_matrix shared_router; /* [1, D]: logit of the shared expert */
};

struct calla_layer_weights {
    bool is_attention;            /* which of the two mixers below is set    */
    const float *input_norm;      /* [D]                                     */
    const float *post_norm;       /* [D]                                     */
    struct calla_gdn_weights gdn;
    struct calla_attn_weights attn;
    struct calla_moe_weights moe;
};

struct calla_mtp_weights {        /* docs/model.md, "MTP"                    */
    const float *norm_embed, *norm_hidden, *norm; /* [D]                     */
    struct calla_matrix fc;       /* [D, 2D]: embedding first                */
    struct calla_layer_weights layer; /* a full-attention layer              */
};

/* generation_config.json, with config.json behind it */
struct calla_generation { struct calla_sampling sampling; int32_t stop_ids[CALLA_MAX_STOP_IDS]; int n_stop_ids; };

struct calla_weights {
    const struct calla_shape *shape;
    int n_layers;                 /* <= shape->n_layers, a multiple of 4     */
    struct calla_matrix embed;    /* [V, D]                                  */
    struct calla_matrix head;     /* [V, D]                                  */
    const float *final_norm;      /* [D]                                     */
    struct calla_layer_weights *layers; /* [n_layers]                        */
    struct calla_mtp_weights *mtp;/* NULL where the checkpoint has none      */
    struct calla_generation generation;
    uint64_t n_params;            /* of the text model, without MTP          */
    uint64_t n_bytes;             /* of its tensors in `format`              */
    uint64_t content_hash;        /* XXH3-64 of config and headers: which checkpoint a state belongs to */
    const char *layout;           /* "mlx" or "hf"                           */
    struct calla_weights_files *files; /* owned mappings; private            */
};

struct calla_weights_options {
    int  quantise_bits;           /* 4: matrices of a bf16 checkpoint read as Q4 (router and shared gate
                                   * Q8), as the published one; 0: as they are stored */
    bool check_values;            /* read every scale, bias and unquantised weight and refuse what is not
                                   * finite (vectors always are): an eighth of a 4-bit file, all of a bf16 one */
    void (*log)(void *user, const char *line); /* warnings; may be NULL      */
    void *user;
};

int  calla_weights_open(struct calla_weights **out, const char *dir,
                        const struct calla_weights_options *opt, struct calla_err *err);
void calla_weights_close(struct calla_weights **w);
/* Every matrix once: embedding, head, then layer by layer, then the MTP head. */
void calla_weights_each(const struct calla_weights *w, void (*f)(void *user, const struct calla_matrix *m), void *user);

#endif
