/* Pipelines without a flush (weight_versions: 2, PipeDream-2BW): their orders and slots as lowered, and their simulated time beside closed
 * forms. That they train as their formula states is checked by tests/exec/test_weight_versions.c and tests/cli/weight_versions.sh. */
#include "core/plan/plan.h"
#include "sim/engine/sim.h"
#include "sim/explain/explain.h"

#include "tests/support/pipelines.h"
#include "tests/support/plans.h"

#include <math.h>
#include <stdlib.h>

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

/* --- time --- */

static struct pipes uniform(int32_t n, int32_t microbatches, bool without_flush)
{
    struct pipes in = {.n_stages = n, .microbatches = microbatches, .without_flush = without_flush};
    for (int32_t s = 0; s < n; s++) in.forward_ns[s] = 3000, in.backward_ns[s] = 5000, in.update_ns[s] = 700;
    return in;
}

START_TEST(uniform_stages_have_no_bubble)
{
    for (int32_t p = 1; p <= 8; p++)
        for (int32_t m = p; m <= 3 * p + 2; m++)
            for (int32_t steps = 4; steps <= 7; steps += 3) {
                int64_t step = m * 8000 + 700, fill = (p - 1) * 8000;
                struct pipes in = uniform(p, m, true), flushed = uniform(p, m, false);
                struct sim_result r = pipes_run(pipes_make(arena, &in), steps, false), f = pipes_run(pipes_make(arena, &flushed), steps, false);
                ck_assert_int_eq(r.iteration_ns, step);
                ck_assert_int_eq(r.makespan_ns, fill + steps * step);
                ck_assert_int_eq(f.iteration_ns, fill + step);
                for (int32_t s = 0; s < p; s++) ck_assert(!r.devices[s].idle_ns && r.devices[s].busy_ns == step);
            }
}
END_TEST

/* Messages of c each way: a microbatch is away from stage s for (p - s)(F + B) + 2 c (p - 1 - s), during which 2 (p - s) - 1 are in flight. */
START_TEST(twice_the_forwards_in_flight_hide_messages_up_to_half_a_microbatch)
{
    for (int32_t p = 2; p <= 6; p++)
        for (int64_t c = 1000; c <= 4000; c += 1000) {
            int32_t m = 2 * p;
            struct pipes in = uniform(p, m, true), few = uniform(p, m, true);
            for (int32_t s = 0; s < p; s++) in.warmup[s] = 2 * (p - s) - 1, in.latency_ns[s] = few.latency_ns[s] = c;
            ck_assert_int_eq(pipes_run(pipes_make(arena, &in), 8, false).iteration_ns, m * 8000 + 700);
            ck_assert_int_gt(pipes_run(pipes_make(arena, &few), 8, false).iteration_ns, m * 8000 + 700);
        }
}
END_TEST

START_TEST(the_slowest_stage_never_waits)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct plans_random r = {seed, 0};
        int32_t p = 2 + plans_below(&r, 5), m = p + plans_below(&r, 10);
        struct pipes in = {.n_stages = p, .microbatches = m, .without_flush = true};
        int64_t most = 0;
        for (int32_t s = 0; s < p; s++) {
            in.forward_ns[s] = 100 + plans_below(&r, 1000), in.backward_ns[s] = 100 + plans_below(&r, 2000);
            if (in.forward_ns[s] + in.backward_ns[s] > most) most = in.forward_ns[s] + in.backward_ns[s];
        }
        struct pipes flushed = in;
        flushed.without_flush = false;
        int64_t ns = pipes_run(pipes_make(arena, &in), 12, false).iteration_ns;
        ck_assert_int_eq(pipes_run(pipes_make(arena, &in), 0, false).iteration_ns, ns); /* in as many steps as a simulation takes by itself */
        ck_assert_msg(ns == m * most, "seed %d: %d ns, the slowest stage computes %d", (int)seed, (int)ns, (int)(m * most));
        ck_assert_int_ge(pipes_run(pipes_make(arena, &flushed), 12, false).iteration_ns, ns);
    }
}
END_TEST

/* Messages that the forwards in flight do not hide: steps differ, with a period of several of them. */
static struct pipes slow_links(uint64_t seed)
{
    struct plans_random r = {seed, 0};
    int32_t p = 2 + plans_below(&r, 5), m = p + plans_below(&r, 10);
    struct pipes in = {.n_stages = p, .microbatches = m, .without_flush = true, .ahead = 2};
    for (int32_t s = 0; s < p; s++) {
        in.forward_ns[s] = 100 + plans_below(&r, 1000), in.backward_ns[s] = 100 + plans_below(&r, 2000), in.update_ns[s] = plans_below(&r, 500);
        in.latency_ns[s] = plans_below(&r, 1500), in.transfer_ns[s] = plans_below(&r, 500);
    }
    return in;
}

START_TEST(an_iteration_is_the_mean_of_steps_that_differ)
{
    int32_t differ = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct pipes in = slow_links(seed);
        struct pipes_made *m = pipes_make(arena, &in);
        struct sim_result many = pipes_run(m, 200, true), r = pipes_run(m, 0, true);
        double mean = 0;
        for (int32_t s = 139; s < 199; s++) mean += (double)pipes_step_ns(many.trace, s) / 60;
        differ += pipes_step_ns(many.trace, 150) != pipes_step_ns(many.trace, 151);
        ck_assert_msg(fabs((double)r.iteration_ns / mean - 1) < 0.005, "seed %d: %d ns, %g", (int)seed, (int)r.iteration_ns, mean);
        /* and these steps are explained together */
        struct explain x;
        int64_t sum = 0;
        ck_assert_msg(explain_result(arena, &m->program, m->cost, &r, &x, &err) == OK, "%s", err.text);
        for (size_t i = 0; i < x.n_rows; i++) sum += x.rows[i].ns;
        ck_assert(sum == x.end_ns - x.begin_ns && llabs(sum - x.steps * r.iteration_ns) <= x.steps);
    }
    ck_assert_int_gt(differ, 20);
}
END_TEST

START_TEST(a_trace_has_every_step_once)
{
    struct pipes in = uniform(4, 6, true);
    struct sim_result r = pipes_run(pipes_make(arena, &in), 5, true);
    int32_t n[5][2] = {{0}}, in_front = 0;
    int64_t end = 0;
    for (size_t i = 0; i < r.trace->n_spans; i++)
        if (r.trace->spans[i].kind == SPAN_STEP && r.trace->spans[i].step == 1) end = r.trace->spans[i].end_ns;
    for (size_t i = 0; i < r.trace->n_spans; i++) {
        const struct span *s = &r.trace->spans[i];
        if (s->kind != SPAN_COMPUTE || s->phase == PHASE_U) continue;
        n[s->step][s->phase != PHASE_F]++;
        in_front += s->step == 2 && s->phase == PHASE_F && s->end_ns <= end;
    }
    for (int s = 0; s < 5; s++) ck_assert(n[s][0] == 4 * 6 && n[s][1] == 4 * 6);
    ck_assert_int_ge(in_front, 3 + 2 + 1);
}
END_TEST

/* The critical path fills the step, computes only, and the live memory is that of the forwards in flight. */
START_TEST(a_step_is_explained)
{
    for (int32_t p = 2; p <= 5; p++) {
        struct pipes in = uniform(p, 2 * p, true);
        in.kept_bytes = 4096;
        struct pipes_made *m = pipes_make(arena, &in);
        struct sim_result r = pipes_run(m, 6, true);
        struct explain x;
        int64_t sum = 0, held = 0;
        ck_assert_msg(explain_result(arena, &m->program, m->cost, &r, &x, &err) == OK, "%s", err.text);
        for (size_t i = 0; i < x.n_rows; i++) sum += x.rows[i].ns;
        for (size_t i = 0; i < x.n_memory_breakdown; i++) held += x.memory_breakdown[i].bytes;
        ck_assert_int_eq(x.iteration_ns, 2 * p * 8000 + 700);
        ck_assert_int_eq(sum, x.iteration_ns);
        ck_assert_int_eq(x.kind_ns[EXPLAIN_compute] + x.kind_ns[EXPLAIN_update], sum);
        ck_assert_int_eq(held, r.devices[x.fullest].peak_bytes);
        for (int32_t s = 0; s < p; s++) ck_assert_int_eq(r.devices[s].peak_bytes, 4096 * (p - s) + m->program.stages[s].reserve_bytes);
    }
}
END_TEST

/* --- lowered --- */

static struct plan without_flush(int32_t n_stages, int32_t n_replicas, int32_t microbatches)
{
    struct plan p = plans_new(arena, "gpt2", 3, n_stages * n_replicas);
    int32_t layers = plans_layers(arena, &p), last[4];
    for (int32_t s = 0; s < n_stages; s++) last[s] = (s + 1) * layers / n_stages - 1;
    for (int32_t r = 0; r < n_replicas; r++) plans_replica(arena, &p, microbatches, n_stages, last);
    p.weight_versions = 2;
    return p;
}

static bool overlap(const struct slot *x, const struct slot *y)
{
    return x->class == y->class && x->offset_bytes < y->offset_bytes + y->bytes && y->offset_bytes < x->offset_bytes + x->bytes;
}

/* Parameter slots that a procedure's operators read: bit 0 latest, bit 1 previous; written: the same << 2. */
static int versions_of(const struct program_stage *s, const struct procedure *f)
{
    int out = 0;
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind != INSTR_COMPUTE) continue;
        const struct program_op *op = &s->ops[f->instrs[i].arg];
        for (int32_t q = 0; q < s->n_parameters; q++) {
            const struct slot *both[2] = {&s->slots[s->parameters[q].slot], &s->slots[s->parameters[q].previous - 1]};
            for (int v = 0; v < 2; v++) {
                for (int32_t k = 0; k < op->n_inputs; k++) out |= overlap(&s->slots[op->input[k]], both[v]) << v;
                for (int32_t k = 0; k < op->n_outputs; k++) out |= overlap(&s->slots[op->output[k]], both[v]) << (2 + v);
            }
        }
    }
    return out;
}

START_TEST(calls_read_the_previous_version_and_those_ahead_the_latest)
{
    for (int fused = 0; fused < 2; fused++)
        for (int32_t n_stages = 1; n_stages <= 4; n_stages++)
            for (int half = 0; half < 2; half++) {
                struct plan plan = without_flush(n_stages, 1, 5), sync = plan;
                plan.job.precision = sync.job.precision = half ? DTYPE_bf16 : DTYPE_fp32;
                sync.weight_versions = 1;
                const struct program *p = plans_lower(arena, &plan, fused), *q = plans_lower(arena, &sync, fused);
                plans_read_back(arena, p);
                for (int32_t i = 0; i < p->n_stages; i++) {
                    const struct program_stage *s = &p->stages[i];
                    int32_t ahead = program_procedure(s, PHASE_F, "ahead");
                    ck_assert((ahead >= 0) == (i + 1 < n_stages));
                    for (int32_t k = 0; k < s->n_procedures; k++) {
                        int seen = versions_of(s, &s->procedures[k]);
                        ck_assert_int_eq(seen, s->procedures[k].phase == PHASE_U ? 1 | 4 | 8 : k == ahead ? 1 : 2);
                    }
                    for (int32_t k = 0; k < s->n_parameters; k++) {
                        const struct slot *a = &s->slots[s->parameters[k].slot], *b = &s->slots[s->parameters[k].previous - 1];
                        ck_assert(a->dtype == b->dtype && a->bytes == b->bytes && !overlap(a, b));
                    }
                    ck_assert_int_eq(s->class_bytes[SLOT_PARAMETER], 2 * q->stages[i].class_bytes[SLOT_PARAMETER]);
                    ck_assert_int_eq(s->class_bytes[SLOT_STATE], q->stages[i].class_bytes[SLOT_STATE]);
                    ck_assert_int_eq(s->class_bytes[SLOT_GRADIENT], q->stages[i].class_bytes[SLOT_GRADIENT]);
                    for (int32_t r = 0; r < s->n_buffer_rings; r++)
                        if (s->buffer_rings[r].birth == PHASE_F && s->buffer_rings[r].death == PHASE_B)
                            ck_assert_int_eq(s->buffer_rings[r].count, n_stages - i); /* the forwards in flight */
                }
            }
}
END_TEST

/* Of a lane: F of microbatches below w - 1 are ahead, B follows the F in order, and the update is last. */
START_TEST(random_plans_have_no_deadlock)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct plan plan = plans_random_cut(arena, seed, LAYERS_DEFAULT);
        bool whole = true;
        for (int32_t r = 0; r < plan.n_replicas; r++) {
            plan.replicas[r].schedule = NULL, plan.replicas[r].orders = NULL;
            for (int32_t s = 0; s < plan.replicas[r].n_stages; s++) {
                struct plan_stage *x = &plan.replicas[r].stages[s];
                x->order = NULL, x->zero = 0, whole &= x->n_shards == 0;
            }
        }
        if (!whole) continue;
        plan.weight_versions = 2;
        struct program p;
        struct lower_options o = {0};
        struct error why = {0};
        enum status status = lower_plan(arena, &plan, &o, &p, &why);
        ck_assert_msg(status == OK, "seed %d: %s", (int)seed, why.text);
        plans_read_back(arena, &p);
    }
}
END_TEST

static void refused(struct plan p, const char *text)
{
    struct error why = {0};
    ck_assert_int_eq(plans_refused(arena, &p, &why), ERR_INPUT);
    ck_assert_msg(strstr(why.text, text) && strstr(why.text, "weight_versions"), "'%s' in: %s", text, why.text);
}

START_TEST(what_it_excludes_is_named)
{
    struct plan p = without_flush(2, 2, 4);
    p.replicas[0].schedule = "1f1b", refused(p, "schedule"), p.replicas[0].schedule = NULL;
    p.replicas[1].stages[0].order = "F0 B0 F1 B1 F2 B2 F3 B3", refused(p, "order"), p.replicas[1].stages[0].order = NULL;
    for (int r = 0; r < 2; r++) p.replicas[r].stages[1].zero = 1;
    refused(p, "zero: 0");
    for (int r = 0; r < 2; r++) p.replicas[r].stages[1].zero = 0;
    p.local_sgd = (struct plan_local_sgd){.outer = {.every = 4, .fragments = 1}, .n_islands = 2, .island = (int32_t[]){0, 1}};
    refused(p, "local_sgd");
    p.local_sgd = (struct plan_local_sgd){0};
    p.compression.forward.kind = COMPRESSION_BF16, refused(p, "compression.pipeline"), p.compression.forward.kind = COMPRESSION_NONE;
    (void)plans_lower(arena, &p, true);
}
END_TEST

Suite *weight_versions_suite(void)
{
    TCase *t = tcase_create("weight_versions");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, uniform_stages_have_no_bubble);
    tcase_add_test(t, twice_the_forwards_in_flight_hide_messages_up_to_half_a_microbatch);
    tcase_add_test(t, the_slowest_stage_never_waits);
    tcase_add_test(t, a_trace_has_every_step_once);
    tcase_add_test(t, an_iteration_is_the_mean_of_steps_that_differ);
    tcase_add_test(t, a_step_is_explained);
    tcase_add_test(t, calls_read_the_previous_version_and_those_ahead_the_latest);
    tcase_add_test(t, random_plans_have_no_deadlock);
    tcase_add_test(t, what_it_excludes_is_named);
    Suite *s = suite_create("weight_versions");
    suite_add_tcase(s, t);
    return s;
}
