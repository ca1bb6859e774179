/* planner/spmd_stage/groups.h - pipelines, and replicas of pipelines, whose stages are sharded over device groups.
 *
 * A device line is a sequence of up to SPMD_STAGE_LINE_MAX units of devices, possibly with copies: all devices, the nodes,
 * runs of nodes, fractions of nodes; or slices, copies of which each has an equal fraction of every node. Adjacent units form
 * a group (a stage), groups a pipeline, pipelines replicas. All 3^(units - 1) such cuts of a line are enumerated. For cells
 * (equal nodes, or runs of them, each a replica) only the best cut of each class is used, so the cost depends on classes and
 * not on nodes. A group is solved by planner/spmd/spmd once for all layers (planner/spmd_stage/spmd_stage.h memoises by
 * structure). Costs of a range are sums of its layers' costs. This is approximate: a range alone may have a better sharding,
 * its input has the placement in which the stage before leaves it (replicated, or sharded by batch), and a shared parameter's
 * gradient all-reduce belongs to the last layer. planner/spmd_stage/split distributes the layers. If the work limit does not
 * allow all groups, those on fewest nodes are solved first, then the smallest, because most good plans consist of them. A
 * group's memory is that of its position in the line: microbatches in flight and communicators with adjacent groups. Estimates
 * only rank. For the best layouts each stage is solved exactly, the plan is lowered, fitted and simulated, and shares are
 * rebalanced by the replicas' end times; for the best few of those the ratios are optimised. Work is counted (scorer_work),
 * never timed.
 */
#ifndef PLANNER_SPMD_STAGE_GROUPS_H
#define PLANNER_SPMD_STAGE_GROUPS_H

#include "planner/spmd_stage/spmd_stage.h"

/* Adds to t->incumbents. spaces: (n_spaces); used are those of `cluster` at the microbatch sizes of the incumbents. work_ns:
 * approximate limit of scorer_work. */
MUST_CHECK enum status spmd_stage_groups(struct search_context *t, const struct cluster *cluster,
                                         const struct space *const *spaces, int32_t n_spaces,
                                         int64_t work_ns, struct error *err);

#endif
