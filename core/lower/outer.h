/* core/lower/outer.h - local SGD: the groups that add the islands' changes of the parameters, and the procedures behind U. */
#ifndef CORE_LOWER_OUTER_H
#define CORE_LOWER_OUTER_H

#include "core/lower/groups.h"

struct writer;

static inline bool lower_is_local(const struct lowering *l) { return l->plan->local_sgd.outer.every > 0; }
/* Anchor and velocity: 0 without local SGD. */
int32_t lower_outer_states(const struct lowering *l);
/* Of the replica's part of all samples: what a stage's gradients are multiplied by, so that an island's sum is the mean over its own
 * samples; 1 without local SGD. */
double lower_outer_loss_factor(const struct stage_build *b, const struct lowering *l);
/* The group over all islands for the uses of a bucket; of a tied parameter for the first use only, the other one receives the result by the
 * tied exchange. Of several devices of a replica with one shard the first contributes. */
MUST_CHECK enum status lower_outer_group(struct lowering *l, struct group_plan plan, int32_t key,
                                         const char *name, struct error *err);
/* The stage's procedures "delta" and "outer". */
void lower_outer_procedures(struct writer *w);

#endif
