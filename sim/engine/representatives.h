/* sim/engine/representatives.h - a program reduced to some replicas, which represent the others.
 *
 * A collective over replicas keeps its real number of ranks (stands_for), and so its chunks and steps; its members are those of
 * the replicas kept, and a hop of a ring costs as much as the slowest hop that it represents. The traffic of the other replicas is
 * missing, so times are slightly too short where links are contended, and a chain has fewer hops. Used where an explanation of
 * all devices would take too much memory (sim/explain).
 */
#ifndef SIM_ENGINE_REPRESENTATIVES_H
#define SIM_ENGINE_REPRESENTATIVES_H

#include "core/program/program.h"
#include "sim/cost.h"

#include <stdbool.h>

struct arena;

/* keep: (replicas of the plan). Operators, slots and links are shared with p. false: not possible, because a tensor collective has members
 * in kept and in dropped replicas, or the program has parameter servers. O(instructions). */
bool representatives_make(struct arena *a, const struct program *p, struct cost *k,
                          const bool *keep, struct program *out);

#endif
