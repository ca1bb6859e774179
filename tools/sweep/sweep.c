#include "tools/sweep/sweep.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/base/parallel.h"
#include "profiles/team.h"
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

static void keep(struct arena *scratch, struct arena *a, const struct search_result *r,
                 const struct cluster *c, enum objective objective, struct sweep_point *x)
{
    const struct search_plan *best = &r->plans[0];
    x->iteration_ns = best->iteration_ns;
    x->lower_bound_ns = r->lower_bound_ns <= best->iteration_ns ? r->lower_bound_ns : 0;
    x->outcome = outcome_of(&best->plan, x->iteration_ns, x->lower_bound_ns);
    if (objective == OBJECTIVE_COST) x->outcome.gap = r->lower_cost > 0 ? r->cost_gap : NAN;
    x->devices = c->n_devices;
    x->devices_used =
        replan_mark(&best->plan, ARENA_ARRAY(scratch, bool, (size_t)best->plan.cluster.n_devices));
    x->plan = arena_strdup(a, plan_describe(scratch, &best->plan));
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
    if (st == OK)
        keep(scratch, a, &found, &c, o.objective, x);
    else if (st == ERR_INTERRUPTED)
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
    const char **texts[] = {&x->why, &x->plan, &x->stopped, &x->baseline};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (*texts[i]) *texts[i] = arena_strdup(a, *texts[i]);
}

static enum status check(const struct sweep_search *q, const struct sweep_grid *s,
                         struct error *err)
{
    struct arena *scratch = arena_new();
    enum status st = OK;
    for (int64_t i = 0; i < s->n_points && st == OK; i++) {
        struct job j;
        struct cluster c;
        st = apply(scratch, q, s, &s->points[i], &j, &c, err);
        if (st == ERR_INFEASIBLE) st = OK;
        arena_reset(scratch);
    }
    arena_free(scratch);
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
    return st;
}
