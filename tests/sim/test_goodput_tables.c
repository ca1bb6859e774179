#include "sim/goodput/goodput.h"

#include "core/base/arena.h"
#include "core/model/checkpoint_interval.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#define S INT64_C(1000000000)

static struct arena *arena;
static struct error err;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

static const char *const one_type[] = {"t"};

/* Lost devices are replaced during the restart, so speed is called with all devices only. */
static double whole(const void *user, const int64_t *devices)
{
    (void)user, (void)devices;
    return 1;
}

/* 419 in 54 days: one in 3.09 h at 16,384 GPUs, 99 h at 512, 264 days at 8. */
START_TEST(llama_3_s_table_scales_with_the_devices)
{
    const int64_t gpus[] = {16384, 512, 8};
    const double seconds_[] = {11135, 99 * 3600.0, 264 * 86400.0};
    for (int i = 0; i < 3; i++) {
        struct goodput_job j = {0};
        struct goodput_cause *causes = NULL;
        j.n_causes = goodput_llama3(arena, gpus[i], 8, &causes);
        j.causes = causes;
        ck_assert_double_eq_tol(goodput_mtbf(&j) / seconds_[i], 1, 0.002);
    }
}
END_TEST

START_TEST(the_file_of_llama_3_s_table_says_what_the_typed_one_says)
{
    struct goodput_cause *read = NULL, *typed = NULL;
    size_t n = 0;
    ck_assert_msg(goodput_read_failures(arena, "tests/validate/published/llama3_interruptions_table5.csv", 1000, 4,
                                        &n, &read, &err) == OK,
                  "%s", err.text);
    ck_assert_uint_eq(n, goodput_llama3(arena, 1000, 4, &typed));
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(read[i].name, typed[i].name);
        ck_assert_str_eq(read[i].category, typed[i].category);
        ck_assert_double_eq(read[i].mtbf_s, typed[i].mtbf_s);
        ck_assert_int_eq(read[i].devices, typed[i].devices);
    }
    ck_assert_int_eq(typed[0].devices, 1);
    ck_assert_int_eq(typed[4].devices, 4);
    ck_assert_int_eq(typed[2].devices, 0);
}
END_TEST

/* The number of failures of the table, and over 90 % useful time as reported, if a write stops the job
 * for 5 s and a restart takes 5 min. */
START_TEST(llama_3_s_run_is_told_as_it_went)
{
    struct goodput_cause *causes = NULL;
    const int64_t gpus[] = {16384};
    struct goodput_job j = {.horizon_ns = 54 * 86400 * S,
                            .n_types = 1,
                            .types = one_type,
                            .devices = gpus,
                            .speed = whole,
                            .checkpoint_ns = 5 * S,
                            .restart_ns = 300 * S};
    struct goodput_result r;
    j.n_causes = goodput_llama3(arena, 16384, 8, &causes);
    j.causes = causes;
    int64_t interval_ns = llround(checkpoint_interval_daly(5, goodput_mtbf(&j))) * S;
    ck_assert_msg(goodput_study(arena, &j, interval_ns, 1, 100, 2, &r, &err) == OK, "%s", err.text);
    double failures = 0;
    for (size_t i = 0; i < j.n_causes; i++) failures += r.mean.failures[i];
    ck_assert_double_eq_tol(failures, 419, 4 * sqrt(419.0 / 100));
    ck_assert_double_eq_tol(r.mean.failures[0], 148, 4 * sqrt(148.0 / 100));
    ck_assert_double_gt(r.goodput.p5.value, 0.9);
    ck_assert_double_lt(r.goodput.p95.value, 0.97);
}
END_TEST

START_TEST(availability_is_read_with_dates_or_seconds)
{
    struct goodput_spot s;
    ck_assert_msg(goodput_read_spot(arena, "tests/data/goodput/spot.csv", &s, &err) == OK, "%s",
                  err.text);
    ck_assert_int_eq(s.n_types, 2);
    ck_assert_str_eq(s.types[0], "A100-40_us-central1-a");
    ck_assert_uint_eq(s.n_changes, 4);
    ck_assert_int_eq(s.changes[0].time_ns, 0);
    ck_assert_int_eq(s.changes[1].time_ns, 600 * S); /* over midnight into a leap day */
    ck_assert_int_eq(s.changes[2].time_ns, 1830 * S + S / 2);
    ck_assert_int_eq(s.changes[3].time_ns, (600 + 86400) * S);
    ck_assert_int_eq(s.changes[3].devices[1], 0);
    ck_assert_int_eq(s.most[0], 4);
    ck_assert_int_eq(s.most[1], 8);
}
END_TEST

static const char *file_of(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/musher-goodput-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    return path;
}

START_TEST(centuries_are_leap_years_by_four_hundred)
{
    /* From 31 December to 1 March: 1 + 31 + 29 days into 2000, 1 + 31 + 28 into 2100. */
    static const struct {
        const char *text;
        int64_t days;
    } rows[] = {{"time_s,a\n1999-12-31 00:00,1\n2000-03-01 00:00,2\n", 61},
                {"time_s,a\n2099-12-31 00:00,1\n2100-03-01 00:00,2\n", 60}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct goodput_spot s;
        const char *path = file_of(rows[i].text);
        ck_assert_msg(goodput_read_spot(arena, path, &s, &err) == OK, "%s", err.text);
        unlink(path);
        ck_assert_uint_eq(s.n_changes, 2);
        ck_assert_int_eq(s.changes[1].time_ns, rows[i].days * 86400 * S);
    }
}
END_TEST

static void refused_spot(const char *text, const char *why)
{
    struct goodput_spot s;
    const char *path = file_of(text);
    ck_assert_int_eq(goodput_read_spot(arena, path, &s, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' not in '%s'", why, err.text);
    unlink(path);
}

START_TEST(broken_tables_are_refused_with_their_line)
{
    refused_spot("", "empty");
    refused_spot("a,b\n1,2\n", "no column 'time_s'");
    refused_spot("time_s\n1\n", "no column of devices");
    refused_spot("time_s,a\n", "no rows");
    refused_spot("time_s,a\n0,1\nx,1\n", ":3: 'x' is not a time");
    refused_spot("time_s,a\n5,1\n\n4,1\n", ":4: earlier than the row above");
    refused_spot("time_s,a\n0,-1\n", ":2: -1 devices of a");
    refused_spot("time_s,a\n0,1.5\n", ":2: 1.5 devices of a");
    refused_spot("time_s,a\n0\n", ":2: a is '', not a number");
    refused_spot("time_s,\"a\n0,1\n", ":1: a quote is never closed");
    refused_spot("time_s,a\x1b[2J\n0,1\n", ":1: byte 9 is a control character or not UTF-8");
    refused_spot("time_s,a\n0,1\n1,\t\xC2\x9B\n", ":3: byte 4 is a control character");
    refused_spot("time_s,\xFF\n0,1\n", ":1: byte 8 is");
    refused_spot("time_s,a\n0,1\n1e300,1\n", ":3: more than 31 years");
    struct goodput_cause *c;
    size_t n;
    const char *path = file_of("component,category,count,gpus\nx,y,1,2\n");
    ck_assert_int_eq(goodput_read_failures(arena, path, 1, 1, &n, &c, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "no column 'window_days'"));
    unlink(path);
    path =
        file_of("component,category,count,window_days,gpus\r\n\"a \"\"b\"\", c\",GPU,3,10,20\r\n");
    ck_assert_int_eq(goodput_read_failures(arena, path, 5, 1, &n, &c, &err), OK);
    ck_assert_str_eq(c[0].name, "a \"b\", c");
    ck_assert_double_eq_tol(c[0].mtbf_s, 10 * 86400.0 * 20 / 3 / 5, 1e-6);
    unlink(path);
    path = file_of("component,category,count,window_days,gpus\nx,y,1,0,20\n");
    ck_assert_int_eq(goodput_read_failures(arena, path, 1, 1, &n, &c, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, ":2: window_days"));
    unlink(path);
}
END_TEST

Suite *goodput_tables_suite(void)
{
    Suite *s = suite_create("goodput_tables");
    TCase *c = tcase_create("goodput_tables");
    tcase_add_checked_fixture(c, begin, end);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, llama_3_s_table_scales_with_the_devices);
    tcase_add_test(c, the_file_of_llama_3_s_table_says_what_the_typed_one_says);
    tcase_add_test(c, llama_3_s_run_is_told_as_it_went);
    tcase_add_test(c, availability_is_read_with_dates_or_seconds);
    tcase_add_test(c, centuries_are_leap_years_by_four_hundred);
    tcase_add_test(c, broken_tables_are_refused_with_their_line);
    suite_add_tcase(s, c);
    return s;
}
