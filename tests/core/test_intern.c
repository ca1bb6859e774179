/* Equal contents have one address, others have their own, however many there are. */
#include "core/base/arena.h"
#include "core/base/intern.h"
#include "tests/support/suites.h"

#include <stdio.h>

START_TEST(equal_contents_have_one_address)
{
    enum { N = 3000 }; /* the table grows several times */
    struct arena *contents = arena_new(), *tables = arena_new();
    struct intern *x = intern_new(contents, tables);
    const char *known[N];
    char text[32];
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof text, "h.%d.mlp", i);
        known[i] = intern_text(x, text);
        ck_assert_ptr_ne(known[i], text);
    }
    for (int i = 0; i < N; i++) {
        snprintf(text, sizeof text, "h.%d.mlp", i);
        ck_assert_ptr_eq(intern_text(x, text), known[i]);
        ck_assert_str_eq(known[i], text);
    }
    arena_free(tables);
    ck_assert_str_eq(known[N - 1], "h.2999.mlp"); /* contents outlive the table */
    arena_free(contents);
}
END_TEST

START_TEST(bytes_are_compared_with_their_number)
{
    struct arena *a = arena_new();
    struct intern *x = intern_new(a, a);
    int32_t run[4] = {1, 2, 0, 0};
    const void *two = intern_bytes(x, run, 2 * sizeof *run),
               *four = intern_bytes(x, run, sizeof run);
    ck_assert_ptr_ne(two, four);
    ck_assert_ptr_eq(intern_bytes(x, run, 2 * sizeof *run), two);
    ck_assert_ptr_nonnull(intern_bytes(x, run, 0));
    ck_assert_ptr_null(intern_bytes(x, NULL, 0));
    run[3] = 5;
    ck_assert_ptr_ne(intern_bytes(x, run, sizeof run), four);
    arena_free(a);
}
END_TEST

Suite *intern_suite(void)
{
    Suite *suite = suite_create("intern");
    TCase *c = tcase_create("intern");
    tcase_add_test(c, equal_contents_have_one_address);
    tcase_add_test(c, bytes_are_compared_with_their_number);
    suite_add_tcase(suite, c);
    return suite;
}
