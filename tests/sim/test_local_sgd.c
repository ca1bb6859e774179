/* Streaming exchanges of local SGD (core/lower/outer.c, core/program/period.h): what is exchanged when, its bytes and its time. That they
 * train as their formulas state is checked by tests/cli/streaming.sh. */
#include "core/program/period.h"
#include "sim/engine/sim.h"
#include "traces/stats.h"
#include "traces/trace.h"

#include "tests/support/plans.h"

#include <stdlib.h>

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

enum { EVERY = 12, MICROBATCHES = 4 };

/* Islands of one replica each; a replica is one stage, or two on two devices. */
static struct plan islands(int32_t n, int32_t n_stages, int32_t fragments, int32_t delay)
{
    struct plan p = plans_new(arena, "gpt2", 3, n * n_stages);
    int32_t end = plans_layers(arena, &p) - 1, last[2] = {n_stages > 1 ? end / 2 : end, end};
    int32_t *island = ARENA_ARRAY(arena, int32_t, (size_t)n);
    for (int32_t r = 0; r < n; r++) plans_replica(arena, &p, MICROBATCHES, n_stages, last), island[r] = r;
    p.local_sgd = (struct plan_local_sgd){.outer = {.every = EVERY, .kind = OUTER_AVERAGE, .fragments = fragments, .delay = delay},
                                          .n_islands = n,
                                          .island = island};
    return p;
}

/* --- what is exchanged when --- */

/* Sums of the fragment's turn that a stage starts in a step. */
static int32_t started(const struct program_stage *s, int64_t step, int32_t *sum)
{
    int32_t n = 0;
    for (int32_t f = 0; f < s->n_procedures; f++)
        for (int32_t i = 0; i < s->procedures[f].n_instrs; i++) {
            const struct procedure *x = &s->procedures[f];
            if (!x->period || !procedure_runs(x, step) || x->instrs[i].kind != INSTR_COLLECTIVE_START) continue;
            if (strncmp(x->variant, "delta", 5) == 0) *sum = x->instrs[i].arg, n++;
        }
    return n;
}

/* How often the sum adds one of the parameter's slots. */
static int32_t adds(const struct program *p, const struct collective *g, const struct program_stage *s,
                    const struct program_parameter *x)
{
    int32_t n = 0;
    for (int32_t m = 0; m < g->n_members; m++)
        for (int32_t i = 0; &p->stages[g->members[m].stage] == s && i < g->members[m].n_segments; i++)
            n += s->slots[g->members[m].segments[i]].parameter == (int32_t)(x - s->parameters);
    return n;
}

START_TEST(every_parameter_is_exchanged_once_in_a_period)
{
    for (int32_t fragments = 1; fragments <= 5; fragments++)
        for (int32_t delay = 0; delay < 3; delay++)
            for (int32_t n_stages = 1; n_stages <= 2; n_stages++) {
                struct plan plan = islands(2, n_stages, fragments, delay);
                const struct program *p = plans_lower(arena, &plan, true);
                plans_read_back(arena, p);
                for (int32_t s = 0; s < p->n_stages; s++)
                    for (int32_t i = 0; i < p->stages[s].n_parameters; i++) {
                        const struct program_stage *x = &p->stages[s];
                        const struct program_parameter *q = &x->parameters[i];
                        /* of two stages with a tied parameter the first one adds its changes */
                        bool second = n_stages > 1 && x->stage == 1 && !strcmp(q->name, p->stages[0].parameters[0].name);
                        int32_t n = 0, sum = -1;
                        for (int32_t step = 3 * EVERY; step < 4 * EVERY; step++) {
                            if (!started(x, step, &sum)) continue;
                            int32_t more = adds(p, &p->collectives[sum], x, q);
                            if (more) ck_assert_int_eq((step + 1) % EVERY, period_first(&p->outer, q->fragment) % EVERY);
                            n += more;
                        }
                        ck_assert_int_eq(n, !second);
                    }
            }
}
END_TEST

START_TEST(without_fragments_and_delay_the_program_is_the_one_without_the_keys)
{
    struct plan plan = islands(2, 2, 1, 0);
    const struct program *p = plans_lower(arena, &plan, true);
    for (int32_t s = 0; s < p->n_stages; s++) {
        const struct program_stage *x = &p->stages[s];
        int32_t delta = program_procedure(x, PHASE_U, "delta"), outer = program_procedure(x, PHASE_U, "outer");
        ck_assert(delta >= 0 && outer == delta + 1 && outer == x->n_procedures - 1);
        ck_assert(x->procedures[delta].period == EVERY && x->procedures[delta].offset == EVERY);
        ck_assert(x->procedures[outer].period == EVERY && x->procedures[outer].offset == EVERY);
        for (int32_t i = 0; i < x->n_parameters; i++) ck_assert(x->parameters[i].outer[0] && !x->parameters[i].outer[2]);
        ck_assert_int_eq(program_procedure(x, PHASE_U, "sum"), -1);
    }
}
END_TEST

START_TEST(the_steps_of_a_period_that_are_simulated_stand_for_all)
{
    for (int32_t fragments = 1; fragments <= 4; fragments++)
        for (int32_t delay = 0; delay < 5; delay++)
            for (int32_t every = delay > fragments ? delay + 1 : fragments + 1; every < 60; every += 7) {
                struct outer_optimizer o = {.every = every, .fragments = fragments, .delay = delay};
                struct period x, whole;
                int32_t sum = 0;
                period_make(arena, &o, false, &x), period_make(arena, &o, true, &whole);
                ck_assert_int_eq(whole.n, every);
                for (int32_t i = 0; i < x.n; i++) {
                    ck_assert_int_eq(x.step[i], sum);
                    sum += x.times[i];
                }
                ck_assert_int_eq(sum, every);
                ck_assert_int_le(x.n, (fragments + 1) * (delay + 4));
                for (int32_t i = 0; i < x.n; i++) /* an exchange is never left out */
                    for (int32_t f = 0; f < fragments; f++)
                        ck_assert(x.times[i] == 1 || !period_in_flight(&o, f, 5 * every + x.step[i] + x.times[i]) || !delay);
            }
}
END_TEST

/* The islands' numbers of updates. */
static struct plan unequal(struct plan p, const int32_t *updates)
{
    p.local_sgd.outer.n_updates = p.local_sgd.n_islands, p.local_sgd.outer.updates = updates;
    return p;
}

START_TEST(a_slower_island_updates_in_some_steps)
{
    static const int32_t updates[][2] = {{EVERY, EVERY / 2}, {EVERY / 3, EVERY}, {EVERY, 1}};
    for (int k = 0; k < 3; k++)
        for (int32_t n_stages = 1; n_stages <= 2; n_stages++) {
            struct plan plan = unequal(islands(2, n_stages, 1, 0), updates[k]);
            const struct program *p = plans_lower(arena, &plan, true);
            plans_read_back(arena, p);
            for (int32_t s = 0; s < p->n_stages; s++) {
                const struct program_stage *x = &p->stages[s];
                const struct procedure *u = &x->procedures[program_procedure(x, PHASE_U, "")];
                int32_t n = 0;
                for (int32_t step = 5 * EVERY; step < 6 * EVERY; step++) n += procedure_runs(u, step);
                ck_assert_int_eq(n, updates[k][x->island]);
                ck_assert(procedure_runs(u, 6 * EVERY - 1)); /* in front of an exchange */
                ck_assert_int_eq(period_of_update(&p->outer, x->island), EVERY / n);
            }
            /* a file whose stage updates in other steps than its island is refused */
            p->stages[0].procedures[program_procedure(&p->stages[0], PHASE_U, "")].period++;
            ck_assert(program_check(arena, p, &err) == ERR_INPUT && strstr(err.text, "its island updates in every"));
        }
}
END_TEST

START_TEST(steps_of_unequal_islands_that_are_simulated_stand_for_all)
{
    static const int32_t updates[][3] = {{60, 30, 60}, {60, 20, 30}, {60, 12, 15}, {60, 60, 1}};
    static const int32_t cycles[] = {2, 6, 20, 60}, most[] = {6, 14, 42, 60};
    for (int k = 0; k < 4; k++) {
        struct outer_optimizer o = {.every = 60, .fragments = 1, .n_updates = 3, .updates = updates[k]};
        struct period x;
        int32_t sum = 0, in[3] = {0};
        period_make(arena, &o, false, &x);
        ck_assert_int_eq(period_cycle(&o), cycles[k]);
        ck_assert_int_le(x.n, most[k]);
        for (int32_t i = 0; i < x.n; i++) {
            sum += x.times[i];
            ck_assert(!i || x.step[i] > x.step[i - 1]);
            for (int32_t j = 0; j < 3; j++) in[j] += (x.step[i] + 1) % period_of_update(&o, j) ? 0 : x.times[i];
        }
        ck_assert_int_eq(sum, 60); /* and every island has its number of updates */
        for (int32_t j = 0; j < 3; j++) ck_assert_int_eq(in[j], updates[k][j]);
    }
}
END_TEST

/* --- time --- */

static struct sim_result simulated(struct plan *plan, const struct program *p)
{
    struct sim_result r;
    struct sim_options o = {.detail = SIM_OPERATOR, .keep_trace = true, .steps = 3 * EVERY};
    struct profile *profile = ARENA_ARRAY(arena, struct profile, 1);
    ck_assert_msg(profile_prior(arena, &plan->cluster, profile, &err) == OK, "%s", err.text);
    struct cost *k = cost_new(arena, profile, &plan->cluster);
    ck_assert_msg(sim_run(arena, p, k, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Bytes of parameters of the fragment on device 0's stage. */
static int64_t fragment_bytes(const struct program *p, int32_t fragment)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < p->stages[0].n_parameters; i++)
        if (p->stages[0].parameters[i].fragment == fragment)
            bytes += shape_elements(&p->stages[0].parameters[i].shape) * dtype_bytes(p->dtype);
    return bytes;
}

/* Two islands on a slow link: a ring all-reduce of E bytes is two steps of E / 2 bytes each. */
START_TEST(a_fragment_takes_its_part_of_the_time_of_all)
{
    const double bandwidth = 1e3, latency = 1e-3;
    int64_t whole = 0;
    for (int32_t fragments = 1; fragments <= 4; fragments += 3) {
        struct plan plan = islands(2, 1, fragments, 0);
        plan.cluster.links[0].bandwidth_Bps = bandwidth, plan.cluster.links[0].latency_s = latency;
        const struct program *p = plans_lower(arena, &plan, true);
        struct sim_result r = simulated(&plan, p);
        int64_t sum = 0, peak = 0;
        for (int32_t f = 0; f < fragments; f++) {
            int32_t step = 2 * EVERY + period_first(&p->outer, f) - 1;
            int64_t bytes = 0, begin = INT64_MAX, end = 0;
            for (size_t i = 0; i < r.trace->n_spans; i++) {
                const struct span *s = &r.trace->spans[i];
                if (s->kind != SPAN_REDUCE || s->device != 0 || s->step != step) continue;
                bytes += s->bytes;
                if (s->begin_ns < begin) begin = s->begin_ns;
                if (s->end_ns > end) end = s->end_ns;
            }
            double expected = 2 * (latency + (double)fragment_bytes(p, f) / 2 / bandwidth) * 1e9;
            ck_assert_int_eq(bytes, fragment_bytes(p, f));
            ck_assert_double_eq_tol((double)(end - begin) / expected, 1, 1e-9);
            sum += bytes;
            if (bytes > peak) peak = bytes;
        }
        if (fragments == 1) whole = peak;
        ck_assert_int_eq(sum, whole); /* every byte once … */
        ck_assert_int_le(peak, whole / fragments * 5 / 4); /* … and about as many in each turn */
    }
}
END_TEST

static int64_t iteration(int32_t fragments, int32_t delay, double bandwidth)
{
    struct plan plan = islands(2, 1, fragments, delay);
    plan.cluster.links[0].bandwidth_Bps = bandwidth;
    return simulated(&plan, plans_lower(arena, &plan, true)).iteration_ns;
}

/* At which the sum of all parameters, of two islands, takes so many seconds. */
static double bandwidth_for(double seconds)
{
    struct plan plan = islands(2, 1, 1, 0);
    return (double)fragment_bytes(plans_lower(arena, &plan, true), 0) / seconds;
}

START_TEST(a_delay_hides_the_exchange)
{
    for (int32_t fragments = 1; fragments <= 3; fragments++) {
        int64_t none = iteration(fragments, 3, 1e15);
        double fits = bandwidth_for(2.5 * 1e-9 * (double)none), slow = bandwidth_for(10 * 1e-9 * (double)none);
        ck_assert_int_eq(iteration(fragments, 3, fits), none);
        int64_t seen = iteration(fragments, 0, fits), least = none + (int64_t)(2.4 / EVERY * (double)none);
        ck_assert_int_gt(seen, least);
        ck_assert_int_gt(iteration(fragments, 3, slow), none);
    }
}
END_TEST

/* With the steps between two exchanges left out the iteration is that of all steps, to the rounding of a nanosecond. */
START_TEST(a_simulation_of_some_steps_equals_that_of_all)
{
    for (int32_t fragments = 1; fragments <= 2; fragments++)
        for (int32_t delay = 0; delay <= 2; delay++) {
            struct plan plan = islands(2, 1, fragments, delay);
            const struct program *p = plans_lower(arena, &plan, true);
            struct profile *profile = ARENA_ARRAY(arena, struct profile, 1);
            ck_assert_msg(profile_prior(arena, &plan.cluster, profile, &err) == OK, "%s", err.text);
            struct cost *k = cost_new(arena, profile, &plan.cluster);
            struct sim_result r;
            struct sim_options o = {.detail = SIM_OPERATOR, .keep_trace = true};
            ck_assert_msg(sim_run(arena, p, k, &o, &r, &err) == OK, "%s", err.text);
            struct sim_result all = simulated(&plan, p);
            int64_t d = r.iteration_ns - all.iteration_ns;
            ck_assert(d >= -1 && d <= 1);
            if (fragments == 1) ck_assert_int_lt(r.period, EVERY);
            /* and so is what devices do in a period */
            struct stats some_did, all_did;
            stats_of_trace(arena, r.trace, &some_did), stats_of_trace(arena, all.trace, &all_did);
            ck_assert(llabs(some_did.window_ns - all_did.window_ns) <= EVERY);
            ck_assert(llabs(some_did.window_ns - EVERY * all.iteration_ns) <= EVERY);
            ck_assert(llabs(some_did.devices[0].busy_ns - all_did.devices[0].busy_ns) <= EVERY);
            ck_assert(llabs(some_did.devices[0].idle_collective_ns - all_did.devices[0].idle_collective_ns) <= EVERY);
        }
}
END_TEST

/* Of the device's operators in one of these steps, by whether they are of updates. */
static int64_t busy(const struct sim_result *r, int32_t device, int32_t step, bool updates)
{
    int64_t ns = 0;
    for (size_t i = 0; i < r->trace->n_spans; i++) {
        const struct span *s = &r->trace->spans[i];
        if (s->kind == SPAN_COMPUTE && s->device == device && s->step == step && (s->phase == PHASE_U) == updates) ns += s->end_ns - s->begin_ns;
    }
    return ns;
}

/* Islands of one device do not wait for each other between two exchanges. The period is the longest of H steps and H_i updates, and
 * the exchange: changes, a ring all-reduce of two members, the outer step. */
START_TEST(a_period_of_unequal_islands_has_its_closed_form)
{
    static const int32_t updates[][2] = {{EVERY, EVERY / 2}, {EVERY, EVERY / 4}, {EVERY / 3, EVERY}, {EVERY, EVERY}};
    const double bandwidth = 1e6, latency = 1e-3;
    for (int k = 0; k < 4; k++)
        for (int32_t second = 1; second <= MICROBATCHES; second += 3) {
            struct plan plan = unequal(islands(2, 1, 1, 0), updates[k]);
            plan.job.global_batch -= (MICROBATCHES - second) * plan.microbatch, plan.replicas[1].microbatches = second;
            plan.cluster.links[0].bandwidth_Bps = bandwidth, plan.cluster.links[0].latency_s = latency;
            const struct program *p = plans_lower(arena, &plan, true);
            struct sim_result r = simulated(&plan, p);
            double expected = 0, exchange = 2 * (latency + (double)fragment_bytes(p, 0) / 2 / bandwidth) * 1e9;
            for (int32_t d = 0; d < 2; d++) {
                int32_t steps = EVERY / updates[k][d], last = EVERY - 1;
                int64_t step = busy(&r, d, EVERY, false), update = busy(&r, d, EVERY + steps - 1, true);
                if (steps == EVERY) update = 0; /* all of them together, below */
                int64_t both = busy(&r, d, EVERY + last, true) - update; /* changes and outer step */
                double own = (double)(EVERY * step + updates[k][d] * update + both);
                if (own > expected) expected = own;
                ck_assert_int_eq(busy(&r, d, EVERY + last, false), step);
                if (steps > 1) ck_assert_int_eq(busy(&r, d, EVERY, true), 0);
            }
            ck_assert_double_eq_tol((double)r.iteration_ns * EVERY / (expected + exchange), 1, EVERY / expected);
            struct sim_options some = {.detail = SIM_OPERATOR};
            struct profile *profile = ARENA_ARRAY(arena, struct profile, 1);
            ck_assert_msg(profile_prior(arena, &plan.cluster, profile, &err) == OK, "%s", err.text);
            struct sim_result few;
            ck_assert_msg(sim_run(arena, p, cost_new(arena, profile, &plan.cluster), &some, &few, &err) == OK, "%s", err.text);
            ck_assert(llabs(few.iteration_ns - r.iteration_ns) <= 1);
            ck_assert(few.period <= r.period);
        }
}
END_TEST

Suite *local_sgd_suite(void)
{
    Suite *s = suite_create("local_sgd");
    TCase *t = tcase_create("local_sgd");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, every_parameter_is_exchanged_once_in_a_period);
    tcase_add_test(t, without_fragments_and_delay_the_program_is_the_one_without_the_keys);
    tcase_add_test(t, the_steps_of_a_period_that_are_simulated_stand_for_all);
    tcase_add_test(t, a_fragment_takes_its_part_of_the_time_of_all);
    tcase_add_test(t, a_slower_island_updates_in_some_steps);
    tcase_add_test(t, steps_of_unequal_islands_that_are_simulated_stand_for_all);
    tcase_add_test(t, a_period_of_unequal_islands_has_its_closed_form);
    tcase_add_test(t, a_delay_hides_the_exchange);
    tcase_add_test(t, a_simulation_of_some_steps_equals_that_of_all);
    suite_add_tcase(s, t);
    return s;
}
