/* planner/candidate/plan_set.h - a set of plans of one cluster, by hash: the tabu list of local searches (Glover 1989).
 *
 * The hash covers microbatches, schedules, stages with their devices, sequences, sharding rules, recomputation, ZeRO,
 * warm-up counts and buckets. A collision of two 64-bit hashes makes a search leave out a plan, which costs quality only.
 */
#ifndef PLANNER_CANDIDATE_PLAN_SET_H
#define PLANNER_CANDIDATE_PLAN_SET_H

#include "core/base/hash_map.h"
#include "core/plan/plan.h"

struct plan_set { /* all zero but the arena: empty */
    struct hash_map known;
};
/* Whether the plan was new; it is a member afterwards. O(stages · (devices + sharding rules)). */
bool plan_set_add(struct plan_set *x, const struct plan *p);
/* The number kept with a plan, e.g. its time instead of mere membership; 0: it is new. Valid until the next call. */
int64_t *plan_set_number(struct plan_set *x, const struct plan *p);
/* Equal for replicas of a plan that differ in their devices only, of the same types. O(stages · (devices + sharding rules)). */
uint64_t plan_set_replica_hash(const struct plan *p, const struct plan_replica *x);

#endif
