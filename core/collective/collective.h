/* core/collective/collective.h - kinds of collectives and the ways to do them: names and counts that every room shares.
 *
 * Bytes. S is what nccl-tests calls size: all-reduce and broadcast: the vector of each member; all-gather: the whole that
 * every member ends with; reduce-scatter: the whole that every member brings; all-to-all: what each member sends in all.
 * Bus bandwidth = S / seconds · factor: what a link must have carried, the same figure for every number of members
 * (nccl-tests, doc/PERFORMANCE.md): all-reduce 2(n−1)/n, all-gather, reduce-scatter and all-to-all (n−1)/n, broadcast 1.
 */
#ifndef CORE_COLLECTIVE_COLLECTIVE_H
#define CORE_COLLECTIVE_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

/* name in C, name in files and on the command line */
#define COLLECTIVE_KINDS(X)                                                                        \
    X(ALL_REDUCE, "all-reduce")                                                                    \
    X(ALL_GATHER, "all-gather")                                                                    \
    X(REDUCE_SCATTER, "reduce-scatter")                                                            \
    X(BROADCAST, "broadcast")                                                                      \
    X(ALL_TO_ALL, "all-to-all")
enum collective_kind {
#define X(id, name) COLLECTIVE_##id,
    COLLECTIVE_KINDS(X)
#undef X
        COLLECTIVE_KIND_COUNT
};

/* What each way does is in sim/collective/cost.h. */
#define COLLECTIVE_WAYS(X)                                                                         \
    X(RING, "ring")                                                                                \
    X(TREE, "tree")                                                                                \
    X(LEADER, "leader")                                                                            \
    X(SHARDED, "sharded")                                                                          \
    X(CHAIN, "chain")                                                                              \
    X(PADDED, "padded")                                                                            \
    X(GROUPED, "grouped")                                                                          \
    X(PAIRWISE, "pairwise")
enum collective_way {
#define X(id, name) WAY_##id,
    COLLECTIVE_WAYS(X)
#undef X
        COLLECTIVE_WAY_COUNT
};

const char *collective_kind_name(enum collective_kind k);
const char *collective_way_name(enum collective_way w);
/* '-' and '_' are the same. false: no such name; the lists below tell the choices. */
bool collective_kind_parse(const char *name, enum collective_kind *out);
bool collective_way_parse(const char *name, enum collective_way *out);
extern const char *const collective_kind_names[], *const collective_way_names[]; /* NULL-ended */

/* Is there this way to do this kind? */
bool collective_can(enum collective_kind k, enum collective_way w);
double collective_bus_factor(enum collective_kind k,
                             int32_t n); /* of n members; 1 member: 0, but broadcast 1 */

#endif
