/* Divisions of clusters into islands (tools/strategy/islands.h) by hand, and clusters that are alike. */
#include "tools/strategy/islands.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <string.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct cluster joined(const char *nodes, const char *links)
{
    struct cluster c;
    struct error err = {0};
    const char *text = arena_printf(arena,
                                    "version: 1\nname: c\ndevice_types: [{name: t, device: host, memory: 1 GiB}]\n"
                                    "nodes:\n%sswitches: [{name: s}, {name: w}]\nlinks:\n%s",
                                    nodes, links);
    ck_assert_msg(cluster_parse(arena, texts_parse(arena, text), &c, &err) == OK, "%s", err.text);
    return c;
}

#define NODE(name) "  - {name: " name ", host: localhost, devices: {type: t, count: 2}}\n"
#define LINK(name, from, to, rate) "  - {name: " name ", between: [" from ", " to "], bandwidth: " rate ", latency: 1 us}\n"

/* "0 0 1 1": island of each node's first device. */
static const char *islands_of(const struct cluster *c, const struct islands *x)
{
    const char *text = "";
    for (int32_t n = 0; n < c->n_nodes; n++)
        text = arena_printf(arena, "%s%s%d", text, n ? " " : "", (int)x->of[c->nodes[n].first_device]);
    return text;
}

START_TEST(nodes_join_by_the_bandwidth_of_their_links)
{
    struct islands *x;
    /* a and b at 10 GB/s, c and d over a switch at 5, both halves at 1 */
    struct cluster c = joined(NODE("a") NODE("c") NODE("b") NODE("d"),
                            LINK("ab", "a", "b", "10 GB/s") LINK("cs", "c", "s", "5 GB/s") LINK("ds", "d", "s", "5 GB/s")
                                LINK("bs", "b", "s", "1 GB/s") "  - {name: in, between: [a], bandwidth: 99 GB/s, latency: 1 us}\n");
    ck_assert_int_eq(islands_divisions(arena, &c, &x), 3);
    ck_assert_str_eq(islands_of(&c, &x[0]), "0 1 2 3");
    ck_assert_double_eq(x[0].between_Bps, 10e9);
    ck_assert_str_eq(islands_of(&c, &x[1]), "0 1 0 2");
    ck_assert_double_eq(x[1].between_Bps, 5e9);
    ck_assert_str_eq(islands_of(&c, &x[2]), "0 1 0 1");
    ck_assert_double_eq(x[2].between_Bps, 1e9);
    for (int32_t d = 0; d < c.n_devices; d++) /* a node is never divided */
        for (int i = 0; i < 3; i++) ck_assert_int_eq(x[i].of[d], x[i].of[c.nodes[c.devices[d].node].first_device]);
}
END_TEST

START_TEST(one_node_or_one_bandwidth_has_few_divisions)
{
    struct islands *x;
    struct cluster c = joined(NODE("a"), "  - {name: in, between: [a], bandwidth: 9 GB/s, latency: 1 us}\n");
    ck_assert_int_eq(islands_divisions(arena, &c, &x), 0);
    c = joined(NODE("a") NODE("b") NODE("c"), LINK("as", "a", "s", "2 GB/s") LINK("bs", "b", "s", "2 GB/s") LINK("cs", "c", "s", "2 GB/s"));
    ck_assert_int_eq(islands_divisions(arena, &c, &x), 1);
    ck_assert_int_eq(x[0].n, 3);
    ck_assert_double_eq(x[0].between_Bps, 2e9);
}
END_TEST

START_TEST(islands_are_alike_but_for_names)
{
    struct islands *x;
    struct cluster part[3];
    struct cluster c = joined(NODE("a") NODE("b") NODE("p") NODE("q") "  - {name: r, host: localhost, devices: {type: t, count: 3}}\n",
                            LINK("as", "a", "s", "8 GB/s") LINK("bs", "b", "s", "8 GB/s") LINK("pw", "p", "w", "8 GB/s")
                                LINK("qw", "q", "w", "8 GB/s") LINK("sw", "s", "w", "1 GB/s") LINK("wr", "w", "r", "1 GB/s"));
    int32_t n = islands_divisions(arena, &c, &x);
    ck_assert_str_eq(islands_of(&c, &x[n - 1]), "0 0 1 1 2");
    for (int32_t i = 0; i < 3; i++)
        islands_part(arena, &c, &x[n - 1], i, &part[i]);
    ck_assert_int_eq(part[0].n_links, 2);
    ck_assert(islands_alike(arena, &part[0], &part[1]));
    ck_assert(!islands_alike(arena, &part[0], &part[2]));
    part[1].links[0].bandwidth_Bps = 7e9;
    ck_assert(!islands_alike(arena, &part[0], &part[1]));
}
END_TEST

Suite *islands_suite(void)
{
    Suite *s = suite_create("islands");
    TCase *t = tcase_create("islands");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, nodes_join_by_the_bandwidth_of_their_links);
    tcase_add_test(t, one_node_or_one_bandwidth_has_few_divisions);
    tcase_add_test(t, islands_are_alike_but_for_names);
    suite_add_tcase(s, t);
    return s;
}
