/* sim/collective/price.h - the duration of a whole collective from a measured table or from NCCL's cost model, where one of them applies.
 *
 * The first source that applies is used:
 * 1. A measured table of the profile. It applies to collectives of its kind with the same number of ranks and of nodes (the same
 *    number of ranks on each), to sizes between its smallest and its largest, and to real devices that are all of its device
 *    type. A table that names an algorithm applies to that algorithm only and takes precedence; a table without one applies to
 *    whatever a collective library does in one call (collective_native).
 * 2. NCCL's cost model (profiles/nccl.h) of the version that the cluster states (`nccl: 2.28.9`). It applies to what NCCL does in
 *    one call (collective_native; NCCL chooses the algorithm), among real GPUs of one type,
 *    the same number on each node. The model knows no other traffic, so over several nodes it applies only
 *    if the members keep their bandwidth while all other devices of those nodes send too. Bandwidth between nodes is that of the
 *    cluster's links; inside a node it is NVLink or PCIe of the catalogue's GPU, not the links of the file.
 * 3. Otherwise the collective is simulated message by message on the links (link model).
 * Sizes are those of core/collective/algorithm.h; with RING, unequal shards all count as the longest.
 * A priced collective (1, 2) starts on all members when the last one arrives and ends on all of them after its price. It occupies
 * no link: it neither slows down other traffic nor is slowed by it, and a link's compute_slowdown does not apply to it.
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

/* Nanoseconds; -1: simulate its messages instead. *from (may be NULL): the source of the price. O(members + rows) and, once for each set of
 * members on several nodes, their messages on the network; O(1) without tables and without NCCL's model. */
int64_t collective_price_ns(struct cost *k, const struct program *p, const struct collective *c,
                            enum collective_price *from);
/* The same for devices of the cluster (n): a collective of this many bytes. */
int64_t collective_price_devices_ns(struct cost *k, enum collective_kind kind,
                                    enum collective_algorithm algorithm, const int32_t *device,
                                    int32_t n, int64_t bytes, enum collective_price *from);
/* NCCL's choice and its duration for this version among these devices (n) without other traffic, whatever version the cluster
 * states. ERR_INPUT: NCCL's model does not apply; the message says why. */
MUST_CHECK enum status collective_nccl(struct cost *k, const char *version,
                                       enum collective_kind kind, const int32_t *device, int32_t n,
                                       int64_t bytes, struct nccl_choice *out, struct error *err);

#endif
