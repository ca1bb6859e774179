/* What devices wait for: bubble, imbalance, messages and collectives, by hand and over random pipelines. */
#include "tests/support/pipelines.h"
#include "tests/support/plans.h"
#include "tests/support/random_pipes.h"

#include "profiles/profile.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct pipes uniform(int32_t n_stages, int32_t microbatches, int64_t f, int64_t b)
{
    struct pipes in = {.n_stages = n_stages, .microbatches = microbatches};
    for (int32_t s = 0; s < n_stages; s++) in.forward_ns[s] = f, in.backward_ns[s] = b;
    return in;
}

static void waits_are(const struct sim_device *d, int64_t messages, int64_t collectives,
                      int64_t bubble, int64_t imbalance)
{
    ck_assert_int_eq(d->wait_ns[SIM_WAIT_messages], messages);
    ck_assert_int_eq(d->wait_ns[SIM_WAIT_collectives], collectives);
    ck_assert_int_eq(d->wait_ns[SIM_WAIT_bubble], bubble);
    ck_assert_int_eq(d->wait_ns[SIM_WAIT_imbalance], imbalance);
}

static void adds_up(const struct sim_result *r, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const struct sim_device *d = &r->devices[i];
        int64_t sum = d->busy_ns - d->carried_ns;
        for (int w = 0; w < SIM_WAIT_COUNT; w++) {
            ck_assert_int_ge(d->wait_ns[w], 0);
            sum += d->wait_ns[w];
        }
        ck_assert_int_eq(sum, r->iteration_ns);
    }
}

START_TEST(two_stages_by_hand)
{
    /* d0: F0 0-10, F1 10-20; d1: F0 15-25, B0 25-45, F1 45-55, B1 55-75; d0: B0 50-70, B1 80-100, U 100-103. */
    struct pipes in = uniform(2, 2, 10, 20);
    in.transfer_ns[0] = 4, in.latency_ns[0] = 1, in.update_ns[0] = 3;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1, false);
    /* d0 waits 20-50 for gradient 0, issued at 45, and 70-80 for gradient 1, issued at 75. */
    waits_are(&r.devices[0], 5 + 5, 0, 25 + 5, 0);
    /* d1 waits 0-15 for activation 0, issued at 10, and has nothing left to do from 75 to 103. */
    waits_are(&r.devices[1], 5, 0, 10, 28);
    /* In a steady step the end is a part of the next fill: 75 to 103 + 15. */
    r = pipes_run(pipes_make(arena, &in), 4, false);
    waits_are(&r.devices[0], 10, 0, 30, 0);
    waits_are(&r.devices[1], 5, 0, 38, 0);
}
END_TEST

/* 1F1B and GPipe of p equal stages: (p - 1)(f + b) of each iteration are bubble on every device, and nothing else is waited for. */
START_TEST(equal_stages_wait_in_the_bubble_only)
{
    for (int32_t p = 2; p <= 5; p++)
        for (int gpipe = 0; gpipe < 2; gpipe++) {
            struct pipes in = uniform(p, 7, 10, 23);
            for (int32_t s = 0; gpipe && s < p; s++) in.warmup[s] = 7;
            struct sim_result r = pipes_run(pipes_make(arena, &in), 4, false);
            for (int32_t s = 0; s < p; s++) waits_are(&r.devices[s], 0, 0, (p - 1) * 33, 0);
        }
}
END_TEST

START_TEST(a_slow_stage_makes_the_others_wait_in_the_full_pipeline)
{
    struct pipes in = uniform(2, 6, 10, 20);
    in.forward_ns[0] = 30, in.backward_ns[0] = 60;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 4, false);
    ck_assert_int_eq(r.iteration_ns, 6 * 90);
    waits_are(&r.devices[0], 0, 0, 0, 0);
    /* d1: F0 30-40, B0 40-60, F1 60-70, B1 70-90; F2 comes at 150, behind B0 60-120 of d0, and so on: 60 before each of F2 to F5. */
    ck_assert_int_eq(r.devices[1].busy_ns, 180);
    waits_are(&r.devices[1], 0, 0, 120, 4 * 60);
    adds_up(&r, 2);
}
END_TEST

/* Two replicas, one twice as slow: the fast one waits for the other's gradients, then both wait for the ring. */
START_TEST(the_last_member_of_a_collective_is_imbalance)
{
    struct pipes in = uniform(2, 4, 10, 20);
    in.parallel = true, in.algorithm = ALGORITHM_RING, in.elements = 1000;
    in.forward_ns[1] = 20, in.backward_ns[1] = 40;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 4, false);
    int64_t ring = r.iteration_ns - 4 * 60;
    ck_assert_int_gt(ring, 0);
    waits_are(&r.devices[0], 0, ring, 0, 4 * 30);
    waits_are(&r.devices[1], 0, ring, 0, 0);
}
END_TEST

/* Of every device, with and without operators slowed by messages, with rings and chains, and with fewer steps than a steady one takes. */
START_TEST(busy_and_waits_fill_the_iteration)
{
    for (uint64_t seed = 0; seed < 400; seed++)
        for (int32_t steps = 0; steps < 4; steps++) {
            struct pipes in = seed % 2 ? random_pipes(seed) : random_pipes_replicas(seed);
            in.compute_slowdown = seed % 3 ? 0 : 0.5;
            struct sim_result r = pipes_run(pipes_make(arena, &in), steps, false);
            adds_up(&r, in.n_stages);
            arena_reset(arena);
        }
}
END_TEST

START_TEST(lowered_plans_too_folded_or_by_stage)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct plan p = plans_random_plan(arena, seed);
        const struct program *program = plans_lower(arena, &p, true);
        struct profile profile;
        struct error err = {0};
        struct sim_result r, other;
        ck_assert_int_eq(profile_prior(arena, &p.cluster, &profile, &err), OK);
        struct cost *k = cost_new(arena, &profile, &p.cluster);
        ck_assert_int_eq(sim_run(arena, program, k, &(struct sim_options){.steps = 0}, &r, &err),
                         OK);
        adds_up(&r, program->n_devices);
        const struct sim_options others[] = {
            {.fold = true}, {.detail = SIM_STAGE}, {.keep_trace = true}};
        for (size_t o = 0; o < 3; o++) {
            ck_assert_int_eq(sim_run(arena, program, k, &others[o], &other, &err), OK);
            ck_assert_int_eq(other.iteration_ns, r.iteration_ns);
            for (int32_t i = 0; i < program->n_devices; i++)
                for (int w = 0; w < SIM_WAIT_COUNT; w++)
                    ck_assert_int_eq(other.devices[i].wait_ns[w], r.devices[i].wait_ns[w]);
        }
        arena_reset(arena);
    }
}
END_TEST

Suite *waits_suite(void)
{
    Suite *s = suite_create("sim/engine/waits");
    TCase *t = tcase_create("waits");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, two_stages_by_hand);
    tcase_add_test(t, equal_stages_wait_in_the_bubble_only);
    tcase_add_test(t, a_slow_stage_makes_the_others_wait_in_the_full_pipeline);
    tcase_add_test(t, the_last_member_of_a_collective_is_imbalance);
    tcase_add_test(t, busy_and_waits_fill_the_iteration);
    tcase_add_test(t, lowered_plans_too_folded_or_by_stage);
    suite_add_tcase(s, t);
    return s;
}
