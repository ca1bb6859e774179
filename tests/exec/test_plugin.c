/* Backends by kind, and every way in which the CUDA plugin can be the wrong one or not there. */
#include "exec/plugin.h"

#include "tests/support/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *build_folder(void)
{
    const char *b = getenv("BUILD");
    return b && *b ? b : "build";
}

/* Names a file of the build folder as the plugin; this process has opened none yet. */
static void choose(const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", build_folder(), file);
    ck_assert_int_eq(setenv("MUSHER_CUDA_PLUGIN", path, 1), 0);
}

static void refused(enum status wanted, const char *kind, const char *text)
{
    struct backend b;
    struct error err = {0};
    enum status st = plugin_open_backend(kind, &b, &err);
    ck_assert_msg(st == wanted, "status %d: %s", st, err.text);
    ck_assert_msg(strstr(err.text, text) != NULL, "'%s' is not in: %s", text, err.text);
    ck_assert_str_eq(plugin_path("cuda"), "");
}

START_TEST(the_host_needs_no_plugin)
{
    struct backend b;
    setenv("MUSHER_CUDA_PLUGIN", "/nowhere/libmusher_cuda.so", 1);
    ck_assert_int_eq(plugin_open_backend("host", &b, NULL), OK);
    ck_assert_str_eq(b.name, "host");
    ck_assert_int_eq(b.abi, BACKEND_ABI);
}
END_TEST

START_TEST(a_kind_without_a_plugin_is_refused)
{
    refused(ERR_NO_DEVICE, "rocm", "no ROCM plugin: libmusher_rocm.so is neither beside this");
    refused(ERR_INPUT, "none", "they can be planned and simulated, not run");
    refused(ERR_INPUT, "", "'' is not a plugin name");
    refused(ERR_INPUT, "../cuda", "'../cuda' is not a plugin name");
    refused(ERR_INPUT, "a_kind_whose_name_is_longer_than_any", "is not a plugin name");
}
END_TEST

START_TEST(a_named_plugin_that_is_not_there_is_named)
{
    setenv("MUSHER_CUDA_PLUGIN", "/nowhere/libmusher_cuda.so", 1);
    refused(ERR_NO_DEVICE, "cuda", "MUSHER_CUDA_PLUGIN names /nowhere/libmusher_cuda.so");
}
END_TEST

/* Beside the suites' own program lies none. */
START_TEST(without_a_plugin_it_is_told_where_one_would_be_and_how_it_is_made)
{
    unsetenv("MUSHER_CUDA_PLUGIN");
    refused(ERR_NO_DEVICE, "cuda", "neither beside this program nor in ../lib/musher; `make` builds");
}
END_TEST

START_TEST(a_file_that_is_no_library_cannot_be_opened)
{
    setenv("MUSHER_CUDA_PLUGIN", "Makefile", 1);
    refused(ERR_NO_DEVICE, "cuda", "the CUDA plugin cannot be opened: ");
}
END_TEST

/* Opening it would block: the loader does not refuse it. */
START_TEST(a_pipe_is_no_plugin)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/musher-plugin-%ld", (long)getpid());
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    setenv("MUSHER_CUDA_PLUGIN", path, 1);
    refused(ERR_NO_DEVICE, "cuda", "it is a pipe, not a regular file");
    unlink(path);
}
END_TEST

START_TEST(a_library_without_the_entry_is_no_plugin)
{
    choose("tests/plugins/no_entry.so");
    refused(ERR_NO_DEVICE, "cuda", "does not export musher_plugin");
}
END_TEST

START_TEST(a_plugin_of_another_abi_is_refused_with_both_numbers)
{
    choose("tests/plugins/other_abi.so");
    refused(ERR_NO_DEVICE, "cuda", "has ABI 99, this program 1");
}
END_TEST

START_TEST(a_plugin_with_another_backend_table_is_refused_with_both_numbers)
{
    choose("tests/plugins/other_backend.so");
    refused(ERR_NO_DEVICE, "cuda", "has a backend of ABI 1, this program 8");
}
END_TEST

START_TEST(a_plugin_with_other_operators_is_refused)
{
    choose("tests/plugins/other_operators.so");
    refused(ERR_NO_DEVICE, "cuda", "has other operators");
}
END_TEST

START_TEST(after_a_refusal_the_right_plugin_is_still_found)
{
    struct backend b;
    struct error err = {0};
    choose("tests/plugins/other_abi.so");
    refused(ERR_NO_DEVICE, "cuda", "ABI 99");
    choose("libmusher_cuda_standin.so");
    ck_assert_msg(plugin_open_backend("cuda", &b, &err) == OK, "%s", err.text);
    ck_assert_str_eq(b.name, "cuda");
    ck_assert(b.discrete_memory);
    ck_assert(strstr(plugin_path("cuda"), "libmusher_cuda_standin.so") != NULL);
}
END_TEST

START_TEST(a_plugin_is_opened_once)
{
    const struct plugin *first = NULL, *second = NULL;
    choose("libmusher_cuda_standin.so");
    ck_assert_int_eq(plugin_of("cuda", &first, NULL), OK);
    choose("tests/plugins/other_abi.so");
    ck_assert_int_eq(plugin_of("cuda", &second, NULL), OK);
    ck_assert_ptr_eq(first, second);
}
END_TEST

/* A file may be named for a kind that it is not of. */
START_TEST(a_plugin_of_another_kind_is_refused)
{
    char path[512];
    snprintf(path, sizeof path, "%s/libmusher_cuda_standin.so", build_folder());
    ck_assert_int_eq(setenv("MUSHER_ROCM_PLUGIN", path, 1), 0);
    refused(ERR_NO_DEVICE, "rocm", "is for backend 'cuda'");
}
END_TEST

/* The plugin that ships, where this build has it: on a machine with a driver it counts GPUs, on one without it says so. */
START_TEST(the_real_plugin_counts_gpus_or_says_why_there_are_none)
{
    char path[512];
    struct backend b;
    struct error err = {0};
    int32_t n = -1;
    snprintf(path, sizeof path, "%s/libmusher_cuda.so", build_folder());
    if (access(path, R_OK)) return; /* built without nvcc, or for a sanitizer */
    choose("libmusher_cuda.so");
    enum status st = plugin_open_backend("cuda", &b, &err);
    /* One that an earlier `make` left, and that `make tests` has not built again, is refused as it must be. */
    if (st != OK && strstr(err.text, "build both from the same sources")) return;
    ck_assert_msg(st == OK, "%s", err.text);
    st = b.count(&b, &n, &err);
    if (st == OK) {
        ck_assert_int_ge(n, 1);
        return;
    }
    ck_assert_int_eq(st, ERR_NO_DEVICE);
    ck_assert_int_eq(n, -1);
    ck_assert_msg(!strncmp(err.text, "no CUDA device: ", 16), "%s", err.text);
    ck_assert_int_eq(b.open(&b, 0, &err), ERR_NO_DEVICE);
    ck_assert_ptr_null(b.state);
}
END_TEST

Suite *plugin_suite(void)
{
    Suite *s = suite_create("plugin");
    TCase *c = tcase_create("backends by kind");
    tcase_add_test(c, the_host_needs_no_plugin);
    tcase_add_test(c, a_kind_without_a_plugin_is_refused);
    tcase_add_test(c, a_named_plugin_that_is_not_there_is_named);
    tcase_add_test(c, without_a_plugin_it_is_told_where_one_would_be_and_how_it_is_made);
    tcase_add_test(c, a_file_that_is_no_library_cannot_be_opened);
    tcase_add_test(c, a_pipe_is_no_plugin);
    tcase_add_test(c, a_library_without_the_entry_is_no_plugin);
    tcase_add_test(c, a_plugin_of_another_abi_is_refused_with_both_numbers);
    tcase_add_test(c, a_plugin_with_another_backend_table_is_refused_with_both_numbers);
    tcase_add_test(c, a_plugin_with_other_operators_is_refused);
    tcase_add_test(c, after_a_refusal_the_right_plugin_is_still_found);
    tcase_add_test(c, a_plugin_is_opened_once);
    tcase_add_test(c, a_plugin_of_another_kind_is_refused);
    tcase_add_test(c, the_real_plugin_counts_gpus_or_says_why_there_are_none);
    suite_add_tcase(s, c);
    return s;
}
