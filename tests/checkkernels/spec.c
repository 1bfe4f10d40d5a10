/* spec.c - the C kernels against formulations in double precision.
 *
 * The other instruction sets are compared with C, so an error in C would be
 * everywhere alike.  Here each C kernel meets its textbook formula, written
 * anew; every bound is derived from the number of roundings, never tuned.
 * U is half a unit in the last place of 1. */
#include "spec.h"

#include <stdio.h>
#include <string.h>

void near(struct check *x, const char *what, int i, double want, float got, double bound) {
    if (fabs((double)got - want) <= bound) return;
    fail(x, "%s[%d] is %.9g, double precision has %.9g, off by %.3g where the roundings allow %.3g", what, i, (double)got,
         want, fabs((double)got - want), bound);
}

static double ulps(float got, double want) {
    const int e = want == 0 ? -126 : ilogb(fabs(want)) < -126 ? -126 : ilogb(fabs(want));
    return fabs((double)got - want) / ldexp(1.0, e - 23);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return x > 40 ? x : log1p(exp(x)); }

/* math.h over all exponents and signs, and densely where results are neither 0 nor inf. */
static void spec_math(struct check *x) {
    double worst_exp = 0, worst_softplus = 0, worst_sigmoid = 0;

    for (int i = 0; i < 3000000; i++) {
        const float u = i % 2 ? draw_unit(x) * 104.0f : cpu_float((uint32_t)draw(x));
        const double v = (double)u, e = exp(v), s = softplus(v), g = sigmoid(v);
        if (u != u) {
            if (cpu_exp(u) == cpu_exp(u) || cpu_softplus(u) == cpu_softplus(u) || cpu_silu(u) == cpu_silu(u))
                fail(x, "NaN does not stay NaN");
            continue;
        }
        if (e <= FLT_MAX) worst_exp = fmax(worst_exp, ulps(cpu_exp(u), e));
        else if (e > 1.01 * FLT_MAX && cpu_exp(u) != INFINITY) fail(x, "exp(%g) is not inf", v);
        if (s <= FLT_MAX && s > 1e-37) worst_softplus = fmax(worst_softplus, ulps(cpu_softplus(u), s));
        if (g > 1e-37) worst_sigmoid = fmax(worst_sigmoid, ulps(cpu_sigmoid(u), g));
    }
    printf("  largest errors: exp %.2f ulp, softplus %.2f, sigmoid %.2f\n", worst_exp, worst_softplus, worst_sigmoid);
    if (worst_exp > 1.1) fail(x, "exp is off by %.2f ulp, 1.1 are promised", worst_exp);
    if (worst_softplus > 3.0) fail(x, "softplus is off by %.2f ulp, 3 are promised", worst_softplus);
    if (worst_sigmoid > 3.0) fail(x, "sigmoid is off by %.2f ulp: exp's 1.1 and two roundings allow 3", worst_sigmoid);
}

static void spec_bf16(struct check *x) {
    for (int i = 0; i < 1000000; i++) {
        const uint32_t u = (uint32_t)draw(x);
        const float f = cpu_float(u), got = cpu_from_bf16(cpu_to_bf16(f));
        const float down = cpu_float(u & 0xffff0000u), up = cpu_float((u & 0xffff0000u) + 0x10000u);
        if (f != f) { if (got == got) fail(x, "bf16 of a NaN is a number"); continue; }
        if (isinf(f)) { if (got != f) fail(x, "bf16 of inf is not inf"); continue; }
        /* Magnitudes: the step above the largest is where inf would be, 2^128. */
        const double a = fabs((double)f), lo = fabs((double)down), hi = isinf(up) ? 0x1p128 : fabs((double)up);
        const double want = a - lo < hi - a ? lo : a - lo > hi - a ? hi : (u >> 16 & 1) ? hi : lo;
        if (fabs((double)got) != want && !(isinf(got) && want == 0x1p128)) fail(x, "bf16 of %08x is not the nearest", u);
    }
}

static void spec_quantise(struct check *x) {
    float row[128];
    int8_t hi[128], lo[128];
    float copy[128], scale[2], sum[2];
    struct cpu_acts a = { 1, 128, copy, hi, lo, scale, sum };

    for (int round = 0; round < 200; round++) {
        const float size = cpu_float((uint32_t)(draw_below(x, 160) + 40) << 23);
        for (int c = 0; c < 128; c++) row[c] = draw_unit(x) * size * (draw(x) % 5 ? 0.1f : 1.0f);
        x->c->quantise(&a, 0, row);
        for (int g = 0; g < 2; g++) {
            double amax = 0, total = 0;
            for (int c = g * 64; c < g * 64 + 64; c++) {
                const int q = 256 * hi[c] + lo[c];
                amax = fmax(amax, fabs((double)row[c]));
                total += q;
                if (q > 32639 || q < -32639) fail(x, "the integer %d is outside 32639", q);
                /* half a step, and three roundings of the quotient near the largest integer */
                near(x, "value", c, (double)row[c], scale[g] * (float)q, (double)scale[g] * (0.5 + 32639 * 4 * U) + 2 * U * fabs((double)row[c]));
            }
            near(x, "scale", g, amax / 32639, scale[g], 2 * U * amax / 32639);
            near(x, "sum", g, (double)scale[g] * total, sum[g], 2 * U * fabs((double)scale[g] * total));
        }
    }
    for (int c = 0; c < 128; c++) row[c] = c == 5 ? NAN : c == 70 ? 1e-35f : 0.0f;
    x->c->quantise(&a, 0, row);
    if (scale[0] == scale[0] || scale[1] != 0.0f || sum[1] != 0.0f || hi[5] || lo[5] || hi[70] || lo[70])
        fail(x, "a group with a NaN must have scale NaN, a tiny one scale 0, both integers 0");
}

static void spec_norms(struct check *x) {
    float in[2048], w[2048], z[2048], out[2048];
    static const int n[] = { 16, 128, 2048 };

    for (int round = 0; round < 30; round++) {
        const int len = n[round % 3];
        double sum = 0, sum128 = 0;
        for (int c = 0; c < len; c++) { in[c] = draw_unit(x) * 3; w[c] = draw_unit(x); z[c] = draw_unit(x) * 6; sum += (double)in[c] * in[c]; }
        /* n / 16 + 4 roundings of a sum of squares count half under the root, then a division, a sum, a root, a
         * reciprocal and two products */
        const double r = 1 / sqrt(sum / len + (double)1e-6f), rel = (0.5 * (len / 16.0 + 6) + 5) * U;
        x->c->rmsnorm(out, in, w, len, 1e-6f);
        for (int c = 0; c < len; c++) near(x, "rmsnorm", c, in[c] * r * w[c], out[c], rel * fabs(in[c] * r * w[c]));
        if (len < 128) continue;
        for (int c = 0; c < 128; c++) sum128 += (double)in[c] * in[c];
        const double r2 = 0.125 / sqrt(sum128 + (double)1e-6f), r3 = 1 / sqrt(sum128 / 128 + (double)1e-6f), rel128 = (0.5 * 14 + 6) * U;
        x->c->l2norm(out, in, 0.125f);
        for (int c = 0; c < 128; c++) near(x, "l2norm", c, in[c] * r2, out[c], rel128 * fabs(in[c] * r2));
        x->c->gated_norm(out, in, z, w, 1e-6f);
        for (int c = 0; c < 128; c++) {
            const double want = in[c] * r3 * w[c] * z[c] * sigmoid(z[c]);
            near(x, "gated_norm", c, want, out[c], (rel128 + 8 * U) * fabs(want));
        }
    }
}

static void spec_elementwise(struct check *x) {
    enum { N = 256 };
    float p[N], q[N], u[4][N], w[4 * N], out[N], beta[N];
    const float *y[3] = { p, q, u[0] };

    for (int round = 0; round < 20; round++) {
        for (int c = 0; c < N; c++) {
            p[c] = draw_unit(x) * 9; q[c] = draw_unit(x) * 9;
            for (int j = 0; j < 4; j++) { u[j][c] = draw_unit(x); w[j * N + c] = draw_unit(x); }
        }
        x->c->add(out, p, q, N);
        for (int c = 0; c < N; c++) near(x, "add", c, (double)p[c] + q[c], out[c], U * fabs((double)p[c] + q[c]));
        x->c->silu_mul(out, p, q, N);   /* exp 2.2 U, a sum, a division, a product */
        for (int c = 0; c < N; c++) { const double v = p[c] * sigmoid(p[c]) * q[c]; near(x, "silu_mul", c, v, out[c], 7 * U * fabs(v)); }
        x->c->sigmoid_mul(out, p, q, N);
        for (int c = 0; c < N; c++) { const double v = p[c] * sigmoid(q[c]); near(x, "sigmoid_mul", c, v, out[c], 7 * U * fabs(v)); }
        x->c->conv(out, u[0], u[1], u[2], u[3], w, N, N);
        for (int c = 0; c < N; c++) {
            double s = 0, size = 0;
            for (int j = 0; j < 4; j++) { s += (double)w[j * N + c] * u[j][c]; size += fabs((double)w[j * N + c] * u[j][c]); }
            /* silu's slope is at most 1.1 */
            near(x, "conv", c, s * sigmoid(s), out[c], 1.1 * 4 * U * size + 7 * U * fabs(s));
        }
        x->c->weighted_sum(out, y, w, 3, N);
        for (int c = 0; c < N; c++) {
            const double a = (double)w[0] * p[c], b = (double)w[1] * q[c], d = (double)w[2] * u[0][c];
            near(x, "weighted_sum", c, a + b + d, out[c], 3 * U * (fabs(a) + fabs(b) + fabs(d)));
        }
        for (int c = 0; c < N; c++) w[c] = -exp(draw_unit(x) * 3.0f);
        x->c->gdn_gates(out, beta, p, q, w, u[0], N);
        for (int c = 0; c < N; c++) {
            const double in = (double)p[c] + u[0][c], g = (double)w[c] * softplus(in);
            /* a + dt_bias rounds once: softplus changes by at most that much; then 3 ulp, a product, exp */
            const double dg = fabs((double)w[c]) * U * fabs(in) + fabs(g) * 8 * U;
            near(x, "decay", c, exp(g), out[c], exp(g) * (dg + 3 * U) + 1e-45);
            near(x, "beta", c, sigmoid(q[c]), beta[c], 6 * U * sigmoid(q[c]));
        }
    }
}

static void spec_rope(struct check *x) {
    float v[CALLA_HEAD], in[CALLA_HEAD], co[32], si[32];
    for (int i = 0; i < 32; i++) { const double a = 7000 * draw_unit(x); co[i] = (float)cos(a); si[i] = (float)sin(a); }
    for (int c = 0; c < CALLA_HEAD; c++) v[c] = in[c] = draw_unit(x) * 4;
    x->c->rope(v, co, si);
    for (int c = 0; c < CALLA_HEAD; c++) {
        const int i = c % 32, other = c < 32 ? c + 32 : c - 32;
        const double a = (double)in[c] * co[i], b = (c < 32 ? -1.0 : 1.0) * (double)in[other] * si[i];
        if (c < 64) near(x, "rope", c, a + b, v[c], 2 * U * (fabs(a) + fabs(b)));
        else if (v[c] != in[c]) fail(x, "rope touches dim %d", c);
    }
}

/* Straight from packed.h's words: byte k 64 + 4 r + j of a Q4 block is column 8 k + j low, 8 k + 4 + j high. */
static double weight_at(const struct cpu_matrix *w, int r, int c) {
    const size_t bytes = cpu_block_bytes(w->format);
    const unsigned char *b = w->data + ((size_t)(r / 16) * (size_t)(w->n_cols / 64) + (size_t)(c / 64)) * bytes;
    const int lane = r % 16, col = c % 64;
    uint16_t h, s, z;
    float f;

    if (w->format == CPU_F32) { memcpy(&f, b + 4 * (col * 16 + lane), 4); return f; }
    if (w->format == CPU_BF16) { memcpy(&h, b + 2 * (col * 16 + lane), 2); return cpu_from_bf16(h); }
    memcpy(&s, b + bytes - 64 + 2 * lane, 2);
    memcpy(&z, b + bytes - 32 + 2 * lane, 2);
    const int q = w->format == CPU_Q8 ? b[64 * (col / 4) + 4 * lane + col % 4]
                : b[64 * (col / 8) + 4 * lane + col % 4] >> (col % 8 >= 4 ? 4 : 0) & 15;
    return (double)cpu_from_bf16(s) * q + (double)cpu_from_bf16(z);
}

static void spec_matmul(struct check *x) {
    for (int f = 0; f < CPU_N_FORMATS; f++) {
        const int n_rows = 37, n_cols = 320, n = 3, n_groups = n_cols / 64;
        const struct cpu_matrix w = random_matrix(x, (enum cpu_format)f, n_rows, n_cols);
        const struct cpu_acts a = random_acts(x, n, n_cols);
        float y[3 * 37];
        const uint64_t n_blocks = x->c->matmul[f](y, 37, &w, 0, 3, &a, NULL, n, NULL);
        if (n_blocks != (uint64_t)(3 * n_groups)) fail(x, "unpacked %llu blocks of %d", (unsigned long long)n_blocks, 3 * n_groups);
        for (int t = 0; t < n; t++)
            for (int r = 0; r < n_rows; r++) {
                double want = 0, size = 0;
                for (int c = 0; c < n_cols; c++) {
                    const int at = t * n_cols + c;
                    const double xc = f <= CPU_Q8 ? (double)a.scale[at / 64] * (256 * a.hi[at] + a.lo[at]) : (double)a.x[at];
                    want += weight_at(&w, r, c) * xc;
                    size += fabs(weight_at(&w, r, c) * xc);
                }
                /* Quantised, a group: integer to float, s * scale, two fma, the sum of the group; the two parts
                 * q s and b may each be 16 times their sum, hence the factor. */
                const double roundings = f <= CPU_Q8 ? 32.0 * (2 * n_groups + 4) : n_cols + 1;
                near(x, "y", t * n_rows + r, want, y[t * 37 + r], roundings * U * size + 1e-30);
            }
    }
}

/* ---- running -------------------------------------------------------------------------- */

static const struct { const char *name; void (*fn)(struct check *x); } all[] = {
    { "math", spec_math }, { "bf16", spec_bf16 }, { "quantise", spec_quantise }, { "norms", spec_norms },
    { "elementwise", spec_elementwise }, { "rope", spec_rope }, { "matmul", spec_matmul }, { "gdn_scan", spec_gdn_scan },
    { "gdn_scan long", spec_gdn_long }, { "attention", spec_attention },
};

static void call_spec(struct check *x, const void *arg) { all[*(const int *)arg].fn(x); }

int spec_checks(uint64_t seed, const char *only, int *n_failed) {
    int n_passed = 0;

    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        char name[64];
        struct check x = { .c = cpu_kernels_at(0, NULL), .at_end = true, .rng = seed };
        snprintf(name, sizeof name, "%s c against double", all[i].name);
        if (only && !strstr(name, only)) continue;
        guarded(&x, call_spec, &i);
        printf("%-28s %s%s\n", name, x.failed ? "FAILED " : "within its bound", x.failed ? x.why : "");
        if (x.failed) ++*n_failed;
        else n_passed++;
    }
    return n_passed;
}
