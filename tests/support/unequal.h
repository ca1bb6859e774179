/* tests/support/unequal.h - random small jobs on random small clusters with unequal devices and links.
 *
 * Most models are tables of layers (core/model/measured.h): each layer has its own time on each device type, not in proportion,
 * and several sequences at once cost less than one by one. One in eight is a small GPT of real operators on emulated hosts.
 * Device types are all different, or equal in pairs; memory binds in half of the cases; there are one, two or three microbatch
 * sizes. Links are dedicated to each pair (sometimes one is missing), or node to node with two devices per node, or all on one
 * switch. Half duplex and fair sharing occur; bandwidths and latencies span two powers of ten.
 */
#ifndef TESTS_SUPPORT_UNEQUAL_H
#define TESTS_SUPPORT_UNEQUAL_H

#include "core/base/arena.h"
#include "core/cluster/cluster.h"
#include "core/model/job.h"
#include "profiles/profile.h"

struct unequal {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    bool shared;      /* messages of several pairs of devices may share a link */
    const char *what; /* for people */
};
enum { UNEQUAL_DEVICES_MAX = 12 };
/* n_devices 0: 2 … 6, larger ones more often; n_layers: limit, at least 2. */
void unequal_make(struct arena *a, uint64_t seed, int32_t n_devices, int32_t max_layers,
                  struct unequal *out);

#endif
