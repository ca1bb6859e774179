/* core/lower/noise.h - the squares from which a run estimates the gradient noise scale (core/plan/plan.h, gradient_noise_scale).
 *
 * A stage sums the squares of its replica's gradients as soon as they are complete, in the last weight gradients and in front of the
 * gradient all-reduces, and the squares of the results behind them, in the update. No collective is added: each device's sums are read at
 * the end of a step, as losses are. Neighbouring gradients of one all-reduce are one operator. The two uses of a tied parameter count as
 * two parameters, because their gradients are added behind the all-reduces.
 */
#ifndef CORE_LOWER_NOISE_H
#define CORE_LOWER_NOISE_H

#include "core/lower/lowering.h"

struct stage_scratch;
struct writer;

static inline bool lower_measures_noise(const struct lowering *l) { return l->plan->gradient_noise_scale; }
/* Slots of both sums, and of the runs of neighbouring gradients. O(uses · log(uses)). */
void lower_noise_slots(struct stage_scratch *h);
/* Of the stage's i-th group, if it is a gradient all-reduce: adds the squares of its gradients to the replica's sum (reduced: to that of the
 * results). */
void lower_noise_look(struct writer *w, int32_t i, bool reduced);
/* Of all groups. A stage without gradients: both sums are 0. */
void lower_noise_look_reduced(struct writer *w);

#endif
