/* tests/support/unequal.h - random small jobs on random small teams where nothing is equal.
 *
 * Most models are tables of layers (core/model/measured.h): each layer takes its own time on each type of device, not in
 * proportion, and several sequences at once cost less than one by one. One in eight is a small GPT of real operators, on
 * emulated hosts. Device types differ, or two and two are equal; memories bind in half of the cases; microbatch sizes are one, two or
 * three; links are private to each pair (sometimes one is missing), or node to node with two devices a node, or all on one
 * switch; half duplex and fair sharing occur, bandwidths and latencies spread over two powers of ten.
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
    bool shared;      /* messages of several pairs of devices may queue on one link */
    const char *what; /* for people */
};
enum { UNEQUAL_DEVICES_MAX = 12 };
/* n_devices 0: 2 … 6, more often the larger; n_layers at most so many, at least 2. */
void unequal_make(struct arena *a, uint64_t seed, int32_t n_devices, int32_t max_layers,
                  struct unequal *out);

#endif
