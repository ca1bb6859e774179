/* Live memory over a step, read from a trace: the same peak as the simulation's, for any plan, the whole trace or a part of it; a case by hand. */
#include "profiles/profile.h"
#include "sim/engine/sim.h"
#include "sim/explain/live.h"
#include "tests/support/plans.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct sim_result simulated(const struct plan *plan, const struct program *p)
{
    struct sim_result r;
    struct profile *prior = ARENA_ARRAY(arena, struct profile, 1);
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &plan->cluster, prior, &err) == OK, "%s", err.text);
    const struct sim_options o = {.keep_trace = true};
    ck_assert_msg(sim_run(arena, p, cost_new(arena, prior, &plan->cluster), &o, &r, &err) == OK,
                  "%s", err.text);
    trace_sort(r.trace);
    return r;
}

/* The last step but one. */
static struct live live_of(const struct program *p, const struct trace *t, int32_t device)
{
    struct live x;
    struct error err = {0};
    int32_t step = t->steps - 2;
    int64_t begin_ns = 0, end_ns = 0;
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_STEP && t->spans[i].step == step)
            begin_ns = t->spans[i].begin_ns, end_ns = t->spans[i].end_ns;
    ck_assert_int_gt(end_ns, begin_ns);
    ck_assert_msg(live_memory(arena, p, t, device, step, begin_ns, end_ns, &x, &err) == OK, "%s",
                  err.text);
    return x;
}

/* Messages inside a device have no spans, and buffers of no lifetime count in the simulation of a device without messages: a few
 * devices in a hundred differ, by a small buffer. */
START_TEST(the_peak_is_the_simulation_s)
{
    int32_t n = 0, equal = 0;
    for (uint64_t seed = (uint64_t)_i * 50; seed < (uint64_t)_i * 50 + 50; seed++) {
        struct plan plan = plans_random_any(arena, seed);
        struct program *p = plans_lower(arena, &plan, seed % 2);
        struct sim_result r = simulated(&plan, p);
        for (int32_t d = 0; d < r.trace->n_devices; d++) {
            struct live x = live_of(p, r.trace, d);
            int64_t peak = r.devices[d].peak_bytes;
            n++, equal += x.peak_bytes == peak;
            ck_assert_msg(llabs(x.peak_bytes - peak) <= peak * 3 / 100,
                          "seed %d device %d: %lld, not %lld", (int)seed, (int)d,
                          (long long)x.peak_bytes, (long long)peak);
        }
        arena_reset(arena);
    }
    ck_assert_int_gt(n, 100);
    ck_assert_int_ge(100 * equal, 98 * n);
}
END_TEST

/* As in a folded trace: the devices of one replica alone, with stages and channels of other numbers than the program's. */
START_TEST(stages_and_channels_of_a_part_are_found_by_their_order)
{
    struct plan plan = plans_new(arena, "gpt2", 2, 6);
    int32_t last[2];
    bool keep[6] = {[2] = true, [3] = true};
    last[1] = plans_layers(arena, &plan) - 1, last[0] = last[1] / 2;
    for (int r = 0; r < 3; r++) plans_replica(arena, &plan, 5, 2, last);
    struct program *p = plans_lower(arena, &plan, true);
    struct sim_result r = simulated(&plan, p);
    struct live whole[2] = {live_of(p, r.trace, 2), live_of(p, r.trace, 3)};
    trace_keep_devices(r.trace, keep);
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        struct span *s = &r.trace->spans[i];
        if (s->stage >= 0) s->stage += 40;
        if (s->kind == SPAN_SEND || s->kind == SPAN_RECEIVE) s->op = 3 * s->op + 1;
    }
    for (int32_t d = 0; d < 2; d++) {
        struct live x = live_of(p, r.trace, d);
        ck_assert_uint_eq(x.n, whole[d].n);
        ck_assert_uint_gt(x.n, 4);
        ck_assert_int_eq(x.peak_bytes, r.devices[2 + d].peak_bytes);
        for (size_t i = 0; i < x.n; i++) {
            ck_assert_int_eq(x.points[i].at_ns, whole[d].points[i].at_ns);
            ck_assert_int_eq(x.points[i].activations, whole[d].points[i].activations);
            ck_assert_int_eq(x.points[i].messages, whole[d].points[i].messages);
        }
    }
}
END_TEST

/* One device, two microbatches one after the other: the other classes are the program's. */
START_TEST(one_device_by_hand)
{
    struct plan plan = plans_new(arena, "gpt2", 1, 1);
    int32_t last = plans_layers(arena, &plan) - 1;
    plans_replica(arena, &plan, 2, 1, &last);
    struct program *p = plans_lower(arena, &plan, false);
    struct sim_result r = simulated(&plan, p);
    struct live x = live_of(p, r.trace, 0), thin = x;
    const struct program_stage *s = &p->stages[0];
    ck_assert_int_eq(x.bytes[LIVE_parameters], s->class_bytes[SLOT_PARAMETER]);
    ck_assert_int_eq(x.bytes[LIVE_gradients], s->class_bytes[SLOT_GRADIENT]);
    ck_assert_int_eq(x.bytes[LIVE_state], s->class_bytes[SLOT_STATE]);
    ck_assert_int_eq(x.bytes[LIVE_scratch], s->class_bytes[SLOT_SCRATCH]);
    ck_assert_int_eq(x.bytes[LIVE_messages] + x.bytes[LIVE_activations], 0);
    ck_assert_int_eq(x.memory_bytes, INT64_C(1) << 40);
    int32_t falls = 0;
    for (size_t i = 1; i < x.n; i++) {
        ck_assert_int_gt(x.points[i].at_ns, x.points[i - 1].at_ns);
        ck_assert_int_ge(x.points[i].activations, 0);
        ck_assert_int_eq(x.points[i].messages, 0);
        falls += x.points[i].activations < x.points[i - 1].activations;
    }
    /* forward and backward follow each other at once: it is full from the step's first instant to the update */
    ck_assert_int_gt(x.points[0].activations, 0);
    ck_assert_int_ge(falls, 1);
    ck_assert_int_eq(x.peak_bytes, r.devices[0].peak_bytes);
    int64_t highest = 0;
    live_thin(&thin, 2);
    ck_assert_uint_le(thin.n, 2);
    for (size_t i = 0; i < thin.n; i++) highest = units_max(highest, thin.points[i].activations);
    for (int c = 0; c < LIVE_CLASS_COUNT; c++) highest += thin.bytes[c];
    ck_assert_int_eq(highest, x.peak_bytes);
}
END_TEST

START_TEST(a_trace_of_another_plan_is_refused)
{
    struct plan one = plans_new(arena, "gpt2", 1, 1), other = plans_new(arena, "gpt2", 1, 1);
    int32_t last = plans_layers(arena, &one) - 1;
    struct live x;
    struct error err = {0};
    plans_replica(arena, &one, 2, 1, &last);
    plans_replica(arena, &other, 2, 1, &last);
    other.cluster.devices[0].name = "b.0";
    struct sim_result r = simulated(&one, plans_lower(arena, &one, false));
    ck_assert_int_eq(
        live_memory(arena, plans_lower(arena, &other, false), r.trace, 0, 1, 0, 1, &x, &err),
        ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "device a.0 is not in its plan"));
}
END_TEST

Suite *live_suite(void)
{
    Suite *s = suite_create("live");
    TCase *t = tcase_create("live");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, the_peak_is_the_simulation_s, 0, 3);
    tcase_add_test(t, stages_and_channels_of_a_part_are_found_by_their_order);
    tcase_add_test(t, one_device_by_hand);
    tcase_add_test(t, a_trace_of_another_plan_is_refused);
    suite_add_tcase(s, t);
    return s;
}
