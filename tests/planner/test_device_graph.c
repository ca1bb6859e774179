/* The graph of devices (planner/topology/device_graph): classes, zones and routes against values computed by hand. */
#include "core/base/arena.h"
#include "planner/topology/device_graph.h"
#include "profiles/profile.h"
#include "sim/cost.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

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

struct made {
    struct cluster cluster;
    struct profile profile;
    struct device_graph *graph;
};

static void make(struct made *m)
{
    struct error err = {0};
    m->cluster = texts_cluster(arena, two_halves);
    ck_assert_msg(profile_prior(arena, &m->cluster, &m->profile, &err) == OK, "%s", err.text);
    ck_assert_msg(device_graph_new(arena, &m->cluster, cost_new(arena, &m->profile, &m->cluster),
                                   &m->graph, &err) == OK,
                  "%s", err.text);
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

START_TEST(any_number_of_types_is_told_apart)
{
    struct cluster c = of_types(100);
    struct profile p;
    struct device_graph *g;
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &c, &p, &err) == OK, "%s", err.text);
    ck_assert_int_eq(device_graph_new(arena, &c, cost_new(arena, &p, &c), &g, &err), OK);
    ck_assert_int_eq(g->n_types, 100);
    ck_assert_ptr_nonnull(device_graph_link(g, 0, 99));
}
END_TEST

START_TEST(neighbours_are_adjacent_and_half_of_the_devices_are_below_the_core)
{
    struct made m;
    make(&m);
    const struct device_graph *g = m.graph;
    ck_assert_int_eq(g->n_sites, 16);
    for (int32_t i = 1; i < g->n_devices; i++) /* GPUs of a node are adjacent */
        ck_assert(i % 4 == 0 || m.cluster.devices[g->order[i]].node ==
                                    m.cluster.devices[g->order[i - 1]].node);
    for (int32_t i = 0; i < m.cluster.n_links; i++)
        if (!strcmp(m.cluster.links[i].name, "core")) ck_assert_int_eq(g->below[i], 32);
}
END_TEST

/* By hand: inside a node the bus; between two nodes the slower uplink and both latencies; across, the core. */
START_TEST(routes_are_as_fast_as_their_slowest_link)
{
    struct made m;
    make(&m);
    const struct cost_link *in = device_graph_link(m.graph, 0, 1),
                           *out = device_graph_link(m.graph, 0, 4),
                           *across = device_graph_link(m.graph, 63, 0);
    ck_assert_double_eq(in->bandwidth_Bps, 400e9);
    ck_assert_int_eq(in->latency_ns, 1000);
    ck_assert_double_eq(out->bandwidth_Bps, 50e9);
    ck_assert_int_eq(out->latency_ns, 10000);
    ck_assert_double_eq(across->bandwidth_Bps, 10e9);
    ck_assert_int_eq(across->latency_ns, 60000);
    ck_assert_ptr_null(device_graph_link(m.graph, 7, 7));
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

Suite *device_graph_suite(void)
{
    Suite *s = suite_create("device_graph");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, any_number_of_types_is_told_apart);
    tcase_add_test(t, neighbours_are_adjacent_and_half_of_the_devices_are_below_the_core);
    tcase_add_test(t, routes_are_as_fast_as_their_slowest_link);
    tcase_add_test(t, counted_switches_and_links_stand_for_as_many);
    tcase_add_test(t, counted_links_are_of_each_device_or_of_one_of_every_node);
    suite_add_tcase(s, t);
    return s;
}
