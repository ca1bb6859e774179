/* sim/collective/price.h - what a collective takes as a whole, where somebody has measured it or NCCL's model holds.
 *
 * In this order:
 * 1. A table of the profile holds for a collective of its kind, on as many ranks and as many nodes (equally many on each), of a size
 *    between its smallest and its largest, among devices that are not emulated and all of its device type; and for an
 *    algorithm that it names, else, where it names none, for what a collective library does in one call (collective_native). Of
 *    both, what names the algorithm is believed.
 * 2. NCCL's model (profiles/nccl.h) of the version that the cluster states (`nccl: 2.28.9`) holds for what NCCL does in one call
 *    (collective_native; the algorithm is then its own choice), among GPUs of one type that are not emulated and each one device
 *    (tensor_parallel 1), equally many on each node. Over several nodes it holds only where the network carries as much for them
 *    when all other devices of those nodes send too, because the model knows nobody else there. The network is the cluster's
 *    links; inside a node the model has NVLink and PCIe of the catalogue's GPU and not the links of the file.
 * 3. Any other is priced by its messages on the links (link model).
 * Sizes are those of core/collective/algorithm.h; of unequal shards by RING, all as long as the longest.
 * A collective with a price (1, 2) begins for all members when the last has come, ends for all after its price, and is on no link: what
 * shares its links does not slow it, nor it others. Compute that moving messages slow is not slowed by it.
 */
#ifndef SIM_COLLECTIVE_PRICE_H
#define SIM_COLLECTIVE_PRICE_H

#include "core/program/program.h"
#include "profiles/nccl.h"
#include "sim/cost.h"

#include <stdint.h>

#define COLLECTIVE_PRICES(X) X(LINKS, "links") X(TABLE, "measured table") X(NCCL, "NCCL model")
enum collective_price {
#define X(id, name) COLLECTIVE_PRICE_##id,
    COLLECTIVE_PRICES(X)
#undef X
        COLLECTIVE_PRICE_COUNT
};
const char *collective_price_name(enum collective_price from);

/* Nanoseconds, -1 where its messages price it; *from (may be NULL): what priced it. O(members + rows) and, once for each set of
 * members on several nodes, their messages on the network; O(1) where neither tables nor NCCL's model are there. */
int64_t collective_price_ns(struct cost *k, const struct program *p, const struct collective *c,
                            enum collective_price *from);
/* The same for devices of the cluster (n): a collective of so many bytes. */
int64_t collective_price_devices_ns(struct cost *k, enum collective_kind kind,
                                    enum collective_algorithm algorithm, const int32_t *device,
                                    int32_t n, int64_t bytes, enum collective_price *from);
/* What NCCL of this version does among these devices (n) with nobody beside them, whatever the cluster states. ERR_INPUT: NCCL's model does
 * not hold; says why. */
MUST_CHECK enum status collective_nccl(struct cost *k, const char *version,
                                       enum collective_kind kind, const int32_t *device, int32_t n,
                                       int64_t bytes, struct nccl_choice *out, struct error *err);

#endif
