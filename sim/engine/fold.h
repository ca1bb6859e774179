/* sim/engine/fold.h - devices that do the same at the same times are simulated once.
 *
 * Lanes get colours: what they execute at which price first, then again and again what their neighbours (of channels and
 * groups) are, until nothing changes (colour refinement; Weisfeiler and Leman 1968). Lanes of one colour then run in lockstep,
 * whatever the numbers are, and one of each colour stands for all: identical replicas and identical members of a shared
 * stage fall together, a single slower device keeps apart all whose time it touches.
 * Folded are groups whose members are all of one colour and come to it at the same place of their lanes, and channels that have
 * their link's direction to themselves (as the sums that one lane launches have: one after the other); all else keeps its lanes
 * apart. A folded ring takes its longest chunk in every step: exact where the chunks are equal, else late
 * by what one element more takes. Cost O(rounds · instructions), rounds <= the longest chain of stages.
 */
#ifndef SIM_ENGINE_FOLD_H
#define SIM_ENGINE_FOLD_H

#include "core/base/error.h"
#include "sim/engine/sim.h"

struct fold {
    /* of the lanes that stand for others; shares operators and slots with the whole */
    struct program program;
    struct sim_scale scale; /* theirs */
    int32_t *of;            /* (n_devices of the whole) lane of the folded program */
};
/* k: links are alike where they cost alike. scale may be NULL. out->program.n_devices == p->n_devices where nothing falls together. */
void fold_make(struct arena *a, const struct program *p, struct cost *k,
               const struct sim_scale *scale, struct fold *out);

#endif
