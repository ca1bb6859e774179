#include "tools/sweep/sweep.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/parallel.h"
#include "core/document/document.h"
#include "planner/bound/any.h"
#include "planner/search_check.h"
#include "profiles/team.h"
#include "tools/common.h"
#include "tools/objective.h"
#include "tools/strategy/served_plans.h"
#include "tools/strategy/strategies.h"
#include "tools/team/replan.h"

#include <math.h>
#include <string.h>

enum { AXES_MAX = 8 };

enum status sweep_points(struct arena *a, const struct texts *vary, int64_t max_points,
                         struct sweep_grid *out, struct error *err)
{
    struct axis *axes = ARENA_ARRAY(a, struct axis, vary->count + 1);
    int64_t n = 1;
    bool more = false;
    const char *product = "";
    if (vary->count > AXES_MAX)
        return error_set(err, ERR_USAGE, "at most %d --vary, not %zu", AXES_MAX, vary->count);
    for (size_t i = 0; i < vary->count; i++) {
        TRY(axis_parse(a, vary->items[i], &axes[i], err));
        for (size_t k = 0; k < i; k++)
            if (!strcmp(axes[i].name, axes[k].name))
                return error_set(err, ERR_USAGE,
                                 "--vary %s is given twice: put its values in one list",
                                 axes[i].name);
        product = arena_printf(a, "%s%s%d", product, i ? " x " : "", (int)axes[i].n);
        more |= n > max_points / axes[i].n;
        if (!more) n *= axes[i].n;
    }
    if (more)
        return error_set(err, ERR_USAGE,
                         "%.200s points are more than %lld searches; take fewer values, or allow "
                         "more with --max-points",
                         product, (long long)max_points);
    *out = (struct sweep_grid){.n_axes = (int32_t)vary->count, .axes = axes, .n_points = n};
    out->points = ARENA_ARRAY(a, struct sweep_point, (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        int32_t *at = ARENA_ARRAY(a, int32_t, vary->count);
        int64_t rest = i;
        for (int32_t k = out->n_axes; k-- > 0; rest /= axes[k].n)
            at[k] = (int32_t)(rest % axes[k].n);
        out->points[i].at = at;
    }
    return OK;
}

/* --- one point --- */

static const char *point_name(struct arena *a, const struct sweep_grid *s,
                              const struct sweep_point *x)
{
    const char *name = "";
    for (int32_t k = 0; k < s->n_axes; k++)
        name = arena_printf(a, "%s%s%s=%s", name, k ? ", " : "", s->axes[k].name,
                            s->axes[k].texts[x->at[k]]);
    return name;
}

/* Job and cluster of a point, axes in the order of AXIS_KINDS. */
static enum status apply(struct arena *a, const struct sweep_search *q, const struct sweep_grid *s,
                         const struct sweep_point *x, struct job *j, struct cluster *c,
                         struct error *err)
{
    *j = *q->job;
    *c = *q->cluster;
    for (int kind = 0; kind < AXIS_KIND_COUNT; kind++)
        for (int32_t k = 0; k < s->n_axes; k++)
            if (s->axes[k].kind == (enum axis_kind)kind)
                TRY(axis_apply(a, &s->axes[k], x->at[k], q->profile, j, c, err));
    return OK;
}

static bool is_hierarchical(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].hybrid_shard) return true;
    return false;
}

/* lower_bound_ns, lower_cost: of the point; 0: unknown. */
static void put_plan(struct arena *scratch, struct arena *a, const struct search_plan *p,
                     enum objective objective, struct sweep_point *x)
{
    x->iteration_ns = p->iteration_ns;
    if (x->lower_bound_ns > x->iteration_ns) x->lower_bound_ns = 0; /* not of the bound's class */
    x->outcome = outcome_of(&p->plan, x->iteration_ns, x->lower_bound_ns);
    if (objective == OBJECTIVE_COST)
        x->outcome.gap = x->lower_cost > 0 ? bound_cost_gap(p->cost, x->lower_cost) : NAN;
    x->devices = p->plan.cluster.n_devices;
    x->devices_used = replan_mark(&p->plan, ARENA_ARRAY(scratch, bool, (size_t)x->devices));
    x->plan = arena_strdup(a, plan_describe(scratch, &p->plan));
    x->file = common_plan_text(a, &p->plan);
    x->hierarchical = is_hierarchical(&p->plan);
}

static void keep(struct arena *scratch, struct arena *a, const struct search_result *r,
                 enum objective objective, struct sweep_point *x)
{
    x->lower_bound_ns = r->lower_bound_ns;
    x->lower_cost = r->lower_cost;
    put_plan(scratch, a, &r->plans[0], objective, x);
    x->exact = r->exact;
    x->stopped = arena_strdup(a, r->stopped);
    x->evaluated = r->evaluated;
    for (int32_t i = 0; i < r->n_baselines; i++) {
        const struct search_baseline *b = &r->baselines[i];
        if (b->iteration_ns == INT64_MAX || (x->baseline && b->iteration_ns >= x->baseline_ns))
            continue;
        x->baseline = arena_strdup(a, b->name);
        x->baseline_ns = b->iteration_ns;
    }
}

/* Textbook plans beside the strategies: gradients all-reduced over all devices, and inside nodes first. */
static const char *const textbook[] = {"ddp", "hsdp"};
enum { N_TEXTBOOK = sizeof textbook / sizeof *textbook, LINES_MAX = STRATEGY_COUNT + N_TEXTBOOK };

static void add_line(struct arena *scratch, struct arena *a, const char *name, const struct plan *p, int64_t ns, double progress,
                     struct sweep_line *out)
{
    *out = (struct sweep_line){arena_strdup(a, name), arena_strdup(a, plan_describe(scratch, p)), ns, progress, plan_cost(p, ns), NULL};
}

struct search_plan sweep_line_value(const struct sweep_line *x, bool by_time)
{
    double progress = by_time ? 1 : x->progress;
    return (struct search_plan){.iteration_ns = llround((double)x->ns / progress), .cost = x->cost / progress};
}

/* The strategy that is the best by the objective is the point's. */
static void choose_strategy(struct arena *a, const struct search_options *o, struct sweep_point *x)
{
    const struct sweep_line *best = NULL;
    for (int32_t i = 0; i < x->n_lines; i++) {
        struct search_plan mine = sweep_line_value(&x->lines[i], false), now = {0};
        if (best) now = sweep_line_value(best, false);
        if (x->lines[i].file && (!best || objective_precedes(o, &mine, &now))) best = &x->lines[i];
    }
    if (!best) return;
    x->strategy = arena_printf(a, "%s: %s", best->name, best->plan);
    x->strategy_ns = best->ns;
}

/* The allowed strategies and the textbook plans as lines. */
static enum status keep_strategies(struct arena *scratch, struct arena *a, const struct sweep_search *q, const struct search_options *o,
                                   const struct job *j, const struct cluster *c, const struct search_result *r, struct sweep_point *x,
                                   struct error *err)
{
    struct strategies all;
    if (!q->sets) return OK;
    TRY(strategies_find(scratch, j, c, q->profile, o, q->sets, &r->plans[0], &all, err));
    struct sweep_line *lines = x->lines = ARENA_ARRAY(a, struct sweep_line, LINES_MAX);
    for (int32_t i = 0; i < all.n; i++) {
        const struct strategy_plan *s = &all.list[i];
        if (s->why || s->outside) continue;
        add_line(scratch, a, s->name, &s->plan, s->iteration_ns, s->progress, &lines[x->n_lines]);
        lines[x->n_lines++].file = common_plan_text(a, &s->plan);
    }
    for (int k = 0; k < N_TEXTBOOK; k++)
        for (int32_t i = 0; i < r->n_baselines; i++) {
            const struct search_baseline *b = &r->baselines[i];
            if (!strcmp(b->name, textbook[k]) && b->iteration_ns != INT64_MAX && !b->estimated)
                add_line(scratch, a, arena_printf(scratch, LINE_TEXTBOOK "%s", b->name), &b->plan, b->iteration_ns, 1,
                         &lines[x->n_lines++]);
        }
    return OK;
}

/* Point n of the sweep, with an arena of its own, because points are searched concurrently. */
struct running {
    const struct sweep_search *q;
    struct sweep_grid *s;
    struct arena **arenas; /* (n_points) */
    enum status *status;
    struct error *errors;
    int32_t threads; /* of each search */
};

static enum status search(struct arena *scratch, struct arena *a, const struct running *r,
                          struct sweep_point *x, struct error *err)
{
    struct job j;
    struct cluster c;
    struct search_result found = {0};
    struct search_options o = *r->q->options;
    struct error why = {0};
    o.threads = r->threads;
    enum status st = apply(scratch, r->q, r->s, x, &j, &c, &why);
    if (st == OK) st = team_precision(&c, j.precision, &why);
    if (st == OK) st = search_plans(scratch, &j, &c, r->q->profile, &o, &found, &why);
    if (st == OK) {
        keep(scratch, a, &found, o.objective, x);
        TRY(keep_strategies(scratch, a, r->q, &o, &j, &c, &found, x, err));
    } else if (st == ERR_INTERRUPTED)
        return OK; /* not done */
    else if (st == ERR_INFEASIBLE || st == ERR_INPUT)
        x->why = arena_strdup(a, why.text);
    else
        return error_set(err, st, "%.100s: %.360s", point_name(scratch, r->s, x), why.text);
    x->done = true;
    return OK;
}

static void search_one(void *user, int64_t index, int32_t thread)
{
    struct running *r = user;
    struct sweep_point *x = &r->s->points[index];
    (void)thread;
    if (r->q->options->stop && *r->q->options->stop) return;
    struct arena *scratch = arena_new();
    r->arenas[index] = arena_new();
    log_progress("%lld of %lld: %s", (long long)index + 1, (long long)r->s->n_points,
                 point_name(scratch, r->s, x));
    r->status[index] = search(scratch, r->arenas[index], r, x, &r->errors[index]);
    arena_free(scratch);
}

/* Texts of the points in the sweep's own arena. */
static void adopt(struct arena *a, struct sweep_point *x)
{
    const char **texts[] = {&x->why, &x->plan, &x->file, &x->stopped, &x->baseline};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i]) *texts[i] = arena_strdup(a, *texts[i]);
    struct sweep_line *lines = ARENA_ARRAY(a, struct sweep_line, LINES_MAX);
    for (int32_t i = 0; i < x->n_lines; i++) {
        lines[i] = x->lines[i];
        lines[i].name = arena_strdup(a, lines[i].name), lines[i].plan = arena_strdup(a, lines[i].plan);
        if (lines[i].file) lines[i].file = arena_strdup(a, lines[i].file);
    }
    x->lines = lines;
}

/* --- plans of neighbours --- */

/* The point with the next value of an axis, up or down; NULL: there is none. O(values). */
static const struct sweep_point *neighbour(const struct sweep_grid *s, const struct sweep_point *x,
                                           int32_t axis, bool up)
{
    const struct axis *of = &s->axes[axis];
    int32_t at = x->at[axis], best = -1;
    int64_t stride = 1;
    for (int32_t i = 0; i < of->n; i++) {
        double v = of->values[i];
        bool beyond = up ? v > of->values[at] : v < of->values[at];
        if (beyond && (best < 0 || (up ? v < of->values[best] : v > of->values[best]))) best = i;
    }
    for (int32_t k = axis + 1; k < s->n_axes; k++) stride *= s->axes[k].n;
    return best < 0 ? NULL : x + (best - at) * stride;
}

/* Whether the plan is a better answer to the point's question than the one there is. */
static bool is_better(const struct search_options *o, const struct search_plan *p,
                      const struct sweep_point *x)
{
    const struct search_plan own = {.iteration_ns = x->iteration_ns, .cost = x->outcome.cost};
    return objective_better(o, p, x->why ? NULL : &own);
}

/* Another point's plan at x, simulated there. *ns 0: it cannot run, and the point's own reason stands. */
static enum status stands_at(struct arena *scratch, const struct sweep_search *q, const struct sweep_grid *s, const char *file,
                             const struct sweep_point *x, struct plan *out, int64_t *ns, struct server_counts *staleness, struct error *err)
{
    struct job j;
    struct cluster c;
    struct plan read;
    struct node *root;
    const char *why;
    struct error refused = {0};
    *ns = 0;
    if (apply(scratch, q, s, x, &j, &c, &refused) != OK || team_precision(&c, j.precision, &refused) != OK ||
        search_check_objective(&c, q->options, &refused) != OK)
        return OK;
    TRY(document_parse(scratch, "plan", file, strlen(file), &root, err));
    TRY(plan_parse(scratch, root, ".", &read, err));
    return replan_as_it_stands(scratch, &read, &j, &c, q->profile, out, ns, staleness, &why, err);
}

/* *better: whether the other point's plan became that of x. */
static enum status offer(struct arena *scratch, struct arena *a, const struct sweep_search *q,
                         const struct sweep_grid *s, const struct sweep_point *from,
                         struct sweep_point *x, bool *better, struct error *err)
{
    struct search_plan p = {.cost = 0};
    *better = false;
    TRY(stands_at(scratch, q, s, from->file, x, &p.plan, &p.iteration_ns, NULL, err));
    p.cost = p.iteration_ns ? plan_cost(&p.plan, p.iteration_ns) : 0;
    if (!p.iteration_ns || !is_better(q->options, &p, x)) return OK;
    put_plan(scratch, a, &p, q->options->objective, x);
    if (x->why) x->stopped = "end";
    x->why = NULL, x->exact = false, *better = true;
    return OK;
}

/* The same of a strategy's plan. */
static enum status offer_line(struct arena *scratch, struct arena *a, const struct sweep_search *q, const struct sweep_grid *s,
                              const struct sweep_line *from, struct sweep_point *x, struct error *err)
{
    struct plan p;
    int64_t ns;
    struct sweep_line made;
    struct server_counts staleness;
    int32_t k = 0;
    TRY(stands_at(scratch, q, s, from->file, x, &p, &ns, &staleness, err));
    if (!ns) return OK;
    while (k < x->n_lines && strcmp(x->lines[k].name, from->name) != 0) k++;
    if (k == LINES_MAX) return OK;
    add_line(scratch, a, from->name, &p, ns, p.servers.rule.n ? served_plans_progress(&p.servers.rule, p.n_replicas, &staleness) : from->progress,
             &made);
    struct search_plan mine = sweep_line_value(&made, false), now = {0};
    if (k < x->n_lines) now = sweep_line_value(&x->lines[k], false);
    if (!objective_better(q->options, &mine, k < x->n_lines ? &now : NULL)) return OK;
    made.file = common_plan_text(a, &p);
    x->lines[k] = made;
    if (k == x->n_lines) x->n_lines++;
    return OK;
}

/* Every point with a plan is offered those of its neighbours' strategies, there and back along every axis: about two simulations for each point, axis
 * and strategy. */
static enum status share_lines(struct arena *a, const struct sweep_search *q, struct sweep_grid *s, struct error *err)
{
    for (int32_t axis = 0; axis < s->n_axes; axis++)
        for (int back = 0; back < 2; back++)
            for (int64_t i = 0; i < s->n_points; i++) {
                struct sweep_point *x = &s->points[back ? s->n_points - 1 - i : i];
                const struct sweep_point *from = neighbour(s, x, axis, back);
                for (int32_t k = 0; x->done && !x->why && x->lines && from && k < from->n_lines; k++) {
                    if (!from->lines[k].file) continue;
                    if (q->options->stop && *q->options->stop) return OK;
                    struct arena *scratch = arena_new();
                    enum status st = offer_line(scratch, a, q, s, &from->lines[k], x, err);
                    arena_free(scratch);
                    TRY(st);
                }
            }
    for (int64_t i = 0; i < s->n_points; i++) choose_strategy(a, q->options, &s->points[i]);
    return OK;
}

/* Every point is offered the plans of its neighbours on every axis, until none improves, so that along an axis on which questions are nested
 * (bandwidth, devices, nodes, prices, sequence lengths) a point that has more never has a slower plan. About two simulations for each point
 * and axis. */
static enum status share_plans(struct arena *a, const struct sweep_search *q, struct sweep_grid *s,
                               struct error *err)
{
    size_t n = (size_t)s->n_points * 2 * (size_t)s->n_axes;
    const char **tried = ARENA_ARRAY(a, const char *, n); /* plans by point, axis and direction */
    for (bool any = true; any;) {
        any = false;
        for (size_t i = 0; i < n; i++) {
            struct sweep_point *x = &s->points[i / 2 / (size_t)s->n_axes];
            const struct sweep_point *from =
                neighbour(s, x, (int32_t)(i / 2 % (size_t)s->n_axes), i % 2);
            if (q->options->stop && *q->options->stop) return OK;
            if (!x->done || !from || !from->file || from->file == tried[i]) continue;
            struct arena *scratch = arena_new();
            bool better;
            enum status st = offer(scratch, a, q, s, from, x, &better, err);
            arena_free(scratch);
            TRY(st);
            tried[i] = from->file, any |= better;
        }
    }
    return OK;
}

/* Values that an axis cannot take refuse the sweep before any search; so does an objective that no point's prices allow, with the reason of
 * the first point. A point alone whose prices do not allow it keeps that as its reason. */
static enum status check(const struct sweep_search *q, const struct sweep_grid *s,
                         struct error *err)
{
    struct arena *scratch = arena_new();
    struct error first = {0};
    enum status st = OK, money = OK;
    bool any = false;
    for (int64_t i = 0; i < s->n_points && st == OK; i++) {
        struct job j;
        struct cluster c;
        struct error why = {0};
        st = apply(scratch, q, s, &s->points[i], &j, &c, err);
        enum status one = st == OK ? search_check_objective(&c, q->options, &why) : OK;
        if (!i) money = one, first = why;
        any |= one == OK;
        if (st == ERR_INFEASIBLE) st = OK;
        arena_reset(scratch);
    }
    arena_free(scratch);
    if (st == OK && !any) *err = first, st = money;
    return st;
}

enum status sweep_run(struct arena *a, const struct sweep_search *q, struct sweep_grid *s,
                      struct error *err)
{
    size_t n = (size_t)s->n_points;
    int64_t threads = q->options->threads > 1 ? q->options->threads : 1;
    struct running r = {.q = q,
                        .s = s,
                        .arenas = ARENA_ARRAY(a, struct arena *, n),
                        .status = ARENA_ARRAY(a, enum status, n),
                        .errors = ARENA_ARRAY(a, struct error, n),
                        .threads = (int32_t)(threads > s->n_points ? threads / s->n_points : 1)};
    TRY(check(q, s, err));
    parallel_each(s->n_points, (int32_t)(threads < s->n_points ? threads : s->n_points),
                    search_one, &r);
    log_progress_end();
    enum status st = OK;
    for (size_t i = 0; i < n; i++) {
        if (st == OK && r.status[i] != OK) {
            st = r.status[i];
            *err = r.errors[i];
        }
        if (!r.arenas[i]) continue;
        adopt(a, &s->points[i]);
        arena_free(r.arenas[i]);
    }
    if (st == OK) st = share_plans(a, q, s, err);
    return st == OK && q->sets ? share_lines(a, q, s, err) : st;
}
