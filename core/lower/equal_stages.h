/* core/lower/equal_stages.h - stages that differ in their devices only, of one plan or of several: lowered once, then copied.
 *
 * A stage is *equal* to a lowered one if everything that its slots, rings and procedures depend on is the same
 * (core/lower/stage_key.h). It then shares slots, operators, parameters and the instructions without numbers of channels or collectives;
 * it has its own rings, other instructions, ZeRO chunks (program_stage.own_chunk) and collectives, numbered as if it had been lowered
 * by itself. With a memo (lower_options.memo) stages are kept for the next lowerings, unless their graph is made for this one only.
 */
#ifndef CORE_LOWER_EQUAL_STAGES_H
#define CORE_LOWER_EQUAL_STAGES_H

#include "core/lower/lowering.h"

struct equal_stages; /* opaque: the stages lowered so far */
struct equal_stages *equal_stages_new(struct lowering *l);
/* Copies an equal stage, if one is known. O(key + instructions that name a channel or collective + groups). */
bool equal_stages_copy(struct equal_stages *x, struct stage_build *b);
/* Where the stage that was not known is to be lowered, so that it may be added. */
struct arena *equal_stages_arena(const struct equal_stages *x, const struct stage_build *b);
/* Adds the stage that was not known, once it is lowered. */
void equal_stages_add(struct equal_stages *x, const struct stage_build *b);

#endif
