/* tools/print/outcome.h - what a plan's iteration time means for its user: rate, cost, gap. */
#ifndef TOOLS_PRINT_OUTCOME_H
#define TOOLS_PRINT_OUTCOME_H

#include "sim/metrics.h"

struct outcome {
    double iteration_s;
    struct metrics_rate rate;
    double cost;         /* of an iteration, currency of the cluster's prices; NAN: no price */
    double gap;          /* (iteration - lower bound) / lower bound; NAN: no bound known */
};
/* lower_bound_ns 0: unknown. */
struct outcome outcome_of(const struct plan *p, int64_t iteration_ns, int64_t lower_bound_ns);
/* A count or a rate for a reader: "0.0123", "873.5", "45,940", "8,030,261,248": four digits, or the whole number in groups of three.
 * At most 31 bytes; returns the buffer. */
const char *outcome_number(char buffer[32], double value);

#endif
