/* exec/worker/early_stop.h - the end of a run before its last step, behind one step on which all ranks of a host agree without a message.
 *
 * A rank notes the step that it begins and then looks for a request; who requests sets the request and then reads all notes (Dekker's
 * order). So a rank that has not seen the request has begun no step behind those that were read, and the latest of these is the last
 * step of all. Memory is shared by all ranks and zeroed. Cost: a store and a load a step.
 */
#ifndef EXEC_WORKER_EARLY_STOP_H
#define EXEC_WORKER_EARLY_STOP_H

#include "exec/comm/launch_local.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* All fields belong to early_stop.c. */
struct early_stop {
    atomic_bool requested, final;
    _Atomic int64_t steps;                  /* of this run, at least 1; 0: not yet decided */
    _Atomic int64_t begun[LOCAL_RANKS_MAX]; /* steps of this run */
};

/* Outside the ranks, or by a signal handler; a second request has no effect but `final`. n: number of ranks. final: the run ends; else the
 * ranks start again from the checkpoint, and go on if it cannot be written (early_stop_cancel). */
void early_stop_request(struct early_stop *s, int32_t n, bool final);
/* By one rank, while all ranks wait behind the agreed step: takes the request back, so that they go on. False: it is final, and stays. */
bool early_stop_cancel(struct early_stop *s, int32_t n);
/* Of this process: of ranks without common memory, which agree by messages. */
bool early_stop_requested(const struct early_stop *s);
/* Before a rank's step, from 0: whether the step belongs to the run. */
bool early_stop_begins(struct early_stop *s, int32_t rank, int64_t step);

#endif
