/* traces/saves.h - what the checkpoints between the steps of a run cost, and from it the steps between them. Times are on the run's
 * clock, on rank 0 those of all ranks.
 *
 * The cost of one is the time by which it makes the run longer: the pause in which all ranks copy, and what its write adds to the steps that it
 * overlaps. The interval between two is Daly's for that cost (core/model/checkpoint_interval.h), but not shorter than the
 * write, because a snapshot waits until the one before is written. */
#ifndef TRACES_SAVES_H
#define TRACES_SAVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct trace;

struct saves_one {
    int64_t begin_ns, end_ns; /* the pause */
    int64_t written_ns;       /* complete; 0: not yet, or not written because a value was not finite */
    int64_t wait_ns;          /* for the one before, until begin_ns */
};
struct saves {
    struct saves_one *all;
    size_t n, capacity;
};

struct saves_cost {      /* means over the n complete ones */
    int64_t n;           /* 0: none */
    int64_t snapshot_ns; /* the pause: all ranks stop, copy and go on; if they wait for the write, that too */
    int64_t write_ns;    /* from there until complete */
    int64_t wait_ns;     /* a snapshot's wait for the end of the write before */
    int64_t slowdown_ns; /* added to the steps that overlap the write, >= 0 */
    double share;        /* (snapshot + wait + slowdown) of all ÷ time of the run's steps */
};

void saves_add(struct saves *s, struct arena *a, struct saves_one one);
/* Means over those that are complete. step_end_ns: (steps) ends of the run's steps. stopped: the run's clock stops during pauses. */
struct saves_cost saves_measure(const struct saves *s, const int64_t *step_end_ns, int64_t steps, bool stopped);
/* Those of a trace, with its SNAPSHOT and SAVE spans on the first device that has any. O(spans). */
struct saves_cost saves_of_trace(const struct trace *t);
/* Steps from one checkpoint to the next; `now`: where nothing is measured yet. mtbf_s > 0, or INFINITY. 1 … SAVES_EVERY_MAX. */
#define SAVES_EVERY_MAX (INT64_C(1) << 40)
int64_t saves_every(const struct saves *s, const int64_t *step_end_ns, int64_t steps, bool stopped, double mtbf_s, int64_t now);

#endif
