/* Repair of plans of the coarse search that lack memory. */
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

/* Lowerings of a repair of the last stage, which lacks this part of its buffer rings. A lowering without a repair counts `calls`. */
static int64_t lowerings_of_a_repair(const char *schedule, double part, bool fits)
{
    struct coarse_rack m;
    struct error err = {0};
    struct space s;
    int64_t ns;
    enum status refusal;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct scorer *w = m.context.scorer;
    struct plan p = coarse_rack_four_stages(arena, &m, 16, &s);
    p.replicas[0].schedule = schedule, p.replicas[0].split = true;
    ck_assert_msg(scorer_run(w, &s, &p, &ns, &err) == OK, "%s", err.text);
    const struct program *program = scorer_last(w, &refusal);
    int64_t calls = scorer_calls(w), bytes = 0;
    for (int32_t i = 0; i < program->n_stages; i++) {
        const struct program_stage *x = &program->stages[i];
        double room = (double)program_lane_bytes(program, x->device) -
                      part * (double)x->class_bytes[SLOT_BUFFER_RING];
        if (i == 0 || room > (double)bytes) bytes = (int64_t)room;
    }
    m.cluster.types[m.coarse.classes[0].type].memory_bytes = bytes;
    ck_assert_msg(scorer_fit(w, &s, &p, &ns, &err) == OK, "%s", err.text);
    ck_assert_int_eq(ns < INT64_MAX, fits);
    int64_t lowerings = (scorer_calls(w) - calls) / calls;
    coarse_rack_end(&m);
    return lowerings;
}

/* The blocks to recompute follow from one lowering, or from two if they keep large inputs. A plan that lacks more than recomputation frees is given up at once: what I recomputes for
 * W is kept for all microbatches between them. */
/* As a move of layers to another stage may leave it. */
START_TEST(blocks_to_recompute_are_bounded_by_those_of_the_stage)
{
    struct coarse_rack m;
    struct error err = {0};
    struct space s;
    int64_t ns;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct plan p = coarse_rack_four_stages(arena, &m, 16, &s);
    for (int32_t i = 0; i < p.replicas[0].n_stages; i++)
        p.replicas[0].stages[i].recompute = RECOMPUTE_BLOCKS,
        p.replicas[0].stages[i].recompute_blocks = i ? 1000 : 1;
    ck_assert_msg(scorer_fit(m.context.scorer, &s, &p, &ns, &err) == OK, "%s", err.text);
    ck_assert_int_eq(p.replicas[0].stages[0].recompute_blocks, 1);
    for (int32_t i = 1; i < p.replicas[0].n_stages; i++)
        ck_assert_int_eq(p.replicas[0].stages[i].recompute_blocks, 0);
    coarse_rack_end(&m);
}
END_TEST

START_TEST(repairs_take_few_lowerings)
{
    ck_assert_int_le(lowerings_of_a_repair("1f1b", 0.05, true), 2);
    ck_assert_int_le(lowerings_of_a_repair("1f1b", 0.15, true), 3);
    ck_assert_int_eq(lowerings_of_a_repair("1f1b", 0.65, false), 1);
    ck_assert_int_eq(lowerings_of_a_repair("zb-h2", 0.45, false), 1);
}
END_TEST

/* The longer simulation of a sample begins with what the shorter one was changed to, and is not made where that one does not fit. */
START_TEST(a_sample_is_repaired_once)
{
    struct coarse_rack m;
    struct space s;
    struct parallel_score_item item[2];
    struct coarse_sample sample;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct plan p = coarse_rack_four_stages(arena, &m, 128, &s);
    ck_assert_int_eq(coarse_sample_make(arena, &s, &p, false, true, item, &sample), 2);
    item[0].ns = INT64_MAX;
    ck_assert(!coarse_sample_goes_on(arena, &sample));
    item[0].ns = 1, item[0].plan.replicas[0].stages[2].recompute = RECOMPUTE_STAGE;
    ck_assert(coarse_sample_goes_on(arena, &sample));
    ck_assert_int_eq(item[1].plan.replicas[0].stages[2].recompute, RECOMPUTE_STAGE);
    ck_assert_int_eq(item[1].plan.replicas[0].microbatches, 2 * item[0].plan.replicas[0].microbatches);
    coarse_rack_end(&m);
}
END_TEST

/* Sixteen replicas, and fewer large ones. */
START_TEST(a_sample_has_few_gpus)
{
    struct plan_stage stage = {.n_shards = 8};
    struct plan_replica replica[100];
    for (int i = 0; i < 100; i++) replica[i] = (struct plan_replica){.n_stages = 1, .stages = &stage};
    struct plan p = {.n_replicas = 100, .replicas = replica};
    ck_assert_int_eq(coarse_sample_replicas(&p), COARSE_SAMPLE_REPLICAS);
    stage.n_shards = COARSE_SAMPLE_REPLICAS * COARSE_GPUS / 4;
    ck_assert_int_eq(coarse_sample_replicas(&p), 4);
}
END_TEST

/* A sample is lowered without the deadlock check, and a deadlock of its simulation is one of the check. */
START_TEST(a_deadlock_of_a_sample_is_that_of_the_plan)
{
    struct coarse_rack m;
    struct space s;
    struct error err[2] = {{0}, {0}};
    int64_t ns;
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct scorer *w = m.context.scorer;
    struct plan p = coarse_rack_four_stages(arena, &m, 2, &s);
    p.replicas[0].microbatches = 2;
    for (int32_t i = 0; i < 4; i++)
        p.replicas[0].stages[i].order = i ? "F0 F1 B0 B1" : "F0 B0 F1 B1";
    for (int quick = 0; quick < 2; quick++) {
        scorer_quick(w, quick);
        ck_assert_int_eq(scorer_fit(w, &s, &p, &ns, &err[quick]), ERR_INPUT);
        ck_assert_msg(!strncmp(err[quick].text, "deadlock: ", 10), "%s", err[quick].text);
    }
    ck_assert_str_eq(err[0].text, err[1].text);
    coarse_rack_end(&m);
}
END_TEST

static const char *eight =
    "version: 1\nname: eight\ndevice_types: [{name: h, device: H100-SXM5, memory: 22 GiB}]\n"
    "nodes: [{name: n, count: 8, devices: {type: h, count: 1}}]\nswitches: [{name: core}]\n"
    "links: [{name: up, count: 8, between: [n, core], bandwidth: 50 GB/s, latency: 5 us}]\n";

/* By hand 13.3 s: blocks recomputed on all stages but the last, which fill the memory to the last percents. By estimate nothing fits. */
START_TEST(plans_that_lack_little_memory_by_estimate_are_tried)
{
    struct coarse_rack m;
    struct error err = {0};
    int32_t n_tried;
    coarse_rack_make(arena, &m, texts_cluster(arena, eight), coarse_rack_job);
    m.job.global_batch = 192;
    struct coarse *q = coarse_new(&m.context, &m.task, false);
    ck_assert_msg(coarse_search(q, &n_tried, &err) == OK, "%s", err.text);
    coarse_free(q);
    ck_assert_int_gt(n_tried, 0);
    ck_assert_int_le(m.context.incumbents.plans[0].iteration_ns, INT64_C(14000000000));
    coarse_rack_end(&m);
}
END_TEST

Suite *coarse_repair_suite(void)
{
    Suite *suite = suite_create("coarse_repair");
    TCase *c = tcase_create("coarse_repair");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, repairs_take_few_lowerings);
    tcase_add_test(c, blocks_to_recompute_are_bounded_by_those_of_the_stage);
    tcase_add_test(c, a_sample_is_repaired_once);
    tcase_add_test(c, a_sample_has_few_gpus);
    tcase_add_test(c, a_deadlock_of_a_sample_is_that_of_the_plan);
    tcase_add_test(c, plans_that_lack_little_memory_by_estimate_are_tried);
    suite_add_tcase(suite, c);
    return suite;
}
