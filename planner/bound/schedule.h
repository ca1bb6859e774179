/* planner/bound/schedule.h - lower bound of the makespan of a pipeline over all orders of operations on each device.
 *
 * Input: stages on one device each (one contiguous chunk), their times and memory changes, the links between them, m equal
 * microbatches. Result: a lower bound for every order of F, I and W (or F and B) within memory. Because microbatches are
 * equal, some optimal schedule takes each type of operation in microbatch order on every stage: the k-th F of a stage needs
 * any k different F of the stage before. So a stage's order is a path from (0, 0, 0) to (m, m, m) in the lattice of numbers of
 * F, I and W done, and memory is a function of the lattice point.
 *
 * CHEAP: the largest of closed forms, O(stages). R_s: round trip below stage s, K_s: microbatches that its memory holds before
 * the first I, h_s: earliest start of stage s:
 *   work     h_s + m (F + I + W)_s + g_s,  g_s = max(0, R_s - (K_s - 1) F_s): only K_s forwards can run before the first I
 *   drain    h_s + m (F + I)_s + g_s + return path from s to stage 0 + W_0
 *   memory   h_s + m [f (F + R + I) + (f - i) W]_s / limit_s  (Little's law; f bytes taken by F, i of them freed by I)
 *   link     serial in each direction: path to it + m occupancy + path from it to the end
 * CYCLES (planner/bound/alone.h): walks all orders of one stage with its round trip as a delay. DEEP
 * (planner/bound/windows.h): constraint propagation over all stages. Every operation has a time window, narrowed to a fixed
 * point: within a stage by all lattice paths that respect windows and memory (edge finding to completion, token cycles
 * included), between stages by links. For an assumed makespan windows also have ends; an empty window refutes it (destructive
 * bound: Klein and Scholl 1999), and bisection finds the largest refuted makespan. Heads and tails of a machine: Carlier 1982.
 * Non-preemptive.
 */
#ifndef PLANNER_BOUND_SCHEDULE_H
#define PLANNER_BOUND_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

struct pipeline; /* of sim/pipeline/static.h */

enum bound_depth { BOUND_CHEAP, BOUND_CYCLES, BOUND_DEEP };

/* Class of orders for which the bound holds. */
enum bound_orders {
    BOUND_SPLIT, /* F, I, W */
    BOUND_FUSED, /* F, B */
    BOUND_MIXED  /* some B, some I and W */
};

enum { BOUND_SCHEDULE_STEPS = 45000000 }; /* lattice points of a bound without a limit: about 0.3 s */

struct bound_schedule_options {
    enum bound_depth depth;
    enum bound_orders orders;
    /* Makespan of a known schedule (0: none): deeper bounds stop there, so a proof of optimality is most likely. */
    int64_t best_ns;
    int64_t steps; /* lattice points to visit at most; 0: BOUND_SCHEDULE_STEPS */
};

struct bound_schedule {
    int64_t lower_bound_ns; /* INT64_MAX: some stage cannot hold even one microbatch */
    /* binding term: "work", "drain", "memory", "link", "cycle", "windows", "does not fit" */
    const char *term;
    int32_t stage;          /* of the term; -1: all together. link: between stage and stage + 1 */
    const char *class_text; /* the orders for which the bound holds */
    int64_t steps;          /* lattice points visited */
};
/* p: one chunk per device (n_stages == n_devices), valid by pipeline_check. Cost: CHEAP O(stages); CYCLES O(Σ_s lattice points
 * of s); DEEP the same per sweep. Both end at options.steps with a valid bound. Deterministic. Allocates and frees its own
 * scratch arena. */
void bound_schedule(const struct pipeline *p, int32_t microbatches,
                    const struct bound_schedule_options *o, struct bound_schedule *out);

#endif
