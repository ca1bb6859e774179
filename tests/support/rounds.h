/* tests/support/rounds.h - a collective of rounds over hops (n, n), from 0 to its last end. */
#ifndef TESTS_SUPPORT_ROUNDS_H
#define TESTS_SUPPORT_ROUNDS_H

#include "core/collective/rounds.h"
#include "sim/collective/rounds.h"

/* The i-th algorithm that a plan may name, of as many as there are. */
static inline enum collective_algorithm rounds_algorithm(int64_t i)
{
    int w = 0;
    while (!collective_rounds_of((enum collective_algorithm)w)->round || i--) w++;
    return (enum collective_algorithm)w;
}
static inline int32_t rounds_algorithms(void)
{
    int32_t n = 0;
    for (int w = 0; w < COLLECTIVE_ALGORITHM_COUNT; w++)
        n += collective_rounds_of((enum collective_algorithm)w)->round != NULL;
    return n;
}
/* The kinds inside calls in the order that random programs are drawn by; the last: any. */
static const enum collective_kind rounds_kinds[COLLECTIVE_CALL_KINDS + 1] = {
    COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_REDUCE, COLLECTIVE_ALL_TO_ALL,
    COLLECTIVE_CALL_KINDS};

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
