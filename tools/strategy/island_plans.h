/* tools/strategy/island_plans.h - plans of the islands of a division (islands.h), each found for its island alone, and the plan of all together. */
#ifndef TOOLS_STRATEGY_ISLAND_PLANS_H
#define TOOLS_STRATEGY_ISLAND_PLANS_H

#include "planner/search.h"
#include "tools/strategy/islands.h"

struct island {
    struct cluster part;
    double weight; /* of the batch */
    int64_t batch; /* its samples of a step */
    int32_t like;  /* an island before it that is alike and has as many samples, or itself */
    int32_t n_found;
    const struct search_plan *found; /* (n_found) the fastest first */
};
enum { ISLAND_PLANS = 12 }; /* of an island: those of them that fit beside the state of local SGD */

struct island_task {
    struct arena *a;
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const struct search_options *o;
    const char *base;   /* textbook plan of an island; NULL: that of a search */
    int64_t evaluated;  /* plans simulated so far */
};

struct island_division {
    struct islands by;
    bool beside;            /* islands are planned beside the state that a strategy adds */
    struct island *islands; /* (by.n) */
    int32_t n_plans;        /* least number of plans of an island */
    const char *why;
    struct island_division *with_room; /* the same, beside that state; NULL: not needed yet */
};

/* Searches the plans of every island: x->islands, or x->why. Its share of the batch is by peak FLOP/s, then, if islands differ, by the samples/s of
 * its plan. Cost: a search for every island that no earlier one is like. */
MUST_CHECK enum status island_plans_fill(struct island_task *f, struct island_division *d, struct error *err);
/* The replicas of all islands in one plan, the k-th of each. zero: as they are, or without ZeRO, which codes do not have. of: (replicas)
 * the island of each. false: the microbatch sizes differ. */
bool island_plans_unite(struct island_task *f, const struct island_division *d, int32_t k, bool zero, struct plan *p,
                        const int32_t **of);

#endif
