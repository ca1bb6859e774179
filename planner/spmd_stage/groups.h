/* planner/spmd_stage/groups.h - pipelines and replicas of pipelines over device groups of sharded stages.
 *
 * A device line is up to SPMD_STAGE_LINE_MAX units of devices side by side, and copies of it: all devices, the nodes, runs of nodes, parts of
 * nodes; or slices: so many copies of which each has its part of every node. Neighbouring units become a group, groups a
 * pipeline, pipelines replicas. Every way to cut a device line so is looked at (3^(units - 1)); of cells, equal nodes or runs of
 * them of which each is a replica, the best cut of each kind, so that hundreds of nodes cost what their kinds do.
 * A group is asked of planner/spmd/spmd once for all layers (planner/spmd_stage/spmd_stage.h: answers are kept by structure), its layers' costs are
 * added up for ranges (approximate: a range alone may be shared better, its first operators have what crosses as the stage before
 * leaves it, replicated or sharded by batch, and a sum of a shared parameter is the last layer's) and dealt out by planner/spmd_stage/split.
 * Those on fewest nodes are asked for first, then the smallest: where all cannot be, most good plans are made of them. Room is that of
 * a group's place in its line: so many microbatches in flight, communicators with so many devices beside it.
 * Estimates only rank: of the best layouts each stage is asked for exactly, the plan lowered, made to fit and simulated,
 * shares dealt anew by when replicas end; of the best few of those the ratios are sought.
 * What it takes is counted (scorer_work), never timed.
 */
#ifndef PLANNER_SPMD_STAGE_GROUPS_H
#define PLANNER_SPMD_STAGE_GROUPS_H

#include "planner/spmd_stage/spmd_stage.h"

/* Adds what it finds to t->incumbents. spaces: (n_spaces); those of `cluster` at the microbatch sizes of the best plans kept are looked at.
 * work_ns: of scorer_work, about. */
MUST_CHECK enum status spmd_stage_groups(struct search_context *t, const struct cluster *cluster,
                                         const struct space *const *spaces, int32_t n_spaces,
                                         int64_t work_ns, struct error *err);

#endif
