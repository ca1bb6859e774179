/* tools/import/topology.h - builder of a cluster from switches and links, for the importers of topologies.
 *
 * Bandwidths that no dump contains are NCCL's own figures (NVIDIA/nccl, src/graph/topo.h, ncclTopoGetSystemFromXml's tables and
 * src/graph/tuning.cc, 2.28 to 2.30): three quarters of PCIe's nominal rate, and NVLink's rate after headers. Latencies are
 * those of a ring hop in the LL protocol; if a hop is two links (device, switch, device) each has half.
 * All links are full duplex and fair. The importer names switches; a link is named after its two ends.
 */
#ifndef TOOLS_IMPORT_TOPOLOGY_H
#define TOOLS_IMPORT_TOPOLOGY_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "tools/import/import.h"

#include <stddef.h>

struct arena;

#define TOPOLOGY_NVLINK_S 0.6e-6
#define TOPOLOGY_PCIE_S 1.0e-6
#define TOPOLOGY_NETWORK_S 2.7e-6
#define TOPOLOGY_PCIE_BPS 12e9 /* third generation, 16 lanes: the default */
#define TOPOLOGY_LOCAL_BPS 5e12 /* inside one chip */

struct topology {
    struct arena *a;
    struct cluster c;
    size_t switches, links; /* capacities */
};

/* Bytes a second of one NVLink by compute capability (90: sm_90); 0 before NVLink (sm_60). */
double topology_nvlink_Bps(int32_t capability);
/* NVLinks of one such device at most; 0: unknown. */
int32_t topology_nvlinks(int32_t capability);
int32_t topology_switch(struct topology *b, const char *name); /* adds a switch; returns its index */
/* Adds a link. The caller adds at most one between two ends. */
void topology_link(struct topology *b, enum link_end kind, int32_t from, enum link_end to_kind,
                   int32_t to, double bandwidth_Bps, double latency_s);
/* Writes the cluster to the request's -o after a check that it can be read back. ERR_INPUT: the reader's error. */
MUST_CHECK enum status topology_save(struct topology *b, const struct import_request *q,
                                     struct error *err);

#endif
