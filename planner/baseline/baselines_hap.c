/* HAP's plans beside a search and requested alone: microbatch sizes tried, and effort for each. */
#include "planner/baseline/baselines_internal.h"

#include "core/base/arena.h"
#include "planner/baseline/hap.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    HAP_TRIES = 3,     /* microbatch sizes with optimised ratios */
    HAP_BESIDE = 1,    /* beside a search */
    HAP_WORK_MS = 400, /* beside a search: limits of work for the first estimates, and for the plans fitted */
    HAP_FIT_MS = 400,
    HAP_BESIDE_MS = 1800, /* beside a search: limit of work for one simulation, as REST_MS of the other families */
    HAP_ALONE_MS = 30000, /* requested alone: limit of work for everything; 24 mixed GPUs spend all of it in 40 CPU s */
    /* Beside a search that has found a plan. On 24 GPUs HAP's search took 24 % of 9 CPU s, on 32 20 % of 24, and its plan exceeded the
     * limit of a simulation (docs/measurements.md, 2026-11-23). */
    HAP_DEVICES_KNOWN = 16,
    HAP_DEVICES_BESIDE = 128 /* larger clusters exceed that limit */
};

static int by_ns(const void *x, const void *y)
{
    const struct hap_plan *a = x, *b = y;
    if (a->ns != b->ns) return a->ns < b->ns ? -1 : 1;
    return a->size - b->size;
}

/* Searches of optimised ratios and meshes for one of given ratios: 3 starts and 2 of several vectors, 4 rounds each, and meshes. */
enum { HAP_SEARCHES = 30 };

/* Whether a plan estimated so is slower than the one known before. Estimates have no overlap of messages with other work: those of 40
 * plans simulated on 4 to 12 GPUs were at most a third too long. */
static bool beyond(const struct baseline_task *k, int64_t ns)
{
    return !k->t->o->baseline && k->known_ns && ns != INT64_MAX && ns / 4 * 3 > k->known_ns;
}

struct found { /* plans of each microbatch size, best first */
    int64_t each_ns; /* mean work of a plan's first search */
    int32_t n;
    struct hap_plan *plans;
    bool slow; /* the search over rules is slow: one size, ratios not optimised */
};

/* whole: all sizes, until the work ends at `end`. */
static enum status find(struct scoring *x, bool whole, int64_t end, struct found *f,
                        struct error *err)
{
    struct baseline_task *k = x->k;
    f->plans = ARENA_ARRAY(k->arena, struct hap_plan, (size_t)k->n_sizes);
    if (k->t->o->no_sharding) {
        snprintf(k->why, sizeof k->why, "excluded by --no-sharding");
        return OK;
    }
    if (!k->t->o->baseline && k->cluster->n_devices > (k->known_ns ? HAP_DEVICES_KNOWN : HAP_DEVICES_BESIDE)) {
        snprintf(k->why, sizeof k->why,
                 "not tried beside a search of many devices; --baseline tries it");
        return OK;
    }
    int64_t start = scorer_work(k->t->scorer), least = INT64_MAX;
    for (int32_t i = k->n_sizes - 1; i >= 0 && !search_context_stopped(k->t);
         i--) { /* largest microbatches first: fewest calls */
        if (k->known_ns && !k->t->o->baseline) { /* by an estimate that takes little */
            int64_t before = least;
            TRY(hap_plan_least_ns(k, i, &least, err));
            if (beyond(k, least)) {
                snprintf(k->why, sizeof k->why,
                         "estimated slower than a plan that was found; --baseline tries it");
                if (least > before) break; /* smaller ones have more calls */
                continue;
            }
        }
        TRY(hap_plan_make(k, i, false, &f->plans[f->n], err));
        f->n += f->plans[f->n].ns != INT64_MAX;
        int64_t limit = whole ? end : start + HAP_WORK_MS * INT64_C(1000000);
        f->slow = scorer_work(k->t->scorer) > limit;
        if (whole && f->slow) break;
        if (f->slow && f->n) break; /* smaller microbatches may fit */
    }
    if (f->n) f->each_ns = (scorer_work(k->t->scorer) - start) / f->n;
    qsort(f->plans, (size_t)f->n, sizeof *f->plans, by_ns);
    return OK;
}

/* end: of the work; 0: that of one simulation beside a search. */
static enum status score_of(struct scoring *x, struct hap_plan *h, bool slow, int64_t end,
                            struct error *err)
{
    struct baseline_task *k = x->k;
    struct plan p;
    int64_t ns, left = k->t->evaluations_left;
    bool quick = h->spot.team.n > QUICK_LANES;
    if (!slow) TRY(hap_plan_make(k, h->size, true, h, err));
    if (h->ns == INT64_MAX) return OK;
    x->tries++;
    int64_t work = HAP_BESIDE_MS * INT64_C(1000000), begun = scorer_work(k->t->scorer);
    if (end) work = end > begun ? end - begun : 1;
    scorer_quick(k->t->scorer, quick);
    scorer_limit(k->t->scorer, work);
    TRY(hap_plan_fit(k, h, !slow, k->arena, &p, &ns, err));
    scorer_limit(k->t->scorer, 0);
    scorer_quick(k->t->scorer, false);
    bool given_up = ns == INT64_MAX && scorer_work(k->t->scorer) - begun >= work;
    k->t->evaluations_left = left;
    x->layers += scoring_layers(&p);
    if (given_up)
        scoring_note(x, "its simulation exceeds the limit of work; --baseline tries longer",
                     INT64_MAX);
    else if (ns == INT64_MAX)
        scoring_find_why(x, &p);
    else
        scoring_keep(x, h->spot.team.s, &p, ns);
    return OK;
}

/* Optimises ratios for the few sizes that are best with even or proportional ratios, until a plan fits. */
static enum status score(struct scoring *x, bool whole, struct error *err)
{
    struct baseline_task *k = x->k;
    int32_t most = whole ? HAP_TRIES : HAP_BESIDE;
    struct found f = {.n = 0};
    k->why[0] = 0;
    x->b->quick = !whole;
    int64_t end = scorer_work(k->t->scorer) + HAP_ALONE_MS * INT64_C(1000000);
    TRY(find(x, whole, end, &f, err));
    if (!f.n) scoring_note(x, k->why, INT64_MAX);
    if (!whole) end = scorer_work(k->t->scorer) + HAP_FIT_MS * INT64_C(1000000);
    for (int32_t i = 0; i < f.n && !search_context_stopped(k->t); i++) {
        if (i >= most && x->b->iteration_ns != INT64_MAX) break;
        if (i && scorer_work(k->t->scorer) >= end) break;
        bool slow = f.slow || beyond(k, f.plans[i].ns) ||
                    (whole && scorer_work(k->t->scorer) + HAP_SEARCHES * f.each_ns >= end);
        k->t->worked_out |= whole && slow;
        TRY(score_of(x, &f.plans[i], slow, whole ? end : 0, err));
    }
    if (!whole || scorer_work(k->t->scorer) < end) return OK;
    k->t->worked_out = true;
    if (x->b->iteration_ns == INT64_MAX)
        snprintf(x->why, sizeof x->why, "its limit of work, %d s, ended before a plan was found",
                 HAP_ALONE_MS / 1000);
    return OK;
}

static enum status score_well(struct scoring *x, struct error *err)
{
    bool alone = x->k->t->o->baseline;
    TRY(score(x, alone, err));
    return alone || x->b->iteration_ns > x->rival_ns ? OK : score(x, true, err);
}

/* Missing bytes are not recorded as a nearest miss, because the plan would differ with more memory. */
enum status scoring_hap(struct scoring *x, struct error *err)
{
    struct scorer_miss before, own;
    scorer_take_miss(x->k->t->scorer, &before);
    enum status st = score_well(x, err);
    scorer_take_miss(x->k->t->scorer, &own);
    scorer_note(x->k->t->scorer, &before, 0, 0);
    return st;
}
