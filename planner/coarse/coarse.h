/* planner/coarse/coarse.h - symmetric plans for any number of GPUs: teams of equal pipelines over classes of equal nodes.
 *
 * A *class* is the GPUs of one type on nodes of one shape. A *team* takes all GPUs of some classes and divides them into D equal
 * replicas, so that stage i of every replica has the same layers on the same class: gradient all-reduces then join equal stages
 * and depend on no other stage. A replica has floor(N / D) GPUs of each class, in stages of n GPUs that shard every operator
 * (planner/candidate/group.h), by rules of one kind (planner/spmd_stage/group_rules.h). n is a power of two up to a node; of
 * measured layers it is a degree that was measured. Classes appear in either order of speed, or one of them at both ends of the
 * pipeline; stages of measured layers also in any order of classes and degrees (planner/coarse/sequence.h). Layers are balanced over
 * the stages by bisection of the slowest stage's time, messages that block it included, with the memory of 1F1B's microbatches in flight and recomputation
 * of as many blocks as it takes (core/plan/plan.h). With and without ZeRO 1, by which all holders of a parameter
 * divide its state, those of one stage too; measured layers without. Replicas are placed side by side, or stage by stage, so that the same
 * stage of all replicas is on neighbouring GPUs.
 * A *candidate* is a set of teams of disjoint classes; shares of the batch follow from fill and pace of each team's pipeline.
 *
 * The estimate of m microbatches is fill + (m - 1) · pace + tail (planner/coarse/line.c). The pace is the largest of: the slowest stage; the
 * links, each with the messages of all replicas below it; and the maximum mean of the cycles of 1F1B, or of eager 1F1B where memory admits
 * it, through stages and messages, which activations and gradients of a node lengthen for each other on its link. Orders written out later
 * hide messages better, so only half of what a cycle takes beyond the slowest stage's time is counted. The tail is what remains of the
 * gradient all-reduces behind the last backward: bytes over the slowest link, which rings of several stages share, and the latency of each step of each ring. Of 461 candidates for 16
 * questions, the simulation of four in five took within 5 % of the estimate (docs/measurements.md). Collectives of groups on one bus are priced
 * as if each were alone.
 *
 * The best candidates are simulated with a part of their microbatches, of measured layers with all (trials.c), which also compares the moves
 * of a local search: schedules, layers, shares, buckets, and up to 128 devices stages and replicas. The best are simulated whole, and
 * plans whose slowest stage leaves room receive orders of F, I and W.
 *
 * O(sizes · subsets of classes · numbers of replicas · (degrees^classes + a dozen divisions of layers of O(stages · log layers)))
 * estimates, independent of the number of GPUs but for the numbers of replicas tried (at most COARSE_REPLICAS).
 */
#ifndef PLANNER_COARSE_COARSE_H
#define PLANNER_COARSE_COARSE_H

#include "planner/candidate/search_context.h"

/* Classes, prices and estimates of a question; the task is the caller's. parameters_only: of the rules for a number of GPUs only those that
 * shard parameters, for presets without a search. */
struct coarse;
struct coarse *coarse_new(struct search_context *t, const struct search_task *task,
                          bool parameters_only);
void coarse_free(struct coarse *q); /* NULL: nothing */
/* Adds to t->incumbents. *n_tried: the first of the task's sizes, for which the search was made; 0: nothing was found. */
MUST_CHECK enum status coarse_search(struct coarse *q, int32_t *n_tried, struct error *err);
/* The same to *out, because plans outside the exact search's class must not prune it. */
MUST_CHECK enum status coarse_search_apart(struct coarse *q, int32_t *n_tried,
                                           struct incumbents *out, struct error *err);
/* The estimate of the best candidate, without a trial; INT64_MAX: there is none. A search that follows begins with its candidates. */
MUST_CHECK enum status coarse_estimate(struct coarse *q, int64_t *ns, struct error *err);
/* The classes, by bit, that have a part in the best candidate by estimate; 0: there is none. */
uint32_t coarse_leading(const struct coarse *q);
/* Of the devices that task->idle leaves, with the prices of the whole cluster's q, which lives longer. */
struct coarse *coarse_part(const struct coarse *q, const struct search_task *task);
/* What an iteration takes if so many GPUs of each class of q (count, by class) compute all the time, at the best of the sizes priced so far. */
int64_t coarse_least_ns(const struct coarse *q, const int32_t *count);
/* Lower bound of all plans of measured layers whose stages have one of the numbers of GPUs of tp_options_numbers. */
struct bound_certificate;
MUST_CHECK enum status coarse_measured_bound(struct coarse *q, struct bound_certificate *out,
                                             struct error *err);

#endif
