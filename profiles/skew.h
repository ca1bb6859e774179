/* profiles/skew.h - how late the last device comes to a collective, from traces of runs.
 *
 * Devices of a sharded stage meet often (core/collective/collective.h) and then all wait for the last one. No device takes the same time
 * twice, so the last one is later than the one that is expected to be last: over many collectives that adds up, though every
 * operator takes what its median says.
 * Model: work W between two collectives varies by `spread` · W from time to time at each of n devices, and the latest of n is
 * expected ln((n - 3/8)/(5/8))/1.702 deviations after the middle (normal scores after Blom 1958, as in core/graph/op.h,
 * op_expert_excess). So a collective of n begins share(n) · W late; share(1) = 0.
 * Learned: at each occasion who is slowest in the mean of the *other* occasions is taken as the one expected; what the really
 * latest took more, summed over all collectives, by what the expected one took. No occasion judges itself, so two are enough.
 * Discarded: a constant for each collective (long work varies more than short work); the spread of single operators, whose
 * stragglers are rare and long, so that their deviations say little about the latest of four.
 */
#ifndef PROFILES_SKEW_H
#define PROFILES_SKEW_H

#include "profiles/profile.h"
#include "traces/trace.h"

struct arena;

/* Expected lateness of the last of n devices, as a share of the work since they last met; 0 where the profile knows of none. */
double skew_share(const struct profile *p, int32_t n);
/* Makes the profile's skew row from runs with collectives at least two steps (or calls) of which count; else leaves it as it is.
 * O(spans log spans). */
void skew_learn(struct arena *a, struct trace *const *runs, size_t n_runs, const char *provenance,
                struct profile *p);

#endif
