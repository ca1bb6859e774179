/* profiles/calibrate.h - from the traces of runs to the next profile.
 *
 * In order: (1) each (type, key) seen in a run gets its own row "type:NAME": the median of its spans ÷ slowdown,
 * of an operator on experts the mean over all types of its base (whose layers' routers differ); (2) each type and
 * kind gets a factor: the median of run ÷ profile over its keys, so that operators not seen yet profit; (3) links with
 * measured (not emulated) traffic are fitted again from send spans; (4) where experts are chosen: how uneven their rows are, the
 * root of the mean over calls; (5) where stages are sharded: how late the last one comes to a collective (skew.h); (6) pace: the factor of all operators at which the
 * median of measured ÷ predicted iteration is 1, what (1)-(5) leave unexplained. Poisoned input: non-finite or non-positive spans are
 * dropped and counted; a factor outside 0.1 … 10 is an ERR_INPUT unless forced, but that of a kind with less than 1 % of its type's
 * time is not learned, and counted.
 */
#ifndef PROFILES_CALIBRATE_H
#define PROFILES_CALIBRATE_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "profiles/profile.h"
#include "traces/trace.h"

/* predict: simulated iteration of run i with a profile (the caller joins it with sim). */
typedef enum status calibrate_predict(void *user, size_t run, const struct profile *p,
                                      int64_t *iteration_ns, struct error *err);
/* The name of a run in provenance and calibrated_on: plan's name and iteration, by which it is known again. */
const char *calibrate_run_name(struct arena *a, const struct trace *t);
struct calibration {
    struct profile next;
    /* medians of |predicted − measured| ÷ measured over the runs given. error_after is of the very runs that were learned
     * from; error_after_held_out of each run predicted by what the runs of the other plans teach, NaN with one plan. */
    double error_before, error_after, error_after_held_out;
    int64_t spans_used, spans_dropped;
    int32_t n_kinds_left_out; /* kinds of a type whose factor nobody would believe, and that hardly take time */
    size_t n_seen_before; /* runs that the parent was calibrated on already */
};
MUST_CHECK enum status calibrate(struct arena *a, const struct profile *parent,
                                 const struct cluster *c, struct trace *const *runs, size_t n_runs,
                                 bool force, calibrate_predict *predict, void *user,
                                 struct calibration *out, struct error *err);

#endif
