/* core/lower/equal_stages.h - stages that differ in their devices only: lowered once, then copied.
 *
 * A stage is *equal* to a lowered one if everything that its slots, rings and procedures depend on is the same: its view, layers and
 * settings, its calls, what it sends and receives, its gradient groups and their launches, up to the numbers of channels and
 * collectives and its member indices. It then shares slots, operators, parameters and the instructions without such numbers; it has its
 * own rings, other instructions, ZeRO chunks (program_stage.own_chunk) and collectives, numbered as if it had been lowered by itself.
 */
#ifndef CORE_LOWER_EQUAL_STAGES_H
#define CORE_LOWER_EQUAL_STAGES_H

#include "core/lower/lowering.h"

struct equal_stages; /* opaque: the stages lowered so far */
struct equal_stages *equal_stages_new(struct lowering *l);
/* Copies an equal stage, if one is known. O(instructions that name a channel or collective + groups). */
bool equal_stages_copy(struct equal_stages *x, struct stage_build *b);
/* Adds a lowered stage. */
void equal_stages_add(struct equal_stages *x, struct stage_build *b);

#endif
