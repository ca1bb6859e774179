/* tools/profile_links.h - the links of a cluster, measured between the first two devices that use each. */
#ifndef TOOLS_PROFILE_LINKS_H
#define TOOLS_PROFILE_LINKS_H

#include "core/cluster.h"
#include "core/error.h"
#include "profiles/profile.h"

struct arena;

struct profile_links {
    struct arena *arena;
    const struct cluster *cluster;
    double *
        off; /* (cluster's links) emulated: share by which messages were not as stated; NULL before they are measured */
};

/* Sets the profile's row of every link. Starts ranks of this program; ERR_RESOURCE where they cannot be. */
MUST_CHECK enum status profile_links_measure(struct profile_links *b, int64_t repeats,
                                             struct profile *p, struct error *err);
double profile_link_off(const struct profile_links *b, const char *link); /* 0: not measured */

#endif
