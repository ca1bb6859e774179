/* sim/cost.h - the only interface from sim to profiles: durations in whole nanoseconds, rounded once, cached by key. */
#ifndef SIM_COST_H
#define SIM_COST_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/program/program.h"
#include "profiles/profile.h"

struct cost; /* opaque; keeps pointers to the profile and the cluster, caches (type, key) */

struct cost *cost_new(struct arena *a, const struct profile *p, const struct cluster *c);
/* Nanoseconds of an operator (no message) on a device type, >= 0, including the profile's pace. ERR_INPUT: unknown type, a time
 * that is not finite, negative or beyond COST_MAX_NS. O(1) when cached. */
MUST_CHECK enum status cost_op(struct cost *k, int32_t type, const struct program_op *op,
                               int64_t *out_ns, struct error *err);
/* Host nanoseconds to launch the operator's kernels (profiles/op_prior.h); 0 if launches are never the bottleneck. */
int64_t cost_issue(const struct cost *k, int32_t type, const struct program_op *op);
/* Expected lateness of the last of n members of a collective after work_ns since their last one; 0 if calibration has seen no
 * collectives (profiles/skew.h). At most COST_MAX_NS. */
int64_t cost_late_ns(const struct cost *k, int32_t n, int64_t work_ns);
/* What the profile's tables of collectives say (sim/collective/price.h has the rule); -1: none holds. */
int64_t cost_collective_ns(const struct cost *k, enum collective_kind kind,
                           enum collective_algorithm algorithm, const char *device,
                           int32_t n_ranks, int32_t n_nodes, int64_t bytes);
/* The profile has a table, or the cluster states an NCCL version: collectives may take less than their messages on the links. */
bool cost_prices_collectives(const struct cost *k);
/* A number under a key, for prices that are made of others (sim/collective/price.c). O(1). */
bool cost_recall(const struct cost *k, uint64_t key, int64_t *out);
void cost_remember(struct cost *k, uint64_t key, int64_t value);
const struct cluster *cost_cluster(const struct cost *k);
struct cost_link {
    double bandwidth_Bps;
    int64_t latency_ns;
    const struct link_model *curve; /* bandwidth by size, owned by the cost; NULL: bandwidth is constant */
};
MUST_CHECK enum status cost_link(struct cost *k, int32_t link, struct cost_link *out,
                                 struct error *err);
/* The same between two ends (order does not matter): a link of every two devices is priced by both. */
MUST_CHECK enum status cost_link_of(struct cost *k, int32_t link, const struct link_ends *ends,
                                    struct cost_link *out, struct error *err);
/* Of a program link that is no route; index: its position. */
MUST_CHECK enum status cost_program_link(struct cost *k, const struct program_link *l,
                                         int32_t index, struct cost_link *out, struct error *err);
/* The same of any program link. A route has the bandwidth of its slowest hop and the sum of all latencies. */
MUST_CHECK enum status cost_path(struct cost *k, const struct program_link *l, int32_t index,
                                struct cost_link *out, struct error *err);
/* The cluster's link of this name (index hint is tried first); -1 if there is none. */
int32_t cost_link_index(struct cost *k, int32_t hint, const char *name);
int64_t cost_occupancy_ns(const struct cost_link *l,
                          int64_t bytes); /* bytes ÷ bandwidth; at most COST_MAX_NS */
/* One copy between a device of the type and page-locked host memory, in either direction. ERR_INPUT: no bandwidth is known. */
MUST_CHECK enum status cost_host_copy_ns(struct cost *k, int32_t type, int64_t bytes, int64_t *out, struct error *err);
int64_t cost_profile_id(const struct cost *k);
const struct device_type *cost_type(const struct cost *k, int32_t type); /* of the cluster */
int32_t cost_types(const struct cost *k); /* device types of the cluster */

/* Ten years: the longest operator or message, so that sums of several stay far inside int64. */
#define COST_MAX_NS ((int64_t)315360000 * 1000000000)

#endif
