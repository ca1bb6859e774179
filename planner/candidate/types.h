/* planner/candidate/types.h - options and results of a plan search; shared by planner/search.h and every strategy.
 *
 * Times are nanoseconds per iteration. Costs are money per iteration (prices of device types are per hour).
 */
#ifndef PLANNER_CANDIDATE_TYPES_H
#define PLANNER_CANDIDATE_TYPES_H

#include "core/plan/plan.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    /* Devices whose partitions into replicas, idle ones included, are listed: at most Bell(9) = 21,147 of 64 bytes for each microbatch size.
     * Of 12 devices they are 27.6 million. Then the search may be exact. */
    SEARCH_DEVICES_MAX = 8,
    SEARCH_EVALUATIONS = 20000 /* default budget of simulated plans */
};
/* Begins every error of a search that no plan fits. */
#define SEARCH_NO_PLAN "no feasible plan: "

/* The class of plans that `exact` refers to. */
#define SEARCH_CLASS "contiguous layers a device, integer shares, 1F1B, before refinement"

/* The class of plans that `equal_bound_ns` refers to. */
#define SEARCH_EQUAL                                                                               \
    "equal pipelines of whole layers on groups of equal GPUs of a node, sharded by the rules of "  \
    "the search, ZeRO 0 or 1 over all replicas, all blocks of a stage recomputed or none, any "     \
    "order, at the microbatch sizes tried"

/* Baselines: textbook plans of the same plan space, each the best setting of its family (microbatch size, orders, degrees,
 * buckets, recomputation). Settings are ranked by an estimate and the first few are simulated. Grid families have `replicas`
 * equal pipelines of equally many stages, use every device and give every replica the same share. */
#define BASELINES(X)                                                                               \
    X(even_pipeline, "even-pipeline", "all devices in order, equal numbers of layers, 1F1B")       \
    X(data_parallel, "data-parallel",                                                              \
      "a replica on each device, equal shares of the batch, one all-reduce after the backward")    \
    X(ddp, "ddp", "data parallel, gradients all-reduced in buckets during the backward")           \
    X(horovod_ring, "horovod-ring",                                                                \
      "data parallel, one ring with fusion buffers: 64 MiB, 128 MiB or all gradients at once")     \
    X(hierarchical, "hierarchical",                                                                \
      "horovod-ring with hierarchical all-reduces (HOROVOD_HIERARCHICAL_ALLREDUCE)")               \
    X(tf_mirrored, "tf-mirrored",                                                                  \
      "data parallel as TensorFlow's MirroredStrategy: one pack of all gradients, or packs of "    \
      "50 MiB")                                                                                     \
    X(zero_1, "zero-1", "data parallel with optimizer state sharded over the replicas")            \
    X(zero_2, "zero-2", "zero-1 with sharded gradients")                                           \
    X(zero_3, "zero-3", "zero-2 with sharded parameters, gathered in buckets")                     \
    X(fsdp, "fsdp", "zero-3 with all-gathers of a layer or a block, one ahead")                    \
    X(hsdp, "hsdp",                                                                                \
      "fsdp with shards over the GPUs of a node, gradients all-reduced between nodes")             \
    X(gpipe, "gpipe", "balanced pipelines, all forwards before all backwards, recomputing or not") \
    X(megatron, "megatron",                                                                        \
      "tensor x pipeline x data, equal layers everywhere, 1F1B or interleaved")                    \
    X(alpa_coarse, "alpa-coarse", "stages of at most 16 coarse layers on equal meshes, 1F1B")      \
    X(harp_published, "harp-published",                                                            \
      "HARP as published: nodes in order, every device, meshes of 2^k GPUs of one node, ranked "   \
      "by closed form")                                                                            \
    X(hap, "hap",                                                                                  \
      "HAP: one stage on all devices, every operator sharded by the index and in the ratios of "   \
      "least cost")

/* Objective, minimised. TIME: iteration time. COST: money per iteration (device types with a price), subject to at least
 * min_rate iterations per second. RATE: iteration time, subject to at most max_cost money per iteration. */
#define OBJECTIVES(X) X(TIME, "time") X(COST, "cost") X(RATE, "rate")
enum objective {
#define X(name, text) OBJECTIVE_##name,
    OBJECTIVES(X)
#undef X
};

struct search_options {
    const char *baseline; /* NULL: search; else the name of the baseline to make */
    /* Warm start (planner/replan/warm_start.h): plans derived from this one are tried first; devices of another cluster are
     * matched by name. Beyond SEARCH_DEVICES_MAX devices, with evaluations 0, no search follows if they are good enough. NULL:
     * none */
    const struct plan *from;
    enum objective objective;
    double min_rate, max_cost; /* iterations per second; money per iteration; 0: no limit */
    int32_t threads;           /* 0: 1. The plan does not depend on it */
    int32_t top;               /* plans to return, >= 1 */
    int64_t evaluations; /* budget of simulated plans, an eighth of it for refinement; in rounds (planner/search.h); 0: 20,000 */
    bool
        fastest; /* measured layers: return the fastest predicted plan first, not the robust one (planner/candidate/robust.h) */
    bool no_zero; /* state whole on every replica, but for plans whose orders fit with ZeRO 1 only; for plans that ZeRO does not suit */
    bool no_sharding; /* no sharded stages (planner/spmd_stage/spmd_stage.h); for tests */
    bool deterministic; /* plans with deterministic: true, and timed as such; without sharded stages and ZeRO, which lowering refuses there */
    bool exhaustive;  /* no pruning by bounds: the same best plan, slowly; for tests */
    const volatile sig_atomic_t *stop; /* nonzero: end with the best plan so far; NULL: never */
    /* called once before the first evaluation, with best_ns INT64_MAX */
    void (*progress)(void *user, int64_t evaluated, int64_t best_ns);
    void *user;
};
struct search_plan {
    struct plan plan; /* with predicted_ns */
    int64_t iteration_ns;
    double cost; /* money per iteration: core/plan/plan.h */
};
struct search_baseline {
    const char *name;
    int64_t iteration_ns; /* INT64_MAX: infeasible */
    struct plan plan;
    const char *why; /* reason, if infeasible */
    /* Settings that may be faster were left out beside the search. Requested alone, the baseline may be faster. */
    bool quick;
    bool estimated; /* the time is an estimate (planner/coarse/line.c), because a simulation would exceed the baselines' share of work */
    bool sampled; /* the time is an estimate, or that of a sample of its microbatches and replicas (planner/coarse/sample.h) */
};
/* What became of the old plan that the search was given. */
#define SEARCH_STARTS(X)                                                                           \
    X(NONE, "none")         /* there was none */                                                   \
    X(ADAPTED, "adapted")   /* it was repaired and improved, and good enough that no search followed */ \
    X(SEARCHED, "searched") /* adapted, it was a start of the search */
enum search_start {
#define X(name, text) SEARCH_START_##name,
    SEARCH_STARTS(X)
#undef X
};
struct search_result {
    enum search_start start;
    int32_t n_plans;
    struct search_plan *
        plans; /* (n_plans) best first; measured layers: the most robust of the fastest, then the others by time */
    bool robust;         /* the first plan is not the fastest (planner/candidate/robust.h) */
    bool sampled;        /* the first plan's time is that of a sample, because the search was stopped before it was simulated whole, or that exceeds its work */
    int32_t n_baselines; /* all, or the requested one */
    struct search_baseline *baselines;
    int64_t candidates;  /* complete plans with a computed lower bound */
    int64_t evaluated;   /* plans simulated */
    int64_t budget, next_budget; /* evaluations of the last round, and of the round that would follow (planner/search.h) */
    bool exact;          /* the class was searched completely */
    const char *stopped; /* "end", "evaluations", "work", "interrupted" */
    /* Lower bound of every plan of bound_class, and its binding term; gap of the best plan: (T - LB) / LB (planner/bound/any.h) */
    int64_t lower_bound_ns;
    const char *binding, *bound_class;
    double gap;
    /* The same for money per iteration, subject to min_rate; 0 and infinity if a type has no price */
    double lower_cost, cost_gap;
    /* Lower bound of plans of equal pipelines (planner/bound/groups.h), and what binds; 0: none is known */
    int64_t equal_bound_ns;
    const char *equal_binding;
    int64_t class_ns; /* best plan of the class before refinement */
};
#endif
