/* tests/support/reference.h - the fastest plan of a small team by enumeration: what the search is held against.
 *
 * The class: every microbatch size of the job; every choice of devices, every way to part them into replicas, every order of the
 * devices of a replica, every contiguous split of the layers, every integer share of the microbatches; 1F1B, one sum of
 * gradients behind the backward, replicas in the order of their lowest devices; a stage that does not fit is changed as
 * scorer_fit says. Each plan's time is the simulator's.
 *
 * Nothing of the planner's bounds is used. A plan is passed over only where it cannot be faster than what is known because
 *   work      a device computes its forwards, backwards and update one after the other;
 *   way       the first forward comes down to stage s, which does all its work but (where layers are operators, some of
 *             whose results leave before the others) one backward, and the first stage updates after that. Where each
 *             layer is one operator, messages on the way and the return path up count too; with several replicas, the sum of
 *             the first stage's gradients over all its links at once;
 *   link      messages of one direction of a link pass one after the other (both directions where it is half duplex);
 *   alone     the replica by itself takes as long. With links of their own replicas only wait for each other, so this is
 *             exact; where they share links, a plan is passed over only if a replica alone takes ALONE_SLACK more.
 * Tests hold it against plain enumeration without any of these.
 */
#ifndef TESTS_SUPPORT_REFERENCE_H
#define TESTS_SUPPORT_REFERENCE_H

#include "tests/support/unequal.h"

struct reference {
    int64_t best_ns;   /* INT64_MAX: none fits */
    int64_t simulated; /* plans */
    int64_t
        violations; /* plans faster than what a bound says they take at least: the planner's, or one above */
    int64_t
        least_ns;   /* of all that were simulated: the search's own lower bound must not be above */
    bool cut_short; /* too many plans: only some were looked at */
};
/* Only what may be faster than below_ns is looked for (INT64_MAX: the fastest); plain: nothing is passed over. No
 * more than so many plans are simulated, about. */
void reference_search(struct arena *a, const struct unequal *x, int64_t below_ns, bool plain,
                      int64_t most, struct reference *out);

#endif
