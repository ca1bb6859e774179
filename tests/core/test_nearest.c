/* The known name that is nearest to a mistyped word, and the hint that errors end with. */
#include "core/base/nearest.h"
#include "tests/support/suites.h"

START_TEST(the_nearest_name_allows_for_typing_errors)
{
    static const char *const verbs[] = {"plan", "plot", "simulate", NULL};
    ck_assert_str_eq(nearest_name("simualte", verbs), "simulate");
    ck_assert_str_eq(nearest_name("pla", verbs), "plan");
    ck_assert_str_eq(nearest_name("polt", verbs), "plot");
    ck_assert_ptr_null(nearest_name("xyz", verbs));
    char endless[5000];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = 0;
    ck_assert_ptr_null(nearest_name(endless, verbs));
}
END_TEST

START_TEST(the_hint_names_it_or_is_empty)
{
    static const char *const types[] = {"A100-SXM4-80GB", "H100-SXM5", NULL};
    char hint[NEAREST_HINT];
    ck_assert_str_eq(nearest_name_hint("H100-SMX5", types, hint), "; did you mean 'H100-SXM5'?");
    ck_assert_str_eq(nearest_name_hint("T4", types, hint), "");
    ck_assert_str_eq(nearest_name_hint("h100-sxm5", types, hint), "; did you mean 'H100-SXM5'?");
    struct nearest q = nearest_to("a.7");
    nearest_try(&q, "a.0");
    nearest_try(&q, "a.1"); /* as near: the first one stays */
    ck_assert_str_eq(nearest_hint(&q, hint), "; did you mean 'a.0'?");
}
END_TEST

START_TEST(the_part_before_a_dash_is_a_name_too)
{
    static const char *const types[] = {"A10", "B200-SXM", "H100-SXM5", "H100-PCIe", "H200-SXM", NULL};
    ck_assert_str_eq(nearest_name("H101", types), "H100-SXM5");
    ck_assert_str_eq(nearest_name("H20", types), "H200-SXM");
    ck_assert_str_eq(nearest_name("A11", types), "A10"); /* a whole name before a part as near */
    ck_assert_ptr_null(nearest_name("SXM", types));
    static const char *const verbs[] = {"train", "plain", "plan-x", NULL};
    ck_assert_str_eq(nearest_name("plein", verbs), "plain"); /* and the longer common prefix */
    ck_assert_str_eq(nearest_name("trxin", verbs), "train");
}
END_TEST

START_TEST(of_equally_near_names_the_longest_common_prefix)
{
    static const char *const names[] = {"bold", "cord", "cold", NULL};
    ck_assert_str_eq(nearest_name("cowd", names), "cord");
    static const char *const other[] = {"rope", "hops", NULL};
    ck_assert_str_eq(nearest_name("hope", other), "hops");
}
END_TEST

Suite *nearest_suite(void)
{
    Suite *suite = suite_create("nearest");
    TCase *c = tcase_create("nearest");
    tcase_add_test(c, the_nearest_name_allows_for_typing_errors);
    tcase_add_test(c, the_hint_names_it_or_is_empty);
    tcase_add_test(c, the_part_before_a_dash_is_a_name_too);
    tcase_add_test(c, of_equally_near_names_the_longest_common_prefix);
    suite_add_tcase(suite, c);
    return suite;
}
