/* tools/restart.h - a run whose rank failed starts again from the newest checkpoint, on all devices or without the failed ones; and what
 * became of the run's time: goodput.
 *
 * As torchrun does, all ranks start again (`--max-restarts`). With `--elastic` the devices of the ranks that failed are removed from the
 * cluster, and the plan is adapted to the rest of it, spares included, by the planner's warm start (planner/replan/warm_start.h). With
 * `deterministic: true` the parameters are those of an undisturbed run, to the bit. A node that a fault script (`--faults`) takes away
 * may come back: ranks then end behind a step, with a checkpoint, and start again with it.
 */
#ifndef TOOLS_RESTART_H
#define TOOLS_RESTART_H

#include "core/plan/plan.h"
#include "core/program/program.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/faults.h"
#include "exec/worker/run_board.h"
#include "exec/worker/worker.h"

#include <signal.h>

struct json;

struct restart_event {
    int64_t step;        /* of the checkpoint; 0: none */
    bool failed;         /* else a node is back, or another plan is taken */
    const char *why;     /* how the rank failed, which node is back, or why the plan changes */
    const char *without; /* devices removed, "a.0, b.1"; NULL: none */
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

/* Fields but the first five, and those of next and speeds, belong to restart.c. */
struct restart {
    int64_t max;
    bool elastic;
    const char *db;     /* profile of the new plans; NULL: priors */
    const char *script; /* file of --faults; NULL: none */
    bool counts;        /* the number of steps of the whole run is needed without the others too */
    struct arena *a;
    const char *resume; /* of the first start */
    int64_t begin, end; /* steps before the first one, and the last one */
    struct restart_shared *shared;
    struct fault_script faults;
    struct plan plan; /* of the first start */
    struct program program;
    int32_t n_away; /* devices removed so far */
    const char *away[LOCAL_RANKS_MAX];
    int32_t returned;  /* fault whose node is back since the last start; -1: none */
    int64_t launch_ns; /* of the first start */
    /* a plan for the same cluster that is taken after an early stop, and why (tools/adapt.h); NULL: none */
    const struct plan *next;
    const struct program *next_program;
    const char *why_next;
    bool took;            /* the last start is on that plan */
    bool at_first_speeds; /* the last start is on the first plan again */
    /* changes the speeds of a cluster's devices and links to those of now, for new plans; NULL: they are as stated */
    enum status (*speeds)(void *owner, struct arena *a, struct cluster *c, struct error *err);
    void *speeds_owner;
    int32_t n, failures; /* restarts; of those because of a failure */
    size_t capacity;
    struct restart_event *events; /* (n) */
};

/* Before the first start: notes where the run begins, reads the fault script, and sets o->board, o->faults and o->survives. ERR_INPUT: the
 * checkpoint to resume from or the script cannot be read; --elastic and a plan that trains differently, which searches do not make.
 * plan: NULL of a program file, which --elastic refuses. */
MUST_CHECK enum status restart_begin(struct restart *r, const struct plan *plan, const struct program *program, struct run_options *o,
                                     struct error *err);
/* ERR_INPUT: the script has faults that need other options of the run. save_every: 0: no checkpoints between steps. */
MUST_CHECK enum status restart_check_script(const struct fault_script *s, const char *path, bool elastic, int64_t save_every, struct error *err);
/* Before each start. */
void restart_start(struct restart *r);
/* While ranks run, every few ms (struct launch_hooks): injects faults. True if a lost node is back: the ranks end early, and
 * restart_again starts them with it. */
bool restart_look(struct restart *r, const struct program *program, const pid_t *pid);
/* Why a plan cannot be planned again; NULL: it can. */
const char *restart_trains_differently(const struct plan *p);
/* A new plan of the old one's job, by warm start, for the cluster `searched`, lowered for `used`: the same devices, which may have other speeds there.
 * stop: nonzero ends the search with its best plan so far; NULL: never. db: profile, NULL: priors. *out_ns: its predicted iteration on `searched`.
 * ERR_INFEASIBLE: none fits. */
MUST_CHECK enum status restart_search(struct arena *a, const char *db, const struct cluster *searched, const struct cluster *used,
                                      const struct plan *old, const volatile sig_atomic_t *stop, struct plan *plan, struct program *program,
                                      int64_t *out_ns, struct error *err);
/* *plan and *program without these devices ("a.0,b.1"), by the planner's warm start. ERR_INPUT, ERR_INFEASIBLE: there is none. */
MUST_CHECK enum status restart_plan(struct arena *a, const char *db, const char *without, struct plan *plan, struct program *program,
                                    struct error *err);
/* After a start that ended with `failure`: whether there is another one. Then sets where `o` resumes and its steps, and with --elastic
 * *plan and *program anew. False: err is the reason, the failure itself where no restart is left. */
bool restart_again(struct restart *r, const struct launch_faults *faults, const struct error *failure, struct plan *plan,
                   struct program *program, struct run_options *o, struct error *err);
/* After the last start. */
void restart_end(struct restart *r);
/* By rank 0 after its last step: goodput, faults and restarts as text, or the keys "goodput", "faults" and "restarts". Text of a run that
 * may not start again, and of one device: nothing. */
void restart_print(struct restart *r, struct json *json);

#endif
