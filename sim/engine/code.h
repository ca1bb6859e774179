/* sim/engine/code.h - a stage's procedures as the simulator executes them: priced instructions.
 *
 * Implicit operations become instructions: the wait for a free send buffer, allocation and release of buffer rings, the end of
 * a received message's use. Adjacent operators become one instruction with the sum of their durations, unless the trace needs
 * each. Instructions without duration (LOAD, LOSS) are dropped.
 */
#ifndef SIM_ENGINE_CODE_H
#define SIM_ENGINE_CODE_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct sim_scale;

enum code_kind {
    CODE_ROOM,             /* wait until message seq - amount of channel arg has left its buffer */
    CODE_RECEIVE,          /* channel arg */
    CODE_BORN,             /* allocate amount bytes of buffer rings */
    CODE_COMPUTE,          /* amount ns; arg: operator, -1 for several */
    CODE_SEND,             /* channel arg */
    CODE_COLLECTIVE_START, /* collective arg; from sim/engine/collectives_new.c on the lane's member of it, collective_named */
    CODE_COLLECTIVE_WAIT,  /* the same */
    CODE_FOLDED_COLLECTIVE,       /* collective arg of folded devices: amount ns after the last member's arrival */
    CODE_COLLECTIVE, /* the same inside a call; amount: expected lateness of the last member, ns */
    CODE_OFFLOAD_ROOM, /* wait until the memory that part arg takes has been copied to the host */
    CODE_OFFLOAD,      /* part arg, amount ns */
    CODE_FETCH,        /* wait until part arg is back; amount ns: of the copies back that its end starts */
    CODE_OFFLOADED,    /* the end of the last call that reads a microbatch's activations; likewise */
    CODE_CONSUMED, /* message seq of channel arg is no longer needed */
    CODE_DEAD,     /* release amount bytes of buffer rings */
    CODE_END,
};
struct code {
    enum code_kind kind;
    int32_t arg;
    int64_t amount;
};
struct code_procedure {
    enum phase phase;
    bool messages; /* sends or receives, so it needs a microbatch */
    int32_t n_operators;
    int64_t busy_ns;
    int64_t message_ns; /* of busy_ns: operators that are messages */
    struct code *code; /* ends with CODE_END */
};

struct code_pricing {
    const struct program *program;
    struct cost *cost;
    const struct sim_scale *scale; /* NULL: none */
    const int64_t *folded_ns;     /* (n_groups) durations of collectives inside calls of folded devices */
    bool each_operator;
};
/* Prices the procedures of a stage on a program device. scratch: (code_max). ERR_INPUT: an operator without a price, times
 * beyond int64, an invalid factor. */
MUST_CHECK enum status code_stage(struct arena *a, const struct code_pricing *by, int32_t stage,
                                  int32_t device, struct code *scratch, struct code_procedure **out,
                                  struct error *err);
size_t code_max(const struct program *p); /* most instructions of one procedure */
/* Stage detail: replaces all collectives of one call with the same members by one, whose duration includes the longest
 * computation between each two. Exact, because all members leave a collective at the same instant. Calls with any
 * other instruction in between are left as they are. procedures: (n_stages). */
void code_merge_collectives(struct arena *a, const struct program *p,
                         struct code_procedure *const *procedures);
int32_t code_room(const struct program *p,
                  int32_t channel); /* buffers of the sending buffer ring; 0 if the sender never waits for one */

#endif
