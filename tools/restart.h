/* tools/restart.h - a run whose rank failed starts again from the newest checkpoint, on all devices or without the failed ones; and what
 * became of the run's time: goodput.
 *
 * As torchrun does, all ranks start again (`--max-restarts`). With `--elastic` the devices of the ranks that failed are away, as are those that
 * `--hostfile` does not list, and the plan is adapted to the rest of the cluster, spares included, by the planner's warm start
 * (planner/replan/warm_start.h). With `deterministic: true` the parameters are those of an undisturbed run, to the bit.
 * A device that leaves the hostfile ends the ranks behind a step, with a checkpoint, and they start again without it. One that comes, or a lost node
 * of a fault script (`--faults`) that is back, is a reason to search a plan, which is taken if it pays (tools/adapt.h). A device that failed stays
 * away until the hostfile has dropped it and lists it again.
 */
#ifndef TOOLS_RESTART_H
#define TOOLS_RESTART_H

#include "core/plan/plan.h"
#include "core/program/program.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/faults.h"
#include "exec/worker/run_board.h"
#include "exec/worker/worker.h"
#include "tools/hostfile.h"
#include "tools/restart_memory.h"

#include <signal.h>

struct json;

struct restart_event {
    int64_t step;        /* of the checkpoint; 0: none */
    bool memory;         /* it was in host memory */
    int32_t copies;      /* ranks whose part of it was that of a peer node */
    bool failed;         /* else a device leaves, or another plan is taken */
    const char *why;     /* how the rank failed, which devices leave, or why the plan changes */
    const char *without; /* devices removed, "a.0, b.1"; NULL: none */
    const char *plan;    /* plan_describe of the new plan; NULL: the same one */
    int32_t n_devices;   /* ranks of the next start */
    int64_t at_ns;       /* CLOCK_MONOTONIC: all ranks have ended */
    int64_t lost_steps;  /* that had ended behind the checkpoint and are repeated */
    int64_t lost_ns;     /* their time, and that of the step in which the rank failed */
    /* phases, ns of wall time: from the first rank's death until all ranks have ended; waiting for a lost node; search and lowering of
     * the new plan; from the fork of the ranks to time 0 without load; reading the checkpoint; the first step. 0: not reached */
    int64_t detection_ns, waiting_ns, replan_ns, launch_ns, load_ns, first_step_ns;
};
/* Memory shared with the ranks of all starts. */
struct restart_shared {
    struct run_board board;
    struct faults faults;
};

/* Of the trace; times are CLOCK_MONOTONIC. */
struct restart_span {
    enum span_kind kind;
    int64_t begin_ns, end_ns;
    const char *text;
};

/* Fields but those of the options, next and speeds belong to restart.c. */
struct restart {
    int64_t max, min_devices;
    bool elastic;
    const char *db;       /* profile of the new plans; NULL: priors */
    const char *script;   /* file of --faults; NULL: none */
    const char *hostfile; /* NULL: none */
    const char *max_lost; /* time; NULL: no limit */
    bool counts;        /* the number of steps of the whole run is needed without the others too */
    struct arena *a;
    const char *resume; /* of the first start */
    int64_t begin, end; /* steps before the first one, and the last one */
    struct restart_shared *shared;
    struct fault_script faults;
    struct plan plan; /* of the first start */
    struct program program;
    int64_t max_lost_ns;
    struct hostfile hosts;
    bool *failed, *listed; /* (devices of plan.cluster) of --elastic, else NULL: lost until they are back; in the hostfile at the last look */
    const char *leaves;    /* why the ranks of this start end early; NULL: they do not */
    const char *arrived;   /* devices that came, on which nothing is decided yet; NULL: none. tools/adapt.h takes it */
    uint64_t first_hash;   /* plan_hash of the first start */
    int64_t launch_ns;     /* of the first start */
    int32_t n_spans;
    size_t spans_capacity;
    struct restart_span *spans; /* (n_spans) of all starts but the last */
    /* a plan for the same cluster that is taken after an early stop, and why (tools/adapt.h); NULL: none */
    const struct plan *next;
    const struct program *next_program;
    const char *why_next;
    bool took;            /* the last start is on that plan */
    /* changes the speeds of a cluster's devices and links to those of now, for new plans; NULL: they are as stated */
    enum status (*speeds)(void *owner, struct arena *a, struct cluster *c, struct error *err);
    void *speeds_owner;
    struct restart_memory memory;
    int32_t n, failures; /* restarts; of those because of a failure */
    size_t capacity;
    struct restart_event *events; /* (n) */
};

/* Before the first start: notes where the run begins, reads the fault script and the hostfile, and sets o->board, o->faults and o->survives. *plan and
 * *program change if the hostfile lacks devices of the plan. ERR_INPUT: the checkpoint to resume from, the script or the hostfile cannot be read;
 * --elastic and a plan that trains differently, which searches do not make. ERR_LIMIT: fewer devices than --min-devices.
 * plan: NULL of a program file, which --elastic refuses. */
MUST_CHECK enum status restart_begin(struct restart *r, struct plan *plan, struct program *program, struct run_options *o, struct error *err);
/* ERR_INPUT: the script has faults that need other options of the run. save_every: 0: no checkpoints between steps. */
MUST_CHECK enum status restart_check_script(const struct fault_script *s, const char *path, bool elastic, int64_t save_every, struct error *err);
/* Before each start. */
void restart_start(struct restart *r, const struct program *program);
/* Whether restart_look has anything to look at. */
bool restart_watches(const struct restart *r);
/* While ranks run (struct launch_hooks): injects faults, and looks at the hostfile. True if a device in use has left it: the ranks end early, and
 * restart_again starts them without it. *due_ns: when it is to be called within the second; 0: not. */
bool restart_look(struct restart *r, const struct program *program, const pid_t *pid, int64_t *due_ns);
/* Why a plan cannot be planned again; NULL: it can. */
const char *restart_trains_differently(const struct plan *p);
/* The first plan's cluster without the devices that are away. ERR_INFEASIBLE: none is left. */
MUST_CHECK enum status restart_cluster(const struct restart *r, struct arena *a, struct cluster *out, struct error *err);
struct restart_question {
    const char *db;                   /* profile, NULL: priors */
    const struct cluster *profiled;   /* whose profile it is: the first plan's */
    const struct cluster *searched;   /* at the speeds of now */
    const struct cluster *used;       /* the same devices as stated: the new plan's */
    const struct plan *old;           /* its job, and where the search begins */
    const volatile sig_atomic_t *stop; /* nonzero ends the search with its best plan so far; NULL: never */
};
/* A new plan of the old one's job, by warm start, and its program. *out_ns: its predicted iteration on `searched`. ERR_INFEASIBLE: none fits. */
MUST_CHECK enum status restart_search(struct arena *a, const struct restart_question *q, struct plan *plan, struct program *program, int64_t *out_ns,
                                      struct error *err);
/* *plan and *program without these devices ("a.0,b.1"), by the planner's warm start. ERR_INPUT, ERR_INFEASIBLE: there is none. */
MUST_CHECK enum status restart_plan(struct arena *a, const char *db, const struct cluster *profiled, const char *without, struct plan *plan,
                                    struct program *program, struct error *err);
/* After a start that ended with `failure`: whether there is another one. Then sets where `o` resumes and its steps, and with --elastic
 * *plan and *program anew. False: err is the reason: the failure itself where no restart is left; ERR_LIMIT at --min-devices and
 * --max-lost, and then the newest checkpoint is the run's result. */
bool restart_again(struct restart *r, const struct launch_faults *faults, const struct error *failure, struct plan *plan,
                   struct program *program, struct run_options *o, struct error *err);
/* After the last start. */
void restart_end(struct restart *r);
/* By rank 0 after its last step: adds the spans of all starts to the trace, whose times then count from the first step of the first start. Nothing of a
 * run that has not started again. */
void restart_trace(struct restart *r, struct trace *t);
void restart_trace_add(const struct restart *r, struct trace *t, const struct restart_span *s);
/* "steps 11 to 40 on 4 devices" */
const char *restart_span_text(struct arena *a, int64_t before, int64_t ended, int32_t n_devices);
/* The phases of the last start so far. */
void restart_note_start(struct restart *r);
/* By rank 0 after its last step: goodput, faults and restarts as text, or the keys "goodput", "faults" and "restarts". Text of a run that
 * may not start again, and of one device: nothing. */
void restart_print(struct restart *r, struct json *json);

#endif
