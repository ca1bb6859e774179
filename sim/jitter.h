/* sim/jitter.h - run-to-run variation: random factors on the durations of operators and messages.
 *
 * Duration of an executed operator = cost × step × call × own:
 *   step   one factor for all of a device's step (clock, temperature, a neighbour), including stragglers and slow starts;
 *   call   one factor for one call of a procedure with one microbatch, shared by its operators;
 *   own    one factor for this execution of this operator.
 * Three levels, because independent noise of hundreds of operators averages out: real jobs vary by 1.7–3 % at the level of
 * a call, ten times what independent operators of equal variation would leave. A message and a hop of a collective each have
 * one factor, on their link's occupancy.
 * Separately from jitter, costs themselves are uncertain: `cost_error` is drawn once a sample and is equal for all executions
 * of an operator on a type within it.
 *
 * Law. X = 1 + cv (Z − E Z) / sd Z with Z log-normal of shape 0.6: mean 1, never below 1 − 1.52 cv (a kernel has a minimum
 * duration), tail to the right. Why 0.6: (p99 − p50) / (p95 − p50), which is independent of location and scale, is 1.86, 2.11
 * and 1.62 for the parameter gather, optimizer and embedding reduction of ByteDance's healthy job "SE" (StragglerAnalysis
 * traces, thousands of samples each), 1.81 for shape 0.6, but 1.41–1.44 for a normal or a log-normal of the same small CV. Above
 * CV 0.66 the floor is zero and the law is the plain log-normal. Steps and errors of costs have the plain log-normal.
 *
 * Draws are functions of (seed, sample, coordinates of the execution): Philox with the coordinates as its counter. Event order,
 * thread count and tracing do not change them.
 * Ownership: the arena's. A struct jitter is read-only after construction, so threads may share one.
 */
#ifndef SIM_JITTER_H
#define SIM_JITTER_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/program/program.h"
#include "profiles/profile.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stdint.h>

/* --- the law --- */

#define JITTER_SHAPE 0.6
/* A standard normal number as a factor of mean 1 and coefficient of variation cv >= 0. */
double jitter_factor(double cv, double normal);
/* The same for a plain log-normal, nearly symmetric for small cv. Used for steps, whose measured distribution in our runs
 * has no one-sided tail, and for errors of costs. */
double jitter_even_factor(double cv, double normal);
/* cv of the law whose 1.4826 · MAD / median is `spread` (profiles/fit.h): 1.373 × for small spreads, because MAD does not
 * see the tail. */
double jitter_cv_of_spread(double spread);

/* --- parameters --- */

/* ByteDance "SE": compute of a microbatch 1.7–3 % in healthy jobs (middle taken); point-to-point 12.4–13.3 %. */
#define JITTER_CALL_CV 0.024
#define JITTER_LINK_CV 0.13
/* Share of a type's operator variance that is common to a step; the rest is common to a call: 0.13–0.53 by
 * jitter_fit on three runs of the host executor (two types, 25 steps of 64 tokens × 8, a machine under load), median 0.27. */
#define JITTER_STEP_SHARE 0.25
/* Error of a duration known from the catalogue only: published analytical models are off by 13 % (Calculon on Megatron's SC'21
 * table) to 43 % (Calculon on vTrain's single nodes). */
#define JITTER_PRIOR_ERROR 0.25

struct jitter_type {
    double step_cv, call_cv;
    double common_cv; /* of the defaults: step and call together, as far as profile rows determine it */
    double own_cv[OP_KIND_COUNT];
    /* from traces: own_cv applies; otherwise an operator's own row in the profile takes precedence */
    bool fitted;
};
struct jitter_model {
    int32_t n_types, n_links;
    struct jitter_type *types; /* (n_types) of the cluster */
    double *link_cv;           /* (n_links) of the cluster */
    double hop_cv;             /* collectives */
    /* A device is slow for `straggler_steps` consecutive steps; `straggler_share` of all its steps are slow. */
    double straggler_share, straggler_factor;
    int32_t straggler_steps;
    /* factor on the first start_steps steps of a run; 1: none */
    double start_factor;
    int32_t start_steps;
    bool cost_error; /* draw the uncertainty of the costs themselves */
    /* CV of one factor of all operators in a sample: error of predictions for plans that were never run */
    double model_error;
};

/* Spread of profile rows, residuals of links; the constants above for anything not measured. No stragglers, no slow start.
 * Emulated links keep exact time. O(rows). */
void jitter_defaults(struct arena *a, const struct profile *p, const struct cluster *c,
                     struct jitter_model *out);
/* Parameters from the spans of runs: variance between steps of a device, between calls of a step, between operators of a call,
 * each without the contribution of the level below. A step more than 10 % and eight CVs above the device's median is a
 * straggler's; the first step against the rest is the slow start. *m holds defaults, which stay if spans are
 * missing. ERR_INPUT: a device type that the cluster does not have, no compute spans. O(spans log spans). */
MUST_CHECK enum status jitter_fit(const struct cluster *c, struct trace *const *runs, size_t n_runs,
                                  struct jitter_model *m, struct error *err);

/* --- bound to a program --- */

struct jitter; /* opaque */

/* ERR_INPUT if the profile has no cost of an operator. Keeps the pointers. */
MUST_CHECK enum status jitter_new(struct arena *a, const struct program *p, const struct profile *f,
                                  const struct cluster *c, const struct jitter_model *m,
                                  uint64_t seed, struct jitter **out, struct error *err);
/* The same with the draws of sample `sample`. O(unique operators). */
const struct jitter *jitter_sample(struct arena *a, const struct jitter *j, int64_t sample);

/* --- called by the engine --- */

/* Duration of operator `instr` (index into the ops of the stage; -1: several in one) in a call. chunk: the lane's stage by
 * ascending index. procedure: index in the stage. microbatch: -1 for U. */
int64_t jitter_op_ns(const struct jitter *j, int32_t lane, int32_t step, int32_t chunk,
                     int32_t procedure, int32_t microbatch, int32_t instr, int64_t ns);
int64_t jitter_message_ns(const struct jitter *j, int32_t channel, int64_t seq,
                          int64_t occupancy_ns);
/* hop: a number that identifies the hop in every run; part: step of the ring or chain. */
int64_t jitter_hop_ns(const struct jitter *j, int32_t hop, int32_t step, int32_t part, int64_t ns);

#endif
