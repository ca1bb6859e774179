#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/temporary.h"
#include "tests/support/suites.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], path[128];
static struct arena *arena;
static struct error err;

static void begin(void)
{
    snprintf(folder, sizeof folder, "/tmp/musher-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/plan.yaml", folder);
    arena = arena_new();
    memset(&err, 0, sizeof err);
}

static int files_in_folder(bool remove_them)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        n++;
        if (remove_them) unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    return n;
}

static void end(void)
{
    files_in_folder(true);
    rmdir(folder);
    arena_free(arena);
}

static void write_file(const char *where, const char *text)
{
    struct file f;
    ck_assert_msg(file_open(&f, where, &err) == OK, "%s", err.text);
    fputs(text, f.stream);
    ck_assert_msg(file_commit(&f, &err) == OK, "%s", err.text);
    file_abandon(&f);
}

static const char *content(void)
{
    char *text = NULL;
    size_t n = 0;
    ck_assert_msg(file_read(arena, path, 1000000, &text, &n, &err) == OK, "%s", err.text);
    ck_assert_uint_eq(strlen(text), n);
    return text;
}

START_TEST(what_is_written_is_read)
{
    write_file(path, "old");
    ck_assert_str_eq(content(), "old");
    write_file(path, "");
    ck_assert_str_eq(content(), "");
    write_file(path, "new\n");
    ck_assert_str_eq(content(), "new\n");
    ck_assert_int_eq(files_in_folder(false), 1);
}
END_TEST

START_TEST(until_the_commit_the_old_file_stays)
{
    struct file f;
    write_file(path, "old");
    ck_assert_int_eq(file_open(&f, path, &err), OK);
    fputs("half", f.stream);
    fflush(f.stream);
    ck_assert_str_eq(content(), "old");
    file_abandon(&f);
    ck_assert_str_eq(content(), "old");
    ck_assert_int_eq(files_in_folder(false), 1);
}
END_TEST

/* The child dies in the middle: once by SIGKILL, once as main's signal handler would have it. */
START_TEST(an_interrupted_write_leaves_the_old_file)
{
    write_file(path, "old");
    for (int polite = 0; polite < 2; polite++) {
        pid_t child = fork();
        if (!child) {
            struct file f;
            if (file_open(&f, path, NULL) != OK) _exit(1);
            fputs("half", f.stream);
            fflush(f.stream);
            if (polite) temporary_remove_all();
            kill(getpid(), SIGKILL);
        }
        int how = 0;
        waitpid(child, &how, 0);
        ck_assert(WIFSIGNALED(how));
        ck_assert_str_eq(content(), "old");
        ck_assert_int_eq(files_in_folder(false), polite ? 1 : 2);
        if (!polite) {
            files_in_folder(true);
            write_file(path, "old");
        }
    }
}
END_TEST

static void *write_for_ever(void *unused)
{
    struct file f;
    for (;;)
        if (file_open(&f, path, NULL) == OK) file_abandon(&f);
    return unused;
}

/* One thread ends the program at any moment of another one's file_open. */
START_TEST(a_thread_that_ends_the_program_waits_for_a_file_in_the_making)
{
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (!child) {
            pthread_t writer;
            if (pthread_create(&writer, NULL, write_for_ever, NULL)) _exit(1);
            usleep((useconds_t)(200 + 7 * i % 100));
            temporary_remove_all();
            _exit(0);
        }
        int how = 0;
        waitpid(child, &how, 0);
        ck_assert(WIFEXITED(how) && !WEXITSTATUS(how));
        ck_assert_int_eq(files_in_folder(false), 0);
    }
}
END_TEST

START_TEST(what_lies_in_a_folder_lies_there_by_any_name)
{
    char inner[128], below[160], beside[160], soft[160];
    snprintf(inner, sizeof inner, "%s/in", folder);
    snprintf(below, sizeof below, "%s/in/../in/new", folder);
    snprintf(beside, sizeof beside, "%s/inside", folder);
    snprintf(soft, sizeof soft, "%s/soft", folder);
    ck_assert_int_eq(mkdir(inner, 0700), 0);
    ck_assert(file_within(below, inner) && file_within(below, folder));
    ck_assert(!file_within(beside, inner) && file_within(beside, folder));
    ck_assert(!file_within("new", inner) && file_within("new", ".") && file_within("new", "/"));
    ck_assert(!file_within(below, "nowhere") && !file_within("nowhere/new", folder));
    write_file(below, "old");
    ck_assert_int_eq(symlink(below, soft), 0);
    ck_assert(file_within(below, inner) && file_within(soft, inner));
    ck_assert_int_eq(unlink(below), 0);
    ck_assert_int_eq(rmdir(inner), 0);
}
END_TEST

START_TEST(a_child_does_not_remove_its_parents_temporaries)
{
    struct file f;
    ck_assert_int_eq(file_open(&f, path, &err), OK);
    pid_t child = fork();
    if (!child) {
        temporary_remove_all();
        _exit(0);
    }
    waitpid(child, NULL, 0);
    ck_assert_int_eq(files_in_folder(false), 1);
    ck_assert_int_eq(file_commit(&f, &err), OK);
}
END_TEST

START_TEST(what_is_no_regular_file_is_not_read)
{
    char *text = NULL, pipe_path[160];
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    ck_assert_int_eq(mkfifo(pipe_path, 0600), 0);
    const char *const bad[] = {pipe_path, "/dev/zero", folder};
    const char *const words[] = {"a pipe", "a device", "a folder"};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(file_read(arena, bad[i], 1000, &text, NULL, &err), ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
        ck_assert_ptr_nonnull(strstr(err.text, words[i]));
    }
}
END_TEST

START_TEST(a_file_that_is_too_large_is_not_read)
{
    char *text = NULL;
    write_file(path, "12345");
    ck_assert_int_eq(file_read(arena, path, 5, &text, NULL, &err), OK);
    ck_assert_int_eq(file_read(arena, path, 4, &text, NULL, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "has 5 bytes; at most 4 are accepted"));
    ck_assert_int_eq(truncate(path, (off_t)1 << 40), 0); /* a sparse terabyte */
    ck_assert_int_eq(file_read(arena, path, 1 << 20, &text, NULL, &err), ERR_INPUT);
}
END_TEST

START_TEST(standard_input_ends_at_the_limit)
{
    char *text = NULL;
    size_t n = 0;
    write_file(path, "from a pipe");
    ck_assert_ptr_nonnull(freopen(path, "r", stdin));
    ck_assert_int_eq(file_read(arena, "-", 1000, &text, &n, &err), OK);
    ck_assert_str_eq(text, "from a pipe");
    ck_assert_ptr_nonnull(freopen("/dev/zero", "r", stdin));
    ck_assert_int_eq(file_read(arena, "-", 100000, &text, &n, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "standard input"));
}
END_TEST

START_TEST(a_kernel_file_without_a_size_is_read)
{
    char *text = NULL;
    size_t n = 0;
    ck_assert_int_eq(file_read(arena, "/proc/self/status", 100000, &text, &n, &err), OK);
    ck_assert_uint_gt(n, 100);
}
END_TEST

START_TEST(a_place_that_cannot_be_written_is_named)
{
    struct file f;
    const char *const bad[] = {"/nonexistent/plan.yaml", folder, "", "/proc/plan.yaml"};
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(file_open(&f, bad[i], &err), ERR_RESOURCE);
        ck_assert_ptr_nonnull(strstr(err.text, bad[i]));
        file_abandon(&f);
    }
}
END_TEST

START_TEST(a_full_disk_is_reported)
{
    struct file f;
    ck_assert_int_eq(file_open(&f, "/dev/full", &err), OK);
    fputs("lost", f.stream);
    ck_assert_int_eq(file_commit(&f, &err), ERR_RESOURCE);
    ck_assert_str_eq(err.text, "cannot write '/dev/full': No space left on device");
    write_file("/dev/null", "gone");
}
END_TEST

START_TEST(a_write_that_failed_long_before_the_commit_says_why)
{
    struct file f;
    struct rlimit before, small = {1 << 16, RLIM_INFINITY};
    char block[1 << 12] = {0};
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    ck_assert_int_eq(file_open(&f, path, &err), OK);
    for (int i = 0; i < 64; i++)
        if (!fwrite(block, sizeof block, 1, f.stream)) continue;
    ck_assert_int_eq(file_commit(&f, &err), ERR_RESOURCE);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
    ck_assert_ptr_nonnull(strstr(err.text, "File too large"));
}
END_TEST

/* An old file, a new one and a third, which is the old one's other name: a link. */
enum { SWAPPED = 3 };
static char swapped[SWAPPED][160];

static void swap_some(struct file files[SWAPPED])
{
    static const char *const names[SWAPPED] = {"plan.yaml", "new", "link"};
    write_file(path, "old");
    for (int i = 0; i < SWAPPED; i++)
        snprintf(swapped[i], sizeof swapped[i], "%s/%s", folder, names[i]);
    write_file(arena_printf(arena, "%s/far", folder), "far");
    ck_assert_int_eq(symlink("far", swapped[2]), 0);
    for (int i = 0; i < SWAPPED; i++) {
        ck_assert_int_eq(file_open(&files[i], swapped[i], &err), OK);
        fputs("changed", files[i].stream);
        ck_assert_int_eq(file_finish(&files[i], &err), OK);
    }
    ck_assert_str_eq(content(), "old");
    for (int i = 0; i < SWAPPED; i++) ck_assert_int_eq(file_swap(&files[i], &err), OK);
    ck_assert_str_eq(content(), "changed");
}

static const char *far(void)
{
    char *text = NULL;
    ck_assert_int_eq(file_read(arena, swapped[2], 100, &text, NULL, &err), OK);
    return text;
}

START_TEST(swapped_files_are_all_new_or_all_old)
{
    struct file files[SWAPPED];
    swap_some(files);
    for (int i = 0; i < SWAPPED; i++) file_abandon(&files[i]);
    ck_assert_str_eq(content(), "old");
    ck_assert_str_eq(far(), "far");
    ck_assert_int_eq(access(swapped[1], F_OK), -1);
    ck_assert_int_eq(files_in_folder(true), 3);
    swap_some(files);
    for (int i = 0; i < SWAPPED; i++) file_keep(&files[i]);
    for (int i = 0; i < SWAPPED; i++) file_abandon(&files[i]);
    temporary_remove_all();
    ck_assert_str_eq(content(), "changed");
    ck_assert_str_eq(far(), "changed");
    ck_assert_int_eq(access(swapped[1], F_OK), 0);
    ck_assert_int_eq(files_in_folder(false), 4);
}
END_TEST

START_TEST(an_interrupt_puts_swapped_files_back)
{
    struct file files[SWAPPED];
    pid_t child = fork();
    if (!child) {
        swap_some(files);
        temporary_remove_all();
        _exit(0);
    }
    int how = 0;
    waitpid(child, &how, 0);
    ck_assert(WIFEXITED(how) && !WEXITSTATUS(how));
    snprintf(swapped[2], sizeof swapped[2], "%s/link", folder);
    ck_assert_str_eq(content(), "old");
    ck_assert_str_eq(far(), "far");
    ck_assert_int_eq(files_in_folder(false), 3);
}
END_TEST

START_TEST(a_swap_that_fails_leaves_what_is_there)
{
    struct file f;
    ck_assert_int_eq(file_open(&f, path, &err), OK);
    ck_assert_int_eq(file_finish(&f, &err), OK);
    ck_assert_int_eq(mkdir(path, 0777), 0);
    ck_assert_int_eq(file_swap(&f, &err), ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "plan.yaml': ") != NULL, "%s", err.text);
    ck_assert_int_eq(files_in_folder(false), 1);
    ck_assert_int_eq(rmdir(path), 0); /* it is the folder */
}
END_TEST

START_TEST(a_symbolic_link_and_the_mode_stay)
{
    char link[160];
    struct stat about;
    snprintf(link, sizeof link, "%s/link", folder);
    write_file(path, "old");
    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert_int_eq(symlink(path, link), 0);
    write_file(link, "new");
    ck_assert_str_eq(content(), "new");
    ck_assert_int_eq(lstat(link, &about), 0);
    ck_assert(S_ISLNK(about.st_mode));
    ck_assert_int_eq(stat(path, &about), 0);
    ck_assert_int_eq(about.st_mode & 0777, 0640);
}
END_TEST

Suite *file_suite(void)
{
    Suite *s = suite_create("file");
    TCase *c = tcase_create("file");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, what_is_written_is_read);
    tcase_add_test(c, until_the_commit_the_old_file_stays);
    tcase_add_test(c, an_interrupted_write_leaves_the_old_file);
    tcase_add_test(c, a_thread_that_ends_the_program_waits_for_a_file_in_the_making);
    tcase_add_test(c, what_lies_in_a_folder_lies_there_by_any_name);
    tcase_add_test(c, a_child_does_not_remove_its_parents_temporaries);
    tcase_add_test(c, what_is_no_regular_file_is_not_read);
    tcase_add_test(c, a_file_that_is_too_large_is_not_read);
    tcase_add_test(c, standard_input_ends_at_the_limit);
    tcase_add_test(c, a_kernel_file_without_a_size_is_read);
    tcase_add_test(c, a_place_that_cannot_be_written_is_named);
    tcase_add_test(c, a_full_disk_is_reported);
    tcase_add_test(c, a_write_that_failed_long_before_the_commit_says_why);
    tcase_add_test(c, swapped_files_are_all_new_or_all_old);
    tcase_add_test(c, an_interrupt_puts_swapped_files_back);
    tcase_add_test(c, a_swap_that_fails_leaves_what_is_there);
    tcase_add_test(c, a_symbolic_link_and_the_mode_stay);
    suite_add_tcase(s, c);
    return s;
}
