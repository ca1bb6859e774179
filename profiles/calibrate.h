/* profiles/calibrate.h - calibration: the next profile version from the traces of runs.
 *
 * In order: (1) each (type, key) of a run gets its own row "type:NAME": the median of its spans ÷ slowdown; for an operator on
 * experts the mean over all types with its base, because the routers of their layers differ. (2) Each type and
 * kind gets a factor, the median of run ÷ profile over its keys, which also corrects operators without measurements. (3) Links
 * with measured (not emulated) traffic are fitted again from send spans. (4) Expert imbalance of MoE routing: root of the mean
 * over calls. (5) Sharded stages: lateness of the last member of a collective (skew.h). (6) pace: the factor of all operators at
 * which the median of measured ÷ predicted iteration is 1; it covers what (1)-(5) leave unexplained.
 * Invalid input: non-finite or non-positive spans are dropped and counted; ERR_INPUT if most operators of a run have such ones. Unless forced, no coefficient moves by more than a factor
 * of 10: a factor of a kind with at least 1 % of its type's time, a link, an iteration that contradicts the ends of its steps, or one
 * that operators and messages do not explain is ERR_INPUT, because the run is of another machine or in another unit; a row of an
 * operator with work, the factor of another kind, a spread of experts or collectives is left out and counted, because one
 * disturbed operator says nothing of the others. Outliers among spans count little, because rows are medians.
 */
#ifndef PROFILES_CALIBRATE_H
#define PROFILES_CALIBRATE_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "profiles/profile.h"
#include "traces/trace.h"

/* predict: simulated iteration of run i with a profile (a callback, because profiles/ cannot include sim/). */
typedef enum status calibrate_predict(void *user, size_t run, const struct profile *p,
                                      int64_t *iteration_ns, struct error *err);
/* Identifies a run in provenance and calibrated_on: plan name and iteration. */
const char *calibrate_run_name(struct arena *a, const struct trace *t);
struct calibration {
    struct profile next;
    /* medians of |predicted − measured| ÷ measured over the runs. error_after is the training error, on the calibration runs;
     * error_after_held_out predicts each run from the runs of the other plans (cross-validation), NaN with one plan. */
    double error_before, error_after, error_after_held_out;
    int64_t spans_used, spans_dropped;
    int32_t n_rows_left_out;  /* operators and spreads that moved by more than a factor of 10 */
    int32_t n_kinds_left_out; /* kinds with an implausible factor and a negligible share of the time */
    size_t n_seen_before; /* runs on which the parent was already calibrated */
};
MUST_CHECK enum status calibrate(struct arena *a, const struct profile *parent,
                                 const struct cluster *c, struct trace *const *runs, size_t n_runs,
                                 bool force, calibrate_predict *predict, void *user,
                                 struct calibration *out, struct error *err);

#endif
