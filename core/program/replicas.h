/* core/program/replicas.h - some replicas of a program, and which of them suffice for a check without times.
 */
#ifndef CORE_PROGRAM_REPLICAS_H
#define CORE_PROGRAM_REPLICAS_H

#include "core/program/program.h"

#include <stdbool.h>

/* The stages, lanes and channels of the replicas kept (of the plan), and the collectives with a member among them, of those members
 * only; the links of a ring or chain are then those behind each of these members. Operators, slots and links are shared with p.
 * collective_of (may be NULL) gets the number in p of each collective. O(instructions). */
void program_keep_replicas(struct arena *a, const struct program *p, const bool *keep,
                           struct program *out, int32_t **collective_of);

/* Marks one of all replicas that do the same: stage by stage equal orders, buffer rings and communication, up to the numbers of channels
 * and of collectives inside the replica, and the same parts in collectives of several replicas. In a game without times all of them
 * move alike. keep: (replicas of the plan). false: all are kept. O(instructions). */
bool program_unlike_replicas(struct arena *a, const struct program *p, bool *keep);

#endif
