/* planner/schedule/order_text.h - the order of one stage as a plan states it (core/plan/plan.h). O(operations). */
#ifndef PLANNER_SCHEDULE_ORDER_TEXT_H
#define PLANNER_SCHEDULE_ORDER_TEXT_H

#include "core/plan/schedule.h"

struct arena;

/* "F0 F1 I0 W0 …", allocated in the arena. */
const char *order_text_of(struct arena *a, const struct schedule_lane *l);
/* An order of F, I and W becomes one of F and B, in the place of I. */
void order_text_undivide(struct schedule_lane *l);

#endif
