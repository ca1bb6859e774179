/* planner/candidate/search_context.h - state shared by all strategies of one search: scorer, budgets and incumbents.
 *
 * A strategy (exact, coarse, baselines, local_search …) submits plans to search_context_evaluate and prunes by
 * search_context_limit. Incumbents are kept as found; refinement comes at the end (planner/search.c).
 */
#ifndef PLANNER_CANDIDATE_SEARCH_CONTEXT_H
#define PLANNER_CANDIDATE_SEARCH_CONTEXT_H

#include "planner/candidate/incumbents.h"
#include "planner/candidate/scorer.h"
#include "planner/candidate/space.h"
#include "planner/candidate/types.h"

enum { PRESET_SPACES_MAX = 96 };
/* %: by so much of the best time may a plan be faster, or slower, than its estimate. */
enum { SEARCH_BEYOND = 115 };

struct spmd_stage;

/* The question of a search of the whole cluster. */
struct search_task {
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) of microbatches */
    int32_t n_sizes;
    const bool *idle; /* (devices) left out by the coarse search; NULL: none */
};

struct search_context {
    struct arena *arena; /* owns the result */
    const struct search_options *o;
    const struct lower_options *lower;
    struct scorer *scorer;
    struct spmd_stage
        *spmd_stage; /* memo of sharded stages' solutions (planner/spmd_stage/spmd_stage.h) */
    struct incumbents incumbents;
    const struct search_result *even; /* of the same job with equal shares of the experts' tokens (planner/experts/place.h); NULL: none */
    int64_t candidates; /* complete plans with a computed lower bound */
    double budget; /* of the current round of searches, relative to the default one */
    int64_t evaluations_left;
    int64_t work_end; /* limit of scorer_work; 0: no limit */
    int64_t whole_ns; /* counted work of the best plan's whole simulation by the coarse search; 0: none */
    /* Spaces of the baselines, because the lower bound must hold for their plans too. */
    const struct space *preset[PRESET_SPACES_MAX];
    int32_t n_presets;
    /* Lower bound of plans of equal pipelines (planner/bound/groups.h) and what binds; 0: none is known */
    int64_t equal_bound_ns;
    const char *equal_binding;
    int64_t sampled_ns; /* of a plan kept by its sample alone, because the search was stopped or its simulation exceeds the work; 0: none */
    bool truncated;   /* a candidate list overflowed: the class was not searched completely */
    bool interrupted; /* *o->stop was set */
    bool exhausted;   /* the budget of evaluations was spent before the search ended */
    bool worked_out;  /* the budget of work was */
    /* Candidates were left, in the class or not, because the budget of evaluations or of work was spent. */
    bool left_by_evaluations, left_by_work;
};

/* Upper bound for pruning: a plan must be faster to be kept. INT64_MAX while the list has room. */
int64_t search_context_limit(const struct search_context *q);
bool search_context_stopped(struct search_context *q); /* interrupted by the user */
bool search_context_over(struct search_context *q);    /* interrupted, or a budget is spent */
/* ERR_INTERRUPTED: the search was stopped before any plan was found. */
MUST_CHECK enum status search_context_unfound(struct error *err);
void search_context_report(const struct search_context *q);
/* Fits, simulates and keeps one plan of the space; *p is modified until it fits (scorer_fit). *iteration_ns: as below. */
MUST_CHECK enum status search_context_evaluate(struct search_context *q, const struct space *s,
                                               struct plan *p, int64_t *iteration_ns,
                                               struct error *err);
/* The same without keeping the plan. *iteration_ns: INT64_MAX if it does not fit or lowering rejects it (no route between two
 * members of a ring); both are results and not errors. */
MUST_CHECK enum status search_context_score(struct search_context *q, const struct space *s,
                                            struct plan *p, int64_t *iteration_ns,
                                            struct error *err);

#endif
