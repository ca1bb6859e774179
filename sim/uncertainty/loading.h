/* sim/uncertainty/loading.h - steps that wait for their data.
 *
 * `loaders` threads prepare batches, one a step, in order; each batch takes load_ns in the mean. At most `prefetch` batches are
 * being prepared or lie ready: batch k is begun when a loader is free and step k − prefetch has begun. Step k begins when step
 * k − 1 has ended and batch k is ready, never another one in its place.
 * In the mean a step takes at least max(step, load ÷ loaders) and exactly that where nothing varies and prefetch >= loaders + 1;
 * variance costs most where both are equal. Batches vary by the law of jitter.h, drawn by (seed, batch).
 */
#ifndef SIM_UNCERTAINTY_LOADING_H
#define SIM_UNCERTAINTY_LOADING_H

#include "core/base/error.h"

#include <stdint.h>

struct loading {
    int32_t loaders, prefetch; /* >= 1 */
    int64_t load_ns;           /* of one step's batch on one loader */
    double cv;                 /* of it; 1 is as uneven as an exponential law */
};
struct loading_result {
    int64_t first_ns; /* until the first step begins */
    double step_ns;   /* mean of the steps after the first tenth */
    double waiting;   /* share of it in which devices wait for data */
};
/* Step k takes step_ns[k mod n]. O(steps · loaders). ERR_USAGE: fewer than one loader or batch, times below 0, cv outside 0 … 10. */
MUST_CHECK enum status loading_walk(const struct loading *l, const double *step_ns, int64_t n,
                                    int64_t steps, uint64_t seed, struct loading_result *out,
                                    struct error *err);
/* The fewest loaders (prefetch grows in proportion) with which devices wait less than `share` of the time; 0: not even most. */
MUST_CHECK enum status loading_enough(const struct loading *l, const double *step_ns, int64_t n,
                                      int64_t steps, uint64_t seed, double share, int32_t most,
                                      int32_t *out, struct error *err);

#endif
