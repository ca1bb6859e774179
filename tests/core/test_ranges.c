#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "tests/support/suites.h"

static struct arena *arena;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

#define NAMES(...)                                                                                 \
    ranges_of_names(arena, (const char *const[]){__VA_ARGS__},                                     \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), 3)

START_TEST(names_with_consecutive_numbers_stand_together)
{
    ck_assert_str_eq(ranges_of_names(arena, NULL, 0, 3), "");
    ck_assert_str_eq(NAMES("a.0"), "a.0");
    ck_assert_str_eq(NAMES("n0.1", "n0.0", "n1.0", "n1.1"), "n0-1.0-1");
    ck_assert_str_eq(NAMES("n9.0", "n10.0", "n11.0", "n9.4", "n10.4", "n11.4"), "n9-11.[0,4]");
    ck_assert_str_eq(NAMES("n0.0", "n1.0", "n5.0", "m.0"), "m.0, n[0-1,5].0");
    ck_assert_str_eq(NAMES("h0.g0", "h0.g1", "h0.g2"), "h0.g0-2");
    ck_assert_str_eq(NAMES("link", "up-2", "up-3"), "link, up-2-3");
}
END_TEST

START_TEST(a_list_is_bounded)
{
    ck_assert_str_eq(NAMES("n0", "n2", "n4", "n6", "n8"), "n[0,2,4,…]");
    ck_assert_str_eq(NAMES("a", "b", "c", "d", "e"), "a, b, c, …");
}
END_TEST

START_TEST(numbers_are_runs)
{
    static const int32_t x[] = {0, 1, 2, 3, 7, 9, 10, 12};
    ck_assert_str_eq(ranges_of_numbers(arena, x, 8, 9), "0-3,7,9-10,12");
    ck_assert_str_eq(ranges_of_numbers(arena, x, 8, 2), "0-3,7,…");
    ck_assert_str_eq(ranges_of_numbers(arena, x, 1, 2), "0");
}
END_TEST

Suite *ranges_suite(void)
{
    Suite *s = suite_create("core/base/ranges");
    TCase *t = tcase_create("names");
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_test(t, names_with_consecutive_numbers_stand_together);
    tcase_add_test(t, a_list_is_bounded);
    tcase_add_test(t, numbers_are_runs);
    suite_add_tcase(s, t);
    return s;
}
