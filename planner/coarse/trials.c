/* planner/coarse/trials.c - candidates by simulation of a part of their microbatches.
 *
 * After its fill a pipeline takes the same time for every microbatch. Two simulations of one step, with about two and four
 * microbatches for each stage of a replica, give that time, and from it the time of all microbatches: at 512 microbatches in 16 stages
 * a tenth of the work of simulating a step. Every replica keeps its part of the batch, rounded. The result is within 1 % where the
 * replicas' fills are alike; the plans that are returned are simulated whole.
 */
#include "planner/coarse/internal.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/parallel_score.h"
#include "planner/fleet/fleet_local_search.h"

/* Set on two clusters of 32 and 192 GPUs (docs/measurements.md, 2026-11-23). */
enum {
    TRIED = 24,   /* plans */
    BEYOND = 115, /* percent of the best estimate: candidates above are left out */
    MISSES = 8,   /* trials that may be made, whatever they take, until one fits */
    IMPROVED = 2, /* of the plans, by local search */
    STEPS = 24,   /* of each local search */
    WHOLE = 3,    /* plans simulated whole */
    WITHIN = 101, /* percent of the best trial, for the second and third of them */
    WORK_MS =
        2500, /* counted work of the trials, and again of the local searches; the first trial is made in any case */
    FEWEST = 2 /* microbatches for each stage, in the shorter simulation */
};

struct trial {
    struct plan plan; /* whole */
    struct space space;
    int64_t ns;
};

/* --- a part of the microbatches --- */

/* The least part of its microbatches that fills every replica twice. */
static double part_of(const struct plan *p)
{
    double part = 0;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        double here = (double)FEWEST * p->replicas[r].n_stages / p->replicas[r].microbatches;
        if (here > part) part = here;
    }
    return part;
}

/* *total: its microbatches. */
static struct plan shorten(struct arena *a, const struct plan *p, double part, int64_t *total)
{
    struct plan x = scorer_copy_plan(a, p);
    *total = 0;
    for (int32_t r = 0; r < x.n_replicas && part < 1; r++) {
        int32_t all = x.replicas[r].microbatches;
        x.replicas[r].microbatches = (int32_t)units_max(1, (int64_t)(part * all + 0.5));
    }
    for (int32_t r = 0; r < x.n_replicas; r++) *total += x.replicas[r].microbatches;
    x.job.global_batch = *total * x.microbatch;
    return x;
}

/* What scorer_fit changed in the stages. */
static void adopt(struct plan *p, const struct plan *fitted)
{
    for (int32_t r = 0; r < p->n_replicas; r++) p->replicas[r].stages = fitted->replicas[r].stages;
}

struct
    pair { /* of simulations; whole: the first one is of all microbatches, and there is no second */
    struct parallel_score_item *item;
    int64_t n[2], all;
    bool whole;
};

static struct pair pair_of(struct arena *a, const struct space *s, const struct plan *p,
                           struct parallel_score_item *item)
{
    double part = part_of(p);
    struct pair x = {.item = item, .whole = 2 * part > 0.5};
    for (int i = 0; i < (x.whole ? 1 : 2); i++)
        item[i] = (struct parallel_score_item){
            .plan = shorten(a, p, x.whole ? 1 : (i + 1) * part, &x.n[i]),
            .space = *s,
            .quick = true};
    for (int32_t r = 0; r < p->n_replicas; r++) x.all += p->replicas[r].microbatches;
    return x;
}

static int64_t time_of(const struct pair *x)
{
    int64_t ns = x->item[0].ns;
    if (x->whole || ns == INT64_MAX) return ns;
    int64_t more = x->item[1].ns;
    if (more == INT64_MAX || x->n[1] == x->n[0]) return more;
    double each = (double)(more - ns) / (double)(x->n[1] - x->n[0]);
    return more + (int64_t)(each * (double)(x->all - x->n[1]));
}

/* --- candidates --- */

/* The candidates' plans, best of every division into teams first. */
static int32_t list(struct coarse *q, struct trial *out)
{
    struct incumbents seen;
    int32_t n = 0;
    incumbents_init(&seen, q->arena, TRIED, q->t->o, q->task->cluster);
    for (int32_t rank = 0; rank < COARSE_EACH; rank++)
        for (int32_t i = 0; i < q->n_kept; i++) {
            const struct coarse_candidate *c = &q->kept[i];
            if (coarse_rank(q, i) != rank || c->estimate_ns > q->kept[0].estimate_ns / 100 * BEYOND)
                continue;
            for (int stages = 0; stages < 2 && n < TRIED; stages++) {
                struct trial *x = &out[n];
                *x = (struct trial){.space = q->spaces[c->size], .ns = INT64_MAX};
                x->space.cluster = q->task->cluster;
                if (!coarse_place(q, c, stages, q->t->arena, &x->plan)) continue;
                if (incumbents_has(&seen, &x->plan)) continue;
                incumbents_add(&seen, &x->plan, c->estimate_ns);
                n++;
            }
        }
    return n;
}

/* Trials first … last - 1, in parallel. */
static enum status try_all(struct coarse *q, struct trial *x, int32_t first, int32_t last,
                           struct error *err)
{
    struct arena *a = q->t->arena;
    size_t n = (size_t)(last - first);
    int32_t used = 0;
    struct parallel_score_item *items = ARENA_ARRAY(a, struct parallel_score_item, 2 * n);
    struct pair *pairs = ARENA_ARRAY(a, struct pair, n);
    for (int32_t i = first; i < last; i++) {
        pairs[i - first] = pair_of(a, &x[i].space, &x[i].plan, &items[used]);
        used += pairs[i - first].whole ? 1 : 2;
    }
    TRY(parallel_score(q->t, q->task->profile, items, used, err));
    for (int32_t i = first; i < last; i++) {
        const struct pair *p = &pairs[i - first];
        x[i].ns = time_of(p);
        adopt(&x[i].plan, &p->item[p->whole ? 0 : 1].plan);
    }
    return OK;
}

static void sort(struct trial *x, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        for (int32_t k = i; k > 0 && x[k].ns < x[k - 1].ns; k--) {
            struct trial t = x[k];
            x[k] = x[k - 1], x[k - 1] = t;
        }
}

/* --- local search --- */

enum status coarse_trial(struct coarse *q, const struct space *s, struct plan *p, int64_t *ns,
                         struct error *err)
{
    struct parallel_score_item items[2];
    struct pair pair = pair_of(q->t->arena, s, p, items);
    TRY(parallel_score(q->t, q->task->profile, items, pair.whole ? 1 : 2, err));
    *ns = time_of(&pair);
    adopt(p, &items[!pair.whole].plan);
    return OK;
}

struct improving {
    struct coarse *q;
    const struct space *space;
};

static enum status score(void *of, struct plan *p, int64_t *ns, struct error *err)
{
    const struct improving *x = of;
    return coarse_trial(x->q, x->space, p, ns, err);
}

static enum status improve(struct coarse *q, struct trial *x, struct error *err)
{
    struct improving of = {q, &x->space};
    return fleet_local_search_plan(q->t, &x->space, &x->plan, &x->ns, STEPS,
                                   (struct fleet_local_search_score){score, &of}, err);
}

/* --- all of it --- */

static enum status simulate_whole(struct coarse *q, const struct trial *x, int32_t n,
                                  struct error *err)
{
    struct parallel_score_item items[WHOLE];
    int32_t taken = 0;
    for (int32_t i = 0; i < n && taken < WHOLE; i++)
        if (x[i].ns < INT64_MAX && (!i || x[i].ns <= x[0].ns / 100 * WITHIN))
            items[taken++] = (struct parallel_score_item){.plan = x[i].plan, .space = x[i].space};
    TRY(parallel_score(q->t, q->task->profile, items, taken, err));
    for (int32_t i = 0; i < taken; i++)
        if (items[i].ns < INT64_MAX) incumbents_add(&q->t->incumbents, &items[i].plan, items[i].ns);
    return OK;
}

/* How many of n trials there is work for, if each takes as much as those that were made. */
static int32_t affordable(int64_t each_ns, int32_t made, int32_t n)
{
    int64_t most = (int64_t)WORK_MS * 1000000 / units_max(1, each_ns);
    return (int32_t)units_min(n, units_max(made, most));
}

enum status coarse_trials(struct coarse *q, struct error *err)
{
    struct trial *x = ARENA_ARRAY(q->arena, struct trial, TRIED);
    int32_t n = list(q, x);
    int64_t before = scorer_work(q->t->scorer);
    if (!n) return OK;
    int32_t first = 0;
    do { /* memory is estimated: the first ones may not fit */
        TRY(try_all(q, x, first, first + 1, err));
    } while (x[first++].ns == INT64_MAX && first < units_min(n, MISSES) &&
             !search_context_stopped(q->t));
    n = affordable((scorer_work(q->t->scorer) - before) / first, first, n);
    if (!search_context_stopped(q->t) && n > first) TRY(try_all(q, x, first, n, err));
    sort(x, n);
    before = q->t->work_end;
    q->t->work_end = scorer_work(q->t->scorer) + (int64_t)WORK_MS * 1000000;
    for (int32_t i = 0; i < n && i < IMPROVED && x[i].ns < INT64_MAX; i++)
        TRY(improve(q, &x[i], err));
    q->t->work_end = before;
    sort(x, n);
    return simulate_whole(q, x, n, err);
}
