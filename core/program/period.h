/* core/program/period.h - the period of local SGD: which steps start and apply the exchange of a fragment, and which of its steps a
 * simulation needs.
 *
 * Of P fragments and a period of H steps, fragment f (0-based) starts its sums behind the update of the steps number
 * floor((f + 1) H / P), counted from 1, and of every H-th step after it, so that the last fragment's are in step H; it applies them
 * `delay` steps later. With one fragment and no delay both happen in step H. Islands may update in every k-th step only, k of the island
 * (period_of_update); all do in the steps that are a multiple of the cycle, the least common multiple of these k.
 */
#ifndef CORE_PROGRAM_PERIOD_H
#define CORE_PROGRAM_PERIOD_H

#include "core/model/job.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* Steps of an island's update: it has one in every step whose number is a multiple of them. */
static inline int32_t period_of_update(const struct outer_optimizer *o, int32_t island)
{
    return o->n_updates ? o->every / o->updates[island] : 1;
}
/* Number of the first step that starts the fragment's sums, 1 … every. */
int32_t period_first(const struct outer_optimizer *o, int32_t fragment);
/* Whether a sum of the fragment has been started and not yet applied when this many steps are complete. */
bool period_in_flight(const struct outer_optimizer *o, int32_t fragment, int64_t steps);

/* Steps from one in which all islands update to the next; 1: all always do. O(islands). */
int32_t period_cycle(const struct outer_optimizer *o);

/* Steps of a period that are simulated. All from the start of a sum to its application; of the others, between two exchanges, at most the
 * first, which starts late on some devices, one more, a steady cycle that stands for all cycles that follow it, and what is left of the
 * last one; with a cycle of 1 three. */
struct period {
    int32_t every, n;
    const int32_t *step;  /* (n) ascending, of 0 … every - 1 */
    const int32_t *times; /* (n) steps that it stands for; their sum is `every` */
};
/* whole: all steps. O(every + fragments · delay). */
void period_make(struct arena *a, const struct outer_optimizer *o, bool whole, struct period *out);
/* The step, from 0 over the whole training, that the i-th simulated one is; n 0: no period. */
static inline int64_t period_step(const struct period *x, int64_t i)
{
    return !x->n ? i : i / x->n * x->every + x->step[i % x->n];
}

#endif
