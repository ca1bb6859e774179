/* planner/fleet/fleet_internal.h - what the search for any number of devices shares among its files: candidates, and who made them. */
#ifndef PLANNER_FLEET_FLEET_INTERNAL_H
#define PLANNER_FLEET_FLEET_INTERNAL_H

#include "planner/fleet/fleet.h"
#include "planner/fleet/place.h"
#include "planner/fleet/tp_options.h"

enum {
    FLEET_QUICK_LANES = 256, /* plans of more are compared by the first step of a run */
    FLEET_CANDIDATES_MAX = 2048,
    FLEET_CUTS_MAX = 24
};

/* A plan on the GPUs that its devices are made of, with what it costs to simulate it. */
struct fleet_plan {
    struct plan plan;
    struct space space;
    int64_t cost_us, settle_us; /* for comparison, and to its steady step */
    bool leveled;               /* orders and shares found by simulating replicas alone */
    bool quick;                 /* compared by the first step of a run */
    int64_t ns;
    int64_t *worked; /* (replicas) when they ended */
};
struct fleet_candidate {
    int32_t size;
    struct placed placed;
    int64_t estimate_ns;
    int64_t reduce_ns; /* of the estimate: what sums and full links add to the slowest replica */
    int64_t least_ns;  /* that, behind pipelines that need no time to fill */
    struct fleet_plan
        *ready; /* with orders and shares found (planner/fleet/replica_order.h); NULL: not yet */
    int64_t cost_us, settle_us; /* of simulating it: for comparison, and to its steady step */
};

struct fleet {
    struct search_context *t;
    const struct fleet_task *task;
    struct arena *arena; /* spaces, templates, placed mixes */
    struct tp_options offers;
    struct space *spaces;           /* (n_sizes) */
    struct template_maker **makers; /* (n_sizes) */
    int32_t n_candidates;
    struct fleet_candidate *candidates;
    int64_t left_us;            /* of the budget for simulations */
    int64_t best_ns;            /* least estimate of those looked at now */
    int64_t least_ns;           /* of all */
    int64_t *size_ns;           /* (n_sizes) the same of each size, stages as long as they want */
    struct mix *before;         /* (n_sizes, FLEET_VARIANTS) the last mix of each */
    int32_t n_cuts;             /* of the size at hand */
    bool *cuts[FLEET_CUTS_MAX]; /* (n_layers) where stages of one template begin */
    bool dedicated_links;       /* every two devices have links of their own */
};

/* Mixes of all sizes, placed and estimated, least estimates first; spaces, makers and candidates filled. */
MUST_CHECK enum status fleet_candidates(struct fleet *q, struct error *err);
/* Of candidates of many lanes the most promising once more, by what their replicas take alone, as long as any could be better
 * than the best; the others are put behind. Sorted anew. */
MUST_CHECK enum status fleet_rank_large(struct fleet *q, struct error *err);
/* The plan of a candidate: that of `ready`, or as it was placed. */
MUST_CHECK enum status fleet_plan_of(struct fleet *q, const struct fleet_candidate *c,
                                     struct fleet_plan *out, struct error *err);

#endif
