/* core/lower/shards.h - sharded stages: a device's rows of a crossing activation and of the gradient; keys of gradients and shards of
 * parameters. */
#ifndef CORE_LOWER_SHARDS_H
#define CORE_LOWER_SHARDS_H

#include "core/base/arena.h"
#include "core/lower/stages.h"

struct lower_view;
struct lowering;

struct rows { /* sequences of a microbatch */
    int64_t first, n;
};

MUST_CHECK enum status lower_shard_rows(const struct lowering *l, const struct stage_build *b,
                                        int32_t activation, struct rows *out, struct error *err);
/* Index of the i-th activation of this view's cut in another view's cut after `layer`, compared before any conversion;
 * -1: none. Index of the gradient of the i-th that crosses back there; -1. */
int32_t lower_shard_same(const struct lower_view *v, int32_t i, const struct lower_view *other,
                         int32_t layer);
int32_t lower_shard_back(const struct lower_view *v, int32_t i, int32_t layer);
/* Whether this device, among the devices with equal rows, sends to the other
 * stage's device. of: the rows of each device of the giver's stage. */
bool lower_shard_gives(const struct stage_build *giver, const struct stage_build *taker,
                       const struct rows *of);

/* Keys of a gradient on the devices of a stage (first: its first device); a device's own key; whether two parameter uses have equal keys. */
int32_t lower_shard_keys(const struct stage_build *first, int32_t param_use);
int32_t lower_shard_key(const struct stage_build *b, int32_t param_use);
bool lower_shard_same_keys(const struct stage_build *first, int32_t param_use, int32_t other);
/* mixed: (n_param_uses) replicas keep its parameter in different shards. ERR_INPUT: such a parameter is also divided
 * by ZeRO. */
MUST_CHECK enum status lower_shard_mixed(const struct lowering *l, bool *mixed, struct error *err);
/* The shard of the parameter use's parameter on the device; whether the devices of two stages keep equal shards
 * pairwise; whether every device of the stage keeps the full parameter. */
const struct tensor_shard *lower_parameter_shard(const struct stage_build *b, int32_t param_use);
bool lower_shards_equal(const struct stage_build *a, const struct stage_build *b,
                        int32_t param_use);
bool lower_parameter_replicated(const struct stage_build *first, int32_t param_use);

#endif
