/* The catalogue: values with sources, and their invariants. */
#include "profiles/catalogue.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>

enum { COLUMNS = 11 };
struct column {
    const char *name, *unit;
    double scale;
    const struct catalogue_value *value;
};

static void columns_of(const struct catalogue_device *d, struct column out[COLUMNS])
{
    const struct column all[COLUMNS] = {{"memory", "GB", 1e9, &d->memory_bytes},
                                        {"memory bandwidth", "GB/s", 1e9, &d->memory_Bps},
                                        {"fp64", "TFLOP/s", 1e12, &d->fp64_flops},
                                        {"fp32", "TFLOP/s", 1e12, &d->fp32_flops},
                                        {"fp16", "TFLOP/s", 1e12, &d->fp16_flops},
                                        {"bf16", "TFLOP/s", 1e12, &d->bf16_flops},
                                        {"fp8", "TFLOP/s", 1e12, &d->fp8_flops},
                                        {"NVLink", "GB/s", 1e9, &d->nvlink_Bps},
                                        {"PCIe", "GB/s", 1e9, &d->pcie_Bps},
                                        {"power", "W", 1, &d->watts},
                                        {"multiprocessors", "SMs", 1, &d->multiprocessors}};
    memcpy(out, all, sizeof all);
}

static const struct catalogue_device *find(const char *id)
{
    const struct catalogue_device *d = NULL;
    ck_assert_msg(catalogue_find(id, &d, NULL) == OK, "%s", id);
    return d;
}

START_TEST(every_value_has_a_source_a_date_and_a_confidence)
{
    for (int32_t i = 0; i < catalogue_count(); i++) {
        struct column c[COLUMNS];
        columns_of(catalogue_at(i), c);
        for (int k = 0; k < COLUMNS; k++) {
            const struct catalogue_value *v = c[k].value;
            ck_assert(v->value >= 0 && isfinite(v->value));
            if (v->value == 0) continue;
            ck_assert_msg(v->source && *v->source && v->date && strlen(v->date) >= 7, "%s %s",
                          catalogue_at(i)->id, c[k].name);
            ck_assert(!strcmp(v->confidence, "high") || !strcmp(v->confidence, "medium") ||
                      !strcmp(v->confidence, "low"));
        }
    }
}
END_TEST

START_TEST(ids_are_unique_and_an_unknown_one_lists_them_all)
{
    struct error err;
    const struct catalogue_device *d = NULL;
    ck_assert_int_eq(catalogue_find("B9000-of-a-name-that-is-much-too-long-to-repeat", &d, &err),
                     ERR_INPUT);
    for (int32_t i = 0; i < catalogue_count(); i++) {
        ck_assert_msg(strstr(err.text, catalogue_at(i)->id) != NULL, "'%s' lacks %s", err.text,
                      catalogue_at(i)->id);
        ck_assert_ptr_eq(find(catalogue_at(i)->id), catalogue_at(i));
    }
}
END_TEST

/* fp16 rates with sparsity as vendors' sheets print them (TFLOP/s); ours must be half, to rounding. */
static const struct {
    const char *id;
    double sparse;
} sparse[] = {
    {"A100-SXM4-80", 624}, {"A30", 330},        {"L4", 242},        {"L40S", 733},
    {"H100-PCIe", 1513},   {"H100-SXM5", 1979}, {"H200-SXM", 1979},
};
START_TEST(peaks_are_dense_half_of_what_sheets_quote_with_sparsity)
{
    const struct catalogue_device *d = find(sparse[_i].id);
    ck_assert_double_eq_tol(d->fp16_flops.value, 0.5e12 * sparse[_i].sparse,
                            0.02 * d->fp16_flops.value);
}
END_TEST

START_TEST(rates_stand_in_the_order_that_hardware_has)
{
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const struct catalogue_device *d = catalogue_at(i);
        if (d->fp64_flops.value && d->fp32_flops.value)
            ck_assert(d->fp64_flops.value <= d->fp32_flops.value);
        if (d->fp32_flops.value && d->fp16_flops.value)
            ck_assert(d->fp32_flops.value < d->fp16_flops.value);
        if (d->fp8_flops.value) /* twice fp16, to rounding */
            ck_assert_double_eq_tol(d->fp8_flops.value, 2 * d->fp16_flops.value,
                                    0.02 * d->fp8_flops.value);
        if (d->bf16_flops.value) ck_assert_double_eq(d->bf16_flops.value, d->fp16_flops.value);
        if (!strcmp(d->backend, "cuda") && d->compute_capability < 80)
            ck_assert_double_eq(d->bf16_flops.value, 0);
        if (!strcmp(d->backend, "cuda")) ck_assert_int_ge(d->compute_capability, 60);
        ck_assert_int_eq(d->n_fused, !strcmp(d->backend, "cuda") ? 8 : 4);
    }
}
END_TEST

START_TEST(a_core_of_the_host_is_assumed_and_says_so)
{
    const struct catalogue_device *d = find("host");
    ck_assert_double_eq(d->fp32_flops.value, 50e9);
    ck_assert_double_eq(d->fp64_flops.value, 25e9);
    ck_assert_double_eq(d->memory_Bps.value, 10e9);
    ck_assert_str_eq(d->fp32_flops.confidence, "low");
    ck_assert(strstr(d->fp32_flops.source, "assumed"));
}
END_TEST

static double seconds(const char *id, enum op_kind kind, int64_t m, int64_t k, int64_t n,
                      enum dtype t)
{
    struct op_attrs attrs = {0};
    struct op_shapes s = {.n_inputs = 2,
                          .input = {{.rank = 2, .dim = {m, k}}, {.rank = 2, .dim = {k, n}}}};
    if (kind != OP_matmul) s.input[1] = s.input[0];
    ck_assert_int_eq(op_infer(kind, &attrs, &s, NULL), OK);
    double bytes =
        (double)op_bytes_read(kind, &attrs, &s, t) + (double)op_bytes_written(kind, &attrs, &s, t);
    return catalogue_roofline_seconds(find(id), op_flops(kind, &attrs, &s), bytes, t);
}

/* 2 · 1000³ FLOPs on 19.5 TFLOP/s at 0.6: 170.94 us; 3 · 4 · 10⁶ bytes on 1555 GB/s at 0.8 for the sum: 9.646 us. */
START_TEST(the_prior_is_a_roofline)
{
    ck_assert_double_eq_tol(seconds("A100-SXM4-40", OP_matmul, 1000, 1000, 1000, DTYPE_fp32),
                            3e-6 + 2e9 / (0.6 * 19.5e12), 1e-12);
    ck_assert_double_eq_tol(seconds("A100-SXM4-40", OP_add, 1000, 1000, 0, DTYPE_fp32),
                            3e-6 + 12e6 / (0.8 * 1555e9), 1e-12);
    ck_assert_double_eq_tol(seconds("A100-SXM4-40", OP_matmul, 1000, 1000, 1000, DTYPE_bf16),
                            3e-6 + 2e9 / (0.6 * 312e12), 1e-12);
    ck_assert_double_eq_tol(seconds("host", OP_matmul, 100, 100, 100, DTYPE_fp64),
                            3e-6 + 2e6 / (0.6 * 25e9), 1e-12);
}
END_TEST

START_TEST(a_rate_without_a_source_is_not_made_up)
{
    ck_assert(
        isnan(seconds("V100-SXM2-16", OP_matmul, 8, 8, 8, DTYPE_bf16))); /* the hardware has none */
    ck_assert(isnan(seconds("H100-SXM5", OP_matmul, 8, 8, 8, DTYPE_fp64)));
    ck_assert(isnan(seconds("H20", OP_add, 8, 8, 0, DTYPE_fp16))); /* no memory bandwidth */
    /* the stated exception: fp32 at 1/16 of fp16 */
    ck_assert_double_eq_tol(seconds("A30", OP_matmul, 1000, 1000, 1000, DTYPE_fp32),
                            3e-6 + 2e9 / (0.6 * 165e12 / 16), 1e-12);
}
END_TEST

Suite *catalogue_suite(void)
{
    Suite *s = suite_create("catalogue");
    TCase *c = tcase_create("catalogue");
    tcase_add_test(c, every_value_has_a_source_a_date_and_a_confidence);
    tcase_add_test(c, ids_are_unique_and_an_unknown_one_lists_them_all);
    tcase_add_loop_test(c, peaks_are_dense_half_of_what_sheets_quote_with_sparsity, 0,
                        sizeof sparse / sizeof *sparse);
    tcase_add_test(c, rates_stand_in_the_order_that_hardware_has);
    tcase_add_test(c, a_core_of_the_host_is_assumed_and_says_so);
    tcase_add_test(c, the_prior_is_a_roofline);
    tcase_add_test(c, a_rate_without_a_source_is_not_made_up);
    suite_add_tcase(s, c);
    return s;
}
