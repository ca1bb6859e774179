/* Suite of sim/collective/price: when a measured table or NCCL's model prices a collective of a program, and what the simulator makes
 * of it. */
#include "sim/collective/price.h"

#include "profiles/profile.h"
#include "sim/engine/sim.h"
#include "tests/support/plans.h"

#include <math.h>

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Two nodes of two devices: four replicas with a gradient all-reduce, or (shared) two sharded stages of two devices. */
static struct plan parsed(bool shared, const char *algorithm, const char *type)
{
    struct plan p;
    struct node *root;
    const char *stages = "", *names[] = {"a.0", "a.1", "b.0", "b.1"};
    for (int i = 0; i < 4 && !shared; i++)
        stages = arena_printf(arena,
                              "%s  - microbatches: 1\n    stages: [{layers: [0, 4], device: %s}]\n",
                              stages, names[i]);
    if (shared)
        stages = arena_printf(
            arena,
            "  - microbatches: 4\n    stages:\n      - layers: [0, 4]\n        devices: [a.0, a.1, "
            "b.0, b.1]\n        sharding:\n          operators:\n            - {match: "
            "\"h.*.mlp.c_proj\", shard: inputs}\n            - {match: \"h.*.mlp.*\", shard: "
            "features}\n          collectives: [{match: \"*\", kind: all_reduce, algorithm: %s}]\n",
            algorithm);
    const char *text = arena_printf(
        arena,
        "version: 1\nname: made\nmicrobatch: 4\nreplicas:\n%sjob:\n  version: 1\n  model: "
        "{model_type: gpt2, n_embd: 48, n_layer: 1, n_head: 6, n_positions: 32, vocab_size: 96, "
        "tie_word_embeddings: false}\n  sequence_length: 16\n  global_batch: 16\n  precision: "
        "fp32\ncluster:\n  version: 1\n  name: here\n  device_types: [{name: g, %s}]\n  nodes: "
        "[{name: a, host: x, devices: [{type: g, count: 2}]}, {name: b, host: y, devices: "
        "[{type: g, count: 2}]}]\n  links: [{name: in-a, between: [a], bandwidth: 10 GB/s, "
        "latency: 1 us}, {name: in-b, between: [b], bandwidth: 10 GB/s, latency: 1 us}, {name: "
        "far, between: [a, b], bandwidth: 1 GB/s, latency: 5 us}]\n",
        stages, type);
    ck_assert_msg(document_parse(arena, "made", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(plan_parse(arena, root, ".", &p, &err) == OK, "%s", err.text);
    for (int32_t r = 0; r < p.n_replicas; r++)
        p.replicas[r].stages[0].last_layer = plans_layers(arena, &p) - 1;
    return p;
}

#define A100 "device: A100-SXM4-80"

/* An all-reduce of four ranks on two nodes, 3 ms from 1 KiB to 1 GiB. */
static struct collective_row rows_of(const char *algorithm, int64_t bytes)
{
    return (struct collective_row){.kind = COLLECTIVE_ALL_REDUCE,
                                   .n_ranks = 4,
                                   .n_nodes = 2,
                                   .algorithm = algorithm,
                                   .protocol = "",
                                   .bytes = bytes,
                                   .seconds = 3e-3,
                                   .samples = 3,
                                   .provenance = "made"};
}

struct priced {
    struct profile profile;
    struct cost *cost;
    struct program *program;
    struct collective_row rows[2];
};

static struct priced *priced(const struct plan *plan, const char *algorithm)
{
    struct priced *x = ARENA_ARRAY(arena, struct priced, 1);
    ck_assert_msg(profile_prior(arena, &plan->cluster, &x->profile, &err) == OK, "%s", err.text);
    x->rows[0] = rows_of(algorithm, 1024), x->rows[1] = rows_of(algorithm, 1 << 30);
    x->profile.collectives = x->rows, x->profile.n_collectives = algorithm ? 2 : 0;
    x->cost = cost_new(arena, &x->profile, &plan->cluster);
    x->program = plans_lower(arena, plan, false);
    return x;
}

static struct sim_result run(struct priced *x, enum sim_detail detail, bool fold, bool trace)
{
    struct sim_options o = {.steps = 3, .detail = detail, .fold = fold, .keep_trace = trace};
    struct sim_result r;
    ck_assert_msg(sim_run(arena, x->program, x->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* The first all-reduce, inside a call if there are any. */
static int32_t all_reduce(const struct program *p)
{
    for (int32_t i = 0; i < p->n_collectives; i++)
        if (collective_of_tensor(&p->collectives[i]) &&
            p->collectives[i].kind == COLLECTIVE_ALL_REDUCE)
            return i;
    return 0;
}

static int64_t price(struct priced *x)
{
    return collective_price_ns(x->cost, x->program,
                               &x->program->collectives[all_reduce(x->program)], NULL);
}

START_TEST(a_table_prices_what_a_library_does_and_what_it_names)
{
    struct plan sums = parsed(false, "", A100), ring = parsed(true, "ring", A100),
                tiers = parsed(true, "hierarchical", A100),
                emulated = parsed(false, "", "device: host, slowdown: 2, memory: 1 GiB");
    ck_assert_int_eq(price(priced(&sums, "")), 3000000);
    ck_assert_int_eq(price(priced(&sums, "ring")), 3000000);
    ck_assert_int_eq(price(priced(&sums, "hierarchical")), -1);
    ck_assert_int_eq(price(priced(&sums, NULL)), -1);
    ck_assert_int_eq(price(priced(&emulated, "")), -1);
    ck_assert_int_eq(price(priced(&ring, "")), 3000000);
    ck_assert_int_eq(price(priced(&tiers, "")), -1);
    ck_assert_int_eq(price(priced(&tiers, "hierarchical")), 3000000);
}
END_TEST

START_TEST(it_holds_for_its_shape_and_between_its_sizes)
{
    struct plan sums = parsed(false, "", A100);
    struct priced *x = priced(&sums, "");
    x->rows[1].bytes = 2048; /* the sum is larger */
    ck_assert_int_eq(price(x), -1);
    x = priced(&sums, "");
    x->rows[0].bytes = 1 << 29; /* the sum is smaller */
    ck_assert_int_eq(price(x), -1);
    x = priced(&sums, "");
    x->rows[0].n_nodes = x->rows[1].n_nodes = 1;
    ck_assert_int_eq(price(x), -1);
    x = priced(&sums, "");
    x->rows[0].kind = x->rows[1].kind = COLLECTIVE_ALL_GATHER;
    ck_assert_int_eq(price(x), -1);
}
END_TEST

/* All members end 3 ms after the last arrival, at every level of detail, folded or not. */
START_TEST(members_end_together_after_the_price)
{
    for (int shared = 0; shared < 2; shared++) {
        struct plan plan = parsed(shared, "ring", A100);
        struct priced *x = priced(&plan, ""), *links = priced(&plan, NULL);
        struct sim_result r = run(x, SIM_OPERATOR, false, true);
        int64_t last_begin = 0, end = 0;
        for (size_t i = 0; i < r.trace->n_spans; i++) {
            const struct span *s = &r.trace->spans[i];
            if (s->kind != SPAN_REDUCE || s->op != all_reduce(x->program) || s->step ||
                s->microbatch > 0)
                continue;
            ck_assert(!end || s->end_ns == end);
            end = s->end_ns;
            if (s->begin_ns > last_begin) last_begin = s->begin_ns;
        }
        ck_assert_int_eq(end - last_begin, 3000000);
        ck_assert_int_eq(run(x, SIM_STAGE, false, false).iteration_ns, r.iteration_ns);
        ck_assert_int_eq(run(x, SIM_STAGE, true, false).iteration_ns, r.iteration_ns);
        ck_assert_int_gt(r.iteration_ns, run(links, SIM_STAGE, true, false).iteration_ns + 1000000);
    }
}
END_TEST

/* The cluster states NCCL: all-reduces of all devices are NCCL's, a table's where there is one, links' by another algorithm or where
 * devices are emulated. */
START_TEST(nccl_prices_what_it_does_in_one_call_where_the_cluster_states_it)
{
    struct plan sums = parsed(false, "", A100), tiers = parsed(true, "hierarchical", A100),
                emulated = parsed(false, "", "device: host, slowdown: 2, memory: 1 GiB");
    static const int32_t all[] = {0, 1, 2, 3};
    struct nccl_choice c;
    enum collective_price from;
    sums.cluster.nccl = tiers.cluster.nccl = emulated.cluster.nccl = "2.28.9";
    struct priced *x = priced(&sums, NULL);
    const struct collective *g = &x->program->collectives[all_reduce(x->program)];
    ck_assert_msg(collective_nccl(x->cost, "2.28.9", COLLECTIVE_ALL_REDUCE, all, 4, 4 * g->elements,
                                  &c, &err) == OK,
                  "%s", err.text);
    ck_assert_int_eq(collective_price_ns(x->cost, x->program, g, &from), llround(c.seconds * 1e9));
    ck_assert_int_eq(from, COLLECTIVE_PRICE_NCCL);
    ck_assert_int_eq(price(x), llround(c.seconds * 1e9)); /* remembered */
    x = priced(&sums, "");
    g = &x->program->collectives[all_reduce(x->program)];
    ck_assert_int_eq(collective_price_ns(x->cost, x->program, g, &from), 3000000);
    ck_assert_int_eq(from, COLLECTIVE_PRICE_TABLE);
    ck_assert_int_eq(price(priced(&tiers, NULL)), -1);
    ck_assert_int_eq(price(priced(&emulated, NULL)), -1);
}
END_TEST

/* One device of each node: the others of the nodes use the same network, which NCCL's model does not know. */
START_TEST(nccl_prices_no_network_that_others_share)
{
    struct plan sums = parsed(false, "", A100);
    static const struct {
        int32_t n, device[4];
        bool holds;
    } cases[] = {{2, {0, 1}, true},        {2, {0, 2}, false}, {2, {1, 3}, false},
                 {4, {3, 0, 2, 1}, true}, {3, {0, 1, 2}, false}};
    sums.cluster.nccl = "2.30";
    struct priced *x = priced(&sums, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int algorithm = 0; algorithm < 2; algorithm++) {
            enum collective_price from;
            int64_t ns = collective_price_devices_ns(
                x->cost, COLLECTIVE_ALL_GATHER, algorithm ? ALGORITHM_PAIRS : ALGORITHM_RING,
                cases[i].device, cases[i].n, 1 << 20, &from);
            ck_assert_int_eq(ns >= 0, cases[i].holds && !algorithm);
            ck_assert_int_eq(from == COLLECTIVE_PRICE_NCCL, ns >= 0);
        }
}
END_TEST

/* The same span in every detail, folded or not; without the key the time is the links'. */
START_TEST(a_simulated_collective_takes_what_nccl_takes)
{
    for (int shared = 0; shared < 2; shared++) {
        struct plan plan = parsed(shared, "ring", A100);
        int64_t links = run(priced(&plan, NULL), SIM_OPERATOR, false, false).iteration_ns;
        plan.cluster.nccl = "2.28.9";
        struct priced *x = priced(&plan, NULL);
        struct sim_result r = run(x, SIM_OPERATOR, false, true);
        int64_t begin = 0, end = 0;
        for (size_t i = 0; i < r.trace->n_spans; i++) {
            const struct span *s = &r.trace->spans[i];
            if (s->kind != SPAN_REDUCE || s->op != all_reduce(x->program) || s->step ||
                s->microbatch > 0)
                continue;
            end = s->end_ns;
            if (s->begin_ns > begin) begin = s->begin_ns;
        }
        ck_assert_int_eq(end - begin, price(x));
        ck_assert_int_ne(r.iteration_ns, links);
        ck_assert_int_eq(run(x, SIM_STAGE, false, false).iteration_ns, r.iteration_ns);
        ck_assert_int_eq(run(x, SIM_STAGE, true, false).iteration_ns, r.iteration_ns);
    }
}
END_TEST

Suite *collective_price_suite(void)
{
    Suite *s = suite_create("collective_price");
    TCase *c = tcase_create("collective_price");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, a_table_prices_what_a_library_does_and_what_it_names);
    tcase_add_test(c, it_holds_for_its_shape_and_between_its_sizes);
    tcase_add_test(c, members_end_together_after_the_price);
    tcase_add_test(c, nccl_prices_what_it_does_in_one_call_where_the_cluster_states_it);
    tcase_add_test(c, nccl_prices_no_network_that_others_share);
    tcase_add_test(c, a_simulated_collective_takes_what_nccl_takes);
    suite_add_tcase(s, c);
    return s;
}
