/* planner/coarse/coarse.h - coarse search: equal pipelines over classes of equal nodes, for any number of GPUs.
 *
 * A *class* is the GPUs of one type on nodes of one shape. A *team* is D equal replicas on the GPUs of some classes. Stage i has the same
 * layers and the same class in every replica, so that its gradient all-reduce joins equal stages and waits for no other stage. A replica has
 * floor(N / D) of the N GPUs of each class. Each of its stages shards its operators over n GPUs (planner/candidate/group.h); all
 * stages use one kind of rules (planner/spmd_stage/group_rules.h). n is a power of two up to the GPUs of a node; for measured layers n is a
 * measured degree. The pipeline goes from the fastest class to the slowest, or back, or has one class at both ends; for measured layers
 * classes and degrees may also change from stage to stage (planner/coarse/sequence.h).
 *
 * Layers are balanced by bisection of the time of the slowest stage. That time includes blocking messages. The memory of a stage has the
 * microbatches in flight of 1F1B; as many blocks recompute as it takes to fit (core/plan/plan.h). Each team is tried with ZeRO 0
 * and with ZeRO 1; measured layers with ZeRO 1 only where it changes a stage. Under ZeRO 1 all GPUs that hold a parameter divide its
 * optimizer state; the GPUs of one stage may be among them. Each team is placed twice: all stages of a replica on neighbouring GPUs, or the
 * same stage of all replicas.
 * Nodes whose number of GPUs is no power of two are also divided in two parts, 4 + 3 of 7, as if these were nodes of two classes
 * (planner/coarse/part.c); stages of the two parts then alternate in a pipeline, or belong to different teams.
 * A *candidate* is a set of teams of disjoint classes. The batch is shared by fill and pace of the teams' pipelines.
 *
 * An iteration of m microbatches is estimated as fill + (m - 1) · pace + tail (planner/coarse/line.c). The pace is the largest of three
 * terms: the time of the slowest stage; the time of each link with the messages of all replicas on it; the maximum cycle mean of the
 * precedence graph of 1F1B (or of eager 1F1B where memory permits it). Activations and gradients that share a link lengthen each other in
 * that graph. Where memory is short, layers are also divided with weight gradients apart, and for eager 1F1B with the backward undivided,
 * whatever recomputation that takes. Orders found later hide messages better, so only half of the excess of the cycle mean over the slowest stage is counted.
 * The tail is the part of the gradient all-reduces behind the last backward: bytes over the slowest link, which rings of several stages
 * share, and the latency of each step of each ring. The rings of one stage follow each other, so the rings of teams that are cut at different
 * layers form one chain (planner/coarse/rings.c). Collectives of different groups on one bus are priced independently. The simulated time
 * of four in five of 461 candidates of 16 questions was within 5 % of the estimate (docs/measurements.md).
 *
 * The best candidates are simulated with a part of their microbatches; for measured layers with all (trials.c). A local search from these
 * compares schedules, layers, shares and buckets; up to 128 devices also stages and replicas. The best plans are then simulated whole. Plans
 * whose slowest stage has idle time receive searched orders of F, I and W.
 *
 * O(sizes · subsets of classes · numbers of replicas · (degrees^classes + a dozen divisions of layers of O(stages · log layers)))
 * estimates. The number of GPUs has an influence only through the numbers of replicas (at most COARSE_REPLICAS).
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
/* Adds to t->incumbents. *n_tried: the first of the task's sizes, for which the search was made; 0: nothing was found. Another call with a
 * larger budget goes on with the trials, and improves the best of all of them again. */
MUST_CHECK enum status coarse_search(struct coarse *q, int32_t *n_tried, struct error *err);
/* The same to *out, because plans outside the exact search's class must not prune it. */
MUST_CHECK enum status coarse_search_apart(struct coarse *q, int32_t *n_tried,
                                           struct incumbents *out, struct error *err);
/* Sets t's lower bound of plans of equal pipelines, from the incumbents' best time downwards. About 0.1 s. */
void coarse_class_bound(struct coarse *q);
/* The estimate of the best candidate of up to most_ns, without a trial; INT64_MAX: there is none. A search that follows begins with its candidates.
 * Its counted work is charged. */
MUST_CHECK enum status coarse_estimate(struct coarse *q, int64_t most_ns, int64_t *ns, struct error *err);
/* The classes, by bit, that have a part in the best candidate by estimate; 0: there is none. */
uint32_t coarse_leading(const struct coarse *q);
/* Of the devices that task->idle leaves, with the prices of the whole cluster's q, which lives longer. */
struct coarse *coarse_part(struct coarse *q, const struct search_task *task);
/* What an iteration takes if so many GPUs of each class of q (count, by class) compute all the time, at the best of the sizes priced so far. */
int64_t coarse_least_ns(const struct coarse *q, const int32_t *count);
/* Lower bound of all plans of measured layers whose stages have one of the numbers of GPUs of tp_options_numbers. */
struct bound_certificate;
MUST_CHECK enum status coarse_measured_bound(struct coarse *q, struct bound_certificate *out,
                                             struct error *err);

#endif
