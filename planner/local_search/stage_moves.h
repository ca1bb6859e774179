/* planner/local_search/stage_moves.h - changes of a plan's stages and replicas: merged, split, on other devices.
 *
 * Each move modifies *p, a copy made by the caller, and returns false if it is not applicable. A stage on several devices divides the
 * sequences of a microbatch; its devices are in ascending order, and stage_moves_balance sets the sequences of each. Orders and
 * recomputation are left as they are (local_search/stage_rows.c resets them).
 */
#ifndef PLANNER_LOCAL_SEARCH_STAGE_MOVES_H
#define PLANNER_LOCAL_SEARCH_STAGE_MOVES_H

#include "planner/candidate/space.h"

#include <stdbool.h>

struct arena;
struct plan;
struct plan_stage;

enum { STAGE_MOVES_DEVICES_MAX = 64 }; /* devices of one stage */

/* Assigns the stage to n devices (any order, no duplicates); false: a microbatch has fewer sequences than devices. */
bool stage_moves_place(struct arena *a, const struct space *s, struct plan_stage *x,
                       const int32_t *devices, int32_t n);
/* Sequences per device, (n), that minimise the slowest device's time, taken as proportional to sequences: one each, every
 * further one to the device that ends first, ties to the lowest index. O(sequences · devices). */
void stage_moves_balance(const struct space *s, int32_t first_layer, int32_t last_layer,
                         const int32_t *devices, int32_t n, int64_t *sequences);
/* Merges stages i and i + 1 of replica r into one stage on all their devices. */
bool stage_moves_merge(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                        int32_t i);
/* Splits stage i in two: its first `front` devices take the layers before a boundary, or (behind) those after it, such that
 * both stages take about equally long. */
bool stage_moves_split(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                        int32_t i, int32_t front, bool behind);
/* The device takes a part of stage i's layers as a stage of its own before or (behind) after it. */
bool stage_moves_insert(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                        int32_t device, bool behind);
/* Adds a device to stage i of replica r. */
bool stage_moves_add(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                      int32_t device);
/* The device takes the place of device k of stage i. */
bool stage_moves_replace(struct arena *a, const struct space *s, struct plan *p, int32_t r,
                         int32_t i, int32_t k, int32_t device);
/* Removes device k from stage i. If it was the stage's only device, the layers go to the stage before, or (behind) after it; if
 * it was the replica's only device, the microbatches go to the other replicas. */
bool stage_moves_drop(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                       int32_t k, bool behind);
/* Joins all replicas of the set, which have equally many stages, into one: each stage on the devices of all. */
bool stage_moves_join(struct arena *a, const struct space *s, struct plan *p, const bool *set);
/* Divides a replica whose stages all have at least two devices in two, each with every second device. */
bool stage_moves_divide(struct arena *a, const struct space *s, struct plan *p, int32_t r);
/* Exchanges the devices of stages i and k of replica r, and balances its layers again. */
bool stage_moves_swap(struct arena *a, const struct space *s, struct plan *p, int32_t r, int32_t i,
                       int32_t k);
/* Sets the replica's layer boundaries to minimise its slowest stage, unless operators are sharded. O(stages · layers · log time). */
void stage_moves_balance_replica(const struct space *s, struct plan *p, int32_t r);
/* Moves one sequence of every microbatch from device k of the stage to device l. */
bool stage_moves_pass(struct plan *p, int32_t r, int32_t i, int32_t k, int32_t l);

/* Changes the plan to the microbatch size of s: shares keep their proportions, sequences are rebalanced. */
bool stage_moves_resize(struct arena *a, const struct space *s, struct plan *p);

#endif
