/* planner/bound/windows.h - time windows of every operation of a pipeline, narrowed to a fixed point (constraint propagation).
 *
 * A window is [earliest start, latest end] over all schedules of makespan <= C. The windows here contain the true ones.
 * Two rules narrow them:
 *   stage   All orders of a stage are paths through the lattice of numbers of microbatches (F done, I done, W done); see
 *           planner/bound/schedule.h for the order of microbatches. A forward pass computes the earliest time at each point under
 *           windows and memory, a backward pass the latest; a step is possible if the first is not after the second.
 *   link    A message arrives occupancy + latency after its producer, and occupancy after the previous message.
 * These are all consequences of single stages; conflicts that involve several stages at once are not detected.
 * With C = BOUND_FAR no window is bounded by the other end, so one run gives both heads (earliest starts) and tails (C - latest
 * ends). Windows of any C follow by a shift of the ends, and windows of a smaller C from those of a larger one.
 */
#ifndef PLANNER_BOUND_WINDOWS_H
#define PLANNER_BOUND_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define BOUND_FAR (INT64_C(1) << 61)

enum bound_kind { BOUND_F, BOUND_I, BOUND_W, BOUND_KINDS };

/* Relaxation of a stage: never slower and never larger than the real stage. */
struct bound_part {
    int64_t ns[BOUND_KINDS];
    /* bytes taken by F, freed by I (the rest is freed by W), 0 <= back <= take; available bytes, INT64_MAX: no limit */
    int64_t take, back, room;
    /* limit of W that wait at once: m; 1 if W takes no time, because running it immediately costs nothing */
    int32_t waiting;
    int32_t in_flight; /* K: limit of forwards before the first I, <= m */
};
struct bound_link { /* between stages s and s + 1; [0] activations to s + 1, [1] gradients to s */
    int64_t occupancy_ns[2], latency_ns[2];
};
struct bound_line {
    int32_t n, m;             /* stages, microbatches */
    struct bound_part *parts; /* (n) */
    struct bound_link *links;   /* (n - 1) */
};

struct bound_windows { /* (n, 3, m) row-major each */
    int64_t *from, *until;
};
struct bound_walker; /* opaque: lattices and scratch */

/* Number of lattice points of one stage, saturated. */
int64_t bound_points(const struct bound_part *p, int32_t m);
struct bound_walker *bound_walker_new(struct arena *a, const struct bound_line *line);
/* Initial windows of all schedules within [0, makespan]. */
void bound_windows_open(const struct bound_line *line, int64_t makespan, struct bound_windows *w);
enum bound_outcome { BOUND_EMPTY, BOUND_STILL, BOUND_CUT };
/* EMPTY: a window is empty, so no such schedule exists. STILL: fixed point. CUT: *steps ran out; the windows are valid but not
 * final. *steps is decreased by the points visited; *stage: stage of the empty window. moved: the only stage whose windows have
 * changed since the last fixed point; -1: any. */
enum bound_outcome bound_windows_narrow(struct bound_walker *k, struct bound_windows *w,
                                        int32_t moved, int64_t *steps, int32_t *stage);

#endif
