/* exec/straggler.h - what each rank measures of stragglers: the time of its operators and of its input data, and that of the messages it sends.
 *
 * Each rank adds up, step by step, the time of its operators, the wall time in which it loaded input data and, for each peer, the time per byte of
 * the messages that it sent. Rows of operators and inputs are compared over the whole team (exec/straggler_team.h), messages here. The median of
 * the first STRAGGLER_BASE steps, without the very first, is the base. A change is reported when STRAGGLER_WINDOW steps one after the other are all
 * STRAGGLER_FACTOR times above, or all below, the level last reported (1 at first): so a device that is twice as slow is named
 * STRAGGLER_WINDOW steps later, one slow step is never named, and a device that recovers is named too. On real devices, whose times are wall times,
 * the steps take STRAGGLER_NS at least, because a process is often preempted for some steps of a few ms.
 *
 * Rows and reports are in memory that ranks share with the process that started them, which reads them (tools/adapt.h). On emulated devices times are
 * virtual, so that the load of the machine does not count. A program's waits for others are not among these times.
 * Cost: an addition for each operator and message.
 */
#ifndef EXEC_STRAGGLER_H
#define EXEC_STRAGGLER_H

#include "core/program/program.h"
#include "exec/comm/launch_local.h"

#include <stdatomic.h>
#include <stdint.h>

struct arena;

/* 1.5: operators of emulated devices, which share two cores, took up to 1.3 times their base for several steps on a loaded machine. A device must be
 * named within 10 steps: 5 leave time to plan. */
#define STRAGGLER_FACTOR 1.5
enum { STRAGGLER_BASE = 8, STRAGGLER_WINDOW = 5 };
#define STRAGGLER_NS INT64_C(1000000000)

struct straggler_series { /* of one device or channel */
    int64_t n;            /* values so far */
    double first[STRAGGLER_BASE], last[STRAGGLER_WINDOW];
    double base;  /* 0: not yet known */
    double level; /* last reported, relative to the base */
    int64_t streak, since_ns; /* steps one after the other that are all above, or (negative) all below; when the first of them ended */
};
/* Adds a step's value, above 0, that ended at now_ns. Returns whether the level has changed. */
bool straggler_add(struct straggler_series *s, double value, int64_t now_ns, int64_t least_ns);
/* In two parts. base: value ÷ base; 0: one of the first values, which make the base. level: whether a ratio has changed the level. */
double straggler_base(struct straggler_series *s, double value);
bool straggler_level(struct straggler_series *s, double ratio, int64_t now_ns, int64_t least_ns);

/* What a rank did in one step of a run. */
struct straggler_row {
    int64_t step;
    double operators_ns, inputs_ns; /* time of operators; wall time in which input data was loaded */
    int64_t end_ns;                 /* CLOCK_MONOTONIC */
};

/* Rows that a reader may be late: a reader that looks every 4 ms sees all steps of 16 us and more, 512 KiB of 64 ranks. */
enum { STRAGGLER_ROWS = 256, STRAGGLER_WAKE = 8 /* steps after which a rank wakes the process that reads the rows, which else reads once a second */ };

/* One rank's rows and reports. Levels are in millionths of the base; 0: none. */
struct straggler_report {
    _Atomic int64_t step; /* of this run in progress, from 0 */
    _Atomic int64_t ended; /* steps whose rows are complete; that of step s is rows[s mod STRAGGLER_ROWS] */
    struct straggler_row rows[STRAGGLER_ROWS];
    _Atomic int64_t link_ppm, link_step; /* step of this run, from 1 */
    _Atomic int64_t peer; /* device to which that link leads */
};
/* All ranks of a host; zeroed. */
struct straggler_table {
    struct straggler_report ranks[LOCAL_RANKS_MAX];
};

/* What a rank adds up. All fields belong to straggler.c. */
struct straggler_watch {
    struct straggler_report *report;
    int64_t least_ns;
    struct straggler_sum {
        struct straggler_series series;
        int64_t step;       /* in progress */
        double value, size; /* so far: ns and bytes */
    } *peers;               /* (devices) messages to each */
};
/* table NULL: returns NULL, which the calls below accept. */
struct straggler_watch *straggler_open(struct arena *a, const struct program *p, int32_t rank, struct straggler_table *table);
/* By the compute thread; step: of this run, from 0. An operator of this rank; all operators of earlier steps have ended. Input data of a step,
 * which may be in front of the operators. ended: all operators of the step have ended. */
void straggler_operator(struct straggler_watch *w, int64_t step, int64_t ns);
void straggler_inputs(struct straggler_watch *w, int64_t step, int64_t ns);
void straggler_ended(struct straggler_watch *w, int64_t step);
/* A message that this rank sent to another device through the host, by the communication thread. */
void straggler_message(struct straggler_watch *w, int32_t peer, int64_t step, int64_t bytes, int64_t ns);

#endif
