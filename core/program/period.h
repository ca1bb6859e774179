/* core/program/period.h - the period of local SGD: which steps start and apply the exchange of a fragment, and which of its steps a
 * simulation needs.
 *
 * Of P fragments and a period of H steps, fragment f (0-based) starts its sums behind the update of the steps number
 * floor((f + 1) H / P), counted from 1, and of every H-th step after it, so that the last fragment's are in step H; it applies them
 * `delay` steps later. With one fragment and no delay both happen in step H.
 */
#ifndef CORE_PROGRAM_PERIOD_H
#define CORE_PROGRAM_PERIOD_H

#include "core/model/job.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* Number of the first step that starts the fragment's sums, 1 … every. */
int32_t period_first(const struct outer_optimizer *o, int32_t fragment);
/* Whether a sum of the fragment has been started and not yet applied when this many steps are complete. */
bool period_in_flight(const struct outer_optimizer *o, int32_t fragment, int64_t steps);

/* Steps of a period that are simulated. All from the start of a sum to its application; of the others, between two exchanges, at most
 * three: the first after an exchange, which starts late on some devices, one more, and a steady one that stands for the rest. */
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
