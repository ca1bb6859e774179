#include "core/base/log.h"
#include "tests/support/suites.h"

#include <stdio.h>

static const struct {
    const char *text, *safe;
} cases[] = {
    {"plan", "plan"},
    {"h\xC3\xA9", "h\xC3\xA9"},
    {"\x1b[2Jgone", "\\x1b[2Jgone"},
    {"two\nlines\r", "two\\x0alines\\x0d"},
    {"\x7f", "\\x7f"},
    {"\xC2\x9B"
     "31m",
     "\\xc2\\x9b31m"},
    {"\xFF\xC3", "\\xff\\xc3"},
    {"a\xE2\x80\xAE"
     "b\xE2\x81\xA6"
     "c\xE2\x80\xA8",
     "a\\xe2\\x80\\xaeb\\xe2\\x81\\xa6c\\xe2\\x80\\xa8"},
    {"\xE2\x80\xA6\xE2\x81\xA5", "\xE2\x80\xA6\xE2\x81\xA5"},
};

START_TEST(foreign_text_is_made_harmless)
{
    char out[100];
    ck_assert_str_eq(log_safe(out, sizeof out, cases[_i].text), cases[_i].safe);
}
END_TEST

START_TEST(a_long_text_is_cut_between_characters)
{
    char out[6];
    ck_assert_str_eq(log_safe(out, 6, "abcdefgh"), "abcde");
    ck_assert_str_eq(log_safe(out, 6, "abcd\xC3\xA9"), "abcd");
    ck_assert_str_eq(log_safe(out, 6, "ab\x1b"), "ab");
}
END_TEST

static char said[4096];

static void listen(void)
{
    memset(said, 0, sizeof said);
    fflush(stderr);
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stderr));
    setvbuf(stderr, said, _IOFBF, sizeof said);
}

START_TEST(levels_choose_what_is_said_and_a_file_gets_no_colour)
{
    listen();
    log_debug("hidden");
    log_info("%d devices", 3);
    log_warn("odd '%s'", "\x1b[31m");
    log_progress("50 %%");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown");
    log_set_level(LOG_LEVEL_ERROR);
    log_info("hidden");
    log_error("bad");
    ck_assert_str_eq(said, "musher: 3 devices\nmusher: warning: odd '\\x1b[31m'\n"
                           "musher: debug: shown\nmusher: bad\n");
    ck_assert(!log_shows(LOG_LEVEL_WARN));
    setvbuf(stderr, NULL, _IONBF, 0);
}
END_TEST

Suite *log_suite(void)
{
    Suite *s = suite_create("log");
    TCase *c = tcase_create("log");
    tcase_add_loop_test(c, foreign_text_is_made_harmless, 0, sizeof cases / sizeof *cases);
    tcase_add_test(c, a_long_text_is_cut_between_characters);
    tcase_add_test(c, levels_choose_what_is_said_and_a_file_gets_no_colour);
    suite_add_tcase(s, c);
    return s;
}
