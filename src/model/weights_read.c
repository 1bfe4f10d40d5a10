/* weights_read.c - finds a tensor, checks everything about it, and describes
 * it as a vector or a matrix.  A module is quantised iff its .scales exist; the
 * shapes say with how many bits, and config.json must say the same. */
#include "model/weights_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "base/err.h"
#include "model/matrix.h"

enum { NAME = CALLA_TENSOR_NAME + 64, GROUP = CALLA_GROUP };
#define READ_ARE "read are MLX affine weights of 4 and 8 bits in groups of 64 with bf16 scales, and bf16, f16 and f32"

/* Formats into name [NAME]; the parts are short constants and small numbers. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static void make_name(char *name, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, NAME, fmt, ap);
    va_end(ap);
}

static void shape_text(const uint64_t *dims, int n_dims, char *out, size_t cap) {
    struct calla_tensor t = { .n_dims = n_dims };
    memcpy(t.dims, dims, (size_t)n_dims * sizeof *dims);
    calla_tensor_shape_text(&t, out, cap);
}

static int missing(const struct calla_reader *r, const char *name) {
    return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %s is missing", r->dir, name);
}

static int check_shape(const struct calla_reader *r, const struct calla_entry *e, const uint64_t *dims, int n_dims) {
    const struct calla_tensor *t = e->tensor;
    if (t->n_dims == n_dims && memcmp(t->dims, dims, (size_t)n_dims * sizeof *dims) == 0) return 0;
    char have[160], want[160];
    calla_tensor_shape_text(t, have, sizeof have);
    shape_text(dims, n_dims, want, sizeof want);
    return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %s has shape %s, it must be %s", e->shard->path, t->name, have, want);
}

static bool plain_format(enum calla_dtype d, enum calla_format *out) {
    if (d == CALLA_DT_BF16) *out = CALLA_BF16;
    else if (d == CALLA_DT_F16) *out = CALLA_F16;
    else if (d == CALLA_DT_F32) *out = CALLA_F32;
    else return false;
    return true;
}

/* BF16 and F16 can't be told apart by size: all 16-bit tensors of a checkpoint
 * are of the type that config.json names, or else of the first one's. */
static int check_half(struct calla_reader *r, const struct calla_entry *e) {
    const struct calla_tensor *t = e->tensor;
    if (t->dtype != CALLA_DT_BF16 && t->dtype != CALLA_DT_F16) return 0;
    if (r->half_from == NULL) {
        r->half_from = r->config->says_half ? r->config->path : t->name;
        r->half = r->config->says_half ? r->config->half : t->dtype;
    }
    if (t->dtype == r->half) return 0;
    return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %s is %s, but %s says %s; a checkpoint has one of the two", e->shard->path, t->name,
                      calla_dtype_name(t->dtype), r->half_from, calla_dtype_name(r->half));
}

bool calla_read_has(const struct calla_reader *r, const char *prefix, const char *name) {
    char full[NAME];
    make_name(full, "%s%s", prefix, name);
    return calla_weights_files_find(r->files, full) != NULL;
}

static void mark(const struct calla_reader *r, struct calla_entry *e) {
    e->used = true;
    e->mtp = r->in_mtp;
}

int calla_read_vector(struct calla_reader *r, const char *prefix, const char *name, const uint64_t *dims, int n_dims,
                      float add, const float **out) {
    char full[NAME];
    enum calla_format format;
    make_name(full, "%s%s", prefix, name);
    struct calla_entry *e = calla_weights_files_find(r->files, full);
    if (e == NULL) return missing(r, full);
    int rc = check_shape(r, e, dims, n_dims);
    if (rc != 0) return rc;
    const char *dtype = calla_dtype_name(e->tensor->dtype);
    if (!plain_format(e->tensor->dtype, &format))
        return calla_fail(r->err, CALLA_ERR_UNSUPPORTED, "%s: tensor %s is %s; vectors are read from BF16, F16 and F32", e->shard->path, full, dtype);
    if ((rc = check_half(r, e)) != 0) return rc;
    size_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= (size_t)dims[i];   /* of a shape row: small */
    float *v = calla_weights_files_alloc(r->files, n * sizeof *v);
    if (v == NULL) return calla_fail(r->err, CALLA_ERR_MEMORY, "%s: no memory for %zu values of %s", r->dir, n, full);
    const struct calla_matrix m = { .n_rows = 1, .n_cols = (int)n, .format = format, .stored = format, .data = e->data };
    calla_matrix_row_f32(&m, 0, v);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %s: value %zu is %g", e->shard->path, full, i, (double)v[i]);
        v[i] += add;
    }
    mark(r, e);
    if (!r->in_mtp) {
        r->w->n_params += n;
        r->w->n_bytes += e->tensor->end - e->tensor->begin;
    }
    *out = v;
    return 0;
}

/* ---- matrices ------------------------------------------------------------ */

/* n_stack matrices of one tensor: [n_stack, n_rows, n_cols], or [n_rows, n_cols] where n_stack is 0. */
struct stack { int n_stack, n_rows, n_cols; enum calla_role role; };

static int check_part(struct calla_reader *r, const struct stack *s, const struct calla_entry *e, uint64_t last) {
    const uint64_t dims[] = { (uint64_t)s->n_stack, (uint64_t)s->n_rows, last };
    return s->n_stack ? check_shape(r, e, dims, 3) : check_shape(r, e, dims + 1, 2);
}

/* Bits and group by the shapes of the three tensors, and by config.json. */
static int check_quant(struct calla_reader *r, const struct stack *s, const char *module, const struct calla_entry *weight,
                       const struct calla_entry *scales, int *bits_out) {
    struct calla_quant_rule rule;
    const int rc = calla_config_rule(r->config, module, &rule, r->err);
    if (rc != 0) return rc;
    const char *path = weight->shard->path;
    const struct calla_tensor *w = weight->tensor, *sc = scales->tensor;
    if (!rule.known)
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %s exists, but config.json has no quantization", path, sc->name);
    if (!rule.quantised)
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %s exists, but config.json says that %s is not quantised", path, sc->name, module);
    if (strcmp(rule.mode, "affine") != 0)
        return calla_fail(r->err, CALLA_ERR_UNSUPPORTED, "%s: %s is quantised in mode %s; " READ_ARE, path, module, rule.mode);
    if (w->dtype != CALLA_DT_U32)
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %s is %s, quantised weights are U32", path, w->name, calla_dtype_name(w->dtype));
    const uint64_t w_cols = w->n_dims ? w->dims[w->n_dims - 1] : 0, s_cols = sc->n_dims ? sc->dims[sc->n_dims - 1] : 0;
    const uint64_t n = (uint64_t)s->n_cols;
    const uint64_t bits = w_cols <= n ? w_cols * 32 / n : 0, group = s_cols ? n / s_cols : 0;
    if (bits * n != w_cols * 32 || bits == 0 || group * s_cols != n)
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: %s has %d inputs; %" PRIu64 " columns of .weight and %" PRIu64
                          " of .scales make no whole number of bits and groups", path, module, s->n_cols, w_cols, s_cols);
    if ((bits != 4 && bits != 8) || group != GROUP)
        return calla_fail(r->err, CALLA_ERR_UNSUPPORTED, "%s: %s is quantised with %" PRIu64 " bits in groups of %" PRIu64 "; " READ_ARE,
                          path, module, bits, group);
    if ((rule.bits && (uint64_t)rule.bits != bits) || (rule.group && (uint64_t)rule.group != group))
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: %s has %" PRIu64 " bits in groups of %" PRIu64 ", config.json says %d bits in groups of %d",
                          path, module, bits, group, rule.bits, rule.group);
    *bits_out = (int)bits;
    return 0;
}

static int read_coded(struct calla_reader *r, const struct stack *s, const char *module, struct calla_entry *weight,
                      struct calla_entry *scales, struct calla_matrix *m) {
    char full[NAME];
    int bits = 0, rc;
    make_name(full, "%s.biases", module);
    struct calla_entry *biases = calla_weights_files_find(r->files, full);
    if (biases == NULL) return missing(r, full);
    if ((rc = check_quant(r, s, module, weight, scales, &bits)) != 0) return rc;
    if ((rc = check_part(r, s, weight, (uint64_t)s->n_cols * (uint64_t)bits / 32)) != 0) return rc;
    struct calla_entry *parts[] = { scales, biases };
    for (int i = 0; i < 2; i++) {
        if ((rc = check_part(r, s, parts[i], (uint64_t)s->n_cols / GROUP)) != 0) return rc;
        if (parts[i]->tensor->dtype != CALLA_DT_BF16)
            return calla_fail(r->err, CALLA_ERR_UNSUPPORTED, "%s: tensor %s is %s; " READ_ARE, parts[i]->shard->path,
                              parts[i]->tensor->name, calla_dtype_name(parts[i]->tensor->dtype));
        mark(r, parts[i]);
    }
    m->stored = m->format = bits == 4 ? CALLA_Q4 : CALLA_Q8;
    m->scales = scales->data;
    m->biases = biases->data;
    return 0;
}

static int read_plain(struct calla_reader *r, const struct stack *s, const char *module, struct calla_entry *weight, struct calla_matrix *m) {
    struct calla_quant_rule rule;
    int rc = check_part(r, s, weight, (uint64_t)s->n_cols);
    const char *dtype = calla_dtype_name(weight->tensor->dtype);
    if (!plain_format(weight->tensor->dtype, &m->stored)) {
        if (weight->tensor->dtype == CALLA_DT_U32) {
            char full[NAME];
            make_name(full, "%s.scales", module);
            return missing(r, full);
        }
        return calla_fail(r->err, CALLA_ERR_UNSUPPORTED, "%s: tensor %s is %s; " READ_ARE, weight->shard->path, weight->tensor->name, dtype);
    }
    if (rc != 0 || (rc = check_half(r, weight)) != 0) return rc;
    if ((rc = calla_config_rule(r->config, module, &rule, r->err)) != 0) return rc;
    if (rule.named && rule.quantised)
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: config.json says that %s is quantised, but tensor %s is %s and has no .scales",
                          weight->shard->path, module, weight->tensor->name, dtype);
    m->format = m->stored;
    if (r->names.hf && r->opt->quantise_bits == 4) m->format = s->role == CALLA_ROLE_Q8 ? CALLA_Q8 : CALLA_Q4;
    return 0;
}

/* The first of the stack's matrices; the others follow in the file.  weight_end
 * is ".weight", or "" for fused experts. */
static int read_stack(struct calla_reader *r, const char *module, const char *weight_end, const struct stack *s, struct calla_matrix *m) {
    char full[NAME];
    make_name(full, "%s%s", module, weight_end);
    struct calla_entry *weight = calla_weights_files_find(r->files, full);
    if (weight == NULL) return missing(r, full);
    *m = (struct calla_matrix){ .n_rows = s->n_rows, .n_cols = s->n_cols, .data = weight->data, .name = weight->tensor->name };
    make_name(full, "%s.scales", module);
    struct calla_entry *scales = calla_weights_files_find(r->files, full);
    const int rc = scales != NULL ? read_coded(r, s, module, weight, scales, m) : read_plain(r, s, module, weight, m);
    if (rc != 0) return rc;
    mark(r, weight);
    if (!r->in_mtp) {
        const uint64_t n = s->n_stack ? (uint64_t)s->n_stack : 1;
        r->w->n_params += n * (uint64_t)s->n_rows * (uint64_t)s->n_cols;
        r->w->n_bytes += n * calla_matrix_bytes(m);
    }
    return 0;
}

int calla_read_matrix(struct calla_reader *r, const char *prefix, const char *name, int n_rows, int n_cols,
                      enum calla_role role, struct calla_matrix *out) {
    char module[NAME];
    const struct stack s = { .n_rows = n_rows, .n_cols = n_cols, .role = role };
    make_name(module, "%s%s", prefix, name);
    return read_stack(r, module, ".weight", &s, out);
}

/* ---- experts ------------------------------------------------------------- */

/* Rows [first, first + n_rows) of matrix idx of a stack whose matrices have `of_rows` rows. */
static struct calla_matrix slice(const struct calla_matrix *stack, int idx, int of_rows, int first, int n_rows) {
    struct calla_matrix m = *stack;
    const size_t row = (size_t)idx * (size_t)of_rows + (size_t)first, n_groups = (size_t)m.n_cols / GROUP;
    m.n_rows = n_rows;
    m.data += row * calla_matrix_row_bytes(m.stored, m.n_cols);
    if (m.scales != NULL) {
        m.scales += row * n_groups * 2;
        m.biases += row * n_groups * 2;
    }
    return m;
}

struct expert_kind { const char *name; struct calla_matrix *out; int n_rows, n_cols; };

/* mlp.switch_mlp.gate_proj.weight [E, F, D] */
static int read_stacked(struct calla_reader *r, const char *prefix, const struct expert_kind kinds[3], int n_experts) {
    char module[NAME];
    for (int k = 0; k < 3; k++) {
        struct calla_matrix all;
        const struct stack s = { .n_stack = n_experts, .n_rows = kinds[k].n_rows, .n_cols = kinds[k].n_cols };
        make_name(module, "%smlp.switch_mlp.%s", prefix, kinds[k].name);
        const int rc = read_stack(r, module, ".weight", &s, &all);
        if (rc != 0) return rc;
        for (int e = 0; e < n_experts; e++) kinds[k].out[e] = slice(&all, e, s.n_rows, 0, s.n_rows);
    }
    return 0;
}

/* mlp.experts.gate_up_proj [E, 2F, D] (gate first) and mlp.experts.down_proj [E, D, F] */
static int read_fused(struct calla_reader *r, const char *prefix, const struct expert_kind kinds[3], int n_experts) {
    char module[NAME];
    struct calla_matrix all;
    const int f = kinds[0].n_rows;
    const struct stack gate_up = { .n_stack = n_experts, .n_rows = 2 * f, .n_cols = kinds[0].n_cols };
    const struct stack down = { .n_stack = n_experts, .n_rows = kinds[2].n_rows, .n_cols = kinds[2].n_cols };
    make_name(module, "%smlp.experts.gate_up_proj", prefix);
    int rc = read_stack(r, module, "", &gate_up, &all);
    if (rc != 0) return rc;
    for (int e = 0; e < n_experts; e++) {
        kinds[0].out[e] = slice(&all, e, 2 * f, 0, f);
        kinds[1].out[e] = slice(&all, e, 2 * f, f, f);
    }
    make_name(module, "%smlp.experts.down_proj", prefix);
    if ((rc = read_stack(r, module, "", &down, &all)) != 0) return rc;
    for (int e = 0; e < n_experts; e++) kinds[2].out[e] = slice(&all, e, down.n_rows, 0, down.n_rows);
    return 0;
}

/* mlp.experts.E.gate_proj.weight [F, D] */
static int read_single(struct calla_reader *r, const char *prefix, const struct expert_kind kinds[3], int n_experts) {
    char name[NAME];
    for (int e = 0; e < n_experts; e++)
        for (int k = 0; k < 3; k++) {
            make_name(name, "mlp.experts.%d.%s", e, kinds[k].name);
            const int rc = calla_read_matrix(r, prefix, name, kinds[k].n_rows, kinds[k].n_cols, CALLA_ROLE_Q4, &kinds[k].out[e]);
            if (rc != 0) return rc;
        }
    return 0;
}

int calla_read_experts(struct calla_reader *r, const char *prefix, struct calla_moe_weights *moe) {
    const struct calla_shape *s = r->config->shape;
    const int n = s->n_experts, d = s->n_hidden, f = s->n_expert_width;
    struct calla_matrix *all = calla_weights_files_alloc(r->files, 3 * (size_t)n * sizeof *all);
    if (all == NULL) return calla_fail(r->err, CALLA_ERR_MEMORY, "%s: no memory for %d experts", r->dir, n);
    moe->gate = all;
    moe->up = all + n;
    moe->down = all + 2 * n;
    const struct expert_kind kinds[] = { { "gate_proj", moe->gate, f, d }, { "up_proj", moe->up, f, d }, { "down_proj", moe->down, d, f } };
    if (calla_read_has(r, prefix, "mlp.experts.gate_up_proj")) return read_fused(r, prefix, kinds, n);
    if (calla_read_has(r, prefix, "mlp.experts.0.gate_proj.weight")) return read_single(r, prefix, kinds, n);
    if (r->names.hf && !calla_read_has(r, prefix, "mlp.switch_mlp.gate_proj.weight"))
        return calla_fail(r->err, CALLA_ERR_FORMAT, "%s: tensor %smlp.experts.gate_up_proj is missing, and so is %smlp.experts.0.gate_proj.weight",
                          r->dir, prefix, prefix);
    return read_stacked(r, prefix, kinds, n);
}
