/* cluster.yaml: what is read, what is refused and where, which link joins two devices.
 */
#include "core/base/arena.h"
#include "core/cluster/cluster.h"

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

/* tests/data/clusters/bad/NAME.yaml, the place in it and what the message says there. */
static const struct {
    const char *name;
    int line, column;
    const char *says, *message_too;
} bad[] = {
    {"unknown-key", 4, 9, "colour", "known: version, name, nccl, device_types, nodes, links"},
    {"no-version", 2, 1, "'version' is missing", ""},
    {"version-2", 2, 10, "version: version 2", ""},
    {"no-name", 2, 1, "'name' is missing", ""},
    {"no-types", 6, 3, "x: unknown key", ""},
    {"empty-types", 4, 15, "device_types: must not be empty", ""},
    {"type-key", 5, 39, "device_types[0].speed: unknown key", ""},
    {"unknown-type", 11, 49,
     "nodes[2].devices[0].type: unknown device type 'slwo'; known: fast, middle, slow; did you "
     "mean 'slow'?",
     ""},
    {"duplicate-type", 7, 12,
     "device_types[2].name: device type fast is given twice (first in line 5)", ""},
    {"duplicate-node", 11, 12, "node a is given twice", ""},
    {"duplicate-link", 15, 12, "link lan is given twice", ""},
    {"duplicate-device", 9, 41, "device a.0 is given twice", ""},
    {"unknown-end", 16, 30, "links[3].between[1]: unknown node 'd'; known: a, b, c", ""},
    {"unknown-device-end", 16, 32, "unknown device 'a.2'; node a has 2, the last is a.1", ""},
    {"unknown-device-node", 16, 32, "unknown device 'd.0': no such node", ""},
    {"same-end-twice", 16, 26, "names c twice; [c] is the link inside a node", ""},
    {"mixed-ends", 16, 26, "two nodes or two devices", ""},
    {"one-device-end", 16, 26, "a single end must be a node", ""},
    {"no-ends", 16, 26, "one node or two ends, found 0", ""},
    {"three-ends", 16, 26, "found 3", ""},
    {"second-link-of-a-pair", 16, 26, "a link between a and b is given twice (first in line 14)",
     ""},
    {"second-bus", 16, 26, "a link inside a is given twice", ""},
    {"zero-bandwidth", 16, 45, "links[3].bandwidth: must be a quantity from 1", ""},
    {"negative-bandwidth", 16, 45, "bandwidth: must be", ""},
    {"bandwidth-in-bytes", 16, 45, "must be a rate such as", ""},
    {"no-bandwidth", 16, 5, "link 'far' needs a bandwidth", ""},
    {"zero-latency", 16, 63, "links[3].latency: must be", ""},
    {"negative-latency", 16, 63, "latency: must be", ""},
    {"no-latency", 16, 5, "has a bandwidth and no latency", ""},
    {"duplex", 16, 79, "must be one of full, half", ""},
    {"sharing", 16, 80, "must be one of fifo, fair", ""},
    {"slowdown-below-1", 5, 42, "device_types[0].slowdown: must be a number from 1 to 1000000", ""},
    {"slowdown-nan", 5, 42, "slowdown: must be a number", ""},
    {"emulated-and-real", 7, 5, "type 'slow' is real (no slowdown) and type 'fast' is emulated",
     ""},
    {"no-memory", 7, 5, "device_types[2]: an emulated type needs memory", ""},
    {"zero-memory", 7, 53, "device_types[2].memory: an emulated type needs memory", ""},
    {"negative-memory", 7, 53, "memory: must be", ""},
    {"node-without-devices", 11, 41, "node 'c' has no devices", ""},
    {"node-without-devices-key", 11, 5, "'devices' is missing", ""},
    {"zero-count", 11, 62, "count: must be a whole number from 1 to 131072", ""},
    {"too-many-devices", 11, 42, "more than 131072 devices", ""},
    {"index-too-high", 7, 41, "131072 is too high", ""},
    {"name-with-dot", 11, 12, "must not contain dots", ""},
    {"name-with-space", 11, 12, "must not contain spaces", ""},
    {"name-with-control", 11, 12, "must not contain control characters", ""},
    {"name-empty", 11, 12, "must not be empty", ""},
    {"name-too-long", 11, 12, "at most 100", ""},
    {"not-a-map", 1, 1, "must be a map", ""},
    {"links-not-a-list", 8, 8, "links: must be a list", ""},
};

START_TEST(a_bad_cluster_is_refused_with_its_place_and_the_reason)
{
    char path[160], place[200];
    struct cluster x;
    snprintf(path, sizeof path, "tests/data/clusters/bad/%s.yaml", bad[_i].name);
    snprintf(place, sizeof place, "%s:%d:%d: ", path, bad[_i].line, bad[_i].column);
    enum status status = cluster_read(arena, path, &x, &err);
    ck_assert_int_eq(status, ERR_INPUT);
    ck_assert_msg(strstr(err.text, place) == err.text, "%s\nexpected at %s", err.text, place);
    ck_assert_msg(strstr(err.text, bad[_i].says) && strstr(err.text, bad[_i].message_too),
                  "%s\nexpected: %s %s", err.text, bad[_i].says, bad[_i].message_too);
    ck_assert_int_eq(cluster_read(arena, path, &x, NULL) == OK, false);
}
END_TEST

static enum status parse(const char *text, struct cluster *out)
{
    struct node *root;
    ck_assert_msg(document_parse(arena, "text", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    return cluster_parse(arena, root, out, &err);
}

static struct cluster good(const char *name)
{
    struct cluster c;
    char path[128];
    snprintf(path, sizeof path, "tests/data/clusters/%s.yaml", name);
    ck_assert_msg(cluster_read(arena, path, &c, &err) == OK, "%s", err.text);
    return c;
}

static const char *written(const struct cluster *c, int indent)
{
    char *buffer = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&buffer, &n);
    cluster_write(out, c, indent);
    fclose(out);
    char *text = arena_strdup(arena, buffer);
    free(buffer);
    return text;
}

START_TEST(the_team_of_four_is_read_as_written)
{
    struct cluster c = good("team4");
    ck_assert_str_eq(c.name, "team4");
    ck_assert(c.emulated && c.n_types == 3 && c.n_nodes == 3 && c.n_devices == 4 && c.n_links == 4);
    ck_assert_double_eq(c.types[0].slowdown, 1.5);
    ck_assert_int_eq(c.types[2].memory_bytes, INT64_C(1) << 30);
    ck_assert_str_eq(c.devices[1].name, "a.1");
    ck_assert_str_eq(c.devices[3].name, "c.0");
    ck_assert(c.devices[1].node == 0 && c.devices[1].index == 1 && c.devices[1].type == 1);
    ck_assert(c.nodes[1].first_device == 2 && c.nodes[1].n_devices == 1);
    ck_assert_double_eq(c.links[3].bandwidth_Bps, 4e7);
    ck_assert_double_eq(c.links[3].latency_s, 3e-4);
    ck_assert(c.links[3].half_duplex && !c.links[0].half_duplex && c.links[0].stated);
    ck_assert(c.links[0].n_ends == 1 && c.links[1].n_ends == 2 && c.links[1].sharing == LINK_FIFO);
}
END_TEST

START_TEST(a_real_link_need_not_be_stated)
{
    struct cluster c = good("real2");
    ck_assert(!c.emulated && c.n_devices == 2 && c.n_links == 1);
    ck_assert(!c.links[0].stated && c.types[0].slowdown < 1);
    ck_assert_double_eq(c.links[0].bandwidth_Bps, 0);
    ck_assert_int_eq(good("single").n_devices, 1);
}
END_TEST

START_TEST(a_real_type_may_leave_its_memory_to_the_catalogue)
{
    struct cluster c;
    ck_assert(
        parse(
            "version: 1\nname: x\ndevice_types: [{name: g, device: A100-SXM4-40}]\n"
            "nodes: [{name: n, host: gpu1.example.org, devices: {type: g, index: 4, count: 3}}]\n",
            &c) == OK);
    ck_assert_int_eq(c.types[0].memory_bytes, 0);
    ck_assert_str_eq(c.nodes[0].host, "gpu1.example.org");
    ck_assert_str_eq(c.devices[2].name, "n.6");
    ck_assert_int_eq(cluster_device(&c, "n.6"), 2);
    ck_assert(strstr(written(&c, 0), "{type: g, index: 4, count: 3}") &&
              !strstr(written(&c, 0), "memory"));
}
END_TEST

START_TEST(devices_are_found_by_their_exact_names)
{
    struct cluster c = good("team4");
    static const char *const unknown[] = {"a.2", "a.00", "a",    "a.",  ".0",
                                          "",    "A.0",  "a.0 ", "d.0", "a.0.0"};
    for (int32_t i = 0; i < c.n_devices; i++)
        ck_assert_int_eq(cluster_device(&c, c.devices[i].name), i);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        ck_assert_int_eq(cluster_device(&c, unknown[i]), -1);
}
END_TEST

START_TEST(what_is_written_reads_back_to_the_same_text)
{
    static const char *const names[] = {"team4", "single", "real2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cluster c = good(names[i]), again;
        const char *text = written(&c, 0);
        ck_assert_msg(parse(text, &again) == OK, "%s\n%s", err.text, text);
        ck_assert_str_eq(written(&again, 0), text);
        ck_assert(c.emulated == again.emulated && c.n_devices == again.n_devices &&
                  c.n_links == again.n_links);
        for (int32_t d = 0; d < c.n_devices; d++) {
            ck_assert_str_eq(c.devices[d].name, again.devices[d].name);
            ck_assert(c.devices[d].type == again.devices[d].type &&
                      c.devices[d].index == again.devices[d].index);
        }
        for (int32_t l = 0; l < c.n_links; l++) {
            ck_assert_double_eq(c.links[l].bandwidth_Bps, again.links[l].bandwidth_Bps);
            ck_assert_double_eq(c.links[l].latency_s, again.links[l].latency_s);
            ck_assert(c.links[l].half_duplex == again.links[l].half_duplex &&
                      c.links[l].stated == again.links[l].stated);
        }
    }
    struct cluster team = good("team4");
    ck_assert(strstr(written(&team, 4), "\n      - {name: far, between: [a, c], bandwidth: 40 "
                                        "MB/s, latency: 300 us, duplex: half}\n"));
}
END_TEST

START_TEST(awkward_numbers_and_names_survive_writing)
{
    struct cluster c, again;
    ck_assert_msg(parse("version: 1\nname: \"true: #1 \\u00e9\"\n"
                        "device_types: [{name: 'null', device: host, slowdown: 1.1000000000000003, "
                        "memory: 1234567891 B}]\n"
                        "nodes: [{name: 1, devices: [{type: 'null', index: 3}, {type: 'null', "
                        "index: 1, count: 2}]}]\n"
                        "links: [{name: '-', between: [1.3, '1.1'], bandwidth: 333333333.3 B/s, "
                        "latency: 1.7e-7 s, sharing: fair}]\n",
                        &c) == OK,
                  "%s", err.text);
    const char *text = written(&c, 2);
    ck_assert_msg(parse(text, &again) == OK, "%s\n%s", err.text, text);
    ck_assert_str_eq(written(&again, 2), text);
    ck_assert_str_eq(again.name, c.name);
    ck_assert_str_eq(again.types[0].name, "null");
    ck_assert_int_eq(again.types[0].memory_bytes, 1234567891);
    ck_assert_double_eq(again.types[0].slowdown, c.types[0].slowdown);
    ck_assert_double_eq(again.links[0].bandwidth_Bps, 333333333.3);
    ck_assert_double_eq(again.links[0].latency_s, 1.7e-7);
    ck_assert(again.links[0].kind[0] == END_DEVICE && again.links[0].sharing == LINK_FAIR);
    ck_assert_int_eq(cluster_device(&again, "1.2"), 2);
}
END_TEST

#define LINKS(...)                                                                                 \
    "version: 1\nname: x\ndevice_types: [{name: t, device: host, slowdown: 2, memory: 1 GiB}]\n"   \
    "nodes: [{name: a, devices: {type: t, count: 3}}, {name: b, devices: {type: t, count: 2}}, "   \
    "{name: c, devices: {type: t}}]\nlinks: [" __VA_ARGS__ "]\n"
#define SPEED ", bandwidth: 1 GB/s, latency: 1 us}"

static void check_link(const struct cluster *c, const char *from, const char *to, const char *link,
                       int direction)
{
    int32_t towards = -1, found = cluster_link(c, cluster_device(c, from), cluster_device(c, to), &towards);
    const char *name = found < 0 ? "none" : c->links[found].name;
    ck_assert_msg(!strcmp(name, link), "%s to %s: %s, expected %s", from, to, name, link);
    if (found >= 0) ck_assert_int_eq(towards, direction);
}

START_TEST(the_most_specific_link_is_taken)
{
    struct cluster c;
    ck_assert_msg(
        parse(LINKS("{name: bus, between: [a]" SPEED ", {name: pair, between: [a.2, a.0]" SPEED
                    ", {name: lan, between: [b, a]" SPEED
                    ", {name: own, between: [a.1, b.0]" SPEED),
              &c) == OK,
        "%s", err.text);
    check_link(&c, "a.0", "a.1", "bus", 0);
    check_link(&c, "a.1", "a.0", "bus", 1);
    check_link(&c, "a.0", "a.2", "pair", 1);
    check_link(&c, "a.2", "a.0", "pair", 0);
    check_link(&c, "a.0", "b.0", "lan", 1);
    check_link(&c, "b.1", "a.1", "lan", 0);
    check_link(&c, "a.1", "b.0", "own", 0);
    check_link(&c, "b.0", "a.1", "own", 1);
    check_link(&c, "b.0", "b.1", "none", 0);
    check_link(&c, "a.0", "c.0", "none", 0);
    check_link(&c, "a.0", "a.0", "none", 0);
}
END_TEST

START_TEST(the_order_of_links_in_the_file_does_not_matter)
{
    struct cluster c;
    ck_assert(
        parse(LINKS("{name: own, between: [a.1, b.0]" SPEED ", {name: lan, between: [a, b]" SPEED),
              &c) == OK);
    check_link(&c, "a.1", "b.0", "own", 0);
    check_link(&c, "a.1", "b.1", "lan", 0);
}
END_TEST

START_TEST(ten_thousand_devices_are_read_and_written)
{
    char *text = arena_alloc(arena, 1 << 17, 1), *at = text, *end = text + (1 << 17);
    struct cluster c, again;
    at += snprintf(at, (size_t)(end - at),
                   "version: 1\nname: x\ndevice_types: [{name: t, device: H100}]\nnodes:\n");
    for (int i = 0; i < 1250; i++)
        at += snprintf(at, (size_t)(end - at),
                       "  - {name: n%d, host: h%d, devices: {type: t, count: 8}}\n", i, i);
    ck_assert_msg(parse(text, &c) == OK, "%s", err.text);
    ck_assert_int_eq(c.n_devices, 10000);
    ck_assert_int_eq(cluster_device(&c, "n1249.7"), 9999);
    ck_assert(parse(written(&c, 0), &again) == OK && again.n_devices == 10000);
}
END_TEST

/* Look-ups of names, known or not, are O(1): by a walk over all nodes and switches this takes 20 s. */
START_TEST(a_hundred_thousand_devices_with_their_switches_are_read)
{
    struct cluster c;
    const char *text = "version: 1\nname: x\ndevice_types: [{name: t, device: H100-SXM5}]\n"
                       "nodes: [{name: n, count: 12800, devices: {type: t, count: 8}}]\n"
                       "switches: [{name: core}, {name: s, count: 12800}]\nlinks:\n"
                       "  - {name: p, count: 102400, between: [n.*, s], bandwidth: 1 GB/s, latency: 1 us}\n"
                       "  - {name: u, count: 12800, between: [n, core], bandwidth: 1 GB/s, latency: 1 us}\n";
    ck_assert_msg(parse(text, &c) == OK, "%s", err.text);
    ck_assert_int_eq(c.n_devices, 102400);
    ck_assert_int_eq(c.n_links, 115200);
    ck_assert_int_eq(c.links[102399].end[0], 102399);
    ck_assert_int_eq(c.links[102399].end[1], 12800);
}
END_TEST

START_TEST(what_types_and_links_cost_beside_their_speed_survives_writing)
{
    struct cluster c, again;
    const char *text =
        "version: 1\nname: x\n"
        "device_types: [{name: t, device: H100, "
        "reserve: 3 GB}]\n"
        "nodes: [{name: a, host: h, devices: {type: t, count: 2}}]\n"
        "links: [{name: l, between: [a], bandwidth: 10 GB/s, latency: 1 us, "
        "compute_slowdown: 0.13, overlap: false, maxCTAs: 4, netName: AWS Libfabric}]\n";
    ck_assert_msg(parse(text, &c) == OK, "%s", err.text);
    ck_assert_int_eq(parse(written(&c, 0), &again), OK);
    ck_assert_str_eq(written(&c, 0), written(&again, 0));
    ck_assert_int_eq(again.types[0].reserve_bytes, 3000000000);
    ck_assert_double_eq(again.links[0].compute_slowdown, 0.13);
    ck_assert(again.links[0].blocking);
    ck_assert_int_eq(again.links[0].max_ctas, 4);
    ck_assert_str_eq(again.links[0].net_name, "AWS Libfabric");
}
END_TEST

#define STATING(text)                                                                              \
    "version: 1\nname: x\ndevice_types:\n  - {name: t, device: RTX-A6000, " text                   \
    "}\nnodes: [{name: a, devices: {type: t, count: 2}}]\n"

START_TEST(what_a_type_states_of_its_device_survives_writing)
{
    struct cluster c, again;
    ck_assert_msg(parse(STATING("peak: {fp8: 700 TFLOP/s, bf16: 154.85 TFLOP/s, fp32: 38.7 "
                                "TFLOPS}, memory_bandwidth: 768 GB/s, power: 0.3 kW"),
                        &c) == OK,
                  "%s", err.text);
    const struct device_rates *r = &c.types[0].stated;
    ck_assert_double_eq(r->peak_flops[DEVICE_PEAK_bf16], 154.85e12);
    ck_assert_double_eq(r->peak_flops[DEVICE_PEAK_fp16], 0);
    ck_assert_double_eq(r->memory_Bps, 768e9);
    ck_assert_double_eq(c.types[0].power_w, 300);
    ck_assert_msg(strstr(written(&c, 0),
                         "{name: t, device: RTX-A6000, peak: {fp32: 38.7 TFLOP/s, bf16: 154.85 "
                         "TFLOP/s, fp8: 700 TFLOP/s}, memory_bandwidth: 768 GB/s, power: 300 W}"),
                  "%s", written(&c, 0));
    ck_assert_int_eq(parse(written(&c, 0), &again), OK);
    ck_assert_str_eq(written(&c, 0), written(&again, 0));
    c.types[0].power_w = 250; /* the catalogue's is not written */
    c.types[0].stated = (struct device_rates){0};
    ck_assert(!strstr(written(&c, 0), "power") && !strstr(written(&c, 0), "peak"));
}
END_TEST

static const struct {
    const char *text, *says;
} unstated[] = {
    {STATING("peak: 165 TFLOP/s"), "text:4:40: device_types[0].peak: must be a map"},
    {STATING("peak: {bf17: 1 TFLOP/s}"),
     "peak.bf17: unknown key 'bf17'; known: fp64, fp32, tf32, fp16, bf16, fp8; did you mean "
     "'bf16'?"},
    {STATING("peak: {bf16: 165}"),
     "device_types[0].peak.bf16: must be a speed such as 312 TFLOP/s, found '165'; a number needs "
     "a unit: write 165 TFLOP/s or 165 GFLOP/s"},
    {STATING("peak: {bf16: 165 FLOP/s}"), "peak.bf16: must be a quantity from 1000000 to"},
    {STATING("memory_bandwidth: 768 GB"), "a rate is per second: write 768 GB/s"},
    {STATING("memory_bandwidth: 768 B/s"), "memory_bandwidth: must be a quantity from 1000000 to"},
    {STATING("power: 300"),
     "device_types[0].power: must be a power such as 300 W, found '300'; a number needs a unit: "
     "write 300 W or 300 kW"},
    {STATING("power: 0 W"), "power: must be a quantity from 1 to"},
    {STATING("peek: {bf16: 1 TFLOP/s}"), "did you mean 'peak'?"},
};
START_TEST(what_a_type_states_needs_its_unit)
{
    struct cluster c;
    ck_assert_int_eq(parse(unstated[_i].text, &c), ERR_INPUT);
    ck_assert_msg(strstr(err.text, unstated[_i].says) != NULL, "%s", err.text);
}
END_TEST

Suite *cluster_suite(void)
{
    Suite *s = suite_create("core/cluster/cluster");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, a_bad_cluster_is_refused_with_its_place_and_the_reason, 0,
                        sizeof bad / sizeof *bad);
    tcase_add_test(t, the_team_of_four_is_read_as_written);
    tcase_add_test(t, a_real_link_need_not_be_stated);
    tcase_add_test(t, a_real_type_may_leave_its_memory_to_the_catalogue);
    tcase_add_test(t, devices_are_found_by_their_exact_names);
    tcase_add_test(t, what_is_written_reads_back_to_the_same_text);
    tcase_add_test(t, what_types_and_links_cost_beside_their_speed_survives_writing);
    tcase_add_test(t, what_a_type_states_of_its_device_survives_writing);
    tcase_add_loop_test(t, what_a_type_states_needs_its_unit, 0,
                        sizeof unstated / sizeof *unstated);
    tcase_add_test(t, awkward_numbers_and_names_survive_writing);
    tcase_add_test(t, the_most_specific_link_is_taken);
    tcase_add_test(t, the_order_of_links_in_the_file_does_not_matter);
    tcase_add_test(t, ten_thousand_devices_are_read_and_written);
    tcase_add_test(t, a_hundred_thousand_devices_with_their_switches_are_read);
    suite_add_tcase(s, t);
    return s;
}
