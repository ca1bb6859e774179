/* Axes of a sweep: texts to values, values to jobs and clusters; a table's way through CSV. */
#include "core/base/arena.h"
#include "core/document/document.h"
#include "tools/csv.h"
#include "tools/options.h"
#include "tools/sweep/axis.h"
#include "tools/sweep/table.h"

#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char cluster_text[] =
    "version: 1\nname: t\ndevice_types:\n"
    "  - {name: fast, device: host, slowdown: 2, memory: 1 GiB, price: 2/h}\n"
    "  - {name: slow, device: host, slowdown: 5, memory: 1 GiB}\n"
    "nodes:\n"
    "  - {name: h, count: 3, host: localhost, devices: [{type: fast, count: 2}]}\n"
    "  - {name: b, host: localhost, devices: [{type: slow, count: 4}]}\n"
    "switches: [{name: core}]\n"
    "links:\n"
    "  - {name: up, count: 3, between: [h, core], bandwidth: 1 GB/s, latency: 50 us}\n"
    "  - {name: lan, between: [b, core], bandwidth: 2 GB/s, latency: 50 us}\n"
    "  - {name: bus, between: [b], bandwidth: 8 GB/s, latency: 1 us}\n";
static const char job_text[] =
    "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: 2, n_head: 4, n_positions: 64, "
    "vocab_size: 256}\nsequence_length: 24\nglobal_batch: 12\nmicrobatch: [2, 3]\n";

static struct node *parsed(const char *text)
{
    struct node *root;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "text", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    return root;
}

static struct axis axis_of(const char *text)
{
    struct axis x;
    struct error err = {0};
    ck_assert_msg(axis_parse(arena, text, &x, &err) == OK, "%s: %s", text, err.text);
    return x;
}

static void refused(const char *text, const char *why)
{
    struct axis x;
    struct error err = {0};
    ck_assert_int_eq(axis_parse(arena, text, &x, &err), ERR_USAGE);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s: '%s' is not in: %s", text, why, err.text);
}

static void has(const struct axis *x, int32_t n, const double *values)
{
    ck_assert_int_eq(x->n, n);
    for (int32_t i = 0; i < n; i++)
        ck_assert_msg(fabs(x->values[i] - values[i]) <= 1e-9 * fabs(values[i]), "%s: %g, not %g",
                      x->name, x->values[i], values[i]);
}
#define HAS(text, ...)                                                                             \
    do {                                                                                           \
        const double v_[] = {__VA_ARGS__};                                                         \
        struct axis x_ = axis_of(text);                                                            \
        has(&x_, (int32_t)(sizeof v_ / sizeof *v_), v_);                                           \
    } while (0)

START_TEST(lists_and_ranges_by_hand)
{
    HAS("batch=64,128,256", 64, 128, 256);
    HAS("batch=7", 7);
    HAS("nodes:h=1..4", 1, 2, 3, 4);
    HAS("nodes:h=0..0", 0);
    HAS("batch=64..1024:x2", 64, 128, 256, 512, 1024);
    HAS("batch=10..100:x3", 10, 30, 90);
    HAS("batch=1..10:4", 1, 4, 7, 10);
    HAS("batch=1..4:3", 1, 3, 4); /* 2.5 rounds to 3 */
    HAS("batch=1..2:5", 1, 2);    /* values given twice count once */
    HAS("batch=4,2..5,4", 4, 2, 3, 5);
    HAS("link:lan=10GB/s..100GB/s:4", 10e9, 40e9, 70e9, 100e9);
    HAS("link:lan=1GB/s,8 Gb/s,2GiB/s", 1e9, 2147483648.0);
    HAS("link:a:b=100MB/s..1GB/s:x10", 100e6, 1e9);
    HAS("price:a100=1.5/h,2/h,0/h", 1.5, 2, 0);
    HAS("price:a100=1/h..2/h:3", 1, 1.5, 2);
    struct axis x = axis_of("link:a:b=25GB/s");
    ck_assert_str_eq(x.name, "link:a:b");
    ck_assert_str_eq(x.object, "a:b");
    ck_assert_str_eq(x.texts[0], "25 GB/s");
    ck_assert_str_eq(axis_of("price:a=1.5/h").texts[0], "1.5/h");
    ck_assert_str_eq(axis_of("sequence=4096").texts[0], "4096");
}
END_TEST

START_TEST(texts_that_are_no_axis_are_refused)
{
    refused("batch", "expected one of link:lan=10GB/s..100GB/s:5");
    refused("bach=3", "did you mean 'batch'?");
    refused("nodes=3", "needs a name behind ':', as in --vary nodes:h=1..8");
    refused("nodes:=3", "needs a name");
    refused("batch:x=3", "batch takes no name");
    refused("batch=", "'' is not a whole number");
    refused("batch=1,,2", "'' is not a whole number");
    refused("batch=0", "'0' is not a whole number of 1 to 16777216, as in --vary batch=64,128,256");
    refused("batch=-4", "'-4' is not a whole number");
    refused("batch=1.5", "'1.5' is not a whole number");
    refused("batch=99999999", "is not a whole number");
    refused("batch=9..3", "range 9..3 ends before it begins");
    refused("batch=1..", "'' is not a whole number");
    refused("batch=..3", "'' is not a whole number");
    refused("batch=1..9:1", "'1' is neither a number of values from 2 to 10000 nor a factor");
    refused("batch=1..9:2.5", "'2.5' is neither");
    refused("batch=1..9:x1", "a factor is a number above 1");
    refused("batch=1..9:x", "a factor is a number above 1");
    refused("nodes:h=0..8:x2", "the first value is above 0");
    refused("batch=1..20000", "more than 10000 values");
    refused("link:lan=5", "a number needs a unit: write 5 GB/s");
    refused("link:lan=1GB/s..2GB/s", "needs a number of values, 1GB/s..2GB/s:5, or a factor");
    refused("link:lan=0 B/s", "is not a bandwidth");
    refused("price:a=2", "'2' is not a price");
    refused("price:a=-1/h", "a price is from 0/h (free) to 1e+09/h");
}
END_TEST

/* Job and cluster after value `at`. */
static enum status applied(const char *text, int32_t at, struct job *j, struct cluster *c,
                           struct error *err)
{
    struct axis x = axis_of(text);
    struct profile prior = {.pace = 1};
    ck_assert_int_eq(cluster_parse(arena, parsed(cluster_text), c, err), OK);
    ck_assert_int_eq(job_parse(arena, parsed(job_text), ".", j, err), OK);
    return axis_apply(arena, &x, at, &prior, j, c, err);
}

static struct cluster cluster_of(const char *text)
{
    struct job j;
    struct cluster c;
    struct error err = {0};
    ck_assert_msg(applied(text, 0, &j, &c, &err) == OK, "%s: %s", text, err.text);
    return c;
}

static void fails(const char *text, enum status with, const char *why)
{
    struct job j;
    struct cluster c;
    struct error err = {0};
    ck_assert_int_eq(applied(text, 0, &j, &c, &err), with);
    ck_assert_msg(strstr(err.text, why) != NULL, "%s: '%s' is not in: %s", text, why, err.text);
}

START_TEST(nodes_and_devices_are_kept_from_the_first_on)
{
    struct cluster c = cluster_of("nodes:h=2");
    ck_assert_int_eq(c.n_nodes, 3);
    ck_assert_str_eq(c.nodes[1].name, "h1");
    ck_assert_str_eq(c.nodes[2].name, "b");
    ck_assert_int_eq(c.n_links, 4);
    c = cluster_of("nodes:h1=0"); /* one node by its own name */
    ck_assert_int_eq(c.n_devices, 8);
    ck_assert_str_eq(c.nodes[1].name, "h2");
    c = cluster_of("nodes:slow=0"); /* the nodes of a type */
    ck_assert_int_eq(c.n_devices, 6);
    c = cluster_of("nodes:h=5"); /* copies of the last, with its link */
    ck_assert_int_eq(c.n_devices, 14);
    ck_assert_int_eq(c.n_nodes, 6);
    ck_assert_int_eq(c.n_links, 7);
    c = cluster_of("devices:slow=1");
    ck_assert_int_eq(c.n_devices, 7);
    ck_assert_str_eq(c.devices[6].name, "b.0");
    c = cluster_of("devices:fast=3");
    ck_assert_int_eq(c.n_devices, 7);
    ck_assert_str_eq(c.devices[2].name, "h1.0");
    c = cluster_of("devices:h0=1");
    ck_assert_int_eq(c.n_devices, 9);
    ck_assert_str_eq(c.devices[1].name, "h1.0");
    fails("nodes:x=1", ERR_INPUT, "no device type 'x'; nodes are: h0, h1, h2, b");
    fails("nodes:h=300", ERR_INPUT, "the cluster has 3, and at most 256 are added");
    fails("devices:x=1", ERR_INPUT, "types are: fast, slow; nodes are: h0");
    fails("devices:slow=5", ERR_INPUT, "the cluster has 4");
}
END_TEST

START_TEST(links_prices_and_jobs)
{
    struct cluster c = cluster_of("link:lan=5GB/s");
    ck_assert_double_eq(c.links[3].bandwidth_Bps, 5e9);
    ck_assert_double_eq(c.links[3].latency_s, 50e-6);
    ck_assert_double_eq(c.links[0].bandwidth_Bps, 1e9);
    c = cluster_of("link:up=5GB/s"); /* all of the family, with new names */
    for (int i = 0; i < 3; i++) {
        ck_assert_double_eq(c.links[i].bandwidth_Bps, 5e9);
        ck_assert_str_ne(c.links[i].name, arena_printf(arena, "up%d", i));
    }
    ck_assert_double_eq(c.links[3].bandwidth_Bps, 2e9);
    c = cluster_of("link:b:b=1GB/s");
    ck_assert_double_eq(c.links[4].bandwidth_Bps, 1e9);
    c = cluster_of("price:slow=0.5/h");
    ck_assert_double_eq(c.types[1].price_per_h, 0.5);
    ck_assert_double_eq(c.types[0].price_per_h, 2);
    fails("link:wan=1GB/s", ERR_INPUT, "links are: up0");
    fails("price:x=1/h", ERR_INPUT, "types are: fast, slow");
    struct job j;
    struct error err = {0};
    ck_assert_int_eq(applied("batch=15", 0, &j, &c, &err), OK);
    ck_assert_int_eq(j.global_batch, 15);
    ck_assert_int_eq(j.n_microbatches_sizes, 1); /* 2 does not divide it */
    ck_assert_int_eq(j.microbatch_sizes[0], 3);
    ck_assert_int_eq(applied("sequence=24,64", 1, &j, &c, &err), OK);
    ck_assert_int_eq(j.sequence_length, 64);
    fails("batch=7", ERR_INFEASIBLE, "no microbatch size of the job divides a batch of 7");
    fails("sequence=65", ERR_INPUT, "65 is longer than the 64 positions");
}
END_TEST

START_TEST(points_are_the_product_the_last_axis_fastest)
{
    const char *two[] = {"batch=4,8", "nodes:h=1..3"}, *twice[] = {"batch=4", "batch=8"};
    struct sweep_grid s;
    struct error err = {0};
    ck_assert_int_eq(sweep_points(arena, &(struct texts){2, two}, 6, &s, &err), OK);
    ck_assert_int_eq(s.n_points, 6);
    for (int32_t i = 0; i < 6; i++) {
        ck_assert_int_eq(s.points[i].at[0], i / 3);
        ck_assert_int_eq(s.points[i].at[1], i % 3);
    }
    ck_assert_int_eq(sweep_points(arena, &(struct texts){2, two}, 5, &s, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "2 x 3 points are more than 5 searches"));
    ck_assert_int_eq(sweep_points(arena, &(struct texts){2, twice}, 5, &s, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "--vary batch is given twice"));
}
END_TEST

static const char *csv_of(const struct sweep_grid *s)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    table_csv(f, arena, s);
    fclose(f);
    const char *copy = arena_strdup(arena, text);
    free(text);
    return copy;
}

START_TEST(a_table_is_read_back_from_its_csv)
{
    const char *vary[] = {"link:a,b\"c=25GB/s", "batch=4,8"};
    struct sweep_grid s;
    struct sweep_table made, got;
    struct error err = {0};
    char path[] = "/tmp/musher-axis-XXXXXX";
    ck_assert_int_eq(sweep_points(arena, &(struct texts){2, vary}, 9, &s, &err), OK);
    s.points[0] = (struct sweep_point){.at = s.points[0].at,
                                       .done = true,
                                       .iteration_ns = 1500000000,
                                       .lower_bound_ns = 1000000000,
                                       .outcome = {1.5, {false, 2, 48}, 0.25, 0.5},
                                       .devices = 4,
                                       .devices_used = 3,
                                       .plan = "1 replica: [0-3 \"x\", y]",
                                       .stopped = "end",
                                       .strategy = "diloco: x, y",
                                       .strategy_ns = 500000000};
    s.points[1].done = true, s.points[1].why = "does not fit, by 3 GiB";
    const char *text = csv_of(&s);
    ck_assert_ptr_nonnull(strstr(text, "\"link:a,b\"\"c [B/s]\",batch,iteration_s,"));
    ck_assert_ptr_nonnull(strstr(
        text,
        "\n25000000000,4,1.5,2,48,0.25,1,0.5,4,3,0.5,,,0,0,end,\"1 replica: [0-3 \"\"x\"\", y]\",\"diloco: x, y\",\n"));
    ck_assert_ptr_nonnull(
        strstr(text, "\n25000000000,8,,,,,,,,,,,,,,,,,\"does not fit, by 3 GiB\"\n"));
    FILE *f = fdopen(mkstemp(path), "w");
    fputs(text, f);
    fclose(f);
    ck_assert(table_is(path));
    ck_assert_msg(table_read(arena, path, &got, &err) == OK, "%s", err.text);
    table_make(arena, &s, &made);
    unlink(path);
    ck_assert_int_eq(got.n_rows, 2);
    ck_assert_int_eq(got.n_axes, 2);
    ck_assert_int_eq(made.n_rows, 2);
    ck_assert_str_eq(got.axes[0].name, "link:a,b\"c");
    ck_assert_str_eq(got.axes[0].unit, "B/s");
    for (int i = 0; i < 4; i++) ck_assert_double_eq(got.at[i], made.at[i]);
    for (int i = 0; i < 2 * TABLE_plan; i++)
        ck_assert(isnan(made.values[i]) ? isnan(got.values[i]) : got.values[i] == made.values[i]);
}
END_TEST

START_TEST(fields_of_csv_by_hand)
{
    char text[] = "a,\"b,\"\"c\"\"\",,d\r\ne\n\"open";
    char *at = text, *fields[4];
    ck_assert_int_eq(csv_split(&at, fields, 4), 4);
    ck_assert_str_eq(fields[1], "b,\"c\"");
    ck_assert_str_eq(fields[2], "");
    ck_assert_str_eq(fields[3], "d");
    ck_assert_int_eq(csv_split(&at, fields, 4), 1);
    ck_assert_str_eq(fields[0], "e");
    ck_assert_int_eq(csv_split(&at, fields, 4), -1);
    char many[] = "1,2,3";
    at = many;
    ck_assert_int_eq(csv_split(&at, fields, 2), -1);
}
END_TEST

Suite *axis_suite(void)
{
    Suite *s = suite_create("axis");
    TCase *t = tcase_create("axis");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, lists_and_ranges_by_hand);
    tcase_add_test(t, texts_that_are_no_axis_are_refused);
    tcase_add_test(t, nodes_and_devices_are_kept_from_the_first_on);
    tcase_add_test(t, links_prices_and_jobs);
    tcase_add_test(t, points_are_the_product_the_last_axis_fastest);
    tcase_add_test(t, a_table_is_read_back_from_its_csv);
    tcase_add_test(t, fields_of_csv_by_hand);
    suite_add_tcase(s, t);
    return s;
}
