/* Experts of a plan placed by popularity: faster by simulation, within the devices' memory, unchanged without counts. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/experts/place.h"

#include "tests/support/suites.h"

#include <string.h>

static struct arena *a;
static struct error err;
static struct lower_options lower = {.check_memory = true};
static const struct search_options options = {.top = 1};
static struct profile profile;
static void set_up(void)
{
    a = arena_new();
    err = (struct error){0};
}
static void tear_down(void) { arena_free(a); }

/* Twelve experts in a stage of a fast and two slow devices, four each; fast: memory of the fast one. */
static struct plan parse(const char *experts, const char *fast)
{
    struct plan p;
    struct node *root;
    const char *text = arena_printf(
        a,
        "version: 1\nname: made\nmicrobatch: 2\n%s"
        "replicas:\n  - microbatches: 2\n    stages:\n      - layers: [0, 4]\n        devices: [n.0, n.1, n.2]\n"
        "        sharding:\n          ratios: [[4, 4, 4], [2, 1, 1]]\n          operators:\n"
        "            - {match: \"*block_sparse_moe*\", shard: experts}\n            - {match: \"*\", shard: batch, ratio: 1}\n"
        "job:\n  version: 1\n  model: {model_type: mixtral, hidden_size: 64, intermediate_size: 96, num_hidden_layers: 1, "
        "num_attention_heads: 2, num_key_value_heads: 2, vocab_size: 61, max_position_embeddings: 64, num_local_experts: 12, "
        "num_experts_per_tok: 2}\n  sequence_length: 64\n  global_batch: 4\n"
        "cluster:\n  version: 1\n  name: here\n"
        "  device_types: [{name: fast, device: host, slowdown: 2, memory: %s}, {name: slow, device: host, slowdown: 6, memory: 1 GiB}]\n"
        "  nodes: [{name: n, host: localhost, devices: [{type: fast}, {type: slow}, {type: slow}]}]\n"
        "  links: [{name: bus, between: [n], bandwidth: 10 GB/s, latency: 1 us}]\n",
        experts, fast);
    ck_assert_msg(document_parse(a, "plan.yaml", text, strlen(text), &root, &err) == OK, "%s", err.text);
    ck_assert_msg(plan_parse(a, root, ".", &p, &err) == OK, "%s", err.text);
    struct graph *g;
    ck_assert_msg(lower_graph(a, &p.job, p.microbatch, &g, &err) == OK, "%s", err.text);
    p.replicas[0].stages[0].last_layer = g->n_layers - 1;
    return p;
}

static int64_t place(struct plan *p)
{
    struct search_context t = {.arena = a, .o = &options, .lower = &lower};
    struct cost *k = cost_new(a, &profile, &p->cluster);
    int64_t ns = INT64_MAX;
    ck_assert_msg(experts_place(&t, k, &p->cluster, p, &ns, &err) == OK, "%s", err.text);
    return ns;
}

static int64_t simulated(const struct plan *p)
{
    struct scorer *w = scorer_new(&lower);
    struct space s;
    int64_t ns;
    struct cost *k = cost_new(a, &profile, &p->cluster);
    ck_assert_msg(space_make(a, &p->job, &p->cluster, k, p->microbatch, &lower, &s, &err) == OK, "%s", err.text);
    ck_assert_msg(scorer_run(w, &s, p, &ns, &err) == OK, "%s", err.text);
    scorer_free(w);
    return ns;
}

/* Experts of each device. */
static void counts(const struct plan *p, int64_t n[3], int64_t bytes[3])
{
    struct program x;
    struct lower_options o = {0};
    ck_assert_msg(lower_plan(a, p, &o, &x, &err) == OK, "%s", err.text);
    for (int32_t d = 0; d < 3; d++) {
        bytes[d] = program_lane_bytes(&x, d);
        for (int32_t i = 0; i < x.stages[d].n_parameters; i++)
            if (strstr(x.stages[d].parameters[i].name, "experts.w1.weight"))
                n[d] = x.stages[d].slots[x.stages[d].parameters[i].slot].shape.dim[0];
    }
}

#define COUNTED "experts: [{block: 0, tokens: [4, 4, 4, 4, 90, 4, 4, 4, 80, 4, 4, 4]}]\n"

START_TEST(hot_experts_go_to_the_fast_device)
{
    struct plan p = parse(COUNTED, "1 GiB");
    int64_t before = simulated(&p), n[3], bytes[3], ns = place(&p);
    ck_assert_int_lt(ns, before);
    ck_assert_int_eq(simulated(&p), ns);
    const int32_t *order = p.job.model.expert_blocks[0].order;
    ck_assert_ptr_nonnull(order);
    counts(&p, n, bytes);
    ck_assert_int_eq(n[0] + n[1] + n[2], 12);
    bool hot = false;
    for (int64_t i = 0; i < n[0]; i++) hot |= order[i] == 4;
    ck_assert(hot);
    ck_assert_msg(plan_check(&p, p.replicas[0].stages[0].last_layer + 1, &err) == OK, "%s", err.text);
}
END_TEST

START_TEST(a_plan_without_counts_stays_as_it_is)
{
    struct plan p = parse("", "1 GiB");
    const struct sharding *s = p.replicas[0].stages[0].sharding;
    ck_assert_int_eq(place(&p), INT64_MAX);
    ck_assert_ptr_eq(p.replicas[0].stages[0].sharding, s);
    ck_assert_int_eq(p.job.model.n_expert_blocks, 0);
}
END_TEST

/* The fast device has room for its four experts and one more: equal experts would fill it with more. */
START_TEST(memory_limits_what_the_fast_device_gets)
{
    static const char even[] = "experts: [{block: 0, tokens: [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]}]\n";
    struct plan free = parse(even, "1 GiB"), given = parse(even, "1 GiB");
    int64_t most[3], n[3], bytes[3], first[3], unlimited[3];
    counts(&given, n, first);
    ck_assert_int_eq(n[0], 4);
    place(&free);
    counts(&free, most, unlimited);
    ck_assert_int_gt(most[0], 5);
    int64_t room = first[0] + (unlimited[0] - first[0]) / (most[0] - 4) + 4096;
    struct plan p = parse(even, arena_printf(a, "%lld B", (long long)room));
    int64_t before = simulated(&p), ns = place(&p);
    ck_assert_int_lt(before, INT64_MAX);
    ck_assert_int_lt(ns, before);
    counts(&p, n, bytes);
    ck_assert_int_eq(n[0], 5);
    ck_assert_int_le(bytes[0], room);
}
END_TEST

Suite *expert_place_suite(void)
{
    Suite *s = suite_create("expert_place");
    TCase *t = tcase_create("expert_place");
    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_test(t, hot_experts_go_to_the_fast_device);
    tcase_add_test(t, a_plan_without_counts_stays_as_it_is);
    tcase_add_test(t, memory_limits_what_the_fast_device_gets);
    suite_add_tcase(s, t);
    return s;
}
