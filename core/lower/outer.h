/* core/lower/outer.h - local SGD: the groups that add the islands' changes of the parameters, and the procedures behind U. */
#ifndef CORE_LOWER_OUTER_H
#define CORE_LOWER_OUTER_H

#include "core/lower/groups.h"
#include "core/program/period.h"

struct stage_scratch;
struct writer;

static inline bool lower_is_local(const struct lowering *l) { return l->plan->local_sgd.outer.every > 0; }
/* Anchor, velocity, sum of a delayed exchange: how many of them a parameter has, 0 without local SGD; which of these the k-th of
 * program_parameter.outer is, -1: it has none. */
int32_t lower_outer_states(const struct lowering *l);
int32_t lower_outer_place(const struct lowering *l, int k);
/* core/lower/fragments.c: divides the layers into the plan's number of intervals, none without parameters, so that the largest one has as
 * few elements as possible. ERR_INPUT: more of them than layers with parameters. O(layers · log(elements)). */
MUST_CHECK enum status lower_fragments(struct lowering *l, struct error *err);
/* In whose turn the parameter of a use is exchanged. */
int32_t lower_outer_fragment(const struct lowering *l, int32_t param_use);
/* Steps of an update of the stage's island (period_of_update); 1 without local SGD. */
static inline int32_t lower_outer_steps(const struct lowering *l, const struct stage_build *b)
{
    return period_of_update(&l->plan->local_sgd.outer, plan_island(l->plan, b->replica));
}
/* What a stage's gradients are multiplied by, so that an island's sum over the steps of an update is the mean over its own samples of these
 * steps; 1 without local SGD. */
double lower_outer_loss_factor(const struct stage_build *b, const struct lowering *l);
/* A group over all islands for the uses of a bucket in each fragment; of a tied parameter for the first use only, the other one receives the result by the
 * tied exchange. Of several devices of a replica with one shard the first contributes. */
MUST_CHECK enum status lower_outer_group(struct lowering *l, struct group_plan plan, int32_t key,
                                         const char *name, struct error *err);
/* With ZeRO: of the groups of all islands, `first` and those behind it, the i-th members have equal shards; each such set is a group over all
 * islands. None for the second use of a tied parameter, whose shard is the first one's. */
MUST_CHECK enum status lower_outer_shard_groups(struct lowering *l, struct group_plan plan, int32_t first, const char *name,
                                                struct error *err);
/* The slot that a group over all islands adds, for a use's gradient. */
int32_t lower_outer_segment(const struct stage_scratch *h, int32_t gradient);
/* The stage's procedures "delta", with a delay "sum", and "outer" of each fragment; of fragments that the stage does not have they are
 * empty. */
void lower_outer_procedures(struct writer *w);
/* Their calls behind U: how many a chunk has, 0 without local SGD, and the place of the k-th one's procedure among them. */
int32_t lower_outer_calls(const struct lowering *l);
int32_t lower_outer_call(const struct lowering *l, int32_t k);

#endif
