/* profiles/profile.h - one version of the cost model: operators on device types, messages on links.
 *
 * An operator's cost on a type is looked up in this order: its own measured row (by key); the fit of its kind
 * and orientation on that type, else of its kind (profiles/op_fits.h; seconds = constant + FLOPs/rate + bytes/bandwidth);
 * the catalogue's roofline, scaled by the median of measured ÷ roofline: of its kind and dtype, else of its kind, else of kinds
 * with the same bound (FLOPs or bytes), else of all. Emulated types use the rows of their base ("host"), multiplied by slowdown
 * and their own factor. Operators on a shard of the experts are priced at the expected largest shard, if calibration has
 * measured the imbalance. A profile is immutable once stored: calibration makes the next version, whose parent is this one.
 * Ownership: the arena's.
 */
#ifndef PROFILES_PROFILE_H
#define PROFILES_PROFILE_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/program/program.h"
#include "profiles/collective_table.h"
#include "profiles/link_model.h"
#include "profiles/op_prior.h"

#include <stdbool.h>
#include <stdint.h>

struct op_row { /* median of samples of one operator on one base type */
    /* catalogue id ("host"), or "type:NAME" for a type of the cluster, which takes precedence */
    const char *base;
    uint64_t key;
    enum op_kind kind;
    enum dtype dtype;
    double flops, bytes; /* from the operator table, for fits */
    const char *text;    /* op_key_text */
    double seconds;      /* median, at slowdown 1 */
    double spread;       /* relative, 1.4826 · MAD / median */
    int32_t samples;
    const char *provenance; /* "profile" (micro-benchmark) or "run:<trace file's plan name>" */
};
struct op_fit {
    const char *base;
    enum op_kind kind;
    enum dtype dtype;
    double constant_s, s_per_flop, s_per_byte, residual;
    double min_flops, max_flops;
    int32_t rows;
    int32_t orientation; /* of `oriented`: the transposed operand, 1 or 2; 0: none */
};
struct op_scale { /* median of measured ÷ roofline over rows of one base; derived, not stored */
    const char *base;
    int32_t kind;  /* enum op_kind; -1: every kind bound by FLOPs, -2: by bytes, -3: every kind */
    int32_t dtype; /* -1: every dtype */
    double scale;
};
struct link_row {
    const char *name;
    struct link_model model;
};
/* from calibration: multiplies an operator's seconds on a type of the cluster */
struct factor_row {
    const char *type; /* type name or "*" */
    int32_t kind;     /* enum op_kind or -1: every kind without a row of its own */
    double factor;
    int32_t samples;
    const char *provenance;
};

/* from calibration: imbalance of MoE routing (core/graph/op.h, op_expert_excess) */
struct routing_row {
    const char *name; /* "experts" */
    double spread;
    int32_t samples; /* calls of gating */
    const char *provenance;
};

/* from calibration: lateness of the last member of a collective (profiles/skew.h) */
struct skew_row {
    const char *name; /* "collectives" */
    double
        spread; /* of the work between two collectives: standard deviation ÷ mean, as far as it delays other members */
    int32_t samples; /* collectives seen */
    const char *provenance;
};

struct profile {
    int64_t id, parent; /* 0: the prior; not stored */
    const char *cluster, *machine, *note, *calibrated_on;
    uint64_t cluster_hash;
    size_t n_ops, n_fits, n_links, n_factors, n_scales;
    /* sorted by (base, key), by profile_sort: a lookup is then O(log n_ops), else O(n_ops) */
    bool ops_sorted;
    struct op_row *ops; /* a (base, key) at most once */
    struct op_fit *fits;
    struct link_row *links;
    struct factor_row *factors;
    struct op_scale *scales;
    size_t n_collectives;
    /* sorted (collective_table_sort); they take precedence over NCCL's model */
    struct collective_row *collectives;
    size_t n_routings; /* 0: balanced routing; or 1 */
    struct routing_row *routings;
    size_t n_oriented; /* fits of a kind's rows of one orientation; they take precedence over the kind's */
    struct op_fit *oriented;
    size_t n_skews; /* 0: no lateness; or 1 */
    struct skew_row *skews;
    size_t n_priors;
    struct op_prior *priors; /* by base, in place of the catalogue's; not stored */
    /* multiplies every operator's time in a simulation (sim/cost), never a message's: the ratio of measured to explained
     * iteration, found by calibration; 1 = none */
    double pace;
};

/* Costs from catalogue and cluster.yaml alone. ERR_INPUT: unknown catalogue id, link without bandwidth (by name). */
MUST_CHECK enum status profile_prior(struct arena *a, const struct cluster *c, struct profile *out,
                                     struct error *err);
void profile_sort(struct profile *p);
const struct op_row *profile_row(const struct profile *p, const char *base,
                                 uint64_t key); /* NULL if there is none */
/* Current slowdown of a device: the median of seconds[i] ÷ the profile's row, over the keys with a row. The median ignores
 * single disturbed operators. 0 if fewer than 4 keys have rows. n <= PROFILE_ANCHORS. */
enum { PROFILE_ANCHORS = 16 };
double profile_pace_now(const struct profile *p, const char *base, const uint64_t *keys,
                        const double *seconds, size_t n);
/* Whether it was measured on exactly the base devices of the cluster that this build can measure. */
bool profile_serves(const struct profile *p, const struct cluster *c);
/* Sorts the op rows and computes the scales of the catalogue's prior from them. */
void profile_scale_prior(struct arena *a, struct profile *p);
/* Replaces or adds the link's row. */
void profile_set_link(struct arena *a, struct profile *p, const char *name,
                      const struct link_model *m);
/* Robust alpha-beta fit from samples of (bytes, seconds) of one link; replaces the link's row. */
MUST_CHECK enum status profile_fit_link(struct arena *a, struct profile *p, const char *name,
                                        const int64_t *bytes, const double *seconds, size_t n,
                                        struct error *err);

/* Cost of an operator on device type `type` of cluster c: seconds with slowdown and factors applied; 0 for an empty shard without
 * output. *source: origin of the value.
 * ERR_INPUT: unknown catalogue id, or the catalogue has no source for a rate that the prior needs. */
MUST_CHECK enum status
profile_op_seconds(const struct profile *p, const struct cluster *c, int32_t type,
                   enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                   enum dtype t, uint64_t key, double *out, enum source *source, struct error *err);
/* Host seconds to launch an operator's kernels on a device type (profiles/op_prior.h); 0 if the profile has no launch time. */
double profile_issue(const struct profile *p, const struct cluster *c, int32_t type,
                     enum op_kind kind, const struct op_attrs *attrs,
                     const struct op_shapes *shapes);
/* The ends of messages: device types, and of stages on several GPUs (profiles/measured.h) their numbers of GPUs, and how many of them
 * send or receive at a time. */
struct link_ends {
    int32_t type[2], gpus[2], at_once;
};
static inline struct link_ends link_ends_of(int32_t type, int32_t other)
{
    return (struct link_ends){{type, other}, {1, 1}, 1};
}
/* Model of a cluster link between two devices of these types: for a link of every two devices without a bandwidth, their measured
 * curve; otherwise as profile_link. */
MUST_CHECK enum status profile_link_of(const struct profile *p, const struct cluster *c,
                                       int32_t link, const struct link_ends *ends,
                                       struct link_model *out, struct error *err);
/* Model of link `link` of the cluster: the profile's if it was measured, else as the cluster states it. */
/* Of copies between a device and page-locked host memory, each direction: stated, else wire_efficiency of the catalogue's PCIe bandwidth.
 * ERR_INPUT: neither is known. */
MUST_CHECK enum status profile_host_bandwidth(const struct profile *p, const struct device_type *t, double *out_Bps, struct error *err);
MUST_CHECK enum status profile_link(const struct profile *p, const struct cluster *c, int32_t link,
                                    struct link_model *out, struct error *err);

#endif
