/* exec/worker/rank.h - one rank of a run: its program, options, peers and device; an argument of every worker module. */
#ifndef EXEC_WORKER_RANK_H
#define EXEC_WORKER_RANK_H

#include "core/base/arena.h"
#include "exec/backend.h"
#include "exec/comm/comm.h"
#include "exec/worker/worker.h"

#include <stdbool.h>
#include <stdint.h>

/* All fields belong to rank.c; nothing changes after rank_open_device. */
struct rank {
    struct arena *run; /* lives as long as the run */
    const struct program *p;
    const struct run_options *o;
    struct comm *comm;
    int32_t index; /* of the rank, its device and its lane */
    struct backend backend;
    bool open;     /* the backend is open */
    bool discrete; /* device memory is separate from host memory */
};

/* The device of this rank in the program. */
static inline const struct program_device *rank_device(const struct rank *r)
{
    return &r->p->devices[r->index];
}

/* All ranks together. Sets NCCL's environment variables. */
MUST_CHECK enum status rank_join(struct rank *r, struct arena *run, const struct program *p,
                                 const struct run_options *o, struct error *err);
bool rank_shares_host(const struct rank *r, int32_t device);
/* For work on the host before time 0: the host's processors divided by its ranks, and at most those of this process's affinity
 * mask; at least 1. */
int32_t rank_threads(const struct rank *r);
/* Finds the backend's table; the device is not open. ERR_INPUT: unknown backend. */
MUST_CHECK enum status rank_find_backend(struct rank *r, struct error *err);
MUST_CHECK enum status rank_open_device(struct rank *r, struct error *err);
/* The last call: reports threads of the device that may never end to the ranks' board. */
void rank_close_device(struct rank *r);

#endif
