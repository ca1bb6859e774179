#include "planner/multi_device/multi_device_stage.h"

#include "core/base/arena.h"
#include "planner/multi_device/internal.h"
#include "planner/multi_device/moves.h"
#include "planner/multi_device/pipelines.h"
#include "planner/schedule/refine.h"
#include "planner/spmd_stage/spmd_stage.h"

#include <string.h>

enum {
    STARTS_MAX = 3,
    PIPELINES_EACH = 12, /* per microbatch size; on many devices: */
    PIPELINES_FEW = 4,
    LOOKS_EACH = 8, /* plans constructed per allowed simulation */
    /* Beside a search of many devices: budget in us, measured cost of a simulation per call and constant; fewest worth starting */
    BESIDE_US = 400000,
    BESIDE_CALL_NS = 6000,
    BESIDE_PLAN_US = 1000,
    BESIDE_MIN = 30,
    BESIDE_DEVICES_MAX = 128 /* above, making a plan takes longer than simulating it */
};

static int32_t space_of(const struct multi_device *c, const struct plan *p)
{
    for (int32_t k = 0; k < c->n_spaces; k++)
        if (c->spaces[k].microbatch == p->microbatch &&
            c->spaces[k].cluster->devices == p->cluster.devices)
            return k;
    return -1;
}

static void keep_start(const struct multi_device *c, const struct multi_device_point *y,
                       struct multi_device_point *starts, int32_t *n)
{
    if (y->x.iteration_ns == INT64_MAX) return;
    int32_t at = *n;
    if (at == STARTS_MAX) {
        if (!incumbents_better(&c->t->incumbents, &y->x, &starts[--at].x)) return;
    } else {
        ++*n;
    }
    for (; at > 0 && incumbents_better(&c->t->incumbents, &y->x, &starts[at - 1].x); at--)
        starts[at] = starts[at - 1];
    starts[at] = *y;
}

static const struct search_plan unbeaten = {.iteration_ns = INT64_MAX};

/* Starts: incumbents with default orders. */
static enum status start_from_kept(struct multi_device *c, struct multi_device_point *starts,
                                   int32_t *n, struct error *err)
{
    int32_t looked = 0;
    int32_t most = multi_device_many(c) ? 1 : 2 * STARTS_MAX;
    for (int32_t i = 0; i < c->t->incumbents.n && looked < most; i++) {
        const struct plan *from = &c->t->incumbents.plans[i].plan;
        int32_t space = space_of(c, from);
        if (space < 0 || !multi_device_possible(from)) continue;
        struct plan p = multi_device_copy(c, from);
        struct multi_device_point y;
        looked++;
        TRY(multi_device_try(c, &p, space, &unbeaten, &y, err));
        keep_start(c, &y, starts, n);
    }
    return OK;
}

static enum status start_from_pipelines(struct multi_device *c, struct multi_device_point *starts,
                                        int32_t *n, struct error *err)
{
    struct plan plans[PIPELINES_EACH];
    int32_t few = 0, most = multi_device_many(c) ? PIPELINES_FEW : PIPELINES_EACH;
    for (int32_t k = 1; k < c->n_spaces; k++)
        if (c->spaces[k].microbatch < c->spaces[few].microbatch) few = k;
    for (int32_t k = 0; k < c->n_spaces && !multi_device_over(c); k++) {
        int32_t made =
            multi_device_pipelines(c->arena, &c->spaces[k], &c->spaces[few], most, plans);
        for (int32_t i = 0; i < made; i++) {
            struct multi_device_point y;
            const struct search_plan *best = *n == STARTS_MAX ? &starts[*n - 1].x : &unbeaten;
            TRY(multi_device_try(c, &plans[i], k, best, &y, err));
            keep_start(c, &y, starts, n);
        }
    }
    return OK;
}

/* If all starts have equally many replicas: the best incumbent with another number, which no small move reaches. */
static enum status start_distinct(struct multi_device *c, const struct multi_device_point *starts,
                                  int32_t n, struct multi_device_point *out, bool *found,
                                  struct error *err)
{
    *found = false;
    for (int32_t i = 1; i < n; i++)
        if (starts[i].x.plan.n_replicas != starts[0].x.plan.n_replicas) return OK;
    for (int32_t i = 0; n && i < c->t->incumbents.n && !*found && !multi_device_over(c); i++) {
        const struct plan *from = &c->t->incumbents.plans[i].plan;
        int32_t space = space_of(c, from);
        if (from->n_replicas == starts[0].x.plan.n_replicas || space < 0 ||
            !multi_device_possible(from))
            continue;
        struct plan p = multi_device_copy(c, from);
        TRY(multi_device_try(c, &p, space, &unbeaten, out, err));
        *found = out->x.iteration_ns != INT64_MAX;
    }
    return OK;
}

/* Kept unchanged, and refined. */
static enum status finish(struct multi_device *c, struct multi_device_point *at, struct error *err)
{
    struct search_context *t = c->t;
    incumbents_add(&t->incumbents, &at->x.plan, at->x.iteration_ns);
    if (search_context_over(t)) return OK;
    TRY(refine_plan(c->arena, t->scorer, &c->spaces[at->space], &at->x.plan, &at->x.iteration_ns,
                    &t->evaluations_left, t->work_end, t->o->stop, err));
    incumbents_add(&t->incumbents, &at->x.plan, at->x.iteration_ns);
    search_context_report(t);
    return OK;
}

static enum status climb_all(struct multi_device *c, struct error *err)
{
    struct multi_device_point starts[STARTS_MAX], distinct;
    int32_t n = 0;
    bool found;
    TRY(start_from_kept(c, starts, &n, err));
    TRY(start_from_pipelines(c, starts, &n, err));
    if (multi_device_many(c) && n > 1) n = 1;
    int64_t all = c->left;
    for (int32_t i = 0; i < n && !search_context_over(c->t); i++) {
        int64_t mine = all / (n - i); /* unused simulations go to the next start */
        c->left = mine, c->looks = LOOKS_EACH * mine;
        TRY(multi_device_local_search(c, &starts[i], err));
        all -= mine - c->left;
        TRY(finish(c, &starts[i], err));
    }
    c->left = all, c->looks = LOOKS_EACH * all; /* what is left over */
    if (multi_device_many(c) || multi_device_over(c)) return OK;
    TRY(start_distinct(c, starts, n, &distinct, &found, err));
    if (!found) return OK;
    TRY(multi_device_local_search(c, &distinct, err));
    return finish(c, &distinct, err);
}

enum status multi_device_search(struct search_context *t, const struct space *spaces,
                                int32_t n_spaces, int64_t evaluations, struct error *err)
{
    if (!n_spaces || n_spaces > MULTI_DEVICE_SPACES_MAX || spaces[0].job->model.measured ||
        spaces[0].n_devices < 2)
        return OK;
    struct multi_device c = {.t = t,
                             .arena = arena_new(),
                             .n_spaces = n_spaces,
                             .left = evaluations,
                             .looks = LOOKS_EACH * evaluations};
    memcpy(c.spaces, spaces, (size_t)n_spaces * sizeof *spaces);
    plan_set_init(&c.seen, c.arena);
    enum status st = climb_all(&c, err);
    arena_free(c.arena);
    return st;
}

enum status multi_device_beside(struct search_context *t, const struct search_task *task,
                                struct arena *a, struct error *err)
{
    if (!t->incumbents.n || task->job->model.measured) return OK;
    if (task->cluster->n_devices > BESIDE_DEVICES_MAX && search_context_budget(t) <= 1) return OK;
    int32_t first = 0;
    while (first < t->incumbents.n && spmd_stage_in_plan(&t->incumbents.plans[first].plan)) first++;
    if (first == t->incumbents.n) return OK;
    struct plan *best = arena_copy(t->arena, &t->incumbents.plans[first].plan, sizeof(struct plan));
    int64_t calls = 0, microbatch = best->microbatch;
    for (int32_t r = 0; r < best->n_replicas; r++)
        for (int32_t i = 0; i < best->replicas[r].n_stages; i++)
            calls += best->replicas[r].microbatches *
                     (int64_t)plan_stage_devices(&best->replicas[r].stages[i]);
    double budget_us = BESIDE_US * search_context_budget(t);
    int64_t evaluations =
        (int64_t)(budget_us / (double)(BESIDE_CALL_NS * calls / 1000 + BESIDE_PLAN_US));
    if (evaluations < BESIDE_MIN) return OK;
    scorer_quick(t->scorer, false);
    struct cost *cost = cost_new(t->arena, task->profile, &best->cluster);
    struct space spaces[MULTI_DEVICE_SPACES_MAX];
    int32_t n = 0;
    for (int32_t i = 0; i < task->n_sizes && n < MULTI_DEVICE_SPACES_MAX; i++)
        if (2 * task->sizes[i] >= microbatch && task->sizes[i] <= 2 * microbatch)
            TRY(space_make(a, task->job, &best->cluster, cost, task->sizes[i], t->lower,
                           &spaces[n++], err));
    /* shared links make a simulation slower than its number of calls suggests */
    t->work_end = scorer_work(t->scorer) + (int64_t)(budget_us * 1000);
    TRY(multi_device_search(t, spaces, n, evaluations, err));
    t->work_end = 0;
    return OK;
}
