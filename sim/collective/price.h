/* sim/collective/price.h - duration of a program's collective from the profile's measured tables.
 *
 * A table of the profile holds for a collective of its kind, on as many ranks and as many nodes (equally many on each), of
 * a size between its smallest and its largest, among devices that are not emulated; and for an algorithm that it names, else, where it
 * names none, for what a collective library does in one call (collective_native). Of both, what names the algorithm is
 * believed. A collective that no table holds for is priced by its messages on the links (link model); NCCL's model
 * (profiles/nccl.h) prices none: nothing says that it holds on a cluster whose links are stated.
 * Sizes are those of core/collective/algorithm.h; of unequal shards by RING, all as long as the longest.
 * A collective with a price begins for all members when the last has come, ends for all after its price, and is on no link: what shares
 * its links does not slow it, nor it others. Compute that moving messages slow is not slowed by it.
 */
#ifndef SIM_COLLECTIVE_PRICE_H
#define SIM_COLLECTIVE_PRICE_H

#include "core/program/program.h"
#include "sim/cost.h"

#include <stdint.h>

/* Nanoseconds, -1 where no table holds. O(members + rows), O(1) where the profile has no table. */
int64_t collective_price_ns(const struct cost *k, const struct program *p,
                            const struct collective *c);
/* The same for devices of the cluster (n): a collective of so many bytes. */
int64_t collective_price_devices_ns(const struct cost *k, enum collective_kind kind,
                                    enum collective_algorithm algorithm, const int32_t *device,
                                    int32_t n, int64_t bytes);
/* Nodes that the members stand on, equally many on each; 0 where not. Of a folded one, those that it stands for. */
int32_t collective_nodes(const struct cost *k, const struct program *p, const struct collective *c);

#endif
