/* sim/jitter.h - why no two steps take the same time: random factors on what operators and messages cost.
 *
 * An executed operator takes  cost × step × call × own:
 *   step   one factor for a device's whole step (clock, heat, a neighbour), times what stragglers and slow starts add;
 *   call   one factor for one call of a procedure with one microbatch, shared by its operators;
 *   own    one factor for this execution of this operator.
 * Three levels because independent noise of hundreds of operators averages out: real jobs show 1.7–3 % at the level of a
 * call, which independent operators of as much each would shrink tenfold. A message and a hop of a collective have one
 * factor each, on the occupancy of their link.
 * Apart from jitter, costs themselves are known only so well: `cost_error` is drawn once a sample and is the same for all
 * executions of an operator on a type in it.
 *
 * Law. X = 1 + cv (Z − E Z) / sd Z with Z log-normal of shape 0.6: mean 1, never below 1 − 1.52 cv (a kernel has a least
 * time), tail to the right. Why 0.6: (p99 − p50) / (p95 − p50), which knows neither place nor scale, is 1.86, 2.11 and
 * 1.62 for the parameter gather, optimizer and embedding reduction of ByteDance's healthy job "SE" (StragglerAnalysis
 * traces, thousands of samples each), 1.81 for shape 0.6, but 1.41–1.44 for a normal or a log-normal of the same small CV. Above
 * CV 0.66 the floor is zero and the law is the plain log-normal. Steps and errors of costs have the plain log-normal.
 *
 * Draws are functions of (seed, sample; what is executed): Philox with the coordinates as its counter. No order of events,
 * no number of threads and no trace changes them.
 * Ownership: the arena's. A struct jitter is never written after it was made, so threads may share one.
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
/* The same for a plain log-normal, nearly even for small cv: for steps, which on our own runs had no tail to one side, and for
 * errors of costs. */
double jitter_even_factor(double cv, double normal);
/* cv of the law whose 1.4826 · MAD / median is `spread` (profiles/fit.h): 1.373 × for small spreads, because that median
 * misses the tail. */
double jitter_cv_of_spread(double spread);

/* --- parameters --- */

/* ByteDance "SE": compute of a microbatch 1.7–3 % in healthy jobs (middle taken); point-to-point 12.4–13.3 %. */
#define JITTER_CALL_CV 0.024
#define JITTER_LINK_CV 0.13
/* Of what all operators of a type vary by, so much of the variance is common to a step, the rest to a call: 0.13–0.53 by
 * jitter_fit on three runs of the host executor (two types, 25 steps of 64 tokens × 8, a machine under load), median 0.27. */
#define JITTER_STEP_SHARE 0.25
/* Of a time that only the catalogue states: analytical models of others miss by 13 % (Calculon on Megatron's SC'21
 * table) to 43 % (Calculon on vTrain's single nodes). */
#define JITTER_PRIOR_ERROR 0.25

struct jitter_type {
    double step_cv, call_cv;
    double common_cv; /* of the defaults: both together, as far as rows tell */
    double own_cv[OP_KIND_COUNT];
    /* from traces: then own_cv rules; else an operator's own row in the profile goes first */
    bool fitted;
};
struct jitter_model {
    int32_t n_types, n_links;
    struct jitter_type *types; /* (n_types) of the cluster */
    double *link_cv;           /* (n_links) of the cluster */
    double hop_cv;             /* collectives */
    /* A device is slow for `straggler_steps` steps on end, so often that `straggler_share` of all its steps are slow. */
    double straggler_share, straggler_factor;
    int32_t straggler_steps;
    /* the first start_steps steps of a run take so many times as long; 1: no more */
    double start_factor;
    int32_t start_steps;
    bool cost_error; /* draw how well the costs themselves are known */
    /* CV of one factor of all operators in a sample: how far off predictions of plans never run are */
    double model_error;
};

/* Profile rows' spread, links' residuals; the constants above where nothing was measured. No stragglers, no slow start.
 * Emulated links keep exact time. O(rows). */
void jitter_defaults(struct arena *a, const struct profile *p, const struct cluster *c,
                     struct jitter_model *out);
/* Parameters from the spans of runs, where they tell: variance between steps of a device, between calls of a step, between
 * operators of a call, each freed of what the level below brings in; a step more than 10 % and eight CVs above the device's
 * median is a straggler's; the first step against the rest is the slow start. *m holds defaults and keeps them where
 * spans are missing. ERR_INPUT: a device type that the cluster does not have, no compute spans. O(spans log spans). */
MUST_CHECK enum status jitter_fit(const struct cluster *c, struct trace *const *runs, size_t n_runs,
                                  struct jitter_model *m, struct error *err);

/* --- bound to a program --- */

struct jitter; /* opaque */

/* ERR_INPUT where the profile has no cost of an operator. Keeps the pointers. */
MUST_CHECK enum status jitter_new(struct arena *a, const struct program *p, const struct profile *f,
                                  const struct cluster *c, const struct jitter_model *m,
                                  uint64_t seed, struct jitter **out, struct error *err);
/* The same with the draws of sample `sample`. O(unique operators). */
const struct jitter *jitter_sample(struct arena *a, const struct jitter *j, int64_t sample);

/* --- what the engine asks --- */

/* Time of operator `instr` (index into the ops of the stage; -1: several in one) in a call. chunk: which of the lane's stages,
 * in order of index. procedure: index in the stage. microbatch: -1 for U. */
int64_t jitter_op_ns(const struct jitter *j, int32_t lane, int32_t step, int32_t chunk,
                     int32_t procedure, int32_t microbatch, int32_t instr, int64_t ns);
int64_t jitter_message_ns(const struct jitter *j, int32_t channel, int64_t seq,
                          int64_t occupancy_ns);
/* hop: any number that tells hops apart and is the same in every run; part: the ring's or chain's step. */
int64_t jitter_hop_ns(const struct jitter *j, int32_t hop, int32_t step, int32_t part, int64_t ns);

#endif
