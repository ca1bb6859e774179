/* tools/restart.h - a run whose rank failed starts again from the newest checkpoint, on all devices or without the failed ones.
 *
 * As torchrun does, all ranks start again (`--max-restarts`). With `--elastic` the devices of the ranks that failed are removed from the
 * cluster, and the plan is adapted to the rest of it, spares included, by the planner's warm start (planner/replan/warm_start.h). With
 * `deterministic: true` the parameters are those of an undisturbed run, to the bit.
 */
#ifndef TOOLS_RESTART_H
#define TOOLS_RESTART_H

#include "core/plan/plan.h"
#include "core/program/program.h"
#include "exec/comm/launch_local.h"
#include "exec/worker/worker.h"

#include <signal.h>

struct json;

struct restart_event {
    int64_t step;        /* of the checkpoint; 0: none */
    int64_t replan_ns;   /* wall time of the new plan's search and lowering; 0: none */
    const char *why;     /* how the rank failed */
    const char *without; /* devices removed, "a.0, b.1"; NULL: none */
};

/* Fields but the first four belong to restart.c. */
struct restart {
    int64_t max;
    bool elastic;
    const char *db; /* profile of the new plans; NULL: priors */
    bool counts; /* steps of the whole run are needed, or max > 0 */
    struct arena *a;
    const char *resume; /* of the first start */
    int64_t first, end; /* step of the checkpoint that this start resumes, 0: none; step behind the last one */
    int32_t n;
    struct restart_event *events; /* (n) */
};

/* The key of a plan that a search does not write, because the plan trains differently; NULL: none. */
const char *restart_other_training(const struct plan *p);
/* A new plan of the old one's job, by warm start, for the cluster `searched`, lowered for `used`: the same devices, which may have other speeds there.
 * stop: nonzero ends the search with its best plan so far; NULL: never. db: profile, NULL: priors. *out_ns: its predicted iteration on `searched`. ERR_INFEASIBLE: none fits. */
MUST_CHECK enum status restart_plan(struct arena *a, const char *db, const struct cluster *searched, const struct cluster *used, const struct plan *old,
                                    const volatile sig_atomic_t *stop, struct plan *plan, struct program *program, int64_t *out_ns, struct error *err);

/* Before the first start: notes where the run begins. ERR_INPUT: the checkpoint to resume from cannot be read; --elastic and a plan that
 * trains differently, which searches do not make. plan: NULL of a program file, which --elastic refuses. */
MUST_CHECK enum status restart_begin(struct restart *r, const struct plan *plan, const struct run_options *o, struct error *err);
/* After a start that ended with `failure`: whether there is another one. Then sets where `o` resumes and its steps, and with --elastic
 * *plan and *program anew. False: err is the reason, the failure itself where no restart is left. */
bool restart_again(struct restart *r, const struct launch_faults *faults, const struct error *failure, struct plan *plan,
                   struct program *program, struct run_options *o, struct error *err);
/* "  restarts  2: …"; json: the key "restarts" instead. Nothing without one. */
void restart_print(const struct restart *r, struct json *json);

#endif
