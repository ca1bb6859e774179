/* planner/spmd_stage/split.h - layers dealt out over a line of groups of devices.
 *
 * A group takes call_ns for a microbatch of a layer and step_ns once an iteration; the accounts of a line of k groups that
 * compute m microbatches are
 *     (m - 1) · max(c_i, x_i) + Σ (c_i + 2 x_i),   c_i = Σ over the group's layers of call + step / m,
 * with x_i what crosses from group i to the next. Each group has at least one layer, and no more than its memory holds at its
 * place in the line (spmd_stage_far: as many microbatches are in flight as groups are left from it on).
 * spmd_stage_split is exact in these accounts: the cheapest sum under a limit of the slowest is a DP over (group, layer). Limits are
 * halved down to about the least that anything can have as its slowest; what is better still has its own below
 * (best - least sum) / (m - 1), from where they are taken down from what the last answer needed until nothing is left: each
 * answer on the way is the best with its slowest. O(answers · groups · layers²).
 */
#ifndef PLANNER_SPMD_STAGE_SPLIT_H
#define PLANNER_SPMD_STAGE_SPLIT_H

#include "planner/spmd_stage/spmd_stage.h"

enum { SPMD_STAGE_LINE_MAX = 8, SPMD_STAGE_MODES_MAX = 2 };

/* One way in which a group computes: prefix sums, (n_layers + 1). */
struct spmd_stage_mode {
    const int64_t *call_ns, *step_ns;
    const bool *
        replicated; /* (n_layers) what it hands on after each is replicated on every device; NULL: on the only one */
};
struct
    spmd_stage_member { /* a group: a range is computed in the cheaper mode that has room for it */
    int32_t n_modes;
    struct spmd_stage_mode mode[SPMD_STAGE_MODES_MAX];
};
struct spmd_stage_line {
    int32_t n, n_layers, microbatches;
    const struct spmd_stage_member *member[SPMD_STAGE_LINE_MAX];
    /* (n_layers) of each mode of each member: the last layer that memory has room for from each on, first - 1 where not even
     * one fits */
    const int32_t *far[SPMD_STAGE_LINE_MAX][SPMD_STAGE_MODES_MAX];
    /* (n_layers - 1) from member i to the next, after each layer; INT64_MAX: it cannot be */
    const int64_t *cross_ns[SPMD_STAGE_LINE_MAX];
};
struct spmd_stage_cut {
    int64_t ns, slowest_ns, sum_ns;    /* ns INT64_MAX: it cannot be */
    int32_t last[SPMD_STAGE_LINE_MAX]; /* last layer of each */
    int64_t steps;                     /* of the DP */
};
/* (n_layers) how far the memory of n devices reaches from each layer on, with room for so many bytes of the layers' each and so many
 * microbatches in flight. O(layers · n). */
const int32_t *spmd_stage_far(struct arena *a, const struct spmd_stage_layers *x, int32_t n_layers,
                              int32_t n, const int64_t *room, int32_t in_flight);
/* c of a range of group i; INT64_MAX where no mode has room. */
int64_t spmd_stage_range_ns(const struct spmd_stage_line *l, int32_t i, int32_t first,
                            int32_t last);
int64_t spmd_stage_line_ns(const struct spmd_stage_line *l,
                           const int32_t *last); /* the accounts of a given cut */
void spmd_stage_split(const struct spmd_stage_line *l, struct spmd_stage_cut *out);

#endif
