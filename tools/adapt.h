/* tools/adapt.h - a run that adapts to devices and links whose speed changes (`run --adapt`).
 *
 * Ranks report their times (exec/straggler.h) in shared memory, and the process that started them compares them (exec/straggler_team.h). It names
 * the likely cause, the step and the factor: a device (compute), a link, a host if all its devices in use, two or more, change together, or input data. For all but
 * data it plans again, by the planner's warm start, on a cluster whose speeds are changed accordingly (TEAM_SLOW and links
 * of less bandwidth). The new plan is taken if its predicted gain over the remaining steps exceeds the cost of a change, which is a stop with a
 * checkpoint and a new start: twice the time that the newest start took until the end of its first step, as measured. A gain below ADAPT_GAIN is within the predictions' error and is
 * no reason. Then all ranks stop after a step, with a checkpoint, and start again on the new plan. With `advise` they go on, and the decision is only
 * printed.
 *
 * The search has a thread of its own, because reports go on meanwhile, and ADAPT_SEARCH_S at most.
 *
 * A device that recovers is treated alike. Factors outlive new starts, and levels of a start are relative to its factors. A start on a plan that was
 * not chosen for these factors, because a failure came before the decision or a lost node is back, is followed by a search at once.
 * With `--elastic` devices that come (restart.arrived) are decided on by the same rule, whatever the mode: the search is on all devices that are there,
 * and the run's first plan is a candidate again once all of its devices are.
 * Between two changes at least ADAPT_PAUSE times the cost of one passes, so that a machine whose speed varies does not change its plan all the time; a device that comes is looked at at once.
 */
#ifndef TOOLS_ADAPT_H
#define TOOLS_ADAPT_H

#include "exec/straggler_team.h"
#include "tools/restart.h"

struct json;

#define ADAPT_GAIN 0.05
#define ADAPT_PAUSE 10 /* so that changes take at most a tenth of the time */
#define ADAPT_SEARCH_S 10 /* the first round of a search takes 0.1 to 3 s on up to 64 devices, more beside a loaded processor */

/* Steps in which the other devices of a slow host may follow the first one: their first slow steps differ by one where the slowness begins within a step.
 * A cause must be named within 10 steps, STRAGGLER_WINDOW of which are the window. */
enum { ADAPT_HOST_STEPS = 2 };

/* Likely causes: bit, text */
#define ADAPT_CAUSES(X) X(COMPUTE, "compute") X(LINK, "link") X(HOST, "host") X(DATA, "data")
enum adapt_cause { CAUSE_COMPUTE = 1, CAUSE_LINK = 2, CAUSE_HOST = 4, CAUSE_DATA = 8 };

enum adapt_mode { ADAPT_OFF, ADAPT_ADVISE, ADAPT_ON };

enum { ADAPT_EVENTS_MAX = 64, ADAPT_TEXT = 480 };

struct adapt_event {
    int64_t step;                      /* in whose end the straggler was seen */
    int causes;                        /* of enum adapt_cause */
    char what[ADAPT_TEXT];             /* "operators of n.1 take 2.02 times as long" */
    int64_t old_ns, new_ns, replan_ns; /* predicted iterations of the old and the new plan; search. 0: no plan was found */
    int64_t begin_ns;                  /* CLOCK_MONOTONIC of the search */
    int64_t cost_ns;                   /* of a change */
    char plan[ADAPT_TEXT];             /* plan_describe of the new one */
    bool taken;
    char why[ADAPT_TEXT]; /* not taken; "": taken */
};

/* Of ranks and the process that starts them. */
struct adapt_shared {
    struct straggler_table table; /* of the running start */
    _Atomic int32_t n;            /* events so far; those beyond ADAPT_EVENTS_MAX are not kept */
    struct adapt_event events[ADAPT_EVENTS_MAX];
};

/* Fields but the first belong to adapt.c. */
struct adapt {
    int mode; /* enum adapt_mode: of speeds */
    struct restart *restart;
    struct adapt_shared *shared; /* NULL: off */
    const struct plan *plan;       /* running */
    const struct program *program;
    double *device, *link;           /* (devices), (links) factors of the cluster's devices and links */
    double *device_base, *link_base; /* the same, at this start */
    double *device_known, *link_known; /* the same, for which the running plan was chosen or kept */
    struct straggler_team team;
    int fresh[LOCAL_RANKS_MAX]; /* causes that are seen and not yet named */
    int64_t fresh_step;         /* of the first of them, of this start, from 1; 0: none */
    int64_t seen_link[LOCAL_RANKS_MAX];
    int64_t cost_ns;           /* of a change: twice the time from the newest start's fork to the end of its first step; 0: not yet measured */
    const char *news;          /* speeds, not yet decided; NULL: none */
    int news_causes;           /* of enum adapt_cause */
    const char *came;          /* devices, not yet decided; NULL: none */
    int64_t news_step;
    int64_t first;             /* steps before this start */
    int64_t changed_ns;        /* wall time of the last change; 0: none */
    bool pending;              /* restart->next is to be taken */
    int32_t event;             /* its event; -1: not kept */
    struct adapt_search *search; /* under way; NULL: none */
};

/* Before the first start, after restart_begin. ERR_USAGE, ERR_INPUT: a program file; a plan that trains differently. ERR_RESOURCE: no shared
 * memory. */
MUST_CHECK enum status adapt_begin(struct adapt *x, struct restart *r, const struct plan *plan, struct error *err);
/* Before each start; sets where ranks report. */
void adapt_start(struct adapt *x, const struct plan *plan, const struct program *program, struct run_options *o);
/* While ranks run, in the process that started them. True: they are to stop early, and restart_again starts them on restart->next. */
bool adapt_look(struct adapt *x);
/* After each start: the search ends. */
void adapt_end(struct adapt *x);
/* The ranks go on without the plan that was to be taken, because the checkpoint for it could not be written; false: it is tried again. */
void adapt_postpone(struct adapt *x, bool postponed);
/* Adds the searches to a trace of restart_trace, as REPLAN spans. */
void adapt_trace(const struct adapt *x, struct trace *t);
/* After the last start, with the options' profile database: appends the next generation of the cluster's profile, in which devices and links have the
 * speeds that they had at the end, so that the next plan knows. Nothing if they are as at first; a failure is a warning. */
void adapt_store(struct adapt *x);
/* "  adapted    after step 57: …"; json: the key "adaptations" instead. Nothing without one. */
void adapt_print(const struct adapt *x, struct json *json);

#endif
