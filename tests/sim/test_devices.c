/* Every device of the catalogue can be planned for, and what a cluster file states of a device changes its predicted times. */
#include "core/lower/lower.h"
#include "profiles/profile.h"
#include "profiles/team.h"
#include "sim/engine/sim.h"

#include "tests/support/plans.h"

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

static struct cluster read_cluster(const char *device, const char *more)
{
    const char *text =
        arena_printf(arena,
                     "version: 1\nname: two\ndevice_types:\n  - {name: g, device: %s%s}\n"
                     "nodes:\n  - {name: a, devices: [{type: g, count: 2}]}\n"
                     "links:\n  - {name: bus, between: [a], bandwidth: 100 GB/s, latency: 1 us}\n",
                     device, more);
    struct node *root;
    struct cluster c;
    ck_assert_msg(document_parse(arena, "two", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(cluster_parse(arena, root, &c, &err) == OK, "%s", err.text);
    ck_assert_msg(team_complete(&c, &err) == OK, "%s", err.text);
    return c;
}

/* A pipeline of two stages on the two devices of the cluster; 0 and err where there is no cost. length: tokens of a sequence. */
static int64_t iteration_ns(const struct cluster *c, enum dtype precision, int64_t features,
                            int64_t length)
{
    struct plan p = plans_new(arena, TINY_GPT2, 2, 2);
    p.job.model.hidden = features, p.job.model.head_dim = features / p.job.model.heads;
    p.job.model.intermediate = 4 * features, p.job.model.max_positions = length;
    p.job.precision = precision, p.job.sequence_length = length;
    p.cluster = *c;
    plans_replica(arena, &p, 2, 2, (const int32_t[]){2, plans_layers(arena, &p) - 1});
    struct lower_options o = {0};
    struct program x;
    struct profile profile;
    struct sim_result r;
    struct sim_options once = {0};
    ck_assert_msg(team_fused(arena, c, &o, &err) == OK, "%s", err.text);
    ck_assert_msg(lower_plan(arena, &p, &o, &x, &err) == OK, "%s: %s", c->types[0].catalogue,
                  err.text);
    ck_assert_msg(profile_prior(arena, c, &profile, &err) == OK, "%s", err.text);
    struct cost *k = cost_new(arena, &profile, c);
    enum status st = sim_run(arena, &x, k, &once, &r, &err);
    return st == OK ? r.iteration_ns : 0;
}

START_TEST(every_device_plans_a_job)
{
    int32_t n_half = 0;
    for (int32_t i = 0; i < catalogue_count(); i++) {
        const char *id = catalogue_at(i)->id;
        struct cluster c = read_cluster(id, "");
        static const enum dtype all[] = {DTYPE_fp32, DTYPE_bf16, DTYPE_fp16};
        for (size_t k = 0; k < 3; k++) {
            bool has = catalogue_peak_flops(catalogue_at(i), all[k]) > 0;
            if (!has) continue;
            ck_assert_msg(team_precision(&c, all[k], &err) == OK, "%s: %s", id, err.text);
            ck_assert_msg(iteration_ns(&c, all[k], 32, 8) > 0, "%s %s: %s", id, dtype_name(all[k]),
                          err.text);
            n_half += k > 0;
        }
    }
    ck_assert_int_gt(n_half, catalogue_count());
}
END_TEST

/* 4096 features and positions: products dominate. */
START_TEST(twice_the_peak_is_about_half_the_time)
{
    struct cluster one = read_cluster("RTX-A6000", ", peak: {bf16: 100 TFLOP/s}"),
                   two = read_cluster("RTX-A6000", ", peak: {bf16: 200 TFLOP/s}"),
                   other = read_cluster("RTX-A6000", ", peak: {fp32: 1 TFLOP/s}"),
                   none = read_cluster("RTX-A6000", "");
    double a = (double)iteration_ns(&one, DTYPE_bf16, 4096, 4096),
           b = (double)iteration_ns(&two, DTYPE_bf16, 4096, 4096);
    ck_assert_msg(b < 0.6 * a && b > 0.45 * a, "%g and %g", a, b);
    ck_assert_double_eq_tol((double)iteration_ns(&none, DTYPE_bf16, 4096, 4096), a * 100 / 154.85,
                            0.1 * a); /* the catalogue's */
    ck_assert_int_eq(iteration_ns(&other, DTYPE_bf16, 4096, 4096),
                     iteration_ns(&none, DTYPE_bf16, 4096, 4096));
}
END_TEST

/* A long update on few tokens is bound by memory. */
START_TEST(a_stated_memory_bandwidth_is_used)
{
    struct cluster one = read_cluster("RTX-A6000", ", memory_bandwidth: 400 GB/s"),
                   two = read_cluster("RTX-A6000", ", memory_bandwidth: 800 GB/s");
    double a = (double)iteration_ns(&one, DTYPE_fp32, 4096, 1),
           b = (double)iteration_ns(&two, DTYPE_fp32, 4096, 1);
    ck_assert_msg(b < 0.6 * a && b > 0.45 * a, "%g and %g", a, b);
}
END_TEST

START_TEST(power_is_stated_or_the_catalogues)
{
    struct cluster c = read_cluster("RTX-A6000", "");
    ck_assert_double_eq(c.types[0].power_w, 300);
    ck_assert_double_eq(c.types[0].stated.power_w, 0);
    ck_assert_double_eq(c.types[0].list_price_per_h, 0.82);
    ck_assert_double_eq(c.types[0].price_per_h, 0);
    c = read_cluster("RTX-A6000", ", power: 250 W, price: 0.5/h");
    ck_assert_double_eq(c.types[0].power_w, 250);
    ck_assert_double_eq(c.types[0].price_per_h, 0.5);
    c = read_cluster("TPU-v5e", ""); /* Google states none */
    ck_assert_double_eq(c.types[0].power_w, 0);
}
END_TEST

START_TEST(a_stated_peak_makes_a_precision_possible)
{
    struct cluster c = read_cluster("TPU-v5e", "");
    ck_assert_int_eq(team_precision(&c, DTYPE_fp16, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "precision fp16: device type 'g' (TPU-v5e) computes in fp32 and "
                               "bf16; `precision: bf16` of the job suits every device type of the "
                               "cluster, and `peak:` of the type may state another");
    c = read_cluster("TPU-v5e", ", peak: {fp16: 90 TFLOP/s}");
    ck_assert_int_eq(team_precision(&c, DTYPE_fp16, &err), OK);
    ck_assert(iteration_ns(&c, DTYPE_fp16, 32, 8) > 0);
    ck_assert_double_eq(team_peak_flops(&c.types[0], DTYPE_fp16), 90e12);
    ck_assert_double_eq(team_peak_flops(&c.types[0], DTYPE_bf16), 197e12);
}
END_TEST

START_TEST(a_peak_that_the_hardware_lacks_is_refused)
{
    struct cluster c = read_cluster("V100-SXM2-16", "");
    c.types[0].stated.peak_flops[DEVICE_PEAK_bf16] = 1e12;
    ck_assert_int_eq(team_complete(&c, &err), ERR_INPUT);
    ck_assert_str_eq(err.text, "device type 'g': a peak of bf16 is stated, but V100-SXM2-16 has "
                               "none (compute capability 7.0; from 8.0 on)");
}
END_TEST

Suite *devices_suite(void)
{
    Suite *s = suite_create("devices");
    TCase *t = tcase_create("devices");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, every_device_plans_a_job);
    tcase_add_test(t, twice_the_peak_is_about_half_the_time);
    tcase_add_test(t, a_stated_memory_bandwidth_is_used);
    tcase_add_test(t, power_is_stated_or_the_catalogues);
    tcase_add_test(t, a_stated_peak_makes_a_precision_possible);
    tcase_add_test(t, a_peak_that_the_hardware_lacks_is_refused);
    suite_add_tcase(s, t);
    return s;
}
