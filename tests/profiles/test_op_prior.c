/* Operators without measurements: defaults are the catalogue's; collectives by hand and beside measured ones. */
#include "profiles/op_prior.h"

#include "tests/support/suites.h"

#include <math.h>

static const struct catalogue_device *a100(void)
{
    const struct catalogue_device *d = NULL;
    ck_assert_int_eq(catalogue_find("A100-SXM4-80", &d, NULL), OK);
    return d;
}

static struct op_shapes shapes_of(enum op_kind kind, const struct op_attrs *attrs, int32_t n,
                                  const struct shape *in)
{
    struct op_shapes s = {.n_inputs = n};
    for (int32_t i = 0; i < n; i++) s.input[i] = in[i];
    ck_assert_int_eq(op_infer(kind, attrs, &s, NULL), OK);
    return s;
}

static const struct shape rows = {2, {4096, 1024}}, weights = {2, {1024, 512}};

static double roofline(enum op_kind kind, const struct op_shapes *s, enum dtype t)
{
    const struct op_attrs none = {0};
    double bytes =
        (double)op_bytes_read(kind, &none, s, t) + (double)op_bytes_written(kind, &none, s, t);
    return catalogue_roofline_seconds(a100(), op_flops(kind, &none, s), bytes, t);
}

START_TEST(the_default_is_the_catalogues_roofline)
{
    const struct op_attrs none = {0};
    struct op_prior p = op_prior_default("A100-SXM4-80");
    struct op_shapes product =
                         shapes_of(OP_matmul, &none, 2, (const struct shape[]){rows, weights}),
                     sum = shapes_of(OP_add, &none, 2, (const struct shape[]){rows, rows});
    static const enum dtype types[] = {DTYPE_fp32, DTYPE_bf16};
    for (int i = 0; i < 2; i++) {
        ck_assert_double_eq(op_prior_seconds(&p, a100(), OP_matmul, &none, &product, types[i]),
                            roofline(OP_matmul, &product, types[i]));
        ck_assert_double_eq(op_prior_seconds(&p, a100(), OP_add, &none, &sum, types[i]),
                            roofline(OP_add, &sum, types[i]));
    }
    ck_assert_double_eq(op_prior_issue_seconds(&p, OP_add, &none, &sum), 0);
}
END_TEST

/* 2·4096·1024·512 FLOPs at 312 TFLOP/s · 0.5, half_rows 512: 1 + 512/4096 + 512/512 = 2.125 times. */
START_TEST(small_products_are_slower_by_their_rows_and_columns)
{
    const struct op_attrs none = {0};
    struct op_prior p = {.flops_efficiency = 0.5, .half_rows = 512, .memory_efficiency = 1};
    struct op_shapes s = shapes_of(OP_matmul, &none, 2, (const struct shape[]){rows, weights});
    double want = 2.0 * 4096 * 1024 * 512 / (312e12 * 0.5) * 2.125;
    ck_assert_double_eq_tol(op_prior_seconds(&p, a100(), OP_matmul, &none, &s, DTYPE_fp16), want,
                            1e-12 * want);
}
END_TEST

/* nccl-tests all_reduce on A100, medians in seconds (VIA-Research/vTrain, trace/a100): ranks, MiB, time. */
static const struct {
    int32_t ranks;
    int64_t mib;
    double seconds;
} measured[] = {{2, 4, 61.18e-6}, {2, 16, 131.9e-6}, {2, 32, 230.0e-6},
                {4, 4, 77.32e-6}, {4, 16, 179.6e-6}, {4, 32, 284.2e-6},
                {8, 4, 95.8e-6},  {8, 16, 232.4e-6}, {8, 32, 358.1e-6}};

START_TEST(a_ring_between_gpus_is_near_what_was_measured)
{
    const struct op_prior p = op_prior_default("A100-SXM4-80");
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        double n = measured[i].ranks, bytes = (double)(measured[i].mib << 20),
               ring = p.wire_s + p.wire_rank_s * (n - 1) +
                      2 * (n - 1) / n * bytes / (300e9 * p.wire_efficiency);
        ck_assert_msg(fabs(ring / measured[i].seconds - 1) < 0.15, "%g ranks, %d MiB: %g, not %g",
                      n, (int)measured[i].mib, ring, measured[i].seconds);
    }
}
END_TEST

/* Two heads of one sequence are not divisible by four: the softmax is unfused, five kernels more. */
/* 56 x 56 places of 8 images, 64 channels: 2·25088·64·64·9 FLOPs, as the product (25088,576)x(576,64). */
START_TEST(a_convolution_costs_what_its_product_costs)
{
    const struct op_attrs a = {
        .stencil = {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .size = {56, 56}}};
    static const struct shape x = {4, {8, 64, 56, 56}}, w = {4, {64, 64, 3, 3}};
    struct op_prior p = {.flops_efficiency = 0.5, .half_rows = 512, .memory_efficiency = 1};
    double flops = 2.0 * 25088 * 64 * 576, rate = 312e12 * 0.5;
    static const enum op_kind kinds[] = {OP_conv2d, OP_conv2d_grad, OP_conv2d_weight_grad};
    for (int i = 0; i < 3; i++) {
        struct op_shapes s = shapes_of(kinds[i], &a, 2,
                                       i == 0   ? (const struct shape[]){x, w}
                                       : i == 1 ? (const struct shape[]){w, x}
                                                : (const struct shape[]){x, x});
        double narrow = i < 2 ? 1 + 512.0 / 25088 + 512.0 / 64 : 1 + 512.0 / 64 + 512.0 / 576;
        double got = op_prior_seconds(&p, a100(), kinds[i], &a, &s, DTYPE_fp16);
        ck_assert_double_eq_tol(got, flops / rate * narrow, 1e-12 * got);
    }
}
END_TEST

START_TEST(eager_attention_has_several_kernels)
{
    struct op_prior p = {.issue_s = 1};
    struct op_attrs attrs = {.heads = 4, .kv_heads = 4, .head_dim = 8, .eager = true};
    struct shape qkv = {3, {1, 16, 96}};
    struct op_shapes s = shapes_of(OP_attention, &attrs, 1, &qkv);
    double fused = op_prior_issue_seconds(&p, OP_attention, &attrs, &s);
    ck_assert_double_gt(fused, 1);
    attrs.heads = attrs.kv_heads = 2, qkv.dim[2] = 48;
    s = shapes_of(OP_attention, &attrs, 1, &qkv);
    ck_assert_double_eq(op_prior_issue_seconds(&p, OP_attention, &attrs, &s), fused + 5);
    attrs.eager = false;
    ck_assert_double_eq(op_prior_issue_seconds(&p, OP_attention, &attrs, &s), 1);
}
END_TEST

/* The products of 8 experts in which 2·512/8 = 128 rows each are filled are as good as products of 128 rows. */
START_TEST(experts_products_are_as_small_as_their_rows)
{
    const struct catalogue_device *d = NULL;
    struct op_prior p = op_prior_default("A100-SXM4-40");
    struct op_attrs attrs = {.chosen = 2};
    struct shape in[3] = {{4, {1, 8, 512, 1024}}, {3, {8, 1024, 4096}}, {3, {1, 512, 8}}};
    struct op_shapes s = shapes_of(OP_expert_matmul, &attrs, 3, in);
    ck_assert_int_eq(catalogue_find("A100-SXM4-40", &d, NULL), OK);
    p.operator_s = 0, p.memory_efficiency = 1e9, p.half_rows = 64;
    double all = 2.0 * 1024 * 1024 * 4096, peak = catalogue_peak_flops(d, DTYPE_bf16);
    double efficiency = p.flops_efficiency / (1 + 64 / 128.0 + 64 / 4096.0);
    ck_assert_double_eq_tol(op_prior_seconds(&p, d, OP_expert_matmul, &attrs, &s, DTYPE_bf16),
                            all / (peak * efficiency), 1e-12);
}
END_TEST

SUITE_OF(op_prior, the_default_is_the_catalogues_roofline,
         small_products_are_slower_by_their_rows_and_columns,
         a_ring_between_gpus_is_near_what_was_measured, a_convolution_costs_what_its_product_costs,
         eager_attention_has_several_kernels,
         experts_products_are_as_small_as_their_rows)
