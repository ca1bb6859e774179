/* planner/baseline/baselines.h - construction and scoring of all baselines, and their comparison with the search.
 *
 * The settings of a family come in the order of their estimates (planner/baseline/grid.c; HARP's plans by its own closed form), those that
 * lack memory by estimate last. Round by round the next setting of every family is simulated, as long as it may be faster than the family's
 * best, until the limit of work (search_context.work_end): a stated share of the search's, or for a baseline requested alone several times
 * the work of a search. A plan of many microbatches or replicas is simulated by a sample of them (planner/coarse/sample.h); those whose
 * samples come near the fastest plan known are then simulated whole. The rule does not depend on the number of devices.
 */
#ifndef PLANNER_BASELINE_BASELINES_H
#define PLANNER_BASELINE_BASELINES_H

#include "planner/candidate/search_context.h"
#include "planner/coarse/coarse.h"

struct baselines_request {
    const struct search_task *task;
    struct coarse *coarse; /* of the task */
    int32_t n_grouped;     /* the first of the task's sizes, at which stages on several GPUs are tried */
    int64_t known_ns;      /* of a plan known before; 0: none */
};
/* Scores all baselines, or the one named by the options, within t's limit of work. out->baselines: the best plan of each family, or the
 * reason why there is none. Plans of the exact search's class become incumbents, so that they prune. */
MUST_CHECK enum status baselines_score(struct search_context *q, const struct baselines_request *r,
                                       struct search_result *out, struct error *err);
/* Grid families on the devices that the task leaves, which cost price_per_h together. Settings that may precede the best plan by estimate are
 * simulated within t's budgets; the best of each family is kept. */
MUST_CHECK enum status baselines_on(struct search_context *q, const struct baselines_request *r,
                                    double price_per_h, struct error *err);
/* Whether the plan is in the exact search's class: contiguous layers per device, 1F1B, nothing else. */
bool baselines_plain(const struct plan *p);
/* Adds all baselines simulated whole to the incumbents, so that no search returns a plan slower than a baseline. */
void baselines_keep(struct search_context *q, const struct search_result *out);
/* The baseline named by the options becomes the only incumbent. ERR_USAGE: unknown name (the message lists all). ERR_INFEASIBLE
 * with the reason. */
MUST_CHECK enum status baselines_pick(struct search_context *q, struct search_result *out,
                                      struct error *err);

#endif
