/* planner/schedule/tabu.h - local search on the words of a shop: only what lies on a critical path is moved.
 *
 * A schedule becomes shorter only if some longest chain of operations is broken. On a device such a chain is a *block* of
 * operations without idle time between them, and it can be broken only by taking another type of operation to the front of a
 * block or to its end (Nowicki and Smutnicki, Management Science 42, 1996; moves over some distance after Balas and
 * Vazacopoulos, Management Science 44, 1998). Each move is judged by the longest way through the operations that it moves,
 * with starts and rests as they were; the best is made, also where it is worse, and what it exchanged may not be exchanged
 * back for some steps. Here a block offers few moves, because operations of one type are alike and keep their order.
 */
#ifndef PLANNER_SCHEDULE_TABU_H
#define PLANNER_SCHEDULE_TABU_H

#include "planner/schedule/shop.h"

struct tabu; /* opaque: one word, its times, what is forbidden */

struct tabu *tabu_new(struct arena *a, const struct shop *s, uint64_t seed);
/* Starts from a word that fits the memory and can be executed (BUG otherwise) and goes on until `steps` steps in a row found
 * nothing better, *operations are spent or the makespan is not more than bound_ns. word becomes the best found. Returns its
 * makespan. O(nodes) a step. */
int64_t tabu_run(struct tabu *t, uint8_t *word, int64_t steps, int64_t bound_ns,
                 int64_t *operations, bool (*stop)(void *user), void *user);

#endif
