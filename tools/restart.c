#include "tools/restart.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/clock.h"
#include "planner/search.h"
#include "tools/common.h"
#include "tools/team/edit.h"

#include <inttypes.h>
#include <stdio.h>

enum { EVALUATIONS = 1250 }; /* the first round of a search (planner/search.h) */
enum { TRIED = 32 };         /* plans from which a deterministic one is taken, best first */

const char *restart_other_training(const struct plan *p)
{
    if (p->servers.rule.n) return "parameter_server";
    if (p->local_sgd.outer.every) return "local_sgd";
    if (plan_delays_gradients(p)) return "weight_versions";
    if (p->compression.gradients.kind || p->compression.forward.kind || p->compression.backward.kind) return "compression";
    return NULL;
}

enum status restart_begin(struct restart *r, const struct plan *plan, const struct run_options *o, struct error *err)
{
    struct checkpoint c = {0};
    const char *key = plan && r->elastic ? restart_other_training(plan) : NULL;
    if (r->elastic && !plan) return error_set(err, ERR_USAGE, "--elastic plans again, and a program file has no plan: pass the plan");
    if (key)
        return error_set(err, ERR_INPUT, "--elastic: the plan has %s, and new plans are of synchronous training: leave --elastic out, --max-restarts starts the same plan again", key);
    r->resume = o->resume;
    if ((r->max || r->counts) && o->resume) TRY(checkpoint_find(r->a, o->resume, &c, err));
    r->first = c.step;
    r->end = c.step + o->steps;
    r->events = ARENA_ARRAY(r->a, struct restart_event, (size_t)r->max + 1);
    return OK;
}

static const char *names_of(struct arena *a, const struct program *p, const struct launch_faults *f, const char *between)
{
    const char *names = "";
    for (int32_t i = 0; i < f->n; i++) names = arena_printf(a, "%s%s%s", names, i ? between : "", p->devices[f->rank[i]].name);
    return names;
}

enum status restart_plan(struct arena *a, const char *db, const struct cluster *searched, const struct cluster *used, const struct plan *old,
                         const volatile sig_atomic_t *stop, struct plan *plan, struct program *program, int64_t *out_ns, struct error *err)
{
    struct search_options o = {.top = old->deterministic ? TRIED : 1, .evaluations = EVALUATIONS, .from = old, .no_sharding = old->deterministic, .stop = stop};
    struct search_result found;
    struct profile profile;
    TRY(common_profile(a, &old->cluster, db, 0, &profile, err));
    struct job job = old->job;
    if (old->deterministic) job.n_microbatches_sizes = 1, job.microbatch_sizes[0] = old->microbatch; /* others round differently */
    TRY(search_plans(a, &job, searched, &profile, &o, &found, err));
    enum status status = OK;
    for (int32_t i = 0; i < found.n_plans; i++) {
        struct plan next = found.plans[i].plan;
        next.name = old->name;
        next.deterministic = old->deterministic;
        next.seed = old->seed;
        next.job = old->job;
        next.cluster = *used;
        status = common_lower(a, &next, true, program, err);
        if (status != OK) continue;
        *plan = next;
        *out_ns = found.plans[i].iteration_ns;
        return OK;
    }
    return status;
}

static enum status plan_again(struct restart *r, const struct launch_faults *f, struct plan *plan, struct program *program, struct error *err)
{
    struct team_change change = {.kind = TEAM_WITHOUT, .text = names_of(r->a, program, f, ",")};
    struct plan old = *plan;
    struct cluster left;
    int64_t ns;
    TRY(team_edit(r->a, &plan->cluster, &change, &left, err));
    return restart_plan(r->a, r->db, &left, &left, &old, NULL, plan, program, &ns, err);
}

bool restart_again(struct restart *r, const struct launch_faults *faults, const struct error *failure, struct plan *plan,
                   struct program *program, struct run_options *o, struct error *err)
{
    struct checkpoint c = {0};
    struct error none;
    *err = *failure;
    if (failure->code != ERR_RANK || r->n == r->max) return false;
    if (faults->signalled) {
        error_set(err, ERR_INTERRUPTED, "interrupted while the run ended: %s; the newest checkpoint is in %s", failure->text, o->save);
        return false;
    }
    struct restart_event *e = &r->events[r->n];
    *e = (struct restart_event){.why = arena_strdup(r->a, failure->text)};
    bool found = checkpoint_find(r->a, o->save, &c, &none) == OK;
    if (found && c.step >= r->end) return false;
    if (r->elastic && faults->n) {
        int64_t begin_ns = clock_wall_ns();
        e->without = names_of(r->a, program, faults, ", ");
        if (plan_again(r, faults, plan, program, err) != OK) {
            error_wrap(err, ERR_RANK, "%s; without %s there is no other plan", failure->text, e->without);
            return false;
        }
        e->replan_ns = clock_wall_ns() - begin_ns;
    }
    e->step = r->first = c.step;
    o->resume = found ? o->save : r->resume;
    o->steps = found ? r->end - c.step : o->steps;
    r->n++;
    log_warn("%s; restart %" PRId32 " of %" PRId64 " after step %" PRId64 "%s%s", e->why, r->n, r->max, e->step, e->without ? ", without " : "",
             e->without ? e->without : "");
    return true;
}

void restart_print(const struct restart *r, struct json *json)
{
    char text[32];
    if (json && r->n) json_put_list(json, "restarts");
    for (int32_t i = 0; i < r->n; i++) {
        const struct restart_event *e = &r->events[i];
        if (json) {
            json_put_object(json, NULL);
            json_put_int(json, "step", e->step);
            json_put_text(json, "why", e->why);
            if (e->without) json_put_text(json, "without", e->without);
            if (e->without) json_put_int(json, "replan_ns", e->replan_ns);
            json_close(json);
        } else {
            printf("  restart    after step %" PRId64 ": %s", e->step, e->why);
            if (e->without) printf("; without %s, planned in %s", e->without, units_print_ns(text, e->replan_ns));
            putchar('\n');
        }
    }
    if (json && r->n) json_close(json);
}
