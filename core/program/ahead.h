/* core/program/ahead.h - calls that are executed one step ahead, in pipelines that are not flushed between steps (core/plan/plan.h,
 * weight_versions; Narayanan et al. 2021, PipeDream-2BW).
 *
 * The calls of a procedure F "ahead" are of the following step: in pass k over its order a lane executes them for step k + 1, the others
 * for step k. In front of the first step of a run a pass of these calls alone is executed, by the stage's plain F; in the last step they
 * do nothing. So the messages of a step are first those of calls ahead, then the others.
 * Both F are equal but for parameters: plain F and the backward read each parameter's `previous` version; "ahead", which is called in
 * front of the update that moves the versions on, reads the latest, which is the same version.
 */
#ifndef CORE_PROGRAM_AHEAD_H
#define CORE_PROGRAM_AHEAD_H

#include "core/program/program.h"

/* Steps that the calls of a procedure are in front of the others of a pass: 0, or 1 of F "ahead". */
static inline int32_t ahead_steps(const struct procedure *f) { return f->phase == PHASE_F && f->variant[0] == 'a'; }
/* Whether a call is executed in a pass over the order, -1 in front of the first step: its own step is one of the `steps`. */
static inline bool ahead_executes(const struct procedure *f, int64_t pass, int64_t steps)
{
    return pass < 0 ? ahead_steps(f) : pass + ahead_steps(f) < steps;
}
/* Whether a stage of the lane has an F "ahead". O(procedures of the lane). */
static inline bool ahead_on_lane(const struct program *p, int32_t lane)
{
    bool ahead = false;
    for (int32_t c = 0; c < p->lanes[lane].n_stages; c++) {
        const struct program_stage *s = &p->stages[p->lanes[lane].stages[c]];
        for (int32_t i = 0; i < s->n_procedures; i++) ahead |= ahead_steps(&s->procedures[i]);
    }
    return ahead;
}

/* Steps of such pipelines differ, because 1 to p microbatches in flight and m of a step have a common period of several steps: of a
 * simulation of `steps` the first quarter fills the pipelines, nothing follows the last step, and an iteration is the mean of the others.
 * Returns the first of these, which end with step `steps` - 2; at least one. */
static inline int32_t ahead_first_steady(int32_t steps)
{
    int32_t last = steps > 2 ? steps - 2 : steps - 1;
    return steps / 4 + 1 < last ? steps / 4 + 1 : last;
}

#endif
