/* core/lower/zero.h - what is divided over replicas (plan.h's zero): groups and their sections. */
#ifndef CORE_LOWER_ZERO_H
#define CORE_LOWER_ZERO_H

#include "core/lower/groups.h"

/* Whether stages agree; ERR_INPUT. Once orders stand. */
MUST_CHECK enum status lower_zero_check(const struct lowering *l, struct error *err);
int32_t lower_zero_of(const struct lowering *l, int32_t unit); /* level; 0: an ordinary sum */
/* Of a parameter of the stage's view; group -1: not divided. */
struct flat_place lower_zero_place(const struct lowering *l, const struct stage_build *b,
                                   int32_t tensor);
/* A use of a parameter that is used twice: its group holds nothing else. */
bool lower_zero_alone(const struct lowering *l, int32_t unit);
void lower_zero_sections(struct lowering *l, int32_t group); /* and elements, of a new group */
void lower_zero_gathers(struct lowering *l); /* once the groups that scatter stand */

#endif
