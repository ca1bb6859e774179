/* Ways through switches: which links, in which direction, and what of a network is refused. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/cluster/cluster.h"
#include "core/cluster/topology.h"

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

static enum status parse(const char *text, struct cluster *out)
{
    struct node *root;
    ck_assert_msg(document_parse(arena, "text", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    return cluster_parse(arena, root, out, &err);
}

#define HEAD                                                                                       \
    "version: 1\nname: net\ndevice_types: [{name: t, device: H100}]\n"                             \
    "nodes: [{name: a, devices: {type: t, count: 3}}, {name: b, devices: {type: t, count: 2}}]\n"
#define SWITCHES "switches: [{name: p}, {name: q}, {name: core}]\n"
#define SPEED(latency) ", bandwidth: 1 GB/s, latency: " latency "}"
#define LINKS(...) HEAD SWITCHES "links: [" __VA_ARGS__ "]\n"

static struct cluster good(const char *text)
{
    struct cluster c;
    ck_assert_msg(parse(text, &c) == OK, "%s", err.text);
    return c;
}

static void refused(const char *text, const char *message)
{
    struct cluster c;
    ck_assert_int_eq(parse(text, &c), ERR_INPUT);
    ck_assert_msg(strstr(err.text, message) != NULL, "%s\nexpected: %s", err.text, message);
    ck_assert_msg(strncmp(err.text, "text:", 5) == 0, "%s", err.text);
}

/* "up>p<down": names of links with > from end 0 to end 1 and < back; "none". */
static const char *route_of(const struct cluster *c, struct topology *t, const char *from,
                       const char *to)
{
    struct route r;
    if (!topology_route(t, cluster_device(c, from), cluster_device(c, to), &r)) return "none";
    const char *text = "";
    for (int32_t i = 0; i < r.n_hops; i++)
        text =
            arena_printf(arena, "%s%s%s", text, c->links[r.link[i]].name, r.towards[i] ? "<" : ">");
    return text;
}

START_TEST(messages_go_through_switches_and_back_by_the_same_route)
{
    struct cluster c = good(
        LINKS("{name: u0, between: [a.0, p]" SPEED("1 us") ", {name: u1, between: [p, a.1]" SPEED(
            "1 us") ", {name: trunk, between: [p, core]" SPEED("1 us") ", {name: out, between: "
                                                                       "[core, b]" SPEED("1 us")));
    struct topology *t = topology_new(arena, &c);
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.1"), "u0>u1>");
    ck_assert_str_eq(route_of(&c, t, "a.1", "a.0"), "u1<u0<");
    ck_assert_str_eq(route_of(&c, t, "a.0", "b.1"), "u0>trunk>out>");
    ck_assert_str_eq(route_of(&c, t, "b.1", "a.0"), "out<trunk<u0<");
    ck_assert_str_eq(route_of(&c, t, "b.0", "b.1"), "out<out>");
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.2"), "none");
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.0"), "none");
}
END_TEST

START_TEST(a_direct_link_needs_no_switch)
{
    struct cluster c =
        good(LINKS("{name: bus, between: [a]" SPEED("1 s") ", {name: u0, between: [a.0, p]" SPEED(
            "1 us") ", {name: u1, between: [a.1, p]" SPEED("1 us")));
    struct topology *t = topology_new(arena, &c);
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.1"), "bus>");
    ck_assert_str_eq(route_of(&c, t, "a.1", "a.0"), "bus<");
}
END_TEST

START_TEST(fewer_links_come_before_less_latency_and_that_before_the_order_of_the_file)
{
    /* p and q both join a.0 and a.1; core makes a longer way. */
    struct cluster c = good(
        LINKS("{name: p0, between: [a.0, p]" SPEED("3 us") ", {name: p1, between: [a.1, p]" SPEED(
            "3 us") ", {name: q0, between: [a.0, q]" SPEED("1 us") ", {name: q1, between: [a.1, "
                                                                   "q]" SPEED("4 us")));
    struct topology *t = topology_new(arena, &c);
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.1"), "q0>q1<");
    c.links[3].latency_s = 5e-6; /* 6 us in both directions */
    t = topology_new(arena, &c);
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.1"), "p0>p1<");
    ck_assert_str_eq(route_of(&c, t, "a.1", "a.0"), "p1>p0<");
    c = good(
        LINKS("{name: p0, between: [a.0, p]" SPEED("1 ns") ", {name: pq, between: [p, q]" SPEED(
            "1 ns") ", {name: q1, between: [a.1, q]" SPEED("1 ns") ", {name: far, between: [p, "
                                                                   "a]" SPEED("9 s")));
    t = topology_new(arena, &c);
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.1"), "p0>far>");
}
END_TEST

START_TEST(nodes_and_devices_pass_nothing_on)
{
    /* a.1 joins p and q; b's nodes' link leads from a to b, but not through b to core. */
    struct cluster c = good(
        LINKS("{name: p0, between: [a.0, p]" SPEED("1 us") ", {name: p1, between: [a.1, p]" SPEED(
            "1 us") ", {name: q1, between: [a.1, q]" SPEED("1 us") ", {name: q2, between: [a.2, "
                                                                   "q]" SPEED("1 us")));
    struct topology *t = topology_new(arena, &c);
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.2"), "none");
    ck_assert_str_eq(route_of(&c, t, "a.1", "a.2"), "q1>q2<");
}
END_TEST

START_TEST(rings_of_switches_end)
{
    struct cluster c = good(
        LINKS("{name: pq, between: [p, q]" SPEED("1 us") ", {name: qc, between: [q, core]" SPEED(
            "1 us") ", {name: cp, between: [core, p]" SPEED("1 us") ", {name: in, between: [a, "
                                                                    "p]" SPEED("1 us") ", {name: "
                                                                                       "out, "
                                                                                       "between: "
                                                                                       "[b, "
                                                                                       "core"
                                                                                       "]" SPEED(
                                                                                           "1"
                                                                                           " "
                                                                                           "u"
                                                                                           "s")));
    struct topology *t = topology_new(arena, &c);
    ck_assert_str_eq(route_of(&c, t, "a.2", "b.1"), "in>cp<out<");
    ck_assert_str_eq(route_of(&c, t, "a.0", "a.1"), "in>in<");
}
END_TEST

START_TEST(what_contradicts_itself_is_refused_at_its_place)
{
    refused(LINKS("{name: x, between: [a.0, r]" SPEED("1 us")),
            "links[0].between[1]: unknown node or switch 'r'; known: a, b, p, q, core");
    refused(LINKS("{name: x, between: [p, p]" SPEED("1 us")), "names switch p twice");
    refused(LINKS("{name: x, between: [p]" SPEED("1 us")), "a single end must be a node");
    refused(LINKS("{name: x, between: [a, b.0]" SPEED("1 us")), "a switch may join any two");
    refused(LINKS("{name: x, between: [p, a.0]" SPEED("1 us") ", {name: y, between: [a.0, p]" SPEED(
                "1 us")),
            "is given twice");
    refused(HEAD "switches: [{name: p}, {name: p}]\n", "is given twice");
    refused(HEAD "switches: [{name: a}]\n", "the name of a node or switch, a is given twice");
    refused(HEAD "switches: [{name: x.y}]\n", "must not contain dots");
    refused(HEAD "switches: [{size: 3}]\n", "unknown key");
    refused(HEAD "switches: 3\n", "must be a list");
    refused(LINKS("{name: x, between: [p, a]}"), "links at a switch state it");
    refused(LINKS("{name: x, between: [p, q], bandwidth: 0 B/s, latency: 1 us}"),
            "bandwidth: must be");
}
END_TEST

START_TEST(networks_are_written_as_they_are_read)
{
    struct cluster c = good(LINKS("{name: u0, between: [a.0, p]" SPEED(
        "1 us") ", {name: trunk, between: [core, p], bandwidth: 3 GB/s, latency: 2 us, duplex: "
                "half, sharing: fair}"));
    struct cluster again;
    char *text = NULL, *second = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    cluster_write(out, &c, 0);
    fclose(out);
    ck_assert_msg(parse(text, &again) == OK, "%s", err.text);
    out = open_memstream(&second, &n);
    cluster_write(out, &again, 0);
    fclose(out);
    ck_assert_str_eq(text, second);
    ck_assert(strstr(text, "  - {name: core}\n") && strstr(text, "between: [core, p]"));
    free(text), free(second);
}
END_TEST

/* --- against a naive search: all ways of up to four links --- */

enum { SWITCHES_MAX = 7, LINKS_MAX = 24, DEEP = 5 };

struct naive {
    const struct cluster *c;
    int32_t to;
    int32_t hops;
    double latency_s;
};

static bool at(const struct cluster *c, const struct link *l, int e, enum link_end kind,
               int32_t index)
{
    return (l->kind[e] == kind && l->end[e] == index) ||
           (kind == END_DEVICE && l->kind[e] == END_NODE && c->devices[index].node == l->end[e]);
}

static void walk(struct naive *x, enum link_end kind, int32_t here, int32_t hops, double latency_s)
{
    if (hops >= DEEP) return;
    for (int32_t i = 0; i < x->c->n_links; i++)
        for (int e = 0; e < 2; e++) {
            const struct link *l = &x->c->links[i];
            double sum = latency_s + l->latency_s;
            if (!at(x->c, l, e, kind, here)) continue;
            if (l->kind[!e] == END_SWITCH) {
                walk(x, END_SWITCH, l->end[!e], hops + 1, sum);
            } else if (kind == END_SWITCH && at(x->c, l, !e, END_DEVICE, x->to) &&
                       (!x->hops || hops + 1 < x->hops ||
                        (hops + 1 == x->hops && sum < x->latency_s))) {
                x->hops = hops + 1;
                x->latency_s = sum;
            }
        }
}

static int32_t drawn(uint64_t seed, uint64_t *n, uint64_t below)
{
    return (int32_t)rng_below(seed, 3, (*n)++, below);
}

START_TEST(routes_are_the_shortest_on_random_networks)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 2000 : 200); seed++) {
        struct cluster c = good(HEAD SWITCHES);
        uint64_t n = 0;
        const char *names[SWITCHES_MAX] = {0};
        c.n_switches = 1 + drawn(seed, &n, SWITCHES_MAX), c.switches = names;
        c.n_links = drawn(seed, &n, LINKS_MAX);
        c.links = ARENA_ARRAY(arena, struct link, LINKS_MAX);
        for (int32_t i = 0; i < c.n_links; i++) {
            struct link *l = &c.links[i];
            *l = (struct link){.name = "l", .n_ends = 2, .latency_s = 1 + drawn(seed, &n, 4)};
            int e = drawn(seed, &n, 2);
            l->kind[e] = END_SWITCH, l->end[e] = drawn(seed, &n, (uint64_t)c.n_switches);
            l->kind[!e] = (enum link_end)drawn(seed, &n, 3);
            int32_t most[] = {c.n_nodes, c.n_devices, c.n_switches};
            l->end[!e] = drawn(seed, &n, (uint64_t)most[l->kind[!e]]);
        }
        struct topology *t = topology_new(arena, &c);
        for (int32_t from = 0; from < c.n_devices; from++)
            for (int32_t to = 0; to < c.n_devices; to++) {
                struct naive x = {.c = &c, .to = to};
                struct route r = {0};
                double sum = 0;
                if (from == to) continue;
                walk(&x, END_DEVICE, from, 0, 0);
                bool found = topology_route(t, from, to, &r);
                for (int32_t i = 0; i < r.n_hops; i++) sum += c.links[r.link[i]].latency_s;
                if (!x.hops && r.n_hops > DEEP) continue; /* longer than the naive one looks */
                ck_assert_int_eq(found, x.hops > 0);
                ck_assert_int_eq(r.n_hops, x.hops);
                ck_assert_double_eq(sum, x.latency_s);
                /* Each link begins where the one before it ended. */
                for (int32_t i = 0; i + 1 < r.n_hops; i++) {
                    const struct link *a = &c.links[r.link[i]], *b = &c.links[r.link[i + 1]];
                    ck_assert(a->kind[!r.towards[i]] == END_SWITCH);
                    ck_assert_int_eq(a->end[!r.towards[i]], b->end[r.towards[i + 1]]);
                    ck_assert(b->kind[r.towards[i + 1]] == END_SWITCH);
                }
                ck_assert(!found || at(&c, &c.links[r.link[0]], r.towards[0], END_DEVICE, from));
            }
        arena_reset(arena);
    }
}
END_TEST

/* Links of two nodes or devices, inside a node, of every pair, and at switches. */
static struct link drawn_link(const struct cluster *c, uint64_t seed, uint64_t *n)
{
    static const enum link_end kinds[] = {END_NODE, END_DEVICE, END_SWITCH, END_ACROSS, END_INSIDE};
    enum link_end kind = kinds[drawn(seed, n, 5)];
    struct link l = {.name = "l", .n_ends = kind == END_ACROSS || kind == END_INSIDE ? 0 : 2};
    if (kind == END_NODE && drawn(seed, n, 2)) l.n_ends = 1;
    for (int e = 0; e < 2; e++) {
        int32_t most = kind == END_NODE ? c->n_nodes : c->n_devices;
        l.kind[e] = kind;
        if (l.n_ends) l.end[e] = kind == END_SWITCH ? 0 : drawn(seed, n, (uint64_t)most);
    }
    return l;
}

START_TEST(the_direct_link_is_that_of_a_search_among_all)
{
    int32_t n_found = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct cluster c = good(HEAD SWITCHES);
        uint64_t n = 0;
        c.n_links = drawn(seed, &n, LINKS_MAX);
        c.links = ARENA_ARRAY(arena, struct link, LINKS_MAX);
        for (int32_t i = 0; i < c.n_links; i++) c.links[i] = drawn_link(&c, seed, &n);
        const struct topology *t = topology_new(arena, &c);
        for (int32_t from = 0; from < c.n_devices; from++)
            for (int32_t to = 0; to < c.n_devices; to++) {
                int32_t direction[2], link = topology_direct(t, from, to, &direction[0]);
                ck_assert_int_eq(link, cluster_link(&c, from, to, &direction[1]));
                ck_assert_int_eq(direction[0], direction[1]);
                n_found += link >= 0;
            }
        arena_reset(arena);
    }
    ck_assert_int_gt(n_found, 0);
}
END_TEST

static void gap_is(const char *text, const char *gap)
{
    struct cluster c = good(text);
    const char *found = topology_gap(arena, &c);
    ck_assert_msg(found == gap || (found && gap && !strcmp(found, gap)), "%s: %s", text, found ? found : "none");
}

START_TEST(devices_that_no_link_joins_are_named)
{
    gap_is(LINKS("{name: l, every: inside" SPEED("1 us") ", {name: x, every: across" SPEED("1 us")), NULL);
    gap_is(LINKS("{name: l, every: inside" SPEED("1 us")), "no link joins a.0-2 to b.0-1");
    gap_is(LINKS("{name: l, between: [a]" SPEED("1 us") ", {name: x, every: across" SPEED("1 us")), "no link joins b.0-1 to each other");
    gap_is(LINKS("{name: l, between: [a, p]" SPEED("1 us") ", {name: m, between: [b, p]" SPEED("1 us")), NULL);
}
END_TEST

Suite *topology_suite(void)
{
    Suite *s = suite_create("core/cluster/topology");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, messages_go_through_switches_and_back_by_the_same_route);
    tcase_add_test(t, a_direct_link_needs_no_switch);
    tcase_add_test(t, fewer_links_come_before_less_latency_and_that_before_the_order_of_the_file);
    tcase_add_test(t, nodes_and_devices_pass_nothing_on);
    tcase_add_test(t, rings_of_switches_end);
    tcase_add_test(t, what_contradicts_itself_is_refused_at_its_place);
    tcase_add_test(t, networks_are_written_as_they_are_read);
    tcase_add_test(t, routes_are_the_shortest_on_random_networks);
    tcase_add_test(t, the_direct_link_is_that_of_a_search_among_all);
    tcase_add_test(t, devices_that_no_link_joins_are_named);
    suite_add_tcase(s, t);
    return s;
}
