#include "planner/score.h"

#include "core/arena.h"
#include "core/program.h"
#include "planner/search.h"
#include "profiles/team.h"
#include "sim/sim.h"

#include <stdio.h>
#include <string.h>

struct scorer {
    const struct lower_options *lower;
    struct cost *cost;
    struct arena *own, *candidate,
        *program; /* own: this struct; candidate: its plan; program: lowering and simulation */
    int64_t runs;
    char why[sizeof((struct error *)0)->text];
};

struct scorer *scorer_new(const struct lower_options *lower, struct cost *k)
{
    struct arena *own = arena_new();
    struct scorer *w = ARENA_ARRAY(own, struct scorer, 1);
    *w = (struct scorer){.lower = lower,
                         .cost = k,
                         .own = own,
                         .candidate = arena_new(),
                         .program = arena_new(),
                         .why = "nothing was tried"};
    return w;
}

void scorer_free(struct scorer *w)
{
    arena_free(w->candidate);
    arena_free(w->program);
    arena_free(w->own);
}

struct arena *scorer_arena(struct scorer *w)
{
    arena_reset(w->candidate);
    return w->candidate;
}

int64_t scorer_runs(const struct scorer *w) { return w->runs; }
const char *scorer_why(const struct scorer *w) { return w->why; }

static enum status simulate(struct scorer *w, const struct space *s, const struct plan *p,
                            int64_t limit_ns, int64_t *iteration_ns, struct error *err)
{
    struct program program;
    struct sim_result result;
    TRY(lower_plan_graph(w->program, p, s->graph, w->lower, &program, err));
    struct sim_options o = {.steps = 0};
    (void)limit_ns; /* a cut-off in simulated time would have to know how long filling the pipeline
                       takes */
    TRY(sim_run(w->program, &program, w->cost, &o, &result, err));
    *iteration_ns = result.iteration_ns;
    return OK;
}

enum status scorer_run(struct scorer *w, const struct space *s, const struct plan *p,
                       int64_t limit_ns, int64_t *iteration_ns, int64_t *missing_bytes,
                       struct error *err)
{
    struct error why = {0};
    arena_reset(w->program);
    w->runs++;
    *iteration_ns = INT64_MAX;
    *missing_bytes = 0;
    enum status st = simulate(w, s, p, limit_ns, iteration_ns, &why);
    if (st == ERR_INFEASIBLE) {
        snprintf(w->why, sizeof w->why, "%s", why.text);
        return OK;
    }
    if (st != OK) return error_set(err, st, "%s", why.text);
    return OK;
}

struct plan score_copy_plan(struct arena *a, const struct plan *p)
{
    struct plan copy = *p;
    copy.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        size_t n = (size_t)p->replicas[r].n_stages;
        copy.replicas[r] = p->replicas[r];
        copy.replicas[r].stages = ARENA_ARRAY(a, struct plan_stage, n);
        memcpy(copy.replicas[r].stages, p->replicas[r].stages, n * sizeof *copy.replicas[r].stages);
    }
    return copy;
}

enum status search_score(struct arena *a, const struct plan *plan, const struct profile *p,
                         int64_t *iteration_ns, struct error *err)
{
    struct lower_options lower = {0};
    struct program program;
    struct sim_result result;
    struct sim_options o = {.steps = 0};
    TRY(team_fused(a, &plan->cluster, &lower, err));
    TRY(lower_plan(a, plan, &lower, &program, err));
    TRY(sim_run(a, &program, cost_new(a, p, &plan->cluster), &o, &result, err));
    *iteration_ns = result.iteration_ns;
    return OK;
}
