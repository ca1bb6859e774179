/* tests/support/rounds.h - a collective of rounds over hops (n, n), from 0 to its last end. */
#ifndef TESTS_SUPPORT_ROUNDS_H
#define TESTS_SUPPORT_ROUNDS_H

#include "sim/collective/rounds.h"

struct rounds_alone {
    const struct collective *c;
    const struct cost_link *hop;
    int64_t between; /* messages between tiers take so many times as long */
};

static inline struct cost_link rounds_hop(const void *of, int32_t from, int32_t to)
{
    const struct rounds_alone *r = of;
    return r->hop[from * r->c->n_members + to];
}

static inline int64_t rounds_beside(const void *of, int32_t from, int32_t to)
{
    const struct rounds_alone *r = of;
    return r->c->tier && r->c->tier[from] != r->c->tier[to] ? r->between : 1;
}

static inline int64_t rounds_alone_ns(const struct collective *c, int64_t element_bytes,
                                      int64_t between, const struct cost_link *hop)
{
    const struct rounds_alone r = {c, hop, between};
    const struct collective_hops hops = {rounds_hop, &r, rounds_beside};
    int64_t end[256] = {0}, next[256], last = 0;
    collective_rounds_ns(c, element_bytes, &hops, end, next);
    for (int32_t i = 0; i < c->n_members; i++)
        if (end[i] > last) last = end[i];
    return last;
}

#endif
