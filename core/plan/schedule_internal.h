/* core/plan/schedule_internal.h - what the files of core/plan/schedule share. */
#ifndef CORE_PLAN_SCHEDULE_INTERNAL_H
#define CORE_PLAN_SCHEDULE_INTERNAL_H

#include "core/plan/schedule.h"

/* Fills an empty table of schedule: round robin, or down and up again. */
void schedule_place(struct arena *a, struct schedule *s, bool v_shaped);
/* One more operation at the end of a lane whose array is long enough. */
static inline void schedule_append(struct schedule_lane *l, enum phase phase, int32_t chunk,
                                   int32_t microbatch)
{
    l->ops[l->n_ops++] = (struct schedule_op){phase, chunk, microbatch};
}
/* The orders of SCHEDULES. s: placed, its lanes empty, with room for every operation of the schedule (F and B, or F, I and W, of each
 * chunk and microbatch). A missing one does not link, under its name. */
#define X(name, text, chunks, traits, order)                                                       \
    void schedule_order_##order(struct arena *a, const struct schedule_spec *spec,                 \
                                struct schedule *s);
SCHEDULES(X)
#undef X
/* "F3", or "1F3" where a device has several chunks. */
const char *schedule_op_text(char buffer[32], const struct schedule *s,
                             const struct schedule_op *o);

#endif
