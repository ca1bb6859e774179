/* planner/spmd/search.h - the cheapest way to share a sequence of operators, over tables that say what everything costs.
 *
 * A problem is operators in an order that is valid to execute. Each has rules: in which placement it needs each operand and
 * gives each output, and what it costs by itself. A tensor that is not where a rule needs it is converted, step by step from
 * what its maker gave, once for every placement: later readers find it. What flows back: a step's dual, always (back_ns)
 * or, of a gather, only where some reader's gradient is partial over the step's axis (back_partial_ns); of any other
 * version of a tensor such partial values are summed first (sum_ns), as core/graph/gradient does. All of that is settled when the
 * last reader of a tensor has been placed.
 * So costs add up, and the state between two operators is: for each live tensor its versions, which of them owe a sum, and
 * which are kept for the backward pass. This is HAP's search over sets of placed tensors (arXiv 2401.05965) with the order
 * fixed (costs that add do not depend on it), conversions fused into the rules that need them, and duals exact.
 *
 * spmd_search is a beam, then A* for anything better: h is what the relaxed problem of planner/spmd/relax.h says must follow,
 * admissible. Of equal states at one place only those stay that no other beats in cost and in every column of memory
 * (exact dominance). A column is one member's bytes; a partial solution that with the least that must follow exceeds a
 * cap is cut off. Members whose memory cannot run out any more (with the most that can follow) count as 0, so that they part
 * no states.
 * First everything is tried without memory: where that answer fits it is the best one. Where it does not, bytes get
 * prices (Lagrange), one of all columns that grows until what is found fits, then each column's own: each is a lower bound of
 * all that fits, and choices that fit and that do not are joined, one up to some operator and the other from it on. A beam
 * and A* with memory, bounded by the best prices as well, then prove or better it within so many labels; given up, the
 * answer stands with its bound. All of it is counted work: labels are what a search takes time for, and none goes on
 * past its most.
 *
 * Where a piece of the sequence repeats and memory does not bind, the piece is solved once for every state in which it is
 * entered, and its copies are composed by (min,+): of what is kept of a sequence of L pieces only states at seams count.
 * Both give the same cost; ties may fall otherwise.
 * Deterministic. Ownership: the arena's.
 */
#ifndef PLANNER_SPMD_SEARCH_H
#define PLANNER_SPMD_SEARCH_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { SPMD_STEPS_MAX = 6, SPMD_COLUMNS_MAX = 4096 };

struct spmd_step { /* one conversion */
    int32_t after; /* placement */
    int8_t axis;   /* of the mesh */
    bool gather;   /* keeps partial values of gradients apart: one reduce-scatter takes them back */
    int64_t forward_ns, back_ns, back_partial_ns;
};
struct spmd_reshard { /* from one placement to another; n -1: there is none */
    int32_t n;
    struct spmd_step step[SPMD_STEPS_MAX];
};

struct spmd_tensor_class { /* tensors of one shape */
    const struct spmd_reshard *const
        *reshard;                    /* (n_placements, n_placements); NULL: none. [p][p] is not read */
    const int64_t (*sum_ns)[2];  /* (n_placements): a sum over axis 0 | 1 of what is placed so */
    const int64_t *const *bytes; /* (n_placements) each (n_columns), or NULL: kept for backward */
};

/* SHARED: a parameter of several operators. Its home is what all need, along each axis, else replicated (join); partial gradients
 * are owed over the axes that `join` gathers; what it costs is known at its last reader (home_ns, home_bytes). */
enum spmd_tensor_kind { SPMD_SOURCE /* at hand in any placement */, SPMD_MADE, SPMD_SHARED };
struct spmd_tensor {
    enum spmd_tensor_kind kind;
    const struct spmd_tensor_class *of;
    bool wanted; /* a gradient flows back through it */
    /* SHARED */
    void (*join)(const void *user, int32_t *home, uint8_t *partial, int32_t need, uint8_t need_partial);
    int64_t (*home_ns)(const void *user, int32_t tensor, int32_t home, uint8_t partial,
                       const int64_t **bytes);
};

struct spmd_rule {
    int64_t
        ns; /* a step, all microbatches, forward and backward, its own parameters' sums included */
    int32_t need[OP_OPERANDS_MAX]; /* placements; of sources: not read */
    int32_t give[OP_OPERANDS_MAX];
    uint8_t partial[OP_OPERANDS_MAX]; /* axes over which what flows back is partial */
    const int64_t *bytes;           /* (n_columns) its own parameters …; NULL: nothing */
    int32_t tag;                    /* the caller's */
};
struct spmd_op {
    int32_t n_rules, n_inputs, n_outputs;
    const struct spmd_rule *rules;
    int32_t input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
    uint8_t keeps_input, keeps_output; /* bit k: its gradient operators read it */
    uint8_t silent;                    /* bit k: no gradient flows back through input k */
    int32_t class;                     /* operators of one class have equal rules */
};
struct spmd_problem {
    int32_t n_ops, n_tensors, n_placements, n_columns;
    const struct spmd_op *ops;
    const struct spmd_tensor *tensors;
    const int64_t *cap; /* (n_columns) bytes */
    /* of a tensor that leaves the sequence, by what was made: the placement that it leaves in, -1: the same; -2: it stays */
    const int32_t *leaves; /* (n_tensors, n_placements); NULL: nothing leaves */
    const void *user;
};

struct spmd_limits {
    /* compose repeats of at least so many copies, >= 2, where that takes few labels; 0: none. Pays from some 24 on */
    int32_t pieces_from;
    int64_t max_labels; /* in proving the best where memory binds; 0: 20,000 */
    int64_t enough_ns; /* what is no better than this need not be found; 0: everything is wanted */
};
struct spmd_found {
    int64_t
        ns; /* INT64_MAX: nothing fits, or nothing was found that does (bound_ns less than it) */
    int64_t bound_ns; /* nothing that fits is cheaper; ns itself where the best is proved */
    int32_t *rule;    /* (n_ops) */
    int64_t *bytes;   /* (n_columns) */
    int64_t n_labels; /* partial solutions looked at */
    int32_t n_pieces; /* copies that were composed; 0: the plain search */
};
/* O(labels · rules · log labels). */
MUST_CHECK enum status spmd_search(struct arena *a, const struct spmd_problem *p,
                                   const struct spmd_limits *l, struct spmd_found *out,
                                   struct error *err);
/* What a choice of rules costs, by the same accounts; INT64_MAX where a conversion does not exist. bytes: (n_columns) or NULL. */
int64_t spmd_cost(struct arena *a, const struct spmd_problem *p, const int32_t *rule,
                  int64_t *bytes);
/* The same, as a list of what happens: operators, and a tensor's conversions (step.forward_ns) and what flows back through them
 * (back_ns, or back_partial_ns where `partial`). */
struct spmd_event {
    int32_t op, tensor;    /* one of them -1 */
    int32_t from;          /* placement; tensor's */
    struct spmd_step step; /* after -1: a gradient all-reduce over step.axis, in back_ns */
    bool partial;
};
int32_t spmd_events(struct arena *a, const struct spmd_problem *p, const int32_t *rule,
                    struct spmd_event **out);

#endif
