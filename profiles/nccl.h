/* profiles/nccl.h - NCCL's tuning model: predicted duration of a collective, a prior without measurements.
 *
 * NCCL chooses algorithm and protocol by its own cost model (public source, src/graph/tuning.cc; the constants here are those of
 * versions 2.28.9 and 2.30): time = latency + bytes / bandwidth, both from tables by GPU generation, number of nodes and kind of
 * links. It takes the (algorithm, protocol) with the least time, then uses fewer channels for small messages. This is an
 * independent implementation, with nothing fitted to measurements. Its errors: docs/measurements.md, `make validate`; others
 * report 15 % (H800, two-level tree) and 19 to 23 % (GB200, ring chosen where the tree is faster).
 * Not modelled: NVLS over several nodes, CollNet and PAT, the factor 0.85 for trees that are not split over two GPUs, unknown
 * delays of switches between nodes. Ring and tree between nodes run at the lesser bandwidth of a node and its network.
 */
#ifndef PROFILES_NCCL_H
#define PROFILES_NCCL_H

#include "core/base/error.h"
#include "core/collective/algorithm.h"

#include <stdbool.h>
#include <stdint.h>

enum nccl_algorithm { NCCL_TREE, NCCL_RING, NCCL_NVLS, NCCL_ALGORITHMS };
enum nccl_protocol { NCCL_LL, NCCL_LL128, NCCL_SIMPLE, NCCL_PROTOCOLS };
extern const char *const nccl_algorithm_names[],
    *const nccl_protocol_names[]; /* as NCCL writes them; NULL-ended */
extern const char *const nccl_versions[]; /* supported versions; NULL-ended */
/* ERR_INPUT: another version; lists the known ones. */
MUST_CHECK enum status nccl_known(const char *version, struct error *err);

struct nccl_system {
    int32_t n_ranks, n_nodes;   /* the same number of ranks on each node */
    int32_t compute_capability; /* of the oldest GPU: 70, 80, 90, 100 … */
    int32_t channels;
    double near_Bps; /* all channels of a ring inside a node, one direction */
    /* reductions in the switch (NVLink SHARP), each channel headed by one GPU; 0: unavailable */
    int32_t nvls_channels;
    double nvls_Bps; /* of one of them */
    double far_Bps;  /* all channels between nodes: a node's network; ignored for one node */
    double far_s;    /* network delay beyond NCCL's constant; 0 if unknown */
    bool nvlink, amd_host;
};

#define NCCL_VERSION_DEFAULT "2.28.9"

/* n ranks on one type of GPU, the same number on each of k nodes. catalogue: id of profiles/catalogue ("A100-SXM4-40"); nccl.c has
 * NCCL's bandwidth per link and the number of links. network_Bps: of one node, one direction (k > 1). V100-SXM2 are taken to form
 * the hybrid cube mesh of eight, with as many rings as the links among its first n GPUs allow.
 * ERR_INPUT: not an NVIDIA GPU, ranks not a multiple of the nodes, several nodes without network_Bps. */
MUST_CHECK enum status nccl_system_of(const char *catalogue, int32_t n_ranks, int32_t n_nodes,
                                      double network_Bps, struct nccl_system *out,
                                      struct error *err);

struct nccl_choice {
    enum nccl_algorithm algorithm;
    enum nccl_protocol protocol;
    int32_t channels; /* used for this message size */
    double seconds;
};

/* Seconds of one algorithm and protocol; NaN if NCCL would not choose it. bytes as in core/collective/algorithm.h. */
double nccl_seconds(const struct nccl_system *s, enum collective_kind kind, int64_t bytes,
                    enum nccl_algorithm a, enum nccl_protocol p);
/* The choice of this NCCL version. ERR_INPUT: an unknown version (lists the known ones), a kind outside NCCL's model
 * (all-to-all). One rank: 0 seconds, ring, Simple. O(1). */
MUST_CHECK enum status nccl_choose(const char *version, const struct nccl_system *s,
                                   enum collective_kind kind, int64_t bytes,
                                   struct nccl_choice *out, struct error *err);

/* Number of link-disjoint rings through the first n GPUs of the hybrid cube mesh of eight V100 (DGX-1V, p3.16xlarge), where a ring
 * uses one direction of a link. If there is none (n = 5), GPUs may relay, as in NCCL's NVB paths. Found by search. 2 <= n <= 8. */
int32_t nccl_cube_mesh_rings(int32_t n);

#endif
