/* core/lower.h - a plan to its program; mechanical, no choices.
 *
 * Decides everything executable: fusion (from the device type's list of fused kinds), memory slots, ring
 * sizes, procedures and their variants, orders from warm-up counts, channels, gradient groups (one per
 * common refinement of the replicas' layer cuts, split into buckets), tied parameters' second sum.
 */
#ifndef CORE_LOWER_H
#define CORE_LOWER_H

#include "core/error.h"
#include "core/graph.h"
#include "core/plan.h"
#include "core/program.h"

/* The forward graph of the plan's job with layers found, unfused: what plan_check and the planner count layers on. */
MUST_CHECK enum status lower_graph(struct arena *a, const struct job *j, int64_t microbatch,
                                   struct graph **out, struct error *err);

struct lower_options {
    int32_t n_fused; /* kinds every device of the plan runs fused */
    const enum op_kind *fused;
    /* ERR_INFEASIBLE where a device's memory does not suffice, naming the largest holders */
    bool check_memory;
};
/* ERR_INPUT (with the plan's file:line:column where it has one): layers, shares, orders, links, deadlock. */
MUST_CHECK enum status lower_plan(struct arena *a, const struct plan *p,
                                  const struct lower_options *o, struct program *out,
                                  struct error *err);

/* The same in two steps, for who lowers many plans of one job: the training graph (layers found, fused by the list,
 * gradients weighted 1 / (global_batch / microbatch)) depends on job, microbatch and fused kinds alone and is only
 * read by lower_plan_graph. A program points to its names and the plan's, so graph and plan must outlive it.
 * O(operators + calls + messages) a plan. */
MUST_CHECK enum status lower_training_graph(struct arena *a, const struct job *j,
                                            int64_t microbatch, const struct lower_options *o,
                                            struct graph **out, struct error *err);
MUST_CHECK enum status lower_plan_graph(struct arena *a, const struct plan *p,
                                        const struct graph *g, const struct lower_options *o,
                                        struct program *out, struct error *err);

/* A device and the links of a cluster as programs have them; for programs with no plan behind them (exec/bench). */
struct program_device lower_device(const struct cluster *c, int32_t device);
struct program_link *lower_cluster_links(struct arena *a, const struct cluster *c); /* (n_links) */

#endif
