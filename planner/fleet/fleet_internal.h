/* planner/fleet/fleet_internal.h - candidates and state shared by the files of the fleet search. */
#ifndef PLANNER_FLEET_FLEET_INTERNAL_H
#define PLANNER_FLEET_FLEET_INTERNAL_H

#include "planner/fleet/fleet.h"
#include "planner/fleet/place.h"
#include "planner/fleet/template_classes.h"

enum {
    FLEET_QUICK_LANES = 256, /* larger plans are compared by the first step of a run */
    FLEET_CANDIDATES_MAX = 2048,
    FLEET_CUTS_MAX = 24
};

/* A plan with the cost of its simulation. */
struct fleet_plan {
    struct plan plan;
    struct space space;
    int64_t cost_us, settle_us; /* cost of a simulation for comparison, and to the steady step */
    bool leveled;               /* orders and shares from simulations of single replicas */
    bool quick;                 /* compared by the first step of a run */
    int64_t ns;
    int64_t *worked; /* (replicas) end times */
};
struct fleet_candidate {
    int32_t size;
    struct placed placed;
    int64_t estimate_ns;
    int64_t reduce_ns; /* part of the estimate: gradient all-reduces and saturated links */
    int64_t least_ns;  /* estimate without pipeline fill */
    struct fleet_plan
        *ready; /* with orders and shares (planner/fleet/replica_order.h); NULL: not computed yet */
    int64_t cost_us, settle_us; /* cost of a simulation for comparison, and to the steady step */
};

struct fleet {
    struct search_context *t;
    const struct search_task *task;
    struct arena *arena; /* spaces, templates, placed mixes */
    const int32_t *numbers; /* (n_numbers) of GPUs a stage */
    int32_t n_numbers;
    struct tp_options offers;
    struct template_classes classes;
    struct space *spaces;           /* (n_sizes) */
    struct template_maker **makers; /* (n_sizes) */
    int32_t n_candidates;
    struct fleet_candidate *candidates;
    int64_t left_us;            /* remaining budget of simulation */
    int64_t best_ns;            /* least estimate of the current set */
    int64_t least_ns;           /* least estimate of all candidates */
    int64_t *size_ns;           /* (n_sizes) least estimate of each size, stages of any length */
    struct mix *before;         /* (n_sizes, FLEET_VARIANTS) the last mix of each */
    int32_t n_cuts;             /* for the current size */
    bool *cuts[FLEET_CUTS_MAX]; /* (n_layers) first layers of one template's stages */
    bool dedicated_links;       /* cluster_has_dedicated_links */
};

/* Fills spaces, makers and candidates: mixes of all sizes, placed and estimated, by rising estimate. */
MUST_CHECK enum status fleet_candidates(struct fleet *q, struct error *err);
/* Re-ranks the most promising large candidates by simulations of their single replicas, as long as one may beat the best; the
 * others are moved behind them. */
MUST_CHECK enum status fleet_rank_large(struct fleet *q, struct error *err);
/* The plan of a candidate: `ready` if set, else its placement. */
void fleet_plan_of(struct fleet *q, const struct fleet_candidate *c, struct fleet_plan *out);

#endif
