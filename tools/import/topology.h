/* tools/import/topology.h - a cluster put together link by link, for the importers of topologies.
 *
 * What a link is taken to carry where nobody has measured it: NCCL's own figures (NVIDIA/nccl, src/graph/topo.h,
 * ncclTopoGetSystemFromXml's tables and src/graph/tuning.cc, 2.28 to 2.30), which are three quarters of what PCIe says of
 * itself and what NVLink gives after its headers. Latencies are those of a hop of a ring in the LL protocol; where a hop
 * is two links (device, switch, device) each has half.
 * All links are full duplex and fair. Names: switches as the importer says; links after both their ends.
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
#define TOPOLOGY_PCIE_BPS 12e9 /* third generation, 16 lanes: what is taken where nothing is said */
#define TOPOLOGY_LOCAL_BPS 5e12 /* inside one chip */

struct topology {
    struct arena *a;
    struct cluster c;
    size_t switches, links; /* capacities */
};

/* Bytes a second of one NVLink by compute capability (90: sm_90); 0 before NVLink (sm_60). */
double topology_nvlink_Bps(int32_t capability);
/* Links that one such device has at most; 0 unknown. */
int32_t topology_nvlinks(int32_t capability);
int32_t topology_switch(struct topology *b, const char *name); /* new */
/* A new link. Two ends are joined once: importers see to that. */
void topology_link(struct topology *b, enum link_end kind, int32_t from, enum link_end to_kind,
                   int32_t to, double bandwidth_Bps, double latency_s);
/* Writes the cluster where the request says (-o), having read it back first: ERR_INPUT says what could not be. */
MUST_CHECK enum status topology_save(struct topology *b, const struct import_request *q,
                                     struct error *err);

#endif
