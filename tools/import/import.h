/* tools/import/import.h - the table of foreign formats that `musher import KIND PATH` reads.
 *
 * A format is a row X(NAME, name on the command line, help) and
 * `enum status import_NAME(struct arena *a, const struct import_request *q, struct error *err)` in tools/import/NAME.c, which
 * prints a summary of the imported data (q->json: one object, common_json_begin).
 */
#ifndef TOOLS_IMPORT_IMPORT_H
#define TOOLS_IMPORT_IMPORT_H

#include "core/base/error.h"

#include <stdbool.h>

struct arena;

struct import_request {
    const char *path;    /* file or folder */
    const char *db;      /* profile database; NULL: option absent */
    const char *out;     /* file or folder to write; NULL: option absent */
    const char *cluster; /* cluster file of the described devices; NULL: option absent */
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
