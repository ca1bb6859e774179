/* Files written by us in the shape of nccl-tests' three generations; times are our own. */
#include "traces/import_nccl_tests.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "tests/support/suites.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static struct error err;
static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

#define FOLDER "tests/data/nccl_tests/"

static struct nccl_tests read_good(const char *name)
{
    struct nccl_tests t;
    ck_assert_msg(import_nccl_tests_read(a, arena_printf(a, FOLDER "%s", name), &t, &err) == OK,
                  "%s", err.text);
    return t;
}

START_TEST(text_of_today_is_read)
{
    struct nccl_tests t = read_good("now.txt");
    ck_assert_int_eq(t.kind, COLLECTIVE_ALL_REDUCE);
    ck_assert_int_eq(t.n_ranks, 4);
    ck_assert_int_eq(t.n_nodes, 1);
    ck_assert_str_eq(t.device, "Sample GPU 40GB");
    ck_assert_str_eq(t.version, "2.28.3");
    ck_assert_int_eq(t.empty_rows, 1);
    ck_assert(t.complete && !t.mixed);
    ck_assert_uint_eq(t.n, 14);
    ck_assert_int_eq(t.samples[0].bytes, 1024);
    ck_assert_double_eq_tol(t.samples[0].seconds, 21.51e-6, 1e-12);
    ck_assert(!t.samples[0].in_place && t.samples[1].in_place);
    ck_assert_int_eq(t.samples[13].bytes, 4194304);
    ck_assert_double_eq_tol(t.samples[13].seconds, 64.65e-6, 1e-12);
}
END_TEST

/* Neither root nor redop nor the program's name: the file's name tells the kind. */
static const char *const old[] = {"all_gather_old.txt", "all_gather_old_blank_redop.txt"};
START_TEST(text_of_old_is_read)
{
    struct nccl_tests t = read_good(old[_i]);
    ck_assert_int_eq(t.kind, COLLECTIVE_ALL_GATHER);
    ck_assert_int_eq(t.n_ranks, 4);
    ck_assert_int_eq(t.n_nodes, 2);
    ck_assert_str_eq(t.version, "");
    ck_assert_uint_eq(t.n, 10);
    ck_assert_int_eq(t.samples[0].bytes, 8388608);
}
END_TEST

START_TEST(prefixes_logs_per_iteration_columns_and_timestamps_are_taken_off)
{
    struct nccl_tests t = read_good("per_iteration_mpi.txt");
    ck_assert_int_eq(t.kind, COLLECTIVE_ALL_REDUCE);
    ck_assert_int_eq(t.n_ranks, 4);
    ck_assert_int_eq(t.n_nodes, 2);
    ck_assert_str_eq(t.device, "Sample GPU 80GB");
    ck_assert_str_eq(t.version, "2.21.5");
    ck_assert_uint_eq(t.n, 12); /* 3 sizes, 2 cycles, 2 places */
    ck_assert_double_eq_tol(t.samples[0].seconds, 163.39e-6, 1e-12);
    ck_assert_double_eq_tol(t.samples[1].seconds, 165.99e-6, 1e-12);
    ck_assert_int_eq(t.samples[11].bytes, 67108864);
}
END_TEST

START_TEST(tables_of_vtrains_shape_are_read)
{
    struct nccl_tests t = read_good("AR_GPU4_sample_LUT.csv");
    ck_assert_int_eq(t.kind, COLLECTIVE_ALL_REDUCE);
    ck_assert_int_eq(t.n_ranks, 4);
    ck_assert_int_eq(t.n_nodes, 1);
    ck_assert_uint_eq(t.n, 8);
    ck_assert_int_eq(t.samples[0].bytes, 1 << 20);
    ck_assert_double_eq_tol(t.samples[0].seconds, 52864e-9, 1e-15);
}
END_TEST

START_TEST(json_is_read_and_its_environment_is_not)
{
    struct nccl_tests t = read_good("now.json");
    ck_assert_int_eq(t.kind, COLLECTIVE_ALL_REDUCE);
    ck_assert_int_eq(t.n_ranks, 8); /* one device listed, eight in config */
    ck_assert_int_eq(t.n_nodes, 1);
    ck_assert_str_eq(t.version, "2.29.7");
    ck_assert_str_eq(t.device, "Sample GPU 80GB");
    ck_assert_int_eq(t.empty_rows, 1);
    ck_assert_uint_eq(t.n, 7); /* one row has no out-of-place half */
    ck_assert(t.samples[0].in_place);
    ck_assert_int_eq(t.samples[6].bytes, 268435456);
}
END_TEST

static const struct {
    const char *file, *message;
} bad[] = {
    {"AR_GPU4_cut.csv", "AR_GPU4_cut.csv:4: not the 7 fields"},
    {"table_without_ranks.csv", "name must contain the ranks"},
    {"another_test.txt", "another_test.txt:2: 'sendrecv_perf' is not a supported test"},
    {"busbw_of_another_kind.txt", ":15: busbw 0.07 does not follow from 1024 bytes"},
    {"cpu_time.txt", "cpu_time.txt:12: CPU times (-C)"},
    {"cut.json", "cut.json:1:900"},
    {"cut_row.txt", "cut_row.txt:16: the row ends before its algbw"},
    {"nan.json", "results[2].out_of_place.time"},
    {"no_header.txt", "no_header.txt:13: a row before any"},
    {"no_number.txt", "no_number.txt:16: root: 'x' is not a number"},
    {"no_ranks.txt", "no lines '#  Rank"},
    {"no_results.json", "'results' is missing"},
    {"no_rows.txt", "no rows of nccl-tests"},
    {"two_tests.txt", "two_tests.txt:28: a second test, all_gather_perf"},
    {"uneven_hosts.txt", "3 ranks on sled1, 1 on sled2"},
    {"which_kind.txt", "name the file after it"},
    {"wrong.json", "results[3].in_place: 2 wrong elements"},
    {"wrong_results.txt", "wrong_results.txt:18: 3 wrong elements"},
    {"not_there.txt", "not_there.txt"},
};
START_TEST(traps_are_refused_with_their_place)
{
    struct nccl_tests t;
    enum status st =
        import_nccl_tests_read(a, arena_printf(a, FOLDER "bad/%s", bad[_i].file), &t, &err);
    ck_assert_int_eq(st, ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad[_i].message) != NULL, "%s", err.text);
}
END_TEST

/* Cut anywhere, with bytes changed anywhere: an error or a table, never a crash; what is taken is in range. */
START_TEST(damaged_files_are_refused_or_read_but_never_crash)
{
    static const char *const files[] = {"now.txt", "per_iteration_mpi.txt", "now.json",
                                        "all_gather_old.txt", "AR_GPU4_sample_LUT.csv"};
    char path[] = "/tmp/AR_GPU4_all_reduce-XXXXXX";
    int fd = mkstemp(path), refused = 0;
    ck_assert_int_ge(fd, 0);
    close(fd);
    for (uint64_t i = 0; i < (suites_long() ? 8000 : 800); i++) {
        struct arena *scratch = arena_new();
        struct nccl_tests t;
        char *text = NULL;
        size_t n = 0;
        ck_assert_int_eq(file_read(scratch, arena_printf(scratch, FOLDER "%s", files[i % 5]),
                                   1 << 20, &text, &n, &err),
                         OK);
        size_t length = rng_below(1, 1, i, 3) ? n : rng_below(1, 2, i, n + 1);
        for (uint64_t k = 0; k < rng_below(1, 3, i, 6); k++)
            text[rng_below(1, 4, 8 * i + k, n)] = (char)rng_below(1, 5, 8 * i + k, 256);
        FILE *f = fopen(path, "w");
        ck_assert_uint_eq(fwrite(text, 1, length, f), length);
        fclose(f);
        enum status st = import_nccl_tests_read(scratch, path, &t, &err);
        ck_assert(st == OK || st == ERR_INPUT);
        refused += st != OK;
        for (size_t k = 0; k < t.n && st == OK; k++) {
            ck_assert_int_gt(t.samples[k].bytes, 0);
            ck_assert(t.samples[k].seconds > 0 && t.samples[k].seconds < 1e6);
        }
        arena_free(scratch);
    }
    unlink(path);
    ck_assert_int_gt(refused, 100);
}
END_TEST

Suite *import_nccl_tests_suite(void)
{
    Suite *s = suite_create("import_nccl_tests");
    TCase *c = tcase_create("import_nccl_tests");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, text_of_today_is_read);
    tcase_add_loop_test(c, text_of_old_is_read, 0, 2);
    tcase_add_test(c, prefixes_logs_per_iteration_columns_and_timestamps_are_taken_off);
    tcase_add_test(c, tables_of_vtrains_shape_are_read);
    tcase_add_test(c, json_is_read_and_its_environment_is_not);
    tcase_add_loop_test(c, traps_are_refused_with_their_place, 0, sizeof bad / sizeof *bad);
    tcase_add_test(c, damaged_files_are_refused_or_read_but_never_crash);
    suite_add_tcase(s, c);
    return s;
}
