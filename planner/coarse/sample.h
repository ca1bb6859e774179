/* planner/coarse/sample.h - the iteration time of a plan from simulations of a part of it.
 *
 * After its fill a pipeline takes the same time for every microbatch. Two simulations of one step, with about two and four
 * microbatches for each stage of a replica, give that time, and from it the time of all microbatches: at 512 microbatches in 16 stages
 * a tenth of the work of simulating a step. Every replica keeps its part of the batch, rounded. The result is within 1 % where the
 * replicas' fills are alike.
 *
 * Of many equal replicas a part is simulated, because they differ in their devices only. The rings of the gradient all-reduces are shorter
 * then: n replicas send (n - 1) / n of a gradient, so with COARSE_SAMPLE_REPLICAS of them an all-reduce takes 6 % less at most. ZeRO shards the
 * state over fewer replicas, so the devices of the sample have more memory. Replicas that are left out are missing on links
 * shared by many nodes, so the caller compares the first sample with the whole plan.
 */
#ifndef PLANNER_COARSE_SAMPLE_H
#define PLANNER_COARSE_SAMPLE_H

#include "planner/candidate/parallel_score.h"

/* Replicas simulated, of equal ones; a node holds at most eight. Of replicas with more GPUs than a stage may have (COARSE_GPUS), as few
 * as have no more GPUs together, but one of each kind: 17 replicas of 5,520 GPUs took 65 CPU s (2026-11-27). */
enum { COARSE_SAMPLE_REPLICAS = 16 };
int64_t coarse_sample_replicas(const struct plan *p); /* but for kinds with few */
/* Whether a sample leaves replicas of the plan out. */
bool coarse_sample_thins(const struct plan *p);

struct coarse_sample {
    struct parallel_score_item *item; /* one or two */
    int64_t n[2], all;                /* microbatches of each; of the plan's simulated replicas */
    bool whole;                       /* item[0] has all microbatches, and there is no second one */
    int32_t *stands_for;              /* (n_replicas of the plan) index of the replica of the items' plans that is simulated for it */
};

/* Fills item[0], and item[1] where two simulations are made; returns their number. steady: all microbatches. all_replicas: none is left
 * out. O(replicas · stages). */
int32_t coarse_sample_make(struct arena *a, const struct space *s, const struct plan *p, bool steady,
                           bool all_replicas, struct parallel_score_item *item,
                           struct coarse_sample *out);
/* Whether there is a second item and the first fits; then the second becomes as fitted as the first. O(replicas · stages). */
bool coarse_sample_goes_on(struct arena *a, struct coarse_sample *x);
/* n samples in parallel: their first items, then the second ones of those that go on. Scratch in `a`. */
MUST_CHECK enum status coarse_sample_score(struct search_context *t, const struct profile *profile, struct arena *a,
                                           struct coarse_sample *samples, int32_t n, struct error *err);
/* The iteration time of the plan from the scored items; INT64_MAX: it does not fit. */
int64_t coarse_sample_ns(const struct coarse_sample *x);
/* What the scorer changed in the stages, to the stages of *p. */
void coarse_sample_adopt(struct arena *a, const struct coarse_sample *x, struct plan *p);

#endif
