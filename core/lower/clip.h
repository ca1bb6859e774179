/* core/lower/clip.h - gradient clipping by global norm (optimizer.max_grad_norm; Pascanu et al. 2013): each stage's sum of squares of its
 * reduced gradients, and the factor that its updates read.
 *
 * The sums are added over all devices of an island by the exchange of core/lower/scale.c. Every parameter counts once, whatever the plan:
 *   replicas      hold equal gradients; the first one of the island counts
 *   ZeRO          every shard counts; with hybrid_shard those of the first part
 *   sharded stage of the devices with one shard the first counts
 *   tied          the stage with the first use counts, which has the sum of both
 * A device whose gradients do not count has the same operators with attrs.blank, so that equal devices stay equal for the simulator.
 */
#ifndef CORE_LOWER_CLIP_H
#define CORE_LOWER_CLIP_H

#include "core/lower/lowering.h"

struct stage_scratch;
struct writer;

static inline bool lower_clips(const struct lowering *l) { return l->p->optimizer.max_grad_norm > 0; }
/* Slots of the stage's sum, of the sum over all devices where it arrives in another one, and of norm and factor. */
void lower_clip_slots(struct stage_scratch *h);
/* Adds the squares of the stage's gradients. Requires complete, exchanged gradients. O(uses · log(uses)). */
void lower_clip_look(struct writer *w);
/* Norm and factor, of the sum over all devices. */
void lower_clip_write(struct writer *w);
/* For core/lower/stage_key.c: whether the gradients of the stage's replica count; whether the parts of a ZeRO group whose squares a
 * stage adds depend on its place among the members, because of undefined padding or of parameters beside others that do not count. */
bool lower_clip_replica(const struct lowering *l, const struct stage_build *b);
bool lower_clip_by_member(const struct lowering *l, const struct stage_build *b, int32_t group);

#endif
