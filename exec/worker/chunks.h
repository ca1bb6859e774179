/* exec/worker/chunks.h - the chunks (virtual stages) of this rank: memory, operators with addresses, and the waits of
 * their procedures. */
#ifndef EXEC_WORKER_CHUNKS_H
#define EXEC_WORKER_CHUNKS_H

#include "exec/host_transport/memory.h"
#include "exec/worker/rank.h"

#include <stdbool.h>
#include <stdint.h>

struct prepared_op { /* an operator with the places of its operands */
    struct op_call call;
    struct place input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
};

struct prepared_procedure {
    int32_t n_rooms, n_receives;
    int32_t *rooms;    /* (n_rooms) buffer rings with `sent` that it writes: implied waits */
    int32_t *receives; /* (n_receives) channels */
    bool offloads, consumes; /* has OFFLOAD; offload_consumes */
    bool reads_inputs; /* one of its operators reads an input that LOAD fills */
};

struct chunk {
    const struct program_stage *stage;
    int32_t index; /* of the stage in the program */
    struct lane_memory memory;
    struct prepared_op *ops;               /* (n_ops) of the stage; each call sets the operands */
    struct prepared_op *evaluated;         /* (n_ops) the same for an evaluation's forwards (exec/worker/evaluate.h); NULL: none */
    struct prepared_procedure *procedures; /* (n_procedures) */
};

/* All fields belong to chunks.c. */
struct chunks {
    int32_t n;
    struct chunk *at;                /* (n) */
    struct optimizer_step optimizer; /* of all updates */
};

void chunks_find(struct chunks *c, const struct rank *r);
/* staging: the collectives' staging is on the device. Closes what is open. */
MUST_CHECK enum status chunks_open_memory(struct chunk *k, struct rank *r, bool staging,
                                          struct error *err);
/* Prepares operators and procedures; memory must be open. */
void chunks_prepare(struct chunks *c, const struct rank *r);
/* Sets the optimizer of the following updates. */
void chunks_set_optimizer(struct chunks *c, const struct program *p, int32_t device);
/* step: number of the following updates, 1 for the first. */
void chunks_set_step(struct chunks *c, int64_t step);
void chunks_close(struct chunks *c);

/* Operator `op` of the chunk's stage with its operands' places; the chunk's memory must be open. */
struct prepared_op chunks_op(const struct chunks *c, const struct rank *r, const struct chunk *k,
                             int32_t op);
/* The chunk of this stage; NULL if it is on another rank. */
const struct chunk *chunks_of_stage(const struct chunks *c, int32_t stage);
/* Device address of the chunk's loss-scale numbers. */
float *chunks_scale(const struct chunk *k);

#endif
