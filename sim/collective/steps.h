/* sim/collective/steps.h - a collective as transfers with dependencies, and a player that puts them on the links of a cluster.
 *
 * A transfer is one message from a member to another. It is ready when both members have begun the collective and all that
 * it comes after is over: `after` names transfers, each either *left* (its sender is free again) or *arrived*. What in each direction
 * does is said in sim/collective/cost.h; a transfer of no bytes is left out, as core/program/program.h has it.
 * The player hands transfers to sim/network/network, the same links, FIFO or fair, full or half duplex, as a program's messages cross:
 * several collectives at once, or one whose hops share a link, contend. What a lone one costs on links of its own is
 * collective_ns, to the nanosecond.
 * Cost: memory O(transfers + dependencies): a ring all-reduce of n has 2n(n−1) of at most four each.
 */
#ifndef SIM_COLLECTIVE_STEPS_H
#define SIM_COLLECTIVE_STEPS_H

#include "sim/collective/cost.h"

#include <stdint.h>

struct arena;

enum { STEPS_MAX = 1 << 23 }; /* transfers of one collective */

struct step_transfer {
    int32_t from, to; /* members */
    int64_t bytes;    /* > 0 */
    int32_t first_after, n_after;
};
struct steps {
    int32_t n_members, n;
    /* in an order in which each stands behind all that it comes after */
    struct step_transfer *transfers;
    int64_t n_after;
    int32_t *after; /* 2 · transfer, + 1 where it must have arrived and not only left */
};

/* ERR_INPUT: what collective_check says, or more than STEPS_MAX transfers. */
MUST_CHECK enum status steps_make(struct arena *a, const struct collective_case *c,
                                  struct steps *out, struct error *err);

struct steps_play {
    const struct steps *steps;
    const int32_t *device;   /* (n_members) of the cluster */
    const int64_t *start_ns; /* (n_members) >= 0; NULL: all at 0 */
    int64_t *end_ns;         /* (n_members) filled: its last transfer is over, at least its start */
    int64_t makespan_ns;     /* filled: the last end */
};

/* Plays them all on one network. ERR_INPUT: two members without a link between them, a link without cost.
 * O(transfers · log transfers) on FIFO links. */
MUST_CHECK enum status steps_run(const struct cluster *c, struct cost *k, struct steps_play *plays,
                                 int32_t n_plays, struct error *err);

#endif
