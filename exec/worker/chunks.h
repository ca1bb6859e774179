/* exec/worker/chunks.h - the stages of this rank's lane: their memory, their operators with addresses, what their procedures wait for. */
#ifndef EXEC_WORKER_CHUNKS_H
#define EXEC_WORKER_CHUNKS_H

#include "exec/host_transport/memory.h"
#include "exec/worker/rank.h"

#include <stdbool.h>
#include <stdint.h>

struct prepared_op { /* an operator with its operands' places */
    struct op_call call;
    struct place input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
};

struct prepared_procedure {
    int32_t n_rooms, n_receives;
    int32_t *rooms;    /* (n_rooms) buffer rings with `sent` that it writes: the implied wait */
    int32_t *receives; /* (n_receives) channels */
    bool reads_inputs; /* an operator of it reads what LOAD fills */
};

struct chunk {
    const struct program_stage *stage;
    int32_t index; /* of the stage in the program */
    struct lane_memory memory;
    struct prepared_op *ops;               /* (n_ops) of the stage; operands are set by each call */
    struct prepared_procedure *procedures; /* (n_procedures) */
};

/* All fields belong to chunks.c. */
struct chunks {
    int32_t n;
    struct chunk *at;                /* (n) */
    struct optimizer_step optimizer; /* what updates read */
};

void chunks_find(struct chunks *c, const struct rank *r);
/* staging: collectives have theirs on the device. Closes what is open before. */
MUST_CHECK enum status chunks_open_memory(struct chunk *k, struct rank *r, bool staging,
                                          struct error *err);
/* Operators and procedures; memory is open. */
void chunks_prepare(struct chunks *c, const struct rank *r);
/* The program's optimizer, from here on. */
void chunks_set_optimizer(struct chunks *c, const struct optimizer *x);
/* step: number of the updates that follow, 1 for the first. */
void chunks_set_step(struct chunks *c, int64_t step);
void chunks_close(struct chunks *c);

/* Operator `op` of the chunk's stage with the places of its operands; the chunk has its memory. */
struct prepared_op chunks_op(const struct chunks *c, const struct rank *r, const struct chunk *k,
                             int32_t op);
/* The chunk that is the stage; NULL where it is another rank's. */
const struct chunk *chunks_of_stage(const struct chunks *c, int32_t stage);
/* The numbers of the loss scale of a chunk, on the device. */
float *chunks_scale(const struct chunk *k);

#endif
