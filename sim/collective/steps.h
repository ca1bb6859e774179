/* sim/collective/steps.h - a collective as a graph of transfers, and a simulation of such graphs on a cluster's links.
 *
 * A transfer is one message from a member to another. It is ready when both members have begun the collective and all of its
 * dependencies are met: `after` names transfers that must have *left* (the sender is free again) or *arrived*.
 * sim/collective/cost.h defines the transfers of each algorithm; transfers of 0 bytes are omitted, as in core/program/program.h.
 * steps_run submits transfers to sim/network/network, the links that also carry a program's messages (FIFO or fair, full or half
 * duplex), so concurrent collectives, or hops that share a link, contend. On separate links a single collective takes
 * collective_ns, to the nanosecond.
 * Cost: memory O(transfers + dependencies): a ring all-reduce has 2n(n−1) transfers with at most four dependencies each.
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
    /* topologically sorted: dependencies precede their dependents */
    struct step_transfer *transfers;
    int64_t n_after;
    int32_t *after; /* 2 · transfer, + 1 if it must have arrived, not only left */
};

/* ERR_INPUT: as collective_check, or more than STEPS_MAX transfers. */
MUST_CHECK enum status steps_make(struct arena *a, const struct collective_case *c,
                                  struct steps *out, struct error *err);

struct steps_play {
    const struct steps *steps;
    const int32_t *device;   /* (n_members) cluster device of each member */
    const int64_t *start_ns; /* (n_members) >= 0; NULL: all at 0 */
    int64_t *end_ns;         /* (n_members) filled: end of its last transfer, at least its start */
    int64_t makespan_ns;     /* filled: the last end */
};

/* Simulates all plays on one network. ERR_INPUT: two members without a route, a link without cost.
 * O(transfers · log transfers) on FIFO links. */
MUST_CHECK enum status steps_run(const struct cluster *c, struct cost *k, struct steps_play *plays,
                                 int32_t n_plays, struct error *err);

#endif
