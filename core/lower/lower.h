/* core/lower/lower.h - lowering: plan → program, mechanical, without choices.
 *
 * Derives all that is executed: fusion (from the device type's list of fused kinds), memory slots, sizes of buffer
 * rings, procedures and their variants, orders from warm-up counts, channels, gradient groups (one per
 * common refinement of the replicas' layer cuts, split into buckets), the second all-reduce of tied parameters.
 *
 * Variants. A stage's operators come from the training graph of its number of sequences of a microbatch. All variants of one job have
 * the same layers and the same uses of the same parameters, so one plan may mix them.
 *
 * Devices of a sharded stage keep parameters sharded. All holders of a partial value of one shard reduce it; replicas with other
 * shards, and two stages that use one parameter, reduce over the common refinement of their shards (core/lower/cells.c).
 *
 * A stage on several devices (plan.h, `devices:`) becomes one stage of the program on each of them. If its neighbour is
 * divided differently, each message has the sequences common to both ends: SLICE cuts them out of the sender's
 * activation, PASTE inserts them into the receiver's; with equal intervals there is neither. Gradients return
 * on the same routes. All holders of a parameter, over all replicas, are members of its all-reduce, which weights every
 * sequence equally.
 */
#ifndef CORE_LOWER_LOWER_H
#define CORE_LOWER_LOWER_H

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/plan/plan.h"
#include "core/program/program.h"

/* The forward graph of the plan's job with layers, unfused: the reference for layer numbers of plan_check and planner. */
MUST_CHECK enum status lower_graph(struct arena *a, const struct job *j, int64_t microbatch,
                                   struct graph **out, struct error *err);

struct lower_options {
    int32_t n_fused; /* kinds that every device of the plan runs fused */
    const enum op_kind *fused;
    /* ERR_INFEASIBLE if a device's memory is too small, with its largest consumers */
    bool check_memory;
    /* For callers that only time the program. Its plan_hash stays 0, because hashing takes as long as lowering a small plan; with a
     * memo the loss may be weighted as for the global batch of an earlier plan. */
    bool timed_only;
    /* Without the deadlock check and its repair: the program is simulated next, or an equal one was checked. */
    bool unproved;
    /* Keeps graphs of sharded stages, and lowered stages, for the next plan; NULL: nothing is kept.
     * The program is the same with it and without, unless timed_only. */
    struct lower_memo *memo;
};

/* For one thread, one list of fused kinds and one job, whose global batch may vary; what the job points to outlives the memo. A
 * program lowered with it is valid until the next lowering with it. At most about 350 MiB. */
struct lower_memo *lower_memo_new(void);
void lower_memo_free(struct lower_memo *m); /* accepts NULL */
/* ERR_INPUT (with the plan's file:line:column if it has one): layers, shares, orders, links, deadlock. */
MUST_CHECK enum status lower_plan(struct arena *a, const struct plan *p,
                                  const struct lower_options *o, struct program *out,
                                  struct error *err);

/* The same in two steps, for callers that lower many plans of one job. The training graph (with layers, fused by the list,
 * gradients weighted microbatch / global_batch) depends on job, microbatch and fused kinds only;
 * lower_plan_graph does not modify it. A program points to names of graph and plan, so both must outlive it.
 * Graphs of variants other than g's are made in `a`, again for every plan: O(operators) each. Stages that differ in their devices
 * only are lowered once (core/lower/equal_stages.h): O(operators of the distinct stages + communication of all + calls + messages). */
MUST_CHECK enum status lower_training_graph(struct arena *a, const struct job *j,
                                            int64_t microbatch, const struct lower_options *o,
                                            struct graph **out, struct error *err);
MUST_CHECK enum status lower_plan_graph(struct arena *a, const struct plan *p,
                                        const struct graph *g, const struct lower_options *o,
                                        struct program *out, struct error *err);

/* The same for plans whose stages have several variants: their graphs, made once and then read-only. */
struct lower_graphs {
    int32_t n;
    /* (n) one per number of sequences; the first is that of full microbatches */
    struct graph **graphs;
    size_t capacity;
};
/* That of full microbatches. Errors: those of lower_training_graph. */
MUST_CHECK enum status lower_graphs_make(struct arena *a, const struct job *j, int64_t microbatch,
                                         const struct lower_options *o, struct lower_graphs *out,
                                         struct error *err);
/* The graph of a number of sequences, made in `a` (which outlives s) and added if absent. */
MUST_CHECK enum status lower_graphs_need(struct arena *a, struct lower_graphs *s,
                                         const struct job *j, const struct lower_options *o,
                                         int64_t sequences, const struct graph **out,
                                         struct error *err);
/* s is read-only: any number of threads may lower with one set. Missing variants are made in `a` for this plan. */
MUST_CHECK enum status lower_plan_graphs(struct arena *a, const struct plan *p,
                                         const struct lower_graphs *s,
                                         const struct lower_options *o, struct program *out,
                                         struct error *err);

/* ERR_INFEASIBLE: a device's memory is too small for the plan's program, with its largest consumers and the plan's file:line:column if
 * it has one. The text's parts go to `a`. O(stages). */
MUST_CHECK enum status lower_check_memory(struct arena *a, const struct plan *plan,
                                          const struct program *p, struct error *err);

/* A device and the links of a cluster in a program's form; for programs without a plan (exec/bench/bench). */
struct program_device lower_device(const struct cluster *c, int32_t device);
struct program_link *lower_cluster_links(struct arena *a, const struct cluster *c); /* (n_links) */

#endif
