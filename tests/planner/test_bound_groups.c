/* The bound of equal pipelines: values by hand, and never above a plan of the class, found by the search or by enumeration. */
#include "planner/bound/groups.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/plan_skeleton.h"
#include "planner/coarse/coarse.h"
#include "planner/search_check.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "profiles/team.h"
#include "tests/support/random_questions.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

/* --- by hand ----------------------------------------------------------------------------------- */

enum { LAYERS = 4 };

/* Equal layers of 100 + 100 + 100 ns a microbatch on one GPU, 30 for the recomputation; nothing in memory. */
struct hand {
    struct bound_group_layer layers[LAYERS];
    struct bound_group_option option;
    struct bound_groups b;
    int64_t gpus;
};
static void hand_make(struct hand *h, int32_t n_layers, int64_t gpus, int64_t microbatches)
{
    *h = (struct hand){.gpus = gpus,
                       .option = {.gpus = 1,
                                  .room_bytes = 1000,
                                  .node_part = 1.0 / 8,
                                  .copies = 8,
                                  .holders = 1,
                                  .layers = h->layers}};
    for (int32_t l = 0; l < n_layers; l++)
        h->layers[l] = (struct bound_group_layer){
            .forward_ns = 100, .input_ns = 100, .weight_ns = 100, .again_ns = 30, .pass_ns = 200};
    h->b = (struct bound_groups){n_layers, 1, 1, &h->gpus, &h->option, microbatches, 0};
}
static void hand_gives(const struct hand *h, double ns, const char *binding)
{
    const char *text = "";
    double bound = bound_groups_ns(&h->b, 2 * ns, &text);
    ck_assert_msg(bound <= ns && bound > 0.96 * ns && strstr(text, binding), "%g (%s) of %g", bound,
                  text, ns);
}

START_TEST(layers_are_whole)
{
    struct hand h;
    hand_make(&h, 3, 2, 8);
    h.option.room_bytes =
        100; /* two layers of 40 bytes: one replica, and one GPU has two of three layers */
    for (int32_t l = 0; l < 3; l++) h.layers[l].whole_bytes = 40;
    hand_gives(&h, 8 * 600, "work");
    h.option.room_bytes = 130; /* two replicas of one stage each, 4 microbatches */
    hand_gives(&h, 4 * 900, "work");
    h.b.microbatches = 9; /* one of them has 5 */
    hand_gives(&h, 5 * 900, "work");
}
END_TEST

/* Two stages of two layers, 4 microbatches: 4 · 600 of work. The pass of a microbatch is 800 and messages of 2 · 500: the first stage waits
 * 1,400 for the other one, which waits also for its W of 200. W of the microbatches in flight, 200 each, runs meanwhile, in the first stage also their I. */
START_TEST(pipelines_fill)
{
    struct hand h;
    hand_make(&h, 4, 2, 4);
    h.option.room_bytes = 100;
    for (int32_t l = 0; l < 4; l++) h.layers[l].whole_bytes = 40;
    hand_gives(&h, 2400, "work");
    h.option.near_message_ns = h.option.far_message_ns = 500, h.b.far_ns = 1000;
    hand_gives(&h, 2400 + 800, "fill"); /* of the last stage */
    for (int32_t l = 0; l < 4; l++) h.layers[l].kept_bytes = h.layers[l].waiting_bytes = 10;
    hand_gives(&h, 2400 + 240 + 800, "fill"); /* room for one microbatch: recomputed */
    for (int32_t l = 0; l < 4; l++) h.layers[l].again_ns = 1000;
    /* The first stage has one microbatch at a time: it waits behind F, and again but for one W. */
    hand_gives(&h, 2400 + 1400 + 1400 - 200, "memory");
}
END_TEST

/* Two replicas on two GPUs: a GPU begins W of the last of its 4 microbatches, then sends half of the gradients to the other and half of their
 * sum. The last I does not overlap, because it may be one operation with W. */
START_TEST(gradients_are_summed)
{
    struct hand h;
    hand_make(&h, 1, 2, 8);
    hand_gives(&h, 1200, "work");
    h.layers[0].near_sum_ns = 1200, h.layers[0].far_sum_ns = 4000;
    hand_gives(&h, 1000 + 1200, "gradient");
    h.option.bus = true; /* 3 messages of a half in two directions: fewer than the other counts */
    hand_gives(&h, 1000 + 1200, "gradient");
    h.option.copies = 1; /* on two nodes; better one replica on one GPU, as there is one layer */
    hand_gives(&h, 2400, "work");
    h.layers[0].far_sum_ns = 800;
    hand_gives(&h, 1000 + 800, "gradient");
}
END_TEST

/* Four GPUs that divide microbatches hold the same parameters: 2 · 3 / 4 of the gradients on a link, or 3 / 4 · 3 on a bus. */
START_TEST(gradients_are_summed_within_a_stage)
{
    struct hand h;
    hand_make(&h, 1, 4, 8);
    h.option.gpus = h.option.holders = 4, h.option.copies = 2;
    h.layers[0].near_sum_ns = 1000, h.layers[0].far_sum_ns = 9000;
    hand_gives(&h, 2200 + 1500, "gradient");
    h.option.bus = true;
    hand_gives(&h, 2200 + 2250, "gradient");
}
END_TEST

/* Two replicas of two stages; the last has most of the work, 4 · (600 + 200) with its border, and room for one microbatch. A pass takes
 * 80 + 400, and the last stage also waits until half of the gradients of the first have arrived there: 1,200 in place of I, 40. Of these
 * waits, 1,640 - 400, one W is 200. */
START_TEST(stages_wait_for_the_sums_of_the_first)
{
    struct hand h;
    hand_make(&h, 4, 4, 8);
    h.option.room_bytes = 100, h.option.border_ns = 200;
    for (int32_t l = 0; l < 4; l++) h.layers[l].whole_bytes = 40;
    for (int32_t l = 0; l < 2; l++)
        h.layers[l].forward_ns = h.layers[l].input_ns = h.layers[l].weight_ns = 20,
        h.layers[l].pass_ns = 40;
    for (int32_t l = 2; l < 4; l++)
        h.layers[l].kept_bytes = h.layers[l].waiting_bytes = 10, h.layers[l].again_ns = 1000;
    hand_gives(&h, 3200, "");
    for (int32_t l = 0; l < 2; l++) h.layers[l].near_sum_ns = 1200, h.layers[l].far_sum_ns = 9000;
    hand_gives(&h, 3200 + 1240 - 200, "");
}
END_TEST

/* Two replicas of two stages with borders. Their sums need one node, so that the 2 of 4 GPUs of each copy leave it every second time: of the
 * pass, 800 and messages of 2 · 250 and W of 200 in the first stage, the last waits 1,100, less its W. */
START_TEST(sums_on_a_node_put_messages_between_nodes)
{
    struct hand h;
    hand_make(&h, 4, 4, 8);
    h.option.room_bytes = 100, h.option.border_ns = 200;
    h.option.node_part = 0.25, h.option.copies = 4;
    h.option.far_message_ns = 500, h.b.far_ns = 500;
    for (int32_t l = 0; l < 4; l++) h.layers[l].whole_bytes = 40;
    hand_gives(&h, 3200 + 50, "");
    for (int32_t l = 0; l < 4; l++) h.layers[l].near_sum_ns = 1, h.layers[l].far_sum_ns = 9000;
    hand_gives(&h, 3200 + 300, "");
}
END_TEST

/* Borders of a stage and the memory of the microbatches in flight. */
START_TEST(stages_have_borders_and_microbatches_in_flight)
{
    struct hand h;
    hand_make(&h, 2, 2, 8);
    h.option.room_bytes = 50;
    for (int32_t l = 0; l < 2; l++) h.layers[l].whole_bytes = 40;
    hand_gives(&h, 2400, "work");
    h.option.border_ns = 50;
    hand_gives(&h, 2800, "work");
    h.layers[0].kept_bytes = 20; /* no room for one: recomputed */
    hand_gives(&h, 8 * 380, "work");
}
END_TEST

/* --- against plans ----------------------------------------------------------------------------- */

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct asking {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct lower_options lower;
    struct search_options o;
    struct search_context t;
    int64_t sizes[16];
    int32_t n_sizes;
};

static bool ask(struct asking *x, uint64_t seed, int32_t devices)
{
    struct error err = {0};
    struct random_question q;
    random_questions_make(arena, seed, devices, &q);
    x->job = texts_job(arena, q.job);
    x->cluster =
        texts_cluster(arena, random_questions_cluster(arena, &q, RANDOM_QUESTIONS_COUNTED));
    random_questions_profile(arena, &q, &x->cluster, &x->profile);
    x->lower = (struct lower_options){.check_memory = true};
    x->o = (struct search_options){.top = 1};
    x->n_sizes = search_check_sizes(&x->job, NULL, x->sizes);
    MUST(team_fused(arena, &x->cluster, &x->lower, &err));
    x->t = (struct search_context){.arena = arena,
                                   .o = &x->o,
                                   .lower = &x->lower,
                                   .scorer = scorer_new(&x->lower),
                                   .spmd_stage = spmd_stage_new(),
                                   .budget = 1, .evaluations_left = 20000};
    incumbents_init(&x->t.incumbents, arena, 32, &x->o, &x->cluster);
    return !x->job.model.measured;
}

static void search(struct asking *x)
{
    struct error err = {0};
    struct search_task task = {.job = &x->job,
                               .cluster = &x->cluster,
                               .profile = &x->profile,
                               .sizes = x->sizes,
                               .n_sizes = x->n_sizes};
    int32_t n_tried;
    struct coarse *q = coarse_new(&x->t, &task, false);
    MUST(coarse_search(q, &n_tried, &err));
    coarse_class_bound(q);
    coarse_free(q);
}

static bool same_stage(const struct cluster *c, const struct plan_stage *x,
                       const struct plan_stage *y)
{
    return x->first_layer == y->first_layer && x->last_layer == y->last_layer &&
           x->n_shards == y->n_shards && c->devices[x->device].type == c->devices[y->device].type;
}

static bool in_class(const struct plan_replica *r, int32_t stage)
{
    const struct plan_stage *x = &r->stages[stage];
    for (int32_t i = 0; i < stage; i++)
        if (r->stages[i].device == x->device) return false; /* chunks */
    return x->zero <= 1 && !x->hybrid_shard && !x->sequences && x->recompute != RECOMPUTE_SELECTIVE &&
           (!x->n_shards || x->sharding);
}

/* Whether the plan is one of equal pipelines; shardings are those of the search. */
static bool is_equal(const struct cluster *c, const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++) {
        const struct plan_replica *x = &p->replicas[r], *first = &p->replicas[0];
        if (x->n_stages != first->n_stages || abs(x->microbatches - first->microbatches) > 1)
            return false;
        for (int32_t i = 0; i < x->n_stages; i++)
            if (!same_stage(c, &x->stages[i], &first->stages[i]) || !in_class(x, i)) return false;
    }
    return true;
}

static const struct search_plan *best_of(const struct asking *x)
{
    const struct search_plan *best = NULL;
    for (int32_t i = 0; i < x->t.incumbents.n; i++) {
        const struct search_plan *p = &x->t.incumbents.plans[i];
        if (!best || p->iteration_ns < best->iteration_ns) best = p;
    }
    return best;
}

/* The search lowers the bound from the best time that it has, until some plans may take it: at once, if the best is in the class. */
static void check(struct asking *x, uint64_t seed, int *in_class, double *gaps)
{
    const struct search_plan *best = best_of(x);
    if (!best || !is_equal(&x->cluster, &best->plan) || !x->t.equal_bound_ns) return;
    ck_assert_msg(x->t.equal_bound_ns < best->iteration_ns, "seed %d: bound %lld of %s", (int)seed,
                  (long long)x->t.equal_bound_ns, plan_describe(arena, &best->plan));
    *gaps += (double)best->iteration_ns / (double)x->t.equal_bound_ns - 1;
    ++*in_class;
}

START_TEST(no_bound_is_above_a_plan_that_the_search_finds)
{
    int cases = suites_long() ? 200 : 12, in_class = 0;
    double gaps = 0;
    for (int i = 1; i <= cases; i++) {
        struct asking x;
        if (ask(&x, (uint64_t)i, i % 4 ? 16 : 64)) {
            search(&x);
            check(&x, (uint64_t)i, &in_class, &gaps);
        }
        spmd_stage_free(x.t.spmd_stage);
        scorer_free(x.t.scorer);
    }
    if (getenv("MUSHER_PRINT"))
        printf("%d in the class, mean gap %.1f %%\n", in_class, 100 * gaps / in_class);
    ck_assert_int_gt(in_class, cases / 6);
}
END_TEST

/* --- enumeration ------------------------------------------------------------------------------- */

/* Simulates one plan: replica r has the stages that end before the layers end[…], on consecutive devices of the cluster. */
static void try_plan(struct asking *x, const struct space *s, int32_t replicas, int32_t stages,
                     const int32_t *end, int32_t zero)
{
    struct plan p;
    struct error err = {0};
    int64_t ns;
    int32_t *n = ARENA_ARRAY(arena, int32_t, (size_t)replicas);
    for (int32_t r = 0; r < replicas; r++) n[r] = stages;
    plan_skeleton(arena, s, "enumerated", replicas, n, &p);
    for (int32_t r = 0; r < replicas; r++) {
        p.replicas[r].microbatches = (s->microbatches + r) / replicas;
        for (int32_t i = 0; i < stages; i++) {
            struct plan_stage *y = &p.replicas[r].stages[i];
            y->first_layer = i ? end[i - 1] : 0, y->last_layer = end[i] - 1;
            y->device = r * stages + i, y->zero = zero;
        }
    }
    MUST(search_context_evaluate(&x->t, s, &p, &ns, &err));
}

/* All divisions of the layers into so many stages. */
static void try_divisions(struct asking *x, const struct space *s, int32_t replicas, int32_t stages)
{
    int32_t end[8];
    for (int32_t i = 0; i < stages; i++) end[i] = i + 1 < stages ? i + 1 : s->n_layers;
    for (;;) {
        for (int32_t zero = 0; zero < 2; zero++) try_plan(x, s, replicas, stages, end, zero);
        int32_t i = stages - 2;
        while (i >= 0 && end[i] == s->n_layers - (stages - 1 - i)) i--;
        if (i < 0) return;
        end[i]++;
        for (int32_t k = i + 1; k + 1 < stages; k++) end[k] = end[k - 1] + 1;
    }
}

static void enumerate(struct asking *x)
{
    struct error err = {0};
    struct cost *cost = cost_new(arena, &x->profile, &x->cluster);
    for (int32_t size = 0; size < x->n_sizes; size++) {
        struct space s;
        MUST(space_make(arena, &x->job, &x->cluster, cost, x->sizes[size], &x->lower, &s, &err));
        for (int32_t stages = 1; stages <= 4 && stages <= s.n_layers; stages++)
            for (int32_t replicas = 1;
                 replicas * stages <= x->cluster.n_devices && replicas <= s.microbatches;
                 replicas++)
                try_divisions(x, &s, replicas, stages);
    }
}

/* Four GPUs of one type on two nodes, memory as given; fast and slow networks, fast and slow buses. */
START_TEST(no_bound_is_above_the_best_of_all_plans)
{
    static const char *const job =
        "version: 1\nmodel: {model_type: gpt2, n_embd: 1024, n_layer: 3, n_head: 16, n_positions: "
        "512, vocab_size: 8192}\nsequence_length: 512\nglobal_batch: 8\nmicrobatch: %d\n"
        "precision: fp16\n";
    for (int i = 0; i < 12; i++) {
        struct asking x;
        struct error err = {0};
        int in_class = 0;
        double gaps = 0;
        ask(&x, 1, 4);
        x.job = texts_job(arena, arena_printf(arena, job, 1 + i % 2));
        x.cluster = texts_cluster(
            arena,
            arena_printf(arena,
                         "version: 1\nname: c\ndevice_types: [{name: h, device: H100-SXM5, "
                         "memory: %s}]\nnodes: [{name: n, count: 2, devices: {type: h, "
                         "count: 2}}]\nswitches: [{name: s}]\nlinks:\n"
                         "  - {name: in, count: 2, between: [n], bandwidth: %s, latency: "
                         "1 us}\n  - {name: up, count: 2, between: [n, s], bandwidth: %s, "
                         "latency: 5 us}\n",
                         i % 6 < 2   ? "80 GiB"
                         : i % 6 < 4 ? "4 GiB"
                                     : "3.3 GiB",
                         i < 6 ? "400 GB/s" : "3 GB/s", i % 6 < 3 ? "50 GB/s" : "1 GB/s"));
        MUST(profile_prior(arena, &x.cluster, &x.profile, &err));
        x.n_sizes = search_check_sizes(&x.job, NULL, x.sizes);
        incumbents_init(&x.t.incumbents, arena, 32, &x.o, &x.cluster);
        enumerate(&x);
        ck_assert_int_gt(x.t.incumbents.n, 0);
        search(&x);
        check(&x, (uint64_t)i, &in_class, &gaps);
        if (getenv("MUSHER_PRINT")) printf("case %d: %.1f %%\n", i, 100 * gaps);
        spmd_stage_free(x.t.spmd_stage);
        scorer_free(x.t.scorer);
    }
}
END_TEST

Suite *bound_groups_suite(void)
{
    Suite *s = suite_create("bound_groups");
    TCase *t = tcase_create("groups");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, layers_are_whole);
    tcase_add_test(t, pipelines_fill);
    tcase_add_test(t, gradients_are_summed);
    tcase_add_test(t, gradients_are_summed_within_a_stage);
    tcase_add_test(t, stages_wait_for_the_sums_of_the_first);
    tcase_add_test(t, sums_on_a_node_put_messages_between_nodes);
    tcase_add_test(t, stages_have_borders_and_microbatches_in_flight);
    tcase_add_test(t, no_bound_is_above_the_best_of_all_plans);
    tcase_add_test(t, no_bound_is_above_a_plan_that_the_search_finds);
    tcase_set_timeout(t, suites_long() ? 3000 : 300);
    suite_add_tcase(s, t);
    return s;
}
