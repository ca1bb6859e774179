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
/* The lanes of the V-shaped kinds (core/plan/schedule_v.c); lanes are allocated for 6 m operations each. */
void schedule_fill_v(struct arena *a, enum schedule_kind kind, struct schedule *s);
/* "F3", or "1F3" if a device has several chunks. */
const char *schedule_op_text(char buffer[32], const struct schedule *s,
                             const struct schedule_op *o);

#endif
