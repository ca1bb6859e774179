/* core/cluster/cluster.h - a mixed cluster: device types, nodes, devices, links.
 *
 * cluster.yaml:
 *   version: 1
 *   name: sled
 *   device_types:
 *     - {name: fast, device: host, slowdown: 1.5, memory: 2 GiB}   # device: an id of the catalogue
 *   nodes:
 *     - {name: a, host: localhost, devices: [{type: fast}, {type: slow, index: 1}]}   # or {type: fast, count: 2}
 *   links:
 *     - {name: bus, between: [a], bandwidth: 8 GB/s, latency: 5 us}          # between devices of one node
 *     - {name: lan, between: [a, b], bandwidth: 1 GB/s, latency: 50 us, duplex: half, sharing: fifo}
 *     - {name: pair, between: [a.0, b.1], …}                                # exactly these two devices
 *   switches:                                                               # for networks with several hops
 *     - {name: nvs}
 *     - {name: core}
 *   links:                                                                  # … and links to switches
 *     - {name: up, between: [a.0, nvs], …}                                  # one device
 *     - {name: out, between: [b, core], …}                                  # any device of the node
 *     - {name: trunk, between: [nvs, core], …}                              # two switches
 *   nodes:
 *     - {name: v, count: 96, devices: {type: v100, count: 4}}                 # nodes v0 … v95, all alike
 *   links:                                                                  # … and links of every pair
 *     - {name: bus, every: inside}                                          # any two devices of one node
 *     - {name: net, every: across}                                          # any two devices of different nodes
 * Devices are named node.index in order of appearance. The link of two devices is the most specific
 * one: their own pair, then their nodes, then `between: [one node]`, then `every`. A link is one resource per
 * direction (full duplex) or one in all (half), shared by all its messages: fifo, one
 * message after the other in order of readiness, or fair, equal shares of the bandwidth. Messages of one channel follow one
 * another in both; fluid is fair without that rule (real clusters only: simulated).
 * A link with `every` exists once for each pair of devices, without contention between pairs: a network that gives every pair of
 * GPUs the same bandwidth under any load. If its bandwidth is not stated, it is the measured curve of the two devices' types.
 * Real clusters only.
 * A switch or a link with `count: N` is N of them, NAME0 … ; an end of such a link that matches END0 … END(M-1) in the file is
 * number i · M / N for the i-th: {name: up, count: 320, between: [a, leaf]} joins the nodes a0 … a319 to the switches leaf0 …
 * Devices without a direct link are joined through switches (core/cluster/topology.h): PCIe switches, NVLink switches and
 * NICs are all switches here. Devices and nodes forward nothing. Links on a route of several hops
 * are shared fairly, whatever `sharing` states. A cluster with switches can be planned and simulated; an
 * emulated one cannot be run.
 * A type with a slowdown is emulated on the host, or on a present GPU of the catalogue (several devices may share
 * it: on nodes of one host, with equal indices); links between emulated devices are emulated too:
 * a cluster is emulated as a whole or not at all (mixing is an error). A link without bandwidth is
 * measured by `musher profile` on a real cluster (real links only, and none that ends at a switch).
 * `multiprocessors: 64`: such a type on a GPU computes on this many multiprocessors only (a green context; a multiple of 8
 * from 8 on for compute capability 9.0), so the slowdown differs by operator. Its slowdown, from 1 on,
 * then accounts for devices that time-share the GPU: below their number, measured times are too long.
 * `reserve: 3 GB` of a type: memory of each GPU unavailable to tensors: the driver's context, kernels, buffers of the
 * collective library. Lowering takes at least what it counts itself (core/program/device_memory.h) from the catalogue's figures.
 * `offload: optimizer`: optimizer state (AdamW's moments, fp32 masters of half precision) is in the host's page-locked memory, which updates
 * access over PCIe (the memory that ZeRO-Offload saves, Ren et al. 2021, but the GPU computes the update). Memory of the device holds none
 * of it; an update lasts as long as its state takes over PCIe in both directions at once.
 * `offload: activations`: searches may give a stage on these devices `offload: activations` (core/plan/plan.h), where that is faster than
 * recomputation; `offload: [optimizer, activations]`: both. `host_bandwidth: 24 GB/s`: of copies between a device and page-locked host memory,
 * in each direction, as measured; it goes before the catalogue's PCIe bandwidth. Emulated devices have no other.
 * `parameter_copies: 2`: the framework keeps 2 more copies of every parameter, in the dtype of the optimizer's state; they count as
 * state. A link with `overlap: false` has a transport that blocks the compute stream: the streams of both ends are
 * busy while a message of the pipeline passes. Gradient all-reduces over it do not overlap with computation either: with or without
 * buckets they begin when their stage has finished all its computation.
 * `compute_slowdown: 0.13`: operators on the devices at both ends take 13 % longer while a message moves on the link, and as
 * much more for each further message (default 0: transfers do not slow down operators).
 * Between CUDA devices a link may have NCCL settings under NCCL's own names: `maxCTAs: 4` (thread blocks that its kernels may
 * take from operators, 1 to 64) and `netName: Socket` (the network, named as in NCCL_NET: IB, Socket, or a plugin's).
 * A message or a collective over several links takes the least maxCTAs, and the netName unless two differ.
 * `nccl: 2.28.9` of the cluster: its collectives are NCCL's, so that NCCL's cost model of that version prices them in plans and
 * simulations where it holds (sim/collective/price.h). Real clusters only.
 * `price: 3.2/h`: the price of each GPU of the type per hour (any currency, one per file) from its first use by a plan.
 * `peak: {bf16: 165 TFLOP/s}`, `memory_bandwidth: 768 GB/s`, `power: 300 W`: what the file states of one GPU of the type goes
 * before the catalogue (profiles/team.h); costs that were measured go before both.
 * Ownership: the arena's.
 */
#ifndef CORE_CLUSTER_CLUSTER_H
#define CORE_CLUSTER_CLUSTER_H

#include "core/base/error.h"
#include "core/document/document.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct arena;

/* Dense peaks that a type may state, by dtype. */
#define DEVICE_PEAKS(X) X(fp64) X(fp32) X(tf32) X(fp16) X(bf16) X(fp8)
enum device_peak {
#define X(name) DEVICE_PEAK_##name,
    DEVICE_PEAKS(X)
#undef X
        DEVICE_PEAK_COUNT
};
/* What the file states of one GPU; 0: not stated. */
struct device_rates {
    double peak_flops[DEVICE_PEAK_COUNT], memory_Bps, power_w;
};

struct device_type {
    const char *name;
    const char *catalogue;    /* catalogue id: "host", "A100-SXM4-40" … */
    double slowdown;          /* >= 1 where emulated, 0 where real */
    int32_t multiprocessors;  /* of a GPU, multiprocessors of a device of the type; 0: all */
    int64_t memory_bytes;     /* > 0; 0 in the file: the catalogue's */
    int64_t reserve_bytes;    /* of memory_bytes, unavailable to tensors */
    int32_t parameter_copies; /* extra copies of each parameter that the framework keeps */
    bool offloads;             /* `offload: optimizer` */
    bool offloads_activations; /* `offload: activations` */
    double host_Bps;           /* `host_bandwidth`; 0: not stated */
    bool priced;              /* whether price_per_h is stated; 0/h is free */
    double price_per_h;       /* of one GPU, any currency; 0: not stated */
    struct device_rates stated;
    /* watts of one GPU under load: stated, or the catalogue's (profiles/team.h); 0: unknown */
    double power_w;
    /* USD an hour of one GPU, the catalogue's (profiles/team.h); 0: unknown. price_per_h is never taken from it */
    double list_price_per_h;
    /* the catalogue's, not the file's (profiles/team.h): backend ("host", "cuda"; NULL: not looked up) … */
    const char *backend;
    /* … and GPU memory of a process context and of each communicator of the collective library; 0: unknown.
     * context -1: another framework runs there, and lowering counts nothing for it */
    int64_t context_bytes, communicator_bytes;
    const struct node *where; /* of `catalogue`, for messages; NULL: not read from a file */
};

struct device {
    const char *name;          /* "a.0" */
    int32_t type, node, index; /* index: local device number on its node */
};

struct node_spec {
    const char *name, *host; /* host name; "localhost": the host of the run */
    int32_t first_device, n_devices;
};

enum link_sharing { LINK_FIFO, LINK_FAIR, LINK_FLUID };

/* ACROSS, INSIDE: both ends of a link of every pair, of different nodes or of one; n_ends is 0 */
enum link_end { END_NODE, END_DEVICE, END_SWITCH, END_ACROSS, END_INSIDE };

struct link {
    const char *name;
    double bandwidth_Bps; /* one direction; 0 = not stated */
    double latency_s;
    bool half_duplex, stated; /* stated: bandwidth was given in the file */
    bool blocking;            /* `overlap: false` */
    double compute_slowdown;  /* >= 0 */
    int32_t max_ctas;         /* NCCL's maxCTAs; 0: NCCL's default */
    const char *net_name;     /* NCCL's netName; NULL: NCCL's default */
    enum link_sharing sharing;
    int32_t n_ends;
    enum link_end kind[2]; /* equal unless one is a switch */
    /* nodes, devices or switches by kind; n_ends 1: inside node end[0]; n_ends 0: none */
    int32_t end[2];
};

struct cluster {
    const char *name;
    const char *nccl;              /* NCCL version; NULL: the file states none */
    const struct node *nccl_where; /* of `nccl`, for messages; NULL where no file has it */
    bool emulated;
    int32_t n_types, n_nodes, n_devices, n_links, n_switches;
    struct device_type *types;
    struct node_spec *nodes;
    struct device *devices;
    struct link *links;
    const char **switches; /* (n_switches) names */
    /* Open hash of a power of two by name: node + 1, -switch - 1, 0: empty. A guess that cluster_node verifies, because parts of a cluster
     * may be copied; n_places 0: none. */
    int32_t n_places, *places;
};

const char *device_peak_name(enum device_peak p); /* "bf16" */

/* Lower bound of the memory that lowering reserves on a GPU, known before the program is. */
static inline int64_t device_type_reserve(const struct device_type *t)
{
    return t->reserve_bytes > t->context_bytes ? t->reserve_bytes : t->context_bytes;
}

enum {
    LINK_CTAS_MAX = 64,
    LINK_NET_MAX = 64
}; /* of maxCTAs: NCCL's channels; bytes of netName */
/* Combines the NCCL settings of the links of one communicator: the least maxCTAs, and the netName unless two differ. Both
 * outputs start as 0 and NULL; clash: two differ, and the library chooses. */
static inline void link_nccl_join(int32_t max_ctas, const char *net_name, int32_t *out_ctas,
                                  const char **out_net, bool *clash)
{
    if (max_ctas > 0 && (*out_ctas == 0 || max_ctas < *out_ctas)) *out_ctas = max_ctas;
    if (!net_name) return;
    if (*out_net && strcmp(*out_net, net_name) != 0) *clash = true;
    *out_net = net_name;
}

/* Whether the link is one of every pair (`every:`): each pair that uses it has an instance of its own. */
static inline bool link_of_every_pair(const struct link *l) { return l->n_ends == 0; }
/* Whether every two devices have a dedicated link (no shared link anywhere). */
bool cluster_has_dedicated_links(const struct cluster *c);

MUST_CHECK enum status cluster_parse(struct arena *a, const struct node *root, struct cluster *out,
                                     struct error *err);
MUST_CHECK enum status cluster_read(struct arena *a, const char *path, struct cluster *out,
                                    struct error *err);
/* YAML in canonical form, each line indented by indent spaces; cluster_parse reads it back. */
void cluster_write(FILE *out, const struct cluster *c, int indent);
/* "3.2/h": money per hour; "0/h" is free. false: not a price. */
bool cluster_parse_price(const char *text, double *out);
/* How to write a price that cluster_parse_price refused: "did you mean 3.2/h?". Returns buffer. */
enum { CLUSTER_PRICE_HINT = 64 };
const char *cluster_price_hint(char buffer[CLUSTER_PRICE_HINT], const char *text);
/* Name of a link's end, 0 or 1: a node, a device or a switch. */
const char *cluster_link_end(const struct cluster *c, const struct link *l, int i);
int32_t cluster_device(const struct cluster *c, const char *name); /* -1: unknown */
/* The node named by the first `length` bytes of name; -1: none. */
int32_t cluster_node(const struct cluster *c, const char *name, size_t length);
/* The direct link between two devices and its direction (0: end[0] → end[1] or lower → higher device; 1: back). -1: none. */
int32_t cluster_link(const struct cluster *c, int32_t from, int32_t to, int32_t *direction);
/* Largest number of devices of the type on one node. O(devices). */
int32_t cluster_most_on_node(const struct cluster *c, int32_t type);
/* Specificity of a link for two devices: 4 their own, 3 of their nodes, 2 inside their node, 1 `every`, 0 none. cluster_link returns the
 * first of the most specific ones, O(links); topology_direct (core/cluster/topology.h) the same in less. */
int cluster_link_fit(const struct cluster *c, const struct link *l, int32_t from, int32_t to,
                     int32_t *direction);
/* Whether two types are equal apart from their names. */
bool cluster_same_type(const struct device_type *x, const struct device_type *y);

#endif
