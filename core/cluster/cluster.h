/* core/cluster/cluster.h - the team: device types, nodes, devices, links.
 *
 * cluster.yaml:
 *   version: 1
 *   name: sled
 *   device_types:
 *     - {name: fast, device: host, slowdown: 1.5, memory: 2 GiB}   # device: an id of the catalogue
 *   nodes:
 *     - {name: a, host: localhost, devices: [{type: fast}, {type: slow, index: 1}]}   # or {type: fast, count: 2}
 *   links:
 *     - {name: bus, between: [a], bandwidth: 8 GB/s, latency: 5 us}          # among the devices of one node
 *     - {name: lan, between: [a, b], bandwidth: 1 GB/s, latency: 50 us, duplex: half, sharing: fifo}
 *     - {name: pair, between: [a.0, b.1], …}                                # exactly these two devices
 *   switches:                                                               # for networks of more than one hop
 *     - {name: nvs}
 *     - {name: core}
 *   links:                                                                  # … and links that end at a switch
 *     - {name: up, between: [a.0, nvs], …}                                  # one device
 *     - {name: out, between: [b, core], …}                                  # any device of the node
 *     - {name: trunk, between: [nvs, core], …}                              # two switches
 *   nodes:
 *     - {name: v, count: 96, devices: {type: v100, count: 4}}                 # nodes v0 … v95, all alike
 *   links:                                                                  # … and of all devices at once
 *     - {name: bus, every: inside}                                          # any two devices of one node
 *     - {name: net, every: across}                                          # any two devices of different nodes
 * Devices are named node.index in order of appearance. The link of two devices is the most specific
 * one: their own pair, then their nodes, then `between: [one node]`, then `every`. A link is one resource per
 * direction (full duplex) or one in all (half); whoever's messages cross it share it: fifo, one
 * message after the other in order of readiness, or fair, equal shares of the bandwidth. Messages of one channel follow one
 * another in both; fluid is fair without that (real clusters only: simulated).
 * A link with `every` is one for each two devices, which nobody else's messages cross: networks that give every pair of
 * GPUs the same whoever else sends. Where its bandwidth is not stated it is the measured curve of the two devices' types.
 * Real clusters only.
 * A switch or a link with `count: N` is N of them, NAME0 … ; an end of such a link of which the file has END0 … END(M-1) is
 * number i · M / N for the i-th: {name: up, count: 320, between: [a, leaf]} joins the nodes a0 … a319 to the switches leaf0 …
 * Devices that no link joins directly are joined through switches (core/cluster/topology.h): PCIe switches, NVLink switches and
 * NICs are all switches here. Devices and nodes pass nothing on. Links that a message crosses together with
 * others are shared fairly, whatever `sharing` says. A cluster with switches is planned and simulated; one that is
 * emulated cannot be run.
 * A type with a slowdown is emulated on the host, or on a GPU of the catalogue that is there (several devices may share
 * it: on nodes of one host, with one index); links between emulated devices are emulated too:
 * a cluster is emulated as a whole or not at all (mixing is an error). A link without bandwidth is
 * measured by `musher profile` on a real cluster (real links only, and none that ends at a switch).
 * With `multiprocessors: 64` such a type on a GPU computes on so many of the GPU's multiprocessors alone (a green context; a multiple of 8
 * from 8 on where GPUs have compute capability 9.0), so that operators are slower each in their own way. Its slowdown, from 1 on,
 * then is for those that take turns on the GPU: below the number of them measured times are too long.
 * A type with `tensor_parallel: N` (1 where absent) stands for N equal GPUs of one node that shard every operator
 * (Megatron-LM): one device of the cluster, memory is one GPU's. Such devices are planned and simulated only.
 * With `sequence_parallel: true` they also share the positions of what is replicated on each (Korthikanti et al. 2023).
 * `gpu_type: NAME` says that its GPUs are those of another type, measured under that name: what a profile knows of NAME
 * holds for them (core/cluster/group.h makes such types).
 * `reserve: 3 GB` of a type is memory of each GPU that no tensor may have: the driver's context, kernels, buffers of the
 * collectives' library. It is at least what lowering counts (core/program/device_memory.h) with what the catalogue states. `parameter_copies: 2` says that the framework keeps so many more copies of every parameter, in the dtype of
 * the optimizer's state; they count as state. A link with `overlap: false` has a transport that the compute stream waits for: both ends' streams are
 * busy while a message of the pipeline passes. Nothing is computed beside gradient all-reduces on it either: buckets or not, they
 * begin when their stage has computed all it has.
 * With `compute_slowdown: 0.13` operators on the devices at both ends take 13 % longer while a message moves on it, and as
 * much more for each further message (0 where absent: transfers cost the operators nothing).
 * Between CUDA devices a link may say how NCCL is to use it, by NCCL's own words: `maxCTAs: 4` (thread blocks that its kernels may
 * take from the operators, 1 to 64) and `netName: Socket` (which network, as NCCL_NET names them: IB, Socket, or a plugin's).
 * What a message or a collective crosses decides: over several links the least maxCTAs, and the netName where no two differ.
 * `nccl: 2.28.9` of the cluster states that its collectives are NCCL's: where its model of that version holds it prices them in plans
 * and simulations (sim/collective/price.h). Real clusters only.
 * With `price: 3.2/h` each GPU of the type costs so much an hour (any money, one for the file) from the moment a plan uses it.
 * A message between two such devices counts its bytes once, whole, and a gradient all-reduce one GPU's share: links of both
 * kinds between the same devices differ by what their GPUs' ports carry together.
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

struct device_type {
    const char *name;
    const char *catalogue;    /* catalogue id: "host", "A100-SXM4-40" … */
    double slowdown;          /* >= 1 where emulated, 0 where real */
    int32_t multiprocessors;  /* of a GPU, those that a device of the type has; 0: all */
    int64_t memory_bytes;     /* > 0; 0 in the file means the catalogue's */
    int64_t reserve_bytes;    /* of memory_bytes, for others than tensors */
    int32_t parameter_copies; /* of each parameter, which nobody computes with */
    /* > 1: a device is so many equal GPUs that shard every operator; 0 and 1: one GPU */
    int32_t tensor_parallel;
    bool sequence_parallel;
    const char *gpu_type;     /* NULL, or the type whose profile prices its GPUs */
    double price_per_h;       /* of one GPU, in whatever money; 0 where the file has no price */
    /* the catalogue's, not the file's (profiles/team.h): the backend that runs it ("host", "cuda"; NULL: not looked up) … */
    const char *backend;
    /* … and what a process keeps of a GPU, and each communicator of its collectives' library; 0 unknown.
     * context -1: another's framework runs there, of which lowering counts nothing */
    int64_t context_bytes, communicator_bytes;
    const struct node *where; /* of `catalogue`, for messages; NULL where no file has it */
};

struct device {
    const char *name;          /* "a.0" */
    int32_t type, node, index; /* index: local device number on its node */
};

struct node_spec {
    const char *name, *host; /* host name; "localhost" means wherever the run is */
    int32_t first_device, n_devices;
};

enum link_sharing { LINK_FIFO, LINK_FAIR, LINK_FLUID };

/* ACROSS, INSIDE: both ends of a link of every two devices, of different nodes or of one; it has n_ends 0 */
enum link_end { END_NODE, END_DEVICE, END_SWITCH, END_ACROSS, END_INSIDE };

struct link {
    const char *name;
    double bandwidth_Bps; /* one direction; 0 = not stated */
    double latency_s;
    bool half_duplex, stated; /* stated: bandwidth was given in the file */
    bool blocking;            /* `overlap: false` */
    double compute_slowdown;  /* >= 0 */
    int32_t max_ctas;         /* NCCL's maxCTAs; 0: its choice */
    const char *net_name;     /* NCCL's netName; NULL: its choice */
    enum link_sharing sharing;
    int32_t n_ends;
    enum link_end kind[2]; /* without a switch both are alike */
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
};

/* The least that lowering will keep of a GPU for others than tensors, before there is a program to count by. */
static inline int64_t device_type_reserve(const struct device_type *t)
{
    return t->reserve_bytes > t->context_bytes ? t->reserve_bytes : t->context_bytes;
}

enum {
    LINK_CTAS_MAX = 64,
    LINK_NET_MAX = 64
}; /* of maxCTAs, as NCCL has channels; bytes of netName */
/* What a communicator over several links goes by: the least maxCTAs that any of them says, and their netName where no two differ. Both
 * begin as 0 and NULL; clash: two differ, which leaves it to the library. */
static inline void link_nccl_join(int32_t max_ctas, const char *net_name, int32_t *out_ctas,
                                  const char **out_net, bool *clash)
{
    if (max_ctas > 0 && (*out_ctas == 0 || max_ctas < *out_ctas)) *out_ctas = max_ctas;
    if (!net_name) return;
    if (*out_net && strcmp(*out_net, net_name) != 0) *clash = true;
    *out_net = net_name;
}

/* A link of every two devices: each pair that uses it has one of its own. */
static inline bool link_of_every_pair(const struct link *l) { return l->n_ends == 0; }

MUST_CHECK enum status cluster_parse(struct arena *a, const struct node *root, struct cluster *out,
                                     struct error *err);
MUST_CHECK enum status cluster_read(struct arena *a, const char *path, struct cluster *out,
                                    struct error *err);
/* YAML in canonical form, each line indented by indent spaces; cluster_parse reads it back. */
void cluster_write(FILE *out, const struct cluster *c, int indent);
/* Name of a link's end, 0 or 1: a node, a device or a switch. */
const char *cluster_link_end(const struct cluster *c, const struct link *l, int i);
int32_t cluster_device(const struct cluster *c, const char *name); /* -1 where unknown */
/* The node whose name are the first so many bytes; -1 where there is none. */
int32_t cluster_node(const struct cluster *c, const char *name, size_t length);
/* The one link from one device to another, no switch between, and its direction (0: end[0] → end[1] or lower → higher device; 1: back). -1 where none. */
int32_t cluster_link(const struct cluster *c, int32_t from, int32_t to, int32_t *direction);

#endif
