/* Calibration on made-up runs: medians, factors, links and pace worked by hand. */
#include "profiles/calibrate.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tests/support/suites.h"

#include <math.h>

static struct arena *a;
static struct error err;
static struct device_type types[] = {{.name = "fast", .catalogue = "host", .slowdown = 1},
                                     {.name = "slow", .catalogue = "host", .slowdown = 4}};
static struct link links[] = {
    {.name = "lan", .bandwidth_Bps = 1e9, .latency_s = 1e-5, .stated = true}};
static struct cluster cluster;
static struct op_row rows[] = {
    {.base = "host",
     .key = 1,
     .kind = OP_matmul,
     .seconds = 100e-6,
     .flops = 5,
     .bytes = 6,
     .text = "matmul one",
     .dtype = DTYPE_fp64},
    {.base = "host", .key = 2, .kind = OP_matmul, .seconds = 200e-6, .flops = 7},
    {.base = "host", .key = 8, .kind = OP_matmul, .seconds = 1e-6},
    {.base = "host", .key = 3, .kind = OP_add, .seconds = 10e-6},
    {.base = "host", .key = 9, .kind = OP_gelu, .seconds = 7e-6}};
static struct profile parent;

static void set_up(void)
{
    a = arena_new();
    cluster = (struct cluster){.name = "team",
                               .emulated = true,
                               .n_types = 2,
                               .types = types,
                               .n_links = 1,
                               .links = links};
    parent = (struct profile){.id = 4,
                              .parent = 3,
                              .cluster = "team",
                              .machine = "m",
                              .note = "n",
                              .calibrated_on = "",
                              .pace = 1,
                              .n_ops = 5,
                              .ops = rows};
}

static void tear_down(void) { arena_free(a); }

/* Device 0 is fast, device 1 slow. */
static struct trace *a_run(const char *plan, bool emulated, int64_t iteration_ns)
{
    static struct program_device emulated_[] = {{.name = "a.0", .type = "fast", .slowdown = 1},
                                                {.name = "a.1", .type = "slow", .slowdown = 4}};
    static struct program_device real[] = {{.name = "a.0", .type = "fast"},
                                           {.name = "a.1", .type = "slow"}};
    struct program p = {.name = plan,
                        .emulated = emulated,
                        .n_devices = 2,
                        .devices = emulated ? emulated_ : real,
                        .n_stages = 2};
    struct trace *t = trace_new(a, "host", &p);
    t->iteration_ns = iteration_ns;
    return t;
}

static void add(struct trace *t, int32_t device, const char *kind, uint64_t key, int32_t step,
                int64_t ns)
{
    int64_t begin = (int64_t)t->n_spans * 1000000;
    trace_add(t, (struct span){.kind = SPAN_COMPUTE,
                               .device = device,
                               .peer = -1,
                               .stage = device,
                               .phase = PHASE_F,
                               .step = step,
                               .begin_ns = begin,
                               .end_ns = begin + ns,
                               .key = key,
                               .bytes = 77,
                               .name = kind});
}

struct prediction {
    int64_t parent_ns, next_ns; /* of pace 1 */
    int calls;
};
static enum status predict(void *user, size_t run, const struct profile *p, int64_t *ns,
                           struct error *e)
{
    struct prediction *x = user;
    (void)run;
    (void)e;
    x->calls++;
    *ns = p->id == 4 ? x->parent_ns : (int64_t)((double)x->next_ns * p->pace + 0.5);
    return OK;
}

static const struct factor_row *factor(const struct profile *p, const char *type, int32_t kind)
{
    for (size_t i = 0; i < p->n_factors; i++)
        if (p->factors[i].kind == kind && !strcmp(p->factors[i].type, type)) return &p->factors[i];
    return NULL;
}

static void assert_factor(const struct profile *p, const char *type, int32_t kind, double value,
                          int samples)
{
    const struct factor_row *f = factor(p, type, kind);
    ck_assert_msg(f != NULL, "%s %d", type, (int)kind);
    ck_assert_double_eq_tol(f->factor, value, 1e-9);
    ck_assert_int_eq(f->samples, samples);
}

/* Five steps of key 1 (120 us) and 2 (280 us) on fast, key 1 (4 · 150 us) and 3 (4 · 20 us) on slow; step 0 is ten
 * times as slow. */
static struct trace *the_run(void)
{
    struct trace *t = a_run("plan", true, 1200);
    for (int32_t step = 0; step < 5; step++) {
        int64_t warm = step ? 1 : 10;
        add(t, 0, "matmul", 1, step, 120000 * warm);
        add(t, 0, "matmul", 2, step, 280000 * warm);
        add(t, 1, "matmul", 1, step, 600000 * warm);
        add(t, 1, "add", 3, step, 80000 * warm);
    }
    return t;
}

static struct calibration calibrated(struct trace *t, struct prediction *x, bool force)
{
    struct calibration c;
    ck_assert_msg(calibrate(a, &parent, &cluster, &t, 1, force, predict, x, &c, &err) == OK, "%s",
                  err.text);
    return c;
}

START_TEST(each_type_gets_the_median_of_its_own_spans)
{
    struct prediction x = {900, 1000, 0};
    struct calibration c = calibrated(the_run(), &x, false);
    const struct op_row *row = profile_row(&c.next, "type:fast", 1);
    ck_assert_ptr_nonnull(row);
    ck_assert_double_eq_tol(row->seconds, 120e-6, 1e-15);
    ck_assert_int_eq(row->samples, 4); /* the first of five steps warms up */
    ck_assert_double_eq(row->spread, 0);
    ck_assert_double_eq(row->flops, 5);
    ck_assert_int_eq(row->dtype, DTYPE_fp64);
    ck_assert_str_eq(row->text, "matmul one");
    ck_assert_str_eq(row->provenance, "run:plan (1200 ns)");
    ck_assert_double_eq_tol(profile_row(&c.next, "type:slow", 1)->seconds, 150e-6, 1e-15);
    ck_assert_ptr_null(profile_row(&c.next, "type:slow", 2));
    ck_assert_ptr_nonnull(profile_row(&c.next, "host", 9)); /* the parent's rows stay */
    ck_assert_uint_eq(c.next.n_ops, 9);
    ck_assert_int_eq(c.spans_used, 16);
    ck_assert_int_eq(c.spans_dropped, 0);
    ck_assert_int_eq(c.next.id, 0);
    ck_assert_int_eq(c.next.parent, 4);
    ck_assert_str_eq(c.next.calibrated_on, "plan (1200 ns)");
}
END_TEST

START_TEST(an_operator_on_experts_costs_a_type_no_less_for_the_layers_that_it_had)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *t = the_run();
    /* at slowdown 1: 30, 50 us and then 10 us, 10 us on fast; 100 us on slow, thrice */
    const int64_t us[] = {30, 50, 10, 10};
    for (int32_t i = 0; i < 4; i++) add(t, 0, "expert_matmul", 12, i % 2 + 1, us[i] * 1000);
    for (int32_t i = 0; i < 3; i++) add(t, 1, "expert_matmul", 12, i + 1, 4 * 100000);
    struct calibration c = calibrated(t, &x, false);
    ck_assert_double_eq_tol(profile_row(&c.next, "type:fast", 12)->seconds, 400e-6 / 7, 1e-15);
    ck_assert_double_eq_tol(profile_row(&c.next, "type:slow", 12)->seconds, 400e-6 / 7, 1e-15);
    ck_assert_int_eq(profile_row(&c.next, "type:slow", 12)->samples, 3);
    /* others' stay their own */
    ck_assert_double_eq_tol(profile_row(&c.next, "type:slow", 1)->seconds, 150e-6, 1e-15);
}
END_TEST

/* fast matmul: 1.2 and 1.4; slow matmul: 1.5; slow add: 2. */
START_TEST(factors_are_medians_over_keys_of_run_to_base)
{
    struct prediction x = {900, 1000, 0};
    struct calibration c = calibrated(the_run(), &x, false);
    assert_factor(&c.next, "fast", OP_matmul, 1.3, 2);
    assert_factor(&c.next, "slow", OP_matmul, 1.5, 1);
    assert_factor(&c.next, "slow", OP_add, 2, 1);
    assert_factor(&c.next, "*", OP_matmul, 1.4, 3);
    assert_factor(&c.next, "fast", -1, 1.3, 2);
    assert_factor(&c.next, "slow", -1, 1.75, 2);
    assert_factor(&c.next, "*", -1, 1.45, 4);
    ck_assert_ptr_null(factor(&c.next, "fast", OP_add));
    ck_assert_uint_eq(c.next.n_factors, 8); /* and "*" add */
}
END_TEST

/* measured 1200: the parent says 900 (25 % off), next says 1000: pace 1.2, nothing left. */
/* An empty shard of a product, 1 us by itself, twenty times as long when other ranks disturb it. */
START_TEST(an_operator_without_work_teaches_no_factor)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *t = the_run();
    for (int32_t step = 0; step < 5; step++) add(t, 0, "matmul", 8, step, 20000);
    struct profile with = calibrated(t, &x, false).next,
                   without = calibrated(the_run(), &x, false).next;
    ck_assert_uint_eq(with.n_factors, without.n_factors);
    for (size_t i = 0; i < with.n_factors; i++)
        ck_assert_double_eq(with.factors[i].factor, without.factors[i].factor);
    ck_assert_double_eq_tol(profile_row(&with, "type:fast", 8)->seconds, 20e-6, 1e-12);
}
END_TEST

START_TEST(pace_is_what_operators_do_not_explain)
{
    struct prediction x = {900, 1000, 0};
    struct calibration c = calibrated(the_run(), &x, false);
    ck_assert_double_eq_tol(c.error_before, 0.25, 1e-12);
    ck_assert_double_eq_tol(c.next.pace, 1.2, 1e-12);
    ck_assert_double_eq_tol(c.error_after, 0, 1e-12);
    x = (struct prediction){900, 100, 0};
    c = calibrated(the_run(), &x, false);
    ck_assert_double_eq(c.next.pace, 2); /* 12 is no pace */
    ck_assert_double_eq_tol(c.error_after, 1 - 200.0 / 1200, 1e-12);
}
END_TEST

START_TEST(calibrating_again_on_the_same_run_changes_nothing)
{
    struct prediction x = {900, 1000, 0};
    struct trace *t = the_run();
    struct calibration c = calibrated(t, &x, false), d;
    c.next.id = 5;
    ck_assert_int_eq(calibrate(a, &c.next, &cluster, &t, 1, false, predict, &x, &d, &err), OK);
    ck_assert_uint_eq(d.next.n_ops, c.next.n_ops);
    ck_assert_uint_eq(d.next.n_factors, c.next.n_factors);
    for (size_t i = 0; i < c.next.n_ops; i++) {
        ck_assert_str_eq(c.next.ops[i].base, d.next.ops[i].base);
        ck_assert_double_eq(c.next.ops[i].seconds, d.next.ops[i].seconds);
        ck_assert_str_eq(c.next.ops[i].text ? c.next.ops[i].text : "",
                         d.next.ops[i].text ? d.next.ops[i].text : "");
    }
    for (size_t i = 0; i < c.next.n_factors; i++)
        ck_assert_double_eq(c.next.factors[i].factor, d.next.factors[i].factor);
    ck_assert_double_eq(c.next.pace, d.next.pace);
    ck_assert_uint_eq(parent.n_ops, 5); /* the parent is as it was */
}
END_TEST

START_TEST(poisoned_spans_are_dropped_and_counted)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *t = the_run();
    add(t, 0, "matmul", 1, 3, 0);
    add(t, 0, "polka", 1, 3, 5);
    trace_add(t, (struct span){.kind = SPAN_COMPUTE,
                               .device = 0,
                               .step = 3,
                               .begin_ns = 10,
                               .end_ns = 5,
                               .key = 1,
                               .name = "matmul"});
    add(t, 0, "gelu", 50, 3, 5000); /* two samples make no row */
    add(t, 0, "gelu", 50, 3, 5000);
    struct calibration c = calibrated(t, &x, false);
    ck_assert_int_eq(c.spans_dropped, 3);
    ck_assert_int_eq(c.spans_used, 16);
    ck_assert_ptr_null(profile_row(&c.next, "type:fast", 50));
}
END_TEST

START_TEST(unevenness_of_experts_is_the_root_of_the_mean_over_counted_calls)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *t = the_run();
    ck_assert_uint_eq(calibrated(t, &x, false).next.n_routings, 0);
    for (int32_t step = 0; step < 3; step++) {
        add(t, 0, "gating", 11, step, 5000);
        t->spans[t->n_spans - 1].uneven_ppm = step == 0 ? 9000000 : step == 1 ? 1000000 : 4000000;
    }
    struct calibration c = calibrated(t, &x, false);
    ck_assert_uint_eq(c.next.n_routings, 1);
    ck_assert_double_eq_tol(c.next.routings[0].spread, sqrt(2.5), 1e-12);
    ck_assert_int_eq(c.next.routings[0].samples, 2);
    /* a run without usable spans changes nothing */
    struct profile known = parent;
    parent.n_routings = 1, parent.routings = c.next.routings;
    c = calibrated(the_run(), &x, false);
    parent = known;
    ck_assert_uint_eq(c.next.n_routings, 1);
    ck_assert_double_eq_tol(c.next.routings[0].spread, sqrt(2.5), 1e-12);
}
END_TEST

START_TEST(a_factor_beyond_belief_must_be_forced)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *t = a_run("odd", true, 1000);
    struct calibration c;
    for (int32_t step = 0; step < 5; step++) add(t, 0, "add", 3, step, 200000);
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, predict, &x, &c, &err),
                     ERR_INPUT);
    ck_assert_msg(strstr(err.text, "add") && strstr(err.text, "20 times") &&
                      strstr(err.text, "profile 4"),
                  "%s", err.text);
    c = calibrated(t, &x, true);
    assert_factor(&c.next, "fast", OP_add, 20, 1);
}
END_TEST

/* 4 × 200 us of an addition that was profiled at 10 us, beside 4 × n × 120 us of products. */
static struct trace *a_run_with_an_odd_addition(int n)
{
    struct trace *t = a_run("odd", true, 1000);
    for (int32_t step = 0; step < 5; step++) {
        add(t, 0, "add", 3, step, 200000);
        for (int i = 0; i < n; i++) add(t, 0, "matmul", 1, step, 120000);
    }
    return t;
}

START_TEST(a_kind_that_hardly_takes_time_teaches_no_factor_beyond_belief)
{
    struct prediction x = {1000, 1000, 0};
    struct calibration c = calibrated(a_run_with_an_odd_addition(200), &x, false); /* 0.83 % */
    ck_assert_int_eq(c.n_kinds_left_out, 1);
    ck_assert_ptr_null(factor(&c.next, "fast", OP_add));
    ck_assert_ptr_null(factor(&c.next, "*", OP_add));
    ck_assert(c.n_rows_left_out == 1 && !profile_row(&c.next, "type:fast", 3)); /* 20 times its base */
    assert_factor(&c.next, "fast", OP_matmul, 1.2, 1);
    struct trace *t = a_run_with_an_odd_addition(150); /* 1.1 % */
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, predict, &x, &c, &err),
                     ERR_INPUT);
    c = calibrated(t, &x, true);
    assert_factor(&c.next, "fast", OP_add, 20, 1);
}
END_TEST

START_TEST(one_step_alone_counts_and_of_two_the_second)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *t = a_run("short", true, 1000);
    for (int32_t i = 0; i < 4; i++) add(t, 0, "add", 3, 0, 90000 + i);
    struct calibration c = calibrated(t, &x, false);
    ck_assert_int_eq(profile_row(&c.next, "type:fast", 3)->samples, 4);
    for (int32_t i = 0; i < 5; i++) add(t, 0, "add", 3, 1, 10000 + i);
    c = calibrated(t, &x, false);
    ck_assert_int_eq(profile_row(&c.next, "type:fast", 3)->samples, 5);
    ck_assert_double_eq_tol(profile_row(&c.next, "type:fast", 3)->seconds, 10002e-9, 1e-15);
}
END_TEST

START_TEST(an_operator_that_nobody_profiled_gets_a_row_too)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *t = a_run("new", true, 1000);
    for (int32_t step = 0; step < 4; step++) add(t, 1, "silu", 77, step, 40000);
    struct calibration c = calibrated(t, &x, false);
    const struct op_row *row = profile_row(&c.next, "type:slow", 77);
    ck_assert_double_eq_tol(row->seconds, 10e-6, 1e-15);
    ck_assert_str_eq(row->text, "silu");
    ck_assert_double_eq(row->bytes, 77);
    ck_assert_uint_eq(c.next.n_factors, 0); /* no reference row */
}
END_TEST

/* 2 us + bytes / 4 GB/s */
static void add_sends(struct trace *t, int32_t step)
{
    for (int32_t i = 0; i < 8; i++) {
        int64_t bytes = 4000 << i % 4;
        trace_add(t, (struct span){.kind = SPAN_SEND,
                                   .stream = STREAM_send,
                                   .device = 0,
                                   .peer = 1,
                                   .phase = PHASE_F,
                                   .step = step,
                                   .op = i,
                                   .end_ns = (2000 + bytes / 4) * (step ? 1 : 50),
                                   .bytes = bytes,
                                   .name = "lan"});
    }
}

START_TEST(links_are_fitted_from_real_traffic_only)
{
    struct prediction x = {1000, 1000, 0};
    struct link_row stated = {"lan", {1e-5, 1e9, 0, 0, 1, SOURCE_MEASURED, 0, {{0, 0}}}};
    parent.links = &stated;
    parent.n_links = 1;
    for (int emulated = 0; emulated < 2; emulated++) {
        struct trace *t = a_run("wire", emulated, 1000);
        for (int32_t step = 0; step < 4; step++) add_sends(t, step);
        cluster.emulated = emulated;
        struct calibration c = calibrated(t, &x, false);
        const struct link_model *m = &c.next.links[0].model;
        ck_assert_uint_eq(c.next.n_links, 1);
        ck_assert_double_eq_tol(m->latency_s, emulated ? 1e-5 : 2e-6, 1e-9);
        ck_assert_double_eq_tol(m->bandwidth_Bps, emulated ? 1e9 : 4e9, 1e5);
        ck_assert_int_eq(c.spans_used, emulated ? 0 : 24);
    }
    ck_assert_double_eq(stated.model.bandwidth_Bps, 1e9);
}
END_TEST

/* Half of the iteration is messages, which no pace scales. */
static enum status predict_half(void *user, size_t run, const struct profile *p, int64_t *ns,
                                struct error *e)
{
    (void)user, (void)run, (void)e;
    *ns = 500000 + (int64_t)(500000 * p->pace + 0.5);
    return OK;
}

START_TEST(the_pace_is_sought_where_messages_do_not_scale)
{
    struct trace *t = a_run("p", true, 1200000);
    struct calibration c;
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, predict_half, NULL, &c, &err),
                     OK);
    ck_assert_double_eq_tol(c.next.pace, 1.4, 1e-3);
    ck_assert_double_eq_tol(c.error_after, 0, 1e-3);
}
END_TEST

START_TEST(errors_are_medians_over_runs)
{
    struct prediction x = {1000, 1000, 0};
    struct trace *runs[] = {a_run("p", true, 1000), a_run("p", true, 2000), a_run("q", true, 1250)};
    struct calibration c;
    ck_assert_int_eq(calibrate(a, &parent, &cluster, runs, 3, false, predict, &x, &c, &err), OK);
    ck_assert_double_eq_tol(c.error_before, 0.2, 1e-12); /* 0, 0.5, 0.2 */
    ck_assert_double_eq_tol(c.next.pace, 1.25, 1e-12);
    ck_assert_double_eq_tol(c.error_after, 0.25, 1e-12); /* 0.25, 0.375, 0 */
    ck_assert_str_eq(c.next.calibrated_on, "p (1000 ns), p (2000 ns), q (1250 ns)");
    /* q with the pace of p, 1.5: 0.2; p with the pace of q, 1.25: 0.25 and 0.375 */
    ck_assert_double_eq_tol(c.error_after_held_out, 0.25, 1e-12);
    ck_assert_uint_eq(c.n_seen_before, 0);
    ck_assert_int_eq(calibrate(a, &parent, &cluster, runs, 2, false, predict, &x, &c, &err), OK);
    ck_assert(isnan(c.error_after_held_out)); /* one plan */
    parent.calibrated_on = "q (1250 ns), p (2000 ns)";
    ck_assert_int_eq(calibrate(a, &parent, &cluster, runs, 3, false, predict, &x, &c, &err), OK);
    ck_assert_uint_eq(c.n_seen_before, 2);
}
END_TEST

static enum status refuse(void *user, size_t run, const struct profile *p, int64_t *ns,
                          struct error *e)
{
    (void)user, (void)run, (void)p, (void)ns;
    return error_set(e, ERR_INFEASIBLE, "does not fit");
}

START_TEST(what_makes_no_sense_is_refused)
{
    struct prediction x = {1000, 1000, 0};
    struct calibration c;
    struct trace *t = a_run("p", true, 0);
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 0, false, predict, &x, &c, &err),
                     ERR_INPUT);
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, predict, &x, &c, &err),
                     ERR_INPUT);
    ck_assert(strstr(err.text, "no complete step"));
    t->iteration_ns = 5;
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, refuse, &x, &c, &err),
                     ERR_INFEASIBLE);
    cluster.n_types = 1;
    ck_assert_int_eq(calibrate(a, &parent, &cluster, &t, 1, false, predict, &x, &c, &err),
                     ERR_INPUT);
    ck_assert(strstr(err.text, "type slow"));
}
END_TEST

Suite *calibrate_suite(void)
{
    Suite *s = suite_create("calibrate");
    TCase *c = tcase_create("calibrate");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, each_type_gets_the_median_of_its_own_spans);
    tcase_add_test(c, factors_are_medians_over_keys_of_run_to_base);
    tcase_add_test(c, an_operator_without_work_teaches_no_factor);
    tcase_add_test(c, pace_is_what_operators_do_not_explain);
    tcase_add_test(c, calibrating_again_on_the_same_run_changes_nothing);
    tcase_add_test(c, poisoned_spans_are_dropped_and_counted);
    tcase_add_test(c, an_operator_on_experts_costs_a_type_no_less_for_the_layers_that_it_had);
    tcase_add_test(c, unevenness_of_experts_is_the_root_of_the_mean_over_counted_calls);
    tcase_add_test(c, a_factor_beyond_belief_must_be_forced);
    tcase_add_test(c, a_kind_that_hardly_takes_time_teaches_no_factor_beyond_belief);
    tcase_add_test(c, one_step_alone_counts_and_of_two_the_second);
    tcase_add_test(c, an_operator_that_nobody_profiled_gets_a_row_too);
    tcase_add_test(c, links_are_fitted_from_real_traffic_only);
    tcase_add_test(c, the_pace_is_sought_where_messages_do_not_scale);
    tcase_add_test(c, errors_are_medians_over_runs);
    tcase_add_test(c, what_makes_no_sense_is_refused);
    suite_add_tcase(s, c);
    return s;
}
