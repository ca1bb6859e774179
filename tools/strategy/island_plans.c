#include "tools/strategy/island_plans.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/search_check.h"
#include "profiles/team.h"
#include "tools/team/edit.h"
#include "tools/team/replan.h"

#include <inttypes.h>
#include <math.h>

static double peak_of(const struct cluster *c, enum dtype t)
{
    double sum = 0;
    for (int32_t d = 0; d < c->n_devices; d++) sum += team_peak_flops(&c->types[c->devices[d].type], t);
    return sum > 0 ? sum : c->n_devices;
}

/* Shares of the batch in units of u samples, by largest remainders; u is the largest power of two that leaves an island eight units. */
static bool share_batch(struct island_task *f, struct island *x, int32_t n)
{
    int64_t batch = f->job->global_batch, unit = 1, given = 0;
    double all = 0;
    while (batch % (2 * unit) == 0 && batch / (2 * unit) >= 8 * (int64_t)n) unit *= 2;
    for (int32_t i = 0; i < n; i++) all += x[i].weight;
    for (int32_t i = 0; i < n; i++) given += x[i].batch = unit * (int64_t)floor((double)(batch / unit) * x[i].weight / all);
    for (; given < batch; given += unit) {
        int32_t most = 0;
        double lack = -INFINITY;
        for (int32_t i = 0; i < n; i++) {
            double own = (double)batch * x[i].weight / all - (double)x[i].batch;
            if (own > lack + 1e-9) lack = own, most = i;
        }
        x[most].batch += unit;
    }
    for (int32_t i = 0; i < n; i++)
        if (!x[i].batch) return false;
    return true;
}

static void find_alike(struct island_task *f, struct island *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        x[i].like = i;
        for (int32_t k = 0; k < i && x[i].like == i; k++)
            if (x[k].batch == x[i].batch && islands_alike(f->a, &x[k].part, &x[i].part)) x[i].like = k;
    }
}

/* Whether it divides the share of every island. */
static bool divides_all(const struct island *islands, int32_t n, int64_t microbatch)
{
    bool all = true;
    for (int32_t i = 0; i < n; i++) all &= islands[i].batch % microbatch == 0;
    return all;
}

/* *why: there is no plan. microbatch 0: the search chooses one that all islands can have. */
static enum status search_island(struct island_task *f, struct island *islands, int32_t n, int32_t index, int64_t microbatch, bool beside,
                                 const char **why, struct error *err)
{
    struct island *x = &islands[index];
    int64_t sizes[sizeof f->job->microbatch_sizes / sizeof *f->job->microbatch_sizes];
    struct job j = *f->job;
    struct search_options o = *f->o;
    struct search_result r;
    struct error refused = {0};
    j.global_batch = x->batch;
    if (microbatch) j.n_microbatches_sizes = 1, j.microbatch_sizes[0] = microbatch;
    int32_t n_sizes = search_check_sizes(&j, NULL, sizes);
    j.n_microbatches_sizes = 0;
    for (int32_t i = 0; i < n_sizes; i++)
        if (divides_all(islands, n, sizes[i])) j.microbatch_sizes[j.n_microbatches_sizes++] = sizes[i];
    if (!j.n_microbatches_sizes) {
        *why = arena_printf(f->a, "no microbatch size divides the share of the batch of every island, of this one %" PRId64 " samples", x->batch);
        return OK;
    }
    struct cluster part = x->part;
    if (beside) { /* the outer optimizer's anchor and velocity, two of seven parts of the state in half precision */
        part.types = arena_copy(f->a, part.types, (size_t)part.n_types * sizeof *part.types);
        for (int32_t t = 0; t < part.n_types; t++) part.types[t].reserve_bytes += part.types[t].memory_bytes / 10 * 3;
    }
    o.baseline = f->base, o.from = NULL, o.top = ISLAND_PLANS, o.objective = OBJECTIVE_TIME, o.min_rate = o.max_cost = 0;
    enum status st = search_plans(f->a, &j, &part, f->profile, &o, &r, &refused);
    if (st == ERR_INFEASIBLE || st == ERR_INPUT) {
        *why = arena_printf(f->a, "an island of %" PRId32 " devices alone: %s", x->part.n_devices, refused.text);
        return OK;
    }
    if (st != OK) {
        if (err) *err = refused;
        return st;
    }
    x->found = r.plans, x->n_found = r.n_plans;
    f->evaluated += r.evaluated;
    return OK;
}

/* The fastest island first, whose microbatch size the others take. */
static enum status search_islands(struct island_task *f, struct island *x, int32_t n, bool beside, const char **why, struct error *err)
{
    int32_t first = 0;
    find_alike(f, x, n);
    for (int32_t i = 1; i < n; i++)
        if (x[i].weight > x[first].weight) first = i;
    first = x[first].like;
    TRY(search_island(f, x, n, first, 0, beside, why, err));
    for (int32_t i = 0; i < n && !*why; i++)
        if (i != first && x[i].like == i) TRY(search_island(f, x, n, i, x[first].found[0].plan.microbatch, beside, why, err));
    for (int32_t i = 0; i < n && !*why; i++) x[i].found = x[x[i].like].found, x[i].n_found = x[x[i].like].n_found;
    return OK;
}

static bool all_alike(const struct island *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (x[i].like) return false;
    return true;
}

bool island_plans_unite(struct island_task *f, const struct island_division *d, int32_t k, bool zero, struct plan *p, const int32_t **of)
{
    int32_t n_replicas = 0, at = 0, n = d->by.n;
    const struct island *x = d->islands;
    for (int32_t i = 0; i < n; i++) n_replicas += x[i].found[k].plan.n_replicas;
    *p = x[0].found[k].plan;
    p->job = *f->job, p->cluster = *f->cluster, p->name = "islands", p->file = NULL;
    p->replicas = ARENA_ARRAY(f->a, struct plan_replica, (size_t)n_replicas);
    int32_t *island = ARENA_ARRAY(f->a, int32_t, (size_t)n_replicas);
    for (int32_t i = 0; i < n; i++) {
        struct plan own = x[i].found[k].plan, there;
        const char *missing;
        own.cluster = x[i].part; /* of an island that it is like */
        replan_carry(f->a, &own, f->cluster, &there, &missing);
        if (own.microbatch != p->microbatch) return false;
        for (int32_t r = 0; r < there.n_replicas; r++, at++) {
            p->replicas[at] = there.replicas[r], island[at] = i;
            for (int32_t s = 0; s < there.replicas[r].n_stages; s++) {
                struct plan_stage *y = &p->replicas[at].stages[s];
                y->all_reduce = ALGORITHM_RING; /* an island may be one replica */
                if (!zero) y->zero = 0, y->hybrid_shard = false;
            }
        }
    }
    p->n_replicas = n_replicas, *of = island;
    return true;
}

enum status island_plans_fill(struct island_task *f, struct island_division *d, struct error *err)
{
    int32_t n = d->by.n;
    struct island *x = d->islands = ARENA_ARRAY(f->a, struct island, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        islands_part(f->a, f->cluster, &d->by, i, &x[i].part);
        x[i].weight = peak_of(&x[i].part, f->job->precision);
    }
    for (int round = 0; round < 2 && !d->why; round++) {
        if (!share_batch(f, x, n)) d->why = arena_printf(f->a, "%" PRId32 " islands and a batch of %" PRId64, n, f->job->global_batch);
        if (!d->why) TRY(search_islands(f, x, n, d->beside, &d->why, err));
        if (d->why || all_alike(x, n)) break;
        for (int32_t i = 0; i < n; i++) x[i].weight = (double)x[i].batch / (double)x[i].found[0].iteration_ns;
    }
    d->n_plans = ISLAND_PLANS;
    for (int32_t i = 0; i < n && !d->why; i++) d->n_plans = (int32_t)units_min(d->n_plans, x[i].n_found);
    return OK;
}
