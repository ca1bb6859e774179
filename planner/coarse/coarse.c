#include "planner/coarse/coarse.h"

#include "core/base/arena.h"
#include "planner/candidate/parallel_score.h"
#include "planner/coarse/internal.h"
#include "planner/fleet/fleet_local_search.h"
#include "planner/spmd_stage/spmd_stage.h"

/* Set on two clusters of 24 and 192 GPUs (docs/measurements.md, 2026-11-23): the estimates of the plans found were within 5 % of
 * their simulation, and both plans were among the first two candidates of their division into teams. Others that did not fit as
 * estimated took up to 27 % longer. */
enum {
    SIMULATED = 16, /* plans */
    BEYOND = 115, /* percent of the best simulated time: candidates estimated above are left out */
    IMPROVED = 2, /* of the simulated plans, by local search */
    TRIES = 24,   /* simulations of each local search */
    WORK_MS =
        4000, /* counted work of all simulations, and again of the local searches; the first is made in any case */
    SIZES_WORSE =
        2 /* microbatch sizes without a better estimate after which larger ones are left out */
};

static bool applies(const struct fleet_task *task)
{
    for (int32_t t = 0; t < task->cluster->n_types; t++)
        if (task->cluster->types[t].tensor_parallel > 1) return false;
    return true;
}

/* Sizes from the smallest on, as long as the best estimate falls. */
static enum status estimate(struct coarse *q, struct error *err)
{
    int64_t best = INT64_MAX;
    int32_t worse = 0;
    for (int32_t i = 0;
         i < q->task->n_sizes && worse < SIZES_WORSE && !search_context_stopped(q->t); i++) {
        TRY(coarse_space(q, i, err));
        q->n_tried = i + 1;
        coarse_combine(q);
        worse = q->n_kept && q->kept[0].estimate_ns < best ? 0 : worse + 1;
        if (q->n_kept) best = q->kept[0].estimate_ns;
    }
    return OK;
}

struct scored {
    struct plan plan;
    struct space space;
    int64_t ns;
};

static void insert(struct scored *list, int32_t *n, const struct scored *x)
{
    int32_t at = *n;
    if (at == IMPROVED && x->ns >= list[at - 1].ns) return;
    if (at < IMPROVED)
        ++*n;
    else
        at--;
    for (; at > 0 && list[at - 1].ns > x->ns; at--) list[at] = list[at - 1];
    list[at] = *x;
}

static enum status simulate(struct coarse *q, struct scored *best, int32_t *n_best,
                            struct error *err)
{
    int32_t runs = 0;
    int64_t end = scorer_work(q->t->scorer) + (int64_t)WORK_MS * 1000000;
    for (int32_t rank = 0; rank < COARSE_EACH; rank++)
        for (int32_t i = 0; i < q->n_kept && runs < SIMULATED && !search_context_over(q->t); i++) {
            const struct coarse_candidate *c = &q->kept[i];
            if (coarse_rank(q, i) != rank || (*n_best && scorer_work(q->t->scorer) > end)) continue;
            if (*n_best && c->estimate_ns > best[0].ns / 100 * BEYOND) continue;
            for (int stages = 0; stages < 2; stages++) {
                struct scored x = {.space = q->spaces[c->size]};
                if (!coarse_place(q, c, stages, q->t->arena, &x.plan)) continue;
                if (incumbents_has(&q->t->incumbents, &x.plan)) continue;
                x.space.cluster = q->task->cluster;
                runs++;
                TRY(search_context_score(q->t, &x.space, &x.plan, &x.ns, err));
                if (x.ns == INT64_MAX) break;
                incumbents_add(&q->t->incumbents, &x.plan, x.ns);
                insert(best, n_best, &x);
            }
        }
    return OK;
}

static enum status search(struct coarse *q, struct error *err)
{
    struct scored best[IMPROVED];
    int32_t n = 0;
    q->spaces = ARENA_ARRAY(q->arena, struct space, (size_t)q->task->n_sizes);
    TRY(coarse_classes(q, err));
    TRY(estimate(q, err));
    TRY(simulate(q, best, &n, err));
    int64_t before = q->t->work_end;
    q->t->work_end = scorer_work(q->t->scorer) + (int64_t)WORK_MS * 1000000;
    for (int32_t i = 0; i < n && !search_context_over(q->t); i++) {
        TRY(fleet_local_search_plan(q->t, &best[i].space, &best[i].plan, &best[i].ns, TRIES, err));
        incumbents_add(&q->t->incumbents, &best[i].plan, best[i].ns);
    }
    q->t->work_end = before;
    if (!n) q->n_tried = 0;
    return OK;
}

enum status coarse_search(struct search_context *t, const struct fleet_task *task, int32_t *n_tried,
                          struct error *err)
{
    *n_tried = 0;
    if (!applies(task) || (t->o->tensor && !task->job->model.measured)) return OK;
    struct arena *a = arena_new();
    struct coarse *q = ARENA_ARRAY(a, struct coarse, 1);
    *q = (struct coarse){.t = t, .task = task, .arena = a, .solved = spmd_stage_new()};
    enum status st = search(q, err);
    *n_tried = q->n_tried;
    spmd_stage_free(q->solved);
    arena_free(a);
    return st;
}
