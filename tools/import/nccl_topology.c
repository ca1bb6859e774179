/* musher import nccl-topology: a topology dump of NCCL (NCCL_TOPO_DUMP_FILE) becomes a cluster with switches.
 *
 *   <cpu>             switch cpu0 …; those of one host are joined pairwise at the bandwidth of that make's sockets
 *   <pci> in <pci>    switch pci-BUSID, joined to its parent
 *   <gpu>             device of its `dev` number, joined to the parent of its <pci>
 *   <nvlink>          to switches: one switch nvswitch for all of them; to a device: a link of the two; to a CPU: as c2c
 *   <c2c>             a link of device and CPU
 *   <nic>, <net>      switch of the NIC, joined to its parent and, with the port's speed, to switch network, to which
 *                     other nodes are added by hand. A dump contains one node, or one NVLink domain.
 * Links are declared fastest class first, because routes of equal length and latency are chosen in the order of the file.
 * The bandwidth of PCIe is lanes × rate × 3/4; the default is third generation and 16 lanes, as in NCCL.
 * Unknown elements and attributes are skipped, because each version of NCCL adds some.
 */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "profiles/catalogue.h"
#include "tools/import/import.h"
#include "tools/import/topology.h"
#include "traces/xml.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 1024, HOSTS_MAX = 1024 };

struct gpu {
    const struct xml *e, *pci, *cpu;
    int32_t host, index, capability; /* index: its dev */
    const char *type;                /* of the catalogue */
};

struct importer {
    struct topology b;
    const struct xml *root;
    struct error *err;
    int32_t n_hosts, n_gpus;
    const char *hosts[HOSTS_MAX]; /* their hashes */
    struct gpu gpus[GPUS_MAX];    /* sorted: the cluster's devices */
    int32_t network;              /* switch, -1 */
};

/* PCI ids of NVIDIA's devices that the catalogue has (PCI ID Repository, pciutils/pciids of August 2026). */
static const struct {
    const char *id, *type;
} devices[] = {
    {"0x15f9", "P100-SXM2-16"}, {"0x15f8", "P100-PCIe-16"}, {"0x1db1", "V100-SXM2-16"},
    {"0x1db5", "V100-SXM2-32"}, {"0x1db4", "V100-PCIe-16"}, {"0x1db6", "V100-PCIe-32"},
    {"0x1eb8", "T4"},           {"0x1e07", "RTX-2080-Ti"},  {"0x1e04", "RTX-2080-Ti"},
    {"0x20b0", "A100-SXM4-40"}, {"0x20b2", "A100-SXM4-80"}, {"0x20b5", "A100-PCIe-80"},
    {"0x20b7", "A30"},          {"0x2236", "A10"},          {"0x2204", "RTX-3090"},
    {"0x2230", "RTX-A6000"},    {"0x27b8", "L4"},           {"0x26b9", "L40S"},
    {"0x2684", "RTX-4090"},     {"0x2331", "H100-PCIe"},    {"0x2330", "H100-SXM5"},
    {"0x2335", "H200-SXM"},     {"0x2901", "B200-SXM"},     {"0x2941", "GB200"},
    {"0x1e02", "Titan-RTX"},    {"0x2b85", "RTX-5090"},     {"0x20f1", "A100-PCIe-40"},
    {"0x2235", "A40"},          {"0x2237", "A10G"},         {"0x24b0", "RTX-A4000"},
    {"0x2232", "RTX-A4500"},    {"0x2231", "RTX-A5000"},    {"0x26b5", "L40"},
    {"0x26b1", "RTX-6000-Ada"}, {"0x2321", "H100-NVL"},     {"0x2329", "H20"},
    {"0x2342", "GH200-96"},     {"0x233b", "H200-NVL"},
};

static enum status number(const struct xml *e, const char *attribute, int64_t min, int64_t max,
                          int64_t *out, struct error *err)
{
    const char *text = xml_get(e, attribute);
    char *end;
    if (!text) return xml_error(e, err, "attribute '%s' is missing", attribute);
    long long x = strtoll(text, &end, 10);
    if (!*text || *end || x < min || x > max)
        return xml_error(e, err,
                         "%s=\"%.60s\": must be a whole number from %" PRId64 " to %" PRId64,
                         attribute, text, min, max);
    *out = x;
    return OK;
}

/* A decimal or hexadecimal attribute; `otherwise` if it is missing or malformed. */
static int64_t number_or(const struct xml *e, const char *attribute, int64_t otherwise)
{
    const char *text = xml_get(e, attribute);
    char *end;
    if (!text || !*text) return otherwise;
    long long x = strtoll(text, &end, 0);
    return *end ? otherwise : x;
}

/* Names of switches: no dots, no spaces, not too long. */
static const char *safe(struct importer *m, const char *text)
{
    char *copy = arena_strndup(m->b.a, text, strnlen(text, 24));
    for (char *at = copy; *at; at++)
        if (!((*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
              (*at >= '0' && *at <= '9') || *at == '_' || *at == '-'))
            *at = '-';
    return copy;
}

/* A name, prefixed by the host if there are several. */
static const char *of_host(struct importer *m, int32_t host, const char *name)
{
    return m->n_hosts > 1 ? arena_printf(m->b.a, "n%" PRId32 "-%s", host, name) : name;
}

/* --- first pass: hosts and devices --- */

static enum status host_of(struct importer *m, const struct xml *cpu, int32_t *out)
{
    const char *hash = xml_get(cpu, "host_hash");
    for (*out = 0; *out < m->n_hosts; ++*out)
        if (!strcmp(m->hosts[*out], hash ? hash : "")) return OK;
    if (m->n_hosts == HOSTS_MAX) return xml_error(cpu, m->err, "more than %d hosts", HOSTS_MAX);
    m->hosts[m->n_hosts++] = hash ? hash : "";
    return OK;
}

static enum status type_of(struct importer *m, struct gpu *g)
{
    const char *id = xml_get(g->pci, "device");
    for (size_t i = 0; id && i < sizeof devices / sizeof *devices; i++)
        if (!strcmp(devices[i].id, id)) {
            g->type = devices[i].type;
            return OK;
        }
    for (int32_t i = 0; i < catalogue_count(); i++)
        if (g->capability && catalogue_at(i)->compute_capability == g->capability) {
            g->type = catalogue_at(i)->id;
            log_warn("%s:%d: unknown PCI device %.20s; by sm_%" PRId32
                     " it is assumed to be %s: check device_types",
                     g->e->file, g->e->line, id ? id : "(not stated)", g->capability, g->type);
            return OK;
        }
    return xml_error(g->e, m->err,
                     "PCI device %.20s of sm_%" PRId32
                     " is not in the catalogue ('musher devices' lists them)",
                     id ? id : "(not stated)", g->capability);
}

static enum status add_gpu(struct importer *m, const struct xml *e, const struct xml *cpu,
                           int32_t host)
{
    int64_t dev, sm;
    if (m->n_gpus == GPUS_MAX) return xml_error(e, m->err, "more than %d devices", GPUS_MAX);
    if (xml_get(e, "gcn") || xml_get(e, "arch"))
        return xml_error(e, m->err, "an AMD device: topologies of RCCL are not supported");
    TRY(number(e, "dev", 0, 65535, &dev, m->err));
    TRY(number(e, "sm", 0, 1000, &sm, m->err));
    struct gpu *g = &m->gpus[m->n_gpus++];
    *g = (struct gpu){.e = e,
                      .pci = e->parent,
                      .cpu = cpu,
                      .host = host,
                      .index = (int32_t)dev,
                      .capability = (int32_t)sm};
    return type_of(m, g);
}

static enum status find_gpus(struct importer *m, const struct xml *e, const struct xml *cpu,
                             int32_t host)
{
    for (const struct xml *child = e->first; child; child = child->next) {
        if (!strcmp(child->name, "pci")) TRY(find_gpus(m, child, cpu, host));
        if (strcmp(child->name, "gpu") != 0) continue;
        if (e == cpu) return xml_error(child, m->err, "a device outside any <pci>");
        TRY(add_gpu(m, child, cpu, host));
    }
    return OK;
}

static int by_host_and_index(const void *a, const void *b)
{
    const struct gpu *x = a, *y = b;
    if (x->host != y->host) return x->host < y->host ? -1 : 1;
    return x->index != y->index ? (x->index < y->index ? -1 : 1) : 0;
}

static int32_t type_index(struct importer *m, const char *type)
{
    struct cluster *c = &m->b.c;
    for (int32_t i = 0; i < c->n_types; i++)
        if (!strcmp(c->types[i].name, type)) return i;
    c->types[c->n_types] = (struct device_type){.name = type, .catalogue = type};
    return c->n_types++;
}

static enum status make_devices(struct importer *m)
{
    struct cluster *c = &m->b.c;
    struct arena *a = m->b.a;
    qsort(m->gpus, (size_t)m->n_gpus, sizeof *m->gpus, by_host_and_index);
    c->types = ARENA_ARRAY(a, struct device_type, (size_t)m->n_gpus);
    c->devices = ARENA_ARRAY(a, struct device, (size_t)m->n_gpus);
    c->nodes = ARENA_ARRAY(a, struct node_spec, (size_t)m->n_gpus);
    for (int32_t i = 0; i < m->n_gpus; i++) {
        const struct gpu *g = &m->gpus[i];
        bool first = !i || g->host != g[-1].host;
        if (!first && g->index == g[-1].index)
            return xml_error(g->e, m->err, "dev %" PRId32 " is given twice (line %d)", g->index,
                             g[-1].e->line < g->e->line ? g[-1].e->line : g->e->line);
        if (first)
            c->nodes[c->n_nodes++] = (struct node_spec){
                .name = arena_printf(a, "n%" PRId32, g->host),
                .host = m->n_hosts > 1 ? arena_printf(a, "n%" PRId32, g->host) : "localhost",
                .first_device = i};
        c->nodes[c->n_nodes - 1].n_devices++;
        c->devices[c->n_devices++] = (struct device){
            .name = arena_printf(a, "%s.%" PRId32, c->nodes[c->n_nodes - 1].name, g->index),
            .type = type_index(m, g->type),
            .node = c->n_nodes - 1,
            .index = g->index};
    }
    return OK;
}

/* --- NVLink --- */

static bool class_is(const struct xml *nvlink, const char *prefix)
{
    const char *class = xml_get(nvlink, "tclass");
    return class && !strncmp(class, prefix, strlen(prefix));
}

static int32_t gpu_at(const struct importer *m, int32_t host, const char *busid)
{
    for (int32_t i = 0; busid && i < m->n_gpus; i++) {
        const char *own = xml_get(m->gpus[i].pci, "busid");
        if (own && m->gpus[i].host == host && !strcmp(own, busid)) return i;
    }
    return -1;
}

/* NVLinks of a device by target: to[i] to device i, then to switches and to the CPU. */
static enum status count_nvlinks(struct importer *m, int32_t gpu, int64_t *to, int64_t *switches,
                                 int64_t *cpu)
{
    for (const struct xml *e = m->gpus[gpu].e->first; e; e = e->next) {
        int64_t count;
        if (strcmp(e->name, "nvlink") != 0) continue;
        TRY(number(e, "count", 0, 1024, &count, m->err));
        if (class_is(e, "0x0680")) {
            *switches += count;
        } else if (class_is(e, "0x0604")) {
            *cpu += count;
        } else {
            int32_t target = gpu_at(m, m->gpus[gpu].host, xml_get(e, "target"));
            if (target == gpu) return xml_error(e, m->err, "an NVLink from a device to itself");
            if (target >= 0) to[target] += count; /* else a device invisible to this rank */
        }
    }
    return OK;
}

static enum status link_nvlinks(struct importer *m, double *cpu_Bps)
{
    struct topology *b = &m->b;
    size_t n = (size_t)m->n_gpus;
    int64_t *to = ARENA_ARRAY(b->a, int64_t, n * n), *up = ARENA_ARRAY(b->a, int64_t, n);
    int32_t nvswitch = -1;
    for (int32_t i = 0; i < m->n_gpus; i++) {
        int64_t cpu = 0;
        TRY(count_nvlinks(m, i, &to[(size_t)i * n], &up[i], &cpu));
        double each = topology_nvlink_Bps(m->gpus[i].capability);
        if (!(each > 0)) continue;
        cpu_Bps[i] = (double)cpu * each;
        if (up[i] && nvswitch < 0) nvswitch = topology_switch(b, "nvswitch");
        if (up[i])
            topology_link(b, END_DEVICE, i, END_SWITCH, nvswitch, (double)up[i] * each,
                          TOPOLOGY_NVLINK_S / 2);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            int64_t count = to[i * n + j] ? to[i * n + j] : to[j * n + i];
            double each = topology_nvlink_Bps(m->gpus[i].capability);
            if (count && each > 0)
                topology_link(b, END_DEVICE, (int32_t)i, END_DEVICE, (int32_t)j,
                              (double)count * each, TOPOLOGY_NVLINK_S);
        }
    return OK;
}

/* --- second pass: switches and links --- */

/* "16.0 GT/s PCIe" and 16 lanes: 24 GB/s. */
static double pci_Bps(const struct xml *e)
{
    static const struct {
        double GTps;
        int32_t lane; /* 100 Mb/s of a lane after overheads */
    } rates[] = {{2.5, 15}, {5, 30}, {8, 60}, {16, 120}, {32, 240}, {64, 480}};
    const char *speed = xml_get(e, "link_speed");
    int64_t lanes = number_or(e, "link_width", 0);
    double GTps = speed ? strtod(speed, NULL) : 0;
    int32_t lane = 60;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        if (GTps == rates[i].GTps) lane = rates[i].lane;
    if (lanes < 1 || lanes > 64) lanes = 16;
    return (double)lanes * lane / 80 * 1e9;
}

/* Bandwidth between the sockets of one host, by make (families and models as NCCL distinguishes them). */
static double socket_Bps(const struct xml *cpu)
{
    const char *arch = xml_get(cpu, "arch"), *vendor = xml_get(cpu, "vendor");
    int64_t family = number_or(cpu, "familyid", 0), model = number_or(cpu, "modelid", 0);
    if (arch && !strcmp(arch, "ppc64")) return 32e9;
    if (arch && !strcmp(arch, "arm64")) return 6e9;
    if (vendor && !strcmp(vendor, "AuthenticAMD")) return 16e9;
    if (vendor && !strcmp(vendor, "GenuineIntel") && family == 6)
        return model >= 0xCF ? 40e9 : model >= 0x8F ? 22e9 : model >= 0x55 ? 10e9 : 6e9;
    return 6e9;
}

/* "nic-mlx5_0"; followed by the bus id if that name is taken. */
static const char *gpu_name(struct importer *m, int32_t host, const char *name, const char *bus)
{
    const char *out = of_host(m, host, arena_printf(m->b.a, "nic-%s", safe(m, name)));
    for (int32_t i = 0; i < m->b.c.n_switches; i++)
        if (!strcmp(m->b.c.switches[i], out))
            return arena_printf(m->b.a, "%s-%s", out, safe(m, bus));
    return out;
}

static enum status link_nic(struct importer *m, const struct xml *nic, int32_t host, int32_t above,
                            double bandwidth_Bps)
{
    struct topology *b = &m->b;
    const struct xml *net = nic->first;
    while (net && strcmp(net->name, "net") != 0) net = net->next;
    if (!net) return OK;
    const char *name = xml_get(net, "name"), *bus = xml_get(nic->parent, "busid");
    int32_t gpu = topology_switch(b, gpu_name(m, host, name ? name : "net", bus ? bus : "0"));
    topology_link(b, END_SWITCH, gpu, END_SWITCH, above, bandwidth_Bps, TOPOLOGY_PCIE_S / 2);
    double out_Bps = 0, late_s = 0;
    for (; net; net = net->next) {
        if (strcmp(net->name, "net") != 0) continue;
        int64_t Mbps = number_or(net, "speed", 0);
        const char *latency = xml_get(net, "latency");
        double us = 0;
        if (latency && units_parse_number(latency, &us) && us > 0 && us < 1e6 && us * 1e-6 > late_s)
            late_s = us * 1e-6;
        if (Mbps > 8000000) return xml_error(net, m->err, "speed of %" PRId64 " Mb/s", Mbps);
        out_Bps += (double)(Mbps > 0 ? Mbps : 10000) / 8 * 1e6;
    }
    if (m->network < 0) m->network = topology_switch(b, "network");
    topology_link(b, END_SWITCH, gpu, END_SWITCH, m->network, out_Bps,
                  late_s + TOPOLOGY_NETWORK_S / 2);
    return OK;
}

static void link_gpu(struct importer *m, const struct xml *e, int32_t above, int32_t cpu,
                     double bandwidth_Bps, const double *cpu_Bps)
{
    int32_t device = 0;
    while (m->gpus[device].e != e) device++;
    double chip_Bps = cpu_Bps[device];
    for (const struct xml *c = e->first; c; c = c->next)
        if (!strcmp(c->name, "c2c"))
            chip_Bps += (double)number_or(c, "bw", 0) * 1e6 * (double)number_or(c, "count", 1);
    if (chip_Bps >= 1 && chip_Bps < 1e15) {
        topology_link(&m->b, END_DEVICE, device, END_SWITCH, cpu, chip_Bps, TOPOLOGY_NVLINK_S / 2);
        if (above == cpu) return;
    }
    topology_link(&m->b, END_DEVICE, device, END_SWITCH, above, bandwidth_Bps, TOPOLOGY_PCIE_S / 2);
}

static enum status link_below(struct importer *m, const struct xml *e, int32_t host, int32_t above,
                              int32_t cpu, const double *cpu_Bps)
{
    bool outside = !strcmp(e->name, "cpu");
    for (const struct xml *child = e->first; child; child = child->next) {
        double bandwidth_Bps = outside ? TOPOLOGY_LOCAL_BPS : pci_Bps(e);
        if (!strcmp(child->name, "gpu"))
            link_gpu(m, child, above, cpu, bandwidth_Bps, cpu_Bps);
        else if (!strcmp(child->name, "nic"))
            TRY(link_nic(m, child, host, above, bandwidth_Bps));
        if (strcmp(child->name, "pci") != 0) continue;
        bool bridge = false;
        for (const struct xml *c = child->first; c; c = c->next) bridge |= !strcmp(c->name, "pci");
        int32_t under = above;
        if (bridge) {
            const char *bus = xml_get(child, "busid");
            if (!bus) return xml_error(child, m->err, "attribute 'busid' is missing");
            under = topology_switch(&m->b,
                                    of_host(m, host, arena_printf(m->b.a, "pci-%s", safe(m, bus))));
            topology_link(&m->b, END_SWITCH, under, END_SWITCH, above, pci_Bps(child),
                          TOPOLOGY_PCIE_S / 2);
        }
        TRY(link_below(m, child, host, under, cpu, cpu_Bps));
    }
    return OK;
}

static enum status link_hosts(struct importer *m, const double *cpu_Bps)
{
    struct topology *b = &m->b;
    int32_t first = b->c.n_switches, n = 0;
    const struct xml *cpus[HOSTS_MAX];
    int32_t host[HOSTS_MAX];
    for (const struct xml *e = m->root->first; e; e = e->next) {
        int64_t numa;
        if (strcmp(e->name, "cpu") != 0) continue;
        if (n == HOSTS_MAX) return xml_error(e, m->err, "more than %d <cpu>", HOSTS_MAX);
        TRY(host_of(m, e, &host[n]));
        TRY(number(e, "numaid", -1, 65535, &numa, m->err));
        cpus[n] = e;
        topology_switch(
            b, of_host(m, host[n], arena_printf(b->a, "cpu%" PRId64, numa < 0 ? 0 : numa)));
        for (int32_t i = 0; i < n; i++)
            if (!strcmp(b->c.switches[first + i], b->c.switches[first + n]))
                return xml_error(e, m->err, "numaid %" PRId64 " is given twice (line %d)", numa,
                                 cpus[i]->line);
        n++;
    }
    for (int32_t i = 0; i < n; i++)
        TRY(link_below(m, cpus[i], host[i], first + i, first + i, cpu_Bps));
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = i + 1; j < n; j++)
            if (host[i] == host[j])
                topology_link(b, END_SWITCH, first + i, END_SWITCH, first + j, socket_Bps(cpus[i]),
                              TOPOLOGY_PCIE_S / 2);
    return OK;
}

/* <pcilink target="BUSID">: two bridges that are one chip. */
static enum status link_bridges(struct importer *m, const struct xml *e, int32_t host)
{
    for (const struct xml *child = e->first; child; child = child->next) {
        if (!strcmp(child->name, "cpu")) TRY(host_of(m, child, &host));
        TRY(link_bridges(m, child, host));
        if (strcmp(child->name, "pcilink") != 0) continue;
        const char *own = xml_get(e, "busid"), *target = xml_get(child, "target");
        int32_t ends[2] = {-1, -1};
        for (int32_t i = 0; own && target && i < m->b.c.n_switches; i++) {
            const char *names[] = {own, target};
            for (int k = 0; k < 2; k++)
                if (!strcmp(m->b.c.switches[i],
                            of_host(m, host, arena_printf(m->b.a, "pci-%s", safe(m, names[k])))))
                    ends[k] = i;
        }
        /* Both sides state the link; the first one counts. */
        if (ends[0] >= 0 && ends[0] < ends[1])
            topology_link(&m->b, END_SWITCH, ends[0], END_SWITCH, ends[1], TOPOLOGY_LOCAL_BPS,
                          TOPOLOGY_PCIE_S / 2);
    }
    return OK;
}

static enum status check_root(const struct xml *root, struct error *err)
{
    const char *version = xml_get(root, "version");
    if (!strcmp(root->name, "graphs"))
        return xml_error(root, err,
                         "a communication graph of NCCL (NCCL_GRAPH_DUMP_FILE); expected the "
                         "topology (NCCL_TOPO_DUMP_FILE)");
    if (strcmp(root->name, "system") != 0)
        return xml_error(root, err, "expected <system>, the root of a topology of NCCL");
    if (version && !strcmp(version, "2"))
        return xml_error(root, err,
                         "version 2 is RCCL's: topologies of AMD devices are not supported");
    if (!version || strcmp(version, "1") != 0)
        return xml_error(root, err, "version \"%.20s\"; expected version 1",
                         version ? version : "");
    return OK;
}

enum status import_nccl_topology(struct arena *a, const struct import_request *q, struct error *err)
{
    struct importer *m = ARENA_ARRAY(a, struct importer, 1);
    struct xml *root;
    TRY(xml_read(a, q->path, &root, err));
    TRY(check_root(root, err));
    m->b = (struct topology){.a = a, .c = {.name = "nccl-topology"}};
    m->root = root, m->err = err, m->network = -1;
    for (const struct xml *e = root->first; e; e = e->next) {
        int32_t host;
        if (strcmp(e->name, "cpu") != 0) continue;
        TRY(host_of(m, e, &host));
        TRY(find_gpus(m, e, e, host));
    }
    if (!m->n_gpus)
        return xml_error(root, err,
                         "no <gpu>: an input file of NCCL (NCCL_TOPO_FILE) has none; expected a "
                         "dump (NCCL_TOPO_DUMP_FILE)");
    double *cpu_Bps = ARENA_ARRAY(a, double, (size_t)m->n_gpus);
    TRY(make_devices(m));
    TRY(link_nvlinks(m, cpu_Bps));
    TRY(link_hosts(m, cpu_Bps));
    TRY(link_bridges(m, root, 0));
    return topology_save(&m->b, q, err);
}
