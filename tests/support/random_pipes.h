/* tests/support/random_pipes.h - random pipelines made by hand, one a seed, for the suites of properties. */
#ifndef TESTS_SUPPORT_RANDOM_PIPES_H
#define TESTS_SUPPORT_RANDOM_PIPES_H

#include "core/base/rng.h"
#include "tests/support/pipelines.h"

struct pipes_random {
    uint64_t seed, draws;
};
static inline int64_t random_pipes_draw(struct pipes_random *r, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(1, r->seed, r->draws++, (uint64_t)(high - low + 1));
}

static inline struct pipes random_pipes(uint64_t seed)
{
    struct pipes_random r = {seed, 0};
    struct pipes in = {.n_stages = (int32_t)random_pipes_draw(&r, 1, 6)};
    in.microbatches = (int32_t)random_pipes_draw(&r, 1, 12);
    int32_t w = 1;
    for (int32_t s = in.n_stages - 1; s >= 0; s--) {
        in.forward_ns[s] = random_pipes_draw(&r, 0, 50),
        in.backward_ns[s] = random_pipes_draw(&r, 0, 100),
        in.update_ns[s] = random_pipes_draw(&r, 0, 30);
        in.transfer_ns[s] = random_pipes_draw(&r, 0, 2) ? random_pipes_draw(&r, 0, 60) : 0;
        in.latency_ns[s] = random_pipes_draw(&r, 0, 2) ? 0 : random_pipes_draw(&r, 0, 80);
        in.half_duplex[s] = random_pipes_draw(&r, 0, 3) == 0;
        in.warmup[s] = w;
        w += (int32_t)random_pipes_draw(&r, 1, 3);
    }
    in.one_link = random_pipes_draw(&r, 0, 5) == 0;
    in.sharing = random_pipes_draw(&r, 0, 2) ? LINK_FIFO : LINK_FAIR;
    in.ahead = (int32_t)random_pipes_draw(&r, 0, 3);
    in.buffers = random_pipes_draw(&r, 0, 1) ? 0 : (int32_t)random_pipes_draw(&r, 2, 4);
    in.kept_bytes = random_pipes_draw(&r, 0, 1000);
    in.ops = (int32_t)random_pipes_draw(&r, 1, 3);
    return in;
}

/* Every stage a replica, one collective over all of them; some have fewer elements than members. */
static inline struct pipes random_pipes_replicas(uint64_t seed)
{
    struct pipes_random r = {seed + (UINT64_C(1) << 32), 0};
    struct pipes in = random_pipes(seed);
    in.parallel = true;
    in.algorithm = random_pipes_draw(&r, 0, 1) ? ALGORITHM_RING : ALGORITHM_CHAIN;
    in.elements =
        random_pipes_draw(&r, 0, 3) ? random_pipes_draw(&r, 1, 200) : random_pipes_draw(&r, 0, 7);
    return in;
}

#endif
