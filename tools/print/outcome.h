/* tools/print/outcome.h - what a plan's iteration time means for its user: rate, cost, gap. */
#ifndef TOOLS_PRINT_OUTCOME_H
#define TOOLS_PRINT_OUTCOME_H

#include "core/plan/plan.h"

struct outcome {
    double iteration_s, samples_per_s;
    double tokens_per_s; /* 0: samples are images */
    double cost;         /* of an iteration, currency of the cluster's prices; 0: no price */
    double gap;          /* (iteration - lower bound) / lower bound; NAN: no bound known */
};
/* lower_bound_ns 0: unknown. */
struct outcome outcome_of(const struct plan *p, int64_t iteration_ns, int64_t lower_bound_ns);

#endif
