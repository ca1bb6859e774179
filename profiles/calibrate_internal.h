/* profiles/calibrate_internal.h - shared by profiles/calibrate*.c. */
#ifndef PROFILES_CALIBRATE_INTERNAL_H
#define PROFILES_CALIBRATE_INTERNAL_H

#include "core/base/arena.h"
#include "profiles/calibrate.h"

#include <stdbool.h>

struct sample {   /* one span */
    int32_t type; /* of the cluster */
    uint64_t key;
    enum op_kind kind;
    double seconds; /* at slowdown 1 */
    int64_t bytes;
};
struct ratio { /* of one (type, key): run ÷ the base's row */
    int32_t type;
    enum op_kind kind;
    double value, seconds; /* seconds: of all its spans, at slowdown 1 */
    bool left_out;         /* implausible, with a negligible share of the time */
};
/* A coefficient that moves by more than this factor is not credible: the run is of another machine, in another unit, or disturbed. */
static const double credible_most = 10;
static inline bool calibrate_credible(double ratio) { return ratio <= credible_most && ratio >= 1 / credible_most; }

struct calibrating {
    struct arena *a, *scratch;
    const struct profile *parent;
    const struct cluster *cluster;
    struct trace *const *runs;
    const size_t *index; /* of each run among the caller's; NULL: identity */
    size_t n_runs;
    const char *provenance;
    bool force; /* coefficients that are not credible are taken as they are */
    struct calibration *out;
    struct error *err;
    size_t n_samples, sample_capacity, n_ratios, ratio_capacity, row_capacity, factor_capacity;
    struct sample *samples;
    struct ratio *ratios;
};

/* From the ratios: a factor for each type and kind; the parent's if none of its keys ran. ERR_INPUT for an implausible factor
 * unless forced; for a kind with a negligible share of the time it is left out instead, also of the medians over kinds. */
MUST_CHECK enum status calibrate_factors(struct calibrating *s);
/* Links of a cluster that is not emulated. ERR_INPUT for one whose messages are not credible, unless forced. */
MUST_CHECK enum status calibrate_links(struct calibrating *s);

#endif
