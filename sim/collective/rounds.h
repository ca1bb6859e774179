/* sim/collective/rounds.h - what a collective of rounds (core/collective/rounds.h) takes when nothing else is on its links: the
 * recurrence that every algorithm obeys, and the closed forms of two.
 *
 * A message starts when both ends have come to the round; a member goes on when its own message has left and the one to it is
 * there. A message of b bytes occupies its hop for b ÷ B and arrives α later, as in core/program/program.h. Exact; sim/engine
 * plays the same to the nanosecond on links of their own. Used by planner/spmd/price and sim/collective/cost.
 */
#ifndef SIM_COLLECTIVE_ROUNDS_H
#define SIM_COLLECTIVE_ROUNDS_H

#include "core/collective/collective.h"
#include "sim/cost.h"

#include <stdint.h>

/* The hop from one member to another, alone. beside (NULL: 1): how many messages of the same round share it, so that each takes
 * so many times as long. */
struct collective_hops {
    struct cost_link (*hop)(const void *of, int32_t from, int32_t to);
    const void *of;
    int64_t (*beside)(const void *of, int32_t from, int32_t to);
};
/* free_ns (n): when each member begins, then when it has ended; next (n): scratch. Its sizes (most, tiers) are known. Instants saturate
 * at a quarter of int64. O(rounds · n). */
void collective_rounds_ns(const struct collective *c, int64_t element_bytes,
                          const struct collective_hops *h, int64_t *free_ns, int64_t *next);

/* Of n members that begin at 0, hop (n, n): bytes (n, n) from each to each, by pairs, at most 256 members; or so many steps of
 * chunks round a ring. */
int64_t collective_pairs_ns(int32_t n, const int64_t *bytes, const struct cost_link *hop);
int64_t collective_ring_ns(int32_t n, int32_t steps, int64_t chunk_bytes,
                           const struct cost_link *hop);

#endif
