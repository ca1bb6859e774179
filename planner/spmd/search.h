/* planner/spmd/search.h - the cheapest sharding rules of a sequence of operators, by A* over cost tables.
 *
 * Problem: operators in a valid order of execution. Each has rules: the placement of each operand and result, and its own
 * cost. A tensor that is not in the needed placement is resharded step by step from the placement in which it was made, once
 * per placement; later readers reuse the version. Backward: the dual of a step, always (back_ns) or, for a gather, only if
 * some reader's gradient is partial over the step's axis (back_partial_ns); partial gradients of any other version are reduced
 * first (sum_ns), as in core/graph/gradient. All of this is settled at a tensor's last reader. So costs are additive, and the
 * state between two operators is, for each live tensor, its versions, the partial ones among them and those kept for the
 * backward pass. This is HAP's search over sets of placed tensors (arXiv 2401.05965) with a fixed order (additive costs do not
 * depend on it), reshardings fused into the rules that need them, and exact duals.
 *
 * Method: a beam search gives the incumbent, then A* with h from the relaxation of planner/spmd/relax.h, which is admissible.
 * Dominance: of equal states at one place only labels stay that no other beats in cost and in every memory column. A column is
 * one device's bytes; a label whose bytes plus the least remaining bytes exceed a cap is pruned. Bytes of devices that cannot
 * exceed their cap any more (with the most remaining bytes) count as 0, so that they do not separate states. Memory: the
 * problem is first solved without it; an answer that fits is optimal. Else caps are dualised: bytes get Lagrange multipliers,
 * first one for all columns, raised until an answer fits, then one per column. Each is a lower bound of all feasible answers;
 * feasible and infeasible answers are combined, one up to some operator and the other from there on. Then beam search and A*
 * with memory prove or improve the answer within max_labels; if the limit is reached
 * the answer is returned with its bound. All work is counted in labels, never timed.
 *
 * If a piece of the sequence repeats and memory does not bind, the piece is solved once for every entry state, and its copies
 * are composed by (min,+) products over states at the seams. The cost is the same; ties may be broken differently.
 * Deterministic. Ownership: the arena's.
 */
#ifndef PLANNER_SPMD_SEARCH_H
#define PLANNER_SPMD_SEARCH_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum {
    SPMD_STEPS_MAX = 6,
    /* Work of a search: labels of its pieces and of the proof without memory; a tenth of them for each proof at multipliers or under binding
     * memory, of which there are many; and the relaxation, as long as so many labels take. Pieces of dense Transformers of 80 and 126 blocks
     * take 12,180 labels, those of Qwen3-MoE more than 30,000. */
    SPMD_LABELS = 20000,
    /* Steps of the subgradient method, and searches with other caps of memory. HAP's four models on 8 devices with 84, 90 and 97 % of
     * the memory of their best rules: the same rules with 4 and with 10, with 30 % fewer labels. Of 110 steps to more memory for a small
     * stage 4 led to slower rules with 4, at most 2 with 6 and with 10 (2026-11-26). */
    SPMD_TURNS = 6
};

struct spmd_step { /* one step of a resharding */
    int32_t after; /* placement */
    int8_t axis;   /* of the mesh */
    bool gather;   /* leaves gradients partial: its dual is one reduce-scatter */
    int64_t forward_ns, back_ns, back_partial_ns;
};
struct spmd_reshard { /* from one placement to another; n -1: impossible */
    int32_t n;
    struct spmd_step step[SPMD_STEPS_MAX];
};

struct spmd_tensor_class { /* tensors of one shape */
    const struct spmd_reshard *const
        *reshard;                    /* (n_placements, n_placements); NULL: none. [p][p] is not read */
    const int64_t (*sum_ns)[2];  /* (n_placements): all-reduce over axis 0 | 1 in this placement */
    const int64_t *const *bytes; /* (n_placements) each (n_columns), or NULL: kept for backward */
};

/* SHARED: a parameter of several operators. Its home along each axis is the placement common to all readers, else replicated
 * (join). Its gradient is partial over the axes collected by `join`; its cost is known at its last reader (home_ns). */
enum spmd_tensor_kind { SPMD_SOURCE /* available in any placement */, SPMD_MADE, SPMD_SHARED };
struct spmd_tensor {
    enum spmd_tensor_kind kind;
    const struct spmd_tensor_class *of;
    bool wanted; /* it has a gradient */
    /* SHARED */
    void (*join)(const void *user, int32_t *home, uint8_t *partial, int32_t need, uint8_t need_partial);
    int64_t (*home_ns)(const void *user, int32_t tensor, int32_t home, uint8_t partial,
                       const int64_t **bytes);
};

struct spmd_rule {
    int64_t
        ns; /* per step: all microbatches, forward and backward, gradient all-reduces of its own parameters */
    int32_t need[OP_OPERANDS_MAX]; /* placements of inputs; ignored for sources */
    int32_t give[OP_OPERANDS_MAX]; /* placements of outputs */
    uint8_t partial[OP_OPERANDS_MAX]; /* axes over which the input's gradient is partial */
    const int64_t *bytes;           /* (n_columns) of its own parameters …; NULL: none */
    int32_t tag;                    /* the caller's */
};
struct spmd_op {
    int32_t n_rules, n_inputs, n_outputs;
    const struct spmd_rule *rules;
    int32_t input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
    uint8_t keeps_input, keeps_output; /* bit k: operand k is kept for its gradient operators */
    uint8_t silent;                    /* bit k: input k gets no gradient */
    int32_t class;                     /* operators of one class have equal rules */
};
struct spmd_problem {
    int32_t n_ops, n_tensors, n_placements, n_columns;
    const struct spmd_op *ops;
    const struct spmd_tensor *tensors;
    const int64_t *cap; /* (n_columns) bytes */
    /* outputs of the sequence: the placement in which a tensor leaves, by the placement in which it was made; -1: the same;
     * -2: it is no output */
    const int32_t *leaves; /* (n_tensors, n_placements); NULL: no outputs */
    const void *user;
};

struct spmd_limits {
    int64_t max_labels; /* of a proof at multipliers or under binding memory; 0: a tenth of SPMD_LABELS */
    int64_t enough_ns; /* upper bound: only answers below it are sought; 0: none */
};
struct spmd_found {
    int64_t
        ns; /* INT64_MAX: infeasible, or no feasible answer was found (then bound_ns is less) */
    int64_t bound_ns; /* lower bound of feasible answers; equal to ns if optimality is proved */
    int32_t *rule;    /* (n_ops) */
    int64_t *bytes;   /* (n_columns) */
    int64_t n_labels; /* labels created */
    int32_t n_pieces; /* composed copies; 0: plain search */
};
/* O(labels · rules · log labels). */
MUST_CHECK enum status spmd_search(struct arena *a, const struct spmd_problem *p,
                                   const struct spmd_limits *l, struct spmd_found *out,
                                   struct error *err);
/* Cost in ns of given rules in the same model; INT64_MAX: a resharding does not exist. bytes: (n_columns) or NULL. */
int64_t spmd_cost(struct arena *a, const struct spmd_problem *p, const int32_t *rule,
                  int64_t *bytes);
/* The same as a list of events: operators, reshardings of tensors (step.forward_ns) and their duals (back_ns, or
 * back_partial_ns if `partial`). */
struct spmd_event {
    int32_t op, tensor;    /* one of them -1 */
    int32_t from;          /* placement; tensor's */
    struct spmd_step step; /* after -1: a gradient all-reduce over step.axis, in back_ns */
    bool partial;
};
int32_t spmd_events(struct arena *a, const struct spmd_problem *p, const int32_t *rule,
                    struct spmd_event **out);

#endif
