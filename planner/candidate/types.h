/* planner/candidate/types.h - options and results of a search for plans: what the search's door (planner/search.h) and its parts share.
 *
 * Times are in nanoseconds of one iteration, costs in units of money of one iteration (prices of device types are per hour).
 */
#ifndef PLANNER_CANDIDATE_TYPES_H
#define PLANNER_CANDIDATE_TYPES_H

#include "core/plan/plan.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { SEARCH_DEVICES_MAX = 8 };
/* What `exact` speaks of. */
#define SEARCH_CLASS "contiguous layers a device, integer shares, 1F1B, before refinement"

/* Baselines: presets of the same plan space, each the best setting of its family: microbatch size, orders, degrees, buckets,
 * what is computed again. Settings are ranked by an estimate, the first few simulated. Those of one grid have `replicas`
 * equal pipelines of equally many stages, use every device and give every replica the same share. */
#define BASELINES(X)                                                                               \
    X(even_pipeline, "even-pipeline", "all devices in order, equal numbers of layers, 1F1B")       \
    X(data_parallel, "data-parallel",                                                              \
      "a full replica on each device, equal shares of the batch, one sum behind the backward")     \
    X(ddp, "ddp", "the same, gradients summed in buckets while the backward goes on")              \
    X(horovod_ring, "horovod-ring",                                                                \
      "the same, one ring with fusion buffers: 64 MiB, 128 MiB or everything at once")             \
    X(zero_1, "zero-1", "data parallel with optimizer state divided over the replicas")            \
    X(zero_2, "zero-2", "and gradients divided")                                                   \
    X(zero_3, "zero-3", "and parameters divided, gathered in buckets")                             \
    X(fsdp, "fsdp", "zero-3 that gathers layer by layer or block by block, one ahead")             \
    X(gpipe, "gpipe", "balanced pipelines, all forwards before all backwards, recomputing or not") \
    X(megatron, "megatron",                                                                        \
      "tensor x pipeline x data, equal layers everywhere, 1F1B or interleaved")                    \
    X(alpa_coarse, "alpa-coarse", "stages of at most 16 coarse layers on equal meshes, 1F1B")      \
    X(harp_published, "harp-published",                                                            \
      "HARP as its authors published it: nodes in order, every device, meshes of 2^k GPUs of "     \
      "one "                                                                                       \
      "node, ranked by closed form")                                                               \
    X(hap, "hap",                                                                                  \
      "HAP: one stage on all devices, every operator sharded by the index and in the ratios that " \
      "cost least")

/* What a plan is better by. TIME: the iteration. COST: money an iteration (device types with a price), among plans
 * of at least min_rate iterations a second. RATE: the iteration, among plans of at most max_cost an iteration. */
#define OBJECTIVES(X) X(TIME, "time") X(COST, "cost") X(RATE, "rate")
enum objective {
#define X(name, text) OBJECTIVE_##name,
    OBJECTIVES(X)
#undef X
};

struct search_options {
    const char *baseline; /* NULL: search; else the name of the one to make */
    /* Warm start (planner/replan/warm_start.h): plans like this one are tried first. Of another cluster: devices are matched by name. Beyond
     * SEARCH_DEVICES_MAX devices, with evaluations 0, there is no search beside them where they are good enough. NULL: none */
    const struct plan *from;
    /* Numbers of equal GPUs of one node that may shard every operator as one device; NULL: as the cluster says */
    const int32_t *tensor;
    int32_t n_tensor;
    enum objective objective;
    double min_rate, max_cost; /* iterations a second; money an iteration; 0: no such limit */
    int32_t threads;           /* >= 1; 0: 1. The same plan for any number */
    int32_t top;               /* plans to hand out, >= 1 */
    int64_t evaluations;       /* most plans to try, an eighth of them to refine; 0: 20,000 */
    bool
        fastest; /* measured layers: the first plan is the fastest predicted, however close others are (planner/fleet/robust.h) */
    bool no_sharding; /* no plan with sharded stages (planner/spmd_stage/spmd_stage.h); for tests */
    bool exhaustive;  /* no bound prunes: the same best plan, slowly; for tests */
    const volatile sig_atomic_t *stop; /* set: end with the best so far; NULL: never */
    /* first before anything is scored, with best_ns INT64_MAX */
    void (*progress)(void *user, int64_t evaluated, int64_t best_ns);
    void *user;
};
struct search_plan {
    struct plan plan; /* predicted_ns filled */
    int64_t iteration_ns;
    double cost; /* money an iteration: core/plan/plan.h */
};
struct search_baseline {
    const char *name;
    int64_t iteration_ns; /* INT64_MAX where it does not fit */
    struct plan plan;
    const char *why; /* where it does not fit */
    /* Beside a search of many devices: not all that alone would be simulated was, or nothing. Alone it may be faster. */
    bool quick;
};
struct search_result {
    int32_t n_plans;
    struct search_plan *
        plans; /* best first; of measured layers the most robust of the fastest, then the others by time */
    bool robust;         /* the first plan is not the fastest (planner/fleet/robust.h) */
    int32_t n_baselines; /* all, or the one that was asked for */
    struct search_baseline *baselines;
    int64_t candidates;  /* complete plans that were bounded */
    int64_t evaluated;   /* of them simulated */
    bool exact;          /* the class was searched to its end */
    const char *stopped; /* "end", "evaluations", "work", "interrupted" */
    /* What no plan of the class beats, and by which term; gap of the best: (T - LB) / LB (planner/bound/pipeline_bound.h) */
    int64_t lower_bound_ns;
    const char *binding, *bound_class;
    double gap;
    /* The same of money an iteration, among plans of min_rate; 0 and infinite where a type has no price */
    double lower_cost, cost_gap;
    int64_t class_ns; /* the best plan of the class before it was refined */
};
#endif
