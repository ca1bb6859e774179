#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "tests/support/suites.h"
#include "tools/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Output file of a child that prints the parts, each flushed. */
static const char *printed(struct arena *a, const char *const *parts, size_t n)
{
    char path[] = "/tmp/musher-screen-XXXXXX", *text = NULL;
    struct error err = {0};
    int how = 0, fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    pid_t child = fork();
    if (!child) {
        dup2(fd, STDOUT_FILENO);
        screen_open();
        for (size_t i = 0; i < n; i++) {
            fputs(parts[i], stdout);
            if (fflush(stdout)) _exit(2);
        }
        _exit(screen_flush() ? 0 : 1);
    }
    waitpid(child, &how, 0);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    ck_assert_msg(file_read(a, path, 1 << 20, &text, NULL, &err) == OK, "%s", err.text);
    close(fd);
    unlink(path);
    return text;
}

static const struct {
    const char *parts[4], *seen;
} cases[] = {
    {{"a\tb\n", "Gänge → 𝄞\n"}, "a\tb\nGänge → 𝄞\n"},
    {{"\x1b[2J\a", "\r\x7f"}, "\\x1b[2J\\x07\\x0d\\x7f"},
    {{"\xc2", "\x9b[m"}, "\\xc2\\x9b[m"},
    {{"\xf0\x9d", "\x84", "\x9e|", "\xe2\x86\x92"}, "𝄞|→"},
    {{"\xe2\x80", "\xae", "\xe2\x81\xa6"}, "\\xe2\\x80\\xae\\xe2\\x81\\xa6"},
    {{"a\xf0\x9d", "b"}, "a\\xf0\\x9db"},
    {{"\xe2\x86", "\xe2\x86\x92"}, "\\xe2\\x86→"},
    {{"\x9b\xff\xc0\x80"}, "\\x9b\\xff\\xc0\\x80"},
    {{"cut \xf0\x9d\x84"}, "cut \\xf0\\x9d\\x84"},
    {{"\xf4", "\x90\x80\x80\n"}, "\\xf4\\x90\\x80\\x80\n"},
};

START_TEST(what_commands_a_terminal_is_shown_instead)
{
    struct arena *a = arena_new();
    size_t n = 0;
    while (n < 4 && cases[_i].parts[n]) n++;
    ck_assert_str_eq(printed(a, cases[_i].parts, n), cases[_i].seen);
    arena_free(a);
}
END_TEST

/* Characters of three bytes that cross the ends of blocks, at every offset. */
START_TEST(long_texts_pass_unchanged)
{
    enum { CHARACTERS = 20000 };
    struct arena *a = arena_new();
    char *text = arena_alloc(a, 3 * CHARACTERS + 3, 1);
    for (size_t first = 0; first < 3; first++) {
        memset(text, 'x', first);
        for (size_t i = 0; i < CHARACTERS; i++) memcpy(text + first + 3 * i, "→", 3);
        text[first + (size_t)3 * CHARACTERS] = 0;
        const char *parts[] = {text};
        ck_assert_str_eq(printed(a, parts, 1), text);
    }
    arena_free(a);
}
END_TEST

START_TEST(a_full_device_is_told)
{
    pid_t child = fork();
    if (!child) {
        dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
        screen_open();
        fputs("lost", stdout);
        bool went_out = !fflush(stdout);
        errno = 0; /* the reason is kept from the first write that failed */
        _exit(went_out || screen_flush() || errno != ENOSPC);
    }
    int how = 0;
    waitpid(child, &how, 0);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
}
END_TEST

Suite *screen_suite(void)
{
    Suite *s = suite_create("screen");
    TCase *c = tcase_create("screen");
    tcase_add_loop_test(c, what_commands_a_terminal_is_shown_instead, 0,
                        sizeof cases / sizeof *cases);
    tcase_add_test(c, long_texts_pass_unchanged);
    tcase_add_test(c, a_full_device_is_told);
    suite_add_tcase(s, c);
    return s;
}
