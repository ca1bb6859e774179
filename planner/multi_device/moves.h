/* planner/multi_device/moves.h - one change of a plan whose stages may stand on several devices.
 *
 * Each changes *p, a copy of the caller's (score_copy_plan), and says whether the change is one. What a change makes is a plan of
 * default orders: its stages compute nothing again and take 1F1B's warm-ups until scorer_fit and refine_plan say else.
 * Devices of a stage stand in ascending order; its sequences are set by multi_device_balance.
 */
#ifndef PLANNER_MULTI_DEVICE_MOVES_H
#define PLANNER_MULTI_DEVICE_MOVES_H

#include "planner/candidate/space.h"

#include <stdbool.h>

struct arena;
struct plan;
struct plan_stage;

enum { MULTI_DEVICE_MEMBERS_MAX = 64 }; /* devices of one stage */

/* The stage on these devices (any order, no device twice); false where a microbatch has fewer sequences. */
bool multi_device_place(struct arena *a, const struct space *s, struct plan_stage *x,
                        const int32_t *devices, int32_t n);
/* The sequences of each device that make the slowest of them as fast as it gets, times taken as proportional to sequences: each has
 * one, every further one goes where it ends first, the earliest of equals. O(sequences · devices). */
void multi_device_balance(const struct space *s, int32_t first_layer, int32_t last_layer,
                          const int32_t *devices, int32_t n, int64_t *sequences);
/* Forward and backward of a microbatch on the slowest device of a stage, times taken as proportional to sequences. */
int64_t multi_device_stage_ns(const struct space *s, const struct plan_stage *x);

/* Default orders, nothing computed again. */
void multi_device_plain(struct plan *p);
/* No device owns two stages, and every stage has at most MULTI_DEVICE_MEMBERS_MAX. */
bool multi_device_possible(const struct plan *p);

/* Stages i and i + 1 of replica r on all their devices. */
bool multi_device_merge(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                        int32_t i);
/* Stage i falls in two: its first `front` devices take the layers before, or (behind) those after, a boundary where both take
 * about equally long. */
bool multi_device_split(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                        int32_t i, int32_t front, bool behind);
bool multi_device_add(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                      int32_t device);
/* Device k of stage i is left out. Of a stage's only one the layers go to the stage before, or (behind) after it; of a
 * replica's only one the microbatches go to the others. */
bool multi_device_drop(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                       int32_t k, bool behind);
/* All replicas of the set, of equally many stages, become one: stage by stage on all their devices. */
bool multi_device_join(struct arena *a, const struct space *s, struct plan *p, const bool *set);
/* A replica whose stages all have two devices at least becomes two, each with every second one. */
bool multi_device_divide(struct arena *a, const struct space *s, struct plan *p, int32_t r);
/* The layer boundary between stages i and i + 1, by `layers` up (> 0) or down. */
bool multi_device_shift(const struct space *s, struct plan *p, int32_t r, int32_t i,
                        int32_t layers);
/* Boundaries of the replica such that its slowest stage is as fast as it gets. O(stages · layers · log time). */
void multi_device_balance_replica(const struct space *s, struct plan *p, int32_t r);
/* A sequence of every microbatch from device k of the stage to device l. */
bool multi_device_pass(struct plan *p, int32_t r, int32_t i, int32_t k, int32_t l);
/* A microbatch from replica r to replica q. */
bool multi_device_share(struct plan *p, int32_t r, int32_t q);
/* The plan at the microbatch size of s: shares keep their proportions, sequences are balanced anew. */
bool multi_device_resize(struct arena *a, const struct space *s, struct plan *p);

#endif
