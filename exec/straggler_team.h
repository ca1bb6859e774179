/* exec/straggler_team.h - which devices of a run have become stragglers, from the rows of all of them (exec/straggler.h).
 *
 * A device's ratio is the time of its operators in a step over its base. It is compared with the common change of the team in the same step, as
 * MegaScale (Jiang et al., NSDI 2024) and FALCON (Wu et al., 2024) compare ranks that do equal work: a change that all devices share is the load
 * of a machine or the step's own, not a straggler. The common change is the median over nodes, of devices of the same type if two nodes have some, else of
 * all devices; a node's ratio is the median of its devices', so that a slow node counts once. Of an even number of ratios the median is the
 * middle one that is nearer to 1, and 1 between them, so that one of two devices is named. On one node alone devices take the place of nodes.
 *
 * Input data is not compared with the team, because a slow file system slows all devices. Its ratio is the step's operators and inputs over its operators
 * alone; a device that loads while it computes, a discrete or emulated one, waits only for what takes longer than its operators. It is wall time, so a
 * change lasts STRAGGLER_NS.
 *
 * Cost: O(devices · nodes) a step. Rows that were overwritten before they were read are left out. */
#ifndef EXEC_STRAGGLER_TEAM_H
#define EXEC_STRAGGLER_TEAM_H

#include "exec/straggler.h"

struct straggler_member {
    int32_t node, type;
    bool overlaps; /* loads input data while it computes */
    /* results of the last step: whether the level of operators, or of input data, has changed; levels are series.level */
    bool slower, starved;
    struct straggler_series operators, inputs;
    double ratio; /* of the last step, to its base; 0: none yet */
};
struct straggler_team {
    int32_t n, n_nodes;
    int64_t least_ns;                 /* of operators: STRAGGLER_NS of wall times, 0 of virtual ones */
    int64_t next;                     /* step to be judged; step 0, which has the costs of a start, is not */
    struct straggler_member *members; /* (n) */
};

/* The caller fills node, type and overlaps of the members. */
void straggler_team_open(struct straggler_team *t, struct arena *a, int32_t n, int32_t n_nodes, bool emulated);
/* rows: (n) of one step. Returns whether a member is slower or starved. */
bool straggler_team_step(struct straggler_team *t, const struct straggler_row *rows);
/* Judges the next step that all ranks have ended; false: there is none. *changed as above. */
bool straggler_team_next(struct straggler_team *t, const struct straggler_table *table, bool *changed);

#endif
