/* planner/coarse/coarse.h - symmetric plans for any number of GPUs: teams of equal pipelines over classes of equal nodes.
 *
 * A *class* is the GPUs of one type on nodes of one shape. A *team* takes all GPUs of some classes and divides them into D equal
 * replicas, so that stage i of every replica has the same layers on the same class: gradient all-reduces then join equal stages
 * and depend on no other stage. A replica has floor(N / D) GPUs of each class, in stages of n GPUs that shard every operator
 * (planner/candidate/group.h), n a power of two up to a node, of measured layers a degree that was measured; classes appear in either order of speed, or in any order if they
 * are two. Layers are balanced over the stages by bisection of the slowest stage's time, with the memory of 1F1B's microbatches
 * in flight and recomputation only where it is needed (core/plan/plan.h). With and without ZeRO 1;
 * measured layers without.
 * A *candidate* is a set of teams of disjoint classes; shares of the batch follow from fill and pace of each team's pipeline.
 * Candidates are ranked by estimates; the best are placed in two orders, lowered, fitted and simulated, which decides.
 *
 * O(sizes · subsets of classes · numbers of replicas · degrees^classes · stages · log layers) estimates, independent of the number
 * of GPUs but for the numbers of replicas tried (at most COARSE_REPLICAS).
 */
#ifndef PLANNER_COARSE_COARSE_H
#define PLANNER_COARSE_COARSE_H

#include "planner/fleet/fleet.h"

/* Adds to t->incumbents. *n_tried: the first of the task's sizes, for which the search was made; 0: nothing was found, or it does
 * not apply: device types that are tensor-parallel groups already, degrees requested by the options, but for measured layers. */
MUST_CHECK enum status coarse_search(struct search_context *t, const struct fleet_task *task,
                                     int32_t *n_tried, struct error *err);

#endif
