/* profiles/skew.h - lateness of the last member of a collective (stragglers at synchronisation points), from traces of runs.
 *
 * Devices of a sharded stage synchronise often (core/collective/collective.h), and each time all wait for the last one. Times
 * vary from call to call, so the maximum of n members exceeds the member with the largest expected time. Over many
 * collectives this adds up, even if every operator takes its median.
 * Model: work W between two collectives varies with standard deviation `spread` · W on each of n devices, and the maximum of n is
 * expected ln((n - 3/8)/(5/8))/1.702 deviations above the middle (normal scores after Blom 1958, as in core/graph/op.h,
 * op_expert_excess). So a collective of n begins share(n) · W late; share(1) = 0.
 * Estimation: for each occasion, the member that is slowest on average over the *other* occasions is the expected last one. The
 * estimate is the excess of the actual last one, added up over all collectives, ÷ the time of the expected one. No occasion
 * is part of its own expectation, so two are enough.
 * An occasion in which a member worked more than ten times its median is left out: the clock jumped, or the process was stopped.
 * Discarded: a constant per collective (long work varies more than short work); the spread of single operators, whose
 * stragglers are rare and long, so that their deviations say little about the latest of four.
 */
#ifndef PROFILES_SKEW_H
#define PROFILES_SKEW_H

#include "profiles/profile.h"
#include "traces/trace.h"

struct arena;

/* Expected lateness of the last of n devices, as a share of the work since their last collective; 0 without a skew row. */
double skew_share(const struct profile *p, int32_t n);
/* Computes the profile's skew row from runs with collectives in at least two counted steps (or calls); without them it is
 * unchanged. O(spans log spans). */
void skew_learn(struct arena *a, struct trace *const *runs, size_t n_runs, const char *provenance,
                struct profile *p);

#endif
