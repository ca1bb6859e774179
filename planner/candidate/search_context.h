/* planner/candidate/search_context.h - what one search shares among its ways of finding plans: the scorer, its budget, the best so far.
 *
 * Whoever makes plans (exact, fleet, baselines) gives them to search_context_evaluate and asks search_context_limit what is still worth
 * making. Kept are plans as they were found; refinement comes at the end (planner/search.c).
 */
#ifndef PLANNER_CANDIDATE_SEARCH_CONTEXT_H
#define PLANNER_CANDIDATE_SEARCH_CONTEXT_H

#include "planner/candidate/incumbents.h"
#include "planner/candidate/scorer.h"
#include "planner/candidate/space.h"
#include "planner/candidate/types.h"

enum { PRESET_SPACES_MAX = 96 };

struct spmd_stage;

struct search_context {
    struct arena *arena; /* the result's */
    const struct search_options *o;
    const struct lower_options *lower;
    struct scorer *scorer;
    struct spmd_stage
        *spmd_stage; /* what sharded stages do inside (planner/spmd_stage/spmd_stage.h) */
    struct incumbents incumbents;
    int64_t candidates; /* complete plans that were bounded */
    int64_t evaluations_left;
    int64_t work_end; /* of the scorer's work (scorer_work); 0: no end */
    /* The best plan of each choice of devices and their order: where refinement starts beside the best ones, which may all be
     * alike. most 0: not kept. */
    struct incumbents diverse_starts;
    /* What baselines were priced with: the bound must hold for their plans too. */
    const struct space *preset[PRESET_SPACES_MAX];
    int32_t n_presets;
    bool truncated;   /* more candidates than lists hold: the class was not searched to its end */
    bool interrupted; /* *o->stop was seen set */
    bool exhausted;   /* the budget of evaluations ended before the search */
    bool worked_out;  /* that of work did */
};

/* What a plan must beat to be kept; INT64_MAX while anything is. */
int64_t search_context_limit(const struct search_context *q);
bool search_context_stopped(struct search_context *q); /* interrupted by the user */
bool search_context_over(struct search_context *q);    /* that, or no evaluations or work left */
void search_context_report(const struct search_context *q);
/* Fits, simulates and keeps one plan of the space; *p is changed until it fits (scorer_fit). *iteration_ns: INT64_MAX where it
 * does not, or where lowering refuses it, as below. */
MUST_CHECK enum status search_context_evaluate(struct search_context *q, const struct space *s,
                                               struct plan *p, int64_t *iteration_ns,
                                               struct error *err);
/* The same without keeping: *iteration_ns, INT64_MAX where it does not fit, or where lowering refuses it (no way between two
 * members of a ring), which is a result here and no error. */
MUST_CHECK enum status search_context_score(struct search_context *q, const struct space *s,
                                            struct plan *p, int64_t *iteration_ns,
                                            struct error *err);

#endif
