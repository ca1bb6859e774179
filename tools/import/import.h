/* tools/import/import.h - every foreign format that `musher import KIND PATH` reads, once: its name, and what it brings.
 *
 * A kind is X(NAME, as users write it, what it brings) and
 * `enum status import_NAME(struct arena *a, const struct import_request *q, struct error *err)` in tools/import/NAME.c. It
 * prints what it took in (q->json: one object, common_json_begin).
 */
#ifndef TOOLS_IMPORT_IMPORT_H
#define TOOLS_IMPORT_IMPORT_H

#include "core/base/error.h"

#include <stdbool.h>

struct arena;

struct import_request {
    const char *path;    /* file or folder */
    const char *db;      /* profile database; NULL where not given */
    const char *out;     /* file or folder to write; NULL where not given */
    const char *cluster; /* cluster.yaml that it is about; NULL where not given */
    bool json;
};

#define IMPORTERS(X)                                                                               \
    X(sailor, "sailor", "profiles, links and models of a Sailor folder")                           \
    X(nccl_tests, "nccl-tests", "times of collectives, from the text or JSON of nccl-tests")       \
    X(nccl_topology, "nccl-topology",                                                              \
      "NCCL's XML (NCCL_TOPO_DUMP_FILE); becomes cluster.yaml (-o)")                               \
    X(topo, "topo", "nvidia-smi topo -m; adds switches and links to the devices of --cluster (-o)")

#define X(name, text, help)                                                                        \
    enum status import_##name(struct arena *a, const struct import_request *q, struct error *err);
IMPORTERS(X)
#undef X

#endif
