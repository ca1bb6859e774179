/* sim/goodput/internal.h - the state of one simulated run, for goodput.c and script.c. */
#ifndef SIM_GOODPUT_INTERNAL_H
#define SIM_GOODPUT_INTERNAL_H

#include "sim/goodput/goodput.h"

#include <stddef.h>

#define NEVER INT64_MAX

enum state { RUN, WRITE, MEMORY, DETECT, REPLAN, RESTART, WAIT };
struct repair {
    int64_t time_ns, devices;
    int32_t type;
};
struct walk {
    struct arena *arena;
    const struct goodput_job *job;
    struct goodput_tally *out;
    uint64_t seed, stream; /* stream: of the sample */
    int64_t interval_ns, now_ns;
    enum state state;
    int64_t phase_end_ns;
    bool then_change;               /* this WRITE precedes a change of devices */
    int64_t *there, *broken, *used; /* (n_types) */
    double speed, exposure;         /* exposure: used ÷ all, the rate of failures */
    double work, safe, pending;     /* ns at speed 1 */
    int64_t durable_ns;             /* when pending is safe; NEVER: nothing pending */
    int64_t due_ns;
    double due_work; /* of a job with step_ns */
    /* checkpoints in memory, as above; from_memory: the last failure was followed by a restart from one */
    double memory_safe, memory_pending, memory_due_work;
    int64_t memory_durable_ns, memory_due_ns;
    bool from_memory;
    struct script_state *script; /* (n_events) */
    double slowed;               /* speed left by events of the script; 1: all of it */
    double clock; /* exposure passed */
    double *next; /* (n_causes) its next failure on the clock */
    uint64_t *drawn;
    size_t soonest; /* n_causes: none */
    size_t change;  /* the next */
    size_t first_repair, n_repairs, repair_capacity;
    struct repair *repairs;
    size_t blame; /* cause of the current stop; n_causes: devices withdrawn or grown */
};

/* goodput.c */
double goodput_work_pace(const struct walk *w);
/* Loses the work since the last safe checkpoint, and stops for detection. */
void goodput_stop(struct walk *w, int64_t detect_ns, bool node);
void goodput_maybe_grow(struct walk *w); /* devices have returned */

/* memory.c: checkpoints in host memory. */
void memory_set_due(struct walk *w);
int64_t memory_due_ns(const struct walk *w); /* of the next pause; NEVER: none */
void memory_written(struct walk *w);         /* the pause is over */
void memory_copied(struct walk *w);          /* the peers have their copies */
double memory_kept(struct walk *w, bool node); /* the work that a failure, of a node or of a process, leaves, there or on storage */

/* script.c: events of a script, each of which happens once. O(events) a call. */
struct script_state {
    bool happened, back;
    int64_t at_ns; /* when it happened */
    double left;   /* executed work for which it still lasts, ns at speed 1 */
};
void script_open(struct walk *w);
/* The next instant at which an event happens, ends or is undone; NEVER: none. */
int64_t script_next_ns(const struct walk *w);
void script_happen(struct walk *w); /* what is due now */
void script_worked(struct walk *w, double work);
/* Whether the checkpoint that has ended now is written. */
bool script_writes(struct walk *w);

#endif
