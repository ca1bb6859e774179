#include "planner/subsets.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/coarse/internal.h"

#include <string.h>

enum { SUBSETS_MAX = 64 }; /* of a search */

/* bound: the time if all its devices compute all the time, at the cost of all for that long; estimate: of its best candidate. */
struct subset {
    int32_t count[COARSE_CLASSES]; /* devices of each class, the first ones of its list */
    bool *idle;                    /* (devices) */
    double price_per_h;
    struct search_plan bound, estimate;
    struct search_task task; /* the question with `idle` */
    struct coarse *coarse;
};

struct listing {
    struct search_context *t;
    const struct baselines_request *r;
    const struct coarse *q;        /* of the whole cluster */
    int32_t n, by[COARSE_CLASSES]; /* by: classes, the best first */
    struct subset out[SUBSETS_MAX];
};

/* --- one subset --- */

static double price_of(const struct listing *l, int32_t class)
{
    return l->q->task->cluster->types[l->q->classes[class].type].price_per_h;
}

static struct search_plan value_of(double price_per_h, int64_t ns)
{
    return (struct search_plan){.iteration_ns = ns, .cost = price_per_h * (double)ns / NS_PER_H};
}

/* Whether a plan that takes so long on all devices of the subset precedes the best plan. */
static bool may_precede(const struct listing *l, const struct subset *x, double ns)
{
    return ns < (double)incumbents_reach_ns(&l->t->incumbents, x->price_per_h);
}

/* Whether the subset, of so many devices of each class, is new, not the whole cluster, and its bound may precede the best plan: then listed. */
static bool add(struct listing *l, const int32_t *count)
{
    const struct coarse *q = l->q;
    struct subset x = {.price_per_h = 0};
    int32_t all = 0;
    for (int32_t k = 0; k < q->n_classes; k++) {
        x.count[k] = count[k], all += count[k];
        x.price_per_h += count[k] * price_of(l, k);
    }
    if (!all || all == q->task->cluster->n_devices || l->n == SUBSETS_MAX) return false;
    for (int32_t i = 0; i < l->n; i++)
        if (!memcmp(l->out[i].count, x.count, sizeof x.count)) return false;
    x.bound = value_of(x.price_per_h, coarse_least_ns(q, count));
    if (!may_precede(l, &x, (double)x.bound.iteration_ns)) return false;
    l->out[l->n++] = x;
    return true;
}

static void make_task(const struct listing *l, struct subset *x)
{
    int32_t n = l->q->task->cluster->n_devices;
    x->idle = ARENA_ARRAY(l->t->arena, bool, (size_t)n);
    memset(x->idle, true, (size_t)n * sizeof *x->idle);
    for (int32_t k = 0; k < l->q->n_classes; k++)
        for (int32_t i = 0; i < x->count[k]; i++) x->idle[l->q->classes[k].device[i]] = false;
    x->task = *l->q->task, x->task.idle = x->idle;
}

/* --- all subsets --- */

static bool by_money(const struct listing *l)
{
    return l->t->o->objective != OBJECTIVE_TIME || l->t->o->max_cost > 0;
}

/* Whether class i comes before class k: the faster device, or the one of more speed for its price. */
static bool precedes(const struct listing *l, int32_t i, int32_t k)
{
    double x = l->q->classes[i].speed, y = l->q->classes[k].speed;
    return by_money(l) ? x * price_of(l, k) > y * price_of(l, i) : x > y;
}

static void order_classes(struct listing *l)
{
    for (int32_t k = 0; k < l->q->n_classes; k++) {
        int32_t at = k;
        for (; at > 0 && precedes(l, k, l->by[at - 1]); at--) l->by[at] = l->by[at - 1];
        l->by[at] = k;
    }
}

/* One of so many parts of a class: whole nodes, of one node fewer devices. */
static int32_t part_of(const struct coarse_class *x, int32_t parts)
{
    int32_t nodes = (x->n + x->per_node - 1) / x->per_node;
    if (parts <= nodes) return (int32_t)units_min(x->n, (nodes + parts - 1) / parts * x->per_node);
    return (int32_t)units_max(1, x->per_node * nodes / parts);
}

/* All devices of a set of classes; a half, a quarter … of them, as long as these may precede the best plan. */
static void add_parts(struct listing *l, uint32_t classes)
{
    bool more = true, whole = classes == (1U << l->q->n_classes) - 1;
    for (int32_t part = 1; more; part *= 2) {
        int32_t count[COARSE_CLASSES] = {0};
        for (int32_t k = 0; k < l->q->n_classes; k++)
            if (classes >> k & 1) count[k] = part_of(&l->q->classes[k], part);
        more = add(l, count) || (whole && part == 1);
    }
}

static void add_less(struct listing *l, int32_t class, int32_t less)
{
    int32_t count[COARSE_CLASSES] = {0};
    for (int32_t k = 0; k < l->q->n_classes; k++) count[k] = l->q->classes[k].n;
    if (count[class] < less) return;
    count[class] -= less;
    (void)add(l, count);
}

static void add_used(struct listing *l, const struct plan *p)
{
    int32_t count[COARSE_CLASSES] = {0};
    const struct cluster *c = l->q->task->cluster;
    bool *used = ARENA_ARRAY(l->t->arena, bool, (size_t)c->n_devices);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++)
                used[plan_stage_device(&p->replicas[r].stages[i], k)] = true;
    for (int32_t k = 0; k < l->q->n_classes; k++)
        for (int32_t i = 0; i < l->q->classes[k].n; i++)
            count[k] += used[l->q->classes[k].device[i]];
    (void)add(l, count);
}

static void list(struct listing *l)
{
    uint32_t first = 0, all = (1U << l->q->n_classes) - 1;
    bool few = l->q->task->cluster->n_devices <= SPACE_TABLES_MAX;
    order_classes(l);
    for (int32_t i = 0; i < l->q->n_classes; i++) {
        uint32_t one = 1U << l->by[i];
        first |= one;
        add_parts(l, first);
        add_parts(l, one);
        add_parts(l, all & ~one);
        if (i == 0) add_parts(l, coarse_leading(l->q));
        add_less(l, l->by[i], l->q->classes[l->by[i]].per_node);
        if (few) add_less(l, l->by[i], 1);
    }
    for (int32_t i = 0; i < l->t->incumbents.n && few; i++)
        add_used(l, &l->t->incumbents.plans[i].plan);
}

/* --- searches --- */

/* Stable, the best bound or estimate first. */
static void sort(struct listing *l, bool estimates)
{
    for (int32_t i = 1; i < l->n; i++)
        for (int32_t k = i; k > 0; k--) {
            struct subset *x = &l->out[k], *y = x - 1, z = *x;
            if (!incumbents_better(&l->t->incumbents, estimates ? &x->estimate : &x->bound,
                                   estimates ? &y->estimate : &y->bound))
                break;
            *x = *y, *y = z;
        }
}

static enum status try_presets(struct listing *l, struct error *err)
{
    sort(l, false);
    for (int32_t i = 0; i < l->n && !search_context_over(l->t); i++) {
        struct subset *x = &l->out[i];
        struct baselines_request part = *l->r;
        if (!may_precede(l, x, (double)x->bound.iteration_ns)) continue;
        make_task(l, x);
        part.task = &x->task;
        TRY(baselines_on(l->t, &part, x->price_per_h, err));
    }
    return OK;
}

/* Whether the coarse search tries it. By time that of the whole cluster had the same teams, but spent its trials and local searches on those of
 * other classes too; so only the classes of its best candidate by estimate. */
static bool is_promising(const struct listing *l, const struct subset *x)
{
    uint32_t leading = coarse_leading(l->q);
    for (int32_t k = 0; k < l->q->n_classes && !by_money(l); k++)
        if (x->count[k] != (leading >> k & 1 ? l->q->classes[k].n : 0)) return false;
    return x->idle && may_precede(l, x, (double)x->bound.iteration_ns);
}

static enum status estimate(struct listing *l, struct error *err)
{
    for (int32_t i = 0; i < l->n; i++) {
        struct subset *x = &l->out[i];
        int64_t ns = INT64_MAX;
        if (is_promising(l, x) && !search_context_over(l->t)) {
            x->coarse = coarse_part(l->q, &x->task);
            TRY(coarse_estimate(x->coarse, &ns, err));
        }
        x->estimate = value_of(x->price_per_h, ns);
    }
    sort(l, true);
    return OK;
}

static struct search_plan best_of(const struct listing *l)
{
    return l->t->incumbents.n ? l->t->incumbents.plans[0] : value_of(0, INT64_MAX);
}

static enum status try_coarse(struct listing *l, struct error *err)
{
    bool more = true;
    TRY(estimate(l, err));
    for (int32_t i = 0; i < l->n && more && !search_context_over(l->t); i++) {
        struct subset *x = &l->out[i];
        struct search_plan before = best_of(l), now;
        int32_t n_tried;
        if (!x->coarse || !may_precede(l, x, BASELINE_SURE * (double)x->estimate.iteration_ns))
            continue;
        TRY(coarse_search(x->coarse, &n_tried, err));
        now = best_of(l), more = incumbents_better(&l->t->incumbents, &now, &before);
    }
    return OK;
}

enum status subsets_search(struct search_context *t, const struct baselines_request *r,
                           struct error *err)
{
    struct listing *l = ARENA_ARRAY(t->arena, struct listing, 1);
    *l = (struct listing){.t = t, .r = r, .q = r->coarse};
    list(l);
    enum status st = try_presets(l, err);
    t->work_end = 0; /* the coarse search has its own limit */
    if (st == OK) st = try_coarse(l, err);
    for (int32_t i = 0; i < l->n; i++) coarse_free(l->out[i].coarse);
    return st;
}
