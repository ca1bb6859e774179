/* Both levels of detail of the simulator, for devices that share stages. */
#include "core/base/rng.h"
#include "tests/support/hybrid.h"
#include "tests/support/plans.h"

#include <math.h>

static struct arena *arena;
#define DRAW(low, high)                                                                            \
    ((low) + (int64_t)rng_below(7, seed, draws++, (uint64_t)((high) - (low) + 1)))

/* One draw per statement, because the evaluation order within a statement is unspecified. */
static struct hybrid draw_hybrid(uint64_t seed, int32_t members, int32_t replicas)
{
    uint64_t draws = 1000; /* apart from the callers' own */
    struct hybrid h = {0};
    h.tensor = (int32_t)DRAW(1, members);
    h.pipeline = (int32_t)DRAW(1, 4);
    h.data = (int32_t)DRAW(1, replicas);
    h.microbatches = (int32_t)DRAW(1, 8);
    h.layers = (int32_t)DRAW(1, 3);
    h.ops = 2 * (int32_t)DRAW(1, 3);
    h.forward_ns = DRAW(0, 100);
    h.backward_ns = DRAW(0, 200);
    h.update_ns = DRAW(0, 50);
    h.transfer_bytes = DRAW(0, 300);
    h.collective_elements = DRAW(0, 40);
    h.gradient_elements = DRAW(0, 250);
    h.latency_ns = DRAW(0, 20);
    return h;
}

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct sim_result run(struct hybrid_made *m, enum sim_detail detail, const double *slow,
                             int32_t steps, bool trace)
{
    struct sim_scale scale = {.device = slow};
    struct sim_options o = {.steps = steps, .detail = detail, .scale = &scale, .keep_trace = trace};
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(m->arena, &m->program, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Two devices that share one stage of one layer. */
static struct hybrid pair(void)
{
    return (struct hybrid){.tensor = 2,
                           .pipeline = 1,
                           .data = 1,
                           .microbatches = 1,
                           .layers = 1,
                           .ops = 2,
                           .forward_ns = 10,
                           .backward_ns = 20,
                           .update_ns = 5,
                           .collective_elements = 8};
}

START_TEST(members_start_when_the_last_has_come_and_go_on_together)
{
    /* Two devices, one stage, one layer of two operators, F 10 B 20, collective: 8 elements of 4 B on two: chunks of 16 B
     * over 1 GB/s: 2 steps of 16 ns. Alike: F = 10 + 32 + 10 + 32, B = 20 + 32 + 20 + 32, U 5. */
    struct hybrid h = pair();
    double slow[2] = {1, 1.5};
    struct hybrid_made *m = hybrid_make(arena, &h);
    ck_assert_int_eq(run(m, SIM_OPERATOR, NULL, 1, false).makespan_ns, 84 + 104 + 5);
    /* One of them half as slow again: it sets the pace between collectives. Rounded: 5 · 1.5 = 8. */
    ck_assert_int_eq(run(m, SIM_OPERATOR, slow, 1, false).makespan_ns, 84 + 104 + 10 + 20 + 8);
    ck_assert_int_eq(run(m, SIM_STAGE, slow, 1, false).makespan_ns, 84 + 104 + 10 + 20 + 8);
}
END_TEST

START_TEST(stage_and_operator_detail_agree_to_the_nanosecond)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 2000 : 150); seed++) {
        uint64_t draws = 0;
        struct hybrid h = draw_hybrid(seed, 5, 3);
        double slow[64];
        for (int i = 0; i < 60; i++) slow[i] = 0.5 + (double)DRAW(0, 100) / 50;
        struct hybrid_made *m = hybrid_make(arena, &h);
        struct sim_result whole = run(m, SIM_OPERATOR, slow, 3, false),
                          stage = run(m, SIM_STAGE, slow, 3, false);
        struct sim_result traced = run(m, SIM_OPERATOR, slow, 3, true),
                          drawn = run(m, SIM_STAGE, slow, 3, true);
        ck_assert_int_eq(whole.makespan_ns, stage.makespan_ns);
        ck_assert_int_eq(whole.makespan_ns, traced.makespan_ns);
        ck_assert_int_eq(whole.makespan_ns, drawn.makespan_ns);
        ck_assert_int_le((int64_t)drawn.trace->n_spans, (int64_t)traced.trace->n_spans);
        ck_assert_int_eq(traced.operators, drawn.operators);
        for (int32_t i = 0; i < m->program.n_devices; i++) {
            ck_assert_int_eq(whole.devices[i].busy_ns, stage.devices[i].busy_ns);
            ck_assert_int_eq(whole.devices[i].peak_bytes, stage.devices[i].peak_bytes);
        }
        arena_reset(arena);
    }
}
END_TEST

static struct sim_result run_folded(struct hybrid_made *m, const double *slow)
{
    struct sim_scale scale = {.device = slow};
    struct sim_options o = {.steps = 3, .scale = &scale, .fold = true};
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(m->arena, &m->program, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Replicas, or members of a stage, or single devices, have speeds of their own, at random; chunks of rings are equal. */
START_TEST(devices_that_do_the_same_are_simulated_once_without_a_difference)
{
    int32_t fewer = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 200); seed++) {
        uint64_t draws = 0;
        struct hybrid h = draw_hybrid(seed, 4, 4);
        h.gradient_elements = h.gradient_elements / 12 * 12;
        double slow[64];
        int64_t by = DRAW(0, 4);
        for (int32_t i = 0; i < 64; i++) {
            int32_t of = by == 0   ? 0
                         : by == 1 ? i % h.tensor
                         : by == 2 ? i / (h.tensor * h.pipeline)
                         : by == 3 ? i / h.tensor % h.pipeline
                                   : i;
            slow[i] = 1 + 0.25 * (double)rng_below(8, seed, (uint64_t)of, 3);
        }
        struct hybrid_made *m = hybrid_make(arena, &h);
        struct sim_result whole = run(m, SIM_OPERATOR, slow, 3, false),
                          folded = run_folded(m, slow);
        ck_assert_int_eq(whole.makespan_ns, folded.makespan_ns);
        ck_assert_int_eq(whole.iteration_ns, folded.iteration_ns);
        for (int32_t i = 0; i < m->program.n_devices; i++) {
            ck_assert_int_eq(whole.devices[i].busy_ns, folded.devices[i].busy_ns);
            ck_assert_int_eq(whole.devices[i].peak_bytes, folded.devices[i].peak_bytes);
        }
        fewer += folded.operators < whole.operators;
        arena_reset(arena);
    }
    ck_assert_int_gt(fewer, 50);
}
END_TEST

START_TEST(a_member_that_never_comes_is_in_the_blocked_set)
{
    struct hybrid h = pair();
    struct hybrid_made *m = hybrid_make(arena, &h);
    struct procedure *f = &m->program.stages[1].procedures[0];
    f->n_instrs = 1; /* without its collectives */
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "deadlock: d0 at B0 (waits for collective collective)") != NULL, "%s",
                  err.text);
}
END_TEST

/* --- lowered plans --- */

/* One link per pair of devices; one in nine has a measured row that overrides the cluster's. */
static void link_all_pairs(struct cluster *c, struct profile *f, struct plans_random *r, bool alike)
{
    int32_t n = c->n_devices, k = 0;
    c->n_links = n * (n - 1) / 2;
    c->links = ARENA_ARRAY(arena, struct link, (size_t)c->n_links);
    f->links = ARENA_ARRAY(arena, struct link_row, (size_t)c->n_links);
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = i + 1; j < n; j++, k++) {
            c->links[k] = (struct link){.name = arena_printf(arena, "l%d-%d", (int)i, (int)j),
                                        .bandwidth_Bps = 1e9,
                                        .latency_s = 1e-6,
                                        .stated = true,
                                        .n_ends = 2,
                                        .kind = {END_DEVICE, END_DEVICE},
                                        .end = {i, j}};
            if (alike || plans_below(r, 9)) continue;
            int32_t kind = plans_below(r, 4);
            if (kind == 0) c->links[k].blocking = true;
            if (kind == 1) c->links[k].sharing = LINK_FAIR;
            if (kind == 2) c->links[k].half_duplex = true;
            if (kind == 3)
                f->links[f->n_links++] = (struct link_row){.name = c->links[k].name,
                                                           .model = {.latency_s = 3e-6,
                                                                     .bandwidth_Bps = 3e8,
                                                                     .max_bytes = INT64_MAX,
                                                                     .source = SOURCE_MEASURED}};
        }
}

/* Each device at a switch of its replica, these at one: all but the first hop is shared. One hop may block. */
static void link_by_switches(struct cluster *c, struct plans_random *r, int32_t per_switch)
{
    int32_t n = c->n_devices, leaves = (n + per_switch - 1) / per_switch;
    c->n_switches = leaves + 1;
    c->switches = ARENA_ARRAY(arena, const char *, (size_t)c->n_switches);
    c->n_links = n + leaves;
    c->links = ARENA_ARRAY(arena, struct link, (size_t)c->n_links);
    for (int32_t i = 0; i <= leaves; i++) c->switches[i] = arena_printf(arena, "s%d", (int)i);
    for (int32_t i = 0; i < c->n_links; i++)
        c->links[i] = (struct link){.name = arena_printf(arena, "p%d", (int)i),
                                    .bandwidth_Bps = 1e8 * (1 + plans_below(r, 20)),
                                    .latency_s = 1e-6 * plans_below(r, 3),
                                    .stated = true,
                                    .blocking = plans_below(r, 20) == 0,
                                    .n_ends = 2,
                                    .kind = {i < n ? END_DEVICE : END_SWITCH, END_SWITCH},
                                    .end = {i < n ? i : i - n, i < n ? i / per_switch : leaves}};
}

struct lowered {
    struct program *program;
    struct profile profile;
    struct plan plan;
    struct cost *cost;
};

/* Replicas of one shape, some with chunks; with `alike`, no two devices of equal rank differ. */
static struct lowered *lowered_make(uint64_t seed, bool alike, bool switches)
{
    struct plans_random r = {seed, 5000};
    struct lowered *m = ARENA_ARRAY(arena, struct lowered, 1);
    struct plan one = plans_random_any(arena, seed);
    const struct plan_replica *shape = &one.replicas[0];
    int32_t n_replicas = 1 << plans_below(&r, 3), devices = shape->n_stages;
    m->plan = one;
    m->plan.deterministic &= !alike; /* chains are not folded */
    m->plan.job.global_batch = 0;
    m->plan.n_replicas = 0;
    m->plan.cluster = plans_cluster(arena, devices * n_replicas);
    m->plan.replicas = ARENA_ARRAY(arena, struct plan_replica, (size_t)n_replicas);
    m->profile.pace = 1;
    for (int32_t k = 0; k < n_replicas; k++) {
        struct plan_replica *x = &m->plan.replicas[m->plan.n_replicas++];
        *x = *shape;
        x->stages = ARENA_ARRAY(arena, struct plan_stage, (size_t)devices);
        for (int32_t s = 0; s < devices; s++) {
            x->stages[s] = shape->stages[s];
            x->stages[s].device += k * devices;
        }
        m->plan.job.global_batch += x->microbatches * m->plan.microbatch;
    }
    if (switches)
        link_by_switches(&m->plan.cluster, &r, devices);
    else
        link_all_pairs(&m->plan.cluster, &m->profile, &r, alike);
    m->program = plans_lower(arena, &m->plan, seed % 2);
    size_t capacity = 0;
    for (int32_t s = 0; s < m->program->n_stages; s++)
        for (int32_t i = 0; i < m->program->stages[s].n_ops; i++) {
            const struct program_op *op = &m->program->stages[s].ops[i];
            struct profile *f = &m->profile;
            if (op->kind == OP_message || profile_row(f, "type:plain", op->key)) continue;
            f->ops = arena_grow(arena, f->ops, f->n_ops, &capacity, sizeof *f->ops);
            f->ops[f->n_ops++] = (struct op_row){.base = "type:plain",
                                                 .key = op->key,
                                                 .kind = op->kind,
                                                 .text = op->name,
                                                 .samples = 1,
                                                 .seconds = 1e-6 * (double)(1 + op->key % 97),
                                                 .provenance = "profile"};
        }
    m->cost = cost_new(arena, &m->profile, &m->plan.cluster);
    return m;
}

static struct sim_result lowered_run(const struct lowered *m, struct sim_options o)
{
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(arena, m->program, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

static void same_result(const struct program *p, const struct sim_result *x,
                        const struct sim_result *y, uint64_t seed, const char *what)
{
    ck_assert_msg(x->makespan_ns == y->makespan_ns && x->iteration_ns == y->iteration_ns,
                  "%s, seed %lu: %ld, %ld ns", what, (unsigned long)seed, (long)x->makespan_ns,
                  (long)y->makespan_ns);
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct sim_device *a = &x->devices[i], *b = &y->devices[i];
        ck_assert_msg(a->busy_ns == b->busy_ns && a->peak_bytes == b->peak_bytes,
                      "%s, seed %lu, device %d: busy %ld, %ld ns, peak %ld, %ld B", what,
                      (unsigned long)seed, (int)i, (long)a->busy_ns, (long)b->busy_ns,
                      (long)a->peak_bytes, (long)b->peak_bytes);
    }
}

/* Upper bound for rings with unequal chunks: one more element in every step of every ring. */
static int64_t ring_slack(const struct program *p, int32_t steps)
{
    int64_t slack = 0;
    for (int32_t g = 0; g < p->n_collectives; g++)
        if (p->collectives[g].n_members > 1 &&
            p->collectives[g].elements % p->collectives[g].n_members)
            slack +=
                2 * (p->collectives[g].n_members - 1) * (dtype_bytes(p->collectives[g].dtype) + 1);
    return steps * slack;
}

START_TEST(lowered_plans_are_the_same_at_every_level_of_detail)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 10000 : 120); seed++) {
        struct lowered *m = lowered_make(seed, false, seed % 2);
        struct sim_result whole = lowered_run(m, (struct sim_options){.steps = 3});
        struct sim_result stage =
            lowered_run(m, (struct sim_options){.steps = 3, .detail = SIM_STAGE});
        struct sim_result traced =
            lowered_run(m, (struct sim_options){.steps = 3, .keep_trace = true});
        struct sim_result folded = lowered_run(m, (struct sim_options){.steps = 3, .fold = true});
        same_result(m->program, &whole, &stage, seed, "stage");
        /* A detected steady step ends the simulation; its last simulated step may be shorter (sim/engine/sim.h). */
        ck_assert_int_le(traced.makespan_ns, whole.makespan_ns);
        traced.makespan_ns = whole.makespan_ns;
        same_result(m->program, &whole, &traced, seed, "trace");
        if (!ring_slack(m->program, 3)) same_result(m->program, &whole, &folded, seed, "fold");
        ck_assert_int_ge(folded.makespan_ns, whole.makespan_ns);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(equal_replicas_of_lowered_plans_are_simulated_once)
{
    int32_t fewer = 0, several = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 4000 : 120); seed++) {
        struct lowered *m = lowered_make(seed, true, false);
        struct sim_result whole = lowered_run(m, (struct sim_options){.steps = 3}),
                          folded = lowered_run(m, (struct sim_options){.steps = 3, .fold = true});
        int64_t slack = ring_slack(m->program, 3);
        if (!slack) same_result(m->program, &whole, &folded, seed, "fold");
        ck_assert_int_ge(folded.makespan_ns, whole.makespan_ns);
        ck_assert_int_le(folded.makespan_ns, whole.makespan_ns + slack);
        several += m->plan.n_replicas > 1;
        fewer += folded.operators < whole.operators;
        arena_reset(arena);
    }
    ck_assert_msg(2 * fewer > several, "%d of %d", (int)fewer, (int)several);
}
END_TEST

START_TEST(a_link_that_was_measured_is_not_folded_with_one_that_is_only_stated)
{
    /* Two replicas of two stages, a link each pair, all stated alike: the second replica's own was measured. */
    struct plan p = plans_new(arena, "llama", 1, 4);
    int32_t layers = plans_layers(arena, &p);
    plans_replica(arena, &p, 2, 2, (const int32_t[]){0, layers - 1});
    plans_replica(arena, &p, 2, 2, (const int32_t[]){0, layers - 1});
    struct profile f;
    struct error err = {0};
    struct plans_random r = {1, 0};
    struct lowered m = {.plan = p};
    link_all_pairs(&m.plan.cluster, &m.profile, &r, true);
    ck_assert_msg(profile_prior(arena, &m.plan.cluster, &f, &err) == OK, "%s", err.text);
    f.links = m.profile.links, f.n_links = 1;
    f.links[0] = (struct link_row){
        .name = "l2-3",
        .model = {.bandwidth_Bps = 1e7, .max_bytes = INT64_MAX, .source = SOURCE_MEASURED}};
    m.program = plans_lower(arena, &m.plan, false);
    m.cost = cost_new(arena, &f, &m.plan.cluster);
    struct sim_result whole = lowered_run(&m, (struct sim_options){.steps = 3}),
                      folded = lowered_run(&m, (struct sim_options){.steps = 3, .fold = true});
    same_result(m.program, &whole, &folded, 0, "fold");
}
END_TEST

START_TEST(a_slowdown_of_nothing_changes_nothing)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 120); seed++) {
        struct lowered *m = lowered_make(seed, seed % 2, seed % 4 == 0);
        struct sim_result plain = lowered_run(m, (struct sim_options){.steps = 3});
        for (int32_t i = 0; i < m->program->n_links; i++)
            m->program->links[i].compute_slowdown = 1e-12;
        struct sim_result held = lowered_run(m, (struct sim_options){.steps = 3}),
                          stage =
                              lowered_run(m, (struct sim_options){.steps = 3, .detail = SIM_STAGE});
        same_result(m->program, &plain, &held, seed, "slowdown 0");
        same_result(m->program, &plain, &stage, seed, "slowdown 0, stage");
        arena_reset(arena);
    }
}
END_TEST

/* One channel or ring per link, so that no order can change: a slowed lane is later, and none is earlier. Folding changes
 * nothing, a trace only the rounding. */
START_TEST(slowed_operators_make_nobody_earlier)
{
    int32_t later = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 3000 : 100); seed++) {
        struct lowered *m = lowered_make(seed, true, false);
        struct sim_result plain = lowered_run(m, (struct sim_options){.steps = 3});
        double slowdown = seed % 5 ? 0.05 * (double)(1 + seed % 9) : INFINITY;
        for (int32_t i = 0; i < m->program->n_links; i++)
            m->program->links[i].compute_slowdown = slowdown;
        struct sim_result slow = lowered_run(m, (struct sim_options){.steps = 3}),
                          traced =
                              lowered_run(m, (struct sim_options){.steps = 3, .keep_trace = true}),
                          folded = lowered_run(m, (struct sim_options){.steps = 3, .fold = true});
        /* With a trace each operator ends at a whole nanosecond. */
        int64_t rounded = slow.operators / slow.steps + 1;
        ck_assert_int_ge(slow.iteration_ns, plain.iteration_ns);
        ck_assert_int_le(llabs(slow.iteration_ns - traced.iteration_ns), rounded);
        same_result(m->program, &slow, &folded, seed, "slowed");
        for (int32_t i = 0; i < m->program->n_devices; i++) {
            ck_assert_int_ge(slow.devices[i].busy_ns, plain.devices[i].busy_ns);
            ck_assert_int_le(llabs(slow.devices[i].busy_ns - traced.devices[i].busy_ns), rounded);
        }
        for (size_t i = 1; i < traced.trace->n_spans; i++) {
            const struct span *x = &traced.trace->spans[i - 1], *y = x + 1;
            if (x->device == y->device && x->stream == y->stream && x->stream == STREAM_compute)
                ck_assert_int_le(x->end_ns, y->begin_ns);
        }
        later += slow.iteration_ns > plain.iteration_ns;
        arena_reset(arena);
    }
    ck_assert_int_gt(later, 30);
}
END_TEST

START_TEST(collectives_of_years_are_refused_at_both_levels)
{
    /* Eighty collectives of nine years in one call: more than int64 nanoseconds hold. */
    struct hybrid h = pair();
    h.layers = 40, h.collective_elements = INT64_C(70000000000000000);
    struct hybrid_made *m = hybrid_make(arena, &h);
    for (int detail = SIM_OPERATOR; detail <= SIM_STAGE; detail++) {
        struct sim_options o = {.steps = 1, .detail = (enum sim_detail)detail};
        struct sim_result r;
        struct error err = {0};
        ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, "exceeds 73 years") != NULL, "%s", err.text);
    }
}
END_TEST

START_TEST(jitter_is_drawn_operator_by_operator_at_both_levels)
{
    struct hybrid h = {.tensor = 2,
                       .pipeline = 2,
                       .data = 2,
                       .microbatches = 3,
                       .layers = 2,
                       .ops = 4,
                       .forward_ns = 1000,
                       .backward_ns = 2000,
                       .update_ns = 500,
                       .transfer_bytes = 100,
                       .collective_elements = 8,
                       .gradient_elements = 12};
    struct hybrid_made *m = hybrid_make(arena, &h);
    struct jitter_type type = {.step_cv = 0.02, .call_cv = 0.03, .fitted = true};
    for (int i = 0; i < OP_KIND_COUNT; i++) type.own_cv[i] = 0.2;
    struct jitter_model model = {.n_types = 1,
                                 .n_links = m->cluster.n_links,
                                 .types = &type,
                                 .start_factor = 1,
                                 .link_cv = ARENA_ARRAY(arena, double, (size_t)m->cluster.n_links)};
    struct jitter *j;
    struct error err = {0};
    ck_assert_msg(jitter_new(arena, &m->program, &m->profile, &m->cluster, &model, 5, &j, &err) ==
                      OK,
                  "%s", err.text);
    struct sim_result r[3];
    for (int i = 0; i < 3; i++) {
        struct sim_options o = {.steps = 3, .jitter = jitter_sample(arena, j, 1)};
        o.detail = i == 1 ? SIM_STAGE : SIM_OPERATOR;
        o.fold = i == 2;
        ck_assert_msg(sim_run(arena, &m->program, m->cost, &o, &r[i], &err) == OK, "%s", err.text);
        same_result(&m->program, &r[0], &r[i], 0, "jitter");
    }
    ck_assert_int_ne(r[0].devices[0].busy_ns, r[0].devices[1].busy_ns);
}
END_TEST

Suite *detail_suite(void)
{
    Suite *s = suite_create("sim/levels of detail");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, members_start_when_the_last_has_come_and_go_on_together);
    tcase_add_test(t, stage_and_operator_detail_agree_to_the_nanosecond);
    tcase_add_test(t, devices_that_do_the_same_are_simulated_once_without_a_difference);
    tcase_add_test(t, lowered_plans_are_the_same_at_every_level_of_detail);
    tcase_add_test(t, a_slowdown_of_nothing_changes_nothing);
    tcase_add_test(t, slowed_operators_make_nobody_earlier);
    tcase_add_test(t, collectives_of_years_are_refused_at_both_levels);
    tcase_add_test(t, jitter_is_drawn_operator_by_operator_at_both_levels);
    tcase_add_test(t, equal_replicas_of_lowered_plans_are_simulated_once);
    tcase_add_test(t, a_link_that_was_measured_is_not_folded_with_one_that_is_only_stated);
    tcase_add_test(t, a_member_that_never_comes_is_in_the_blocked_set);
    suite_add_tcase(s, t);
    return s;
}
