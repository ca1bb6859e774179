#include "core/base/rng.h"
#include "tests/support/suites.h"

#include <math.h>

/* The known answers that Random123 publishes for philox4x32-10: zeros, ones, digits of pi. */
static const struct {
    uint32_t counter[4], key[2], out[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

START_TEST(philox_gives_the_known_answers)
{
    uint32_t out[4];
    rng_philox(known[_i].counter, known[_i].key, out);
    for (int w = 0; w < 4; w++) ck_assert_uint_eq(out[w], known[_i].out[w]);
}
END_TEST

START_TEST(a_number_depends_on_seed_stream_and_index_alone)
{
    uint64_t x = rng_u64(1, 2, 3);
    ck_assert_uint_eq(x, rng_u64(1, 2, 3));
    ck_assert_uint_ne(x, rng_u64(2, 2, 3));
    ck_assert_uint_ne(x, rng_u64(1, 3, 3));
    ck_assert_uint_ne(x, rng_u64(1, 2, 4));
    ck_assert_uint_eq(rng_u64(0, 0, 0), 0xe169c58d6627e8d5u);
}
END_TEST

/* n = 100,000: the mean of U[0,1) lies within 5 standard errors, 5 * 0.2887 / sqrt(n) = 0.0046. */
START_TEST(uniform_numbers_fill_the_unit_interval)
{
    double sum = 0, low = 1, high = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = rng_uniform(7, 1, i);
        ck_assert(u >= 0 && u < 1);
        sum += u;
        low = fmin(low, u);
        high = fmax(high, u);
    }
    ck_assert_double_eq_tol(sum / 1e5, 0.5, 0.0046);
    ck_assert(low < 1e-3 && high > 1 - 1e-3);
}
END_TEST

/* Mean within 5 / sqrt(n) = 0.0158, variance within 5 * sqrt(2 / n) = 0.0224; 31.73 % lie beyond 1. */
START_TEST(normal_numbers_have_mean_0_and_variance_1)
{
    double sum = 0, squares = 0;
    int beyond = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double x = rng_normal(7, 2, i);
        ck_assert(isfinite(x));
        sum += x;
        squares += x * x;
        beyond += fabs(x) > 1;
    }
    ck_assert_double_eq_tol(sum / 1e5, 0, 0.0158);
    ck_assert_double_eq_tol(squares / 1e5, 1, 0.0224);
    ck_assert_double_eq_tol(beyond / 1e5, 0.3173, 0.0074);
}
END_TEST

/* 7 cells of 70,000 draws: each within 5 * sqrt(10,000) = 500 of 10,000. */
START_TEST(numbers_below_n_are_even)
{
    int cell[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) cell[rng_below(7, 3, i, 7)]++;
    for (int c = 0; c < 7; c++) ck_assert(abs(cell[c] - 10000) < 500);
    ck_assert_uint_eq(rng_below(7, 3, 0, 1), 0);
    ck_assert(rng_below(7, 3, 0, UINT64_MAX) < UINT64_MAX);
}
END_TEST

START_TEST(similar_names_have_unlike_hashes)
{
    uint64_t a = rng_hash_text(0, "layer.1"), b = rng_hash_text(0, "layer.2");
    ck_assert_int_ge(__builtin_popcountll(a ^ b), 16);
    ck_assert_uint_ne(a, rng_hash_text(1, "layer.1"));
    ck_assert_uint_eq(a, rng_hash_bytes(0, "layer.1", 7));
    ck_assert_uint_ne(rng_hash_bytes(rng_hash_text(0, "a"), "bc", 2),
                      rng_hash_bytes(rng_hash_text(0, "ab"), "c", 1));
}
END_TEST

/* Keys of stored profiles: byte by byte as FNV-1a defines, although words are added at a time. */
START_TEST(hashes_are_those_of_single_bytes)
{
    unsigned char text[41];
    for (uint64_t i = 0; i < 500; i++) {
        size_t n = (size_t)rng_below(5, 0, i, sizeof text + 1);
        for (size_t k = 0; k < n; k++) text[k] = (unsigned char)(rng_below(6, i, k, 2) * rng_below(7, i, k, 256));
        uint64_t h = i ^ UINT64_C(0xCBF29CE484222325);
        for (size_t k = 0; k < n; k++) h = (h ^ text[k]) * UINT64_C(0x100000001B3);
        h = (h ^ h >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
        h = (h ^ h >> 27) * UINT64_C(0x94D049BB133111EB);
        ck_assert_uint_eq(rng_hash_bytes(i, text, n), h ^ h >> 31);
    }
}
END_TEST

Suite *rng_suite(void)
{
    Suite *s = suite_create("rng");
    TCase *c = tcase_create("rng");
    tcase_add_loop_test(c, philox_gives_the_known_answers, 0, sizeof known / sizeof *known);
    tcase_add_test(c, a_number_depends_on_seed_stream_and_index_alone);
    tcase_add_test(c, uniform_numbers_fill_the_unit_interval);
    tcase_add_test(c, normal_numbers_have_mean_0_and_variance_1);
    tcase_add_test(c, numbers_below_n_are_even);
    tcase_add_test(c, similar_names_have_unlike_hashes);
    tcase_add_test(c, hashes_are_those_of_single_bytes);
    suite_add_tcase(s, c);
    return s;
}
