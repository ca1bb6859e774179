/* planner/bound/windows.h - windows of time for every operation of a pipeline, narrowed until nothing moves.
 *
 * A window is [earliest start, latest end] over all schedules of makespan <= some C; windows here contain the true ones.
 * Two rules narrow them:
 *   stage   all orders of a stage are paths through the lattice of (F done, I done, W done), numbers of microbatches
 *           (planner/bound/schedule.h says why they keep their order). One pass forward finds the earliest time at each point that
 *           keeps to windows and memory, one pass back the latest; a step counts if the first is not after the second.
 *   link    a message arrives occupancy + latency after its producer, and occupancy after the message before it.
 * That is all consequences of one stage at a time; what it misses are conflicts of several stages at once.
 * With C = BOUND_FAR windows never meet, so one run gives heads (earliest starts) and tails (C - latest ends) both; those
 * of any C follow by moving the ends, and so do those of a smaller C from a larger one.
 */
#ifndef PLANNER_BOUND_WINDOWS_H
#define PLANNER_BOUND_WINDOWS_H

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define BOUND_FAR (INT64_C(1) << 61)

enum bound_kind { BOUND_F, BOUND_I, BOUND_W, BOUND_KINDS };

/* A stage as bounds see it: never slower, never larger than the real one. */
struct bound_part {
    int64_t ns[BOUND_KINDS];
    /* bytes that F takes and I gives back (the rest W), 0 <= back <= take; room for them, INT64_MAX: no limit */
    int64_t take, back, room;
    /* most W that may wait at once: m; 1 where W takes no time, so that nothing is lost at once */
    int32_t waiting;
    int32_t in_flight; /* K: most forwards before the first I, <= m */
};
struct bound_link { /* between stages s and s + 1; [0] activations down, [1] gradients up */
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
struct bound_walker; /* opaque: the lattices and their scratch */

/* Points of the lattice of one stage, saturated. */
int64_t bound_points(const struct bound_part *p, int32_t m);
struct bound_walker *bound_walker_new(struct arena *a, const struct bound_line *line);
/* Windows of all schedules that end by `makespan` and begin at 0 or later. */
void bound_windows_open(const struct bound_line *line, int64_t makespan, struct bound_windows *w);
enum bound_outcome { BOUND_EMPTY, BOUND_STILL, BOUND_CUT };
/* EMPTY: some window is empty, so there is no such schedule. STILL: nothing moves any more. CUT: *steps ran out; the windows
 * are as good as they got. *steps is lowered by the points visited; *stage: where it became empty. moved: the only stage whose
 * windows are narrower than when they last lay still; -1: any may be. */
enum bound_outcome bound_windows_narrow(struct bound_walker *k, struct bound_windows *w,
                                        int32_t moved, int64_t *steps, int32_t *stage);

#endif
