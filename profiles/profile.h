/* profiles/profile.h - one version of the costs: what an operator takes on a device type, a message on a link.
 *
 * An operator's cost on a type is looked up in this order: its own measured row (by key); the fit of its kind
 * and orientation on that type, else of its kind (profiles/op_fits.h; seconds = constant + FLOPs/rate + bytes/bandwidth);
 * the catalogue's roofline, scaled by what measured operators took of theirs: those of its kind and dtype, else of its kind, else of kinds bound alike (by FLOPs or by bytes),
 * else of all. Emulated types
 * share the rows of their base ("host") and multiply by slowdown and by their own factor. Operators on a shard of the experts
 * take as long as on the part that is expected to be fullest, where calibration has seen how uneven parts are. A profile is immutable once
 * stored: calibration makes the next version, whose parent is this one.
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
    /* catalogue id ("host"), or "type:NAME" for a type of the cluster, which goes first */
    const char *base;
    uint64_t key;
    enum op_kind kind;
    enum dtype dtype;
    double flops, bytes; /* of the table, for fits */
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
    int32_t orientation; /* of `oriented`: the operand that is transposed, 1 or 2; 0: none */
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
/* learned by calibration: multiplies an operator's seconds on a type of the cluster */
struct factor_row {
    const char *type; /* type name or "*" */
    int32_t kind;     /* enum op_kind or -1: every kind without a row of its own */
    double factor;
    int32_t samples;
    const char *provenance;
};

/* learned by calibration: how unevenly experts are chosen (core/graph/op.h, op_expert_excess) */
struct routing_row {
    const char *name; /* "experts" */
    double spread;
    int32_t samples; /* calls of gating */
    const char *provenance;
};

/* learned by calibration: how much devices that meet wait for the one that is late (profiles/skew.h) */
struct skew_row {
    const char *name; /* "collectives" */
    double
        spread; /* of the work between two collectives: standard deviation ÷ mean, as far as others wait for it */
    int32_t samples; /* collectives seen */
    const char *provenance;
};

struct profile {
    int64_t id, parent; /* 0: the prior; not stored */
    const char *cluster, *machine, *note, *calibrated_on;
    uint64_t cluster_hash;
    size_t n_ops, n_fits, n_links, n_factors, n_scales;
    /* by (base, key), by profile_sort: then a lookup is O(log n_ops), else O(n_ops) */
    bool ops_sorted;
    struct op_row *ops; /* a (base, key) at most once */
    struct op_fit *fits;
    struct link_row *links;
    struct factor_row *factors;
    struct op_scale *scales;
    size_t n_collectives;
    /* sorted (collective_table_sort); they override NCCL's model */
    struct collective_row *collectives;
    size_t n_routings; /* 0: rows are even; or 1 */
    struct routing_row *routings;
    size_t n_oriented; /* fits of a kind's rows of one orientation; they go before the kind's */
    struct op_fit *oriented;
    size_t n_skews; /* 0: nobody is late; or 1 */
    struct skew_row *skews;
    size_t n_priors;
    struct op_prior *priors; /* by base, in the catalogue's place; made, not stored */
    /* multiplies every operator's time in a simulation (sim/cost), never a message's: what a whole iteration takes
     * beyond what the rows explain, sought by calibration; 1 = none */
    double pace;
};

/* Costs from catalogue and cluster.yaml alone. ERR_INPUT: unknown catalogue id, link without bandwidth (names it). */
MUST_CHECK enum status profile_prior(struct arena *a, const struct cluster *c, struct profile *out,
                                     struct error *err);
void profile_sort(struct profile *p);
const struct op_row *profile_row(const struct profile *p, const char *base,
                                 uint64_t key); /* NULL where there is none */
/* How many times as long operators that the profile knows take now: the median of seconds[i] ÷ the row's, which no operator that
 * had a bad moment moves. 0 where fewer than 4 are known. n <= PROFILE_ANCHORS. */
enum { PROFILE_ANCHORS = 16 };
double profile_pace_now(const struct profile *p, const char *base, const uint64_t *keys,
                        const double *seconds, size_t n);
/* Whether it was measured on the base devices of the cluster, all that this build can measure and no others. */
bool profile_serves(const struct profile *p, const struct cluster *c);
/* Sorts the op rows and makes the scales of the catalogue's prior from them. */
void profile_scale_prior(struct arena *a, struct profile *p);
/* The link's row, replaced or new. */
void profile_set_link(struct arena *a, struct profile *p, const char *name,
                      const struct link_model *m);
/* Robust alpha-beta fit from samples of (bytes, seconds) of one link; replaces the link's row. */
MUST_CHECK enum status profile_fit_link(struct arena *a, struct profile *p, const char *name,
                                        const int64_t *bytes, const double *seconds, size_t n,
                                        struct error *err);

/* Cost of an operator on device type `type` of cluster c: seconds with slowdown and factors applied, 0 where its share is empty and
 * it makes nothing; *source says from where.
 * ERR_INPUT: unknown catalogue id, or the catalogue has no source for a rate that the prior needs. */
MUST_CHECK enum status
profile_op_seconds(const struct profile *p, const struct cluster *c, int32_t type,
                   enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                   enum dtype t, uint64_t key, double *out, enum source *source, struct error *err);
/* Host seconds to issue an operator's kernels on a device type (profiles/op_prior.h); 0 where nobody said that the host is
 * in the way. */
double profile_issue(const struct profile *p, const struct cluster *c, int32_t type,
                     enum op_kind kind, const struct op_attrs *attrs,
                     const struct op_shapes *shapes);
/* Model of link `link` of the cluster: profile's where it was measured, else as the cluster states it. */
/* The same for two devices of these types: where the link is one of every two devices and has no bandwidth, their curve. */
MUST_CHECK enum status profile_link_of(const struct profile *p, const struct cluster *c,
                                       int32_t link, int32_t type, int32_t other,
                                       struct link_model *out, struct error *err);
MUST_CHECK enum status profile_link(const struct profile *p, const struct cluster *c, int32_t link,
                                    struct link_model *out, struct error *err);

#endif
