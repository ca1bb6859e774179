/* sim/engine/fold.h - symmetry reduction: devices with equal timelines are simulated once.
 *
 * Lanes are coloured by their instructions and prices, then repeatedly by the colours of their neighbours (over channels and
 * collectives) until nothing changes (colour refinement; Weisfeiler and Leman 1968). Lanes of one colour run in lockstep, so one
 * represents all: identical replicas and identical members of a sharded stage fold together. A single slower device keeps
 * separate every lane whose times it affects.
 * Two structures fold: collectives whose members have one colour and reach it at the same position of their lanes, and channels
 * that have their link direction to themselves (as gradient all-reduces launched one after the other by one lane have). All
 * others keep their lanes separate. A folded ring takes its longest chunk in every step: exact for equal chunks, else late by
 * the duration of one element. Cost O(rounds · instructions), rounds <= the longest chain of stages.
 */
#ifndef SIM_ENGINE_FOLD_H
#define SIM_ENGINE_FOLD_H

#include "core/base/error.h"
#include "sim/engine/sim.h"

struct fold {
    /* of the representative lanes; shares operators and slots with the full program */
    struct program program;
    struct sim_scale scale; /* of the representative lanes */
    int32_t *of;            /* (n_devices of the full program) lane of the folded program */
};
/* k decides which links are equal: those of equal cost. scale may be NULL. If nothing folds,
 * out->program.n_devices == p->n_devices. */
void fold_make(struct arena *a, const struct program *p, struct cost *k,
               const struct sim_scale *scale, struct fold *out);

#endif
