/* sim/collective/rounds.h - duration of a collective in rounds (core/collective/rounds.h) on otherwise idle links: the recurrence
 * common to all algorithms, and two closed forms.
 *
 * A message starts when both of its ends have reached the round. A member leaves the round when its own message has left and the
 * message to it has arrived. A message of b bytes occupies its hop for b ÷ B and arrives α later (core/program/program.h). Exact:
 * sim/engine gives the same nanoseconds on separate links. Used by planner/spmd/price and sim/collective/cost.
 */
#ifndef SIM_COLLECTIVE_ROUNDS_H
#define SIM_COLLECTIVE_ROUNDS_H

#include "core/collective/collective.h"
#include "sim/cost.h"

#include <stdint.h>

/* hop: the otherwise idle link from one member to another. beside (NULL: 1): messages of the same round that share it; the
 * duration is multiplied by this number. */
struct collective_hops {
    struct cost_link (*hop)(const void *of, int32_t from, int32_t to);
    const void *of;
    int64_t (*beside)(const void *of, int32_t from, int32_t to);
};
/* free_ns (n): in: begin of each member; out: its end; next (n): scratch. The sizes of c (maximum, tiers) must be set. Instants
 * saturate at a quarter of int64. O(rounds · n). */
void collective_rounds_ns(const struct collective *c, int64_t element_bytes,
                          const struct collective_hops *h, int64_t *free_ns, int64_t *next);

/* Last end of n members that begin at 0; hop (n, n). pairs: bytes (n, n) from each member to each other one, at most 256
 * members. ring: `steps` steps of one chunk. */
int64_t collective_pairs_ns(int32_t n, const int64_t *bytes, const struct cost_link *hop);
int64_t collective_ring_ns(int32_t n, int32_t steps, int64_t chunk_bytes,
                           const struct cost_link *hop);

#endif
