/* The device's codes of gradients beside the host's, on the stand-in: the same bytes, but for scales that are means, whose sums have
 * another order; and the same bytes in whatever order blocks and threads go on. */
#include "core/graph/half.h"
#include "tests/support/codes.h"
#include "tests/support/cuda_rows.h"

static void *on_device(const void *from, int64_t bytes)
{
    struct error err = {0};
    void *p;
    ck_assert_msg(device.allocate(&device, bytes + 64, &p, &err) == OK, "%s", err.text);
    ck_assert(device.upload(&device, p, from, bytes, &err) == OK);
    return p;
}

/* Operands go to the device and come back; outputs alone begin as NaN. */
static void run_there(void *owner, struct op_call *c)
{
    struct error err = {0};
    struct op_call there = *c;
    int64_t bytes[OP_OPERANDS_MAX];
    (void)owner;
    for (int32_t i = 0; i < c->shapes->n_inputs; i++)
        there.input[i] = on_device(c->input[i], shape_elements(&c->shapes->input[i]) *
                                                    (op_input_is_int32(c->kind, i) ? 4 : dtype_bytes(c->dtype)));
    for (int32_t i = 0; i < c->shapes->n_outputs; i++) {
        bytes[i] = shape_elements(&c->shapes->output[i]) * (op_output_is_int32(c->kind, i) ? 4 : dtype_bytes(c->dtype));
        there.output[i] = NULL;
        for (int32_t k = 0; k < c->shapes->n_inputs; k++)
            if (c->input[k] == c->output[i]) there.output[i] = (void *)(uintptr_t)there.input[k];
        if (!there.output[i]) there.output[i] = on_device(calls_poisoned(DTYPE_fp64, bytes[i] / 8 + 1), bytes[i]);
    }
    ck_assert_msg(device.run(&device, STREAM_COMPUTE, &there, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < c->shapes->n_outputs; i++)
        ck_assert(device.download(&device, c->output[i], there.output[i], bytes[i], &err) == OK);
}

static const struct encoding codes[] = {
    {.kind = ENCODING_INT8, .block = 256, .feedback = FEEDBACK_EF},
    {.kind = ENCODING_INT8, .block = 100, .stochastic = true},
    {.kind = ENCODING_INT8, .block = 301, .stochastic = true, .feedback = FEEDBACK_EF21},
    {.kind = ENCODING_FP8_E4M3, .block = 256, .feedback = FEEDBACK_EF},
    {.kind = ENCODING_FP8_E4M3, .block = 101, .stochastic = true},
    {.kind = ENCODING_FP8_E5M2, .block = 300, .stochastic = true, .feedback = FEEDBACK_EF21},
    {.kind = ENCODING_BF16, .block = 1024},
    {.kind = ENCODING_FP16, .block = 33, .feedback = FEEDBACK_EF},
    {.kind = ENCODING_SIGN, .block = 256, .feedback = FEEDBACK_EF},
    {.kind = ENCODING_SIGN, .block = 33, .feedback = FEEDBACK_EF21},
    {.kind = ENCODING_TOP_K, .block = 1024, .kept = 16, .feedback = FEEDBACK_EF},
    {.kind = ENCODING_TOP_K, .block = 700, .kept = 700},
    {.kind = ENCODING_TOP_K, .block = 300, .kept = 250, .feedback = FEEDBACK_EF21},
    {.kind = ENCODING_RANDOM_K, .block = 128, .kept = 32, .feedback = FEEDBACK_EF},
    {.kind = ENCODING_RANDOM_K, .block = 600, .kept = 600},
};
enum { N_CODES = sizeof codes / sizeof *codes, MEMBERS = 3 };

struct coded { /* by one backend, of three members */
    char *words, *state[MEMBERS], *sum, *g;
};

static struct coded code_all(const struct coder *c, coder_run *run, const void *const *g)
{
    enum encoding_feedback feedback = c->attrs.code.feedback;
    int64_t bytes = c->n * dtype_bytes(c->t);
    struct coded x = {.words = calls_space(DTYPE_int32, MEMBERS * coder_words(c)),
                      .sum = calls_copy(g[0], bytes),
                      .g = calls_poisoned(c->t, c->n)};
    for (int k = 0; k < MEMBERS; k++) {
        x.state[k] = calls_copy(g[(k + 1) % MEMBERS], bytes);
        coder_encode(c, run, NULL, g[k], feedback ? x.state[k] : NULL, x.words + 4 * k * coder_words(c));
    }
    coder_decode(c, run, NULL, x.words, MEMBERS, feedback == FEEDBACK_EF21 ? x.sum : NULL, x.g);
    return x;
}

/* Many elements are equal, for the order of those at the threshold. */
static const void *with_ties(enum dtype t, int64_t n)
{
    void *p = calls_numbers(t, n);
    for (int64_t i = 0; i < n; i += 3) calls_set(t, p, i, i % 2 ? 0.75 : -0.75);
    return p;
}

static void check_near(const struct coder *c, const void *a, const void *b, bool same)
{
    if (same) ck_assert_mem_eq(a, b, (size_t)(c->n * dtype_bytes(c->t)));
    double far = sqrt(codes_squared(c->t, a, b, c->n)), size = sqrt(codes_squared(c->t, b, NULL, c->n));
    ck_assert_double_le(far, (c->t == DTYPE_fp64 ? 1e-14 : 1e-6) * size);
}

START_TEST(codes_are_the_hosts)
{
    static const int64_t sizes[] = {1, 257, 1100};
    for (int k = 0; k < 6; k++) {
        struct coder c = coder_of(codes[_i], k & 1 ? DTYPE_fp64 : DTYPE_fp32, sizes[k / 2]);
        const void *g[MEMBERS];
        for (int m = 0; m < MEMBERS; m++) g[m] = with_ties(c.t, c.n);
        struct coded host = code_all(&c, coder_on_host, g), there = code_all(&c, run_there, g);
        bool same = codes[_i].kind != ENCODING_SIGN;
        if (same) ck_assert_mem_eq(host.words, there.words, (size_t)(4 * MEMBERS * coder_words(&c)));
        for (int m = 0; m < MEMBERS; m++) check_near(&c, there.state[m], host.state[m], same);
        check_near(&c, there.sum, host.sum, same), check_near(&c, there.g, host.g, same);
    }
}
END_TEST

/* Between stages: numbers of 16 bits, without feedback. */
START_TEST(messages_of_half_precision_are_the_hosts)
{
    const struct encoding *k = &codes[_i];
    if (k->feedback || k->kind == ENCODING_SIGN || encoding_is_half(k->kind)) return;
    for (int i = 0; i < 2; i++) {
        enum { N = 1100 };
        struct coder c = coder_of(*k, i ? DTYPE_bf16 : DTYPE_fp16, N);
        uint16_t g[N], *y = calls_poisoned(c.t, N), *there = calls_poisoned(c.t, N);
        half_narrow(c.t, with_ties(DTYPE_fp32, N), g, N);
        char *words = calls_poisoned(DTYPE_int32, coder_words(&c)), *others = calls_poisoned(DTYPE_int32, coder_words(&c));
        coder_encode(&c, coder_on_host, NULL, g, NULL, words), coder_encode(&c, run_there, NULL, g, NULL, others);
        ck_assert_mem_eq(words, others, (size_t)(4 * coder_words(&c)));
        coder_decode(&c, coder_on_host, NULL, words, 1, NULL, y), coder_decode(&c, run_there, NULL, words, 1, NULL, there);
        ck_assert_mem_eq(y, there, sizeof g);
        ck_assert(k->kept && k->kept < k->block ? true : fabs(half_value(c.t, y[1]) - half_value(c.t, g[1])) < 0.5F);
    }
}
END_TEST

START_TEST(the_order_of_threads_does_not_matter)
{
    struct coder c = coder_of(codes[_i], DTYPE_fp32, 1100);
    const void *g[MEMBERS];
    for (int m = 0; m < MEMBERS; m++) g[m] = with_ties(c.t, c.n);
    struct coded one = code_all(&c, run_there, g);
    standin_order(77);
    struct coded other = code_all(&c, run_there, g);
    standin_order(0);
    ck_assert_mem_eq(one.words, other.words, (size_t)(4 * MEMBERS * coder_words(&c)));
    ck_assert_mem_eq(one.g, other.g, 1100 * sizeof(float));
}
END_TEST

START_TEST(what_is_no_number_stays_none_there)
{
    for (int k = 0; k < 2 * N_CODES; k++) {
        struct coder c = coder_of(codes[k / 2], DTYPE_fp32, 256);
        if (c.attrs.code.kind == ENCODING_RANDOM_K && c.attrs.code.kept < 256) continue;
        c.attrs.code.feedback = FEEDBACK_NONE;
        float *g = calls_numbers(c.t, c.n), *y = calls_poisoned(c.t, c.n);
        void *words = calls_space(DTYPE_int32, coder_words(&c));
        bool any = false;
        g[77] = k & 1 ? INFINITY : NAN;
        coder_encode(&c, run_there, NULL, g, NULL, words);
        coder_decode(&c, run_there, NULL, words, 1, NULL, y);
        for (int i = 0; i < 256; i++) any |= !isfinite(y[i]);
        ck_assert_msg(any, "code %d", k / 2);
    }
}
END_TEST

/* Columns 1 and 4 depend on those before, which are drawn there as on the host. */
START_TEST(orthonormal_columns_are_the_hosts_to_rounding)
{
    enum { N = 700, R = 5 };
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        struct op_attrs attrs = {.stream = 4};
        struct optimizer_step step = {.step = 3};
        struct op_shapes s = {.n_inputs = 1, .n_outputs = 1, .input = {{2, {N, R}}}, .output = {{2, {N, R}}}};
        char *p = calls_numbers(t, N * R), *q;
        for (int i = 0; i < N; i++)
            calls_set(t, p, i * R + 1, 0), calls_set(t, p, i * R + 4, calls_get(t, p, i * R) - calls_get(t, p, i * R + 3));
        q = calls_copy(p, N * R * dtype_bytes(t));
        struct op_call c = {.kind = OP_orthonormal, .dtype = t, .attrs = &attrs, .shapes = &s, .input = {p}, .output = {p}, .optimizer = &step, .seed = 3};
        coder_on_host(NULL, &c);
        c.input[0] = c.output[0] = q;
        run_there(NULL, &c);
        ck_assert_double_le(sqrt(codes_squared(t, p, q, N * R)), k ? 1e-13 : 1e-4);
    }
}
END_TEST

Suite *cuda_codes_suite(void)
{
    Suite *suite = suite_create("cuda_codes");
    TCase *c = tcase_create("cuda_codes");
    tcase_add_checked_fixture(c, cuda_rows_open, cuda_rows_close);
    tcase_add_loop_test(c, codes_are_the_hosts, 0, N_CODES);
    tcase_add_loop_test(c, messages_of_half_precision_are_the_hosts, 0, N_CODES);
    tcase_add_loop_test(c, the_order_of_threads_does_not_matter, 0, N_CODES);
    tcase_add_test(c, what_is_no_number_stays_none_there);
    tcase_add_test(c, orthonormal_columns_are_the_hosts_to_rounding);
    suite_add_tcase(suite, c);
    return suite;
}
