/* The catalogue: values with sources, and their invariants. */
#include "profiles/catalogue.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>

static const struct catalogue_device *find(const char *id)
{
    const struct catalogue_device *d = NULL;
    ck_assert_msg(catalogue_find(id, &d, NULL) == OK, "%s", id);
    return d;
}

START_TEST(every_value_has_a_source_a_date_and_a_confidence)
{
    static const char *const known[] = {"high", "medium", "low", "derived", "unverified", NULL};
    for (int32_t i = 0; i < catalogue_count(); i++)
        for (const struct catalogue_column *c = catalogue_columns; c->key; c++) {
            const struct catalogue_value *v = catalogue_value_of(catalogue_at(i), c);
            bool found = false;
            ck_assert(v->value >= 0 && isfinite(v->value));
            if (v->value == 0) continue;
            ck_assert_msg(v->source && *v->source && v->date && strlen(v->date) >= 4, "%s %s",
                          catalogue_at(i)->id, c->name);
            for (size_t k = 0; known[k]; k++) found |= !strcmp(v->confidence, known[k]);
            ck_assert_msg(found, "%s", v->confidence);
        }
}
END_TEST

/* Without a number that costs need a device type would be refused; a price has the day of its listing. */
START_TEST(every_device_has_what_costs_need)
{
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const struct catalogue_device *d = catalogue_at(i);
        bool fast = d->scale_up_Bps.value > 0;
        ck_assert_msg(d->memory_bytes.value > 0 && d->memory_Bps.value > 0 &&
                          d->fp32_flops.value > 0,
                      "%s", d->id);
        ck_assert_msg(fast == (d->scale_up != NULL), "%s", d->id);
        if (strcmp(d->id, "host") && strncmp(d->id, "TPU", 3) && !fast)
            ck_assert_msg(d->pcie_Bps.value > 0 && d->pcie_generation > 0, "%s", d->id);
        if (d->price_per_h.value > 0)
            ck_assert_msg(strlen(d->price_per_h.date) == 10, "%s", d->price_per_h.date);
        if (!strcmp(d->backend, "none")) ck_assert_int_eq(d->compute_capability, 0);
    }
}
END_TEST

/* What the planner is asked for; the ids are part of cluster files. */
START_TEST(devices_that_people_own_are_known)
{
    static const char *const ids[] = {
        "P100-PCIe-16", "V100-SXM2-16", "V100-SXM2-32", "V100-PCIe-32", "T4",
        "RTX-2080-Ti",  "Titan-RTX",    "RTX-3090",     "RTX-4090",     "RTX-5090",
        "RTX-A4000",    "RTX-A5000",    "RTX-A6000",    "RTX-6000-Ada", "RTX-PRO-6000",
        "A10",          "A10G",         "A16",          "A30",          "A40",
        "A100-SXM4-40", "A100-SXM4-80", "A100-PCIe-40", "A100-PCIe-80", "L4",
        "L40",          "L40S",         "H20",          "H100-SXM5",    "H100-PCIe",
        "H100-NVL",     "H200-SXM",     "GH200-96",     "B200-SXM",     "B300-SXM",
        "GB200",        "GB300",        "MI210",        "MI250X",       "MI300A",
        "MI300X",       "MI325X",       "MI355X",       "Gaudi-2",      "Gaudi-3",
        "TPU-v4",       "TPU-v5e",      "TPU-v5p",      "TPU-v6e",      "EPYC-9654"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) find(ids[i]);
}
END_TEST

static const struct {
    const char *id, *says;
} unknown[] = {
    {"B9000-of-a-name-that-is-much-too-long-to-repeat",
     "no device 'B9000-of-a-name-that-is-' in the catalogue; known: host, Xeon, EPYC, Grace, "
     "P100, "},
    {"B9000-of-a-name-that-is-much-too-long-to-repeat", "Gaudi, TPU ('musher devices' lists all)"},
    {"H100", "did you mean H100-SXM5, H100-PCIe or H100-NVL?"},
    {"rtx3090", "did you mean RTX-3090 or RTX-3090-Ti?"},
    {"RTX A6000", "did you mean RTX-A6000?"},
    {"RTX-2080Ti", "did you mean RTX-2080-Ti?"},
    {"A100-SXM-80", "did you mean A100-SXM4-80?"},
    {"TPUv5e", "did you mean TPU-v5e?"},
    {"MI30X", "did you mean MI300X?"},
    {"H101", "did you mean H100-SXM5?"},
};
START_TEST(an_unknown_id_names_those_that_come_near)
{
    struct error err;
    const struct catalogue_device *d = NULL;
    ck_assert_int_eq(catalogue_find(unknown[_i].id, &d, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, unknown[_i].says) != NULL, "'%s'", err.text);
}
END_TEST

START_TEST(ids_are_unique)
{
    for (int32_t i = 0; i < catalogue_count(); i++)
        ck_assert_ptr_eq(find(catalogue_at(i)->id), catalogue_at(i));
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
        if (d->fp16_flops.value) ck_assert(d->fp32_flops.value < d->fp16_flops.value);
        if (d->bf16_flops.value) ck_assert(d->fp32_flops.value < d->bf16_flops.value);
        if (d->fp8_flops.value && strcmp(d->id, "Gaudi-3")) /* twice bf16, to rounding */
            ck_assert_double_eq_tol(d->fp8_flops.value, 2 * d->bf16_flops.value,
                                    0.02 * d->fp8_flops.value);
        if (d->tf32_flops.value) /* between fp32 and half of bf16, to rounding */
            ck_assert(d->tf32_flops.value >= d->fp32_flops.value &&
                      d->tf32_flops.value <= 0.51 * d->bf16_flops.value);
        if (d->bf16_flops.value && d->fp16_flops.value && strcmp(d->id, "Gaudi-3"))
            ck_assert_double_eq(d->bf16_flops.value, d->fp16_flops.value);
        if (!strcmp(d->backend, "cuda") && d->compute_capability < 80)
            ck_assert_double_eq(d->bf16_flops.value, 0);
        if (!strcmp(d->backend, "cuda")) ck_assert_int_ge(d->compute_capability, 60);
        ck_assert_int_eq(d->n_fused, !strcmp(d->backend, "cuda") ? 10 : 6);
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

/* Google states bf16 only; the row says how fp32 follows from it. */
START_TEST(a_derived_value_says_from_what)
{
    const struct catalogue_device *d = find("TPU-v5e");
    ck_assert_str_eq(d->fp32_flops.confidence, "derived");
    ck_assert(strstr(d->fp32_flops.source, "a sixth of bf16"));
    ck_assert_double_eq_tol(d->fp32_flops.value, d->bf16_flops.value / 6, 0.1e12);
    ck_assert_str_eq(find("RTX-A6000")->fp16_flops.confidence, "high");
}
END_TEST

/* Of RTX-A5000 no copy of the sheet was found, of RTX-A4000 one was. MI350X: its compute units and clock give less than was once written. */
START_TEST(a_value_from_memory_says_so)
{
    const struct catalogue_device *d = find("RTX-A5000");
    ck_assert_str_eq(d->memory_Bps.confidence, "unverified");
    ck_assert_ptr_eq(strstr(d->memory_Bps.source, "from memory: NVIDIA RTX A4000"), d->memory_Bps.source);
    ck_assert_str_eq(find("RTX-A4000")->memory_Bps.confidence, "medium");
    ck_assert_double_eq_tol(find("MI350X")->fp16_flops.value, 256 * 4096 * 2.2e9, 0.1e12);
    ck_assert_double_eq_tol(find("EPYC-9654")->memory_Bps.value, 12 * 8 * 4.8e9, 1e6);
}
END_TEST

START_TEST(a_rate_without_a_source_is_not_made_up)
{
    ck_assert(
        isnan(seconds("V100-SXM2-16", OP_matmul, 8, 8, 8, DTYPE_bf16))); /* the hardware has none */
    ck_assert(isnan(seconds("TPU-v5e", OP_matmul, 8, 8, 8, DTYPE_fp16)));
    ck_assert(isnan(seconds("TPU-v5e", OP_matmul, 8, 8, 8, DTYPE_fp64)));
}
END_TEST

Suite *catalogue_suite(void)
{
    Suite *s = suite_create("catalogue");
    TCase *c = tcase_create("catalogue");
    tcase_add_test(c, every_value_has_a_source_a_date_and_a_confidence);
    tcase_add_test(c, every_device_has_what_costs_need);
    tcase_add_test(c, devices_that_people_own_are_known);
    tcase_add_test(c, ids_are_unique);
    tcase_add_loop_test(c, an_unknown_id_names_those_that_come_near, 0,
                        sizeof unknown / sizeof *unknown);
    tcase_add_test(c, a_derived_value_says_from_what);
    tcase_add_test(c, a_value_from_memory_says_so);
    tcase_add_loop_test(c, peaks_are_dense_half_of_what_sheets_quote_with_sparsity, 0,
                        sizeof sparse / sizeof *sparse);
    tcase_add_test(c, rates_stand_in_the_order_that_hardware_has);
    tcase_add_test(c, a_core_of_the_host_is_assumed_and_says_so);
    tcase_add_test(c, the_prior_is_a_roofline);
    tcase_add_test(c, a_rate_without_a_source_is_not_made_up);
    suite_add_tcase(s, c);
    return s;
}
