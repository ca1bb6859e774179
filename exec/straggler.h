/* exec/straggler.h - stragglers of a run: a device whose operators, or a link whose messages, take longer than at the run's beginning.
 *
 * Each rank adds up, step by step, the time of its operators and, for each peer, the time per byte of the messages that it sent. The median of
 * the first STRAGGLER_BASE steps, without the very first, is the base. A change is reported when STRAGGLER_WINDOW steps one after the other are all
 * STRAGGLER_FACTOR times above, or all below, the level last reported (1 at first): so a device that is twice as slow is named
 * STRAGGLER_WINDOW steps later, one slow step is never named, and a device that recovers is named too. On real devices, whose times are wall times,
 * the steps take STRAGGLER_NS at least, because a process is often preempted for some steps of a few ms.
 *
 * Reports are in memory that ranks share with the process that started them, which reads them (tools/adapt.h). On emulated devices times are
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

/* One rank's reports. Levels are in millionths of the base; 0: none. */
struct straggler_report {
    _Atomic int64_t step;                      /* of this run in progress, from 0 */
    _Atomic int64_t compute_ppm, compute_step; /* step of this run, from 1 */
    _Atomic int64_t link_ppm, link_step;
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
        double value, size; /* so far: ns, and bytes of messages */
    } compute, *peers;      /* (devices) */
};
/* table NULL: returns NULL, which the calls below accept. */
struct straggler_watch *straggler_open(struct arena *a, const struct program *p, int32_t rank, struct straggler_table *table);
/* An operator of this rank, by the compute thread; step: of this run, from 0. */
void straggler_operator(struct straggler_watch *w, int64_t step, int64_t ns);
/* A message that this rank sent to another device through the host, by the communication thread. */
void straggler_message(struct straggler_watch *w, int32_t peer, int64_t step, int64_t bytes, int64_t ns);

#endif
