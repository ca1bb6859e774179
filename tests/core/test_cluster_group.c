/* GPUs taken together as one device: which devices are left, what their types and links become, what is refused. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/cluster/group.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static struct error err;
static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
}
static void teardown(void) { arena_free(arena); }

/* Node a has four GPUs of one type and one of another, node b two. */
static const char team[] =
    "version: 1\nname: team\n"
    "device_types:\n"
    "  - {name: big, device: A100-SXM4-40, memory: 40 GiB, reserve: 1 GiB}\n"
    "  - {name: small, device: V100-SXM2-16, memory: 16 GiB}\n"
    "nodes:\n"
    "  - {name: a, devices: [{type: big, count: 4}, {type: small}]}\n"
    "  - {name: b, devices: [{type: big, count: 2}]}\n"
    "switches: [{name: core}]\n"
    "links:\n"
    "  - {name: bus, between: [a], bandwidth: 100 GB/s, latency: 1 us}\n"
    "  - {name: near, between: [a.0, a.1], bandwidth: 200 GB/s, latency: 1 us}\n"
    "  - {name: near2, between: [a.2, a.3], bandwidth: 210 GB/s, latency: 1 us}\n"
    "  - {name: cross, between: [a.3, a.0], bandwidth: 220 GB/s, latency: 1 us}\n"
    "  - {name: cross2, between: [a.1, a.2], bandwidth: 230 GB/s, latency: 1 us}\n"
    "  - {name: up3, between: [a.3, core], bandwidth: 10 GB/s, latency: 2 us}\n"
    "  - {name: up2, between: [core, a.2], bandwidth: 20 GB/s, latency: 2 us}\n"
    "  - {name: out, between: [b, core], bandwidth: 5 GB/s, latency: 3 us}\n"
    "  - {name: far, between: [b.1, a.1], bandwidth: 7 GB/s, latency: 9 us}\n";

static struct cluster parsed(const char *text)
{
    struct node *root;
    struct cluster c;
    ck_assert_msg(document_parse(arena, "team", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(cluster_parse(arena, root, &c, &err) == OK, "%s", err.text);
    return c;
}

static const char *written(const struct cluster *c)
{
    char *buffer = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&buffer, &n);
    cluster_write(out, c, 0);
    fclose(out);
    char *text = arena_strdup(arena, buffer);
    free(buffer);
    return text;
}

/* GPUs 0, 1 and 2, 3 of a; b stays. */
static struct cluster pairs_of(const struct cluster *c, int32_t **where)
{
    static const int32_t low[] = {1, 0}, high[] = {2, 3};
    const struct cluster_group groups[] = {{2, low, false}, {2, high, false}};
    struct cluster out;
    ck_assert_msg(cluster_group(arena, c, groups, 2, &out, where, &err) == OK, "%s", err.text);
    return out;
}

START_TEST(a_group_is_the_device_of_its_lowest_gpu)
{
    struct cluster c = parsed(team);
    int32_t *where;
    struct cluster g = pairs_of(&c, &where);
    static const char *const names[] = {"a.0", "a.2", "a.4", "b.0", "b.1"};
    static const int32_t types[] = {2, 2, 1, 0, 0}, places[] = {0, 0, 1, 1, 2, 3, 4};
    ck_assert_int_eq(g.n_devices, 5);
    for (int32_t i = 0; i < 5; i++) {
        ck_assert_str_eq(g.devices[i].name, names[i]);
        ck_assert_int_eq(g.devices[i].type, types[i]);
    }
    for (int32_t i = 0; i < 7; i++) ck_assert_int_eq(where[i], places[i]);
    ck_assert_int_eq(g.n_nodes, 2);
    ck_assert(g.nodes[0].n_devices == 3 && g.nodes[1].first_device == 3 &&
              g.nodes[1].n_devices == 2);
    ck_assert(g.n_switches == 1 && g.n_types == 3);
    ck_assert_str_eq(g.types[2].name, "big-x2");
    ck_assert_str_eq(g.types[2].catalogue, "A100-SXM4-40");
    ck_assert_str_eq(g.types[2].gpu_type, "big");
    ck_assert_ptr_null(g.types[0].gpu_type);
    ck_assert_int_eq(g.types[2].tensor_parallel, 2);
    ck_assert_int_eq(g.types[2].memory_bytes, INT64_C(40) << 30);
    ck_assert_int_eq(g.types[2].reserve_bytes, INT64_C(1) << 30);
    ck_assert_int_eq(c.n_devices, 7); /* the old one is as it was */
}
END_TEST

START_TEST(a_link_of_a_gpu_is_a_link_of_its_group_and_the_first_stands_for_all)
{
    struct cluster c = parsed(team), g = pairs_of(&c, NULL);
    static const char *const names[] = {"bus", "cross", "up3", "out", "far"};
    int32_t towards;
    ck_assert_int_eq(g.n_links, 5);
    for (int32_t i = 0; i < 5; i++) ck_assert_str_eq(g.links[i].name, names[i]);
    ck_assert_int_eq(cluster_link(&g, 0, 1, &towards), 1);
    ck_assert_int_eq(towards, 1); /* cross: [a.3, a.0] */
    ck_assert_int_eq(cluster_link(&g, 0, 2, &towards), 0);
    ck_assert_int_eq(cluster_link(&g, 0, 4, &towards), 4);
    ck_assert_int_eq(towards, 1);
    ck_assert_int_eq(cluster_link(&g, 1, 4, &towards), -1);
    ck_assert_str_eq(cluster_link_end(&g, &g.links[2], 0), "a.2");
}
END_TEST

START_TEST(what_is_grouped_can_be_written_and_read)
{
    struct cluster c = parsed(team), g = pairs_of(&c, NULL);
    const char *text = written(&g);
    struct cluster again = parsed(text);
    ck_assert_str_eq(written(&again), text);
    ck_assert_str_eq(again.devices[1].name, "a.2");
    ck_assert_int_eq(again.devices[1].index, 2);
}
END_TEST

START_TEST(no_groups_and_groups_of_one_change_nothing)
{
    struct cluster c = parsed(team), out;
    static const int32_t three[] = {3};
    const struct cluster_group one = {1, three, false};
    ck_assert_int_eq(cluster_group(arena, &c, NULL, 0, &out, NULL, &err), OK);
    ck_assert_str_eq(written(&out), written(&c));
    ck_assert_int_eq(cluster_group(arena, &c, &one, 1, &out, NULL, &err), OK);
    ck_assert_str_eq(written(&out), written(&c));
}
END_TEST

/* Degrees side by side, with and without shared positions; a name that somebody else has. */
START_TEST(each_strategy_has_one_type)
{
    struct cluster c = parsed(team), out;
    static const int32_t low[] = {0, 1}, high[] = {3, 2}, b[] = {5, 6};
    struct cluster_group groups[] = {{2, low, false}, {2, high, true}, {2, b, false}};
    ck_assert_int_eq(cluster_group(arena, &c, groups, 3, &out, NULL, &err), OK);
    ck_assert_int_eq(out.n_types, 4);
    ck_assert(out.devices[0].type == 2 && out.devices[1].type == 3 && out.devices[3].type == 2);
    ck_assert_str_eq(out.types[3].name, "big-x2s");
    c.types[1].name = "big-x2";
    ck_assert_int_eq(cluster_group(arena, &c, groups, 1, &out, NULL, &err), OK);
    ck_assert_str_eq(out.types[out.devices[0].type].name, "big-x2-2");
    c.types[1] = c.types[0]; /* and one that means just that */
    c.types[1].name = "big-x2", c.types[1].tensor_parallel = 2, c.types[1].gpu_type = "small";
    ck_assert_int_eq(cluster_group(arena, &c, groups, 1, &out, NULL, &err), OK);
    ck_assert_str_eq(out.types[out.devices[0].type].name, "big-x2-2"); /* priced otherwise */
    c.types[1].gpu_type = "big";
    ck_assert_int_eq(cluster_group(arena, &c, groups, 1, &out, NULL, &err), OK);
    ck_assert(out.n_types == 2 && out.devices[0].type == 1);
}
END_TEST

START_TEST(gpus_that_cannot_form_a_tensor_parallel_group_are_named)
{
    struct cluster c = parsed(team), out;
    static const int32_t twice[] = {0, 0}, types[] = {3, 4}, nodes[] = {3, 5}, high[] = {1, 7};
    const struct {
        struct cluster_group group;
        const char *message;
    } bad[] = {{{2, twice, false}, "a.0 is in two groups"},
               {{2, types, false}, "a.3 and a.4 cannot shard operators"},
               {{2, nodes, false}, "a.3 and b.0 cannot shard operators"},
               {{2, high, false}, "there is no device 7; the cluster has 7"},
               {{0, NULL, false}, "an empty group"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(cluster_group(arena, &c, &bad[i].group, 1, &out, NULL, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, bad[i].message), "%s", err.text);
    }
    struct cluster pairs = pairs_of(&c, NULL);
    static const int32_t both[] = {0, 1};
    const struct cluster_group again = {2, both, false};
    ck_assert_int_eq(cluster_group(arena, &pairs, &again, 1, &out, NULL, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "a.0 already consists of 2 GPUs"), "%s", err.text);
}
END_TEST

/* Of any grouping: GPUs are kept, each device is its node's, no two links join the same ends, and every pair of devices
 * that some of their GPUs' own links join is joined. */
START_TEST(any_grouping_keeps_gpus_and_routes)
{
    struct cluster c = parsed(team);
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint64_t n = 0;
        int32_t members[4][7], of[7];
        struct cluster_group groups[4] = {{0}};
        for (int32_t d = 0; d < 7; d++) {
            int32_t g = d == 4 ? 4 : (int32_t)rng_below(seed, 1, n++, 2) + 2 * (d > 4);
            of[d] = g;
            if (g == 4) continue;
            members[g][groups[g].n++] = d;
            groups[g].devices = members[g];
        }
        struct cluster_group used[4];
        int32_t n_used = 0, *where;
        for (int32_t g = 0; g < 4; g++)
            if (groups[g].n) used[n_used++] = groups[g];
        struct cluster out;
        ck_assert_msg(cluster_group(arena, &c, used, n_used, &out, &where, &err) == OK, "%s",
                      err.text);
        int32_t gpus = 0, towards;
        for (int32_t d = 0; d < out.n_devices; d++) {
            int32_t each = out.types[out.devices[d].type].tensor_parallel;
            gpus += each > 1 ? each : 1;
        }
        ck_assert_int_eq(gpus, 7);
        for (int32_t d = 0; d < 7; d++) {
            ck_assert_int_eq(out.devices[where[d]].node, c.devices[d].node);
            for (int32_t e = 0; e < 7; e++) {
                bool joined = cluster_link(&c, d, e, &towards) >= 0;
                ck_assert_int_eq(where[d] == where[e], d == e || (of[d] == of[e] && of[d] < 4));
                if (joined && where[d] != where[e])
                    ck_assert_int_ge(cluster_link(&out, where[d], where[e], &towards), 0);
            }
        }
        parsed(written(&out)); /* which refuses a second link of the same ends */
        arena_reset(arena);
        c = parsed(team);
    }
}
END_TEST

Suite *cluster_group_suite(void)
{
    const TTest *tests[] = {a_group_is_the_device_of_its_lowest_gpu,
                            a_link_of_a_gpu_is_a_link_of_its_group_and_the_first_stands_for_all,
                            what_is_grouped_can_be_written_and_read,
                            no_groups_and_groups_of_one_change_nothing,
                            each_strategy_has_one_type,
                            gpus_that_cannot_form_a_tensor_parallel_group_are_named,
                            any_grouping_keeps_gpus_and_routes};
    Suite *suite = suite_create("cluster_group");
    TCase *t = tcase_create("cluster_group");
    tcase_add_checked_fixture(t, setup, teardown);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, tests[i]);
    suite_add_tcase(suite, t);
    return suite;
}
