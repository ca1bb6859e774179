/* profiles/nccl.h - NCCL's tuning model: predicted duration of a collective, a prior without measurements.
 *
 * NCCL chooses algorithm and protocol by a model of its own (public source, src/graph/tuning.cc; versions 2.28.9 and 2.30 have
 * the constants that are here): time = latency + bytes / bandwidth, both from tables by generation of the GPUs, number of
 * nodes and kind of links; the least over (algorithm, protocol) is taken, then channels are dropped from small ones. The facts
 * are NCCL's, the words ours; nothing is fitted to measurements. What it is off by: docs, `make validate`; others
 * saw 15 % (H800, two-level tree) and 19 to 23 % (GB200, ring taken where the tree wins).
 * Left out: NVLS over several nodes, CollNet and PAT, the 0.85 for trees that are not split over two GPUs, delays of switches
 * between nodes where nobody says them. Ring and tree between nodes go at the lesser of what a node and its network carry.
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

struct nccl_system {
    int32_t n_ranks, n_nodes;   /* ranks evenly on nodes */
    int32_t compute_capability; /* of the least GPU: 70, 80, 90, 100 … */
    int32_t channels;
    double near_Bps; /* all channels of a ring inside a node, one direction */
    /* sums in the switch (NVLink SHARP), each channel led by one GPU; 0: not there */
    int32_t nvls_channels;
    double nvls_Bps; /* of one of them */
    double far_Bps;  /* all channels between nodes: a node's network; ignored for one node */
    double far_s;    /* network delay beyond NCCL's constant; 0 if unknown */
    bool nvlink, amd_host;
};

#define NCCL_VERSION_DEFAULT "2.28.9"

/* n ranks of one type of GPU, evenly on k nodes. catalogue: id of profiles/catalogue ("A100-SXM4-40"); what NCCL takes a link
 * for and how many there are is in nccl.c. network_Bps: of one node, one direction (k > 1). V100-SXM2 stand in the cube mesh of
 * eight, where as many rings go round as the links among the first n of them allow.
 * ERR_INPUT: no GPU of NVIDIA's, ranks that do not fill nodes evenly, no network where one is needed. */
MUST_CHECK enum status nccl_system_of(const char *catalogue, int32_t n_ranks, int32_t n_nodes,
                                      double network_Bps, struct nccl_system *out,
                                      struct error *err);

struct nccl_choice {
    enum nccl_algorithm algorithm;
    enum nccl_protocol protocol;
    int32_t channels; /* left for so few bytes */
    double seconds;
};

/* Seconds of one algorithm and protocol; NaN if NCCL would not choose it. bytes as in core/collective/algorithm.h. */
double nccl_seconds(const struct nccl_system *s, enum collective_kind kind, int64_t bytes,
                    enum nccl_algorithm a, enum nccl_protocol p);
/* What NCCL of this version would do. ERR_INPUT: a version that is not known (lists them), a kind that NCCL's model does not price
 * (all-to-all). One rank: 0 seconds, ring, Simple. O(1). */
MUST_CHECK enum status nccl_choose(const char *version, const struct nccl_system *s,
                                   enum collective_kind kind, int64_t bytes,
                                   struct nccl_choice *out, struct error *err);

/* Rings that go round the first n GPUs of the cube mesh of eight V100 (DGX-1V, p3.16xlarge), each over links of its own, one
 * direction of a link each; where none does (n = 5) GPUs may relay, as NCCL's NVB paths. Found by search. 2 <= n <= 8. */
int32_t nccl_cube_mesh_rings(int32_t n);

#endif
