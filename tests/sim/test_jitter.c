#include "sim/jitter.h"

#include "core/base/rng.h"
#include "tests/support/pipelines.h"

#include <math.h>

static struct arena *arena;
static struct error err;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

/* --- the law --- */

static double density(double z) { return exp(-z * z / 2) / sqrt(2 * 3.141592653589793); }

/* ∫ g(z) φ(z) dz by the trapezoid rule, exact to many digits for functions this smooth. */
static double expect(double (*g)(double cv, double z, double mean), double cv, double mean)
{
    double sum = 0, step = 1.0 / 256;
    for (int i = -3072; i <= 3072; i++) sum += g(cv, i * step, mean) * density(i * step);
    return sum * step;
}
static double first(double cv, double z, double mean)
{
    (void)mean;
    return jitter_factor(cv, z);
}
static double second(double cv, double z, double mean)
{
    return pow(jitter_factor(cv, z) - mean, 2);
}

static double even(double cv, double z, double mean)
{
    (void)mean;
    return jitter_even_factor(cv, z);
}
static double even_square(double cv, double z, double mean)
{
    return pow(jitter_even_factor(cv, z) - mean, 2);
}

START_TEST(every_cv_keeps_the_mean_and_is_the_cv)
{
    const double cvs[] = {0.001, 0.024, 0.13, 0.4, 0.658, 0.66, 1, 1.5};
    for (size_t i = 0; i < sizeof cvs / sizeof *cvs; i++) {
        double mean = expect(first, cvs[i], 0);
        ck_assert_double_eq_tol(mean, 1, 1e-9);
        ck_assert_double_eq_tol(sqrt(expect(second, cvs[i], mean)), cvs[i], 1e-6);
    }
    for (double cv = 0.01; cv < 2; cv *= 2) {
        double mean = expect(even, cv, 0);
        ck_assert_double_eq_tol(mean, 1, 1e-9);
        ck_assert_double_eq_tol(sqrt(expect(even_square, cv, mean)), cv, 1e-5);
    }
    ck_assert_double_eq(jitter_factor(0, 3), 1);
    ck_assert_double_eq(jitter_even_factor(0, 3), 1);
}
END_TEST

START_TEST(no_operator_is_faster_than_the_floor)
{
    for (double cv = 0.01; cv < 0.6; cv += 0.05)
        ck_assert_double_ge(jitter_factor(cv, -40), 1 - 1.52 * cv);
    ck_assert_double_ge(jitter_factor(0.9, -40), 0);
}
END_TEST

/* p50, p95, p99 in microseconds of the job "SE": ByteDance-Seed/StragglerAnalysis, data/timeline-SE.json.gz (Apache-2.0),
 * 2,880 samples of each kind. */
START_TEST(the_tail_is_nearer_to_published_ones_than_a_normal_law_s)
{
    const double published[][3] = {{15258.8, 15910.4, 16473.5},  /* params-all-gather */
                                   {561.7, 612.3, 668.5},        /* optimizer */
                                   {80837.0, 84654.1, 87021.1}}; /* embedding-grads-all-reduce */
    const double z95 = 1.6448536, z99 = 2.3263479, normal = z99 / z95;
    double cv = 0.04, x50 = jitter_factor(cv, 0);
    double law = (jitter_factor(cv, z99) - x50) / (jitter_factor(cv, z95) - x50);
    for (int i = 0; i < 3; i++) {
        const double *q = published[i];
        double tail = (q[2] - q[0]) / (q[1] - q[0]);
        ck_assert_double_lt(fabs(tail - law), fabs(tail - normal));
    }
}
END_TEST

START_TEST(a_spread_becomes_the_cv_of_the_law_that_shows_it)
{
    const int n = 20001;
    double *x = ARENA_ARRAY(arena, double, n), *away = ARENA_ARRAY(arena, double, n);
    for (int i = 0; i < n;
         i++) { /* quantiles of the law by inversion of the normal's: Newton on erfc */
        double share = (i + 0.5) / n, z = 0;
        for (int k = 0; k < 60; k++) {
            double off = 0.5 * erfc(-z / sqrt(2)) - share;
            z -= fmax(-1, fmin(1, off / fmax(density(z), 1e-6)));
        }
        x[i] = jitter_factor(0.02, z);
    }
    double median = x[n / 2];
    for (int i = 0; i < n; i++) away[i] = fabs(x[i] - median);
    for (int gap = n / 2; gap > 0; gap /= 2) /* Shell sort */
        for (int i = gap; i < n; i++)
            for (int k = i; k >= gap && away[k] < away[k - gap]; k -= gap) {
                double swap = away[k];
                away[k] = away[k - gap], away[k - gap] = swap;
            }
    double spread = 1.4826 * away[n / 2] / median;
    ck_assert_double_eq_tol(jitter_cv_of_spread(spread), 0.02, 0.0002);
    ck_assert_double_eq(jitter_cv_of_spread(0), 0);
}
END_TEST

/* --- draws --- */

static const struct jitter *sample_of(const struct pipes_made *m, const struct jitter_model *x,
                                      uint64_t seed, int64_t sample)
{
    struct jitter *j = NULL;
    ck_assert_msg(jitter_new(arena, &m->program, &m->profile, &m->cluster, x, seed, &j, &err) == OK,
                  "%s", err.text);
    return jitter_sample(arena, j, sample);
}

static struct pipes three_stages(void)
{
    struct pipes in = {.n_stages = 3, .microbatches = 8, .ops = 16};
    for (int s = 0; s < 3; s++) {
        in.forward_ns[s] = 16 * PIPES_MS, in.backward_ns[s] = 32 * PIPES_MS;
        in.update_ns[s] = 4 * PIPES_MS, in.transfer_ns[s] = PIPES_MS;
    }
    return in;
}

START_TEST(draws_depend_on_what_runs_and_on_nothing_else)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.types[0].own_cv[OP_add] = 0.1;
    const struct jitter *j = sample_of(m, &x, 5, 0), *again = sample_of(m, &x, 5, 0),
                        *next = sample_of(m, &x, 5, 1), *other = sample_of(m, &x, 6, 0);
    int64_t ns = 1000000000, a = jitter_op_ns(j, 1, 2, 0, 0, 3, 4, ns);
    ck_assert_int_ne(a, ns);
    ck_assert_int_ne(jitter_op_ns(j, 0, 2, 0, 0, 3, 4, ns), a);
    ck_assert_int_ne(jitter_op_ns(j, 1, 1, 0, 0, 3, 4, ns), a);
    ck_assert_int_ne(jitter_op_ns(j, 1, 2, 0, 1, 3, 4, ns), a);
    ck_assert_int_ne(jitter_op_ns(j, 1, 2, 0, 0, 2, 4, ns), a);
    ck_assert_int_ne(jitter_op_ns(j, 1, 2, 0, 0, 3, 5, ns), a);
    ck_assert_int_ne(jitter_op_ns(next, 1, 2, 0, 0, 3, 4, ns), a);
    ck_assert_int_ne(jitter_op_ns(other, 1, 2, 0, 0, 3, 4, ns), a);
    ck_assert_int_eq(jitter_op_ns(again, 1, 2, 0, 0, 3, 4, ns), a);
}
END_TEST

START_TEST(operators_of_a_call_share_its_factor)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.types[0].call_cv = 0.1;
    const struct jitter *j = sample_of(m, &x, 1, 0);
    int64_t ns = 1000000000;
    ck_assert_int_eq(jitter_op_ns(j, 0, 0, 0, 0, 0, 0, ns), jitter_op_ns(j, 0, 0, 0, 0, 0, 7, ns));
    ck_assert_int_ne(jitter_op_ns(j, 0, 0, 0, 0, 0, 0, ns), jitter_op_ns(j, 0, 0, 0, 0, 1, 0, ns));
}
END_TEST

START_TEST(drawn_numbers_have_the_mean_and_the_cv)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.link_cv[0] = 0.2;
    const struct jitter *j = sample_of(m, &x, 3, 0);
    const int n = suites_long() ? 1000000 : 100000;
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double f = (double)jitter_message_ns(j, 0, i, 1000000000) / 1e9;
        sum += f, squares += f * f;
    }
    double mean = sum / n, cv = sqrt(squares / n - mean * mean) / mean;
    ck_assert_double_eq_tol(mean, 1, 4 * 0.2 / sqrt(n));
    ck_assert_double_eq_tol(cv, 0.2,
                            0.004); /* kurtosis 10: standard error 0.2 sqrt(9 / 4n) = 0.001 */
    ck_assert_int_eq(jitter_message_ns(j, 2, 5, 12345), 12345); /* link 1 has none */
}
END_TEST

START_TEST(an_unknown_cost_is_wrong_alike_all_through_a_sample)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    m->profile.ops[0].spread = 0.1, m->profile.ops[0].samples = 4;
    x.cost_error = true;
    const struct jitter *j = sample_of(m, &x, 1, 0), *next = sample_of(m, &x, 1, 1);
    int64_t ns = 1000000000, a = jitter_op_ns(j, 0, 0, 0, 0, 0, 0, ns);
    ck_assert_int_ne(a, ns);
    ck_assert_int_eq(jitter_op_ns(j, 0, 3, 0, 0, 5, 0, ns), a);
    ck_assert_int_ne(jitter_op_ns(next, 0, 0, 0, 0, 0, 0, ns), a);
    x.cost_error = false;
    x.model_error = 0.1;
    j = sample_of(m, &x, 1, 0);
    ck_assert_int_eq(jitter_op_ns(j, 0, 3, 0, 0, 5, 0, ns), jitter_op_ns(j, 2, 0, 0, 1, 0, 7, ns));
    ck_assert_int_ne(jitter_op_ns(j, 0, 3, 0, 0, 5, 0, ns), ns);
    x.model_error = 0;
    ck_assert_int_eq(jitter_op_ns(sample_of(m, &x, 1, 0), 0, 0, 0, 0, 0, 0, ns), ns);
}
END_TEST

/* --- in the engine --- */

static struct sim_result run_with(struct pipes_made *m, const struct jitter *j, int32_t steps,
                                  bool trace)
{
    struct sim_options o = {.steps = steps, .keep_trace = trace, .jitter = j};
    struct sim_result r = {0};
    ck_assert_msg(sim_run(arena, &m->program, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

START_TEST(no_jitter_changes_nothing)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    struct sim_result plain = pipes_run(m, 0, false),
                      with = run_with(m, sample_of(m, &x, 1, 0), 0, false);
    ck_assert_int_eq(plain.iteration_ns, with.iteration_ns);
    ck_assert_int_eq(plain.makespan_ns, with.makespan_ns);
    ck_assert_int_eq(plain.devices[1].busy_ns, with.devices[1].busy_ns);
}
END_TEST

/* A single lane always agrees with itself; with jitter no step of it may still represent later ones. */
START_TEST(a_single_device_draws_every_step_and_folding_is_not_asked_of_what_differs)
{
    struct pipes in = {
        .n_stages = 1, .microbatches = 4, .forward_ns = {1000}, .backward_ns = {2000}};
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.types[0].call_cv = 0.1, x.start_steps = 2, x.start_factor = 10;
    const struct jitter *j = sample_of(m, &x, 9, 4);
    struct sim_result a = run_with(m, j, 6, false), b = run_with(m, j, 6, true);
    ck_assert_int_eq(a.steps, 6);
    ck_assert_int_eq(a.makespan_ns, b.makespan_ns);
    ck_assert_int_eq(a.iteration_ns, b.iteration_ns);
    ck_assert_int_lt(a.iteration_ns, 20000);

    struct pipes two = in;
    two.n_stages = 3, two.parallel = true, two.elements = 0;
    two.forward_ns[1] = two.forward_ns[2] = 1000, two.backward_ns[1] = two.backward_ns[2] = 2000;
    m = pipes_make(arena, &two);
    x = pipes_quiet(m);
    x.types[0].call_cv = 0.1;
    j = sample_of(m, &x, 9, 4);
    struct sim_options o = {.steps = 3, .jitter = j, .fold = true};
    struct sim_result whole = run_with(m, j, 3, false), folded;
    ck_assert_msg(sim_run(arena, &m->program, m->cost, &o, &folded, &err) == OK, "%s", err.text);
    ck_assert_int_eq(whole.makespan_ns, folded.makespan_ns);
    ck_assert_int_ne(folded.devices[0].busy_ns, folded.devices[1].busy_ns);
}
END_TEST

START_TEST(keeping_a_trace_changes_no_draw_and_busy_is_what_the_spans_say)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.types[0].own_cv[OP_add] = 0.1, x.types[0].call_cv = 0.05, x.link_cv[0] = 0.2;
    const struct jitter *j = sample_of(m, &x, 9, 4);
    struct sim_result a = run_with(m, j, 3, false), b = run_with(m, j, 3, true);
    ck_assert_int_eq(a.makespan_ns, b.makespan_ns);
    ck_assert_int_eq(a.iteration_ns, b.iteration_ns);
    int64_t busy = 0;
    for (size_t i = 0; i < b.trace->n_spans; i++) {
        const struct span *s = &b.trace->spans[i];
        if (s->kind == SPAN_COMPUTE && s->device == 2 &&
            s->step == 1) /* whose duration the iteration is */
            busy += s->end_ns - s->begin_ns;
    }
    ck_assert_int_eq(b.devices[2].busy_ns, busy);
}
END_TEST

/* --- fits --- */

static struct trace *many_steps(struct pipes_made *m, const struct jitter_model *x, int32_t steps,
                                uint64_t seed)
{
    struct trace *t = run_with(m, sample_of(m, x, seed, 0), steps, true).trace;
    t->source = "host";
    return t;
}

START_TEST(a_fit_finds_the_three_levels_that_made_the_spans)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    const double truth[][3] = {{0.03, 0.05, 0.1}, {0, 0.04, 0.08}, {0.05, 0, 0.02}, {0, 0, 0.1}};
    for (size_t i = 0; i < sizeof truth / sizeof *truth; i++) {
        struct jitter_model x = pipes_quiet(m), y = pipes_quiet(m);
        x.types[0].step_cv = truth[i][0], x.types[0].call_cv = truth[i][1];
        x.types[0].own_cv[OP_add] = truth[i][2];
        x.link_cv[0] = 0.1;
        double step = 0, call = 0, own = 0, link = 0;
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct trace *t = many_steps(m, &x, 100, 7 * i + seed);
            ck_assert_msg(jitter_fit(&m->cluster, &t, 1, &y, &err) == OK, "%s", err.text);
            step += y.types[0].step_cv / 4, call += y.types[0].call_cv / 4;
            own += y.types[0].own_cv[OP_add] / 4, link += y.link_cv[0] / 4;
            ck_assert_double_eq(y.link_cv[1], 0);
            ck_assert_double_lt(y.straggler_share, 0.01); /* the tail of the law itself */
        }
        /* 1,200 steps of kurtosis 10: standard error 4 % of the step's CV */
        ck_assert_double_eq_tol(step, truth[i][0], 0.006);
        ck_assert_double_eq_tol(call, truth[i][1], 0.006);
        ck_assert_double_eq_tol(own, truth[i][2], 0.003);
        ck_assert_double_eq_tol(link, 0.1, 0.006);
    }
}
END_TEST

START_TEST(spans_without_noise_have_none)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m), y = pipes_quiet(m);
    struct trace *t = many_steps(m, &x, 10, 1);
    ck_assert_int_eq(jitter_fit(&m->cluster, &t, 1, &y, &err), OK);
    ck_assert_double_eq(y.types[0].step_cv, 0);
    ck_assert_double_eq(y.types[0].call_cv, 0);
    ck_assert_double_lt(y.types[0].own_cv[OP_add], 1e-9);
    ck_assert_double_eq(y.start_factor, 1);
}
END_TEST

START_TEST(a_fit_finds_stragglers_and_the_slow_start)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m), y = pipes_quiet(m);
    x.types[0].call_cv = 0.02;
    x.straggler_share = 0.08, x.straggler_factor = 1.5, x.straggler_steps = 5;
    x.start_factor = 1.8, x.start_steps = 1;
    struct trace *t = many_steps(m, &x, 400, 11);
    ck_assert_int_eq(jitter_fit(&m->cluster, &t, 1, &y, &err), OK);
    ck_assert_double_eq_tol(y.straggler_factor, 1.5, 0.03);
    /* 240 stretches: standard error of the share 0.018 */
    ck_assert_double_eq_tol(y.straggler_share, 0.08, 0.05);
    ck_assert_int_ge(y.straggler_steps, 4);
    ck_assert_int_le(y.straggler_steps, 8);
    ck_assert_double_eq_tol(y.start_factor, 1.8, 0.05);
    ck_assert_double_lt(y.types[0].step_cv, 0.01);
    ck_assert_double_eq_tol(y.types[0].call_cv, 0.02, 0.004);
}
END_TEST

START_TEST(a_foreign_device_type_and_an_empty_run_are_refused)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m), y = pipes_quiet(m);
    struct trace *t = many_steps(m, &x, 3, 1);
    t->devices[1].type = "other";
    ck_assert_int_eq(jitter_fit(&m->cluster, &t, 1, &y, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "other"));
    t->n_spans = 0;
    ck_assert_int_eq(jitter_fit(&m->cluster, &t, 1, &y, &err), ERR_INPUT);
}
END_TEST

/* --- defaults --- */

START_TEST(defaults_come_from_rows_and_residuals_where_there_are_some)
{
    struct pipes in = three_stages();
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x;
    jitter_defaults(arena, &m->profile, &m->cluster, &x); /* rows of one sample tell no spread */
    ck_assert_double_eq(x.types[0].call_cv, JITTER_CALL_CV);
    ck_assert_double_eq(x.types[0].own_cv[OP_matmul], 0);
    ck_assert_double_eq(x.link_cv[0], JITTER_LINK_CV);
    for (size_t i = 0; i < m->profile.n_ops; i++)
        m->profile.ops[i].samples = 9, m->profile.ops[i].spread = 0.1;
    m->profile.links = ARENA_ARRAY(arena, struct link_row, 1);
    m->profile.n_links = 1;
    m->profile.links[0] = (struct link_row){"l1", {.bandwidth_Bps = 1e9, .residual = 0.07}};
    jitter_defaults(arena, &m->profile, &m->cluster, &x);
    double cv = jitter_cv_of_spread(0.1);
    ck_assert_double_eq_tol(x.types[0].step_cv, cv / 2, 1e-12);
    ck_assert_double_eq_tol(x.types[0].call_cv, cv * sqrt(0.75), 1e-12);
    ck_assert_double_eq(x.types[0].own_cv[OP_add], 0);
    ck_assert_double_eq(x.link_cv[1], 0.07);
    ck_assert_double_eq(x.link_cv[2], JITTER_LINK_CV);
    for (size_t i = 0; i < m->profile.n_ops; i++)
        if (i % 3 == 0) m->profile.ops[i].spread = 0.2, m->profile.ops[i].kind = OP_matmul;
    m->cluster.emulated = true;
    jitter_defaults(arena, &m->profile, &m->cluster, &x);
    double own = x.types[0].own_cv[OP_matmul];
    ck_assert_double_eq_tol(own * own + cv * cv, 4 * cv * cv, 1e-12);
    ck_assert_double_eq(x.types[0].own_cv[OP_add], 0);
    ck_assert_double_eq(x.link_cv[0], 0);
}
END_TEST

Suite *jitter_suite(void)
{
    Suite *s = suite_create("jitter");
    TCase *c = tcase_create("jitter");
    tcase_add_checked_fixture(c, begin, end);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, every_cv_keeps_the_mean_and_is_the_cv);
    tcase_add_test(c, no_operator_is_faster_than_the_floor);
    tcase_add_test(c, the_tail_is_nearer_to_published_ones_than_a_normal_law_s);
    tcase_add_test(c, a_spread_becomes_the_cv_of_the_law_that_shows_it);
    tcase_add_test(c, draws_depend_on_what_runs_and_on_nothing_else);
    tcase_add_test(c, operators_of_a_call_share_its_factor);
    tcase_add_test(c, drawn_numbers_have_the_mean_and_the_cv);
    tcase_add_test(c, an_unknown_cost_is_wrong_alike_all_through_a_sample);
    tcase_add_test(c, no_jitter_changes_nothing);
    tcase_add_test(c, a_single_device_draws_every_step_and_folding_is_not_asked_of_what_differs);
    tcase_add_test(c, keeping_a_trace_changes_no_draw_and_busy_is_what_the_spans_say);
    tcase_add_test(c, a_fit_finds_the_three_levels_that_made_the_spans);
    tcase_add_test(c, spans_without_noise_have_none);
    tcase_add_test(c, a_fit_finds_stragglers_and_the_slow_start);
    tcase_add_test(c, a_foreign_device_type_and_an_empty_run_are_refused);
    tcase_add_test(c, defaults_come_from_rows_and_residuals_where_there_are_some);
    suite_add_tcase(s, c);
    return s;
}
