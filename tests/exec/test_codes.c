/* The host's codes of gradients (core/graph/encoding.h): their bytes by hand, what they lose, feedback on the quadratics of error
 * feedback's and EF21's papers. */
#include "tests/support/codes.h"

static const struct encoding codes[] = {
    {.kind = ENCODING_INT8, .block = 256},
    {.kind = ENCODING_INT8, .block = 100, .stochastic = true},
    {.kind = ENCODING_FP8_E4M3, .block = 256},
    {.kind = ENCODING_FP8_E4M3, .block = 100, .stochastic = true},
    {.kind = ENCODING_FP8_E5M2, .block = 33},
    {.kind = ENCODING_FP8_E5M2, .block = 256, .stochastic = true},
    {.kind = ENCODING_BF16, .block = 1024},
    {.kind = ENCODING_FP16, .block = 33},
    {.kind = ENCODING_SIGN, .block = 256},
    {.kind = ENCODING_SIGN, .block = 33},
    {.kind = ENCODING_TOP_K, .block = 1024, .kept = 16},
    {.kind = ENCODING_TOP_K, .block = 70, .kept = 70},
    {.kind = ENCODING_RANDOM_K, .block = 128, .kept = 32},
};
enum { N_CODES = sizeof codes / sizeof *codes };

/* ‖C(x) - x‖² / ‖x‖² that the code's head comment allows; of expectations where it draws random numbers. */
static double allowed(const struct encoding *c, enum dtype t, const void *x, int64_t n)
{
    double most = 0, all = codes_squared(t, x, NULL, n);
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < c->block ? n - at : c->block;
        const char *part = (const char *)x + at * dtype_bytes(t);
        double here = codes_squared(t, part, NULL, m), sum = 0;
        for (int64_t i = 0; i < m; i++) sum += fabs(calls_get(t, part, i));
        if (c->kind == ENCODING_INT8) most += here * (double)m / (4 * 127 * 127);
        if (encoding_is_fp8(c->kind)) {
            struct encoding_float f = encoding_float_of(c->kind);
            double step = ldexp(calls_largest(t, part, m) / (double)f.most, f.least - f.fraction);
            most += here * ldexp(1, -2 * f.fraction - 2) + (double)m * step * step / 4;
        }
        if (encoding_is_half(c->kind)) most += here * ldexp(1, c->kind == ENCODING_BF16 ? -16 : -22);
        if (c->kind == ENCODING_SIGN) most += here - sum * sum / (double)m;
        if (c->kind == ENCODING_TOP_K || c->kind == ENCODING_RANDOM_K)
            most += here * (1 - (double)encoding_kept(c, m) / (double)m);
    }
    return most / all;
}

START_TEST(codes_contract)
{
    enum { DRAWS = 400 };
    static const int64_t sizes[] = {1, 31, 256, 1000};
    for (int k = 0; k < 2 * 4; k++) {
        enum dtype t = k & 1 ? DTYPE_fp64 : DTYPE_fp32;
        struct coder x = coder_of(codes[_i], t, sizes[k / 2]);
        const void *g = calls_numbers(t, x.n);
        void *words = calls_poisoned(DTYPE_int32, coder_words(&x)), *y = calls_poisoned(t, x.n);
        bool random = codes[_i].stochastic || codes[_i].kind == ENCODING_RANDOM_K;
        double lost = 0;
        for (x.step = 1; x.step <= (random ? DRAWS : 1); x.step++) {
            coder_encode(&x, coder_on_host, NULL, g, NULL, words);
            coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
            lost += codes_squared(t, g, y, x.n) / codes_squared(t, g, NULL, x.n) / (random ? DRAWS : 1);
        }
        double most = allowed(&x.attrs.code, t, g, x.n) * (random ? 1.1 : 1) + 1e-6;
        ck_assert_msg(lost <= most, "code %d of %d elements: %g, not %g", _i, (int)x.n, lost, most);
    }
}
END_TEST

/* The mean of N draws of one element is within 5 standard errors, at most half of a step / √N each, of it. */
START_TEST(stochastic_rounding_has_no_bias)
{
    enum { DRAWS = 4000, N = 200 };
    static const enum encoding_kind kinds[] = {ENCODING_INT8, ENCODING_FP8_E4M3, ENCODING_FP8_E5M2};
    enum encoding_kind kind = kinds[_i];
    struct coder x = coder_of((struct encoding){.kind = kind, .block = 64, .stochastic = true}, DTYPE_fp64, N);
    struct encoding_float f = encoding_float_of(kind);
    const double *g = calls_numbers(DTYPE_fp64, N);
    double *y = calls_poisoned(DTYPE_fp64, N), mean[N] = {0};
    void *words = calls_poisoned(DTYPE_int32, coder_words(&x));
    for (x.step = 1; x.step <= DRAWS / 2; x.step++)
        for (x.device = 0; x.device < 2; x.device++) {
            coder_encode(&x, coder_on_host, NULL, g, NULL, words);
            coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
            for (int i = 0; i < N; i++) mean[i] += y[i] / DRAWS;
        }
    double most = calls_largest(DTYPE_fp64, g, N);
    for (int i = 0; i < N; i++) {
        double step = kind == ENCODING_INT8 ? most / 127 : ldexp(fabs(g[i]), -f.fraction) + ldexp(most / (double)f.most, f.least - f.fraction);
        ck_assert_double_le(fabs(mean[i] - g[i]), 5 * step / 2 / sqrt(DRAWS));
    }
}
END_TEST

/* Every number of the type, times a power of two, is its own code. */
START_TEST(numbers_of_8_bit_floats_are_exact)
{
    enum { MOST = 127 };
    enum encoding_kind kind = _i ? ENCODING_FP8_E5M2 : ENCODING_FP8_E4M3;
    int fraction = _i ? 2 : 3, bias = _i ? 15 : 7, n = _i ? 124 : 127;
    for (int k = 0; k < 2 * 2; k++) {
        struct coder x = coder_of((struct encoding){.kind = kind, .block = 128, .stochastic = k & 1}, k & 2 ? DTYPE_fp64 : DTYPE_fp32, n);
        void *g = calls_space(x.t, n), *y = calls_poisoned(x.t, n);
        uint32_t words[2 + (MOST + 3) / 4];
        for (int c = 0; c < n; c++) {
            int e = c >> fraction, j = c & ((1 << fraction) - 1);
            double v = e ? ldexp(1 + ldexp(j, -fraction), e - bias) : ldexp(j, 1 - bias - fraction);
            calls_set(x.t, g, c, ldexp(c % 3 ? v : -v, -3));
        }
        coder_encode(&x, coder_on_host, NULL, g, NULL, words);
        coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
        const uint8_t *bytes = (const uint8_t *)(words + x.attrs.code.value_words);
        for (int c = 0; c < n; c++) {
            ck_assert_int_eq(bytes[c], c && c % 3 == 0 ? c + 128 : c);
            ck_assert(calls_get(x.t, y, c) == calls_get(x.t, g, c));
        }
    }
}
END_TEST

/* The scale is 1: the largest is 448. Steps are 2 from 16 on, and 2^-9 at 0. */
START_TEST(halves_of_steps_become_even)
{
    static const float g[] = {448, 17, 19, 17.25F, -19, 0x1p-10F, 0x3p-10F, 0x1.1p-10F},
                       rounded[] = {448, 16, 20, 18, -20, 0, 0x1p-8F, 0x1p-9F};
    uint32_t words[3];
    float y[8];
    struct coder x = coder_of((struct encoding){.kind = ENCODING_FP8_E4M3, .block = 8}, DTYPE_fp32, 8);
    ck_assert_int_eq(coder_words(&x), 3);
    coder_encode(&x, coder_on_host, NULL, g, NULL, words);
    coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
    ck_assert_mem_eq(y, rounded, sizeof y);
}
END_TEST

/* Blocks of 4 of {1, -4, 2, 0.5, 127, -3}. */
START_TEST(codes_are_those_by_hand)
{
    static const float g[] = {1, -4, 2, 0.5F, 127, -3};
    uint32_t words[16];
    float y[6], scale;
    struct coder x = coder_of((struct encoding){.kind = ENCODING_INT8, .block = 4}, DTYPE_fp32, 6);
    ck_assert_int_eq(coder_words(&x), 4);
    coder_encode(&x, coder_on_host, NULL, g, NULL, words);
    memcpy(&scale, &words[0], 4);
    ck_assert_float_eq(scale, 4.0F / 127);
    ck_assert_mem_eq(&words[1], ((int8_t[]){32, -127, 64, 16}), 4); /* 31.75, -127, 63.5, 15.9 */
    ck_assert_mem_eq(&words[3], ((int8_t[]){127, -3, 0, 0}), 4);
    x = coder_of((struct encoding){.kind = ENCODING_SIGN, .block = 4}, DTYPE_fp32, 6);
    coder_encode(&x, coder_on_host, NULL, g, NULL, words);
    memcpy(&scale, &words[0], 4);
    ck_assert_float_eq(scale, 7.5F / 4);
    ck_assert_uint_eq(words[1], 2);
    ck_assert_uint_eq(words[3], 2);
    x = coder_of((struct encoding){.kind = ENCODING_TOP_K, .block = 4, .kept = 2}, DTYPE_fp32, 6);
    ck_assert_int_eq(coder_words(&x), 6); /* of the two last elements one */
    coder_encode(&x, coder_on_host, NULL, g, NULL, words);
    coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
    ck_assert(words[0] == 1 && words[1] == 2 && words[4] == 0);
    ck_assert_mem_eq(y, ((float[]){0, -4, 2, 0, 127, 0}), sizeof y);
    x = coder_of((struct encoding){.kind = ENCODING_RANDOM_K, .block = 4, .kept = 4}, DTYPE_fp32, 6);
    coder_encode(&x, coder_on_host, NULL, g, NULL, words);
    coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
    ck_assert_mem_eq(y, g, sizeof y);
}
END_TEST

START_TEST(equal_elements_are_taken_in_order_and_what_is_no_number_stays_none)
{
    float g[] = {1, -1, 1, 1, 1, NAN, 1, 1}, y[8];
    uint32_t words[16];
    struct coder x = coder_of((struct encoding){.kind = ENCODING_TOP_K, .block = 5, .kept = 3}, DTYPE_fp32, 5);
    coder_encode(&x, coder_on_host, NULL, g, NULL, words);
    ck_assert(words[0] == 0 && words[1] == 1 && words[2] == 2);
    for (int k = 0; k < 2 * 7; k++) {
        enum encoding_kind kinds[] = {ENCODING_INT8, ENCODING_SIGN, ENCODING_TOP_K, ENCODING_FP8_E4M3, ENCODING_FP8_E5M2, ENCODING_BF16, ENCODING_FP16};
        bool any = false;
        g[5] = k & 1 ? INFINITY : NAN;
        x = coder_of((struct encoding){.kind = kinds[k / 2], .block = 8, .kept = kinds[k / 2] == ENCODING_TOP_K}, DTYPE_fp32, 8);
        coder_encode(&x, coder_on_host, NULL, g, NULL, words);
        coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
        for (int i = 0; i < 8; i++) any |= !isfinite(y[i]);
        ck_assert_msg(any, "kind %d", (int)kinds[k / 2]);
    }
}
END_TEST

/* --- quadratics: workers w of W with f_w(x) = |x - b_w|² / 2, whose mean has its minimum at the mean of b_w --- */

enum { DIM = 256, WORKERS = 4 };

/* ‖x - x*‖² after gradient descent whose gradients are encoded. */
static double descend(struct encoding code, double rate, int steps)
{
    struct coder c = coder_of(code, DTYPE_fp64, DIM);
    double *b[WORKERS], *state[WORKERS], *x = calls_space(DTYPE_fp64, DIM), *g = calls_space(DTYPE_fp64, DIM),
                                         *sum = calls_space(DTYPE_fp64, DIM), error = 0;
    char *words = calls_space(DTYPE_int32, WORKERS * coder_words(&c));
    for (int w = 0; w < WORKERS; w++) b[w] = calls_numbers(DTYPE_fp64, DIM), state[w] = calls_space(DTYPE_fp64, DIM);
    memset(x, 0, DIM * sizeof *x), memset(sum, 0, DIM * sizeof *sum);
    for (int w = 0; w < WORKERS; w++) memset(state[w], 0, DIM * sizeof **state);
    for (c.step = 1; c.step <= steps; c.step++) {
        for (int w = 0; w < WORKERS; w++) {
            for (int i = 0; i < DIM; i++) g[i] = (x[i] - b[w][i]) / WORKERS;
            c.device = w;
            coder_encode(&c, coder_on_host, NULL, g, code.feedback ? state[w] : NULL, words + 4 * w * coder_words(&c));
        }
        coder_decode(&c, coder_on_host, NULL, words, WORKERS, code.feedback == FEEDBACK_EF21 ? sum : NULL, g);
        for (int i = 0; i < DIM; i++) x[i] -= rate * g[i];
    }
    for (int i = 0; i < DIM; i++) {
        double best = 0;
        for (int w = 0; w < WORKERS; w++) best += b[w][i] / WORKERS;
        error += (x[i] - best) * (x[i] - best);
    }
    return error;
}

/* Without feedback it stalls; error feedback's error falls with the square of the rate; EF21 finds the minimum. */
static void check_feedback(struct encoding code)
{
    stream = 0;
    double none = descend(code, 0.02, 4000), slow, fast;
    code.feedback = FEEDBACK_EF;
    stream = 0, fast = descend(code, 0.02, 4000);
    stream = 0, slow = descend(code, 0.002, 20000);
    ck_assert_msg(none > 0.1, "without feedback %g", none);
    ck_assert_msg(fast < none / 10, "error feedback %g, without %g", fast, none);
    ck_assert_msg(slow < fast / 50 && slow > fast / 200, "error feedback %g, at a tenth of the rate %g", fast, slow);
    code.feedback = FEEDBACK_EF21;
    stream = 0;
    double found = descend(code, 0.02, 4000);
    ck_assert_msg(found < 1e-12, "EF21 %g", found);
}

START_TEST(feedback_does_what_its_papers_promise)
{
    check_feedback((struct encoding){.kind = ENCODING_TOP_K, .block = DIM, .kept = 16});
    check_feedback((struct encoding){.kind = ENCODING_SIGN, .block = DIM});
}
END_TEST

/* --- PowerSGD (core/lower/factors.h), by the operators of its program --- */

enum { ROWS = 12, COLUMNS = 20, WORKERS_OF_POWER = 3 };

static void power_op(enum op_kind kind, struct op_attrs attrs, struct shape a, const void *x, struct shape b, const void *y,
                     void *out)
{
    struct optimizer_step step = {.step = 1};
    struct op_shapes s = {.n_inputs = y ? 2 : 1, .input = {a, b}};
    struct error err = {0};
    struct op_call c = {.kind = kind, .dtype = DTYPE_fp64, .attrs = &attrs, .shapes = &s, .input = {x, y}, .output = {out}, .optimizer = &step};
    ck_assert_msg(op_infer(kind, &attrs, &s, &err) == OK, "%s", err.text);
    coder_on_host(NULL, &c);
}

/* One sum of the workers' m: g = P Qᵀ. */
static void power_sum(double *const *m, bool feedback, int rank, double *q, double *g)
{
    struct shape whole = {2, {ROWS, COLUMNS}}, left = {2, {ROWS, rank}}, right = {2, {COLUMNS, rank}};
    double p[ROWS * ROWS] = {0}, part[COLUMNS * ROWS], own[COLUMNS * ROWS];
    for (int w = 0; w < WORKERS_OF_POWER; w++) {
        power_op(OP_matmul, (struct op_attrs){0}, whole, m[w], right, q, part);
        for (int i = 0; i < ROWS * rank; i++) p[i] += part[i];
    }
    power_op(OP_orthonormal, (struct op_attrs){.stream = 7}, left, p, left, NULL, p);
    memset(q, 0, (size_t)(COLUMNS * rank) * sizeof *q);
    for (int w = 0; w < WORKERS_OF_POWER; w++) {
        power_op(OP_matmul, (struct op_attrs){.trans_a = true}, whole, m[w], left, p, own);
        power_op(OP_matmul, (struct op_attrs){.trans_b = true}, left, p, right, own, g);
        if (feedback) power_op(OP_outer_delta, (struct op_attrs){.scale = 1}, whole, m[w], whole, g, m[w]);
        for (int i = 0; i < COLUMNS * rank; i++) q[i] += own[i];
    }
    power_op(OP_matmul, (struct op_attrs){.trans_b = true}, left, p, right, q, g);
}

/* ‖x - x*‖² of descent on |x - b_w|² / 2. */
static double descend_by_power(int rank, bool feedback, double rate, int steps)
{
    enum { N = ROWS * COLUMNS };
    double *b[WORKERS_OF_POWER], *m[WORKERS_OF_POWER], x[N] = {0}, g[N], q[COLUMNS * ROWS] = {0}, error = 0;
    for (int w = 0; w < WORKERS_OF_POWER; w++) {
        b[w] = calls_numbers(DTYPE_fp64, N), m[w] = calls_space(DTYPE_fp64, N);
        memset(m[w], 0, N * sizeof **m);
    }
    for (int step = 0; step < steps; step++) {
        for (int w = 0; w < WORKERS_OF_POWER; w++)
            for (int i = 0; i < N; i++) m[w][i] = (feedback ? m[w][i] : 0) + (x[i] - b[w][i]) / WORKERS_OF_POWER;
        power_sum(m, feedback, rank, q, g);
        for (int i = 0; i < N; i++) x[i] -= rate * g[i];
    }
    for (int i = 0; i < N; i++) {
        double best = 0;
        for (int w = 0; w < WORKERS_OF_POWER; w++) best += b[w][i] / WORKERS_OF_POWER;
        error += (x[i] - best) * (x[i] - best);
    }
    return error;
}

START_TEST(low_ranks_descend_and_the_full_rank_is_the_sum)
{
    double with = descend_by_power(1, true, 0.05, 4000), one = descend_by_power(ROWS, false, 1, 1);
    ck_assert_msg(with < 1e-16, "rank 1 with feedback: %g", with);
    ck_assert_msg(one < 1e-24, "full rank: %g after one step of rate 1", one);
}
END_TEST

START_TEST(columns_become_orthonormal_and_dependent_ones_are_drawn)
{
    enum { N = 300, R = 7 };
    for (int k = 0; k < 2; k++) {
        enum dtype t = k ? DTYPE_fp64 : DTYPE_fp32;
        struct op_attrs attrs = {.stream = 4};
        struct optimizer_step step = {.step = 3};
        struct op_shapes s = {.n_inputs = 1, .n_outputs = 1, .input = {{2, {N, R}}}, .output = {{2, {N, R}}}};
        void *p = calls_numbers(t, N * R);
        for (int i = 0; i < N; i++) {
            calls_set(t, p, i * R + 2, 0);
            calls_set(t, p, i * R + 5, 2 * calls_get(t, p, i * R) - calls_get(t, p, i * R + 3));
        }
        struct op_call c = {.kind = OP_orthonormal, .dtype = t, .attrs = &attrs, .shapes = &s, .input = {p}, .output = {p}, .optimizer = &step};
        coder_on_host(NULL, &c);
        for (int a = 0; a < R; a++)
            for (int b = 0; b <= a; b++) {
                double sum = 0;
                for (int i = 0; i < N; i++) sum += calls_get(t, p, i * R + a) * calls_get(t, p, i * R + b);
                ck_assert_double_le(fabs(sum - (a == b)), k ? 1e-14 : 1e-5);
            }
    }
}
END_TEST

START_TEST(all_elements_in_a_code_are_the_sum_itself)
{
    static const enum encoding_kind kinds[] = {ENCODING_TOP_K, ENCODING_RANDOM_K};
    for (int k = 0; k < 2; k++) {
        struct coder c = coder_of((struct encoding){.kind = kinds[k], .block = 100, .kept = 100, .feedback = FEEDBACK_EF}, DTYPE_fp64, 250);
        const double *a = calls_numbers(DTYPE_fp64, 250), *b = calls_numbers(DTYPE_fp64, 250);
        double *e = calls_space(DTYPE_fp64, 250), *g = calls_poisoned(DTYPE_fp64, 250);
        char *words = calls_space(DTYPE_int32, 2 * coder_words(&c));
        memset(e, 0, 250 * sizeof *e);
        coder_encode(&c, coder_on_host, NULL, a, e, words);
        coder_encode(&c, coder_on_host, NULL, b, e, words + 4 * coder_words(&c));
        coder_decode(&c, coder_on_host, NULL, words, 2, NULL, g);
        for (int i = 0; i < 250; i++) ck_assert(g[i] == a[i] + b[i] && e[i] == 0);
    }
}
END_TEST

Suite *codes_suite(void)
{
    Suite *suite = suite_create("codes");
    TCase *c = tcase_create("codes");
    tcase_add_checked_fixture(c, calls_begin, calls_end);
    tcase_add_loop_test(c, codes_contract, 0, N_CODES);
    tcase_add_loop_test(c, stochastic_rounding_has_no_bias, 0, 3);
    tcase_add_loop_test(c, numbers_of_8_bit_floats_are_exact, 0, 2);
    tcase_add_test(c, halves_of_steps_become_even);
    tcase_add_test(c, codes_are_those_by_hand);
    tcase_add_test(c, equal_elements_are_taken_in_order_and_what_is_no_number_stays_none);
    tcase_add_test(c, feedback_does_what_its_papers_promise);
    tcase_add_test(c, all_elements_in_a_code_are_the_sum_itself);
    tcase_add_test(c, low_ranks_descend_and_the_full_rank_is_the_sum);
    tcase_add_test(c, columns_become_orthonormal_and_dependent_ones_are_drawn);
    suite_add_tcase(suite, c);
    return suite;
}
