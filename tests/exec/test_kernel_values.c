/* The host's kernels against values known otherwise: fused kinds against what they fuse, attention
 * against its definition, closed forms, updates worked by hand; and the host backend around them.
 */
#include "exec/backend.h"

#include "tests/support/calls.h"

#include <cblas.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>

/* --- fused kinds, packed operands --- */

static struct made *make_from(enum op_kind kind, const struct op_attrs *attrs, enum dtype t,
                              int32_t n, const struct shape *shape[], const void *input[])
{
    struct made *m = arena_alloc(memory, 1, sizeof *m);
    m->attrs = *attrs;
    m->shapes.n_inputs = n;
    for (int32_t i = 0; i < n; i++) m->shapes.input[i] = *shape[i], m->c.input[i] = input[i];
    calls_finish(m, kind, t);
    calls_run_checked(m);
    return m;
}

static void check_equal_bits(const struct made *a, const struct made *b)
{
    ck_assert_mem_eq(a->c.output[0], b->c.output[0],
                     calls_output_size(a, 0) * dtype_bytes(a->c.dtype));
}

static void check_fused(enum dtype t, bool erf)
{
    struct op_attrs attrs = {.gelu_erf = erf};
    struct made *f = calls_make(OP_bias_gelu, &attrs, "5,37 x 37", t);
    calls_run(f);
    const struct shape *x = &f->shapes.input[0];
    struct made *bias =
        make_from(OP_bias, &attrs, t, 2, (const struct shape *[]){x, &f->shapes.input[1]},
                  (const void *[]){f->c.input[0], f->c.input[1]});
    check_equal_bits(f, make_from(OP_gelu, &attrs, t, 1, (const struct shape *[]){x},
                                  (const void *[]){bias->c.output[0]}));
    struct made *s = calls_make(OP_swiglu, &attrs, "5,37 x 5,37", t);
    calls_run(s);
    struct made *silu = make_from(OP_silu, &attrs, t, 1, (const struct shape *[]){x},
                                  (const void *[]){s->c.input[0]});
    check_equal_bits(s, make_from(OP_multiply, &attrs, t, 2, (const struct shape *[]){x, x},
                                  (const void *[]){silu->c.output[0], s->c.input[1]}));
}

START_TEST(a_fused_kind_equals_what_it_fuses)
{
    for (int i = 0; i < 4; i++) check_fused(i & 1 ? DTYPE_fp64 : DTYPE_fp32, i & 2);
}
END_TEST

/* Columns [first, first + n) of rows of ld. */
static double *columns(const double *x, int64_t count, int64_t ld, int64_t first, int64_t n)
{
    double *y = calls_space(DTYPE_fp64, count * n);
    for (int64_t r = 0; r < count; r++)
        for (int64_t j = 0; j < n; j++) y[r * n + j] = x[r * ld + first + j];
    return y;
}

START_TEST(packed_attention_equals_separate_operands)
{
    struct op_attrs attrs = ATTENTION(4, 2, 3, 9);
    struct made *p = calls_make(OP_attention, &attrs, "2,70,24", DTYPE_fp64);
    calls_run(p);
    struct made *s = calls_make(OP_attention, &attrs, "2,70,12 x 2,70,6 x 2,70,6", DTYPE_fp64);
    for (int i = 0; i < 3; i++)
        s->c.input[i] = columns(p->c.input[0], 140, 24, i == 0 ? 0 : 6 + 6 * i, i ? 6 : 12);
    calls_run(s);
    calls_check_near(p, s, 1e-13);
}
END_TEST

/* Vaswani et al. 2017, one number at a time. q (T,H·D), k and v (T,K·D) of one sequence. */
static void naive_attention(const struct op_attrs *a, int64_t t, const double *q, const double *k,
                            const double *v, double *o, double *lse)
{
    int64_t d = a->head_dim, group = a->heads / a->kv_heads;
    for (int64_t h = 0; h < a->heads; h++)
        for (int64_t i = 0; i < t; i++) {
            double sum = 0, *row = o + (i * a->heads + h) * d;
            for (int64_t f = 0; f < d; f++) row[f] = 0;
            for (int64_t j = 0; j < (a->bidirectional ? t : i + 1); j++) {
                if (a->window && j + a->window <= i) continue;
                int64_t at = (j * a->kv_heads + h / group) * d;
                double score = 0;
                for (int64_t f = 0; f < d; f++) score += q[(i * a->heads + h) * d + f] * k[at + f];
                double e = exp(score / sqrt((double)d));
                sum += e;
                for (int64_t f = 0; f < d; f++) row[f] += e * v[at + f];
            }
            for (int64_t f = 0; f < d; f++) row[f] /= sum;
            lse[h * t + i] = log(sum);
        }
}

START_TEST(attention_is_what_its_definition_says)
{
    static const int32_t shapes[][5] = {/* T, H, K, D, window; -1: in both directions */
                                        {1, 1, 1, 1, 0},    {64, 2, 2, 8, 0},   {65, 4, 2, 3, 0},
                                        {200, 2, 1, 5, 0},  {200, 6, 2, 4, 30}, {130, 1, 1, 2, 128},
                                        {10, 2, 2, 4, 100}, {1, 2, 2, 4, -1},   {65, 4, 2, 3, -1},
                                        {197, 2, 1, 5, -1}};
    const int32_t *s = shapes[_i];
    struct op_attrs a = ATTENTION(s[1], s[2], s[3], s[4] < 0 ? 0 : s[4]);
    a.bidirectional = s[4] < 0;
    int64_t t = s[0], q = (int64_t)s[1] * s[3], kv = (int64_t)s[2] * s[3];
    char text[96];
    snprintf(text, sizeof text, "2,%d,%d x 2,%d,%d x 2,%d,%d", (int)t, (int)q, (int)t, (int)kv,
             (int)t, (int)kv);
    struct made *m = calls_make(OP_attention, &a, text, DTYPE_fp64);
    calls_run_checked(m);
    double *o = calls_space(DTYPE_fp64, 2 * t * q), *lse = calls_space(DTYPE_fp64, 2 * s[1] * t);
    for (int64_t b = 0; b < 2; b++)
        naive_attention(&a, t, (const double *)m->c.input[0] + b * t * q,
                        (const double *)m->c.input[1] + b * t * kv,
                        (const double *)m->c.input[2] + b * t * kv, o + b * t * q,
                        lse + b * s[1] * t);
    ck_assert_double_le(calls_distance(DTYPE_fp64, m->c.output[0], DTYPE_fp64, o, 2 * t * q),
                        1e-12);
    ck_assert_double_le(calls_distance(DTYPE_fp64, m->c.output[1], DTYPE_fp64, lse, 2 * s[1] * t),
                        1e-12);
}
END_TEST

/* --- values known in closed form --- */

START_TEST(activations_have_their_textbook_values)
{
    static const double x[] = {-20, -3, -1, -1e-3, 0, 1e-3, 0.5, 1, 3, 20, 60};
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        double tolerance = k ? 1e-14 : 1e-6;
        for (int erf_form = 0; erf_form < 2; erf_form++) {
            struct op_attrs attrs = {.gelu_erf = erf_form};
            struct made *gelu = calls_make(OP_gelu, &attrs, "11", t),
                        *silu = calls_make(OP_silu, &attrs, "11", t);
            for (int i = 0; i < 11; i++) {
                calls_set(t, (void *)(uintptr_t)gelu->c.input[0], i, x[i]);
                calls_set(t, (void *)(uintptr_t)silu->c.input[0], i, x[i]);
            }
            calls_run(gelu);
            calls_run(silu);
            for (int i = 0; i < 11; i++) {
                double v = (double)calls_get(t, gelu->c.input[0], i), c = sqrt(2 / acos(-1.0));
                double g = erf_form ? 0.5 * v * erfc(-v / sqrt(2.0))
                                    : v / (1 + exp(-2 * c * (v + 0.044715 * v * v * v)));
                ck_assert_double_eq_tol(calls_get(t, gelu->c.output[0], i), g,
                                        tolerance * fmax(fabs(g), 1e-30) * (v < -2 ? 100 : 1));
                ck_assert_double_eq_tol(calls_get(t, silu->c.output[0], i), v / (1 + exp(-v)),
                                        tolerance * fabs(v) + 1e-300);
            }
        }
    }
}
END_TEST

START_TEST(cross_entropy_survives_large_logits_and_nan_is_seen)
{
    struct made *m = calls_make(OP_cross_entropy, &(struct op_attrs){0}, "2,3 x 2", DTYPE_fp32);
    float *x = (float *)(uintptr_t)m->c.input[0];
    int32_t *y = (int32_t *)(uintptr_t)m->c.input[1];
    memcpy(x, (const float[]){1e4f, 1e4f, -1e4f, 0, 0, 0}, 6 * sizeof *x);
    y[0] = 1, y[1] = 2;
    calls_run(m); /* (ln 2 + ln 3) / 2 */
    ck_assert_double_eq_tol(calls_get(DTYPE_fp32, m->c.output[0], 0), (log(2) + log(3)) / 2, 1e-3);
    ck_assert_double_eq_tol(calls_get(DTYPE_fp32, m->c.output[1], 1), log(3), 1e-6);
    x[4] = NAN;
    calls_run(m);
    ck_assert(isnan(calls_get(DTYPE_fp32, m->c.output[0], 0)));
}
END_TEST

START_TEST(rotary_turns_halves_by_position_times_frequency)
{
    struct op_attrs a = {.heads = 1, .head_dim = 4, .theta = 10000};
    struct made *m = calls_make(OP_rotary, &a, "1,3,4", DTYPE_fp64);
    calls_run(m);
    const double *x = m->c.input[0], *y = m->c.output[0];
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 2; i++) { /* frequencies 1 and 10000^(-1/2) */
            double w = t * (i ? 0.01 : 1), p = x[4 * t + i], q = x[4 * t + i + 2];
            ck_assert_double_eq_tol(y[4 * t + i], p * cos(w) - q * sin(w), 1e-14);
            ck_assert_double_eq_tol(y[4 * t + i + 2], q * cos(w) + p * sin(w), 1e-14);
        }
}
END_TEST

START_TEST(llama_3_1_divides_only_the_long_wavelengths)
{
    struct op_attrs a = {.heads = 1, .head_dim = 128, .theta = 500000, .rope = {8, 1, 4, 8192}};
    double pi = acos(-1.0);
    for (int i = 0; i < 64; i++) {
        double f = pow(500000, -2.0 * i / 128), length = 2 * pi / f,
               got = op_values_rotary_frequency(&a, i);
        double smooth = (8192 / length - 1) / 3;
        double want = length < 2048 ? f : length > 8192 ? f / 8 : (1 - smooth) * f / 8 + smooth * f;
        ck_assert_double_eq_tol(got, want, 1e-12 * f);
    }
}
END_TEST

/* --- updates --- */

static struct made *make_update(enum op_kind kind, const char *shapes, enum dtype t, bool decay,
                                struct optimizer_step step)
{
    bool adam = kind == OP_adamw || kind == OP_flat_adamw;
    struct made *m = calls_make(kind, &(struct op_attrs){.decay = decay}, shapes, t);
    static const int adam_order[] = {0, 2, 3, 1};
    for (int i = 0; i < m->shapes.n_outputs; i++)
        m->c.output[i] = (void *)(uintptr_t)m->c.input[adam ? adam_order[i] : i];
    m->step = step;
    return m;
}

/* p = 1, g = 0.5 then -1, lr = 0.1, betas 0.5 and 0.5, eps = 0, decay 0.2:
 * step 1: m = 0.25, v = 0.125; m̂ = 0.5, √v̂ = 0.5;  p = 1·0.98 - 0.1 = 0.88
 * step 2: m = -0.375, v = 0.5625; m̂ = -0.5, v̂ = 0.75;  p = 0.88·0.98 + 0.05/√0.75 */
START_TEST(adamw_follows_two_steps_by_hand)
{
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        struct optimizer_step s = {.lr = 0.1, .beta1 = 0.5, .beta2 = 0.5, .weight_decay = 0.2, .step = 1};
        struct made *m = make_update(OP_adamw, "1 x 1 x 1 x 1", t, true, s);
        for (int i = 0; i < 4; i++)
            calls_set(t, m->c.output[i], 0, (const double[]){1, 0, 0, 0.5}[i]);
        calls_run(m);
        ck_assert_double_eq_tol(calls_get(t, m->c.output[0], 0), 0.88, 1e-7);
        ck_assert_double_eq(calls_get(t, m->c.output[3], 0), 0);
        calls_set(t, m->c.output[3], 0, -1);
        m->step.step = 2;
        calls_run(m);
        ck_assert_double_eq_tol(calls_get(t, m->c.output[0], 0), 0.8624 + 0.05 / sqrt(0.75), 2e-7);
        ck_assert_double_eq_tol(calls_get(t, m->c.output[1], 0), -0.375, 1e-7);
        ck_assert_double_eq_tol(calls_get(t, m->c.output[2], 0), 0.5625, 1e-7);
    }
}
END_TEST

/* Anchor 3, two rounds of changes 0.5 and -0.25 with lr 0.7 and momentum 0.9, by PyTorch's formula:
 * v = 0.5, a = 3 - 0.7 (0.5 + 0.45) = 2.335; v = 0.45 - 0.25 = 0.2, a = 2.335 - 0.7 (-0.25 + 0.18) = 2.384 */
START_TEST(outer_optimizers_follow_two_rounds_by_hand)
{
    struct optimizer_step s = {.outer_lr = 0.7, .outer_momentum = 0.9};
    struct made *m = make_update(OP_outer_nesterov, "1 x 1 x 1 x 1", DTYPE_fp64, false, s),
                *average = make_update(OP_outer_average, "1 x 1 x 1", DTYPE_fp64, false, s),
                *delta = calls_make(OP_outer_delta, &(struct op_attrs){.scale = 0.25}, "1 x 1", DTYPE_fp64);
    double *p = m->c.output[0], *a = m->c.output[1], *v = m->c.output[2], *g = m->c.output[3];
    *p = 9, *a = 3, *v = 0;
    for (int k = 0; k < 2; k++) {
        *g = k ? -0.25 : 0.5;
        calls_run(m);
        ck_assert_double_eq_tol(*a, k ? 2.384 : 2.335, 1e-15);
        ck_assert(*p == *a && *g == 0);
        ck_assert_double_eq_tol(*v, k ? 0.2 : 0.5, 1e-15);
    }
    p = average->c.output[0], a = average->c.output[1], g = average->c.output[2];
    *p = 9, *a = 3, *g = 0.5;
    calls_run(average);
    ck_assert(*p == 2.5 && *a == 2.5 && *g == 0);
    calls_set(DTYPE_fp64, (void *)(uintptr_t)delta->c.input[0], 0, 3);
    calls_set(DTYPE_fp64, (void *)(uintptr_t)delta->c.input[1], 0, 1);
    calls_run(delta);
    ck_assert_double_eq(calls_get(DTYPE_fp64, delta->c.output[0], 0), 0.5);
}
END_TEST

START_TEST(sgd_subtracts_the_gradient_and_the_decay)
{
    struct optimizer_step s = {.lr = 0.1, .weight_decay = 0.5, .step = 1};
    for (int flat = 0; flat < 2; flat++)
        for (int decay = 0; decay < 2; decay++) {
            struct made *m =
                make_update(flat ? OP_flat_sgd : OP_sgd, "2 x 2", DTYPE_fp64, decay, s);
            double *p = m->c.output[0], *g = m->c.output[1];
            p[0] = p[1] = 2, g[0] = 3, g[1] = -1;
            calls_run(m); /* 2 - 0.1 (g + 0.5·2) */
            ck_assert_double_eq_tol(p[0], decay ? 1.6 : 1.7, 1e-15);
            ck_assert_double_eq_tol(p[1], decay ? 2.0 : 2.1, 1e-15);
            ck_assert(g[0] == 0 && g[1] == 0);
        }
}
END_TEST

START_TEST(flat_adamw_equals_adamw_of_each_tensor_bit_for_bit)
{
    enum { N = 1000 };
    static const int64_t cut[] = {0, 1, 8, 263, 520, 777, N};
    struct optimizer_step s = {
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 7};
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        struct made *flat = make_update(OP_flat_adamw, "1000 x 1000 x 1000 x 1000", t, true, s);
        double *v = flat->c.output[2];
        for (int i = 0; i < N; i++) calls_set(t, v, i, fabs(calls_get(t, v, i)));
        unsigned char *one[4];
        for (int i = 0; i < 4; i++) one[i] = calls_copy(flat->c.output[i], N * dtype_bytes(t));
        calls_run(flat);
        for (int j = 0; j < 6; j++) {
            char text[64];
            int n = (int)(cut[j + 1] - cut[j]);
            snprintf(text, sizeof text, "%d x %d x %d x %d", n, n, n, n);
            struct made *m = make_update(OP_adamw, text, t, true, s);
            for (int i = 0; i < 4; i++) m->c.output[i] = one[i] + cut[j] * dtype_bytes(t);
            calls_run(m);
        }
        for (int i = 0; i < 4; i++)
            ck_assert_mem_eq(flat->c.output[i], one[i], (size_t)(N * dtype_bytes(t)));
    }
}
END_TEST

START_TEST(zero_writes_zeros_to_its_output)
{
    struct made m = {.shapes = {.n_outputs = 1, .output[0] = {.rank = 2, .dim = {3, 5}}}};
    m.c = (struct op_call){
        .kind = OP_zero, .dtype = DTYPE_fp32, .attrs = &m.attrs, .shapes = &m.shapes};
    m.c.output[0] = calls_poisoned(DTYPE_fp32, 15);
    calls_run(&m);
    ck_assert_double_eq(calls_largest(DTYPE_fp32, m.c.output[0], 15), 0);
    ck_assert(!signbit(((float *)m.c.output[0])[0]));
}
END_TEST
START_TEST(what_is_sliced_and_pasted_back_is_what_it_was)
{
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        size_t size = (size_t)dtype_bytes(t);
        struct made *slice =
            calls_make(OP_slice, &(struct op_attrs){.start = 1, .sequences = 3}, "5,2,3", t);
        calls_run(slice);
        ck_assert_mem_eq(slice->c.output[0], (const char *)slice->c.input[0] + 6 * size, 18 * size);
        struct made *paste =
            calls_make(OP_paste, &(struct op_attrs){.start = 2, .sequences = 6}, "3,2,3", t);
        char before[36 * sizeof(double)], *out = paste->c.output[0];
        for (int64_t i = 0; i < 36; i++) calls_set(t, out, i, (double)i);
        memcpy(before, out, sizeof before / sizeof(double) * size);
        calls_run(paste);
        ck_assert_mem_eq(out, before, 12 * size);
        ck_assert_mem_eq(out + 12 * size, paste->c.input[0], 18 * size);
        ck_assert_mem_eq(out + 30 * size, before + 30 * size, 6 * size);
    }
}
END_TEST

static void check_refused(struct made *m, const char *text)
{
    struct error err = {0};
    ck_assert_int_eq(kernels_host_run(&context, &m->c, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, text), "%s", err.text);
}

START_TEST(a_token_outside_the_vocabulary_is_named)
{
    struct made *e = calls_make(OP_embedding, &(struct op_attrs){0}, "2,3 x 7,4", DTYPE_fp32);
    ((int32_t *)(uintptr_t)e->c.input[0])[4] = 7;
    check_refused(e, "embedding: id 7 at 4 is outside the vocabulary of 7");
    struct made *g =
        calls_make(OP_embedding_grad, &(struct op_attrs){.vocabulary = 7}, "3 x 3,4", DTYPE_fp64);
    ((int32_t *)(uintptr_t)g->c.input[0])[0] = -1;
    check_refused(g, "id -1 at 0");
    struct made *c = calls_make(OP_cross_entropy, &(struct op_attrs){0}, "2,9 x 2", DTYPE_fp32);
    ((int32_t *)(uintptr_t)c->c.input[1])[1] = 9;
    check_refused(c, "id 9 at 1 is outside the vocabulary of 9");
}
END_TEST

START_TEST(other_types_are_refused_by_name)
{
    struct made *m = calls_make(OP_add, &(struct op_attrs){0}, "2 x 2", DTYPE_fp32);
    m->c.dtype = DTYPE_int32;
    check_refused(m, "add: the host does not support int32");
}
END_TEST

/* Another library's cblas_sgemm may stand before OpenBLAS's in the link order: then the two symbols
 * come from different objects. */
START_TEST(sgemm_is_the_one_of_openblas)
{
    Dl_info sgemm, config;
    ck_assert(dladdr((void *)(uintptr_t)cblas_sgemm, &sgemm));
    ck_assert(dladdr((void *)(uintptr_t)openblas_get_config, &config));
    ck_assert_str_eq(sgemm.dli_fname, config.dli_fname);
    ck_assert_ptr_nonnull(strstr(openblas_get_config(), "OpenBLAS"));
}
END_TEST

START_TEST(the_backend_keeps_memory_aligned_zeroed_and_apart)
{
    struct backend b;
    struct error err = {0};
    unsigned char *p[2], text[100];
    backend_host(&b);
    ck_assert_int_eq(b.abi, BACKEND_ABI);
    ck_assert_str_eq(b.name, "host");
    ck_assert_int_eq(b.open(&b, 0, &err), OK);
    for (int i = 0; i < 2; i++) {
        void *q;
        ck_assert_int_eq(b.allocate(&b, 100, &q, &err), OK);
        p[i] = q;
        ck_assert_uint_eq((uintptr_t)q % 64, 0);
        for (int j = 0; j < 100; j++) ck_assert_uint_eq(p[i][j], 0);
        memset(text, 'a' + i, sizeof text);
        ck_assert_int_eq(b.upload(&b, q, text, 100, &err), OK);
    }
    ck_assert_int_eq(b.download(&b, text, p[0], 100, &err), OK);
    ck_assert_uint_eq(text[99], 'a');
    ck_assert_int_eq(b.finish(&b, &err), OK);
    ck_assert_double_eq(b.blas_seconds(&b), -1); /* not measured */
    for (int i = 0; i < 2; i++) b.release(&b, p[i]);
    void *huge;
    ck_assert_int_eq(b.allocate(&b, (int64_t)1 << 56, &huge, &err), ERR_RESOURCE);
    b.close(&b);
}
END_TEST

START_TEST(the_clock_of_blas_runs_where_it_is_asked_for)
{
    struct backend b;
    setenv("MUSHER_BLAS_CLOCK", "1", 1);
    backend_host(&b);
    ck_assert_int_eq(b.open(&b, 0, NULL), OK);
    struct made *m = calls_make(OP_matmul, &(struct op_attrs){0}, "64,64 x 64,64", DTYPE_fp64);
    ck_assert_int_eq(b.run(&b, STREAM_COMPUTE, &m->c, NULL), OK);
    ck_assert_double_gt(b.blas_seconds(&b), 0);
    b.close(&b);
}
END_TEST
Suite *kernel_values_suite(void)
{
    Suite *suite = suite_create("kernel_values");
    TCase *c = tcase_create("kernel_values");
    tcase_add_checked_fixture(c, calls_begin, calls_end);
    tcase_add_loop_test(c, attention_is_what_its_definition_says, 0, 10);
    const TTest *tests[] = {a_fused_kind_equals_what_it_fuses,
                            packed_attention_equals_separate_operands,
                            activations_have_their_textbook_values,
                            cross_entropy_survives_large_logits_and_nan_is_seen,
                            rotary_turns_halves_by_position_times_frequency,
                            llama_3_1_divides_only_the_long_wavelengths,
                            adamw_follows_two_steps_by_hand,
                            outer_optimizers_follow_two_rounds_by_hand,
                            sgd_subtracts_the_gradient_and_the_decay,
                            flat_adamw_equals_adamw_of_each_tensor_bit_for_bit,
                            zero_writes_zeros_to_its_output,
                            what_is_sliced_and_pasted_back_is_what_it_was,
                            a_token_outside_the_vocabulary_is_named,
                            other_types_are_refused_by_name,
                            sgemm_is_the_one_of_openblas,
                            the_backend_keeps_memory_aligned_zeroed_and_apart,
                            the_clock_of_blas_runs_where_it_is_asked_for};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(suite, c);
    return suite;
}
