#include "sim/uncertainty/montecarlo.h"

#include "sim/engine/sim.h"
#include "tests/support/pipelines.h"

#include <math.h>

static struct arena *arena;
static struct error err;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

/* --- summaries --- */

/* Of 100 samples B(100, 0.05) lie below the 5 % quantile: P(<= 0) = 0.0059, P(<= 1) = 0.0371, P(<= 9) = 0.9718, P(<= 10) =
 * 0.9885, so its 95 % confidence reaches from the first to the eleventh. */
START_TEST(ends_and_their_confidence_are_order_statistics)
{
    double x[100];
    struct montecarlo_summary s;
    for (int i = 0; i < 100; i++) x[i] = (i * 37) % 100 + 1;
    montecarlo_summarise(x, 100, &s);
    ck_assert_double_eq(s.mean, 50.5);
    ck_assert_double_eq_tol(s.error, sqrt((100.0 * 100 - 1) / 12 * 100 / 99 / 100), 1e-12);
    ck_assert_double_eq(s.p5.value, 5);
    ck_assert_double_eq(s.p50.value, 50);
    ck_assert_double_eq(s.p95.value, 95);
    ck_assert_double_eq(s.p5.low, 1);
    ck_assert_double_eq(s.p5.high, 11);
    ck_assert(s.p5.bounded);
    ck_assert(s.p95.bounded);
}
END_TEST

START_TEST(few_samples_say_that_they_bound_nothing)
{
    double one = 7, x[71], y[72];
    struct montecarlo_summary s;
    montecarlo_summarise(&one, 1, &s);
    ck_assert_double_eq(s.p5.value, 7);
    ck_assert_double_eq(s.p95.value, 7);
    ck_assert_double_eq(s.error, 0);
    ck_assert(!s.p50.bounded);
    for (int i = 0; i < 72; i++) {
        if (i < 71) x[i] = i;
        y[i] = i;
    }
    montecarlo_summarise(x, 71, &s); /* 0.95^71 = 0.0262, 0.95^72 = 0.0249 */
    ck_assert(!s.p5.bounded);
    montecarlo_summarise(y, 72, &s);
    ck_assert(s.p5.bounded);
}
END_TEST

/* --- simulations --- */

static struct pipes pipeline(int32_t stages, int32_t microbatches)
{
    struct pipes in = {.n_stages = stages, .microbatches = microbatches, .ops = 4};
    for (int s = 0; s < stages; s++) {
        in.forward_ns[s] = 4 * PIPES_MS * (s + 2), in.backward_ns[s] = 8 * PIPES_MS;
        in.update_ns[s] = 2 * PIPES_MS, in.transfer_ns[s] = 3 * PIPES_MS;
    }
    return in;
}

static struct montecarlo_result many(struct pipes_made *m, const struct jitter_model *x,
                                     uint64_t seed, int32_t samples, int32_t threads)
{
    struct montecarlo_options o = {.samples = samples, .threads = threads};
    struct montecarlo_result r;
    ck_assert_msg(
        montecarlo_run(arena, &m->program, &m->profile, &m->cluster, x, seed, &o, &r, &err) == OK,
        "%s", err.text);
    return r;
}

static void check_end(const struct montecarlo_end *a, const struct montecarlo_end *b)
{
    ck_assert_double_eq(a->value, b->value);
    ck_assert_double_eq(a->low, b->low);
    ck_assert_double_eq(a->high, b->high);
}

START_TEST(the_number_of_threads_changes_no_bit)
{
    struct pipes in = pipeline(4, 6);
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.types[0].call_cv = 0.05, x.types[0].own_cv[OP_add] = 0.1, x.link_cv[1] = 0.3;
    x.cost_error = true;
    for (size_t i = 0; i < m->profile.n_ops; i++)
        m->profile.ops[i].spread = 0.1, m->profile.ops[i].samples = 3;
    struct montecarlo_result one = many(m, &x, 3, 60, 1);
    for (int32_t threads = 2; threads <= 4; threads++) {
        struct montecarlo_result r = many(m, &x, 3, 60, threads);
        ck_assert_mem_eq(r.iteration_ns, one.iteration_ns, 60 * sizeof *one.iteration_ns);
        ck_assert_double_eq(r.iteration.mean, one.iteration.mean);
        check_end(&r.iteration.p5, &one.iteration.p5);
        check_end(&r.devices[2].busy_ns.p95, &one.devices[2].busy_ns.p95);
        ck_assert_int_eq(r.devices[2].peak_bytes, one.devices[2].peak_bytes);
    }
    ck_assert_double_ne(many(m, &x, 4, 60, 1).iteration.mean, one.iteration.mean);
}
END_TEST

/* A lone device whose whole step has one factor: the iteration is the law itself. */
START_TEST(one_device_shows_the_law)
{
    struct pipes in = pipeline(1, 3);
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.types[0].step_cv = 0.1;
    const int32_t n = suites_long() ? 20000 : 2000;
    double step = (double)pipes_run(m, 0, false).iteration_ns;
    struct montecarlo_result r = many(m, &x, 1, n, 2);
    ck_assert_double_eq_tol(r.iteration.mean / step, 1, 4 * 0.1 / sqrt(n));
    ck_assert_double_eq_tol(r.iteration.error / step, 0.1 / sqrt(n), 0.01 / sqrt(n));
    const struct montecarlo_end *ends[] = {&r.iteration.p5, &r.iteration.p50, &r.iteration.p95};
    const double normal[] = {-1.6448536, 0, 1.6448536};
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq_tol(ends[i]->value / step, jitter_even_factor(0.1, normal[i]), 0.012);
}
END_TEST

/* E max(X, Y) = ∫ 2 x(z) φ(z) Φ(z) dz for independent X, Y of the law. */
static double mean_of_the_slower(double cv)
{
    double sum = 0, h = 1.0 / 256;
    for (int i = -2048; i <= 2048; i++) {
        double z = i * h;
        sum += 2 * jitter_even_factor(cv, z) * exp(-z * z / 2) / sqrt(2 * 3.141592653589793) * 0.5 *
               erfc(-z / sqrt(2));
    }
    return sum * h;
}

START_TEST(two_devices_that_join_take_the_mean_of_the_slower)
{
    struct pipes in = {.n_stages = 2, .microbatches = 1, .parallel = true, .elements = 2};
    for (int s = 0; s < 2; s++) in.forward_ns[s] = 60 * PIPES_MS, in.backward_ns[s] = 40 * PIPES_MS;
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    x.types[0].step_cv = 0.1;
    const int32_t n = suites_long() ? 20000 : 2000;
    struct montecarlo_result r = many(m, &x, 1, n, 2);
    double step = 100.0 * PIPES_MS;
    ck_assert_double_gt(mean_of_the_slower(0.1), 1.04);
    ck_assert_double_eq_tol(r.iteration.mean / step, mean_of_the_slower(0.1), 4 * 0.1 / sqrt(n));
}
END_TEST

/* A synthetic truth: 90 % of new steps fall into the interval. */
START_TEST(the_interval_covers_fresh_steps)
{
    const int32_t samples = 400, fresh = suites_long() ? 4000 : 600;
    for (int32_t stages = 1; stages <= 4; stages += 3) {
        struct pipes in = pipeline(stages, 6);
        struct pipes_made *m = pipes_make(arena, &in);
        struct jitter_model x = pipes_quiet(m);
        x.types[0].step_cv = 0.02, x.types[0].call_cv = 0.05, x.types[0].own_cv[OP_add] = 0.1;
        for (int32_t i = 0; i < x.n_links; i++) x.link_cv[i] = 0.3;
        struct montecarlo_result predicted = many(m, &x, 1, samples, 2),
                                 truth = many(m, &x, 2, fresh, 2);
        int32_t inside = 0;
        for (int32_t i = 0; i < fresh; i++)
            inside += truth.iteration_ns[i] >= predicted.iteration.p5.value &&
                      truth.iteration_ns[i] <= predicted.iteration.p95.value;
        ck_assert_double_ge(inside, 0.85 * fresh);
        ck_assert_double_le(inside, 0.95 * fresh);
    }
}
END_TEST

START_TEST(failures_are_the_first_sample_s_whatever_the_threads)
{
    struct pipes in = pipeline(2, 2);
    in.order[0] = "B0 B1 F0 F1"; /* waits for its own gradient */
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    struct montecarlo_options o = {.samples = 8, .threads = 3};
    struct montecarlo_result r;
    ck_assert_int_eq(
        montecarlo_run(arena, &m->program, &m->profile, &m->cluster, &x, 1, &o, &r, &err),
        ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "deadlock"));
    o.samples = 0;
    ck_assert_int_eq(
        montecarlo_run(arena, &m->program, &m->profile, &m->cluster, &x, 1, &o, &r, &err),
        ERR_USAGE);
}
END_TEST

START_TEST(samples_beyond_the_limit_are_refused_before_the_first)
{
    /* 2 devices, 24 bytes a sample and device: 4 GiB are 89,478,485 samples and a little. */
    struct pipes in = pipeline(2, 2);
    struct pipes_made *m = pipes_make(arena, &in);
    struct jitter_model x = pipes_quiet(m);
    struct montecarlo_options o = {.samples = 89478486, .threads = 1};
    struct montecarlo_result r;
    ck_assert_int_eq(
        montecarlo_run(arena, &m->program, &m->profile, &m->cluster, &x, 1, &o, &r, &err),
        ERR_RESOURCE);
    ck_assert_msg(strstr(err.text, "fewer samples") != NULL, "%s", err.text);
}
END_TEST

Suite *montecarlo_suite(void)
{
    Suite *s = suite_create("montecarlo");
    TCase *c = tcase_create("montecarlo");
    tcase_add_checked_fixture(c, begin, end);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, ends_and_their_confidence_are_order_statistics);
    tcase_add_test(c, few_samples_say_that_they_bound_nothing);
    tcase_add_test(c, the_number_of_threads_changes_no_bit);
    tcase_add_test(c, one_device_shows_the_law);
    tcase_add_test(c, two_devices_that_join_take_the_mean_of_the_slower);
    tcase_add_test(c, the_interval_covers_fresh_steps);
    tcase_add_test(c, failures_are_the_first_sample_s_whatever_the_threads);
    tcase_add_test(c, samples_beyond_the_limit_are_refused_before_the_first);
    suite_add_tcase(s, c);
    return s;
}
