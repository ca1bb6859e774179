/* planner/candidate/parallel_score.h - lists of plans scored by several threads, the same for any number of them.
 *
 * Each thread has a scorer and costs of its own; spaces are only read (of them the graphs, so multi_device_graphs comes before).
 * What is counted, kept and said of misses is put together in the order of the list afterwards, by the thread that asks.
 */
#ifndef PLANNER_CANDIDATE_PARALLEL_SCORE_H
#define PLANNER_CANDIDATE_PARALLEL_SCORE_H

#include "planner/candidate/search_context.h"
#include "profiles/profile.h"

struct parallel_score_item {
    struct plan plan; /* changed until it fits, as by search_context_score */
    struct space space;
    bool quick;
    int64_t ns; /* result; INT64_MAX where it does not fit, or was not tried */
    bool tried;
};
/* Scores the first of the items that evaluations are left for; none any more where the user stops. o->threads threads. */
MUST_CHECK enum status parallel_score(struct search_context *t, const struct profile *p,
                                      struct parallel_score_item *items, int32_t n,
                                      struct error *err);

#endif
