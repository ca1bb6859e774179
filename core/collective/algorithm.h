/* core/collective/algorithm.h - kinds of collectives and THE table of their algorithms, read by program, plan, simulator, planner,
 * executor and `musher collective`.
 *
 * Bytes. S is nccl-tests' size: all-reduce and broadcast: each member's vector; all-gather: the gathered output;
 * reduce-scatter: the full input of each member; all-to-all: all that each member sends.
 * Bus bandwidth = S / seconds · factor: the bandwidth that the bottleneck link must have carried, comparable across numbers of
 * members (nccl-tests, doc/PERFORMANCE.md): all-reduce 2(n−1)/n, all-gather, reduce-scatter and all-to-all (n−1)/n, broadcast 1.
 *
 * A new algorithm is a line of COLLECTIVE_ALGORITHM_CHOICES and, if it is defined by rounds, its functions in
 * core/collective/rounds.h. A plan may then name it, and the rest follows from the rounds: links and messages of the program
 * (core/lower), its time (sim/engine, planner/spmd/price, `musher collective`), its execution (exec/host_transport,
 * exec/device_transport). An algorithm without rounds is a closed form and a list of transfers in sim/collective; plans cannot
 * name it.
 */
#ifndef CORE_COLLECTIVE_ALGORITHM_H
#define CORE_COLLECTIVE_ALGORITHM_H

#include <stdbool.h>
#include <stdint.h>

/* name in C, word in files, name on the command line. Collectives of tensors inside calls have the kinds before BROADCAST. */
#define COLLECTIVE_KINDS(X)                                                                        \
    X(ALL_REDUCE, all_reduce, "all-reduce")                                                        \
    X(ALL_GATHER, all_gather, "all-gather")                                                        \
    X(REDUCE_SCATTER, reduce_scatter, "reduce-scatter")                                            \
    X(ALL_TO_ALL, all_to_all, "all-to-all")                                                        \
    X(BROADCAST, broadcast, "broadcast")
enum collective_kind {
#define X(id, word, name) COLLECTIVE_##id,
    COLLECTIVE_KINDS(X)
#undef X
        COLLECTIVE_KIND_COUNT,
    COLLECTIVE_CALL_KINDS = COLLECTIVE_BROADCAST
};

#define COLLECTIVE_BIT(kind) (1U << COLLECTIVE_##kind)
#define COLLECTIVE_SUMS_AND_SHARDS                                                                 \
    (COLLECTIVE_BIT(ALL_REDUCE) | COLLECTIVE_BIT(ALL_GATHER) | COLLECTIVE_BIT(REDUCE_SCATTER))

/* Name in C, name in files and on the command line, set of kinds, the kinds that a collective library does in one call by
 * an algorithm of its own (NCCL; exec/device_transport), and its rounds (core/collective/rounds.h) or `none`.
 *   ring, pairs, hierarchical, halving-doubling, double-tree   core/collective/collective.h
 *   tree, leader, chain, padded, grouped   sim/collective/cost.h; a gradient all-reduce may also be a chain (core/program/program.h)
 *   local   the members are chunks of one device, which adds them; never a choice
 * The planner breaks ties by the order of this table. */
#define COLLECTIVE_ALGORITHM_CHOICES(X)                                                            \
    X(RING, "ring", COLLECTIVE_SUMS_AND_SHARDS, COLLECTIVE_SUMS_AND_SHARDS, ring)                  \
    X(PAIRS, "pairs",                                                                              \
      COLLECTIVE_BIT(ALL_GATHER) | COLLECTIVE_BIT(REDUCE_SCATTER) | COLLECTIVE_BIT(ALL_TO_ALL), 0, \
      pairs)                                                                                       \
    X(TREE, "tree", COLLECTIVE_BIT(ALL_REDUCE) | COLLECTIVE_BIT(BROADCAST), 0, none)               \
    X(LEADER, "leader", COLLECTIVE_BIT(ALL_REDUCE), 0, none)                                       \
    X(HIERARCHICAL, "hierarchical", COLLECTIVE_SUMS_AND_SHARDS, 0, hierarchical)                   \
    X(HALVING_DOUBLING, "halving-doubling", COLLECTIVE_BIT(ALL_REDUCE), 0, halving_doubling)       \
    X(DOUBLE_TREE, "double-tree", COLLECTIVE_BIT(ALL_REDUCE), 0, double_tree)                      \
    X(CHAIN, "chain", COLLECTIVE_BIT(ALL_REDUCE) | COLLECTIVE_BIT(BROADCAST), 0, none)             \
    X(PADDED, "padded", COLLECTIVE_BIT(ALL_GATHER) | COLLECTIVE_BIT(REDUCE_SCATTER), 0, none)      \
    X(GROUPED, "grouped", COLLECTIVE_BIT(ALL_GATHER) | COLLECTIVE_BIT(REDUCE_SCATTER), 0, none)
#define COLLECTIVE_ALGORITHMS(X) COLLECTIVE_ALGORITHM_CHOICES(X) X(LOCAL, "local", 0, 0, none)
enum collective_algorithm {
#define X(id, name, kinds, native, rounds) ALGORITHM_##id,
    COLLECTIVE_ALGORITHMS(X)
#undef X
        COLLECTIVE_ALGORITHM_COUNT
};
/* A set of algorithms, by 1 << algorithm. */
#define COLLECTIVE_ALGORITHM_BIT(id) (1U << ALGORITHM_##id)
_Static_assert(COLLECTIVE_ALGORITHM_COUNT <= 32 && COLLECTIVE_KIND_COUNT <= 32, "sets are 32 bits");

const char *collective_kind_name(enum collective_kind k); /* "all-reduce" */
const char *collective_kind_word(enum collective_kind k); /* "all_reduce", in files */
const char *collective_algorithm_name(enum collective_algorithm w);
/* '-' and '_' are equivalent. false: no such name; the lists below are the choices. */
bool collective_kind_parse(const char *name, enum collective_kind *out);
bool collective_algorithm_parse(const char *name, enum collective_algorithm *out);
/* NULL-ended, in the order of the enumerations */
extern const char *const collective_kind_names[], *const collective_algorithm_names[];

/* Whether the algorithm supports this kind. */
bool collective_can(enum collective_kind k, enum collective_algorithm w);
/* Whether it supports the kind inside calls, by rounds, so that a plan may name it. */
bool collective_in_calls(enum collective_kind k, enum collective_algorithm w);
/* Whether a collective library does it in one call. */
bool collective_native(enum collective_kind k, enum collective_algorithm w);
/* "ring, tree, …": algorithms that support this kind; calls: inside calls only. */
struct collective_choices {
    char text[160];
};
struct collective_choices collective_choices(enum collective_kind k, bool calls);
double collective_bus_factor(enum collective_kind k,
                             int32_t n); /* n members; 1 member: 0, but broadcast 1 */

#endif
