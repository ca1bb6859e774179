/* planner/spmd_stage/tp_options.h - numbers of GPUs in a stage. */
#ifndef PLANNER_SPMD_STAGE_TP_OPTIONS_H
#define PLANNER_SPMD_STAGE_TP_OPTIONS_H

#include "core/model/job.h"
#include "profiles/profile.h"

/* Whether a stage may have n of the GPUs of a type on a node: a power of two, a divisor of their number, about a half of them, or what
 * the largest power of two leaves of them: 1, 2, 3, 4 and 7 of 7. */
bool tp_options_offered(int32_t n, int32_t per_node);
/* Numbers of GPUs of a stage, ascending: those offered on any node (1 with no_sharding); of measured layers those measured
 * on every type of which a node has as many GPUs. Returns how many, at least one. */
enum { TP_NUMBERS_MAX = 16 };
int32_t tp_options_numbers(const struct job *j, const struct cluster *c, const struct profile *p,
                           bool no_sharding, int32_t numbers[TP_NUMBERS_MAX]);
#endif
