/* HAP's plans beside a search and requested alone: microbatch sizes tried, and effort for each. */
#include "planner/baseline/baselines_internal.h"

#include "core/base/arena.h"
#include "planner/baseline/hap.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    STAGE_MOST = 256, /* devices of a sharded stage (planner/spmd/spmd.c) */
    /* Searches of optimised ratios and meshes for one of given ratios: 3 starts and 2 of several vectors, 4 rounds each, and meshes. */
    SEARCHES = 30,
    /* Searches of given ratios for a rough one, where memory is tight. */
    ROUGH = 10
};

static int by_ns(const void *x, const void *y)
{
    const struct hap_plan *a = x, *b = y;
    if (a->ns != b->ns) return a->ns < b->ns ? -1 : 1;
    return a->size - b->size;
}

/* Whether a plan estimated so is slower than the one known before. */
static bool beyond(const struct baseline_task *k, int64_t ns)
{
    return !k->t->o->baseline && k->known_ns && ns != INT64_MAX && ns > k->known_ns;
}

/* Whether so much more work would exceed the limit. */
static bool too_long(const struct baseline_task *k, int64_t work)
{
    return k->t->work_end && scorer_work(k->t->scorer) + work >= k->t->work_end;
}

struct found { /* plans of each microbatch size, best first */
    int64_t each_ns; /* mean work of a plan's first search */
    int32_t n;
    struct hap_plan *plans;
};

/* By an estimate that takes little: whether the plan of a size is worth its search. *least: of the sizes so far. */
static enum status worth(struct baseline_task *k, int32_t size, int64_t *least, bool *out,
                         struct error *err)
{
    int64_t before = scorer_work(k->t->scorer), ns;
    *out = true;
    if (k->t->o->baseline) return OK;
    TRY(hap_plan_least_ns(k, size, &ns, err));
    if (ns < *least) *least = ns;
    *out = !beyond(k, ns) && !too_long(k, ROUGH * (scorer_work(k->t->scorer) - before));
    if (!*out)
        snprintf(k->why, sizeof k->why, "%s; --baseline tries it",
                 beyond(k, ns) ? "estimated slower than a plan that was found"
                               : "not tried within its share of the search's work");
    return OK;
}

/* Sizes from the largest on, which has the fewest calls; smaller ones may fit. Once one does, half of the work is left for simulations. */
static enum status find(struct scoring *x, struct found *f, struct error *err)
{
    struct baseline_task *k = x->k;
    int64_t start = scorer_work(k->t->scorer), least = INT64_MAX;
    bool good = true;
    f->plans = ARENA_ARRAY(k->arena, struct hap_plan, (size_t)k->n_sizes);
    if (k->t->o->no_sharding) {
        snprintf(k->why, sizeof k->why, "excluded by --no-sharding");
        return OK;
    }
    if (k->cluster->n_devices > STAGE_MOST) {
        snprintf(k->why, sizeof k->why, "%d devices in a sharded stage: at most %d are supported",
                 (int)k->cluster->n_devices, STAGE_MOST);
        return OK;
    }
    for (int32_t i = k->n_sizes - 1; i >= 0 && good && !search_context_stopped(k->t); i--) {
        int64_t before = least;
        TRY(worth(k, i, &least, &good, err));
        x->passed_over |= !good;
        if (!good) {
            good = least < before && !too_long(k, 0);
            continue;
        }
        struct hap_plan *one = &f->plans[f->n];
        TRY(hap_plan_make(k, i, false, one, err));
        f->n += one->ns != INT64_MAX;
        good = !too_long(k, f->n ? scorer_work(k->t->scorer) - start : 0);
    }
    if (f->n) f->each_ns = (scorer_work(k->t->scorer) - start) / f->n;
    qsort(f->plans, (size_t)f->n, sizeof *f->plans, by_ns);
    return OK;
}

/* thorough: with optimised ratios. */
static enum status score(struct scoring *x, struct hap_plan *h, bool thorough, struct error *err)
{
    struct baseline_task *k = x->k;
    struct search_context *t = k->t;
    struct plan p;
    char why[ERROR_TEXT];
    int64_t ns, left = t->evaluations_left, rest = t->work_end - scorer_work(t->scorer);
    if (thorough) TRY(hap_plan_make(k, h->size, true, h, err));
    if (h->ns == INT64_MAX) return OK;
    scorer_limit(t->scorer, t->work_end ? (rest > 1 ? rest : 1) : 0);
    TRY(hap_plan_fit(k, h, k->arena, &p, &ns, err));
    scorer_limit(t->scorer, 0);
    t->evaluations_left = left;
    if (ns < INT64_MAX)
        scoring_keep(x, &p, ns, true);
    else if (too_long(k, 0))
        scoring_note(x, "its simulation exceeds the limit of work; --baseline tries longer", INT64_MAX);
    else {
        int64_t miss = scorer_last_miss(t->scorer, &p, why);
        if (*why) scoring_note(x, why, miss);
    }
    return OK;
}

/* Optimises ratios for the size that is best with even or proportional ratios; for the next one, where its plan does not fit. */
static enum status score_sizes(struct scoring *x, struct error *err)
{
    struct baseline_task *k = x->k;
    struct found f = {.n = 0};
    bool alone = k->t->o->baseline;
    k->why[0] = 0;
    TRY(find(x, &f, err));
    if (!f.n) scoring_note(x, k->why, INT64_MAX);
    for (int32_t i = 0; i < f.n && !search_context_stopped(k->t); i++) {
        if (x->b->iteration_ns < INT64_MAX || (i && too_long(k, 0))) break;
        bool thorough = !beyond(k, f.plans[i].ns) && !too_long(k, SEARCHES * f.each_ns);
        x->passed_over |= !thorough;
        k->t->worked_out |= alone && !thorough;
        TRY(score(x, &f.plans[i], thorough, err));
    }
    if (!alone || !too_long(k, 0)) return OK;
    k->t->worked_out = true;
    if (x->b->iteration_ns == INT64_MAX) snprintf(x->why, sizeof x->why, "its limit of work ended before a plan was found");
    return OK;
}

/* Missing bytes are not recorded as a nearest miss, because the plan would differ with more memory. */
enum status scoring_hap(struct scoring *x, struct error *err)
{
    struct scorer_miss before, own;
    scorer_take_miss(x->k->t->scorer, &before);
    enum status st = score_sizes(x, err);
    scorer_take_miss(x->k->t->scorer, &own);
    scorer_note(x->k->t->scorer, &before, 0, 0);
    return st;
}
