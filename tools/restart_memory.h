/* tools/restart_memory.h - checkpoints in host memory (`run --memory-every`), owned by the process that starts the ranks (exec/checkpoint/memory.h). */
#ifndef TOOLS_RESTART_MEMORY_H
#define TOOLS_RESTART_MEMORY_H

#include "core/faults/script.h"
#include "exec/checkpoint/memory.h"
#include "exec/worker/faults.h"
#include "exec/worker/worker.h"

struct restart_memory {
    struct checkpoint_memory *shared; /* NULL: none */
    bool lost[FAULTS_MAX];            /* faults that have lost a node's memory */
};

/* Before the first start, for plans of up to n devices; sets o->memory. No effect without o->memory_every. ERR_RESOURCE: no memory or descriptors. */
MUST_CHECK enum status restart_memory_begin(struct restart_memory *m, const struct program *p, int32_t n, struct run_options *o, struct error *err);
/* After a start: the memory of nodes that the fault script took away is lost. Step of the newest checkpoint in memory, 0: none, or the folder of
 * --save has a newer one. *copies: ranks whose part is that of a peer node. */
int64_t restart_memory_step(struct restart_memory *m, struct arena *a, const struct fault_script *script, const struct faults *faults, const char *folder,
                            int32_t *copies);
/* The run ends: writes the newest checkpoint in memory to the folder of --save, if that has none as new; *step: of the newest valid one there, 0: none.
 * *lost: 0, or the step of the one in memory that could not be written, and err says why. */
void restart_memory_write(struct restart_memory *m, struct arena *a, const struct fault_script *script, const struct faults *faults, const struct run_options *o,
                          int64_t *step, int64_t *lost, struct error *err);
void restart_memory_end(struct restart_memory *m);

#endif
