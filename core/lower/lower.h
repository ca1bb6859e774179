/* core/lower/lower.h - a plan to its program; mechanical, no choices.
 *
 * Decides everything executable: fusion (from the device type's list of fused kinds), memory slots, ring
 * sizes, procedures and their variants, orders from warm-up counts, channels, gradient groups (one per
 * common refinement of the replicas' layer cuts, split into buckets), tied parameters' second sum.
 *
 * Variants. A stage's operators come from the training graph of its way: how many GPUs of its device share every
 * operator, whether also the positions, and how many sequences of a microbatch it has. All ways of one job have the same
 * layers and the same uses of the same parameters, so one plan may mix them.
 *   Between stages of different ways a message carries what the larger end holds: the whole activation, once.
 *   Gradients. Where GPUs hold different shares of a parameter, a member of a group brings what one of its GPUs holds,
 *   and the sum takes as long as that of the largest share: GPUs with less of each parameter are more, and each of
 *   them meets only its piece of it. Sizes of such ends differ (program.uneven): simulated, never run.
 *
 * Devices of a sharded stage keep parameters sharded. All that hold a partial value of one shard sum it; replicas that keep other
 * parts, and two stages that use one parameter, sum by the common refinement of their parts (core/lower/cells.c).
 *
 * A stage on several devices (plan.h, `devices:`) becomes a stage of the program on each of them. Where its neighbour is
 * divided in another way, each message has the sequences that both of its ends have: SLICE cuts them out of the sender's
 * activation, PASTE puts them into the receiver's; whoever has just those sends and receives as ever. Gradients go back
 * the same ways. All that own a parameter, over all replicas, are members of its sums, which weigh every sequence alike.
 */
#ifndef CORE_LOWER_LOWER_H
#define CORE_LOWER_LOWER_H

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/plan/plan.h"
#include "core/program/program.h"

/* The forward graph of the plan's job with layers found, unfused: what plan_check and the planner count layers on. */
MUST_CHECK enum status lower_graph(struct arena *a, const struct job *j, int64_t microbatch,
                                   struct graph **out, struct error *err);
/* The same of the whole model, however many GPUs share it: what devices of a sharded stage have their parts of. */
MUST_CHECK enum status lower_graph_unsharded(struct arena *a, const struct job *j,
                                             int64_t microbatch, struct graph **out,
                                             struct error *err);

struct lower_options {
    int32_t n_fused; /* kinds every device of the plan runs fused */
    const enum op_kind *fused;
    /* ERR_INFEASIBLE where a device's memory does not suffice, naming the largest holders */
    bool check_memory;
    /* The program's plan_hash stays 0: writing the plan down takes as long as lowering a small one. For who only times it. */
    bool unhashed;
};
/* ERR_INPUT (with the plan's file:line:column where it has one): layers, shares, orders, links, deadlock. */
MUST_CHECK enum status lower_plan(struct arena *a, const struct plan *p,
                                  const struct lower_options *o, struct program *out,
                                  struct error *err);

/* The same in two steps, for who lowers many plans of one job: the training graph (layers found, fused by the list,
 * gradients weighted microbatch / global_batch) depends on job, microbatch and fused kinds alone and is only
 * read by lower_plan_graph. A program points to its names and the plan's, so graph and plan must outlive it.
 * What stages compute in other ways than g's is made in `a`, again for every plan: O(operators) each.
 * O(operators + calls + messages) a plan. */
MUST_CHECK enum status lower_training_graph(struct arena *a, const struct job *j,
                                            int64_t microbatch, const struct lower_options *o,
                                            struct graph **out, struct error *err);
MUST_CHECK enum status lower_plan_graph(struct arena *a, const struct plan *p,
                                        const struct graph *g, const struct lower_options *o,
                                        struct program *out, struct error *err);

/* The same for plans whose stages compute in several ways: their graphs, made once and then only read. */
struct lower_graphs {
    int32_t n;
    /* (n) no two of one way; the first is that of the cluster's first type */
    struct graph **graphs;
    size_t capacity;
};
/* One for in each direction in which types of the cluster shard operators, for whole microbatches. ERR_INPUT: what model_graph
 * says of a number of GPUs that do not divide the model, with the type's name. O(ways · operators). */
MUST_CHECK enum status lower_graphs_make(struct arena *a, const struct job *j,
                                         const struct cluster *c, int64_t microbatch,
                                         const struct lower_options *o, struct lower_graphs *out,
                                         struct error *err);
/* The graph of a way, NULL where it is not there; the same, made and kept in `a` (which outlives s) where it is not. */
const struct graph *lower_graphs_find(const struct lower_graphs *s, int32_t tp,
                                      bool sequence_parallel, int64_t sequences);
MUST_CHECK enum status lower_graphs_need(struct arena *a, struct lower_graphs *s,
                                         const struct job *j, const struct lower_options *o,
                                         int32_t tp, bool sequence_parallel, int64_t sequences,
                                         const struct graph **out, struct error *err);
/* How a device of this type computes a model's graph: of measured layers on one GPU, whatever the type. */
int32_t lower_tp(const struct model *m, const struct device_type *t, bool *sequence_parallel);
/* s is only read: any number of threads may lower with one set. Ways that it lacks are made in `a` for this plan. */
MUST_CHECK enum status lower_plan_graphs(struct arena *a, const struct plan *p,
                                         const struct lower_graphs *s,
                                         const struct lower_options *o, struct program *out,
                                         struct error *err);

/* A device and the links of a cluster as programs have them; for programs with no plan behind them (exec/bench/bench). */
struct program_device lower_device(const struct cluster *c, int32_t device);
struct program_link *lower_cluster_links(struct arena *a, const struct cluster *c); /* (n_links) */

#endif
