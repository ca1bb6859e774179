/* The fleet search: its modules against values computed by hand, and against the exact search on small clusters. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "planner/fleet/fleet.h"
#include "planner/fleet/mix.h"
#include "planner/fleet/place.h"
#include "planner/fleet/template_classes.h"
#include "planner/search.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "planner/topology/device_graph.h"
#include "profiles/team.h"

#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct arena *arena;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Two halves of two types, 8 nodes of 4 each, and a core that is the narrow place. */
static const char *two_halves =
    "version: 1\n"
    "name: halves\n"
    "device_types: [{name: h, device: H100-SXM5}, {name: v, device: V100-SXM2-32}]\n"
    "nodes:\n"
    "  - {name: h, count: 8, devices: {type: h, count: 4}}\n"
    "  - {name: v, count: 8, devices: {type: v, count: 4}}\n"
    "switches: [{name: sh}, {name: sv}]\n"
    "links:\n"
    "  - {name: nh, count: 8, between: [h], bandwidth: 400 GB/s, latency: 1 us}\n"
    "  - {name: nv, count: 8, between: [v], bandwidth: 100 GB/s, latency: 1 us}\n"
    "  - {name: uh, count: 8, between: [h, sh], bandwidth: 50 GB/s, latency: 5 us}\n"
    "  - {name: uv, count: 8, between: [v, sv], bandwidth: 25 GB/s, latency: 5 us}\n"
    "  - {name: core, between: [sh, sv], bandwidth: 10 GB/s, latency: 50 us}\n";

static const char *small_job =
    "version: 1\n"
    "model: {model_type: gpt2, n_embd: 1024, n_layer: 8, n_head: 16, n_positions: 512, "
    "vocab_size: 8192}\n"
    "sequence_length: 512\nglobal_batch: 256\nmicrobatch: 2\nprecision: fp16\n";

struct made {
    struct cluster cluster;
    struct job job;
    struct profile profile;
    struct tp_options offers;
    struct template_classes classes;
    struct space space;
    struct template_maker *maker;
};

static void make(struct made *m, const int32_t *tp, int32_t n)
{
    struct error err = {0};
    struct lower_options lower = {.check_memory = true};
    m->cluster = texts_cluster(arena, two_halves);
    m->job = texts_job(arena, small_job);
    ck_assert_msg(profile_prior(arena, &m->cluster, &m->profile, &err) == OK, "%s", err.text);
    ck_assert_int_eq(team_fused(arena, &m->cluster, &lower, &err), OK);
    struct search_context t = {.arena = arena, .spmd_stage = spmd_stage_new()};
    ck_assert_msg(tp_options_make(&t, arena, &m->job, &m->cluster, &m->profile, tp, n, &m->offers,
                                  &err) == OK,
                  "%s", err.text);
    template_classes_make(arena, &m->offers, tp, n, &m->classes);
    ck_assert_msg(template_classes_size(arena, &m->classes, &m->offers, 2, &lower, &m->space,
                                        &m->maker, &err) == OK,
                  "%s", err.text);
    spmd_stage_free(t.spmd_stage);
}

/* A node and a link of its own for every type, all on one switch. */
static struct cluster of_types(int32_t n)
{
    const char *types = "", *nodes = "", *links = "";
    for (int32_t i = 0; i < n; i++) {
        const char *comma = i ? ", " : "";
        types = arena_printf(arena, "%s%s{name: t%d, device: V100-SXM2-32}", types, comma, (int)i);
        nodes = arena_printf(arena, "%s%s{name: n%d, devices: {type: t%d}}", nodes, comma, (int)i,
                             (int)i);
        links = arena_printf(arena,
                             "%s%s{name: u%d, between: [n%d, s], bandwidth: 1 GB/s, latency: 1 us}",
                             links, comma, (int)i, (int)i);
    }
    return texts_cluster(arena,
                         arena_printf(arena,
                                      "version: 1\nname: many\ndevice_types: [%s]\nnodes: [%s]\n"
                                      "switches: [{name: s}]\nlinks: [%s]\n",
                                      types, nodes, links));
}

START_TEST(more_types_than_are_told_apart_are_refused)
{
    for (int32_t n = DEVICE_CLASSES_MAX; n <= DEVICE_CLASSES_MAX + 1; n++) {
        struct cluster c = of_types(n);
        struct profile p;
        struct device_graph *g;
        struct error err = {0};
        ck_assert_msg(profile_prior(arena, &c, &p, &err) == OK, "%s", err.text);
        enum status st = device_graph_new(arena, &c, cost_new(arena, &p, &c), &g, &err);
        ck_assert_int_eq(st, n > DEVICE_CLASSES_MAX ? ERR_INPUT : OK);
        if (st == OK) ck_assert_int_eq(g->n_classes, DEVICE_CLASSES_MAX);
        if (st != OK) ck_assert_ptr_nonnull(strstr(err.text, "'many' has devices of more than 64"));
    }
}
END_TEST

START_TEST(devices_are_of_two_classes_in_two_zones_and_the_core_is_the_bottleneck)
{
    static const int32_t one[] = {1};
    struct made m;
    make(&m, one, 1);
    const struct device_graph *g = m.offers.graph;
    ck_assert_int_eq(g->n_classes, 2);
    ck_assert_int_eq(g->n_zones, 2);
    ck_assert_int_eq(g->n_sites, 16);
    for (int32_t k = 0; k < 2; k++) {
        ck_assert_int_eq(g->classes[k].n, 32);
        ck_assert_int_eq(g->classes[k].per_node, 4);
        for (int32_t i = 1; i < 32; i++) /* GPUs of a node stand side by side */
            ck_assert(i % 4 == 0 || m.cluster.devices[g->classes[k].devices[i]].node ==
                                        m.cluster.devices[g->classes[k].devices[i - 1]].node);
    }
    ck_assert_str_eq(m.cluster.links[g->bottleneck].name, "core");
    /* 10 GB/s for 32 devices */
    ck_assert_double_eq_tol(g->zone_share_Bps, 10e9 / 32, 1);
}
END_TEST

/* By hand: inside a node the bus; between two nodes the slower uplink and both latencies; across, the core. */
START_TEST(routes_are_as_fast_as_their_slowest_link)
{
    static const int32_t one[] = {1};
    struct made m;
    make(&m, one, 1);
    const struct cost_link *in = device_graph_link(m.offers.graph, 0, 1),
                           *out = device_graph_link(m.offers.graph, 0, 4),
                           *across = device_graph_link(m.offers.graph, 63, 0);
    ck_assert_double_eq(in->bandwidth_Bps, 400e9);
    ck_assert_int_eq(in->latency_ns, 1000);
    ck_assert_double_eq(out->bandwidth_Bps, 50e9);
    ck_assert_int_eq(out->latency_ns, 10000);
    ck_assert_double_eq(across->bandwidth_Bps, 10e9);
    ck_assert_int_eq(across->latency_ns, 60000);
    ck_assert_ptr_null(device_graph_link(m.offers.graph, 7, 7));
}
END_TEST

START_TEST(templates_cover_all_layers_keep_the_pace_and_stay_within_their_pool)
{
    static const int32_t one[] = {1};
    struct made m;
    make(&m, one, 1);
    double free_of_charge[2] = {0, 0}, only_second[2] = {-1, 0};
    int64_t least, most;
    template_paces(m.maker, &least, &most);
    int32_t found = 0;
    for (int64_t tau = least; tau < most; tau += (most - least) / 17) {
        struct template t;
        for (int which = 0; which < 2; which++) {
            if (!template_cheapest(m.maker, tau, which ? only_second : free_of_charge, &t))
                continue;
            found++;
            ck_assert_int_eq(t.stages[0].first, 0);
            ck_assert_int_eq(t.stages[t.n_stages - 1].last, m.space.n_layers - 1);
            ck_assert_int_le(t.tau_ns, tau);
            for (int32_t i = 0; i < t.n_stages; i++) {
                if (i) ck_assert_int_eq(t.stages[i].first, t.stages[i - 1].last + 1);
                if (i) ck_assert_int_lt(t.stages[i].warmup, t.stages[i - 1].warmup);
                ck_assert(!which || t.stages[i].device_class == 1);
            }
            ck_assert_int_le(t.use[0], 32);
            ck_assert_int_le(t.use[1], 32);
        }
    }
    ck_assert_int_gt(found, 10);
}
END_TEST

/* By hand: fill 10, tau 10: 1, 2, 3 … microbatches end at 10, 20, 30; fill 20, tau 20 half as many. Of 9 over one of
 * each: 6 and 3 end at 60. */
START_TEST(shares_fill_up_to_one_level)
{
    struct template t[2] = {{.tau_ns = 10, .fill_ns = 10}, {.tau_ns = 20, .fill_ns = 20}};
    int32_t count[2] = {1, 1}, least[2], more[2];
    struct mix x = {.n = 2, .templates = t, .count = count, .least = least, .more = more};
    ck_assert(mix_share(&x, 9));
    ck_assert_int_eq(x.t_ns, 60);
    ck_assert_int_eq(least[0], 6);
    ck_assert_int_eq(least[1], 3);
    count[0] = 3, count[1] = 2; /* 12 at level 40: 3 · 4 + 2 · 2 = 16, at 30: 9 + 2 = 11 */
    ck_assert(mix_share(&x, 12));
    ck_assert_int_eq(x.t_ns, 40);
    ck_assert_int_eq(3 * least[0] + more[0] + 2 * least[1] + more[1], 12);
    ck_assert(!mix_share(&x, 4));
}
END_TEST

START_TEST(a_placed_mix_uses_every_gpu_once_and_no_device_spans_nodes)
{
    static const int32_t tp[] = {1, 2, 4};
    struct made m;
    make(&m, tp, 3);
    ck_assert_int_eq(m.classes.n, 6);
    struct mix x;
    int64_t relaxed;
    ck_assert(mix_solve(m.maker, m.space.microbatches, &(struct mix_options){0}, &x, &relaxed));
    ck_assert_int_ge(x.t_ns, relaxed * 99 / 100);
    for (int how = 0; how < PLACEMENT_COUNT; how++) {
        struct placed p;
        bool used[64] = {false};
        int32_t at = 0, shares = 0;
        ck_assert(place_mix(arena, m.maker, &x, (enum placement_order)how, &p));
        for (int32_t r = 0; r < p.plan.n_replicas; r++) {
            shares += p.plan.replicas[r].microbatches;
            for (int32_t s = 0; s < p.plan.replicas[r].n_stages; s++, at++)
                for (int32_t k = 0; k < m.maker->classes[p.device_class[at]].tp; k++) {
                    int32_t d = p.gpus[at][k];
                    ck_assert(!used[d]);
                    used[d] = true;
                    ck_assert_int_eq(m.cluster.devices[d].node,
                                     m.cluster.devices[p.gpus[at][0]].node);
                }
        }
        ck_assert_int_eq(shares, m.space.microbatches);
        ck_assert_int_gt(place_estimate(arena, &p, &x), x.t_ns - 1);
    }
}
END_TEST

static int draw(uint64_t seed, uint64_t number, int low, int high)
{
    return low + (int)rng_below(seed, 91, number, (uint64_t)(high - low + 1));
}

/* A team of n emulated devices, unequal in speed, memory and links. */
static void random_case(uint64_t seed, int n, struct job *job, struct cluster *cluster)
{
    char text[4096];
    int at = snprintf(text, sizeof text, "version: 1\nname: c\ndevice_types:\n");
    uint64_t k = 0;
    for (int i = 0; i < n; i++, k += 2)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: t%d, device: host, slowdown: %d, memory: %d KiB}\n", i,
                       draw(seed, k, 1, 6), draw(seed, k + 1, 1, 4) * 1000);
    at += snprintf(text + at, sizeof text - (size_t)at, "nodes:\n");
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: n%d, host: localhost, devices: [{type: t%d}]}\n", i, i);
    at += snprintf(text + at, sizeof text - (size_t)at, "links:\n");
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++, k += 2)
            at += snprintf(
                text + at, sizeof text - (size_t)at,
                "  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d MB/s, latency: %d us}\n", j,
                i, j, i, draw(seed, k, 1, 200), draw(seed, k + 1, 1, 500));
    *cluster = texts_cluster(arena, text);
    snprintf(text, sizeof text,
             "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: %d, n_head: 2, "
             "n_positions: 16, vocab_size: 256}\n"
             "sequence_length: 16\nglobal_batch: %d\nmicrobatch: 1\n",
             draw(seed, k, 1, 3), draw(seed, k + 1, 2, 8));
    *job = texts_job(arena, text);
}

/* Iteration of the best plan that the fleet's search finds; INT64_MAX where it finds none. */
static int64_t fleet_finds(const struct job *j, const struct cluster *c,
                           const struct search_options *o)
{
    struct error err = {0};
    struct profile profile;
    struct lower_options lower = {.check_memory = true};
    int64_t sizes[1] = {j->microbatch_sizes[0]};
    ck_assert_int_eq(profile_prior(arena, c, &profile, &err), OK);
    ck_assert_int_eq(team_fused(arena, c, &lower, &err), OK);
    struct search_context t = {.arena = arena,
                               .o = o,
                               .lower = &lower,
                               .scorer = scorer_new(&lower),
                               .spmd_stage = spmd_stage_new(),
                               .evaluations_left = 20000};
    incumbents_init(&t.incumbents, arena, 32, o, c);
    struct search_task task = {j, c, &profile, sizes, 1};
    ck_assert_msg(fleet_search(&t, &task, NULL, &err) == OK, "%s", err.text);
    spmd_stage_free(t.spmd_stage);
    scorer_free(t.scorer);
    return t.incumbents.n ? t.incumbents.plans[0].iteration_ns : INT64_MAX;
}

static double regret_sum;
static int regret_count;

/* Teams in which no device is like another are what classes are worst at; the exact search is the measure. */
START_TEST(on_small_teams_the_fleets_search_comes_near_the_exact_one)
{
    int cases = getenv("MUSHER_LONG") ? 40 : 12;
    regret_sum = 0, regret_count = 0;
    for (int i = 0; i < cases; i++) {
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct search_result exact;
        struct error err = {0};
        struct search_options o = {.top = 1};
        random_case((uint64_t)i + 1, 2 + i % 3, &job, &cluster);
        ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
        if (search_plans(arena, &job, &cluster, &profile, &o, &exact, &err) != OK) continue;
        int64_t ns = fleet_finds(&job, &cluster, &o);
        ck_assert_int_lt(ns, INT64_MAX);
        ck_assert_int_le(exact.lower_bound_ns, ns);
        regret_sum += (double)ns / (double)exact.plans[0].iteration_ns - 1;
        regret_count++;
    }
    ck_assert_int_gt(regret_count, cases / 2);
    if (getenv("MUSHER_LONG"))
        fprintf(stderr, "fleet: mean regret %.2f %% of %d\n", 100 * regret_sum / regret_count,
                regret_count);
    ck_assert_msg(regret_sum / regret_count < 0.25, "mean regret %.2f %%",
                  100 * regret_sum / regret_count);
}
END_TEST

START_TEST(a_fleet_of_64_is_planned_the_same_twice)
{
    static const int32_t one[] = {1};
    struct made m;
    make(&m, one, 1);
    struct search_options o = {.top = 1};
    int64_t first = fleet_finds(&m.job, &m.cluster, &o);
    ck_assert_int_lt(first, INT64_MAX);
    ck_assert_int_eq(first, fleet_finds(&m.job, &m.cluster, &o));
}
END_TEST

START_TEST(counted_switches_and_links_stand_for_as_many)
{
    struct cluster c =
        texts_cluster(arena, "version: 1\nname: c\n"
                             "device_types: [{name: h, device: H100-SXM5}]\n"
                             "nodes: [{name: n, count: 6, devices: {type: h, count: 2}}]\n"
                             "switches: [{name: leaf, count: 2}, {name: core}]\n"
                             "links:\n"
                             "  - {name: up, count: 6, between: [n, leaf], bandwidth: 1 GB/s, "
                             "latency: 1 us}\n"
                             "  - {name: top, count: 2, between: [leaf, core], bandwidth: 2 "
                             "GB/s, latency: 1 us}\n");
    ck_assert_int_eq(c.n_switches, 3);
    ck_assert_int_eq(c.n_links, 8);
    for (int32_t i = 0; i < 6; i++) {
        ck_assert_int_eq(c.links[i].end[0], i);
        ck_assert_int_eq(c.links[i].end[1], i / 3); /* i · 2 / 6 */
    }
    ck_assert_str_eq(c.links[7].name, "top1");
    ck_assert_int_eq(c.links[7].end[0], 1);
    ck_assert_int_eq(c.links[7].end[1], 2);
}
END_TEST

/* Ports of NVSwitches: one link for each device of the nodes, in their order. */
START_TEST(counted_links_are_of_each_device_or_of_one_of_every_node)
{
    struct cluster c =
        texts_cluster(arena, "version: 1\nname: c\n"
                             "device_types: [{name: h, device: H100-SXM5}]\n"
                             "nodes: [{name: n, count: 3, devices: {type: h, count: 2}}, "
                             "{name: one, devices: {type: h, count: 2}}]\n"
                             "switches: [{name: nvs, count: 3}, {name: core}]\n"
                             "links:\n"
                             "  - {name: port, count: 6, between: [n.*, nvs], bandwidth: 1 GB/s, "
                             "latency: 1 us}\n"
                             "  - {name: nic, count: 3, between: [n.1, core], bandwidth: 2 "
                             "GB/s, latency: 1 us}\n"
                             "  - {name: own, count: 2, between: [one.*, core], bandwidth: 2 "
                             "GB/s, latency: 1 us}\n");
    ck_assert_int_eq(c.n_links, 11);
    for (int32_t i = 0; i < 6; i++) {
        ck_assert_int_eq(c.links[i].kind[0], END_DEVICE);
        ck_assert_int_eq(c.links[i].end[0], i);
        ck_assert_int_eq(c.links[i].end[1], i / 2);
    }
    for (int32_t i = 0; i < 3; i++) ck_assert_int_eq(c.links[6 + i].end[0], 2 * i + 1);
    for (int32_t i = 0; i < 2; i++) ck_assert_int_eq(c.links[9 + i].end[0], 6 + i);
}
END_TEST

Suite *fleet_suite(void)
{
    Suite *s = suite_create("fleet");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, more_types_than_are_told_apart_are_refused);
    tcase_add_test(t, devices_are_of_two_classes_in_two_zones_and_the_core_is_the_bottleneck);
    tcase_add_test(t, routes_are_as_fast_as_their_slowest_link);
    tcase_add_test(t, templates_cover_all_layers_keep_the_pace_and_stay_within_their_pool);
    tcase_add_test(t, shares_fill_up_to_one_level);
    tcase_add_test(t, a_placed_mix_uses_every_gpu_once_and_no_device_spans_nodes);
    tcase_add_test(t, on_small_teams_the_fleets_search_comes_near_the_exact_one);
    tcase_add_test(t, a_fleet_of_64_is_planned_the_same_twice);
    tcase_add_test(t, counted_switches_and_links_stand_for_as_many);
    tcase_add_test(t, counted_links_are_of_each_device_or_of_one_of_every_node);
    suite_add_tcase(s, t);
    return s;
}
