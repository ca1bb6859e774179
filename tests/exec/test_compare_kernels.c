/* What compares a device's kernels with the host's: the host's own pass, and in each direction of being wrong is found. */
#include "tests/support/compare_kernels.h"
#include "tests/support/narrow.h"
#include "tests/support/suites.h"

static struct arena *memory;
static struct host_context context;
static struct backend host, device;
static int calls; /* of the device's run */

static void begin(void)
{
    struct error err = {0};
    memory = arena_new();
    host_context_init(&context);
    backend_host(&host);
    ck_assert_msg(host.open(&host, 0, &err) == OK, "%s", err.text);
    device = host;
    calls = 0;
}

static void end(void)
{
    host.close(&host);
    host_context_free(&context);
    arena_free(memory);
}

START_TEST(the_host_is_as_good_as_itself)
{
    struct kernel_comparison c;
    kernel_comparison_begin(&c, &device, memory, &context, 1);
    for (int k = 0; k < 4; k++) {
        struct error err = {0};
        enum dtype t = k & 1 ? DTYPE_fp64 : DTYPE_fp32;
        ck_assert_msg(kernel_comparison_row(&c, &kernel_rows[_i], t, k & 2, &err) == OK, "%s",
                      err.text);
    }
    ck_assert_int_gt(c.n_calls, 3);
    ck_assert_double_eq(c.worst[DTYPE_fp64], 0);
}
END_TEST

/* What may be wrong with output 0 of a call. */
static void off_a_little(const struct op_call *c)
{
    float *y = c->output[0];
    y[0] += 1e-3f;
}
static void not_written(const struct op_call *c) { memset(c->output[0], 0xff, 4); }
static void one_too_many(const struct op_call *c)
{
    memset((float *)c->output[0] + shape_elements(&c->shapes->output[0]), 0, 4);
}
static void one_too_early(const struct op_call *c)
{
    if (calls == 3) memset((float *)c->output[0] - 1, 0, 4);
}
static void into_the_input(const struct op_call *c)
{
    memset((void *)(uintptr_t)c->input[0], 0, 4);
}
static void another_time(const struct op_call *c)
{
    float *y = c->output[0];
    if (calls == 2) y[0] = nextafterf(y[0], 9);
}
static void another_place(const struct op_call *c)
{
    float *y = c->output[0];
    if (calls == 3) y[0] = nextafterf(y[0], 9);
}

static const struct {
    void (*act)(const struct op_call *c);
    const char *said;
} mistakes[] = {{off_a_little, "is off by"},
                {not_written, "is nan, not"},
                {one_too_many, "writes behind output 0"},
                {one_too_early, "writes in front of output 0"},
                {into_the_input, "writes input 0"},
                {another_time, "the second time"},
                {another_place, "at another address"}};
static int mistake;

static enum status run_wrong(struct backend *b, int32_t stream, const struct op_call *call,
                             struct error *err)
{
    TRY(host.run(b, stream, call, err));
    calls++;
    mistakes[mistake].act(call);
    return OK;
}

START_TEST(every_mistake_is_found_and_named)
{
    static const struct kernel_row row = {OP_gelu, {0}, "3,19", {{0}}};
    struct kernel_comparison c;
    struct error err = {0};
    device.run = run_wrong;
    mistake = _i;
    kernel_comparison_begin(&c, &device, memory, &context, 1);
    ck_assert_int_eq(kernel_comparison_row(&c, &row, DTYPE_fp32, false, &err), ERR_TOLERANCE);
    const char *said = strstr(err.text, mistakes[_i].said);
    if (!said && _i == 1) said = strstr(err.text, "is -nan, not");
    ck_assert_msg(said != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, "gelu fp32") != NULL, "%s", err.text);
}
END_TEST

START_TEST(an_output_that_is_added_to_keeps_what_it_held)
{
    static const struct kernel_row row = {OP_accumulate, {0}, "5", {{0}}};
    struct kernel_comparison c;
    struct error err = {0};
    struct kernel_problem *p[PROBLEMS_MAX];
    int32_t n;
    kernel_comparison_begin(&c, &device, memory, &context, 3);
    ck_assert_int_eq(kernel_problem_of_row(&c.maker, &row, DTYPE_fp32, false, p, &n, &err), OK);
    ck_assert_int_eq(n, 1);
    for (int i = 0; i < 5; i++)
        ck_assert_double_eq(((double *)p[0]->call.output[0])[i],
                            p[0]->begin[0][i] + ((const double *)p[0]->call.input[0])[i]);
    ck_assert_msg(kernel_comparison_problem(&c, p[0], &err) == OK, "%s", err.text);
}
END_TEST

/* Room for any number, of which a half takes the first two bytes. */
static uint16_t bits_of(enum dtype t, double v)
{
    double room = 0;
    uint16_t half;
    narrow_set(t, &room, 0, v);
    memcpy(&half, &room, sizeof half);
    return half;
}
static double value_of(enum dtype t, uint16_t bits)
{
    double room = 0;
    memcpy(&room, &bits, sizeof bits);
    return narrow_get(t, &room, 0);
}

/* 1 + 2^-8 lies half-way between 1 and 1 + 2^-7: ties go to even. */
START_TEST(halves_are_rounded_to_the_nearest_and_ties_to_even)
{
    static const struct {
        enum dtype t;
        double v, want;
        uint16_t bits;
    } cases[] = {{DTYPE_bf16, 1 + 0x1p-8, 1, 0x3f80},
                 {DTYPE_bf16, 1 + 3 * 0x1p-8, 1 + 0x1p-6, 0x3f82},
                 {DTYPE_bf16, -0x1p-126, -0x1p-126, 0x8080},
                 {DTYPE_bf16, 0x1p-133, 0x1p-133, 0x0001},
                 {DTYPE_bf16, 3.4e38, (double)INFINITY, 0x7f80},
                 {DTYPE_fp16, 1 + 0x1p-11, 1, 0x3c00},
                 {DTYPE_fp16, -(1 + 3 * 0x1p-11), -(1 + 0x1p-9), 0xbc02},
                 {DTYPE_fp16, 65519, 65504, 0x7bff},
                 {DTYPE_fp16, 65520, (double)INFINITY, 0x7c00},
                 {DTYPE_fp16, 0x1p-24, 0x1p-24, 0x0001},
                 {DTYPE_fp16, 0x1p-25, 0, 0x0000},
                 {DTYPE_fp16, 3 * 0x1p-25, 0x1p-23, 0x0002}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_uint_eq(bits_of(cases[i].t, cases[i].v), cases[i].bits);
        ck_assert(value_of(cases[i].t, cases[i].bits) == cases[i].want);
        ck_assert(narrow_value(cases[i].t, cases[i].v) == cases[i].want);
    }
}
END_TEST

/* Every pattern of 16 bits but NaN is a number that goes back to itself. */
START_TEST(every_half_number_keeps_its_bits)
{
    for (int k = 0; k < 2; k++)
        for (uint32_t bits = 0; bits < 65536; bits++) {
            enum dtype t = k ? DTYPE_bf16 : DTYPE_fp16;
            double v = value_of(t, (uint16_t)bits);
            if (!isnan(v)) ck_assert_uint_eq(bits_of(t, v), bits);
        }
}
END_TEST

Suite *compare_kernels_suite(void)
{
    Suite *suite = suite_create("compare_kernels");
    TCase *c = tcase_create("compare_kernels");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_loop_test(c, the_host_is_as_good_as_itself, 0, N_KERNEL_ROWS);
    tcase_add_loop_test(c, every_mistake_is_found_and_named, 0, sizeof mistakes / sizeof *mistakes);
    tcase_add_test(c, an_output_that_is_added_to_keeps_what_it_held);
    tcase_add_test(c, halves_are_rounded_to_the_nearest_and_ties_to_even);
    tcase_add_test(c, every_half_number_keeps_its_bits);
    suite_add_tcase(suite, c);
    return suite;
}
