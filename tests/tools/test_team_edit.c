/* Changed clusters: devices removed, nodes added, links changed; computed by hand, and read back from their text. */
#include "core/base/arena.h"
#include "core/cluster/topology.h"
#include "core/document/document.h"
#include "profiles/team.h"
#include "tools/team/edit.h"
#include "tools/team/replan.h"

#include "tests/support/suites.h"

#include <stdio.h>
#include <unistd.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

#define TYPES                                                                                      \
    "version: 1\nname: t\ndevice_types:\n"                                                         \
    "  - {name: fast, device: host, slowdown: 2, memory: 1 GiB}\n"                                 \
    "  - {name: slow, device: host, slowdown: 5, memory: 1 GiB}\n"
static const char three[] =
    TYPES "nodes:\n"
          "  - {name: a, host: localhost, devices: [{type: fast, count: 2}]}\n"
          "  - {name: b, host: localhost, devices: [{type: slow}]}\n"
          "  - {name: c, host: localhost, devices: [{type: slow}]}\n"
          "links:\n"
          "  - {name: bus, between: [a], bandwidth: 8 GB/s, latency: 1 us}\n"
          "  - {name: ab, between: [a, b], bandwidth: 1 GB/s, latency: 50 us}\n"
          "  - {name: ac, between: [a, c], bandwidth: 2 GB/s, latency: 50 us, duplex: half}\n"
          "  - {name: bc, between: [b, c], bandwidth: 1 GB/s, latency: 20 us}\n"
          "  - {name: pair, between: [a.1, b.0], bandwidth: 4 GB/s, latency: 5 us}\n";

/* Three boxes with a switch each, one with a GPU behind it, and a switch between them. */
static const char switched[] =
    TYPES "nodes:\n"
          "  - {name: a, host: localhost, devices: [{type: fast, count: 2}]}\n"
          "  - {name: b, host: localhost, devices: [{type: fast, count: 2}]}\n"
          "  - {name: c, host: localhost, devices: [{type: slow}]}\n"
          "switches: [{name: in-a}, {name: nic-a}, {name: in-b}, {name: in-c}, {name: core}]\n"
          "links:\n"
          "  - {name: a0, between: [a.0, in-a], bandwidth: 100 GB/s, latency: 1 us}\n"
          "  - {name: a1, between: [a.1, in-a], bandwidth: 100 GB/s, latency: 1 us}\n"
          "  - {name: up-a, between: [in-a, nic-a], bandwidth: 50 GB/s, latency: 1 us}\n"
          "  - {name: out-a, between: [nic-a, core], bandwidth: 20 GB/s, latency: 1 us}\n"
          "  - {name: b-in, between: [b, in-b], bandwidth: 100 GB/s, latency: 1 us}\n"
          "  - {name: out-b, between: [in-b, core], bandwidth: 25 GB/s, latency: 1 us}\n"
          "  - {name: c-in, between: [c, in-c], bandwidth: 100 GB/s, latency: 1 us}\n"
          "  - {name: out-c, between: [in-c, core], bandwidth: 25 GB/s, latency: 1 us}\n";

static struct cluster parsed(const char *text)
{
    struct node *root;
    struct cluster c;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "team", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(cluster_parse(arena, root, &c, &err) == OK, "%s", err.text);
    return c;
}

static char *text_of(const struct cluster *c)
{
    char *buffer = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&buffer, &n);
    cluster_write(f, c, 0);
    fclose(f);
    char *text = arena_strdup(arena, buffer);
    free(buffer); /* open_memstream's */
    return text;
}

/* A changed cluster is a valid cluster file: its text reads back to itself. */
static struct cluster edited(const struct cluster *c, enum team_change_kind kind, const char *text)
{
    struct cluster out;
    struct error err = {0};
    struct team_change change = {kind, text, NULL};
    ck_assert_msg(team_edit(arena, c, &change, &out, &err) == OK, "%s", err.text);
    struct cluster again = parsed(text_of(&out));
    ck_assert_str_eq(text_of(&again), text_of(&out));
    return out;
}

static void refused(const struct cluster *c, enum team_change_kind kind, const char *text,
                    const char *why)
{
    struct cluster out;
    struct error err = {0};
    struct team_change change = {kind, text, NULL};
    ck_assert_int_eq(team_edit(arena, c, &change, &out, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' is not in '%s'", why, err.text);
}

static const struct link *named(const struct cluster *c, const char *name)
{
    for (int32_t i = 0; i < c->n_links; i++)
        if (!strcmp(c->links[i].name, name)) return &c->links[i];
    return NULL;
}

static void joins(const struct cluster *c, const char *name, const char *x, const char *y)
{
    const struct link *l = named(c, name);
    ck_assert_msg(l != NULL, "no link %s in %s", name, text_of(c));
    ck_assert_str_eq(cluster_link_end(c, l, 0), x);
    ck_assert_str_eq(cluster_link_end(c, l, 1), y);
}

/* --- without --- */

START_TEST(a_device_goes_and_its_own_links_with_it)
{
    struct cluster c = parsed(three), x = edited(&c, TEAM_WITHOUT, "a.1");
    ck_assert_int_eq(x.n_devices, 3);
    ck_assert_int_eq(x.n_nodes, 3);
    ck_assert_int_eq(x.n_links, 4);
    ck_assert_ptr_null(named(&x, "pair"));
    joins(&x, "ab", "a", "b");
    ck_assert_int_eq(cluster_device(&x, "a.1"), -1);
    ck_assert_int_eq(cluster_device(&x, "c.0"), 2);
    ck_assert_int_eq(c.n_devices, 4);
}
END_TEST

START_TEST(a_node_whose_last_device_goes_goes_too)
{
    struct cluster c = parsed(three), x = edited(&c, TEAM_WITHOUT, "b.0"),
                   y = edited(&c, TEAM_WITHOUT, "c,a");
    ck_assert_int_eq(x.n_nodes, 2);
    ck_assert_int_eq(x.n_links, 2);
    joins(&x, "ac", "a", "c");
    ck_assert_int_eq(x.devices[2].node, 1);
    ck_assert_int_eq(y.n_devices, 1);
    ck_assert_str_eq(y.devices[0].name, "b.0");
    ck_assert_int_eq(y.n_links, 0);
}
END_TEST

START_TEST(somebody_has_to_be_left_and_names_have_to_be_known)
{
    struct cluster c = parsed(three);
    refused(&c, TEAM_WITHOUT, "a,b,c", "no device would remain; devices are: a.0-1, b.0, c.0");
    refused(&c, TEAM_WITHOUT, "a.7", "devices are: a.0-1, b.0, c.0");
    refused(&c, TEAM_WITHOUT, "a.0,,b.0", "no such device");
}
END_TEST

/* --- add --- */

START_TEST(a_node_like_another_has_links_like_its)
{
    struct cluster c = parsed(three), x = edited(&c, TEAM_ADD, "b");
    ck_assert_int_eq(x.n_devices, 5);
    ck_assert_str_eq(x.devices[4].name, "b2.0");
    ck_assert_int_eq(x.devices[4].type, 1);
    ck_assert_int_eq(x.n_links, 5 + 4);
    joins(&x, "ab-b2", "a", "b2");
    joins(&x, "bc-b2", "b2", "c");
    joins(&x, "pair-b2", "a.1", "b2.0");
    /* between b and its like: as b's fastest link to elsewhere, its pair with a.1 */
    joins(&x, "pair-b22", "b", "b2");
    ck_assert_double_eq(named(&x, "pair-b22")->bandwidth_Bps, 4e9);
    ck_assert_double_eq(named(&x, "pair-b22")->latency_s, 5e-6);
}
END_TEST

START_TEST(the_inside_of_a_node_is_copied_and_the_new_node_may_be_named)
{
    struct cluster c = parsed(three), x = edited(&c, TEAM_ADD, "d=a");
    ck_assert_int_eq(x.n_devices, 6);
    ck_assert_str_eq(x.devices[5].name, "d.1");
    joins(&x, "bus-d", "d", "d");
    joins(&x, "pair-d", "d.1", "b.0");
    ck_assert(named(&x, "ac-d")->half_duplex);
    struct cluster y = edited(&x, TEAM_ADD, "d");
    ck_assert_str_eq(y.devices[7].name, "d2.1");
}
END_TEST

START_TEST(switches_of_its_own_are_copied_and_those_of_all_are_not)
{
    struct cluster c = parsed(switched), x = edited(&c, TEAM_ADD, "a");
    ck_assert_int_eq(x.n_switches, 7);
    ck_assert_str_eq(x.switches[5], "in-a2");
    ck_assert_str_eq(x.switches[6], "nic-a2");
    joins(&x, "a1-a2", "a2.1", "in-a2");
    joins(&x, "out-a-a2", "nic-a2", "core");
    ck_assert_int_eq(x.n_links, 8 + 4);
    struct route towards;
    struct topology *t = topology_new(arena, &x);
    ck_assert(topology_route(t, cluster_device(&x, "a.0"), cluster_device(&x, "a2.1"), &towards));
    ck_assert_int_eq(towards.n_hops, 6);
    struct cluster y = edited(&c, TEAM_ADD, "b");
    ck_assert_int_eq(y.n_switches, 6);
    joins(&y, "b-in-b2", "b2", "in-b2");
    ck_assert(topology_route(topology_new(arena, &y), cluster_device(&y, "b.0"),
                             cluster_device(&y, "b2.1"), &towards));
    ck_assert_int_eq(towards.n_hops, 4);
}
END_TEST

static const char *file_of(const char *text)
{
    char *path = arena_strdup(arena, "/tmp/musher-team-XXXXXX");
    int fd = mkstemp(path);
    ck_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) && !close(fd));
    return path;
}

START_TEST(a_node_of_another_file_brings_its_types_and_the_links_that_have_an_end_here)
{
    static const char other[] =
        "version: 1\nname: o\ndevice_types:\n"
        "  - {name: fast, device: host, slowdown: 2, memory: 1 GiB}\n"
        "  - {name: slow, device: host, slowdown: 9, memory: 1 GiB}\n"
        "nodes:\n"
        "  - {name: n, devices: [{type: fast}, {type: slow}]}\n"
        "  - {name: a, devices: [{type: fast}]}\n"
        "  - {name: q, devices: [{type: fast}]}\n"
        "links:\n"
        "  - {name: in, between: [n], bandwidth: 3 GB/s, latency: 1 us}\n"
        "  - {name: ab, between: [a, n], bandwidth: 5 GB/s, latency: 1 us}\n"
        "  - {name: nq, between: [n, q], bandwidth: 6 GB/s, latency: 1 us}\n";
    const char *path = file_of(other);
    struct cluster c = parsed(three), x = edited(&c, TEAM_ADD, arena_printf(arena, "%s:n", path)),
                   y = edited(&c, TEAM_ADD, arena_printf(arena, "z=%s:a", path));
    refused(&c, TEAM_ADD, arena_printf(arena, "%s:q", path), "nodes here are: a, b, c");
    refused(&c, TEAM_ADD, arena_printf(arena, "%s:r", path), "nodes are: n, a, q");
    unlink(path);
    ck_assert_int_eq(x.n_types, 3);
    ck_assert_str_eq(x.types[2].name, "slow2");
    ck_assert_double_eq(x.types[2].slowdown, 9);
    ck_assert_int_eq(x.devices[4].type, 0);
    ck_assert_int_eq(x.devices[5].type, 2);
    joins(&x, "in-n", "n", "n");
    joins(&x, "ab-n", "a", "n");
    ck_assert_int_eq(x.n_links, 7);
    /* z is like a: joined with the a that is here by the fastest of the other a's links, its only one, to n */
    joins(&y, "ab-z", "a", "z");
    ck_assert_double_eq(named(&y, "ab-z")->bandwidth_Bps, 5e9);
}
END_TEST

START_TEST(what_cannot_be_joined_is_refused)
{
    struct cluster c = parsed(three), one = edited(&c, TEAM_WITHOUT, "b,c");
    refused(&one, TEAM_ADD, "a", "no link to another node that a copy could be joined by");
    refused(&c, TEAM_ADD, "x", "nodes are: a, b, c");
    refused(&c, TEAM_ADD, "b=c", "is not a name for a new node");
    refused(&c, TEAM_ADD, "ab=c", "is not a name for a new node");
    refused(&c, TEAM_ADD, "d.e=c", "is not a name for a new node");
    refused(&c, TEAM_ADD, "/nowhere.yaml:a", "/nowhere.yaml");
}
END_TEST

/* --- links --- */

START_TEST(a_changed_link_has_a_new_name_and_keeps_what_is_not_said)
{
    struct cluster c = parsed(three), x = edited(&c, TEAM_LINK, "c:a=25GB/s");
    joins(&x, "ac2", "a", "c");
    ck_assert_ptr_null(named(&x, "ac"));
    ck_assert_double_eq(named(&x, "ac2")->bandwidth_Bps, 25e9);
    ck_assert_double_eq(named(&x, "ac2")->latency_s, 50e-6);
    ck_assert(named(&x, "ac2")->half_duplex);
    struct cluster y = edited(&x, TEAM_LINK, "ac2=1GB/s,7us");
    ck_assert_double_eq(named(&y, "ac22")->latency_s, 7e-6);
    struct cluster z = edited(&c, TEAM_LINK, "a:a=1GB/s");
    joins(&z, "bus2", "a", "a");
}
END_TEST

START_TEST(a_new_link_needs_a_latency_and_two_ends_of_a_kind)
{
    struct cluster c = parsed(three), x = edited(&c, TEAM_LINK, "a.0:c.0=25GB/s,1us");
    int32_t towards;
    joins(&x, "a-0-c-0", "a.0", "c.0");
    ck_assert_int_eq(cluster_link(&x, 0, 3, &towards), 5);
    refused(&c, TEAM_LINK, "a.0:c.0=25GB/s", "a new link needs a latency");
    refused(&c, TEAM_LINK, "a:c.0=25GB/s", "its ends are");
    refused(&c, TEAM_LINK, "a:d=25GB/s", "links are: bus (a:a), ab (a:b)");
    refused(&c, TEAM_LINK, "abc=25GB/s", "no such link");
    refused(&c, TEAM_LINK, "a:b=fast", "is not a bandwidth");
    refused(&c, TEAM_LINK, "a:b=-1", "is not a bandwidth");
    refused(&c, TEAM_LINK, "a:b=1GB/s,0", "is not a latency");
    refused(&c, TEAM_LINK, "a:b", "expected A:B=25GB/s");
}
END_TEST

START_TEST(links_that_are_measured_get_the_profiles_numbers)
{
    static const char real[] =
        "version: 1\nname: r\ndevice_types: [{name: g, device: A100-SXM4-40}]\n"
        "nodes:\n  - {name: a, devices: [{type: g}]}\n  - {name: b, devices: [{type: g}]}\n"
        "links:\n  - {name: ab, between: [a, b]}\n";
    struct link_row row = {"ab", {.latency_s = 3e-6, .bandwidth_Bps = 11e9}};
    struct profile p = {.n_links = 1, .links = &row, .pace = 1};
    struct cluster c = parsed(real), x;
    struct error err = {0};
    x = c;
    ck_assert_int_eq(team_state_links(arena, &p, &x, &err), OK);
    ck_assert(!c.links[0].stated && x.links[0].stated);
    x = edited(&x, TEAM_ADD, "b");
    ck_assert_double_eq(named(&x, "ab-b2")->bandwidth_Bps, 11e9);
    ck_assert_double_eq(named(&x, "ab-b2")->latency_s, 3e-6);
    ck_assert_int_eq(team_state_links(arena, &(struct profile){.pace = 1}, &c, &err), ERR_INPUT);
}
END_TEST

/* --- links of every two devices --- */

#define EVERY                                                                                      \
    "version: 1\nname: e\ndevice_types: [{name: g, device: A100-SXM4-40}]\n"                       \
    "nodes:\n  - {name: a, count: 2, devices: {type: g, count: 2}}\n"
static const char measured_every[] =
    EVERY "links:\n  - {name: bus, every: inside, overlap: false}\n"
          "  - {name: net, every: across, overlap: false}\n";
static const char stated_every[] =
    EVERY "links:\n  - {name: bus, every: inside, bandwidth: 100 GB/s, latency: 1 us}\n"
          "  - {name: net, every: across, bandwidth: 10 GB/s, latency: 7 us, overlap: false}\n"
          "  - {name: own, between: [a0, a1], bandwidth: 20 GB/s, latency: 5 us}\n";

START_TEST(links_of_every_two_devices_join_a_new_node)
{
    const char *const texts[] = {measured_every, stated_every};
    for (int i = 0; i < 2; i++) {
        struct cluster c = parsed(texts[i]), x = c;
        struct error err = {0};
        int32_t towards;
        ck_assert_msg(team_state_links(arena, &(struct profile){.pace = 1}, &x, &err) == OK, "%s",
                      err.text);
        ck_assert_str_eq(text_of(&x), text_of(&c)); /* their curves are not lost */
        x = edited(&x, TEAM_ADD, "a1");
        ck_assert_int_eq(x.n_links, c.n_links + i); /* like own */
        ck_assert_int_eq(x.n_devices, 6);
        ck_assert_str_eq(x.links[cluster_link(&x, 0, 4, &towards)].name, i ? "own-a12" : "net");
        ck_assert_str_eq(x.links[cluster_link(&x, 2, 5, &towards)].name, "net"); /* model and copy */
        ck_assert_str_eq(x.links[cluster_link(&x, 4, 5, &towards)].name, "bus");
        struct cluster less = edited(&x, TEAM_WITHOUT, "a0");
        ck_assert_str_eq(less.links[cluster_link(&less, 0, 2, &towards)].name, "net");
    }
}
END_TEST

START_TEST(a_pair_that_every_link_joins_may_get_one_of_its_own)
{
    struct cluster c = parsed(measured_every), x = edited(&c, TEAM_LINK, "a0:a1=1GB/s,5us");
    int32_t towards;
    joins(&x, "a0-a1", "a0", "a1");
    ck_assert_double_eq(named(&x, "a0-a1")->latency_s, 5e-6);
    ck_assert(named(&x, "a0-a1")->blocking); /* the transport is the same */
    ck_assert_str_eq(x.links[cluster_link(&x, 0, 2, &towards)].name, "a0-a1");
    ck_assert_str_eq(x.links[cluster_link(&x, 0, 1, &towards)].name, "bus");
    refused(&c, TEAM_LINK, "a0:a1=1GB/s", "a new link needs a latency");
    refused(&c, TEAM_LINK, "net=1GB/s", "the old latency is measured");
    x = edited(&c, TEAM_LINK, "net=1GB/s,5us");
    ck_assert(link_of_every_pair(named(&x, "net2")) && named(&x, "net2")->stated);
    c = parsed(stated_every);
    refused(&c, TEAM_LINK, "a0.1:a1.0=1GB/s", "a new link needs a latency"); /* own joined them */
    c.n_links = 2;
    x = edited(&c, TEAM_LINK, "a0.1:a1.0=1GB/s");
    ck_assert_double_eq(named(&x, "a0-1-a1-0")->latency_s, 7e-6);
    ck_assert(named(&x, "a0-1-a1-0")->blocking);
    x = edited(&c, TEAM_LINK, "a0.1:a0.0=1GB/s");
    ck_assert_double_eq(named(&x, "a0-1-a0-0")->latency_s, 1e-6);
    x = edited(&c, TEAM_LINK, "a0:a0=1GB/s");
    ck_assert_double_eq(named(&x, "a0-a0")->latency_s, 1e-6);
    ck_assert(!named(&x, "a0-a0")->blocking);
    refused(&c, TEAM_LINK, "lan=1GB/s", "bus (every inside), net (every across)");
}
END_TEST

/* --- plans --- */

START_TEST(a_plan_is_carried_by_the_names_of_its_devices)
{
    struct cluster c = parsed(three), less = edited(&c, TEAM_WITHOUT, "a.0"),
                   more = edited(&c, TEAM_ADD, "b");
    struct plan_stage stages[] = {{.device = 3, .last_layer = 2}, {.device = 1, .first_layer = 3}};
    struct plan_replica replica = {.n_stages = 2, .stages = stages};
    struct plan p = {.n_replicas = 1, .replicas = &replica, .cluster = c, .predicted_ns = 5}, q;
    const char *missing;
    replan_carry(arena, &p, &less, &q, &missing);
    ck_assert_ptr_null(missing);
    ck_assert_int_eq(q.replicas[0].stages[0].device, 2);
    ck_assert_int_eq(q.replicas[0].stages[1].device, 0);
    ck_assert_int_eq(q.replicas[0].stages[1].first_layer, 3);
    ck_assert_int_eq(q.predicted_ns, 0);
    ck_assert_int_eq(p.replicas[0].stages[0].device, 3);
    replan_carry(arena, &p, &more, &q, &missing);
    ck_assert_ptr_null(missing);
    ck_assert_int_eq(q.replicas[0].stages[0].device, 3);
    struct cluster gone = edited(&c, TEAM_WITHOUT, "a.1,c.0");
    replan_carry(arena, &p, &gone, &q, &missing);
    ck_assert_str_eq(missing, "a.1, c.0");
}
END_TEST

START_TEST(changes_of_a_plans_team_are_made_one_after_the_other)
{
    const char *with_items[] = {"b", "b"}, *without_items[] = {"b2.0", "c", "c.0"};
    struct texts with = {2, with_items}, without = {3, without_items};
    struct plan p = {.cluster = parsed(three)};
    struct profile profile = {.pace = 1};
    struct cluster c;
    struct error err = {0};
    ck_assert_msg(replan_team(arena, &p, &profile, &with, &without, &c, &err) == OK, "%s",
                  err.text);
    ck_assert_int_eq(c.n_devices, 4);
    ck_assert_str_eq(c.devices[3].name, "b3.0");
}
END_TEST

Suite *team_edit_suite(void)
{
    Suite *s = suite_create("team_edit");
    TCase *t = tcase_create("team_edit");
    tcase_add_checked_fixture(t, setup, teardown);
    const TTest *tests[] = {
        a_device_goes_and_its_own_links_with_it,
        a_node_whose_last_device_goes_goes_too,
        somebody_has_to_be_left_and_names_have_to_be_known,
        a_node_like_another_has_links_like_its,
        the_inside_of_a_node_is_copied_and_the_new_node_may_be_named,
        switches_of_its_own_are_copied_and_those_of_all_are_not,
        a_node_of_another_file_brings_its_types_and_the_links_that_have_an_end_here,
        what_cannot_be_joined_is_refused,
        a_changed_link_has_a_new_name_and_keeps_what_is_not_said,
        a_new_link_needs_a_latency_and_two_ends_of_a_kind,
        links_that_are_measured_get_the_profiles_numbers,
        links_of_every_two_devices_join_a_new_node,
        a_pair_that_every_link_joins_may_get_one_of_its_own,
        a_plan_is_carried_by_the_names_of_its_devices,
        changes_of_a_plans_team_are_made_one_after_the_other,
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, tests[i]);
    suite_add_tcase(s, t);
    return s;
}
