/* tools/print/sharding.h - the sharded stages of a plan: the sharding of their operators, and each device's share of the parameters. */
#ifndef TOOLS_PRINT_SHARDING_H
#define TOOLS_PRINT_SHARDING_H

#include "core/document/json.h"
#include "core/plan/plan.h"

struct arena;

/* Prints a block of lines for each sharded stage: ratios in percent, operator patterns by the index that they are sharded by, parameters
 * gathered before use, algorithms of collectives, and each device's share of the stage's parameters. Prints nothing if no stage is
 * sharded. out not NULL: adds the list "sharding" instead, which may be empty. If lowering fails, its error stands in place of the
 * parameters. Replicas that differ only in their devices (plan_classes) are printed once, unless `all`; more than
 * PRINT_ROWS_ONE_BY_ONE sharded stages share a line a kind of sharding. */
void print_sharding(struct arena *a, const struct plan *p, bool all, struct json *out);
/* Of a plan with hybrid_shard: the GPUs of a shard group and the number of such groups, a line for each size of group. out not NULL: the list
 * "shard_groups" instead. Nothing of other plans. Cost: one lowering. */
void print_shard_groups(struct arena *a, const struct plan *p, struct json *out);

#endif
