/* core/plan/internal.h - what the files of the plan and of lowering share; for core/plan/plan*.c and core/lower/lower*.c alone. */
#ifndef CORE_PLAN_INTERNAL_H
#define CORE_PLAN_INTERNAL_H

#include "core/plan/plan.h"
#include "core/plan/schedule.h"

/* The canonical text from `microbatch:` on: all that is executed but the seed. */
void plan_write_executed(FILE *out, struct arena *a, const struct plan *p);

/* Where a complaint stands: stage -1 the replica, replica -1 the plan. */
struct plan_place {
    const struct plan *p;
    int32_t replica, stage;
    struct error *err;
};
/* ERR_INPUT, with the place in the file where there is one. */
enum status plan_complain(const struct plan_place *at, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* A device of a replica and its chunks. */
struct plan_lane {
    int32_t device, n_stages;
    int32_t *stages; /* (n_stages) of the replica, ascending: chunk c is stages[c] */
};
/* In order of first appearance. Returns their number. O(stages · devices of the replica). */
int32_t plan_lanes(struct arena *a, const struct plan_replica *r, struct plan_lane **out);

/* The next call of an order's text, which moves on behind it. chunk: -1 where none is written. */
enum plan_word { PLAN_WORD_CALL, PLAN_WORD_END, PLAN_WORD_BAD };
enum plan_word plan_next_call(const char **text, struct schedule_op *out);

/* The replica's named schedule, devices as plan_lanes gives them. ERR_INPUT: what schedule_make says, devices with
 * different numbers of chunks, stages that do not stand where the schedule wants them. O(operations). */
MUST_CHECK enum status plan_schedule(struct arena *a, const struct plan_place *at,
                                     struct schedule *out);
/* Warm-up counts, orders and schedule of the replica at hand. */
MUST_CHECK enum status plan_check_orders(struct arena *a, struct plan_place *at);

#endif
