/* tools/strategy/unflushed_plans.h - plans of pipelines without a flush (weight_versions: 2, core/plan/plan.h) from a synchronous plan.
 *
 * Each pipeline keeps its stages, devices and shares; its order becomes 1F1B without a flush, with as many forwards in flight as stages from
 * this one on, and with twice as many less one, which hide messages up to half a microbatch (Zhuang et al. 2023, eager 1F1B).
 */
#ifndef TOOLS_STRATEGY_UNFLUSHED_PLANS_H
#define TOOLS_STRATEGY_UNFLUSHED_PLANS_H

#include "core/plan/plan.h"

enum { UNFLUSHED_PLANS = 2 };

/* Returns the number of plans; 0 with the reason in *why. */
int32_t unflushed_plans(struct arena *a, const struct plan *sync, struct plan out[UNFLUSHED_PLANS], const char **why);

#endif
