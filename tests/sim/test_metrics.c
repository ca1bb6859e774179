/* Rates, utilisation, cost and energy of plans, counted by hand from the textbook formulas. */
#include "profiles/catalogue.h"
#include "profiles/team.h"
#include "sim/metrics.h"
#include "tests/support/plans.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { D = 32, T = 8, V = 64, LAYERS = 2, MICROBATCHES = 3, BATCH = 2 * MICROBATCHES };

/* FLOPs of one token of the tiny GPT-2 (support/plans.h), products first, then what remains: a multiply-add is 2, an elementary function 1. */
static const double products_F = LAYERS * (2.0 * D * 3 * D + 2.0 * D * D + 2 * 2.0 * D * 4 * D) +
                                 2.0 * D * V,
                    pairs = (T + 1) / 2.0, /* visible keys of a query, on average */
    attention_F = LAYERS * 4.0 * D * pairs;
/* norms 7; biases; residuals 2; gelu 9; position embedding 1; cross entropy 4 */
static const double rest_F =
    LAYERS * (2 * 7.0 * D + (3 + 1 + 4 + 1) * D + 2.0 * D + 9.0 * 4 * D) + 7.0 * D + D + 4.0 * V;
/* norms 10 + 5; sums of biases' gradients; sums at the two branches of each block; gelu 17; embeddings 1 + 1; cross entropy 3 */
static const double rest_B =
    LAYERS * (2 * 15.0 * D + (3 + 1 + 4 + 1) * D + 2.0 * D + 17.0 * 4 * D) + 15.0 * D + 2 * D +
    3.0 * V;

static struct plan one_device(void)
{
    struct plan p = plans_new(arena, "gpt2", LAYERS, 1);
    int32_t last = plans_layers(arena, &p) - 1;
    plans_replica(arena, &p, MICROBATCHES, 1, &last);
    return p;
}

static struct metrics metrics_at(const struct plan *p, int64_t iteration_ns, int64_t tokens)
{
    struct metrics m;
    struct error err = {0};
    struct metrics_input in = {.plan = p,
                               .program = plans_lower(arena, p, false),
                               .iteration_ns = iteration_ns,
                               .tokens = tokens};
    ck_assert_msg(metrics_of(arena, &in, &m, &err) == OK, "%s", err.text);
    return m;
}

static void near(double x, double wanted) { ck_assert_double_eq_tol(x, wanted, 1e-9 * wanted); }

START_TEST(flops_of_a_small_gpt_by_hand)
{
    struct plan p = one_device();
    struct metrics_flops f;
    ck_assert_int_eq(metrics_model_flops(&p.job, &f, NULL), OK);
    near(f.forward, T * (products_F + attention_F + rest_F));
    near(f.backward, T * (2 * (products_F + attention_F) + rest_B));
}
END_TEST

START_TEST(mfu_is_model_flops_over_the_peak)
{
    struct plan p = one_device();
    struct metrics m = metrics_at(&p, 2000000, 0); /* 2 ms */
    double step = BATCH * T * (3 * (products_F + attention_F) + rest_F + rest_B), peak = 0.05e12;
    near(m.samples_per_s, BATCH / 0.002);
    near(m.tokens_per_s, BATCH * T / 0.002);
    near(m.model_flops, step);
    near(m.peak_flops, peak);
    near(m.mfu, step / (0.002 * peak));
    ck_assert_int_eq(m.devices, 1);
    ck_assert(!m.no_flops && !m.no_peak && !m.simulated);
    /* The backward of attention computes q·k again: 2 of its 10 FLOPs per feature and pair. */
    near(m.hardware_flops, step + BATCH * T * LAYERS * 2.0 * D * pairs);
    near(m.hfu, m.hardware_flops / (0.002 * peak));
}
END_TEST

START_TEST(recomputation_adds_one_forward_to_the_hardware_flops)
{
    struct plan p = one_device();
    struct metrics plain = metrics_at(&p, 1000, 0);
    p.replicas[0].stages[0].recompute = RECOMPUTE_STAGE;
    struct metrics again = metrics_at(&p, 1000, 0);
    near(again.model_flops, plain.model_flops);
    near(again.mfu, plain.mfu);
    near(again.hardware_flops - plain.hardware_flops,
         BATCH * T * (products_F + attention_F + rest_F));
}
END_TEST

START_TEST(only_used_devices_and_their_slowed_peaks_count)
{
    struct plan p = plans_new(arena, "gpt2", LAYERS, 3);
    p.cluster.types[0].slowdown = 4;
    p.cluster.emulated = true;
    int32_t cut[2] = {0, plans_layers(arena, &p) - 1};
    plans_replica(arena, &p, MICROBATCHES, 2, cut);
    struct metrics m = metrics_at(&p, 1000, 0);
    ck_assert_int_eq(m.devices, 2);
    near(m.peak_flops, 2 * 0.05e12 / 4);
    ck_assert_int_eq(m.n_classes, 1);
    ck_assert_int_eq(m.classes[0].devices, 2);
    ck_assert_int_eq(m.classes[0].memory_bytes, INT64_C(1) << 40);
}
END_TEST

/* 1.5e9 tokens of 48 a step are 31,250,000 steps of 3.6 ms: 112,500 s. */
START_TEST(days_cost_and_energy_by_hand)
{
    struct plan p = one_device();
    struct metrics m = metrics_at(&p, 3600000, INT64_C(1500000000));
    near(m.run.steps, 31250000);
    near(m.run.days, 112500.0 / 86400);
    ck_assert(!m.priced && !m.powered);
    ck_assert_str_eq(m.no_price, "no price of plain");
    ck_assert_str_eq(m.no_power, "no power of plain");
    p.cluster.types[0].priced = true, p.cluster.types[0].price_per_h = 2.5, p.cluster.types[0].power_w = 400;
    m = metrics_at(&p, 3600000, INT64_C(1500000000));
    ck_assert(!m.no_price && !m.no_power);
    near(m.cost, 2.5 * 3.6e-3 / 3600);
    near(m.run.cost, 2.5 * 112500 / 3600);
    near(m.run.kwh, 0.4 * 112500 / 3600);
    /* a step more for one token more; the job's own number where none is given */
    near(metrics_at(&p, 3600000, INT64_C(1500000001)).run.steps, 31250001);
    p.job.run_tokens = 96;
    near(metrics_at(&p, 3600000, 0).run.steps, 2);
    near(metrics_at(&p, 3600000, 48).run.steps, 1);
    p.job.run_tokens = 0;
    ck_assert_int_eq(metrics_at(&p, 3600000, 0).run.tokens, 0);
}
END_TEST

/* Products count the routed rows, four times the slots or not (elementwise operators count slots); an image model has images. */
START_TEST(experts_and_images)
{
    struct plan p = one_device();
    struct metrics_flops tight, loose;
    p.job.model = plans_model_file(arena, "tiny-mixtral");
    p.job.sequence_length = 16;
    p.job.model.capacity_factor = 1;
    ck_assert_int_eq(metrics_model_flops(&p.job, &tight, NULL), OK);
    p.job.model.capacity_factor = 4;
    ck_assert_int_eq(metrics_model_flops(&p.job, &loose, NULL), OK);
    ck_assert_double_eq_tol(loose.forward, tight.forward, 0.01 * tight.forward);
    ck_assert_double_eq_tol(loose.backward, tight.backward, 0.01 * tight.backward);
    struct plan images = plans_new(arena, "gpt2", LAYERS, 1);
    images.job.model = plans_model_file(arena, "tiny-vgg");
    images.job.sequence_length = images.job.model.max_positions;
    int32_t last = plans_layers(arena, &images) - 1;
    plans_replica(arena, &images, MICROBATCHES, 1, &last);
    struct metrics m = metrics_at(&images, 2000000, 601);
    ck_assert(m.images);
    near(m.samples_per_s, BATCH / 0.002);
    ck_assert(!(m.tokens_per_s > 0));
    near(m.run.steps, 101);
}
END_TEST

/* A device of a reduced program stands for several. */
START_TEST(shares_are_means_over_the_represented_devices)
{
    struct plan p = plans_new(arena, "gpt2", LAYERS, 2);
    struct metrics m;
    struct error err = {0};
    int32_t cut[2] = {0, plans_layers(arena, &p) - 1};
    plans_replica(arena, &p, MICROBATCHES, 2, cut);
    const struct program *program = plans_lower(arena, &p, false);
    const struct sim_device devices[2] = {
        {.busy_ns = 80, .carried_ns = 10, .wait_ns = {15, 5, 10, 0}, .peak_bytes = 7},
        {.busy_ns = 40, .wait_ns = {0, 0, 20, 40}, .peak_bytes = 9}};
    const int32_t stands_for[2] = {3, 1};
    struct metrics_input in = {.plan = &p,
                               .program = program,
                               .devices = devices,
                               .simulated_ns = 100,
                               .stands_for = stands_for,
                               .iteration_ns = 100};
    ck_assert_int_eq(metrics_of(arena, &in, &m, &err), OK);
    ck_assert(m.simulated && m.by_replicas);
    ck_assert_int_eq(m.devices, 4);
    near(m.classes[0].busy, (3 * 0.7 + 0.4) / 4);
    near(m.classes[0].wait[SIM_WAIT_messages], 3 * 0.15 / 4);
    near(m.classes[0].wait[SIM_WAIT_collectives], 3 * 0.05 / 4);
    near(m.classes[0].wait[SIM_WAIT_bubble], (3 * 0.1 + 0.2) / 4);
    near(m.classes[0].wait[SIM_WAIT_imbalance], 0.4 / 4);
    ck_assert_int_eq(m.classes[0].peak_bytes, 9);
}
END_TEST

Suite *metrics_suite(void)
{
    Suite *s = suite_create("sim/metrics");
    TCase *t = tcase_create("metrics");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, flops_of_a_small_gpt_by_hand);
    tcase_add_test(t, mfu_is_model_flops_over_the_peak);
    tcase_add_test(t, recomputation_adds_one_forward_to_the_hardware_flops);
    tcase_add_test(t, only_used_devices_and_their_slowed_peaks_count);
    tcase_add_test(t, days_cost_and_energy_by_hand);
    tcase_add_test(t, experts_and_images);
    tcase_add_test(t, shares_are_means_over_the_represented_devices);
    suite_add_tcase(s, t);
    return s;
}
