/* sim/collective/cost.h - what a collective costs when nothing else is on its links.
 *
 * Time of a message of b bytes over a hop: b / B (the hop is occupied) + α (it is in flight). The forms below are those of
 * Thakur, Rabenseifner and Gropp (IJHPCA 2005) and of Patarasuk and Yuan (JPDC 2009, the ring); n members, S bytes.
 *
 *   RING      all-reduce: 2(n−1) steps, all-gather and reduce-scatter: n−1. In a step every member sends one chunk of S/n (or
 *             a shard) to the next; the next step begins for it when its send has left and its receive has arrived, as
 *             in core/program/program.h. Textbook 2(n−1)α + 2(n−1)/n·S/B. With unequal hops the slowest hop rules:
 *             steps · max(α_h + chunk/B_h). With unequal shards the largest shard rules: it goes round and all wait for it.
 *   TREE      one binary tree, numbered in order (member 0 the root with one child, leaves odd), not the pair of trees that
 *             halves S (Sanders, Speck, Träff 2009). S goes up and down in pieces, piece j down as soon as it is summed at
 *             the root: over links of their own 2·depth·(α + q) + (m − 1)·q for m pieces that take q each. The textbook's
 *             2·log2(n)·α + 2S/B counts one port for in both directions: on shared or half-duplex links the simulation shows that.
 *   LEADER    sums flow in pieces down a line to each node's first member, leaders do a ring, results flow back in pieces.
 *             The textbook (ring all-reduce inside + ring of leaders, 65.93 ms in its example) is less than any leader can
 *             do: S must come in over one link and go out again, S/B and not (g−1)/g·S/B each.
 *   HIERARCHICAL  reduce-scatter inside each node, one ring for each local rank between nodes, all-gather inside: the
 *             same number of members on every node.
 *   CHAIN     all-reduce: the whole vector 0 → 1 → … → n−1 and back (deterministic sums): 2(n−1)(α + S/B).
 *             broadcast: in pieces, (n−1)(α + q) + (m − 1)·q.
 *   PADDED    all shards as long as the longest, as NCCL's equal counts need: (n−1)α + (n−1)·max shard/B.
 *   GROUPED   one broadcast (reduction) for each shard, in order, in pieces round the ring; a member begins the next when
 *             its part of the last is over. Textbook ΣS_i/B + n·α_call: skew does not matter, latency does (HAP,
 *             arXiv 2401.05965, section on communication).
 *   PAIRS     all-to-all: n−1 rounds, in round k member i sends to i + k: (n−1)α + (n−1)/n·S/B.
 *
 * collective_ns is exact, not an estimate: it is the recurrence that the steps obey, shortened to the closed form
 * where starts, hops and chunks are alike, and equals what sim/collective/steps plays on links of their own to the nanosecond.
 * Cost: ring O(n·steps), O(n) where alike; lines and trees O(n·pieces); all-to-all O(n²).
 */
#ifndef SIM_COLLECTIVE_COST_H
#define SIM_COLLECTIVE_COST_H

#include "core/base/error.h"
#include "sim/collective/rounds.h"
#include "sim/cost.h"

#include <stdint.h>

struct arena;

/* Pieces of lines and trees: NCCL's step, 4 MiB of buffer in 8 slots. At most COLLECTIVE_PIECES of them. */
#define COLLECTIVE_PIECE_BYTES ((int64_t)512 << 10)
enum { COLLECTIVE_PIECES = 1024, COLLECTIVE_MEMBERS = 1 << 16 };

struct collective_case {
    enum collective_kind kind;
    enum collective_algorithm algorithm;
    int32_t n_members;     /* 1 … COLLECTIVE_MEMBERS */
    int64_t elements;      /* S / element_bytes */
    int32_t element_bytes; /* chunks are whole elements, cut as collective_chunk cuts them */
    /* (n_members) elements that sum to elements: all-gather, reduce-scatter; NULL: cut evenly */
    const int64_t *shards;
    const int32_t *node; /* (n_members) ascending: LEADER, HIERARCHICAL; NULL: all on one node */
    int64_t piece_bytes; /* 0: COLLECTIVE_PIECE_BYTES */
};

/* ERR_INPUT: a way that the kind has not, sizes, shards or nodes that make no sense, with the choices. */
MUST_CHECK enum status collective_check(const struct collective_case *c, struct error *err);

/* Members begin at start_ns (n; NULL: all at 0) and end at end_ns (n; NULL: not asked for); *out_ns is the last end. */
MUST_CHECK enum status collective_ns(const struct collective_case *c,
                                     const struct collective_hops *h, const int64_t *start_ns,
                                     int64_t *end_ns, int64_t *out_ns, struct error *err);

/* k rings side by side: shares of E elements in proportion to the rings' bandwidths, so that they end together but for
 * latencies; floor, then one each to the largest remainders (the first among equals). ring_Bps: (k) > 0; out: (k), sums to elements. */
void collective_split(int32_t k, const double *ring_Bps, int64_t elements, int64_t *out);

/* The case as a collective of rounds, of a tensor of `elements`: what core/collective/rounds.h is asked. The arena's. */
struct collective *collective_of_case(struct arena *a, const struct collective_case *c);
/* Shared with sim/collective/steps: chunk c of n of `elements`, in elements; pieces of so many bytes; the tree's parent (-1: root). */
int64_t collective_chunk_of(int64_t elements, int32_t c, int32_t n);
int32_t collective_pieces(const struct collective_case *c, int64_t elements);
int32_t collective_parent(int32_t member, int32_t n);

#endif
