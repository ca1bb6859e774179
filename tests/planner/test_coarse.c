/* The coarse search: classes of equal nodes, prices of groups, and plans against ones written by hand. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/sharding/shard.h"
#include "planner/candidate/group.h"
#include "planner/coarse/sample.h"
#include "planner/schedule/plan.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "sim/engine/sim.h"

#include "tests/support/coarse_rack.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <stdlib.h>
#include <string.h>

static struct arena *arena;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const struct coarse_need any = {0};

START_TEST(equal_nodes_are_a_class_wherever_their_links_are_stated)
{
    struct coarse_rack m;
    struct error err = {0};
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    ck_assert_msg(coarse_classes(&m.coarse, &err) == OK, "%s", err.text);
    ck_assert_int_eq(m.coarse.n_classes, 2);
    for (int k = 0; k < 2; k++) {
        const struct coarse_class *x = &m.coarse.classes[k];
        bool fast = !strcmp(m.cluster.types[x->type].name, "h");
        ck_assert_int_eq(x->n, fast ? 8 : 16);
        ck_assert_int_eq(x->per_node, 8);
        ck_assert_int_eq(x->n_degrees, 1 + 3 * GROUP_RULES_COUNT); /* 1, and 2, 4, 8 of each kind */
        for (int i = 0; i < x->n; i++)
            ck_assert_int_eq(m.cluster.devices[x->device[i]].type, x->type);
    }
    coarse_rack_end(&m);
}
END_TEST

/* A stage on a group takes, by the price of its type, what the simulation of such a plan takes. The prices are of microbatches of
 * one sequence, which positions and heads divide, and of four, which the batch divides too. */
static struct plan_stage lower_one_stage(struct coarse_rack *m, int32_t size, int32_t d, int32_t zero,
                                         struct program *out)
{
    struct error err = {0};
    const struct coarse_class *k = &m->coarse.classes[0];
    const struct space *s = &m->coarse.spaces[size];
    struct plan_stage stage = {.last_layer = s->n_layers - 1,
                               .device = k->device[0],
                               .n_shards = k->degree[d].n,
                               .devices = k->device,
                               .sharding = k->degree[d].sharding,
                               .zero = zero,
                               .receive_ahead = 2};
    struct plan_replica replica = {.microbatches = 1, .n_stages = 1, .stages = &stage};
    struct plan p = {.name = "one",
                     .microbatch = s->microbatch,
                     .steps = 1,
                     .n_replicas = 1,
                     .replicas = &replica,
                     .job = m->job,
                     .cluster = m->cluster};
    struct lower_options o = m->lower;
    o.check_memory = false;
    ck_assert_ptr_nonnull(stage.sharding);
    ck_assert_msg(lower_plan(arena, &p, &o, out, &err) == OK, "%s", err.text);
    return stage;
}

static void compare_prices(struct coarse_rack *m, int32_t size, int32_t d, double least, double most)
{
    struct error err = {0};
    const struct coarse_class *k = &m->coarse.classes[0];
    const struct space *s = &m->coarse.spaces[size];
    struct program program;
    struct sim_result r;
    struct plan_stage stage = lower_one_stage(m, size, d, 0, &program);
    ck_assert_msg(
        sim_run(arena, &program, m->coarse.cost, &(struct sim_options){.steps = 1}, &r, &err) == OK,
        "%s", err.text);
    /* the types of two kinds with equal rules are equal */
    ck_assert_int_eq(group_stage(s, &stage)->forward_ns,
                     space_stage_type(s, k->degree[d].type, 0, s->n_layers - 1)->forward_ns);
    double priced = (double)(group_stage_ns(s, &stage) + group_stage(s, &stage)->update_ns);
    ck_assert_msg(priced <= most * (double)r.makespan_ns && priced > least * (double)r.makespan_ns,
                  "%d GPUs, rules of kind %d: priced %.4g, simulated %.4g", (int)stage.n_shards,
                  (int)k->degree[d].kind, priced, (double)r.makespan_ns);
}

START_TEST(the_price_of_a_group_is_that_of_its_simulation)
{
    struct coarse_rack m;
    struct error err = {0};
    int32_t size = _i ? 2 : 0, compared = 0; /* one or four sequences */
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    m.job.global_batch = m.sizes[size];
    ck_assert_msg(coarse_classes(&m.coarse, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i <= size; i++) /* in the order of the search */
        ck_assert_msg(coarse_space(&m.coarse, i, &err) == OK, "%s", err.text);
    const struct coarse_class *k = &m.coarse.classes[0];
    for (int32_t d = 1; d < k->n_degrees; d++) {
        const struct coarse_degree *x = &k->degree[d];
        if (x->kind == GROUP_RULES_ANY) ck_assert(!x->usable || x->n <= m.sizes[size]);
        compared += x->usable;
        if (x->usable) compare_prices(&m, size, d, 0.85, 1.001);
    }
    ck_assert_int_ge(compared, _i ? 6 : 5); /* some are covered by others */
    coarse_rack_end(&m);
}
END_TEST

/* The messages of a round go up and down the bus, which has its bandwidth each way. Of rules that leave no parameter to add up in a ring. */
START_TEST(the_price_of_a_group_on_a_bus_is_that_of_its_simulation)
{
    struct coarse_rack m;
    struct error err = {0};
    int32_t compared = 0;
    coarse_rack_make(arena, &m,
                     texts_cluster(arena,
                                   "version: 1\nname: bus\ndevice_types: [{name: a, device: A100-SXM4-80}]\n"
                                   "nodes: [{name: n, devices: {type: a, count: 4}}]\n"
                                   "links: [{name: p, between: [n], bandwidth: 24 GB/s, latency: 2 us}]\n"),
                     coarse_rack_job);
    m.job.global_batch = 1;
    ck_assert_msg(coarse_classes(&m.coarse, &err) == OK, "%s", err.text);
    ck_assert_msg(coarse_space(&m.coarse, 0, &err) == OK, "%s", err.text);
    const struct coarse_class *k = &m.coarse.classes[0];
    for (int32_t d = 1; d < k->n_degrees; d++)
        if (k->degree[d].usable && k->degree[d].copies == 1) compare_prices(&m, 0, d, 0.98, 1.06), compared++;
    ck_assert_int_ge(compared, 2);
    coarse_rack_end(&m);
}
END_TEST

/* Of n GPUs that shard every parameter, each has about an n-th, of a mesh of two axes twice as much; other rules of microbatches of one
 * sequence keep them whole. */
START_TEST(sharded_parameters_take_a_share_of_the_memory)
{
    struct coarse_rack m;
    int32_t compared = 0;
    coarse_rack_priced(arena, &m);
    const struct space *s = &m.coarse.spaces[0];
    const struct coarse_class *k = &m.coarse.classes[0];
    int64_t whole = space_stage_type(s, k->type, 0, s->n_layers - 1)->state_bytes;
    for (int32_t d = 1; d < k->n_degrees; d++) {
        const struct coarse_degree *x = &k->degree[d];
        if (x->kind == GROUP_RULES_ANY || !x->sharding) continue;
        int64_t each = space_stage_type(s, x->type, 0, s->n_layers - 1)->state_bytes;
        if (x->kind == GROUP_RULES_PARAMETERS) ck_assert_int_lt(each, whole / x->n + whole / 100);
        if (x->kind == GROUP_RULES_MESH) {
            ck_assert_int_ge(x->n, 4);
            ck_assert_int_lt(llabs(each - 2 * whole / x->n), whole / 100);
        }
        if (x->kind == GROUP_RULES_UNBATCHED) ck_assert_int_gt(each, whole / x->n + whole / 100);
        compared++;
    }
    ck_assert_int_eq(compared, 8);
    coarse_rack_end(&m);
}
END_TEST

/* One replica: the GPUs of a stage that hold the same parameters divide their optimizer state. */
START_TEST(zero_divides_the_state_among_the_gpus_of_a_stage)
{
    struct coarse_rack m;
    int32_t divided = 0;
    coarse_rack_priced(arena, &m);
    m.job.global_batch = 1;
    const struct space *s = &m.coarse.spaces[0];
    const struct coarse_class *k = &m.coarse.classes[0];
    for (int32_t d = 1; d < k->n_degrees; d++) {
        const struct coarse_degree *x = &k->degree[d];
        struct program whole, shared;
        if (!x->usable) continue;
        (void)lower_one_stage(&m, 0, d, 0, &whole);
        (void)lower_one_stage(&m, 0, d, 1, &shared);
        int64_t bytes = program_lane_bytes(&whole, whole.stages[0].device) -
                        program_lane_bytes(&shared, shared.stages[0].device),
                state = space_stage_type(s, x->type, 0, s->n_layers - 1)->state_bytes,
                least = group_zero_bytes(s, x->type, 0, s->n_layers - 1, 1);
        ck_assert_msg(llabs(bytes - (state - least)) < state / 20, "%d GPUs, rules of kind %d: %lld of %lld bytes",
                      (int)x->n, (int)x->kind, (long long)bytes, (long long)(state - least));
        ck_assert_int_lt(llabs(state / x->copies - least), state / 50);
        divided += x->copies > 1;
    }
    ck_assert_int_gt(divided, 1);
    struct coarse_template t[4 * COARSE_TEMPLATE_LISTS];
    m.coarse.n_classes = 1; /* no other holders */
    int32_t n = coarse_templates(&m.coarse, 1, 1, 4, false, any, t), zero = 0;
    for (int32_t i = 0; i < n; i++) {
        const struct coarse_stage *y = &t[i].stages[0];
        zero += t[i].zero;
        if (t[i].zero) ck_assert_int_gt(m.coarse.classes[0].degree[y->degree].copies, 1);
    }
    ck_assert_int_gt(zero, 0);
    coarse_rack_end(&m);
}
END_TEST

/* Parameters that every GPU of a stage holds whole are added up in one ring; beside sharded ones their rings follow in turns. */
START_TEST(rings_of_a_stage_are_counted_by_runs_of_equally_sharded_parameters)
{
    struct coarse_rack m;
    coarse_rack_priced(arena, &m);
    const struct space *s = &m.coarse.spaces[0];
    const struct coarse_class *k = &m.coarse.classes[0];
    ck_assert_int_eq(group_rings(s, k->degree[0].type, 0, s->n_layers - 1), 1);
    for (int32_t d = 1; d < k->n_degrees; d++) {
        int32_t type = k->degree[d].type, all = group_rings(s, type, 0, s->n_layers - 1);
        if (!k->degree[d].usable) continue;
        if (k->degree[d].kind == GROUP_RULES_PARAMETERS) ck_assert_int_gt(all, s->n_layers / 2);
        ck_assert_int_le(group_rings(s, type, 2, 5), units_max(1, all));
    }
    coarse_rack_end(&m);
}
END_TEST

/* A stage may begin and end at any layer, by the rules of each kind. */
START_TEST(rules_suit_stages_of_any_layers)
{
    struct coarse_rack m;
    struct error err = {0};
    coarse_rack_priced(arena, &m);
    const struct space *s = &m.coarse.spaces[0];
    const struct coarse_class *k = &m.coarse.classes[0];
    for (int32_t d = 1; d < k->n_degrees; d++)
        for (int32_t end = 0; end + 1 < s->n_layers && k->degree[d].usable; end++) {
            struct shard_stage *x;
            ck_assert_msg(
                shard_stage_new(arena, s->whole, k->degree[d].sharding, 0, end, &x, &err) == OK,
                "%s", err.text);
            ck_assert_msg(shard_stage_new(arena, s->whole, k->degree[d].sharding, end + 1,
                                          s->n_layers - 1, &x, &err) == OK,
                          "%s", err.text);
        }
    coarse_rack_end(&m);
}
END_TEST

/* 128 microbatches: the time of all from 8 and 16 is that of their simulation. */
START_TEST(a_part_of_the_microbatches_gives_the_time_of_all)
{
    struct coarse_rack m;
    struct error err = {0};
    int64_t ns, whole;
    struct space s;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct plan p = coarse_rack_four_stages(arena, &m, 128, &s);
    ck_assert_msg(coarse_trial(&m.coarse, &s, &p, &ns, &err) == OK, "%s", err.text);
    ck_assert_msg(scorer_fit(m.context.scorer, &s, &p, &whole, &err) == OK, "%s", err.text);
    ck_assert_int_lt(whole, INT64_MAX);
    ck_assert_msg(llabs(ns - whole) <= whole / 200, "%lld, not %lld ns", (long long)ns,
                  (long long)whole);
    coarse_rack_end(&m);
}
END_TEST

/* Memory that lacks little: the stage recomputes few of its blocks, and takes little more time; both as priced. */
START_TEST(a_stage_recomputes_as_many_blocks_as_memory_requires)
{
    struct coarse_rack m;
    struct error err = {0};
    struct space s;
    int64_t ns[3]; /* nothing recomputed, some, all */
    enum status refusal;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct plan p = coarse_rack_four_stages(arena, &m, 16, &s);
    struct plan_stage *last = &p.replicas[0].stages[3]; /* with the head the largest */
    ck_assert_msg(scorer_run(m.context.scorer, &s, &p, &ns[0], &err) == OK, "%s", err.text);
    const struct program *program = scorer_last(m.context.scorer, &refusal);
    int64_t bytes = program_lane_bytes(program, last->device),
            ring = program->stages[program->n_stages - 1].class_bytes[SLOT_BUFFER_RING];
    int32_t blocks = layer_classes_blocks(s.classes, last->first_layer, last->last_layer);
    int64_t before = group_stage_ns(&s, last);
    m.cluster.types[m.coarse.classes[0].type].memory_bytes = bytes - ring / 8;
    ck_assert_msg(scorer_fit(m.context.scorer, &s, &p, &ns[1], &err) == OK, "%s", err.text);
    ck_assert_int_lt(ns[1], INT64_MAX);
    ck_assert_int_eq(last->recompute, RECOMPUTE_BLOCKS);
    ck_assert_int_ge(last->recompute_blocks, 1);
    ck_assert_int_le(last->recompute_blocks, 3);
    ck_assert_int_eq(group_stage_ns(&s, last) - before,
                     group_stage(&s, last)->recompute_ns / blocks * last->recompute_blocks);
    last->recompute_blocks = 0;
    ck_assert_int_eq(scorer_run(m.context.scorer, &s, &p, &ns[2], &err), OK);
    ck_assert_int_gt(ns[1], ns[0]);
    ck_assert_int_lt(ns[1] - ns[0], (ns[2] - ns[0]) / 2);
    coarse_rack_end(&m);
}
END_TEST

/* Stages of two GPUs that share their operators are priced as a group. */
START_TEST(stages_of_groups_have_orders)
{
    struct coarse_rack m;
    struct error err = {0};
    struct space s;
    int64_t before, after, left = 10;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct plan p = coarse_rack_four_stages(arena, &m, 16, &s);
    for (int32_t i = 0; i < 4; i++) ck_assert_ptr_nonnull(p.replicas[0].stages[i].sharding);
    p.replicas[0].schedule = "1f1b", p.replicas[0].split = true;
    ck_assert_msg(scorer_fit(m.context.scorer, &s, &p, &before, &err) == OK, "%s", err.text);
    ck_assert_int_lt(before, INT64_MAX);
    after = before;
    ck_assert_msg(schedule_plan(arena, m.context.scorer, &s, &p, &after, &left, NULL, &err) ==
                      OK,
                  "%s", err.text);
    ck_assert_int_lt(100 * after, 97 * before);
    ck_assert_ptr_nonnull(p.replicas[0].stages[0].order);
    ck_assert_int_eq(scorer_run(m.context.scorer, &s, &p, &before, &err), OK);
    ck_assert_int_eq(before, after);
    coarse_rack_end(&m);
}
END_TEST

/* By hand: 8 replicas of two A100 and an H100, ZeRO 1, 7.74 s (2026-08, catalogue's prior). */
START_TEST(no_plan_by_hand_is_better)
{
    struct coarse_rack m;
    struct error err = {0};
    int32_t n_tried;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct coarse *q = coarse_new(&m.context, &m.task, false);
    ck_assert_msg(coarse_search(q, &n_tried, &err) == OK, "%s", err.text);
    coarse_free(q);
    ck_assert_int_gt(n_tried, 0);
    ck_assert_int_gt(m.context.incumbents.n, 0);
    ck_assert_int_le(m.context.incumbents.plans[0].iteration_ns, INT64_C(7745000000));
    coarse_rack_end(&m);
}
END_TEST

START_TEST(without_sharding_every_stage_has_one_gpu)
{
    struct coarse_rack m;
    struct error err = {0};
    int32_t n_tried;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    m.options.no_sharding = true;
    struct coarse *q = coarse_new(&m.context, &m.task, false);
    ck_assert_msg(coarse_search(q, &n_tried, &err) == OK, "%s", err.text);
    coarse_free(q);
    ck_assert_int_gt(m.context.incumbents.n, 0);
    for (int32_t i = 0; i < m.context.incumbents.n; i++) {
        const struct plan *p = &m.context.incumbents.plans[i].plan;
        for (int32_t r = 0; r < p->n_replicas; r++)
            for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
                ck_assert_int_eq(plan_stage_devices(&p->replicas[r].stages[s]), 1);
    }
    coarse_rack_end(&m);
}
END_TEST

/* None takes a pace that is faster than all templates, and all a pace that is slower. */
START_TEST(templates_too_slow_for_a_limit_are_left_out)
{
    struct coarse_rack m;
    struct coarse_template t[4 * COARSE_TEMPLATE_LISTS], some[4 * COARSE_TEMPLATE_LISTS];
    coarse_rack_priced(arena, &m);
    int32_t n = coarse_templates(&m.coarse, 3, 2, 4, false, any, t);
    int64_t least = INT64_MAX, most = 0;
    for (int32_t i = 0; i < n; i++)
        least = units_min(least, t[i].pace_ns), most = units_max(most, t[i].pace_ns);
    ck_assert_int_gt(n, 1);
    struct coarse_need need = {.ns = 1000 * (most + most / 10), .microbatches = 1000};
    ck_assert_int_eq(coarse_templates(&m.coarse, 3, 2, 4, false, need, some), n);
    for (int32_t i = 0; i < n; i++) {
        ck_assert_int_eq(some[i].pace_ns, t[i].pace_ns);
        ck_assert_int_eq(some[i].fill_ns, t[i].fill_ns);
    }
    need.ns = 1000 * (least - least / 10);
    ck_assert_int_eq(coarse_templates(&m.coarse, 3, 2, 4, false, need, some), 0);
    coarse_rack_end(&m);
}
END_TEST

START_TEST(a_replica_takes_no_more_gpus_than_its_team_has)
{
    struct coarse_rack m;
    coarse_rack_priced(arena, &m);
    for (int32_t replicas = 1; replicas <= 8; replicas++) {
        struct coarse_template t[4 * COARSE_TEMPLATE_LISTS];
        int32_t n = coarse_templates(&m.coarse, 3, replicas, 4, false, any, t);
        ck_assert_int_gt(n, 0);
        for (int32_t i = 0; i < n; i++) {
            int32_t used[2] = {0}, next = 0;
            for (int32_t k = 0; k < t[i].n_stages; k++) {
                const struct coarse_stage *x = &t[i].stages[k];
                used[x->of] += m.coarse.classes[x->of].degree[x->degree].n;
                ck_assert_int_eq(x->first, next);
                ck_assert_int_ge(x->last, x->first);
                next = x->last + 1;
            }
            ck_assert_int_eq(next, m.coarse.spaces[0].n_layers);
            for (int32_t k = 0; k < 2; k++)
                ck_assert_int_le(used[k] * replicas, m.coarse.classes[k].n);
        }
    }
    coarse_rack_end(&m);
}
END_TEST

/* Rules that take more time and memory than others are left out, and none of those that remain is covered by another. */
START_TEST(no_rules_are_offered_that_others_cover)
{
    struct coarse_rack m;
    coarse_rack_priced(arena, &m);
    const struct space *s = &m.coarse.spaces[0];
    const struct coarse_class *k = &m.coarse.classes[0];
    for (int32_t d = 1; d < k->n_degrees; d++)
        for (int32_t e = 1; e < k->n_degrees; e++) {
            const struct coarse_degree *x = &k->degree[d], *y = &k->degree[e];
            if (d == e || !x->usable || !y->usable || x->n != y->n) continue;
            const struct stage_cost *a = space_stage_type(s, x->type, 0, s->n_layers - 1),
                                    *b = space_stage_type(s, y->type, 0, s->n_layers - 1);
            ck_assert(a->forward_ns + a->input_ns + a->weight_ns <
                          b->forward_ns + b->input_ns + b->weight_ns ||
                      a->activation_bytes < b->activation_bytes ||
                      a->parameter_bytes < b->parameter_bytes || a->state_bytes < b->state_bytes ||
                      a->gradient_bytes < b->gradient_bytes || a->scratch_bytes < b->scratch_bytes ||
                      a->input_bytes < b->input_bytes || a->update_ns < b->update_ns);
        }
    coarse_rack_end(&m);
}
END_TEST

/* Templates of all numbers of replicas, sizes of stages and placements: the estimate orders them, so it is near the simulation. */
START_TEST(a_templates_estimate_is_near_its_simulation)
{
    struct coarse_rack m;
    struct error err = {0};
    int32_t compared = 0;
    coarse_rack_priced(arena, &m);
    struct space s = m.coarse.spaces[0];
    s.cluster = &m.cluster;
    for (int32_t replicas = 1; replicas <= 8; replicas *= 2) {
        struct coarse_template t[2 * COARSE_TEMPLATE_LISTS];
        int32_t n = coarse_templates(&m.coarse, 3, replicas, 2, false, any, t);
        for (int32_t i = 0; i < n; i++) {
            const struct coarse_template *x = &t[i];
            struct coarse_candidate c = {.n_teams = 1, .team = {x}, .share = {s.microbatches}};
            struct plan p;
            int64_t ns, estimate = x->fill_ns + (s.microbatches / replicas - 1) * x->pace_ns +
                                   coarse_tail_ns(&m.coarse, &x, 1, replicas);
            if (!coarse_place(&m.coarse, &c, arena, &p)) continue;
            for (int32_t r = 0; r < p.n_replicas; r++) coarse_set_schedule(x, &p.replicas[r]);
            ck_assert_msg(coarse_trial(&m.coarse, &s, &p, &ns, &err) == OK, "%s", err.text);
            double ratio = (double)ns / (double)estimate;
            ck_assert_msg(ratio > 0.93 && ratio < 1.07,
                          "%d replicas of %d stages, ZeRO %d, by stage %d: estimate %.4g, simulated %.4g",
                          (int)replicas, (int)x->n_stages, (int)x->zero, x->by_stage, (double)estimate,
                          (double)ns);
            compared++;
        }
    }
    ck_assert_int_ge(compared, 16);
    coarse_rack_end(&m);
}
END_TEST

Suite *coarse_suite(void)
{
    Suite *suite = suite_create("coarse");
    TCase *c = tcase_create("coarse");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, equal_nodes_are_a_class_wherever_their_links_are_stated);
    tcase_add_loop_test(c, the_price_of_a_group_is_that_of_its_simulation, 0, 2);
    tcase_add_test(c, the_price_of_a_group_on_a_bus_is_that_of_its_simulation);
    tcase_add_test(c, sharded_parameters_take_a_share_of_the_memory);
    tcase_add_test(c, zero_divides_the_state_among_the_gpus_of_a_stage);
    tcase_add_test(c, rings_of_a_stage_are_counted_by_runs_of_equally_sharded_parameters);
    tcase_add_test(c, rules_suit_stages_of_any_layers);
    tcase_add_test(c, a_part_of_the_microbatches_gives_the_time_of_all);
    tcase_add_test(c, a_stage_recomputes_as_many_blocks_as_memory_requires);
    tcase_add_test(c, stages_of_groups_have_orders);
    tcase_add_test(c, without_sharding_every_stage_has_one_gpu);
    tcase_add_test(c, templates_too_slow_for_a_limit_are_left_out);
    tcase_add_test(c, a_replica_takes_no_more_gpus_than_its_team_has);
    tcase_add_test(c, no_rules_are_offered_that_others_cover);
    tcase_add_test(c, a_templates_estimate_is_near_its_simulation);
    tcase_add_test(c, no_plan_by_hand_is_better);
    suite_add_tcase(suite, c);
    return suite;
}
