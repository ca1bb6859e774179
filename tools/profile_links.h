/* tools/profile_links.h - the links of a cluster, measured by messages between two ranks, for `musher profile`. */
#ifndef TOOLS_PROFILE_LINKS_H
#define TOOLS_PROFILE_LINKS_H

#include "core/cluster.h"
#include "core/error.h"
#include "profiles/profile.h"

#include <stdint.h>

struct arena;
struct profile_cards;

struct profile_links {
    struct arena *arena;
    const struct cluster *cluster;
    const struct profile_cards *cards;
    /* (cluster's links) emulated: share by which messages were not as stated; NULL before they are measured */
    double *off;
};

/* Each link between the first pair of devices whose messages cross it, into *p. Links of which this machine has not both
 * ends are told and left to the prior. */
MUST_CHECK enum status profile_links_measure(struct profile_links *b, int64_t repeats,
                                             struct profile *p, struct error *err);
double profile_link_off(const struct profile_links *b, const char *link); /* 0: not measured */

#endif
