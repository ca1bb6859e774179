/* tests/support/replicas.h - plans of equal replicas, each of two sharded stages. */
#ifndef TESTS_SUPPORT_REPLICAS_H
#define TESTS_SUPPORT_REPLICAS_H

#include "tests/support/plans.h"

#define REPLICAS_BATCH "operators: [{match: \"*\", shard: batch}]\n"
#define REPLICAS_HEADS "operators: [{match: \"*attn*\", shard: heads}, {match: \"*\", shard: positions}]\n"
#define REPLICAS_VOCABULARY                                                                                 \
    "operators: [{match: \"*attn*\", shard: heads}, {match: \"*mlp*\", shard: features}, "         \
    "{match: \"*\", shard: vocabulary}]\n"

static inline struct sharding *replicas_sharding(struct arena *arena, const char *text, int32_t n_devices)
{
    struct node *root;
    struct sharding *s;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "made", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(sharding_read(arena, root, n_devices, &s, &err) == OK, "%s", err.text);
    return s;
}

/* One stage a replica, each on n devices that share in this way. */
static inline struct plan replicas_of_one_stage(struct arena *arena, int32_t n_replicas, int32_t n, const char *text, int layers)
{
    struct plan p = plans_new(arena, "gpt2", layers, n * n_replicas);
    int32_t last = plans_layers(arena, &p) - 1;
    for (int32_t r = 0; r < n_replicas; r++) {
        struct plan_replica *x = plans_replica(arena, &p, 2, 1, &last);
        int32_t *devices = ARENA_ARRAY(arena, int32_t, (size_t)n);
        for (int32_t i = 0; i < n; i++) devices[i] = r * n + i;
        x->stages[0].device = r * n;
        x->stages[0].n_shards = n, x->stages[0].devices = devices;
        x->stages[0].sharding = replicas_sharding(arena, text, n);
    }
    return p;
}

/* Replicas of two stages on two devices each. Every stage has a sharding of its own, with equal contents. */
static inline struct plan replicas_of_model(struct arena *arena, const char *model, int32_t n, const char *text, int32_t zero)
{
    struct plan p = plans_new(arena, model, 6, 4 * n);
    int32_t layers = plans_layers(arena, &p), last[2] = {layers / 2, layers - 1};
    for (int32_t r = 0; r < n; r++) {
        struct plan_replica *x = plans_replica(arena, &p, 4, 2, last);
        for (int32_t s = 0; s < 2; s++) {
            int32_t *devices = ARENA_ARRAY(arena, int32_t, 2);
            for (int32_t i = 0; i < 2; i++) devices[i] = 4 * r + 2 * s + i;
            x->stages[s].device = devices[0], x->stages[s].zero = zero;
            x->stages[s].n_shards = 2, x->stages[s].devices = devices;
            x->stages[s].sharding = replicas_sharding(arena, text, 2);
        }
    }
    return p;
}

static inline struct plan replicas_llama(struct arena *arena, int32_t n, const char *text, int32_t zero)
{
    return replicas_of_model(arena, "llama", n, text, zero);
}

#endif
