/* Values of the environment: each of the table's, and those that are none. */
#include "core/base/settings.h"
#include "tests/support/suites.h"

static const struct {
    const char *name, *value;
    bool good;
} cases[] = {
    {"MUSHER_TIMEOUT", "3", true},         {"MUSHER_TIMEOUT", "0.05", true},
    {"MUSHER_TIMEOUT", "", true},          {"MUSHER_TIMEOUT", "abc", false},
    {"MUSHER_TIMEOUT", "3 s", false},      {"MUSHER_TIMEOUT", "-1", false},
    {"MUSHER_TIMEOUT", "0", false},        {"MUSHER_TIMEOUT", "nan", false},
    {"MUSHER_TIMEOUT", "inf", false},      {"MUSHER_TRANSPORT", "host", true},
    {"MUSHER_TRANSPORT", "devices", true}, {"MUSHER_TRANSPORT", "hots", false},
    {"MUSHER_NCCL", "/no/where", true},    {"MUSHER_ANY_GPU", "1", true},
    {"MUSHER_ANY_GPU", "yes", false},      {"MUSHER_CUDA_WAIT", "true", false},
    {"MUSHER_BLAS_CLOCK", "2", false},
};

static void clear(void)
{
    for (const struct setting *s = settings; s->name; s++) unsetenv(s->name);
}

START_TEST(a_value_that_is_none_is_refused_with_those_it_may_be)
{
    struct error err;
    clear();
    ck_assert_int_eq(settings_check(&err), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv(cases[i].name, cases[i].value, 1);
        ck_assert_int_eq(settings_check(&err), cases[i].good ? OK : ERR_USAGE);
        if (!cases[i].good) {
            ck_assert_ptr_nonnull(strstr(err.text, cases[i].name));
            ck_assert_ptr_nonnull(strstr(err.text, cases[i].value));
            ck_assert_ptr_nonnull(strstr(err.text, "expected"));
        }
        clear();
    }
}
END_TEST

START_TEST(every_setting_is_in_the_table_once_and_says_what_it_does)
{
    for (const struct setting *s = settings; s->name; s++) {
        ck_assert(!strncmp(s->name, "MUSHER_", 7) && *s->values && *s->help);
        for (const struct setting *r = s + 1; r->name; r++) ck_assert_str_ne(s->name, r->name);
    }
}
END_TEST

START_TEST(what_is_not_said_is_as_ever)
{
    clear();
    ck_assert(settings_timeout_s() == 120);
    ck_assert(!settings_on("MUSHER_ANY_GPU"));
    setenv("MUSHER_TIMEOUT", "2.5", 1);
    setenv("MUSHER_ANY_GPU", "1", 1);
    ck_assert(settings_timeout_s() == 2.5);
    ck_assert(settings_on("MUSHER_ANY_GPU"));
    clear();
}
END_TEST

SUITE_OF(settings, a_value_that_is_none_is_refused_with_those_it_may_be,
         every_setting_is_in_the_table_once_and_says_what_it_does, what_is_not_said_is_as_ever)
