/* sim/uncertainty/loading.h - the input pipeline: steps that wait for their batch (cf. a DataLoader with workers and prefetch).
 *
 * `loaders` threads prepare batches, one per step, in order; a batch takes load_ns on average. At most `prefetch` batches are in
 * preparation or ready: batch k starts when a loader is free and step k − prefetch has begun. Step k starts when step
 * k − 1 has ended and batch k is ready; batches are never reordered.
 * A step takes at least max(step, load ÷ loaders) on average, and exactly that without variance and with prefetch >= loaders + 1.
 * Variance costs most if both are equal. Batch times follow the law of jitter.h, drawn by (seed, batch).
 */
#ifndef SIM_UNCERTAINTY_LOADING_H
#define SIM_UNCERTAINTY_LOADING_H

#include "core/base/error.h"

#include <stdint.h>

struct loading {
    int32_t loaders, prefetch; /* >= 1 */
    int64_t load_ns;           /* mean time of one step's batch on one loader */
    double cv;                 /* of load_ns; 1 is the variation of an exponential law */
};
struct loading_result {
    int64_t first_ns; /* until the first step begins */
    double step_ns;   /* mean of the steps after the first tenth */
    double waiting;   /* share of it in which devices wait for a batch */
};
/* Step k takes step_ns[k mod n]. O(steps · loaders). ERR_USAGE: fewer than one loader or batch, times below 0, cv outside 0 … 10. */
MUST_CHECK enum status loading_walk(const struct loading *l, const double *step_ns, int64_t n,
                                    int64_t steps, uint64_t seed, struct loading_result *out,
                                    struct error *err);
/* The smallest number of loaders (prefetch grows in proportion) with which devices wait less than `share` of the time; 0: not
 * reached with `most`. */
MUST_CHECK enum status loading_enough(const struct loading *l, const double *step_ns, int64_t n,
                                      int64_t steps, uint64_t seed, double share, int32_t most,
                                      int32_t *out, struct error *err);

#endif
