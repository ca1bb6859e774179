/* sim/engine/fold.h - symmetry reduction: devices with equal timelines are simulated once.
 *
 * Lanes, channels, collectives and links are coloured by what they do and cost, then repeatedly by the colours of their
 * neighbours until nothing changes (colour refinement; Weisfeiler and Leman 1968): a lane by its channels and collectives in
 * order, a channel by its ends and its path, a member of a collective by all other members as it sees them (the next one, the one
 * after it, …), a link direction by the multiset of channels and hops of collectives that cross it. The result is an equitable
 * partition: all lanes of a colour have the same numbers of neighbours of each colour. As the engine moves a lane, a message or a
 * collective by the state of its neighbours alone, all of one colour have the same timeline, and one represents them.
 * A single slower device, or a single different link, keeps separate every lane whose times it affects.
 *
 * Shared links. Of a fair link (or route) one represents its colour. A message of a channel then stands for as many equal messages
 * on that link as the channel's colour has there (program_link.hop_messages); by symmetry all get the same share. Max-min fair
 * shares depend on nothing else, so they are those of the full program, except that sums of rates are added in another order:
 * relative errors of 1e-15, below FLOWS_GRAIN_NS.
 * A FIFO link serves one message after the other, and of those that become ready in the same nanosecond first the one of the lower
 * lane (queues.c). So each of its senders has a colour of its own there, its place among them, and links on which equal messages
 * have equal places fold. Representatives keep the order of the lanes that they represent: if A's place is before B's on the links
 * of a colour, A's first lane is before the one that sends beside B's first lane, and this one before B's first lane. Where a message
 * takes no time, another one may become ready after a higher lane's of the same nanosecond: the engine reports it
 * (network_overtaken), and the whole program runs.
 * The ends of a link that slows down computing stay separate.
 *
 * Members of a priced collective, and of a ring that is one flow (ring_flow.h), only meet: each sees the colours of all others in any
 * order, and one of each colour represents them.
 * Another ring of equal members becomes one with the members of one period (one if all are equal), which knows the real number
 * (collective.stands_for). It takes its longest chunk in every step: exact for equal chunks, else late by the duration of one
 * element in each step. A collective of a tensor keeps its rounds, and each member its representative (collective.like).
 * Cost O(rounds · (channels + members of collectives) · links of a route), rounds <= the longest chain of lanes.
 */
#ifndef SIM_ENGINE_FOLD_H
#define SIM_ENGINE_FOLD_H

#include "core/base/error.h"
#include "sim/engine/sim.h"

struct fold {
    /* of the representative lanes, with links of its own; shares operators and slots with the full program */
    struct program program;
    struct sim_scale scale; /* of the representative lanes and their links */
    int32_t *of;            /* (n_devices of the full program) lane of the folded program */
};
/* k decides which links are equal: those of equal cost. scale may be NULL. If nothing folds, out->program is p. */
void fold_make(struct arena *a, const struct program *p, struct cost *k,
               const struct sim_scale *scale, struct fold *out);

#endif
