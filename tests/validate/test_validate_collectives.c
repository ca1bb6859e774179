/* The published all-reduces: their reader, and upper limits of the errors of NCCL's model as a prior. */
#include "tests/validate/collectives.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct arena *a;
static struct error err;
static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static struct published_collective *rows;
static size_t n;

static void read_all(void)
{
    ck_assert_msg(validate_collectives_read(a, "tests/validate/published", &rows, &n, &err) == OK,
                  "%s", err.text);
}

START_TEST(every_row_is_read_or_left_out_with_a_reason)
{
    size_t spoken = 0;
    read_all();
    ck_assert_uint_eq(n, 154 + 107);
    for (size_t i = 0; i < n; i++) {
        ck_assert(strlen(rows[i].source) > 10);
        if (rows[i].left_out) continue;
        spoken++;
        ck_assert(rows[i].seconds > 0 && rows[i].prior.seconds > 0);
    }
    ck_assert_uint_eq(spoken, 216);
    ck_assert_str_eq(rows[0].gpu, "A100");
    ck_assert_int_eq(rows[0].n_ranks, 2);
    ck_assert_double_eq_tol(rows[0].seconds, (44210 + 45100) / 2e9, 1e-15);
    /* 8 GiB at 363.3 GB/s by a ring of 4 on one node of H200 */
    ck_assert_str_eq(rows[154].gpu, "H200");
    ck_assert_double_eq_tol(rows[154].seconds, 8. * (1 << 30) * 1.5 / 363.3e9, 1e-12);
}
END_TEST

static const struct published_group *group(const struct published_group *g, size_t m,
                                           const char *gpu, int32_t n_ranks)
{
    for (size_t i = 0; i < m; i++)
        if (g[i].n_ranks == n_ranks && (gpu ? g[i].gpu && !strcmp(g[i].gpu, gpu) : !g[i].gpu))
            return &g[i];
    ck_abort_msg("no group %s %d", gpu ? gpu : "all", (int)n_ranks);
    return NULL;
}

/* Figures of docs/measurements.md, rounded up: a change of the model that makes them worse must be looked at. */
START_TEST(the_prior_is_no_worse_than_measured)
{
    static const struct {
        const char *gpu;
        double mape, large;
    } most[] = {{"A100", .24, .13},
                {"V100", .13, .12},
                {"H200", .04, .04},
                {"B200", .35, .12},
                {NULL, .21, .11}};
    size_t m = 0;
    read_all();
    const struct published_group *g = validate_collectives_groups(a, rows, n, &m);
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        const struct published_group *x = group(g, m, most[i].gpu, 0);
        ck_assert_msg(x->mape <= most[i].mape && x->large <= most[i].large,
                      "%s: %g, from 64 MiB %g", most[i].gpu ? most[i].gpu : "all", x->mape,
                      x->large);
        ck_assert_double_ge(x->p90, x->mape / 2);
        ck_assert_double_le(fabs(x->bias), x->mape);
    }
    ck_assert_double_ge(group(g, m, NULL, 0)->rank, .98);
    ck_assert_uint_eq(group(g, m, NULL, 0)->n, 216);
    ck_assert_uint_eq(group(g, m, NULL, 0)->n_known, 24);
    ck_assert_uint_ge(group(g, m, NULL, 0)->n_chosen, 22);
}
END_TEST

START_TEST(a_row_left_out_of_its_table_is_met_within_six_percent)
{
    size_t m = 0, tables = 0;
    read_all();
    const struct published_group *g = validate_collectives_groups(a, rows, n, &m);
    for (size_t i = 0; i < m; i++) {
        if (isnan(g[i].between)) continue;
        tables++;
        ck_assert_double_le(g[i].between, .06);
    }
    ck_assert_uint_eq(tables, 14);
}
END_TEST

START_TEST(one_table_can_be_named_and_bad_ones_are_refused)
{
    char path[] = "/tmp/musher-published-XXXXXX.csv";
    int fd = mkstemps(path, 4);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_eq(validate_collectives_read(
                         a, "tests/validate/published/nccl_busbw_measured.csv", &rows, &n, &err),
                     OK);
    ck_assert_uint_eq(n, 107);
    static const char *const bad[] = {"a,b,c\n1,2,3\n",
                                      "gpu,gpus,size_bytes,oop_time_ns,oop_busbw_GBps,ip_time_ns,"
                                      "ip_busbw_GBps,provenance\nA100,2,x,1,1,1,1,me\n",
                                      "gpu,gpus,size_bytes,oop_time_ns,oop_busbw_GBps,ip_time_ns,"
                                      "ip_busbw_GBps,provenance\r\nA100,2,1,1\r\n"};
    static const char *const message[] = {
        ":1: not the columns", ":2: size_bytes: 'x' is not a number", ":2: 4 fields of 8"};
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(path, "w");
        fputs(bad[i], f);
        fclose(f);
        ck_assert_int_eq(validate_collectives_read(a, path, &rows, &n, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, message[i]) != NULL, "%s", err.text);
    }
    unlink(path);
    ck_assert_int_eq(validate_collectives_read(a, "nowhere", &rows, &n, &err), ERR_INPUT);
}
END_TEST

Suite *validate_collectives_suite(void)
{
    Suite *s = suite_create("validate_collectives");
    TCase *c = tcase_create("validate_collectives");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, every_row_is_read_or_left_out_with_a_reason);
    tcase_add_test(c, the_prior_is_no_worse_than_measured);
    tcase_add_test(c, a_row_left_out_of_its_table_is_met_within_six_percent);
    tcase_add_test(c, one_table_can_be_named_and_bad_ones_are_refused);
    suite_add_tcase(s, c);
    return s;
}
