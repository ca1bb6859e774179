/* core/collective/collective.h - collectives inside calls: devices that share one stage exchange parts of one tensor.
 *
 * A *collective* joins n members, each with its own part of one whole tensor, and leaves each with another part of it. A
 * *cut* says which part is whose: one dimension of the whole, and for every member the runs (first, count) of that
 * dimension that are its own, ascending. Counts are uneven and may be 0; all members' runs together are the dimension,
 * each index once. Several runs a member stand for packed sections (queries, keys and values cut alike). A member's part
 * is a dense tensor of the whole's shape, but for the dimension, which is as long as its counts together.
 *
 *   kind             in                    out                  meaning
 *   all_gather       part by `from`        whole                out = all parts, each at its runs
 *   reduce_scatter   partial               part by `to`         out = the sum of all partial values, at the member's runs
 *   all_reduce       partial               whole                out = the sum of all partial values; all members alike, bit for bit
 *   all_to_all       part by `from`        part by `to`         out = the whole's, at the member's runs of `to`
 * Cuts of two dimensions make all_to_all turn a tensor; of one dimension, they share it out anew.
 *
 * How: a collective is a list of steps, the same number for all members; a member starts a step when its step before has ended:
 * its message has left and the one to it has arrived. A message without elements is none and takes no time.
 *   RING   messages go from member i to i+1, over group.link[i]. all_gather and reduce_scatter take n−1 steps, each
 *          carrying as much as the largest part (padded: what libraries do that know equal counts only); the bytes
 *          behind a smaller part are void. all_reduce cuts the elements evenly, E·c/n up to E·(c+1)/n, and takes
 *          n−1 steps of a reduce_scatter and n−1 of an all_gather, unpadded.
 *          reduce_scatter step k: member i sends chunk i−1−k and adds its own partial value to what it receives, chunk i−2−k, so that
 *          chunk c is summed in the order c+1, c+2, … c. all_gather step k: i sends chunk i−k, receives i−1−k.
 *   PAIRS  step k = 1 … n−1: member i sends to i+k what is that member's, and receives from i−k what is its own (all
 *          modulo n): as many bytes as there are, over the pair's own link. reduce_scatter adds its own partial value, then
 *          those of i−1, i−2, …
 *   HIERARCHICAL  members stand in tiers (the nodes of a cluster), equally many in each: T tiers of g. Member (r, t) is the
 *          r-th of tier t. Parts lie in the order (0, 0), (0, 1) … (1, 0) …, and those of one r are an ordered channel group.
 *          reduce_scatter: ordered channel groups round the ring of each tier, g−1 steps, then parts round the rings of T members of one r,
 *          T−1 steps; all_gather: parts between tiers, T−1 steps, then ordered channel groups inside, g−1 steps; in either ring as RING's
 *          chunks go. all_reduce: its n even chunks, by such a reduce_scatter and then such an all_gather. Unpadded; a
 *          message goes over the pair's own link. Few of the steps cross between tiers, and every link does its share.
 * all_gather and reduce_scatter go any way, all_reduce by ring or hierarchical, all_to_all by pairs.
 * What a plan calls padded is RING, grouped is PAIRS.
 * Time of a step: bytes ÷ bandwidth + latency of the link, by the rules of core/program/program.h. Copying and adding take none.
 */
#ifndef CORE_COLLECTIVE_COLLECTIVE_H
#define CORE_COLLECTIVE_COLLECTIVE_H

#include "core/collective/algorithm.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct region;

struct collective_cut {
    int32_t dimension;      /* of the whole; -1: none, everybody has it whole */
    int32_t n_runs;         /* of each member */
    int64_t *first, *count; /* (n_members, n_runs) */
};

/* One collective of a program. Gradient all-reduces, once a step, are of segments, which core/program/program.h explains; collectives
 * inside calls (each_call) are of one tensor, as above, or, for equal GPUs that are simulated as one, of nothing but a size. */
struct collective_member {
    int32_t stage; /* into stages */
    int32_t
        n_segments; /* slots to be summed, in order; all members have equal lists of sizes (within) */
    /* GRADIENT slots; CHAIN, member > 0 or gradients per microbatch: see chain_ring. Reduce-scatter: also SCRATCH; all-gather:
     * PARAMETER or SCRATCH, of the wire's dtype */
    int32_t *segments;
    /* reduce-scatter, all-gather: (n_segments) the member's parts in regions; NULL: in the segments; else NULL */
    int32_t *own;
    /* CHAIN: buffer ring whose buffers hold each microbatch's gradients in this order (first segment's slot gives the
     * offset), to be added one by one; -1: the sum is in segments */
    int32_t chain_ring;
    /* (n_segments) slots of buffer ring apart, one a segment, laid one after the other from offset 0 in steps of 64 bytes;
     * NULL where chain_ring is -1 */
    int32_t *chain_segments;
    /* all-reduce by RING: (n_segments) which part of each segment's slot is meant; n_dims 0: all of it. NULL: all of all.
     * Regions of one segment are as large on all members, and mean the same elements in the same order */
    struct region *within;
    /* all-reduce by RING: it gets the sum and adds nothing to it, since another member brings what it has */
    bool silent;
};

struct collective {
    const char *name;
    enum collective_kind kind;
    enum collective_algorithm algorithm;
    int32_t n_members;
    struct collective_member *members;
    /* (n_members): from member i to i+1 (mod n), by RING and of segments; -1: not so */
    int32_t *link, *direction;
    int32_t *back_link, *back_direction; /* CHAIN: from member i to i-1; NULL otherwise */
    /* on the wire; segments are dtype_master of it. A CHAIN keeps every bit: fp32 where the program is narrower. Of a tensor:
     * the operands' */
    enum dtype dtype;
    int64_t elements; /* summed over segments; of a tensor, the whole's */
    /* sim/engine/fold: the members are so many, alike but for those listed (0: n_members), and take so long together; -1: as long as
     * their messages */
    int32_t stands_for;
    int64_t stands_ns;
    bool
        each_call; /* members meet in every call (COLLECTIVE); else once a step (COLLECTIVE_START, COLLECTIVE_WAIT) */

    /* Of a tensor inside calls (collective_of_tensor); else all 0. */
    struct shape whole; /* of the tensor that they share */
    struct collective_cut from, to;
    /* elements of the largest message, or of what a member of all_to_all keeps if that is more: collective_max */
    int64_t most;
    int32_t *in, *out; /* (n) slots of the members' stages; of one size they may be the same */
    /* (n, n) but for RING, where it is NULL: from member i to k; -1 where nothing goes. Collectives of the same members may
     * share them. */
    int32_t *pair_link, *pair_direction;
    /* HIERARCHICAL; NULL otherwise. Tiers are numbers from 0 on; the rest follows: collective_set_tiers. */
    const int32_t *tier;  /* (n) */
    int32_t n_tiers;      /* T */
    const int32_t *place; /* (n) of a member among the parts: r·T + t */
    const int32_t *at;    /* (n) which member has a place */
    const int64_t *first; /* (n + 1) where the part of a place begins, in elements */
};
static inline bool collective_of_tensor(const struct collective *c) { return c->whole.rank > 0; }

bool collective_has_from(enum collective_kind k);
bool collective_has_to(enum collective_kind k);

/* Fills in what follows from tiers that may be trusted (collective_valid), the kind and its cuts. */
struct arena;
void collective_set_tiers(struct arena *a, struct collective *m);
/* Members' tiers from any numbers (nodes): counted from 0 in order of appearance; out (n). The members of each, 0 where tiers
 * have different numbers of them. */
int32_t collective_tiers_of(const int32_t *node, int32_t n, int32_t *out);

/* Each index of a cut's dimension once, kind and way fit, sizes below 2^60. ERR_INPUT. O(runs²) at worst. */
enum { COLLECTIVE_RUNS_MAX = 4096 }; /* of all members together */
MUST_CHECK enum status collective_valid(const struct collective *m, struct error *err);

/* Indices of the cut dimension that are the member's. */
int64_t collective_cut_count(const struct collective_cut *c, int32_t member);
/* Shapes of a member's operands. */
struct shape collective_in(const struct collective *m, int32_t member);
struct shape collective_out(const struct collective *m, int32_t member);
/* Elements that go from member i to member k, unpadded; i = k: what stays. all_reduce has none. O(runs²). */
int64_t collective_elements(const struct collective *m, int32_t i, int32_t k);
/* Elements [*first, *last) of chunk c: of a tensor's all_reduce, or of segments. */
void collective_chunk(const struct collective *m, int32_t c, int64_t *first, int64_t *last);
/* What `most` must be. O(n²·runs²), n for ring and tiers. */
int64_t collective_max(const struct collective *m);

/* Its rounds: what its algorithm's row says (core/collective/rounds.h). */
struct collective_round {
    int32_t to, from;      /* members; -1: no message */
    int64_t send, receive; /* elements on the wire */
    /* not direct: where what goes out begins, and where what comes in belongs, among the chunks side by side; all_reduce:
     * in the operand */
    int64_t out_first, in_first;
    int64_t adds; /* elements of what comes in that are added; 0: it is put there, or unpacked */
};

/* Where a member's part begins among the chunks side by side; not PAIRS, not all_reduce. */
int64_t collective_chunk_first(const struct collective *m, int32_t member);
/* Whether member i ever sends to k. */
bool collective_sends(const struct collective *m, int32_t i, int32_t k);
int32_t collective_steps(const struct collective *m); /* of every member */
struct collective_round collective_round(const struct collective *m, int32_t member, int32_t step);

/* A part of a member's operand, as it is packed for the wire: indices of some dimensions, the others whole; row-major. */
struct region {
    struct shape shape; /* of the operand */
    int32_t n_dims;
    struct {
        int32_t dimension, n_runs;
        const int64_t *first, *count; /* (n_runs) in the operand */
    } dim[SHAPE_RANK_MAX];            /* ascending dimensions */
};
/* Runs inside the shape, ascending, none twice; dimensions ascending. */
bool region_valid(const struct region *r);
int64_t region_elements(const struct region *r);
/* Each run of n elements in one piece: from element `first` of the operand, `packed` of what is packed, in that order. */
typedef void region_run(void *owner, int64_t first, int64_t packed, int64_t n);
void region_walk(const struct region *r, region_run *run, void *owner);
enum region_copy { REGION_PACK, REGION_UNPACK, REGION_ADD };
/* Between the operand and a buffer without gaps; ADD adds to the operand (fp32, fp64). */
void region_copy(const struct region *r, enum dtype t, void *operand, void *packed,
                 enum region_copy how);

/* Of member i's `in` what goes to k, and of member k's `out` where what comes from i belongs. Not all_reduce. */
struct region collective_from(struct arena *a, const struct collective *m, int32_t i, int32_t k);
struct region collective_into(struct arena *a, const struct collective *m, int32_t i, int32_t k);

/* What an executor keeps beside the operands, in elements: chunks side by side, a message that goes out, one that comes
 * in. Each starts at a multiple of 64 bytes. */
struct collective_tensor_staging {
    int64_t chunks, outgoing, incoming;
};
struct collective_tensor_staging collective_tensor_staging(const struct collective *m);
int64_t collective_tensor_staging_bytes(const struct collective *m, enum dtype t);

#endif
