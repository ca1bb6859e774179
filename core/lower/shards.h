/* core/lower/shards.h - sharded stages: the training graph of one of their devices; what each has of an activation that crosses,
 * and of its gradient; keys of gradients and parts of parameters. */
#ifndef CORE_LOWER_SHARDS_H
#define CORE_LOWER_SHARDS_H

#include "core/base/arena.h"
#include "core/lower/stages.h"

struct lower_view;

struct rows { /* sequences of a microbatch */
    int64_t first, n;
};

/* The whole forward graph, and what the devices of the last stage that was asked for have in common. */
struct shard_views;
struct shard_views *shard_views_new(struct arena *a);
/* The training graph of the device. ERR_INPUT. */
MUST_CHECK enum status lower_shard_view(const struct lowering *l, struct shard_views *views,
                                        struct stage_build *b, const struct graph **out,
                                        struct error *err);

MUST_CHECK enum status lower_shard_rows(const struct lowering *l, const struct stage_build *b,
                                        int32_t activation, struct rows *out, struct error *err);
/* Which activation of another view's cut behind a layer the i-th of this one's is, by what both were before any conversion;
 * -1. The gradient of the i-th that crosses back there; -1. */
int32_t lower_shard_same(const struct lower_view *v, int32_t i, const struct lower_view *other,
                         int32_t layer);
int32_t lower_shard_back(const struct lower_view *v, int32_t i, int32_t layer);
/* Of the devices that have the same rows (of: those of each device of the giver's stage), does this one give them to the
 * other stage's device? */
bool lower_shard_gives(const struct stage_build *giver, const struct stage_build *taker,
                       const struct rows *of);

/* Keys of a gradient on the devices of a stage (first: its first device), a device's own, whether two parameter uses' are alike. */
int32_t lower_shard_keys(const struct stage_build *first, int32_t param_use);
int32_t lower_shard_key(const struct stage_build *b, int32_t param_use);
bool lower_shard_same_keys(const struct stage_build *first, int32_t param_use, int32_t other);
/* mixed: (n_param_uses) replicas keep its parameter in different shards. ERR_INPUT: what is kept in different shards is divided
 * over replicas or GPUs as well. */
MUST_CHECK enum status lower_shard_mixed(const struct lowering *l, bool *mixed, struct error *err);
/* The part of the parameter use's parameter that the device keeps; whether each device of the one stage keeps the same as that of
 * the other; whether every device of the stage keeps all of it. */
const struct tensor_shard *lower_parameter_shard(const struct stage_build *b, int32_t param_use);
bool lower_shards_equal(const struct stage_build *a, const struct stage_build *b,
                        int32_t param_use);
bool lower_parameter_replicated(const struct stage_build *first, int32_t param_use);

#endif
