/* Import of topologies as clusters: switches, links, bandwidths, and refused files. The files of
 * tests/data/topology are written by hand in the format of real ones, with values of our own. */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/cluster/cluster.h"
#include "core/cluster/topology.h"
#include "tools/import/import.h"
#include "tools/import/topology.h"

#include "tests/support/quiet.h"

#define DATA "tests/data/topology/"

static struct arena *arena;
static struct error err;
static char folder[64];
static int before = -1;

static void setup(void)
{
    arena = arena_new();
    err = (struct error){0};
    snprintf(folder, sizeof folder, "/tmp/musher-test-XXXXXX");
    ck_assert(mkdtemp(folder));
    before = quiet_begin(); /* an importer prints a summary */
}
static void teardown(void)
{
    quiet_end(before);
    unlink(arena_printf(arena, "%s/in", folder));
    unlink(arena_printf(arena, "%s/out", folder));
    ck_assert_int_eq(rmdir(folder), 0);
    arena_free(arena);
}

typedef enum status importer(struct arena *a, const struct import_request *q, struct error *e);

static enum status take(importer *import, const char *path, const char *cluster)
{
    struct import_request q = {
        .path = path, .out = arena_printf(arena, "%s/out", folder), .cluster = cluster};
    err = (struct error){0};
    return import(arena, &q, &err);
}

static struct cluster taken(importer *import, const char *path, const char *cluster)
{
    struct cluster c;
    ck_assert_msg(take(import, path, cluster) == OK, "%s", err.text);
    ck_assert_msg(cluster_read(arena, arena_printf(arena, "%s/out", folder), &c, &err) == OK, "%s",
                  err.text);
    return c;
}

static enum status take_text(importer *import, const char *text, size_t n, const char *cluster)
{
    const char *path = arena_printf(arena, "%s/in", folder);
    FILE *f = fopen(path, "wb");
    ck_assert(f && fwrite(text, 1, n, f) == n && !fclose(f));
    return take(import, path, cluster);
}

static void refused(importer *import, const char *text, const char *cluster, const char *message)
{
    ck_assert_int_eq(take_text(import, text, strlen(text), cluster), ERR_INPUT);
    ck_assert_msg(strstr(err.text, message) != NULL, "%s\nexpected: %s", err.text, message);
    ck_assert(access(arena_printf(arena, "%s/out", folder), F_OK) != 0);
}

static const struct link *link_named(const struct cluster *c, const char *name)
{
    for (int32_t i = 0; i < c->n_links; i++)
        if (!strcmp(c->links[i].name, name)) return &c->links[i];
    ck_abort_msg("no link %s", name);
    return NULL;
}

static void speed(const struct cluster *c, const char *name, double GBps, double us)
{
    const struct link *l = link_named(c, name);
    ck_assert_msg(l->bandwidth_Bps > GBps * 1e9 * (1 - 1e-12) &&
                      l->bandwidth_Bps < GBps * 1e9 * (1 + 1e-12),
                  "%s: %g", name, l->bandwidth_Bps);
    ck_assert_double_eq_tol(l->latency_s, us * 1e-6, 1e-15);
    ck_assert(!l->half_duplex && l->sharing == LINK_FAIR);
}

static void route_of(const struct cluster *c, const char *from, const char *to, const char *expected)
{
    struct route r;
    const char *text = "";
    ck_assert(
        topology_route(topology_new(arena, c), cluster_device(c, from), cluster_device(c, to), &r));
    for (int32_t i = 0; i < r.n_hops; i++)
        text = arena_printf(arena, "%s%s ", text, c->links[r.link[i]].name);
    ck_assert_str_eq(text, expected);
}

/* --- NCCL --- */

START_TEST(eight_devices_behind_switches)
{
    struct cluster c = taken(import_nccl_topology, DATA "eight-h100.xml", NULL);
    ck_assert(c.n_devices == 8 && c.n_nodes == 1 && c.n_types == 1);
    ck_assert_str_eq(c.types[0].catalogue, "H100-SXM5");
    /* nvswitch, two CPUs, four PCIe switches, four GPUs, the network */
    ck_assert_int_eq(c.n_switches, 12);
    /* 8 NVLink, 4 PCIe switches up, 8 devices, 4 GPUs up and 4 out, 1 between the sockets */
    ck_assert_int_eq(c.n_links, 29);
    speed(&c, "n0-3_nvswitch", 18 * 20.6, 0.3);               /* 370.8 */
    speed(&c, "n0-3_pci-0000-30-00-0", 16 * 240 / 80.0, 0.5); /* 48: fifth generation */
    speed(&c, "nic-mlx5_2_network", 50, 1.35);                /* 400 Gb/s */
    speed(&c, "nic-mlx5_2_pci-0000-50-00-0", 48, 0.5);
    speed(&c, "cpu0_cpu1", 22, 0.5); /* model 143 */
    route_of(&c, "n0.1", "n0.6", "n0-1_nvswitch n0-6_nvswitch ");
}
END_TEST

START_TEST(devices_that_are_joined_by_nvlink_themselves)
{
    struct cluster c = taken(import_nccl_topology, DATA "four-v100.xml", NULL);
    ck_assert_str_eq(c.types[0].catalogue, "V100-SXM2-16");
    ck_assert_int_eq(c.n_links, 6 + 2 + 4 + 1);
    speed(&c, "n0-0_n0-3", 40, 0.6), speed(&c, "n0-1_n0-3", 20, 0.6);
    speed(&c, "n0-3_pci-0000-82-00-0", 12, 0.5); /* link_speed="" link_width="0" */
    speed(&c, "n0-2_pci-0000-82-00-0", 12, 0.5); /* "8 GT/s" */
    speed(&c, "cpu0_cpu1", 6, 0.5);              /* model 79 */
    route_of(&c, "n0.0", "n0.3", "n0-0_n0-3 ");
}
END_TEST

START_TEST(devices_without_nvlink_join_at_their_socket)
{
    struct cluster c = taken(import_nccl_topology, DATA "two-4090.xml", NULL);
    speed(&c, "n0-0_cpu0", 12, 0.5), speed(&c, "n0-1_cpu0", 24, 0.5); /* 8 lanes, 16 lanes */
    speed(&c, "nic-eth0_network", 1.25, 21.35); /* speed -1: 10 Gb/s; its own 20 us */
    route_of(&c, "n0.0", "n0.1", "n0-0_cpu0 n0-1_cpu0 ");
}
END_TEST

START_TEST(hosts_of_one_nvlink_domain)
{
    struct cluster c = taken(import_nccl_topology, DATA "two-hosts.xml", NULL);
    ck_assert(c.n_nodes == 2 && c.n_devices == 4);
    speed(&c, "n1-0_nvswitch", 18 * 40.1, 0.3);
    speed(&c, "n1-1_n1-cpu1", 447.12, 0.3); /* c2c, in place of PCIe */
    route_of(&c, "n0.1", "n1.0", "n0-1_nvswitch n1-0_nvswitch ");
}
END_TEST

#define GPU(dev, sm) "<gpu dev='" dev "' sm='" sm "'/>"
#define ONE(pci, gpu)                                                                              \
    "<system version='1'><cpu numaid='0'><pci busid='1' " pci ">" gpu "</pci></cpu></system>"

START_TEST(what_no_topology_says_is_refused)
{
    importer *x = import_nccl_topology;
    refused(x, "<graphs version='1'/>", NULL, "<graphs>: a communication graph of NCCL");
    refused(x, "<system version='2'/>", NULL, "version 2 is RCCL's");
    refused(x, "<system version='3'/>", NULL, "version \"3\"; expected version 1");
    refused(x, "<system/>", NULL, "version \"\"");
    refused(x, "<machine version='1'/>", NULL, "expected <system>");
    refused(x, "<system version='1'/>", NULL, "no <gpu>");
    refused(x, ONE("class='0x030200' link_width='16'", ""), NULL, "no <gpu>");
    refused(x, ONE("device='0x2330'", "<gpu dev='0' gcn='942' arch='x'/>"), NULL,
            "topologies of RCCL");
    refused(x, ONE("device='0x2330'", "<gpu sm='90'/>"), NULL, "attribute 'dev' is missing");
    refused(x, ONE("device='0x2330'", GPU("-1", "90")), NULL, "dev=\"-1\": must be a whole number");
    refused(x, ONE("device='0x2330'", GPU("0", "90x")), NULL, "sm=\"90x\"");
    refused(x, ONE("device='0x9999'", GPU("0", "37")), NULL, "0x9999 of sm_37 is not in the catalogue");
    refused(x, ONE("device='0x2330'", GPU("3", "90") GPU("3", "90")), NULL, "dev 3 is given twice");
    refused(x, ONE("device='0x2330'", "<gpu dev='0' sm='90'>\n<nvlink target='1'/></gpu>"), NULL,
            ":2: <nvlink>: attribute 'count' is missing");
    refused(x,
            ONE("device='0x2330'",
                "<gpu dev='0' sm='90'><nvlink target='1' count='2' tclass='0x030200'/></gpu>"),
            NULL, "from a device to itself");
    refused(x,
            "<system version='1'><cpu><pci device='0x2330'>" GPU("0", "90") "</pci></cpu></system>",
            NULL, "attribute 'numaid' is missing");
    refused(x, "<system version='1'><cpu numaid='0'>" GPU("0", "90") "</cpu></system>", NULL,
            "a device outside any <pci>");
    refused(x,
            "<system version='1'><cpu numaid='0'><pci device='0x2330'>" GPU(
                "0", "90") "</pci></cpu><cpu numaid='0'/></system>",
            NULL, "numaid 0 is given twice");
}
END_TEST

START_TEST(a_topology_needs_a_file_to_go_to)
{
    struct import_request q = {.path = DATA "two-4090.xml"};
    ck_assert_int_eq(import_nccl_topology(arena, &q, &err), ERR_USAGE);
    ck_assert(strstr(err.text, "-o FILE"));
}
END_TEST

/* --- nvidia-smi topo -m --- */

START_TEST(a_matrix_of_eight_devices_with_colours_and_gpus)
{
    struct cluster c = taken(import_topo, DATA "eight-h100.txt", DATA "eight-h100.yaml");
    ck_assert_str_eq(c.name, "box");
    ck_assert(c.n_devices == 8 && c.n_switches == 4 + 1 + 4 + 2);
    speed(&c, "n-7_nvswitch", 370.8, 0.3);    /* NV18 to each of seven: more than it has links */
    speed(&c, "nic-mlx5_1_bridge1", 48, 0.5); /* named in the legend; PXB */
    speed(&c, "bridge3_cpu1", 48, 0.5);
    speed(&c, "cpu0_cpu1", 10, 0.5);
    route_of(&c, "n.0", "n.7", "n-0_nvswitch n-7_nvswitch ");
}
END_TEST

START_TEST(a_matrix_of_an_old_driver_under_mpirun)
{
    struct cluster c = taken(import_topo, DATA "four-v100.txt", DATA "four-v100.yaml");
    speed(&c, "n-0_n-3", 40, 0.6), speed(&c, "n-0_n-2", 20, 0.6);
    speed(&c, "n-0_pcie0", 12, 0.5), speed(&c, "nic-mlx5_0_pcie0", 12, 0.5);
}
END_TEST

START_TEST(a_matrix_with_spaces_and_no_nvlink)
{
    struct cluster c = taken(import_topo, DATA "two-4090.txt", DATA "two-4090.yaml");
    route_of(&c, "n.0", "n.1", "n-0_root0 n-1_root0 ");
    speed(&c, "n-0_root0", 24, 0.5);
}
END_TEST

START_TEST(what_no_matrix_says_is_refused)
{
    static const char two[] = DATA "two-4090.yaml";
    importer *x = import_topo;
    refused(x, "", two, "no header line");
    refused(x, "GPU[0] : 1\n", two, "no header line");
    refused(x, "\tGPU0\tGPU1\nGPU0\t X \tPIX\n", two, ":2: the row of GPU1 is missing");
    refused(x, "\tGPU0\tGPU1\nGPU0\t X \n", two,
            ":2: fewer cells than columns in the row of 'GPU0'");
    refused(x, "\tGPU0\tGPU1\nGPU0\t X \tABC\n", two, ":2: unknown relation");
    refused(x, "\tGPU0\tGPU1\nGPU0\t X \tNV\n", two, "unknown relation");
    refused(x, "\tGPU0\tGPU1\nGPU0\t X \tNV2x\n", two, "unknown relation");
    refused(x, "\tGPU0\tGPU1\nGPU0\tPIX\tX\n", two, "expected X in the column");
    refused(x, "\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU0\tX\tPIX\n", two, "a second row of 'GPU0'");
    refused(x, "\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPXB\tX\n", two, ":3: GPU1 to GPU0 differs from");
    refused(x, "\tGPU0\tGPU2\nGPU0\tX\tPIX\nGPU2\tPIX\tX\n", two, "not ascending at 'GPU2'");
    refused(x, "\tGPU0\nGPU0\tX\n", two, "one node with the 1 devices");
    refused(x, "\tGPU0\tGPU1\nGPU0\tX\tSYS\nGPU1\tSYS\tX\n", "nowhere.yaml", "nowhere.yaml");
    ck_assert_int_eq(take(x, DATA "two-4090.txt", NULL), ERR_USAGE);
    ck_assert(strstr(err.text, "--cluster"));
    ck_assert_int_eq(take_text(x, "\tGPU0\0GPU1", 10, two), ERR_INPUT);
    ck_assert(strstr(err.text, "NUL bytes"));
}
END_TEST

/* --- anything else --- */

static void maul(importer *import, const char *path, const char *cluster, uint64_t stream)
{
    char *text;
    size_t n;
    uint64_t rounds = suites_long() ? 3000 : 150;
    ck_assert(file_read(arena, path, 1 << 20, &text, &n, &err) == OK);
    for (uint64_t i = 0; i < rounds; i++) {
        char *copy = arena_alloc(arena, n + 1, 1);
        size_t length = rng_below(9, stream, i, 2) ? n : (size_t)rng_below(9, stream + 1, i, n + 1);
        memcpy(copy, text, n);
        for (uint64_t k = 0; k < rng_below(9, stream + 2, i, 6); k++)
            copy[rng_below(9, stream + 3, 8 * i + k, n)] =
                (char)rng_below(9, stream + 4, 8 * i + k, 256);
        enum status st = take_text(import, copy, length, cluster);
        ck_assert_msg(st == OK || (st == ERR_INPUT && err.text[0]), "round %d: status %d", (int)i,
                      (int)st);
        if (st == OK) taken(import, arena_printf(arena, "%s/in", folder), cluster);
    }
}

START_TEST(mauled_files_are_refused_or_become_good_clusters)
{
    maul(import_nccl_topology, DATA "eight-h100.xml", NULL, 10);
    maul(import_nccl_topology, DATA "two-hosts.xml", NULL, 20);
    maul(import_topo, DATA "eight-h100.txt", DATA "eight-h100.yaml", 30);
    maul(import_topo, DATA "four-v100.txt", DATA "four-v100.yaml", 40);
}
END_TEST

Suite *import_topology_suite(void)
{
    Suite *s = suite_create("tools/import_topology");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, eight_devices_behind_switches);
    tcase_add_test(t, devices_that_are_joined_by_nvlink_themselves);
    tcase_add_test(t, devices_without_nvlink_join_at_their_socket);
    tcase_add_test(t, hosts_of_one_nvlink_domain);
    tcase_add_test(t, what_no_topology_says_is_refused);
    tcase_add_test(t, a_topology_needs_a_file_to_go_to);
    tcase_add_test(t, a_matrix_of_eight_devices_with_colours_and_gpus);
    tcase_add_test(t, a_matrix_of_an_old_driver_under_mpirun);
    tcase_add_test(t, a_matrix_with_spaces_and_no_nvlink);
    tcase_add_test(t, what_no_matrix_says_is_refused);
    tcase_add_test(t, mauled_files_are_refused_or_become_good_clusters);
    suite_add_tcase(s, t);
    return s;
}
