/* sim/collective/cost.h - duration of a collective on otherwise idle links (α-β model).
 *
 * A message of b bytes occupies a hop for b / B and is in flight for α more. The forms are those of Thakur, Rabenseifner and
 * Gropp (IJHPCA 2005) and, for the ring, of Patarasuk and Yuan (JPDC 2009); n members, S bytes.
 *
 *   RING      all-reduce: 2(n−1) steps; all-gather and reduce-scatter: n−1. In each step every member sends one chunk of S/n (or
 *             one shard) to the next member. A member starts its next step when its send has left and its receive has arrived,
 *             as in core/program/program.h. Textbook 2(n−1)α + 2(n−1)/n·S/B. With unequal hops the slowest hop dominates:
 *             steps · max(α_h + chunk/B_h). With unequal shards the largest one dominates, because it passes every hop.
 *   TREE      one binary tree, numbered in order (member 0 the root with one child, leaves odd), not the pair of trees that
 *             halves S (Sanders, Speck, Träff 2009). S goes up and down in pieces; piece j goes down as soon as the root has
 *             reduced it. On separate links: 2·depth·(α + q) + (m − 1)·q for m pieces of duration q each. The textbook's
 *             2·log2(n)·α + 2S/B counts one port for both directions; the simulation includes that on shared or half-duplex links.
 *   LEADER    pieces are reduced along a line to each node's first member (the leader), leaders run a ring, results return
 *             in pieces. The textbook (ring all-reduce inside + ring of leaders, 65.93 ms in its example) is below any leader's
 *             bound: S must enter over one link and leave again, S/B and not (g−1)/g·S/B each.
 *   HIERARCHICAL  reduce-scatter inside each node, one ring per local rank between nodes, all-gather inside each node; the
 *             same number of members on every node.
 *   CHAIN     all-reduce: the full vector 0 → 1 → … → n−1 and back (deterministic order of addition): 2(n−1)(α + S/B).
 *             broadcast: in pieces, (n−1)(α + q) + (m − 1)·q.
 *   PADDED    all shards padded to the longest, as NCCL's equal counts require: (n−1)α + (n−1)·max shard/B.
 *   GROUPED   one broadcast (reduction) per shard, in order, in pieces round the ring; a member begins the next when its
 *             share of the previous one is over. Textbook ΣS_i/B + n·α_call: independent of skew, dominated by latency (HAP,
 *             arXiv 2401.05965, section on communication).
 *   PAIRS     all-to-all: n−1 rounds, in round k member i sends to i + k: (n−1)α + (n−1)/n·S/B.
 *
 * collective_ns is exact: it evaluates the recurrence of the steps, or its closed form if starts, hops and chunks are equal. It
 * equals the simulation of sim/collective/steps on separate links to the nanosecond.
 * Cost: ring O(n·steps), O(n) in the equal case; lines and trees O(n·pieces); all-to-all O(n²).
 */
#ifndef SIM_COLLECTIVE_COST_H
#define SIM_COLLECTIVE_COST_H

#include "core/base/error.h"
#include "sim/collective/rounds.h"
#include "sim/cost.h"

#include <stdint.h>

struct arena;

/* Piece size of lines and trees: NCCL's step, 4 MiB of buffer in 8 slots. At most COLLECTIVE_PIECES pieces. */
#define COLLECTIVE_PIECE_BYTES ((int64_t)512 << 10)
enum { COLLECTIVE_PIECES = 1024, COLLECTIVE_MEMBERS = 1 << 16 };

struct collective_case {
    enum collective_kind kind;
    enum collective_algorithm algorithm;
    int32_t n_members;     /* 1 … COLLECTIVE_MEMBERS */
    int64_t elements;      /* S / element_bytes */
    int32_t element_bytes; /* chunks are whole elements, cut as collective_chunk cuts them */
    /* (n_members) elements per member, total `elements`: all-gather, reduce-scatter; NULL: even */
    const int64_t *shards;
    const int32_t *node; /* (n_members) ascending: LEADER, HIERARCHICAL; NULL: all on one node */
    int64_t piece_bytes; /* 0: COLLECTIVE_PIECE_BYTES */
};

/* ERR_INPUT: an algorithm that the kind does not have (the error lists the choices), invalid sizes, shards or nodes. */
MUST_CHECK enum status collective_check(const struct collective_case *c, struct error *err);

/* Members begin at start_ns (n; NULL: all at 0) and end at end_ns (n; NULL: not needed); *out_ns is the last end. */
MUST_CHECK enum status collective_ns(const struct collective_case *c,
                                     const struct collective_hops *h, const int64_t *start_ns,
                                     int64_t *end_ns, int64_t *out_ns, struct error *err);

/* k concurrent rings: splits E elements in proportion to the rings' bandwidths, so that all end together apart from latency;
 * floor, then one each to the largest remainders (lowest index first). ring_Bps: (k) > 0; out: (k), total E. */
void collective_split(int32_t k, const double *ring_Bps, int64_t elements, int64_t *out);

/* The case as a collective of `elements` in rounds, the input of core/collective/rounds.h. Allocated in the arena. */
struct collective *collective_of_case(struct arena *a, const struct collective_case *c);
/* Shared with sim/collective/steps: elements of chunk c of n; number of pieces; the tree's parent (-1: root). */
int64_t collective_chunk_of(int64_t elements, int32_t c, int32_t n);
int32_t collective_pieces(const struct collective_case *c, int64_t elements);
int32_t collective_parent(int32_t member, int32_t n);

#endif
