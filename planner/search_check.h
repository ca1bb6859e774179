/* planner/search_check.h - validation of search options against the cluster. */
#ifndef PLANNER_SEARCH_CHECK_H
#define PLANNER_SEARCH_CHECK_H

#include "planner/candidate/types.h"
#include "sim/cost.h"

/* ERR_INPUT: the options need prices, and the cluster has none. ERR_USAGE: an objective without its
 * limit. */
MUST_CHECK enum status search_check_objective(const struct cluster *c,
                                              const struct search_options *o, struct error *err);

/* ERR_INFEASIBLE: what every plan has in memory at least once (parameters, gradients, optimizer state) takes more than all devices have
 * together, whatever ZeRO and sharding divide. O(operators). */
MUST_CHECK enum status search_check_memory(const struct job *j, const struct cluster *c,
                                           struct error *err);

/* ERR_INPUT: a type allows activations to be offloaded, and the bandwidth of its copies to host memory is unknown. */
MUST_CHECK enum status search_check_offload(struct cost *k, struct error *err);

/* Where no type offloads the optimizer's state yet, that it could; else "". */
const char *search_check_offload_hint(const struct cluster *c);
/* Microbatch sizes to try: the job's, or every divisor of the global batch up to 64 sequences that is a power of two or
 * three times one, and that of the old plan (NULL: none). Rising. Returns their number. */
int32_t search_check_sizes(const struct job *j, const struct plan *from, int64_t sizes[16]);

#endif
