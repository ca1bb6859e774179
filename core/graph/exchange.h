/* core/graph/exchange.h - the group and the shards of a conversion between placements (resharding).
 *
 * The devices of a stage form a mesh of one or two axes. A conversion along an axis is a collective of
 * a group: the devices that differ in their position along that axis only. A dimension is divided in runs: usually
 * one run a member; a packed qkv has three sections, each divided alike, so a member's shard is three
 * runs, concatenated in its own tensor. The runs of all members partition the dimension; any may be empty.
 * Ownership: the arena of the graph that has the conversion.
 */
#ifndef CORE_GRAPH_EXCHANGE_H
#define CORE_GRAPH_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { RUNS_MAX = 3 }; /* of one shard: the sections of a packed qkv */

struct run { /* elements of a dimension */
    int64_t first, n;
};

struct division { /* of one dimension of `whole` elements over n members */
    int32_t n, n_runs;
    int64_t whole;
    const struct run
        *run; /* (n, n_runs): the runs of member m from run[m · n_runs] on, ascending */
};
int64_t division_extent(const struct division *d,
                        int32_t member); /* elements of its shard, all runs */

struct exchange {
    int32_t axis;          /* of the mesh */
    int32_t n, self;       /* members, and the index of this graph's device among them */
    const int32_t *member; /* (n) positions among the stage's devices, ascending */
    /* The divided dimension and its division, in coordinates of the group's full operand (all_reduce: unused, NULL).
     * all_to_all: of its input; to_dim and to: of its output. */
    int32_t dim, to_dim;
    const struct division *shards, *to;
};

#endif
