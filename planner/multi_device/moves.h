/* planner/multi_device/moves.h - the moves of the local search over plans with stages on several devices.
 *
 * Each move modifies *p, a copy made by the caller, and returns false if it is not applicable. The result has default orders:
 * no recomputation and 1F1B's warm-ups, until scorer_fit and refine_plan change them. The devices of a stage are in ascending
 * order; multi_device_balance sets its sequences per device.
 */
#ifndef PLANNER_MULTI_DEVICE_MOVES_H
#define PLANNER_MULTI_DEVICE_MOVES_H

#include "planner/candidate/space.h"

#include <stdbool.h>

struct arena;
struct plan;
struct plan_stage;

enum { MULTI_DEVICE_MEMBERS_MAX = 64 }; /* devices of one stage */

/* Assigns the stage to n devices (any order, no duplicates); false: a microbatch has fewer sequences than devices. */
bool multi_device_place(struct arena *a, const struct space *s, struct plan_stage *x,
                        const int32_t *devices, int32_t n);
/* Sequences per device, (n), that minimise the slowest device's time, taken as proportional to sequences: one each, every
 * further one to the device that ends first, ties to the lowest index. O(sequences · devices). */
void multi_device_balance(const struct space *s, int32_t first_layer, int32_t last_layer,
                          const int32_t *devices, int32_t n, int64_t *sequences);
/* F + B of a microbatch on the slowest device of a stage in ns, taken as proportional to sequences. */
int64_t multi_device_stage_ns(const struct space *s, const struct plan_stage *x);

/* Resets orders to their defaults, without recomputation. */
void multi_device_plain(struct plan *p);
/* Whether no device has two stages and no stage more than MULTI_DEVICE_MEMBERS_MAX devices. */
bool multi_device_possible(const struct plan *p);

/* Merges stages i and i + 1 of replica r into one stage on all their devices. */
bool multi_device_merge(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                        int32_t i);
/* Splits stage i in two: its first `front` devices take the layers before a boundary, or (behind) those after it, such that
 * both stages take about equally long. */
bool multi_device_split(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                        int32_t i, int32_t front, bool behind);
/* Adds a device to stage i of replica r. */
bool multi_device_add(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                      int32_t device);
/* Removes device k from stage i. If it was the stage's only device, the layers go to the stage before, or (behind) after it; if
 * it was the replica's only device, the microbatches go to the other replicas. */
bool multi_device_drop(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                       int32_t k, bool behind);
/* Joins all replicas of the set, which have equally many stages, into one: each stage on the devices of all. */
bool multi_device_join(struct arena *a, const struct space *s, struct plan *p, const bool *set);
/* Divides a replica whose stages all have at least two devices in two, each with every second device. */
bool multi_device_divide(struct arena *a, const struct space *s, struct plan *p, int32_t r);
/* Moves the layer boundary between stages i and i + 1 by `layers` up (> 0) or down. */
bool multi_device_shift(const struct space *s, struct plan *p, int32_t r, int32_t i,
                        int32_t layers);
/* Exchanges the devices of stages i and k of replica r, and balances its layers again. */
bool multi_device_swap(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                       int32_t k);
/* Sets the replica's layer boundaries to minimise its slowest stage. O(stages · layers · log time). */
void multi_device_balance_replica(const struct space *s, struct plan *p, int32_t r);
/* Moves one sequence of every microbatch from device k of the stage to device l. */
bool multi_device_pass(struct plan *p, int32_t r, int32_t i, int32_t k, int32_t l);
/* Moves one microbatch from replica r to replica q. */
bool multi_device_share(struct plan *p, int32_t r, int32_t q);
/* Changes the plan to the microbatch size of s: shares keep their proportions, sequences are rebalanced. */
bool multi_device_resize(struct arena *a, const struct space *s, struct plan *p);

#endif
