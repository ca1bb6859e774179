/* core/collective/collective.h - collectives inside calls: the devices of one stage exchange shards of one tensor.
 *
 * A *collective* joins n members, each with its shard of one full tensor, and leaves each with another shard of it. A
 * *cut* states the ownership: one dimension of the full tensor, and for every member its runs (first, count) of that
 * dimension, ascending. Counts are uneven and may be 0; the runs of all members cover each index of the dimension exactly
 * once. Several runs a member describe packed sections (queries, keys and values cut alike). A member's shard is a dense
 * tensor with the full shape, except the cut dimension, whose extent is the sum of its counts.
 *
 *   kind             in                    out                  meaning
 *   all_gather       sharded by `from`     replicated           out = all shards, each at its runs
 *   reduce_scatter   partial               sharded by `to`      out = the sum of all partial values, at the member's runs
 *   all_reduce       partial               replicated           out = the sum of all partial values; the same bits on all members
 *   all_to_all       sharded by `from`     sharded by `to`      out = the full tensor at the member's runs of `to`
 * With cuts of two different dimensions all_to_all transposes the sharding; with cuts of one dimension it redistributes the shards.
 *
 * Algorithms. A collective is a list of steps, the same number for all members. A member starts a step when its previous step has
 * ended: its message has left and the incoming one has arrived. Empty messages are omitted and take no time.
 *   RING   Member i sends to i+1, over link[i]. all_gather and reduce_scatter take n−1 steps, each
 *          as long as the largest shard (padded, as in libraries that support equal counts only); the bytes behind a smaller
 *          shard are undefined. all_reduce divides the elements evenly, chunk c = [E·c/n, E·(c+1)/n), and takes
 *          n−1 steps of a reduce_scatter and n−1 of an all_gather, unpadded.
 *          reduce_scatter step k: member i sends chunk i−1−k and adds its own partial value to the chunk received, i−2−k, so
 *          chunk c is summed in the order c+1, c+2, … c. all_gather step k: i sends chunk i−k, receives i−1−k.
 *   PAIRS  Step k = 1 … n−1: member i sends to i+k the shard that i+k will own and receives its own from i−k (all
 *          modulo n), unpadded, over the pair's link. reduce_scatter adds its own partial value first, then
 *          those of i−1, i−2, …
 *   HIERARCHICAL  Members stand in T tiers (the nodes of a cluster) of g members each. Member (r, t) is the r-th of tier t.
 *          Shards are ordered (0, 0), (0, 1) … (1, 0) …, and the T shards of one r form a *block*.
 *          reduce_scatter: blocks around the ring of each tier, g−1 steps, then shards around the ring of the T members of one r,
 *          T−1 steps; all_gather: shards between tiers, T−1 steps, then blocks inside each tier, g−1 steps; chunks rotate as in
 *          RING. all_reduce: n even chunks, by such a reduce_scatter and then such an all_gather. Unpadded; a
 *          message uses the pair's link. Few steps cross between tiers, and every link carries its share.
 *   HALVING_DOUBLING  all_reduce by recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp, IJHPCA 2005).
 *          p = 2^k <= n members exchange: in step j rank v and rank v xor 2^j each send half of what they still add, nearest ranks
 *          first, so that between nodes, whose members stand together, only the last and smallest messages go; then the same
 *          steps backwards, with copies. Each of the n − p others is the even one of the first n − p pairs of members: it sends its
 *          vector to its neighbour before, and receives the sum after. 2k steps, 2(p−1)/p of the elements; 2 steps and 2 vectors
 *          more where n is no power of two.
 *   DOUBLE_TREE  all_reduce over two binomial trees with half of the elements each (Sanders, Speck and Träff, Parallel Computing
 *          2009, have two binary trees for the same reason). Step j of ⌈log2 n⌉: position x with x mod 2^(j+1) = 2^j sends its sum
 *          to x − 2^j; then the same steps backwards, with copies. The first tree's position of member i is i, the second's n−1−i for an
 *          even n and i+1 modulo n for an odd one, so that a member sends at most one message in a step and receives at most one.
 *          2⌈log2 n⌉ steps of half of the elements, for any n.
 * all_gather and reduce_scatter support ring, pairs and hierarchical, all_reduce all but pairs, all_to_all pairs. The closed forms
 * "padded" and "grouped" (sim/collective) correspond to RING and PAIRS.
 * Time of a step: bytes ÷ bandwidth + latency of the link, by the rules of core/program/program.h. Copies and additions take none.
 */
#ifndef CORE_COLLECTIVE_COLLECTIVE_H
#define CORE_COLLECTIVE_COLLECTIVE_H

#include "core/collective/algorithm.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct region;

struct collective_cut {
    int32_t dimension;      /* of the full tensor; -1: none, every member holds all of it */
    int32_t n_runs;         /* of each member */
    int64_t *first, *count; /* (n_members, n_runs) */
};

/* Gradient all-reduces in rounds have at most so many members, because the table of their links has a place for every pair: 2 MiB. */
enum { COLLECTIVE_ROUNDS_MEMBERS = 512 };

/* One collective of a program. Gradient all-reduces run once a step on segments (core/program/program.h). Collectives
 * inside calls (each_call) operate on one tensor, as above, or, for equal GPUs that are simulated as one, only have a size. */
struct collective_member {
    int32_t stage; /* into stages */
    int32_t
        n_segments; /* slots to reduce, in order; sizes are equal on all members (within) */
    /* GRADIENT slots; CHAIN with member > 0 or gradients per microbatch: see chain_ring. Reduce-scatter: also SCRATCH;
     * all-gather: PARAMETER or SCRATCH, of the wire's dtype */
    int32_t *segments;
    /* ZeRO's reduce-scatter and all-gather: (n_segments) the slots of the member's shards; NULL: in the segments; else NULL */
    int32_t *own;
    /* CHAIN: buffer ring that holds the gradients of each microbatch in this order (the slot of the first segment gives the
     * offset), to be added one by one; -1: the accumulated gradient is in segments */
    int32_t chain_ring;
    /* (n_segments) slots of the buffer ring, one a segment, consecutive from offset 0 in steps of 64 bytes;
     * NULL if chain_ring is -1 */
    int32_t *chain_segments;
    /* all-reduce by RING: (n_segments) region of each segment's slot that is reduced; n_dims 0: all of it. NULL: all of every
     * segment. The regions of one segment have equal sizes on all members and denote the same elements in the same order */
    struct region *within;
    /* all-reduce by RING: contributes zero and receives the result, because another member contributes the same value */
    bool silent;
};

struct collective {
    const char *name;
    enum collective_kind kind;
    enum collective_algorithm algorithm;
    int32_t n_members;
    struct collective_member *members;
    /* (n_members): from member i to i+1 (mod n); RING and segments only; else -1 */
    int32_t *link, *direction; /* all -1 in rounds */
    int32_t *back_link, *back_direction; /* CHAIN: from member i to i-1; NULL otherwise */
    /* on the wire; segments have its dtype_master. CHAIN preserves every bit: fp32 if the program's dtype is narrower. Of a
     * tensor: the operands' dtype */
    enum dtype dtype;
    int64_t elements; /* sum over segments; of a tensor, those of the full tensor */
    /* sim/engine/fold: number of members that the listed ones represent (0: n_members), and their common duration; -1: that of
     * their messages */
    int32_t stands_for;
    int64_t stands_ns;
    /* sim/engine/fold, of a tensor: (n_members) the member that is simulated for each, itself or one before it; NULL: all
     * are simulated */
    const int32_t *like;
    int32_t flow_link; /* sim/engine/ring_flow, else 0: 1 + the route of all its messages together */
    bool
        each_call; /* executed in every call (COLLECTIVE); else once a step (COLLECTIVE_START, COLLECTIVE_WAIT) */
    /* of segments: launched by procedures with a period (core/program/program.h), or several times a step; all members launch it equally
     * often, and the k-th launches form one execution */
    bool repeated;

    /* Collectives of a tensor (collective_of_tensor); else all 0. */
    struct shape whole; /* of the full tensor */
    struct collective_cut from, to;
    int32_t *in, *out; /* (n) slots of the members' stages; may be equal if their sizes are */

    /* Of a tensor, or in rounds (program_collective_in_rounds). */
    /* elements of the largest message, or of what an all_to_all member keeps if that is more: collective_max */
    int64_t most;
    /* (n, n), NULL for RING: link from member i to k; -1: no message. Collectives of the same members may
     * share the arrays. */
    int32_t *pair_link, *pair_direction;
    /* HIERARCHICAL; else NULL. Tiers are numbered from 0; collective_set_tiers derives the rest. */
    const int32_t *tier;  /* (n) */
    int32_t n_tiers;      /* T */
    const int32_t *place; /* (n) of a member among the shards: r·T + t */
    const int32_t *at;    /* (n) member at a place */
    const int64_t *first; /* (n + 1) first element of the shard at a place */
};
/* The member that is simulated for this one. */
static inline int32_t collective_like(const struct collective *c, int32_t member)
{
    return c->like ? c->like[member] : member;
}
static inline bool collective_of_tensor(const struct collective *c) { return c->whole.rank > 0; }

bool collective_has_from(enum collective_kind k);
bool collective_has_to(enum collective_kind k);

/* Derives place, at and first from valid tiers (collective_valid), the kind and its cuts. */
struct arena;
void collective_set_tiers(struct arena *a, struct collective *m);
/* Tiers of members from arbitrary numbers (nodes): numbered from 0 in order of appearance; out (n). Returns the members of each
 * tier, 0 if tiers have different numbers of members. */
int32_t collective_tiers_of(const int32_t *node, int32_t n, int32_t *out);

/* Checks that each index of a cut dimension occurs once, kind and algorithm fit, sizes are below 2^60. ERR_INPUT. O(runs²) at worst. */
enum { COLLECTIVE_RUNS_MAX = 4096 }; /* of all members together */
/* Of any collective in rounds: kind, algorithm, number of members and tiers fit. */
MUST_CHECK enum status collective_rounds_valid(const struct collective *m, struct error *err);
MUST_CHECK enum status collective_valid(const struct collective *m, struct error *err);

/* Number of indices of the cut dimension that the member owns. */
int64_t collective_cut_count(const struct collective_cut *c, int32_t member);
/* Shapes of a member's operands. */
struct shape collective_in(const struct collective *m, int32_t member);
struct shape collective_out(const struct collective *m, int32_t member);
/* Elements from member i to member k, unpadded; i = k: what stays. all_reduce has none. O(runs²). */
int64_t collective_elements(const struct collective *m, int32_t i, int32_t k);
/* First element of chunk c of n, E elements in all: c · E / n without overflow. */
static inline int64_t collective_chunk_start(int64_t elements, int32_t c, int32_t n)
{
    return c * (elements / n) + c * (elements % n) / n;
}
/* Elements [*first, *last) of chunk c, of a tensor's all_reduce or of segments. */
void collective_chunk(const struct collective *m, int32_t c, int64_t *first, int64_t *last);
/* The value of `most`. O(n²·runs²), n for ring and tiers. */
int64_t collective_max(const struct collective *m);

/* One round of a member, as the algorithm's row defines it (core/collective/rounds.h). */
struct collective_round {
    int32_t to, from;      /* members; -1: no message */
    int64_t send, receive; /* elements on the wire */
    /* not direct: offsets of the outgoing and the incoming message within the chunks laid side by side; all_reduce:
     * within the operand */
    int64_t out_first, in_first;
    int64_t adds; /* elements of the incoming message that are added; 0: it is copied or unpacked */
};

/* Offset of a member's chunk among the chunks laid side by side; not PAIRS, not all_reduce. */
int64_t collective_chunk_first(const struct collective *m, int32_t member);
/* Whether member i ever sends to k. */
bool collective_sends(const struct collective *m, int32_t i, int32_t k);
int32_t collective_steps(const struct collective *m); /* of every member */
struct collective_round collective_round(const struct collective *m, int32_t member, int32_t step);

/* A region of a member's operand, packed row-major for the wire: some indices of some dimensions, all of the others. */
struct region {
    struct shape shape; /* of the operand */
    int32_t n_dims;
    struct {
        int32_t dimension, n_runs;
        const int64_t *first, *count; /* (n_runs) in the operand */
    } dim[SHAPE_RANK_MAX];            /* ascending dimensions */
};
/* Runs inside the shape, ascending, disjoint; dimensions ascending. */
bool region_valid(const struct region *r);
int64_t region_elements(const struct region *r);
/* Called for each contiguous run of n elements: `first` is its offset in the operand, `packed` that in the packed buffer; in order. */
typedef void region_run(void *owner, int64_t first, int64_t packed, int64_t n);
void region_walk(const struct region *r, region_run *run, void *owner);
enum region_copy { REGION_PACK, REGION_UNPACK, REGION_ADD };
/* Copies between the operand and a packed buffer; ADD adds to the operand (fp32, fp64). */
void region_copy(const struct region *r, enum dtype t, void *operand, void *packed,
                 enum region_copy how);

/* Region of member i's `in` that goes to k, and region of member k's `out` for what comes from i. Not all_reduce. */
struct region collective_from(struct arena *a, const struct collective *m, int32_t i, int32_t k);
struct region collective_into(struct arena *a, const struct collective *m, int32_t i, int32_t k);

/* Staging of an executor beside the operands, in elements: chunks side by side, an outgoing message, an incoming
 * one. Each starts at a multiple of 64 bytes. */
struct collective_tensor_staging {
    int64_t chunks, outgoing, incoming;
};
struct collective_tensor_staging collective_tensor_staging(const struct collective *m);
int64_t collective_tensor_staging_bytes(const struct collective *m, enum dtype t);

#endif
