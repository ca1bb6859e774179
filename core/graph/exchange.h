/* core/graph/exchange.h - who meets in a conversion between placements, and which shard each of them has.
 *
 * The devices of a stage stand in a mesh of one or two axes. What joins or deals out a tensor along one axis is done
 * by a group: the devices that differ in their place along that axis alone. A dimension is dealt out in runs: plain
 * ones have one run a member; a packed qkv has three sections, each dealt out alike, so that a member's shard is three
 * runs, which stand one behind the other in its own tensor. Runs of the members partition the dimension; any may be empty.
 * Ownership: the arena's of the graph that has the conversion.
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
    int32_t n, self;       /* members, and which of them this graph's device is */
    const int32_t *member; /* (n) their places among the stage's devices, ascending */
    /* Which dimension is dealt out, and how, in coordinates of the whole operand of this group (all_reduce: unused, NULL).
     * all_to_all: of its input; to_dim and to: of its output. */
    int32_t dim, to_dim;
    const struct division *shards, *to;
};

#endif
