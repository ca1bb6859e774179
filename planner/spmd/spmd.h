/* planner/spmd/spmd.h - the best sharded program of a stage: the index by which each operator is sharded (GSPMD, Alpa's
 * intra-op).
 *
 * Input: a training graph, the devices of the stage, their mesh and vectors of ratios. Result: the rules of
 * core/sharding/sharding of least cost. The cost is that of the views that core/sharding/shard makes from them: operators at
 * their local shapes (sim/cost, the slowest device of each), reshardings once per tensor and placement with their duals,
 * reductions of partial gradients, gradient all-reduces once a step, updates. Costs are tabulated by planner/spmd/rules.c;
 * planner/spmd/search chooses.
 *
 * A step is `microbatches` calls of F and B in sequence without overlap, because the devices wait for each other in every
 * collective. Further rules: a parameter kept sharded and gathered on use; sufficient factors (Xie et al. 2016: gather x and
 * dy and compute the complete dW on every device instead of an all-reduce).
 *
 * Memory of each device is computed twice. In the search: its shards of parameters, gradients (dtype_master) and optimizer
 * state, and, for `in_flight` microbatches, inputs and tensors read by gradient operators. This never exceeds lowering's
 * layout, so pruning is correct and found.bound_ns holds. Then the answer is lowered by the caller (`lay`: scratch, collectives'
 * buffers …). If it does not fit, the search is repeated with caps lowered by the excess, and then a few
 * times by bisection between caps with and without an answer that fits. So lowering accepts the answer, except for memory
 * unknown here (messages, fused kinds). Ownership: the arena's. Errors: those of operator costs.
 */
#ifndef PLANNER_SPMD_SPMD_H
#define PLANNER_SPMD_SPMD_H

#include "core/model/job.h"
#include "planner/spmd/price.h"
#include "planner/spmd/search.h"

/* Bytes of each device as lowered, (n_devices) with its reserve, of a plan's sharding of the stage; false: lowering refuses it. */
typedef bool spmd_lay(const void *of, const struct sharding *s, int64_t *bytes);

struct spmd_question {
    const struct graph *g; /* unsharded training graph (core/graph/gradient) with layers */
    int32_t first_layer, last_layer;
    const struct sharding *s; /* mesh and ratios; its rules are not read */
    struct cost *cost;
    const int32_t *type;         /* (n_devices) of the cost's cluster */
    const int64_t *memory_bytes; /* (n_devices); NULL: unlimited */
    const int64_t
        *reserve_bytes; /* (n_devices) part of it that is not available (a type's `reserve`); NULL: none */
    spmd_hop *hop;
    spmd_measured *measured; /* NULL: no measured collectives */
    spmd_lay *lay;           /* NULL: the counted bytes are all */
    const void *of;          /* context of hop, measured and lay */
    /* (n_devices) devices of one number share the links that leave their node; NULL: all links are dedicated */
    const int32_t *node;
    const bool
        *bus; /* (n_devices) messages within the device's node share one link; NULL: nowhere */
    int32_t microbatches, in_flight;
    const struct optimizer *optimizer;
    uint32_t algorithms; /* set of algorithms, 1 << algorithm */
    bool gather, sufficient_factors;
    uint32_t excluded; /* indices by which nothing is sharded, 1 << index; 0: none */
    bool complete_cuts; /* no tensor that crosses from a layer to the next is partial, so that a stage can end behind any layer */
    bool shard_parameters; /* no rule keeps a parameter of two dimensions or more whole where another rule shards it */
    bool
        one_vector; /* planner/spmd/ratio uses a single vector of ratios; for tests */
    struct spmd_limits limits;
};

struct spmd_meaning { /* of a rule */
    struct op_choice choice;
    bool gather, sufficient_factors;
    int32_t shards;            /* gather: index of the input kept sharded */
    const int64_t *device_ns; /* (n_devices) computation per step */
    int64_t join_ns;          /* part of rule.ns: its own collectives (gradient all-reduces, gathers) */
};
struct spmd_tables {
    struct spmd_problem problem;
    int32_t first_op,
        n_entries; /* problem's operator k is the graph's first_op + k - n_entries; entries (producers of the
                      stage's inputs) come first */
    const struct spmd_meaning *meanings; /* by rule.tag */
    struct spmd_price *price;
    int64_t work_ns; /* estimated cost of making the tables: counted, never timed */
};
const struct spmd_meaning *spmd_meaning_of(const struct spmd_tables *t, int32_t op, int32_t rule);
/* The tables of the search. O(distinct operators · rules · devices). */
MUST_CHECK enum status spmd_tables_new(struct arena *a, const struct spmd_question *q,
                                       struct spmd_tables **out, struct error *err);

struct spmd_answer {
    int64_t ns;                /* of a step; INT64_MAX: infeasible */
    struct op_choice *choices; /* (n_forward); none outside the stage */
    bool *gathered;            /* (n_tensors) */
    bool *sufficient_factors;          /* (n_forward) */
    int64_t *bytes;            /* (n_devices) as counted in the search */
    struct spmd_found found;
    const struct spmd_tables *tables;
    int64_t work_ns; /* estimated cost of tables and searches, also if infeasible */
};
MUST_CHECK enum status spmd_best(struct arena *a, const struct spmd_question *q,
                                 struct spmd_answer *out, struct error *err);
/* Cost in ns of given choices in the same model; INT64_MAX: impossible. */
int64_t spmd_choices_ns(struct arena *a, const struct spmd_tables *t, const struct spmd_question *q,
                        const struct op_choice *choices, const bool *gathered, int64_t *bytes);
/* Adds the algorithms of the answer's collectives at its prices to s, which has its rules already, if they differ from the
 * default. O(collectives + one view). */
void spmd_set_algorithms(struct arena *a, const struct spmd_question *q, const struct spmd_answer *x,
                   struct sharding *s);
/* The answer as a plan's `sharding:` with the question's mesh and ratios: rules, gathered parameters, sufficient factors,
 * algorithms. */
struct sharding *spmd_sharding(struct arena *a, const struct spmd_question *q,
                               const struct spmd_answer *x);

#endif
