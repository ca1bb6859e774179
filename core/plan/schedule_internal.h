/* core/plan/schedule_internal.h - shared by the files of core/plan/schedule. */
#ifndef CORE_PLAN_SCHEDULE_INTERNAL_H
#define CORE_PLAN_SCHEDULE_INTERNAL_H

#include "core/plan/schedule.h"

/* Fills an empty stage table: round robin, or V-shaped. */
void schedule_place(struct arena *a, struct schedule *s, bool v_shaped);
/* Appends an operation to a lane with sufficient capacity. */
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
/* "F3", or "1F3" if a device has several chunks. */
const char *schedule_op_text(char buffer[32], const struct schedule *s,
                             const struct schedule_op *o);

#endif
