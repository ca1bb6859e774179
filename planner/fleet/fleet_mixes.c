/* The candidates of planner/fleet/fleet.h: mixes, placed and estimated. */
#include "planner/fleet/fleet_internal.h"

#include "core/base/arena.h"
#include "planner/fleet/replica_order.h"
#include "planner/fleet/template_enum.h"
#include "planner/fleet/uniform.h"

#include <stdlib.h>
#include <string.h>

enum {
    /* Measured cost of a simulation: lowering of a stage, steps of a run. */
    LOWER_US = 300,
    LOWER_MEASURED_US = 20, /* for measured layers, which have few operators */
    STEADY_STEPS = 4,
    TEMPLATE_ENUM_DEVICES_MAX = 1024,
    TEMPLATE_ENUM_MAX = 80, /* mixes of the enumeration, per size */
    UNIFORM_MAX = 400,
    SIZES_MAX = 4, /* microbatch sizes with limited stage lengths */
    VARIANTS = 4,
    POOLS_TO_LEAVE = 8, /* with more pools no pool is excluded */
    REPLICAS_MAX = 224, /* on large clusters, because a ring of n has n^2 messages */
    LARGE_DEVICES = 1024,
    LARGE_MAX = 32,     /* candidates re-ranked by simulations of single replicas */
    LARGE_US = 1500000, /* budget for all of them */
    CUTS_PART =
        12 /* least fraction of all GPUs in a template for its cuts to be imposed on other templates */
};

static bool same_mix(const struct mix *a, const struct mix *b)
{
    if (a->n != b->n || a->t_ns != b->t_ns) return false;
    for (int32_t i = 0; i < a->n; i++)
        if (a->count[i] != b->count[i] || a->templates[i].n_stages != b->templates[i].n_stages)
            return false;
    return true;
}

/* Stage calls and ring messages of a plan. */
static int64_t work_of(const struct placed *x)
{
    const struct plan *p = &x->plan;
    int64_t calls = 0, most = 1;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        calls += 2 * (int64_t)p->replicas[r].microbatches * p->replicas[r].n_stages;
        if (p->replicas[r].n_stages > most) most = p->replicas[r].n_stages;
    }
    return calls + (p->n_replicas > 1 ? 2 * most * p->n_replicas * p->n_replicas : 0);
}

/* Time of the batch if every replica works all the time. */
static int64_t bare_ns(const struct mix *x, int32_t microbatches)
{
    double rate = 0;
    for (int32_t i = 0; i < x->n; i++) rate += x->count[i] / (double)x->templates[i].tau_ns;
    return rate > 0 ? (int64_t)(microbatches / rate) : 0;
}

static void add_candidates(struct fleet *q, int32_t size, const struct mix *x)
{
    for (int how = 0; how < PLACEMENT_COUNT && q->n_candidates < FLEET_CANDIDATES_MAX; how++) {
        struct fleet_candidate *c = &q->candidates[q->n_candidates];
        c->size = size;
        if (!place_mix(q->arena, q->makers[size], x, (enum placement_order)how, &c->placed))
            continue;
        c->estimate_ns = place_estimate(q->arena, &c->placed, x);
        c->reduce_ns = c->estimate_ns > x->t_ns ? c->estimate_ns - x->t_ns : 0;
        c->least_ns = bare_ns(x, q->makers[size]->s->microbatches) + c->reduce_ns;
        c->ready = NULL;
        if (c->estimate_ns < q->least_ns) q->least_ns = c->estimate_ns;
        /* With dedicated links estimates are accurate to a few percent. */
        if (q->dedicated_links && c->estimate_ns / 3 > q->least_ns / 2) continue;
        bool measured = q->task->job->model.measured != NULL;
        int64_t work = work_of(&c->placed),
                lower = (measured ? LOWER_MEASURED_US : LOWER_US) * (int64_t)c->placed.n_stages;
        /* Equal replicas are folded. */
        if (q->dedicated_links && c->placed.plan.n_replicas > x->n)
            work = work * x->n / c->placed.plan.n_replicas;
        c->settle_us = lower + STEADY_STEPS * work;
        c->cost_us = c->placed.n_stages > FLEET_QUICK_LANES ? lower + work : c->settle_us;
        if (c->estimate_ns < q->best_ns) q->best_ns = c->estimate_ns;
        q->n_candidates++;
    }
}

/* Records the stage boundaries of the mix's templates with many GPUs. */
static void note_cuts(struct fleet *q, int32_t size, const struct mix *x)
{
    const struct template_maker *m = q->makers[size];
    size_t bytes = (size_t)m->s->n_layers * sizeof(bool);
    for (int32_t i = 0; i < x->n && q->n_cuts < FLEET_CUTS_MAX; i++) {
        const struct template *t = &x->templates[i];
        int64_t gpus = 0;
        for (int32_t p = 0; p < m->n_pools; p++) gpus += (int64_t)t->use[p] * x->count[i];
        if (gpus * CUTS_PART < m->g->n_devices || t->n_stages < 2) continue;
        bool *starts = ARENA_ARRAY(q->arena, bool, (size_t)m->s->n_layers);
        for (int32_t k = 0; k < t->n_stages; k++) starts[t->stages[k].first] = true;
        int32_t same = 0;
        while (same < q->n_cuts && memcmp(q->cuts[same], starts, bytes)) same++;
        if (same == q->n_cuts) q->cuts[q->n_cuts++] = starts;
    }
}

/* The mix of one size with a limit of layers per stage; placed unless its estimate is far above the best. */
static void make_mix(struct fleet *q, int32_t size, int32_t variant, int32_t max_layers)
{
    static const struct mix_options variants[VARIANTS] = {
        {.one_class = false}, {.widest = true}, {.one_class = true}, {.one_zone = true}};
    struct template_maker *m = q->makers[size];
    struct mix x;
    int64_t relaxed;
    m->max_layers = max_layers;
    if (variants[variant].widest && m->n_classes == m->n_pools) return;
    if (variants[variant].one_class && m->n_classes == 1) return;
    if (variants[variant].one_zone && m->g->n_zones == 1) return;
    if (!mix_solve(m, m->s->microbatches, &variants[variant], &x, &relaxed)) return;
    /* Devices of high degree may be slower, but only they are few enough to be simulated. */
    int64_t worse = variants[variant].widest ? q->best_ns : q->best_ns / 5;
    if (x.t_ns > q->best_ns && x.t_ns - q->best_ns > worse) return;
    if (same_mix(&x, &q->before[size * VARIANTS + variant])) return;
    q->before[size * VARIANTS + variant] = x;
    note_cuts(q, size, &x);
    add_candidates(q, size, &x);
}

/* Gradient all-reduces of replicas with different cuts wait for each other. So further mixes use only the stage boundaries
 * of one template of the earlier mixes. */
static void share_cuts(struct fleet *q, int32_t size)
{
    struct template_maker *m = q->makers[size];
    m->max_layers = m->s->n_layers;
    for (int32_t i = 0; i < q->n_cuts && !search_context_stopped(q->t); i++) {
        struct mix x;
        int64_t relaxed;
        m->starts = q->cuts[i];
        if (!mix_solve(m, m->s->microbatches, &(struct mix_options){0}, &x, &relaxed)) continue;
        add_candidates(q, size, &x);
    }
    m->starts = NULL;
}

/* For few classes and plans that are cheap to place. */
static void take_menu(struct fleet *q, int32_t size)
{
    struct template_maker *m = q->makers[size];
    struct mix *mixes;
    int32_t n;
    if (!q->dedicated_links || q->task->cluster->n_devices > TEMPLATE_ENUM_DEVICES_MAX) return;
    m->max_layers = m->s->n_layers;
    template_enum_mixes(m, m->s->microbatches, TEMPLATE_ENUM_MAX, &mixes, &n);
    for (int32_t i = 0; i < n && !search_context_stopped(q->t); i++)
        add_candidates(q, size, &mixes[i]);
    uniform_mixes(m, m->s->microbatches, UNIFORM_MAX, &mixes, &n);
    for (int32_t i = 0; i < n && !search_context_stopped(q->t); i++)
        add_candidates(q, size, &mixes[i]);
}

/* Backward elimination of pools: each step drops the pool whose removal gives the least estimate, because slow devices may
 * cost more in messages than they contribute. The mixes of each step become candidates. */
static void leave_out(struct fleet *q, int32_t size)
{
    struct template_maker *m = q->makers[size];
    struct mix_options o = {0};
    m->max_layers = m->s->n_layers;
    for (int32_t left = m->n_pools; left > 1 && m->n_pools <= POOLS_TO_LEAVE; left--) {
        int64_t best = INT64_MAX, all = q->best_ns;
        int32_t leaves = -1;
        for (int32_t p = 0; p < m->n_pools && !search_context_stopped(q->t); p++) {
            struct mix_options without = {.left_out = o.left_out | UINT64_C(1) << p};
            struct mix x;
            int64_t relaxed;
            if (o.left_out >> p & 1) continue;
            if (!mix_solve(m, m->s->microbatches, &without, &x, &relaxed)) continue;
            q->best_ns = INT64_MAX;
            add_candidates(q, size, &x);
            if (q->best_ns < best) best = q->best_ns, leaves = p;
        }
        q->best_ns = best < all ? best : all;
        if (leaves < 0) return;
        o.left_out |= UINT64_C(1) << leaves;
    }
}

/* A single replica of every generated template: no gradient all-reduces. */
static void make_single(struct fleet *q, int32_t size)
{
    struct template_maker *m = q->makers[size];
    const struct template *best = NULL;
    int32_t one[3] = {1, 0, 0};
    for (int32_t i = 0; i < m->n_pool; i++)
        if (!best ||
            template_ns(&m->pool[i], m->s->microbatches) < template_ns(best, m->s->microbatches))
            best = &m->pool[i];
    if (!best) return;
    struct template copy = *best;
    struct mix x = {1, &copy, &one[0], &one[1], &one[2], 0};
    if (mix_share(&x, m->s->microbatches)) add_candidates(q, size, &x);
}

/* First all sizes with unlimited stages; then, for the most promising ones, decreasing limits of layers per stage: longer
 * pipelines have a longer fill and shorter gradient all-reduces. */
static enum status make_candidates(struct fleet *q, struct error *err)
{
    int32_t n = q->task->n_sizes;
    for (int32_t i = 0; i < n; i++) q->size_ns[i] = INT64_MAX;
    for (int32_t i = 0; i < n && !search_context_stopped(q->t); i++) {
        TRY(template_classes_size(q->arena, &q->classes, &q->offers, q->task->sizes[i], q->t->lower, &q->spaces[i],
                            &q->makers[i], err));
        if (!q->dedicated_links && q->task->cluster->n_devices > LARGE_DEVICES)
            q->makers[i]->max_replicas = REPLICAS_MAX;
        int64_t before = q->best_ns;
        q->best_ns = INT64_MAX;
        make_mix(q, i, 0, q->spaces[i].n_layers);
        make_single(q, i);
        q->size_ns[i] = q->best_ns;
        if (before < q->best_ns) q->best_ns = before;
    }
    for (int32_t round = 0; round < SIZES_MAX; round++) {
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++)
            if (q->size_ns[i] < INT64_MAX && (best < 0 || q->size_ns[i] < q->size_ns[best]))
                best = i;
        if (best < 0) break;
        q->size_ns[best] = INT64_MAX, q->n_cuts = 0;
        take_menu(q, best);
        int32_t layers = q->spaces[best].n_layers;
        for (int32_t most = layers; most > 1; most /= 4)
            for (int32_t v = most == layers; v < VARIANTS && !search_context_stopped(q->t); v++)
                if (v == 0 || 4 * most >= layers) make_mix(q, best, v, most);
        share_cuts(q, best);
        if (q->makers[best]->max_replicas) {
            q->makers[best]->max_replicas = REPLICAS_MAX / 2;
            share_cuts(q, best);
            q->makers[best]->max_replicas = REPLICAS_MAX;
        }
        if (round == 0) leave_out(q, best);
    }
    return OK;
}

static int by_estimate(const void *x, const void *y)
{
    const struct fleet_candidate *a = x, *b = y;
    if (a->estimate_ns != b->estimate_ns) return a->estimate_ns < b->estimate_ns ? -1 : 1;
    if (a->size != b->size) return a->size - b->size;
    return a->placed.n_stages - b->placed.n_stages;
}

enum status fleet_candidates(struct fleet *q, struct error *err)
{
    size_t n = (size_t)q->task->n_sizes;
    q->candidates = ARENA_ARRAY(q->arena, struct fleet_candidate, FLEET_CANDIDATES_MAX);
    q->spaces = ARENA_ARRAY(q->arena, struct space, n);
    q->makers = ARENA_ARRAY(q->arena, struct template_maker *, n);
    q->size_ns = ARENA_ARRAY(q->arena, int64_t, n);
    q->before = ARENA_ARRAY(q->arena, struct mix, VARIANTS * n);
    q->best_ns = q->least_ns = INT64_MAX;
    q->n_candidates = 0;
    TRY(make_candidates(q, err));
    qsort(q->candidates, (size_t)q->n_candidates, sizeof *q->candidates, by_estimate);
    return OK;
}

void fleet_plan_of(struct fleet *q, const struct fleet_candidate *c, struct fleet_plan *out)
{
    if (c->ready) {
        *out = *c->ready;
        return;
    }
    *out = (struct fleet_plan){.cost_us = c->cost_us,
                               .settle_us = c->settle_us,
                               .quick = c->placed.n_stages > FLEET_QUICK_LANES};
    place_plan(q->t->arena, &q->offers, &c->placed, &out->plan, &out->space);
}

static int by_least(const void *x, const void *y)
{
    const struct fleet_candidate *a = x, *b = y;
    if (a->least_ns != b->least_ns) return a->least_ns < b->least_ns ? -1 : 1;
    return by_estimate(x, y);
}

static enum status find_orders(struct fleet *q, struct fleet_candidate *c, struct error *err)
{
    struct fleet_plan x;
    int64_t end;
    fleet_plan_of(q, c, &x);
    TRY(replica_order_plan(q->t, &x.space, &x.plan, &end, err));
    x.leveled = end < INT64_MAX;
    c->ready = arena_copy(q->arena, &x, sizeof x);
    c->estimate_ns = end < INT64_MAX ? end + c->reduce_ns : 2 * c->estimate_ns;
    return OK;
}

enum status fleet_rank_large(struct fleet *q, struct error *err)
{
    int64_t best = INT64_MAX;
    int32_t n = 0;
    if (q->task->job->model.measured) return OK;
    scorer_quick(q->t->scorer, true);
    qsort(q->candidates, (size_t)q->n_candidates, sizeof *q->candidates, by_least);
    for (int32_t i = 0; i < q->n_candidates; i++) {
        struct fleet_candidate *c = &q->candidates[i];
        bool again = i && c->placed.n_stages == c[-1].placed.n_stages && c->size == c[-1].size &&
                     c->least_ns == c[-1].least_ns;
        if (c->placed.n_stages <= FLEET_QUICK_LANES) continue;
        if (again || n == LARGE_MAX || c->least_ns >= best || c->cost_us > q->left_us ||
            search_context_over(q->t)) {
            c->estimate_ns *= 2;
            continue;
        }
        n++;
        TRY(find_orders(q, c, err));
        if (c->estimate_ns < best) best = c->estimate_ns;
    }
    qsort(q->candidates, (size_t)q->n_candidates, sizeof *q->candidates, by_estimate);
    return OK;
}
