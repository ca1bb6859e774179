/* sim/engine/code.h - a stage's procedures as the simulator runs them: instructions with their prices.
 *
 * Implied things become instructions: the wait for room before a sent buffer is written again, the birth and death of
 * buffer rings, the end of a received message's use. Neighbouring operators become one instruction with the sum of
 * their times, unless each is wanted in a trace; what takes no time (LOAD, LOSS) is left out.
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
    CODE_ROOM,             /* message seq - amount of channel arg has left */
    CODE_RECEIVE,          /* channel arg */
    CODE_BORN,             /* amount bytes of buffer rings from here */
    CODE_COMPUTE,          /* amount ns; arg: operator, -1 for several */
    CODE_SEND,             /* channel arg */
    CODE_COLLECTIVE_START, /* group arg */
    CODE_COLLECTIVE_WAIT,  /* group arg */
    CODE_FOLDED_COLLECTIVE,       /* group arg: amount ns from when the last member has come */
    CODE_COLLECTIVE, /* group arg, which has a collective: amount ns from here, by which somebody is late */
    CODE_CONSUMED, /* message seq of channel arg is used up */
    CODE_DEAD,     /* amount bytes of buffer rings until here */
    CODE_END,
};
struct code {
    enum code_kind kind;
    int32_t arg;
    int64_t amount;
};
struct code_procedure {
    enum phase phase;
    bool messages; /* has to do with messages, so it needs a microbatch */
    int32_t n_operators;
    int64_t busy_ns;
    struct code *code; /* ends with CODE_END */
};

struct code_pricing {
    const struct program *program;
    struct cost *cost;
    const struct sim_scale *scale; /* NULL: none */
    const int64_t *folded_ns;     /* (n_groups) durations of each_call groups */
    bool each_operator;
};
/* Procedures of a stage on a device (of the program). scratch: (code_max). ERR_INPUT: an operator without price, times beyond
 * int64, a factor that is none. */
MUST_CHECK enum status code_stage(struct arena *a, const struct code_pricing *by, int32_t stage,
                                  int32_t device, struct code *scratch, struct code_procedure **out,
                                  struct error *err);
size_t code_max(const struct program *p); /* instructions that the longest procedure may become */
/* Stage detail: all collectives of one call of the same members become one, that takes them and the longest way between each two.
 * Exact: after the first collective all members go on from the same instant. Left alone where anything else stands between.
 * procedures: (n_stages). */
void code_merge_collectives(struct arena *a, const struct program *p,
                         struct code_procedure *const *procedures);
int32_t code_room(const struct program *p,
                  int32_t channel); /* buffers of the buffer ring it is sent from; 0 where none waits */

#endif
