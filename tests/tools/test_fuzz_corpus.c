/* Every input of tests/fuzz/corpus through its reader: what a fuzzer found once, and a small set of inputs that covers each format
 * (tests/fuzz/formats.h has the rules). */
#include "tests/fuzz/formats.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "tests/support/suites.h"

#include <dirent.h>
#include <stdio.h>

#define CORPUS "tests/fuzz/corpus"

static int by_name(const struct dirent **x, const struct dirent **y) { return strcmp((*x)->d_name, (*y)->d_name); }
static int visible(const struct dirent *x) { return x->d_name[0] != '.'; }

/* Inputs that a reader accepts; *n: all. */
static int replay(const struct fuzz_format *f, int *n)
{
    struct arena *a = arena_new();
    struct dirent **list;
    int accepted = 0;
    *n = scandir(arena_printf(a, CORPUS "/%s", f->name), &list, visible, by_name);
    for (int i = 0; i < *n; i++) {
        struct error err = {0};
        const char *path = arena_printf(a, CORPUS "/%s/%s", f->name, list[i]->d_name);
        char *data;
        size_t bytes;
        ck_assert_msg(file_read(a, path, (size_t)1 << 20, &data, &bytes, &err) == OK, "%s", err.text);
        accepted += fuzz_format_read(f, path, (const uint8_t *)data, bytes) == OK;
        free(list[i]);
    }
    if (*n >= 0) free(list);
    arena_free(a);
    return accepted;
}

START_TEST(each_reader_keeps_the_rules)
{
    const struct fuzz_format *f = &fuzz_formats[_i];
    int n;
    fuzz_format_prepare();
    int accepted = replay(f, &n);
    fuzz_format_end();
    ck_assert_msg(n > 0, "%s: no input in " CORPUS, f->name);
    ck_assert_msg(accepted > 0, "%s: none of %d inputs is accepted", f->name, n);
    ck_assert_msg(accepted < n, "%s: none of %d inputs is refused", f->name, n);
}
END_TEST

/* A folder without its format would never be read. */
START_TEST(each_folder_is_a_format)
{
    struct dirent **list;
    int n = scandir(CORPUS, &list, visible, by_name);
    ck_assert_int_gt(n, 0);
    for (int i = 0; i < n; i++) {
        ck_assert_msg(fuzz_format_find(list[i]->d_name) != NULL, CORPUS "/%s has no format", list[i]->d_name);
        free(list[i]);
    }
    free(list);
}
END_TEST

Suite *fuzz_corpus_suite(void)
{
    Suite *s = suite_create("tools/fuzz_corpus");
    TCase *t = tcase_create("corpus");
    int n = 0;
    while (fuzz_formats[n].name) n++;
    tcase_add_loop_test(t, each_reader_keeps_the_rules, 0, n);
    tcase_add_test(t, each_folder_is_a_format);
    suite_add_tcase(s, t);
    return s;
}
