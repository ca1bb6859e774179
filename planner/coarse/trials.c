/* planner/coarse/trials.c - candidates by simulation of a sample of their replicas and microbatches.
 *
 * Their times are those of samples (planner/coarse/sample.h); the plans that are returned are simulated whole (planner/coarse/whole.c).
 */
#include "planner/coarse/trials.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/candidate/robust.h"
#include "planner/coarse/sample.h"
#include "planner/local_search/local_search.h"

#include <string.h>

enum {
    LISTED = COARSE_KEPT * COARSE_OFFERS,
    CHUNK = 8, /* trials in parallel between two looks at the work */
    /* Trials made one by one until the first fits, because memory is estimated; plans of an offer improved by buckets and schedules; plans improved
     * by every move, each with this part of the work; plans simulated whole. */
    BATCH = PARALLEL_SCORE_BATCH,
    WORK_MS =
        130, /* for each doubling of the devices: counted work of the trials but for the first, and again of the local searches */
    WHOLE_GPUS_MAX = 32768, /* in the cluster: with more, no plan is simulated whole */
    MEASURED_WORK_MS =
        2700, /* whole simulations; a third gave one of eight plans that took 1 % longer */
};

/* Less than the default budget makes the search coarser only where its work is limited. */
int64_t coarse_work_ns(const struct coarse *q)
{
    int32_t n = 0;
    for (int32_t k = 0; k < q->n_classes; k++) n += q->classes[k].n;
    bool measured = q->task->job->model.measured && n > SPACE_TABLES_MAX;
    double ms = measured ? MEASURED_WORK_MS : WORK_MS * units_doublings(n);
    return (int64_t)(1e6 * (n <= SPACE_TABLES_MAX ? ms / COARSE_PART : ms) *
                     q->t->budget);
}

static bool samples_only(const struct coarse *q)
{
    return q->task->cluster->n_devices > WHOLE_GPUS_MAX;
}

/* --- candidates --- */

struct listing {
    struct coarse *q;
    struct arena *scratch; /* of one plan */
    struct plan_set seen;  /* whatever their ZeRO level: the better estimate's is tried */
    struct trial *out;
    int32_t n;
};

/* The plan of a trial, with the schedules of its templates' estimates or as it is; false: the GPUs are spread over too many nodes. */
static bool place(struct coarse *q, struct arena *a, const struct trial *x, bool schedules,
                  struct plan *out)
{
    int32_t r = 0;
    if (!coarse_place(q->offers[x->offer].of, x->candidate, a, out)) return false;
    for (int32_t i = 0; i < x->candidate->n_teams && schedules && !q->task->job->model.measured;
         i++) {
        const struct coarse_template *t = x->candidate->team[i];
        for (int32_t k = 0; k < t->replicas; k++) coarse_set_schedule(t, &out->replicas[r++]);
    }
    return true;
}

/* The plan with the first replicas of each team, which determine the others. */
static struct plan first_replicas(struct arena *a, const struct coarse_candidate *c,
                                  const struct plan *p)
{
    struct plan x = *p;
    x.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)p->n_replicas);
    x.n_replicas = 0;
    for (int32_t t = 0, r = 0; t < c->n_teams; r += c->team[t++]->replicas)
        for (int32_t k = 0; k < c->team[t]->replicas && k < COARSE_SAMPLE_REPLICAS; k++)
            x.replicas[x.n_replicas++] = p->replicas[r + k];
    return x;
}

/* The place of a candidate: that of one of another offer with the same estimate to the nanosecond, which is the same pipeline with n times the
 * microbatch, divided by sequences over n GPUs in place of n replicas; else behind all. */
static int32_t alike(const struct listing *l, int32_t offer, const struct coarse_candidate *c)
{
    int32_t i = 0;
    while (i < l->n && (l->out[i].offer == offer || l->out[i].estimate_ns != c->estimate_ns)) i++;
    return i;
}

static void list_candidate(struct listing *l, int32_t offer, const struct coarse_candidate *c)
{
    struct coarse *q = l->q;
    int32_t at = alike(l, offer, c);
    struct plan p;
    struct trial y = {.candidate = c,
                      .space = q->spaces[c->size],
                      .offer = offer,
                      .estimate_ns = c->estimate_ns,
                      .ns = INT64_MAX,
                      .listed.ns = INT64_MAX};
    y.space.cluster = q->task->cluster;
    arena_reset(l->scratch);
    if (!place(q, l->scratch, &y, false, &p)) return;
    for (int32_t r = 0; r < p.n_replicas; r++)
        for (int32_t i = 0; i < p.replicas[r].n_stages; i++) p.replicas[r].stages[i].zero = 0;
    struct plan few = first_replicas(l->scratch, c, &p);
    if (!plan_set_add(&l->seen, &few)) return;
    l->out[at] = y;
    l->n = (int32_t)units_max(l->n, at + 1);
}

/* A plan of two offers is the narrower one's. */
static void list_rank(struct listing *l, int32_t rank, int32_t percent)
{
    for (int32_t k = l->q->n_offers - 1; k >= 0; k--) {
        const struct coarse_offer *o = &l->q->offers[k];
        for (int32_t i = 0; i < o->n_kept && !(l->n && search_context_stopped(l->q->t)); i++)
            if (coarse_rank(o, i) == rank &&
                o->kept[i].estimate_ns <= o->kept[0].estimate_ns / 100 * percent)
                list_candidate(l, k, &o->kept[i]);
    }
}

/* Whether the trial at `at` is the first of its offer. */
static bool leads(const struct trial *x, int32_t at)
{
    for (int32_t i = 0; i < at; i++)
        if (x[i].offer == x[at].offer) return false;
    return true;
}

/* The best of every offer first, then all others, each by rising estimate. */
static void order(struct arena *a, struct trial *x, int32_t n)
{
    struct trial *by = arena_copy(a, x, (size_t)n * sizeof *x);
    int32_t at = 0;
    for (int32_t i = 1; i < n; i++)
        for (int32_t k = i; k > 0 && by[k].estimate_ns < by[k - 1].estimate_ns; k--) {
            struct trial t = by[k];
            by[k] = by[k - 1], by[k - 1] = t;
        }
    for (int leading = 1; leading >= 0; leading--)
        for (int32_t i = 0; i < n; i++)
            if (leads(by, i) == leading) x[at++] = by[i];
}

/* The candidates' plans of all offers: the best of every division into teams within SEARCH_BEYOND; behind them the first of farther divisions, and
 * then, unless layers are measured, the others. */
static int32_t list(struct coarse *q, struct trial *out)
{
    struct listing l = {
        .q = q, .out = out, .scratch = arena_new(), .seen = {.known = {.arena = q->arena}}};
    int32_t last = q->task->job->model.measured ? 1 : COARSE_EACH;
    for (int32_t rank = 0; rank < COARSE_EACH; rank++) list_rank(&l, rank, SEARCH_BEYOND);
    order(q->arena, out, l.n);
    for (int32_t rank = 0; rank < last; rank++) list_rank(&l, rank, COARSE_FAR);
    arena_free(l.scratch);
    return l.n;
}

/* Trials first … last - 1, in parallel. */
static enum status try_all(struct coarse *q, struct trial *x, int32_t first, int32_t last,
                           bool whole, struct error *err)
{
    struct arena *a = q->arena;
    bool measured = q->task->job->model.measured; /* whose simulation takes little */
    size_t n = (size_t)(last - first);
    struct parallel_score_item *items = ARENA_ARRAY(a, struct parallel_score_item, 2 * n);
    struct coarse_sample *samples = ARENA_ARRAY(a, struct coarse_sample, n);
    for (int32_t i = first; i < last; i++)
        (void)coarse_sample_make(a, &x[i].space, &x[i].plan, whole || measured,
                                 measured || q->all_replicas, &items[2 * (i - first)],
                                 &samples[i - first]);
    TRY(coarse_sample_score(q->t, q->task->profile, a, samples, last - first, err));
    for (int32_t i = first; i < last; i++) {
        x[i].ns = coarse_sample_ns(&samples[i - first]);
        coarse_sample_adopt(a, &samples[i - first], &x[i].plan);
        if (measured && x[i].ns < INT64_MAX) incumbents_add(&q->t->incumbents, &x[i].plan, x[i].ns);
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
    struct trial x = {.plan = *p, .space = *s};
    TRY(try_all(q, &x, 0, 1, false, err));
    *p = x.plan, *ns = x.ns;
    return OK;
}

/* Plans in parallel; whole: simulated with all microbatches. */
struct scoring {
    struct coarse *q;
    bool whole;
};

static enum status score(void *of, struct plan *plans, const struct space *const *spaces, int32_t n,
                         int64_t *ns, struct error *err)
{
    const struct scoring *x = of;
    struct trial trials[LOCAL_SEARCH_BATCH];
    for (int32_t i = 0; i < n; i++)
        trials[i] = (struct trial){.plan = plans[i], .space = *spaces[i]};
    TRY(try_all(x->q, trials, 0, n, x->whole, err));
    for (int32_t i = 0; i < n; i++) plans[i] = trials[i].plan, ns[i] = trials[i].ns;
    return OK;
}

enum status coarse_improve(struct coarse *q, struct trial *x, bool orders_only, bool whole,
                           struct plan_set *tried, struct error *err)
{
    struct scoring of = {q, whole};
    if (x->listed.ns == INT64_MAX)
        x->listed = (struct parallel_score_item){
            .plan = scorer_copy_plan(q->arena, &x->plan), .space = x->space, .ns = x->ns};
    struct space *sizes = arena_copy(q->arena, q->spaces, (size_t)q->n_tried * sizeof *sizes);
    for (int32_t i = 0; i < q->n_tried; i++) sizes[i].cluster = q->task->cluster;
    bool stages = !whole && !q->task->job->model.measured &&
                  q->task->cluster->n_devices <= LOCAL_SEARCH_STAGES_DEVICES;
    struct local_search_task task = {.t = q->t,
                                     .s = &x->space,
                                     .sizes = sizes,
                                     .n_sizes = q->n_tried,
                                     .evaluations = INT64_MAX,
                                     .each_ns = whole ? 0 : q->trial_ns,
                                     .idle = q->task->idle,
                                     .orders_only = orders_only,
                                     .stages = stages,
                                     .named = true,
                                     .tried = tried,
                                     .score = {score, &of}};
    TRY(local_search_plan(&task, &x->plan, &x->ns, err));
    while (sizes->microbatch != x->plan.microbatch) sizes++;
    x->space = *sizes;
    return OK;
}

/* The plan of offer k to improve next, from *at on; n: none. Plans of equal time differ in their devices only. */
static int32_t next_of(const struct trial *x, const int64_t *ns, int32_t n, int32_t k, int32_t at)
{
    while (at < n && (x[at].offer != k || (at && ns[at] == ns[at - 1]))) at++;
    return at < n && ns[at] < INT64_MAX && ns[at] <= ns[0] / 100 * COARSE_FAR ? at : n;
}

/* A few steps, which find buckets and a schedule, for the best of every offer in turn: the gains of plans of different numbers of GPUs a
 * stage differ by tens of percent. */
static enum status improve_first(struct coarse *q, struct trial *x, int32_t n,
                                 struct plan_set *tried, struct error *err)
{
    int32_t at[COARSE_OFFERS] = {0};
    int64_t *ns = ARENA_ARRAY(q->arena, int64_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) ns[i] = x[i].ns;
    for (int32_t rank = 0; rank < BATCH; rank++)
        for (int32_t k = 0; k < q->n_offers; k++) {
            int32_t i = next_of(x, ns, n, k, at[k]);
            at[k] = i + 1;
            if (i < n) TRY(coarse_improve(q, &x[i], true, false, tried, err));
        }
    return OK;
}

int64_t coarse_expected_ns(const struct coarse *q, const struct trial *x)
{
    bool orders = !q->task->job->model.measured && q->t->o->objective == OBJECTIVE_TIME;
    return !orders ? x->ns : units_min(x->ns, (group_busiest_ns(&x->space, &x->plan) + x->ns) / 2);
}

/* The best plan that no move has improved yet, by the time that is expected with orders or by that of the trial; n: none. */
static int32_t next_start(const struct coarse *q, const struct trial *x, int32_t n, bool expected)
{
    int32_t best = n;
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < n; i++) {
        int64_t ns = expected ? coarse_expected_ns(q, &x[i]) : x[i].ns;
        if (!x[i].improved && ns < least) best = i, least = ns;
    }
    return best;
}

bool coarse_near_best(const struct trial *x, int32_t i)
{
    return x[i].ns < INT64_MAX && x[i].ns <= x[0].ns / 100 * COARSE_FAR;
}

/* The best of every offer by a few steps, then plans by more until the work is spent: the best by their trials, and with the last part of the
 * work the best by the time expected with orders, because plans of many stages gain most by orders. */
static enum status improve_all(struct coarse *q, struct trial *x, int32_t n, struct error *err)
{
    struct search_context *t = q->t;
    int64_t end = t->work_end, begin = scorer_work(t->scorer), part = coarse_work_ns(q) / BATCH,
            all = begin + coarse_work_ns(q) + coarse_work_ns(q) / COARSE_PART;
    struct plan_set tried = {.known = {.arena = q->arena}};
    int32_t improved = 0;
    t->work_end = begin + coarse_work_ns(q);
    TRY(improve_first(q, x, n, &tried, err));
    sort(x, n);
    if (q->task->job->model.measured) n = (int32_t)units_min(n, BATCH);
    while (n && !coarse_near_best(x, n - 1)) n--;
    for (; improved < n && scorer_work(t->scorer) < all; improved++) {
        struct trial *y = &x[next_start(q, x, n, scorer_work(t->scorer) > all - part)];
        t->work_end = scorer_work(t->scorer) + part;
        y->improved = true;
        TRY(coarse_improve(q, y, false, false, &tried, err));
    }
    t->left_by_work |= improved < n;
    t->work_end = end;
    return OK;
}

/* --- all of it --- */

static bool is_tight(const struct trial *x)
{
    bool tight = x->ns == INT64_MAX;
    for (int32_t r = 0; r < x->plan.n_replicas; r++)
        for (int32_t i = 0; i < x->plan.replicas[r].n_stages; i++)
            tight |= x->plan.replicas[r].stages[i].recompute != RECOMPUTE_NONE;
    return tight && x->plan.replicas[0].schedule;
}

/* Trials first … last - 1; those that lack memory for separate W also with the backward undivided. */
static enum status try_chunk(struct coarse *q, struct trial *x, int32_t first, int32_t last,
                             struct error *err)
{
    struct trial again[CHUNK];
    int32_t of[CHUNK], n = 0;
    for (int32_t i = first; i < last; i++) (void)place(q, q->arena, &x[i], true, &x[i].plan);
    TRY(try_all(q, x, first, last, false, err));
    for (int32_t i = first; i < last; i++) {
        if (!is_tight(&x[i])) continue;
        again[n] = x[i], of[n] = i;
        (void)place(q, q->arena, &x[i], false, &again[n++].plan); /* as it was when listed */
    }
    TRY(try_all(q, again, 0, n, false, err));
    for (int32_t k = 0; k < n; k++)
        if (again[k].ns < x[of[k]].ns) x[of[k]] = again[k];
    return OK;
}

/* Whether a trial takes about as long with all its replicas: else those left out share links with the others (160 replicas on links of racks took
 * 43 % less, 64 on a flat network 2 %). The trial becomes that of all, and later ones take as much work. */
static enum status check_sample(struct coarse *q, struct trial *x, struct error *err)
{
    int64_t ns = x->ns, before = scorer_work(q->t->scorer), sample_ns = q->trial_ns;
    q->all_replicas = true;
    TRY(try_all(q, x, 0, 1, false, err));
    q->all_replicas = x->ns > robust_limit_ns(ns) || ns > robust_limit_ns(x->ns);
    q->trial_ns = q->all_replicas ? scorer_work(q->t->scorer) - before : sample_ns;
    return OK;
}

static const struct trial *fastest(const struct trial *x, int32_t n)
{
    const struct trial *best = x;
    for (int32_t i = 1; i < n; i++)
        if (x[i].plan.n_replicas && x[i].ns < best->ns) best = &x[i];
    return best;
}

/* The fastest trial so far, because plans are simulated whole only after the local searches. */
static void report(const struct coarse *q, const struct trial *x, int32_t n)
{
    if (q->t->o->progress && !q->t->incumbents.n)
        q->t->o->progress(q->t->o->user, scorer_runs(q->t->scorer), fastest(x, n)->ns);
}

/* Trials of the next chunk, until the work `end`: one by one until the first fits; then as many as the mean of the last ones allows, but few more
 * than were made, because trials differ. */
static int32_t chunk_of(const struct coarse *q, int64_t end)
{
    int32_t n = q->n_trials;
    bool fits = fastest(q->trials, n)->ns < INT64_MAX;
    int64_t more = fits ? (end - scorer_work(q->t->scorer)) / q->trial_ns : n < BATCH;
    if (!n) return 1;
    return (int32_t)units_max(0, units_min(units_min(more, n + 1), units_min(CHUNK, q->n_listed - n)));
}

/* In chunks until the work is spent, what earlier calls spent included. */
static enum status try_listed(struct coarse *q, struct error *err)
{
    struct trial *x = q->trials;
    int64_t begin = scorer_work(q->t->scorer) - q->trials_work_ns, end = begin + coarse_work_ns(q);
    bool fits = fastest(x, q->n_trials)->ns < INT64_MAX;
    for (int32_t n; (n = chunk_of(q, end)) && !(q->n_trials && search_context_stopped(q->t));) {
        int32_t at = q->n_trials;
        int64_t before = scorer_work(q->t->scorer);
        TRY(try_chunk(q, x, at, at + n, err));
        q->trial_ns = (scorer_work(q->t->scorer) - before) / n + 1;
        if (!fits && x[at].ns < INT64_MAX && coarse_sample_thins(&x[at].plan) && !samples_only(q))
            TRY(check_sample(q, &x[at], err));
        fits |= x[at].ns < INT64_MAX;
        q->n_trials += n;
        report(q, x, q->n_trials);
    }
    q->trials_work_ns = scorer_work(q->t->scorer) - begin;
    q->t->left_by_work |= q->n_trials < q->n_listed;
    return OK;
}

static enum status try_candidates(struct coarse *q, struct trial *x, struct error *err)
{
    TRY(try_listed(q, err));
    int32_t n = q->n_trials;
    for (int32_t i = 0; i < n; i++) x[i] = q->trials[i];
    sort(x, n);
    TRY(improve_all(q, x, n, err));
    sort(x, n);
    return samples_only(q) ? OK : coarse_whole(q, x, n, err);
}

enum status coarse_trials(struct coarse *q, struct error *err)
{
    if (!q->trials) {
        q->trials = ARENA_ARRAY(q->arena, struct trial, LISTED);
        q->n_listed = list(q, q->trials);
    }
    if (!q->n_listed) return OK;
    struct trial *x = ARENA_ARRAY(q->arena, struct trial, (size_t)q->n_listed);
    enum status st = try_candidates(q, x, err);
    /* of a search stopped before a plan was simulated whole, which takes seconds on many GPUs, or far too long */
    const struct trial *best = fastest(x, q->n_trials);
    bool sampled = (search_context_stopped(q->t) || samples_only(q)) && !q->t->incumbents.n;
    if (sampled && best->plan.n_replicas && best->ns < INT64_MAX) coarse_keep_sample(q, &best->plan, best->ns);
    return st;
}
