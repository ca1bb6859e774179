/* tools/objective.h - the options of a search that state what is minimised and within which limits; which of two plans is better by them. */
#ifndef TOOLS_OBJECTIVE_H
#define TOOLS_OBJECTIVE_H

#include "planner/candidate/types.h"

struct objective_request {
    int objective;             /* enum objective */
    double min_rate, max_cost; /* as in struct search_options */
};
extern const char *const objective_names[]; /* ends with NULL */

/* member: a struct objective_request of the verb's struct request. */
#define OPTIONS_OBJECTIVE(member)                                                                  \
    {.name = "objective",                                                                          \
     CHOICE_AT(member.objective),                                                                  \
     .choices = objective_names,                                                                   \
     .help = "quantity to minimise: time of an iteration; cost of an iteration; time of an "       \
             "iteration whose cost is within --max-cost"},                                         \
        {.name = "min-rate",                                                                       \
         DOUBLE_AT(member.min_rate),                                                               \
         .unit = "PER_SECOND",                                                                     \
         .min = 0,                                                                                 \
         .max = 1e9,                                                                               \
         .help = "smallest accepted rate, in iterations per second, e.g. 0.05",                    \
         .preset = "0: any"},                                                                      \
        {.name = "max-cost",                                                                       \
         DOUBLE_AT(member.max_cost),                                                               \
         .unit = "MONEY",                                                                          \
         .min = 0,                                                                                 \
         .max = 1e12,                                                                              \
         .help = "largest accepted cost of one iteration, in the currency of the cluster's "       \
                 "prices, e.g. 0.2",                                                               \
         .preset = "0: any"}

void objective_put(const struct objective_request *q, struct search_options *o);
/* Whether x is within the limits and, by the objective, better than y; NULL: there is no other plan. */
bool objective_better(const struct search_options *o, const struct search_plan *x,
                      const struct search_plan *y);
/* The order of plans by the objective: those within the limits first, the others by how far they exceed them. */
bool objective_precedes(const struct search_options *o, const struct search_plan *x, const struct search_plan *y);

#endif
