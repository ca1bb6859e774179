/* planner/bound/schedule.h - what no schedule of given stages beats, whatever the order on each device.
 *
 * Given: stages on a device each (one contiguous chunk a device), their times and changes of memory, the links between
 * them, m equal microbatches. Sought: a makespan that no order of F, I and W (or F and B) that fits the memory beats.
 * Since microbatches are equal, some best schedule takes every kind in the order of the microbatches on every stage: the
 * k-th F of a stage needs k different F of the stage before it, whichever they are. So a stage's order is a path from
 * (0, 0, 0) to (m, m, m) in the lattice of numbers of F, I and W done, and memory is a function of the point.
 *
 * Three depths. The cheap one is the largest of closed forms, O(stages); with R_s the round trip below stage s, K_s the
 * microbatches that its memory holds before the first I, h_s the way down to it:
 *   work     h_s + m (F + I + W)_s + g_s,  g_s = max(0, R_s - (K_s - 1) F_s): only K_s forwards can run before the first I
 *   way back h_s + m (F + I)_s + g_s + the way up from s + W_0
 *   memory   h_s + m [f (F + R + I) + (f - i) W]_s / limit_s  (Little's law; f bytes that F takes, i that I gives back)
 *   link     serial in each direction: the way to it + m occupancy + the way from it to the end
 * Cycles (planner/bound/alone.h) walk the orders of one stage whose round trip is a delay: K tokens go round, and what the
 * stage does meanwhile takes its time. The deep one (planner/bound/windows.h) adds all stages at once: it gives every operation a window of time and narrows all of them until nothing
 * moves: on a stage by all paths through its lattice that keep to the windows and to memory (edge finding taken to its
 * end, token cycles included), between stages by links. With a makespan assumed, windows end too; where one becomes empty
 * no schedule is that short ("destructive" bound: Klein and Scholl 1999), and bisection finds the longest refuted. Heads
 * and tails of one machine go back to Carlier 1982; nothing here is preemptive.
 */
#ifndef PLANNER_BOUND_SCHEDULE_H
#define PLANNER_BOUND_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct pipeline; /* of sim/pipeline/static.h */
struct schedule; /* of core/plan/schedule.h */

enum bound_depth { BOUND_CHEAP, BOUND_CYCLES, BOUND_DEEP };

/* Which orders the bound is to hold for. */
enum bound_orders {
    BOUND_SPLIT, /* F, I, W */
    BOUND_FUSED, /* F, B */
    BOUND_MIXED  /* some B, some I and W */
};

struct bound_schedule_options {
    enum bound_depth depth;
    enum bound_orders orders;
    /* Makespan of a schedule that is known (0: none): deeper bounds go no further than it, and is surest to prove it. */
    int64_t best_ns;
    /* Deep, split orders and best_ns: where a shorter schedule shows on the way, it is handed out in this arena; NULL: none is
     * looked for. */
    struct arena *arena;
    int64_t steps; /* lattice points to visit at most; 0: 45,000,000 (about 0.3 s) */
};

struct bound_schedule {
    int64_t lower_bound_ns; /* INT64_MAX: some stage cannot hold even one microbatch */
    /* what binds: "work", "drain", "memory", "link", "cycle", "windows", "does not fit" */
    const char *term;
    int32_t stage;          /* where; -1: all together. link: between stage and stage + 1 */
    const char *class_text; /* plans that the bound holds for */
    int64_t steps;          /* lattice points visited */
    /* NULL, or a schedule of found_ns < best_ns that fits the memory */
    const struct schedule *found;
    int64_t found_ns;
};
/* p: one chunk a device (n_stages == n_devices), has passed pipeline_check. Never above a feasible makespan. Cheap:
 * O(stages). Cycles: O(Σ_s points of s's lattice). Deep: as much each sweep. Both are cut off by steps: a bound in any case. The same for the same
 * arguments. Scratch in an arena of its own. */
void bound_schedule(const struct pipeline *p, int32_t microbatches,
                    const struct bound_schedule_options *o, struct bound_schedule *out);

#endif
