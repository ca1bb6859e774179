#include "planner/candidate/plan_set.h"

#include <string.h>

static uint64_t text_hash(uint64_t h, const char *text)
{
    return text ? hash_map_key(h, text, strlen(text)) : h;
}

static uint64_t rules_hash(uint64_t h, const struct sharding_rule *rules, int32_t n)
{
    for (int32_t k = 0; k < n; k++) {
        const struct sharding_rule *x = &rules[k];
        int32_t choice[3] = {x->choice.sufficient_factors, x->sharded, x->reshard_after_forward};
        h = text_hash(hash_map_key(h, choice, sizeof choice), x->match);
        h = hash_map_key(h, x->choice.index, sizeof x->choice.index);
        h = hash_map_key(h, x->choice.ratio, sizeof x->choice.ratio);
    }
    return h;
}

static uint64_t sharding_hash(uint64_t h, const struct sharding *x)
{
    if (!x) return h;
    size_t ratios = (size_t)x->n_ratios * (size_t)x->n_devices;
    h = hash_map_key(h, x->mesh, sizeof x->mesh);
    h = hash_map_key(h, x->ratios, ratios * sizeof *x->ratios);
    h = rules_hash(h, x->operators, x->n_operators);
    return rules_hash(h, x->parameters, x->n_parameters);
}

/* of: NULL, or the plan whose device types stand for its devices. */
static uint64_t stage_hash(uint64_t h, const struct plan_stage *x, const struct plan *of)
{
    int32_t n = plan_stage_devices(x);
    int64_t stage[] = {
        x->last_layer, n,       x->bucket_bytes, x->recompute,     x->recompute_blocks, x->offload, x->zero,
        x->warmup,     x->receive_ahead, x->hybrid_shard, x->all_reduce};
    h = sharding_hash(h, x->sharding);
    h = text_hash(hash_map_key(h, stage, sizeof stage), x->order);
    for (int32_t k = 0; k < n; k++) {
        int32_t device = plan_stage_device(x, k);
        int64_t part[2] = {of ? of->cluster.devices[device].type : device,
                           x->sequences ? x->sequences[k] : 0};
        h = hash_map_key(h, part, sizeof part);
    }
    return h;
}

static uint64_t replica_hash(uint64_t h, const struct plan_replica *x, const struct plan *of)
{
    int64_t replica[] = {x->microbatches, x->split, (int64_t)(uintptr_t)x->orders};
    h = text_hash(hash_map_key(h, replica, sizeof replica), x->schedule);
    for (int32_t i = 0; i < x->n_stages; i++) h = stage_hash(h, &x->stages[i], of);
    return h;
}

uint64_t plan_set_replica_hash(const struct plan *p, const struct plan_replica *x)
{
    return replica_hash((uint64_t)x->n_stages, x, p);
}

int64_t *plan_set_number(struct plan_set *x, const struct plan *p)
{
    uint64_t h = hash_map_key((uint64_t)p->microbatch, &p->n_replicas, sizeof p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) h = replica_hash(h, &p->replicas[r], NULL);
    return &hash_map_at(&x->known, h)->number;
}

bool plan_set_add(struct plan_set *x, const struct plan *p) { return !(*plan_set_number(x, p))++; }
