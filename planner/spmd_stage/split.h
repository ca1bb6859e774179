/* planner/spmd_stage/split.h - exact distribution of layers over a line of device groups.
 *
 * A group takes call_ns per microbatch of a layer and step_ns per iteration. The estimate of a line of k groups with m
 * microbatches is
 *     (m - 1) · max(c_i, x_i) + Σ (c_i + 2 x_i),   c_i = Σ over the group's layers of call + step / m,
 * x_i: the transfer from group i to the next. Each group has at least one layer and at most as many as its memory holds at its
 * position (spmd_stage_far: as many microbatches in flight as groups from it to the end of the line). spmd_stage_split
 * minimises the estimate exactly. A dynamic program over (group, layer) gives the least sum under a limit of the slowest
 * group. The limit is first bisected down to about the least possible slowest group. A better answer than the incumbent must
 * have its slowest group below (best - least sum) / (m - 1); from there the limit falls to just below that of each answer
 * until none is left. Each answer on the way is optimal for its slowest group. O(answers · groups · layers²).
 */
#ifndef PLANNER_SPMD_STAGE_SPLIT_H
#define PLANNER_SPMD_STAGE_SPLIT_H

#include "planner/spmd_stage/spmd_stage.h"

enum { SPMD_STAGE_LINE_MAX = 8, SPMD_STAGE_MODES_MAX = 2 };

/* One mode of computation of a group: prefix sums, (n_layers + 1). */
struct spmd_stage_mode {
    const int64_t *call_ns, *step_ns;
    const bool *
        replicated; /* (n_layers) the output of the layer is replicated on every device; NULL: a single device */
};
struct
    spmd_stage_member { /* a group: a range uses the cheaper mode whose memory suffices */
    int32_t n_modes;
    struct spmd_stage_mode mode[SPMD_STAGE_MODES_MAX];
};
struct spmd_stage_line {
    int32_t n, n_layers, microbatches;
    const struct spmd_stage_member *member[SPMD_STAGE_LINE_MAX];
    /* (n_layers) of each mode of each member: the last layer of the longest range within memory from each layer, first - 1:
     * none */
    const int32_t *far[SPMD_STAGE_LINE_MAX][SPMD_STAGE_MODES_MAX];
    /* (n_layers - 1) transfer from member i to the next after each layer; INT64_MAX: impossible */
    const int64_t *cross_ns[SPMD_STAGE_LINE_MAX];
};
struct spmd_stage_cut {
    int64_t ns, slowest_ns, sum_ns;    /* ns INT64_MAX: infeasible */
    int32_t last[SPMD_STAGE_LINE_MAX]; /* last layer of each */
    int64_t steps;                     /* of the DP */
};
/* (n_layers) the last layer of the longest range from each layer that fits n devices. room: (n) bytes available for layers.
 * O(layers · n). */
const int32_t *spmd_stage_far(struct arena *a, const struct spmd_stage_layers *x, int32_t n_layers,
                              int32_t n, const int64_t *room, int32_t in_flight);
/* c of a range of group i; INT64_MAX: it fits in no mode. */
int64_t spmd_stage_range_ns(const struct spmd_stage_line *l, int32_t i, int32_t first,
                            int32_t last);
int64_t spmd_stage_line_ns(const struct spmd_stage_line *l,
                           const int32_t *last); /* estimate of a given cut */
void spmd_stage_split(const struct spmd_stage_line *l, struct spmd_stage_cut *out);

#endif
