/* Half precision on the host: every value of both formats, and where rounding goes. */
#include "core/graph/half.h"

#include "tests/support/suites.h"

#include <math.h>

static const enum dtype kinds[] = {DTYPE_bf16, DTYPE_fp16};

START_TEST(every_value_comes_back_as_it_was)
{
    for (int k = 0; k < 2; k++)
        for (int32_t bits = 0; bits < 65536; bits++) {
            float x = half_value(kinds[k], (uint16_t)bits);
            uint16_t back = half_of(kinds[k], x);
            if (isnan(x))
                ck_assert(isnan(half_value(kinds[k], back)));
            else
                ck_assert_int_eq(back, bits);
        }
}
END_TEST

/* Between two neighbours of positive sign, which differ by one in their bits, the middle goes to the even one. */
START_TEST(rounding_is_to_nearest_and_ties_go_to_even)
{
    static const int32_t last[] = {0x7f7f, 0x7bff};
    for (int k = 0; k < 2; k++)
        for (int32_t bits = 0; bits < last[k]; bits++) {
            float low = half_value(kinds[k], (uint16_t)bits),
                  high = half_value(kinds[k], (uint16_t)(bits + 1)), middle = low / 2 + high / 2;
            uint16_t even = (uint16_t)(bits & 1 ? bits + 1 : bits);
            ck_assert_int_eq(half_of(kinds[k], nextafterf(middle, low)), bits);
            ck_assert_int_eq(half_of(kinds[k], middle), even);
            ck_assert_int_eq(half_of(kinds[k], nextafterf(middle, high)), bits + 1);
            ck_assert_int_eq(half_of(kinds[k], -middle), even | 0x8000);
        }
}
END_TEST

START_TEST(what_is_too_large_is_infinite)
{
    ck_assert_int_eq(half_of(DTYPE_fp16, 65519.0f), 0x7bff);
    ck_assert_int_eq(half_of(DTYPE_fp16, 65520.0f), 0x7c00); /* the middle to 2^16 */
    ck_assert_int_eq(half_of(DTYPE_fp16, -1e30f), 0xfc00);
    ck_assert_int_eq(half_of(DTYPE_fp16, 0x1p-25f), 0); /* a tie */
    ck_assert_int_eq(half_of(DTYPE_fp16, 0x1.8p-25f), 1);
    ck_assert_int_eq(half_of(DTYPE_bf16, 0x1.fffffep127f), 0x7f80);
    ck_assert_int_eq(half_of(DTYPE_bf16, -INFINITY), 0xff80);
}
END_TEST

START_TEST(sums_are_rounded_once)
{
    uint16_t x[2] = {half_of(DTYPE_bf16, 1.0f), half_of(DTYPE_bf16, 256.0f)},
             y[2] = {half_of(DTYPE_bf16, 0.0078125f), half_of(DTYPE_bf16, 1.0f)};
    half_add(DTYPE_bf16, x, y, 2);
    ck_assert_float_eq(half_value(DTYPE_bf16, x[0]), 1.0078125f);
    ck_assert_float_eq(half_value(DTYPE_bf16, x[1]), 256.0f); /* a tie */
}
END_TEST

SUITE_OF(half, every_value_comes_back_as_it_was, rounding_is_to_nearest_and_ties_go_to_even,
         what_is_too_large_is_infinite, sums_are_rounded_once)
