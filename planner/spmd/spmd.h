/* planner/spmd/spmd.h - the best sharded program of a stage: by which index each operator is sharded.
 *
 * From a training graph, the devices that share the stage, how they stand in a mesh and by which vectors of ratios they may
 * share, comes the choice of core/sharding/sharding that costs least; the views that core/sharding/shard makes of it do what was priced:
 * operators at their local shapes (sim/cost, the slowest device of each; a price for each device type and key), conversions
 * once for every tensor and placement and their duals, reductions of partial gradients, gradient all-reduces
 * once a step, updates. What each of them costs stands in tables (planner/spmd/rules.c), the choice is planner/spmd/search's.
 *
 * A step is `microbatches` calls of F and B, one after the other: nothing hides behind anything, which is what devices that
 * wait for each other in every collective do. Variants that are rules of their own: a parameter kept sharded and gathered on
 * use; sufficient factors (Xie et al. 2016: gather x and dy and compute the whole dW everywhere in place of summing it).
 *
 * Memory of each device is counted twice. In the search: its shards of parameters, gradients (dtype_master) and optimizer
 * state, and of `in_flight` microbatches inputs and what operators' gradients read; never more than lowering lays out, so
 * that what is cut off is cut off rightly, and found.bound_ns holds. Then what is found is laid out as lowering would
 * (planner/spmd/memory.h: scratch, collectives' buffers …); where that does not fit the search is asked again with so much less,
 * and then, a few times, with half of what lies between caps that led to something or nothing and an answer that is too
 * large. So an answer is one that lowering takes, but for what the planner does not know of (messages, fused kinds).
 * Ownership: the arena's. Errors: those of prices.
 */
#ifndef PLANNER_SPMD_SPMD_H
#define PLANNER_SPMD_SPMD_H

#include "core/model/job.h"
#include "planner/spmd/price.h"
#include "planner/spmd/search.h"

struct spmd_question {
    const struct graph *g; /* whole, training: core/graph/gradient; with layers */
    int32_t first_layer, last_layer;
    const struct sharding *s; /* mesh and ratios; its rules are not read */
    struct cost *cost;
    const int32_t *type;         /* (n_devices) of the cost's cluster */
    const int64_t *memory_bytes; /* (n_devices); NULL: no end of it */
    const int64_t
        *reserve_bytes; /* (n_devices) of it, for others (a type's `reserve`); NULL: nothing */
    spmd_hop *hop;
    spmd_measured *measured; /* NULL: nobody measured collectives */
    const void *of;
    /* (n_devices) devices of one number share the links that leave their node; NULL: links are everybody's own */
    const int32_t *node;
    const bool
        *bus; /* (n_devices) and what is sent inside its node shares one link; NULL: nowhere */
    int32_t microbatches, in_flight;
    const struct optimizer *optimizer;
    uint32_t algorithms; /* set of algorithms, 1 << algorithm */
    bool gather, sufficient_factors;
    bool
        one_vector; /* planner/spmd/ratio keeps to the one vector of ratios that is asked about; for tests */
    struct spmd_limits limits;
};

struct spmd_meaning { /* of a rule */
    struct op_choice choice;
    bool gather, sufficient_factors;
    int32_t shards;            /* gather: which input is kept sharded */
    const int64_t *device_ns; /* (n_devices) computing, a step */
    int64_t join_ns;          /* of rule.ns, collectives of its own: parameters' sums, gathers */
};
struct spmd_tables {
    struct spmd_problem problem;
    int32_t first_op,
        n_entries; /* problem's operator k is the graph's first_op + k - n_entries; entries, which make what
                      comes into the stage, come before */
    const struct spmd_meaning *meanings; /* by rule.tag */
    struct spmd_price *price;
    int64_t work_ns; /* what making them took, about: counted, never timed */
};
const struct spmd_meaning *spmd_meaning_of(const struct spmd_tables *t, int32_t op, int32_t rule);
/* Everything that the choice needs to know. O(kinds of operators · rules · devices). */
MUST_CHECK enum status spmd_tables_new(struct arena *a, const struct spmd_question *q,
                                       struct spmd_tables **out, struct error *err);

struct spmd_answer {
    int64_t ns;                /* of a step; INT64_MAX: nothing fits */
    struct op_choice *choices; /* (n_forward); none outside the stage */
    bool *gathered;            /* (n_tensors) */
    bool *sufficient_factors;          /* (n_forward) */
    int64_t *bytes;            /* (n_devices) as counted in the search */
    int64_t *
        laid_out; /* (n_devices) as lowering would; NULL: memory does not count, or nobody can say */
    struct spmd_found found;
    const struct spmd_tables *tables;
    int64_t work_ns; /* tables and searches, about, also where nothing fits */
};
MUST_CHECK enum status spmd_best(struct arena *a, const struct spmd_question *q,
                                 struct spmd_answer *out, struct error *err);
/* What given choices cost in the same accounts, INT64_MAX where they cannot be. */
int64_t spmd_choices_ns(struct arena *a, const struct spmd_tables *t, const struct spmd_question *q,
                        const struct op_choice *choices, const bool *gathered, int64_t *bytes);
/* The ways in which the answer's collectives go at its prices, as entries of s, which has its rules already: those that do not go
 * so by themselves. O(collectives + one view). */
void spmd_set_algorithms(struct arena *a, const struct spmd_question *q, const struct spmd_answer *x,
                   struct sharding *s);
/* The answer as a plan's `sharding:` of the question's mesh and ratios: rules, what is gathered, sufficient factors, ways. */
struct sharding *spmd_sharding(struct arena *a, const struct spmd_question *q,
                               const struct spmd_answer *x);

#endif
