/* sim/engine/representatives.h - the program of some replicas alone, which stand for the others.
 *
 * A collective over replicas keeps its real number of ranks (stands_for): its chunks and steps are those of all, its members the
 * ones that are left, and a hop of a ring is the slowest of those that it stands for. What the others send over shared links is missing, so times are a little short where links are contended,
 * and a chain has fewer hops. For questions whose answer of all devices takes too much memory (sim/explain).
 */
#ifndef SIM_ENGINE_REPRESENTATIVES_H
#define SIM_ENGINE_REPRESENTATIVES_H

#include "core/program/program.h"
#include "sim/cost.h"

#include <stdbool.h>

struct arena;

/* keep: (replicas of the plan). Operators, slots and links are shared with p. false: a collective of a tensor has members in
 * both, and there is no such program. O(instructions). */
bool representatives_make(struct arena *a, const struct program *p, struct cost *k,
                          const bool *keep, struct program *out);

#endif
