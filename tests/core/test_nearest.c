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

Suite *nearest_suite(void)
{
    Suite *suite = suite_create("nearest");
    TCase *c = tcase_create("nearest");
    tcase_add_test(c, the_nearest_name_allows_for_typing_errors);
    tcase_add_test(c, the_hint_names_it_or_is_empty);
    suite_add_tcase(suite, c);
    return suite;
}
