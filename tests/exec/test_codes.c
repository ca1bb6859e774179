/* The host's codes of gradients (core/graph/encoding.h): their bytes by hand, and what they lose. */
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

/* Numbers of five distributions: normal, with heavy tails, mostly zeros, constant, one spike among small ones. */
static void *drawn(enum dtype t, int64_t n, int kind)
{
    void *p = calls_numbers(t, n);
    for (int64_t i = 0; i < n; i++) {
        double x = calls_get(t, p, i);
        calls_set(t, p, i, kind == 1 ? x * x * x * x * x : kind == 2 && fabs(x) < 1.5 ? 0 : kind == 3 ? -0.75 : kind == 4 && i != n / 3 ? 1e-3 * x : x);
    }
    return p;
}

static struct encoding drawn_code(uint64_t draw)
{
    static const enum encoding_kind kinds[] = {ENCODING_INT8, ENCODING_INT8, ENCODING_SIGN, ENCODING_TOP_K, ENCODING_RANDOM_K};
    struct encoding c = {.kind = kinds[draw % 5], .stochastic = draw % 5 == 1};
    c.block = 1 + (int32_t)rng_below(11, draw, 0, 700);
    if (c.kind == ENCODING_TOP_K || c.kind == ENCODING_RANDOM_K) c.kept = 1 + (int32_t)rng_below(11, draw, 1, (uint64_t)c.block);
    return c;
}

/* ‖C(x) - x‖² is at most what the code allows, hence at most ‖x‖² (int8 of up to 64,516 elements a block); with error feedback the code and what it
 * left out are the whole. */
START_TEST(every_code_contracts_every_vector)
{
    enum { CASES = 300, DRAWS = 200 };
    for (uint64_t draw = 0; draw < CASES; draw++) {
        enum dtype t = draw & 1 ? DTYPE_fp64 : DTYPE_fp32;
        struct coder x = coder_of(drawn_code(draw), t, 1 + (int64_t)rng_below(12, draw, 0, 2000));
        const void *g = drawn(t, x.n, (int)rng_below(13, draw, 0, 5));
        double all = codes_squared(t, g, NULL, x.n), lost = 0, rounding = t == DTYPE_fp64 ? 1e-12 : 1e-5;
        bool random = x.attrs.code.stochastic || x.attrs.code.kind == ENCODING_RANDOM_K;
        void *words = calls_poisoned(DTYPE_int32, coder_words(&x)), *y = calls_poisoned(t, x.n), *left = calls_space(t, x.n);
        if (!(all > 0)) continue;
        for (x.step = 1; x.step <= (random ? DRAWS : 1); x.step++) {
            coder_encode(&x, coder_on_host, NULL, g, NULL, words);
            coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
            lost += codes_squared(t, g, y, x.n) / all / (random ? DRAWS : 1);
        }
        double most = allowed(&x.attrs.code, t, g, x.n);
        ck_assert_double_le(most, 1);
        /* a loss of 0 … 1 of mean `most` has a variance of at most that, if a spike is kept or lost as a whole: 5 standard errors */
        ck_assert_msg(lost <= most * (1 + rounding) + rounding + (random ? 5 * sqrt(most / DRAWS) : 0), "case %d: %g, not %g", (int)draw, lost, most);
        memset(left, 0, (size_t)(x.n * dtype_bytes(t)));
        x.attrs.code.feedback = FEEDBACK_EF;
        coder_encode(&x, coder_on_host, NULL, g, left, words);
        coder_decode(&x, coder_on_host, NULL, words, 1, NULL, y);
        double largest = calls_largest(t, g, x.n);
        for (int64_t i = 0; i < x.n; i++)
            ck_assert_double_le(fabs(calls_get(t, y, i) + calls_get(t, left, i) - calls_get(t, g, i)), rounding * largest);
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
    tcase_add_test(c, every_code_contracts_every_vector);
    tcase_add_loop_test(c, stochastic_rounding_has_no_bias, 0, 3);
    tcase_add_loop_test(c, numbers_of_8_bit_floats_are_exact, 0, 2);
    tcase_add_test(c, halves_of_steps_become_even);
    tcase_add_test(c, codes_are_those_by_hand);
    tcase_add_test(c, equal_elements_are_taken_in_order_and_what_is_no_number_stays_none);
    tcase_add_test(c, all_elements_in_a_code_are_the_sum_itself);
    tcase_add_test(c, columns_become_orthonormal_and_dependent_ones_are_drawn);
    suite_add_tcase(suite, c);
    return suite;
}
