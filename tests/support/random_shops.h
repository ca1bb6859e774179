/* tests/support/random_shops.h - random pipelines for the search of orders, with or without buffer rings. */
#ifndef TESTS_SUPPORT_RANDOM_SHOPS_H
#define TESTS_SUPPORT_RANDOM_SHOPS_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/schedule/shop.h"

struct random_shops_case {
    uint64_t seed, draws;
};
static inline int64_t random_shops_draw(struct random_shops_case *r, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(r->seed, 5, r->draws++, (uint64_t)(high - low + 1));
}

/* Unequal stages, mostly fast links and some slow ones, memory for at least one microbatch. F takes 4, I and W give it back
 * in shares that differ. */
static inline struct pipeline random_shops_pipeline(struct arena *arena, uint64_t seed, int32_t least,
                                              int32_t most, bool occupied)
{
    struct random_shops_case r = {seed, 0};
    int32_t n = (int32_t)random_shops_draw(&r, least, most);
    struct pipeline p = {.n_devices = n, .n_stages = n};
    p.stages = ARENA_ARRAY(arena, struct pipeline_stage, (size_t)n);
    p.links = ARENA_ARRAY(arena, struct pipeline_link, (size_t)n);
    p.devices = ARENA_ARRAY(arena, struct pipeline_device, (size_t)n);
    bool alike = random_shops_draw(&r, 0, 2) == 0;
    for (int32_t s = 0; s < n; s++) {
        struct pipeline_stage *x = &p.stages[s];
        int64_t back = random_shops_draw(&r, 1, 3);
        *x = (struct pipeline_stage){
            .forward_bytes = 4, .input_bytes = -back, .weight_bytes = back - 4};
        x->forward_ns = random_shops_draw(&r, 5, 15);
        x->input_ns = random_shops_draw(&r, 5, 17);
        x->weight_ns = random_shops_draw(&r, 3, 14);
        if (alike && s) *x = p.stages[0];
        p.devices[s].resident_bytes = random_shops_draw(&r, 0, 10);
        p.devices[s].limit_bytes = random_shops_draw(&r, 0, 5)
                                       ? p.devices[s].resident_bytes + random_shops_draw(&r, 4, 8 + 6 * n)
                                       : PIPELINE_NO_LIMIT;
        for (int k = 0; k < 2; k++) {
            p.links[s].latency_ns[k] = random_shops_draw(&r, 0, 3) ? random_shops_draw(&r, 0, 3) : random_shops_draw(&r, 0, 60);
            if (occupied) p.links[s].occupancy_ns[k] = random_shops_draw(&r, 0, 12);
        }
    }
    return p;
}

/* Buffer rings of random sizes, memory for one to eight microbatches; what is alive is said by the stages' bytes. */
static inline struct shop_rings *random_shops_rings(struct arena *arena, struct pipeline *p,
                                              uint64_t seed)
{
    struct random_shops_case r = {seed, 1000};
    struct shop_rings *rings = ARENA_ARRAY(arena, struct shop_rings, (size_t)p->n_devices);
    for (int32_t d = 0; d < p->n_devices; d++) {
        int64_t *b = rings[d].bytes, all = 0;
        for (int k = 0; k < SHOP_LIVES; k++) all += b[k] = random_shops_draw(&r, 0, 6);
        p->stages[d].forward_bytes = b[SHOP_F_TO_I] + b[SHOP_F_TO_W];
        p->stages[d].input_bytes = b[SHOP_I_TO_W] - b[SHOP_F_TO_I];
        p->stages[d].weight_bytes = -b[SHOP_F_TO_W] - b[SHOP_I_TO_W];
        p->devices[d].limit_bytes = p->devices[d].resident_bytes + all + random_shops_draw(&r, 0, 7 * all);
    }
    return rings;
}

#endif
