/* planner/candidate/parallel_score.h - a list of plans scored by several threads; the result does not depend on their number.
 *
 * Each thread has its own scorer, kept for the next list, and costs; the calling thread uses the search's. Spaces are read-only, including
 * their graphs, so call space_shard_graphs first.
 * The calling thread merges counts, plans and nearest misses afterwards, in list order.
 */
#ifndef PLANNER_CANDIDATE_PARALLEL_SCORE_H
#define PLANNER_CANDIDATE_PARALLEL_SCORE_H

#include "planner/candidate/search_context.h"
#include "profiles/profile.h"

/* Items between two looks at the counted work. */
enum { PARALLEL_SCORE_BATCH = 4 };
struct parallel_score_item {
    struct plan plan; /* modified until it fits, as by search_context_score */
    struct space space;
    bool quick;
    int64_t ns; /* result: simulated iteration; INT64_MAX: does not fit, or not tried */
    bool tried;
    /* If it does not fit: bytes missing on the fullest device, INT64_MAX if lowering rejects it, and the reason. why: (ERROR_TEXT), or NULL if
     * neither is asked for. */
    int64_t missing;
    char *why;
};
/* Scores items in order on o->threads threads until the budget of evaluations is spent or the user stops the search. */
MUST_CHECK enum status parallel_score(struct search_context *t, const struct profile *p,
                                      struct parallel_score_item *items, int32_t n,
                                      struct error *err);

#endif
