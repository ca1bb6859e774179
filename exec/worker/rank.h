/* exec/worker/rank.h - one rank of a run: its program, its options, its peers and its device. Given to every module of the worker. */
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
    struct arena *run; /* ends with the run */
    const struct program *p;
    const struct run_options *o;
    struct comm *comm;
    int32_t index; /* of the rank, its device and its lane */
    struct backend backend;
    bool open;     /* the backend is */
    bool discrete; /* the device's memory is its own */
};

/* The device of this rank in the program. */
static inline const struct program_device *rank_device(const struct rank *r)
{
    return &r->p->devices[r->index];
}

/* All ranks together. Afterwards the environment has NCCL's settings. */
MUST_CHECK enum status rank_join(struct rank *r, struct arena *run, const struct program *p,
                                 const struct run_options *o, struct error *err);
/* The backend's table; the device is not open. ERR_INPUT: no such kind. */
MUST_CHECK enum status rank_find_backend(struct rank *r, struct error *err);
MUST_CHECK enum status rank_open_device(struct rank *r, struct error *err);
/* The last thing: reports what may never end on the device to the ranks' board. */
void rank_close_device(struct rank *r);

#endif
