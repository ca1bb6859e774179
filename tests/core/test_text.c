/* A text that is written as a stream. */
#include "core/base/text.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"

#include <string.h>

START_TEST(what_is_written_is_the_arenas_text)
{
    struct arena *a = arena_new();
    struct text t;
    size_t n = 9;
    text_begin(&t);
    ck_assert_str_eq(text_end(a, &t, &n), "");
    ck_assert_uint_eq(n, 0);
    FILE *out = text_begin(&t);
    for (int i = 0; i < 10000; i++) fprintf(out, "%04d", i);
    fputc(0, out);
    char *text = text_end(a, &t, &n);
    ck_assert_uint_eq(n, 40001);
    ck_assert_uint_eq(strlen(text), 40000);
    ck_assert_ptr_nonnull(strstr(text, "99989999"));
    arena_free(a);
}
END_TEST

SUITE_OF(text, what_is_written_is_the_arenas_text)
