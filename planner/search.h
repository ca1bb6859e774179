/* planner/search.h - the best plan of a job on a cluster: exact for up to 8 devices.
 *
 * The class searched: every choice of devices, every way to part them into replicas, every order of the devices of a
 * replica, every contiguous split of the layers over them, every integer share of the microbatches, each
 * microbatch size of the job; 1F1B orders; a stage recomputes only where it would not fit otherwise.
 * Branch and bound: what cannot beat the incumbent by a lower bound (planner/bound.h) is never built; what survives is
 * lowered and scored by the simulator, which alone decides. The best plans then try other warm-up counts and
 * gradient buckets (outside the class, only ever better). Interchangeable devices are used in index order.
 * Ties are broken by the order of enumeration, so that a search repeats to the byte.
 */
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include "core/error.h"
#include "core/plan.h"
#include "profiles/profile.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { SEARCH_DEVICES_MAX = 8 };

/* Baselines: presets of the same plan space, each scored by the same simulator. */
#define BASELINES(X)                                                                               \
    X(even_pipeline, "even-pipeline", "all devices in order, equal numbers of layers, 1F1B")       \
    X(data_parallel, "data-parallel", "a full replica on each device, equal shares of the batch")

struct search_options {
    const char *baseline;              /* NULL: search; else the name of the one to make */
    int32_t top;                       /* plans to keep, >= 1 */
    int64_t evaluations;               /* most simulations; 0: 20,000 */
    const volatile sig_atomic_t *stop; /* set: end with the best so far; NULL: never */
    void (*progress)(void *user, int64_t evaluated, int64_t best_ns);
    void *user;
};
struct search_plan {
    struct plan plan; /* predicted_ns filled */
    int64_t iteration_ns;
};
struct search_baseline {
    const char *name;
    int64_t iteration_ns; /* INT64_MAX where it does not fit */
    struct plan plan;
    const char *why; /* where it does not fit */
};
struct search_result {
    int32_t n_plans;
    struct search_plan *plans; /* best first */
    int32_t n_baselines;
    struct search_baseline *baselines;
    int64_t candidates;  /* complete plans that were bounded */
    int64_t evaluated;   /* of them simulated */
    bool exact;          /* the class was searched to its end */
    const char *stopped; /* "end", "evaluations", "interrupted" */
    int64_t
        bound_ns; /* least lower bound of what was not simulated, or the best plan's time where exact */
};
/* ERR_INFEASIBLE with the nearest miss where nothing fits; ERR_INPUT: more than 8 devices, unknown baseline (lists
 * them), no link between any two devices that would be needed. */
MUST_CHECK enum status search_plans(struct arena *a, const struct job *j, const struct cluster *c,
                                    const struct profile *p, const struct search_options *o,
                                    struct search_result *out, struct error *err);

/* Simulated iteration of any plan with a profile; what `plan`, `simulate` and calibration share. */
MUST_CHECK enum status search_score(struct arena *a, const struct plan *plan,
                                    const struct profile *p, int64_t *iteration_ns,
                                    struct error *err);

#endif
