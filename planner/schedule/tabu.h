/* planner/schedule/tabu.h - tabu search on the words of a shop (planner/schedule/shop.h), with critical-block moves.
 *
 * The makespan decreases only if every critical path is broken. On a device a critical path consists of *blocks*: operations
 * without idle time between them. A block is broken only by moving an operation of another type to its front or its end
 * (Nowicki and Smutnicki, Management Science 42, 1996; moves over a distance after Balas and Vazacopoulos, Management Science
 * 44, 1998). A move is evaluated by the longest path through the moved operations with heads and tails unchanged. The best
 * move is made even if it is worse, and its exchanged pairs are tabu for some steps. The neighbourhood is small, because
 * operations of one type are identical and keep their order.
 */
#ifndef PLANNER_SCHEDULE_TABU_H
#define PLANNER_SCHEDULE_TABU_H

#include "planner/schedule/shop.h"

struct tabu; /* opaque: one word, its times, the tabu list */

struct tabu *tabu_new(struct arena *a, const struct shop *s, uint64_t seed);
/* Starts from a word within memory and without deadlock (BUG otherwise). Ends after `steps` steps without improvement, when
 * *operations is spent, when stop() is true, or at a makespan <= bound_ns. word becomes the best found; returns its makespan
 * in ns. O(nodes) per step. */
int64_t tabu_run(struct tabu *t, uint8_t *word, int64_t steps, int64_t bound_ns,
                 int64_t *operations, bool (*stop)(void *user), void *user);

#endif
