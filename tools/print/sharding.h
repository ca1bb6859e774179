/* tools/print/sharding.h - which stages of a plan shard operators, how, and how much of the parameters each device keeps. */
#ifndef TOOLS_PRINT_SHARDING_H
#define TOOLS_PRINT_SHARDING_H

#include "core/document/json.h"
#include "core/plan/plan.h"

struct arena;

/* A block of lines a stage: ratios in percent, patterns of operators by the index that they are split by, what is gathered
 * where it is used, algorithms of collectives, and the share of the stage's parameters on each device. Nothing where no stage shares
 * operators. Into out as the list "sharing" where out is not NULL (there it may be empty). What lowering refuses has its
 * reason in place of the parameters. Of replicas that differ in their devices alone (plan_classes) the first stands for all but
 * where `all`. */
void print_sharding(struct arena *a, const struct plan *p, bool all, struct json *out);

#endif
