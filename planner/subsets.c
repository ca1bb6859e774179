#include "planner/subsets.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/coarse/trials.h"

#include <string.h>

enum { SUBSETS_MAX = 256 }; /* of a search */

/* least_ns: the time if all its devices compute all the time. value: that, at the cost of all for that long; once estimated, of its best candidate. */
struct subset {
    int32_t count[COARSE_CLASSES]; /* devices of each class, the first ones of its list */
    double price_per_h;
    int64_t least_ns;
    struct search_plan value;
    struct search_task *task; /* the question with the others idle; NULL: not made yet */
    struct coarse *coarse;    /* of the task */
    bool estimated, done;     /* done: searched, or not to be */
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
static bool may_precede(const struct listing *l, const struct subset *x, int64_t ns)
{
    return ns < incumbents_reach_ns(&l->t->incumbents, x->price_per_h);
}

/* Lists the subset of so many devices of each class if it is new, not the whole cluster, and its bound may precede the best plan. */
static void add(struct listing *l, const int32_t *count)
{
    const struct coarse *q = l->q;
    struct subset x = {.price_per_h = 0};
    int32_t all = 0;
    for (int32_t k = 0; k < q->n_classes; k++) {
        x.count[k] = count[k], all += count[k];
        x.price_per_h += count[k] * price_of(l, k);
    }
    if (!all || all == q->task->cluster->n_devices || l->n == SUBSETS_MAX) return;
    for (int32_t i = 0; i < l->n; i++)
        if (!memcmp(l->out[i].count, x.count, sizeof x.count)) return;
    x.least_ns = coarse_least_ns(q, count);
    x.value = value_of(x.price_per_h, x.least_ns);
    if (may_precede(l, &x, x.least_ns)) l->out[l->n++] = x;
}

/* The estimate above which a subset is not searched: its plan may be faster than that by SEARCH_BEYOND. */
static int64_t most_of(const struct listing *l, const struct subset *x)
{
    int64_t ns = incumbents_reach_ns(&l->t->incumbents, x->price_per_h);
    return ns < INT64_MAX / SEARCH_BEYOND ? ns / 100 * SEARCH_BEYOND : INT64_MAX;
}

static void make_task(const struct listing *l, struct subset *x)
{
    int32_t n = l->q->task->cluster->n_devices;
    if (x->task) return;
    bool *idle = ARENA_ARRAY(l->t->arena, bool, (size_t)n);
    memset(idle, true, (size_t)n * sizeof *idle);
    for (int32_t k = 0; k < l->q->n_classes; k++)
        for (int32_t i = 0; i < x->count[k]; i++) idle[l->q->classes[k].device[i]] = false;
    x->task = arena_copy(l->t->arena, l->q->task, sizeof *x->task);
    x->task->idle = idle;
    x->coarse = coarse_part(l->r->coarse, x->task);
}

/* --- all subsets --- */

static bool by_money(const struct listing *l)
{
    return incumbents_by_money(l->t->o);
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

/* A fraction of the devices of a class, rounded up to whole nodes; of less than one node, to at least one device. */
static int32_t fraction_of(const struct coarse_class *x, int32_t numerator, int32_t denominator)
{
    int32_t nodes = (x->n + x->per_node - 1) / x->per_node;
    if (denominator <= numerator * nodes)
        return (int32_t)units_min(
            x->n, (numerator * nodes + denominator - 1) / denominator * x->per_node);
    return (int32_t)units_max(1, x->per_node * nodes * numerator / denominator);
}

/* Returns the most devices of a class. */
static int32_t add_fraction(struct listing *l, uint32_t classes, int32_t numerator, int32_t denominator)
{
    int32_t count[COARSE_CLASSES] = {0}, most = 0;
    for (int32_t k = 0; k < l->q->n_classes; k++) {
        if (!(classes >> k & 1)) continue;
        count[k] = fraction_of(&l->q->classes[k], numerator, denominator);
        most = (int32_t)units_max(most, count[k]);
    }
    add(l, count);
    return most;
}

/* All devices of a set of classes; a half, a quarter … of them, down to one of each. By money also three quarters of each of these. */
static void add_parts(struct listing *l, uint32_t classes)
{
    int32_t most = INT32_MAX;
    for (int32_t denominator = 1; most > 1; denominator *= 2) {
        most = add_fraction(l, classes, 1, denominator);
        if (by_money(l) && most > 2) (void)add_fraction(l, classes, 3, 4 * denominator);
    }
}

static void add_less(struct listing *l, int32_t class, int32_t less)
{
    int32_t count[COARSE_CLASSES] = {0};
    for (int32_t k = 0; k < l->q->n_classes; k++) count[k] = l->q->classes[k].n;
    if (count[class] < less) return;
    count[class] -= less;
    add(l, count);
}

/* Devices of each class that a plan uses. */
static void count_used(const struct listing *l, const struct plan *p, int32_t *count)
{
    const struct cluster *c = l->q->task->cluster;
    bool *used = ARENA_ARRAY(l->t->arena, bool, (size_t)c->n_devices);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++)
                used[plan_stage_device(&p->replicas[r].stages[i], k)] = true;
    for (int32_t k = 0; k < l->q->n_classes; k++)
        for (int32_t i = 0; i < l->q->classes[k].n; i++)
            count[k] += used[l->q->classes[k].device[i]];
}

static void add_used(struct listing *l, const struct plan *p)
{
    int32_t count[COARSE_CLASSES] = {0};
    count_used(l, p, count);
    add(l, count);
}

/* A device or a node of a class more or less than the best plan uses. */
static void add_neighbours(struct listing *l)
{
    int32_t count[COARSE_CLASSES] = {0};
    if (!l->t->incumbents.n) return;
    count_used(l, &l->t->incumbents.plans[0].plan, count);
    for (int32_t k = 0; k < l->q->n_classes; k++) {
        const struct coarse_class *x = &l->q->classes[k];
        const int32_t used = count[k], steps[] = {1, -1, x->per_node, -x->per_node};
        for (int32_t i = 0; i < 4; i++) {
            count[k] = used + steps[i];
            if (count[k] >= 0 && count[k] <= x->n) add(l, count);
        }
        count[k] = used;
    }
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

/* Stable, the best first. */
static void sort(struct listing *l)
{
    for (int32_t i = 1; i < l->n; i++)
        for (int32_t k = i; k > 0; k--) {
            struct subset *x = &l->out[k], *y = x - 1, z = *x;
            if (!incumbents_better(&l->t->incumbents, &x->value, &y->value)) break;
            *x = *y, *y = z;
        }
}

static enum status try_presets(struct listing *l, struct error *err)
{
    sort(l);
    for (int32_t i = 0; i < l->n && !search_context_over(l->t); i++) {
        struct subset *x = &l->out[i];
        struct baselines_request part = *l->r;
        if (!may_precede(l, x, x->least_ns)) continue; /* presets have levels of ZeRO that no candidate of the estimate has */
        make_task(l, x);
        part.task = x->task, part.coarse = x->coarse;
        TRY(baselines_on(l->t, &part, x->price_per_h, err));
    }
    return OK;
}

/* At most half of the devices of each class. */
static bool is_part(const struct listing *l, const struct subset *x)
{
    for (int32_t k = 0; k < l->q->n_classes; k++)
        if (2 * x->count[k] > l->q->classes[k].n) return false;
    return true;
}

/* By time the coarse search of the whole cluster had the same teams of whole classes, but spent its trials and local searches on those of other
 * classes too; so only the classes of its best candidate by estimate, and parts of classes. A part may precede where the links between sites are
 * so slow that the best plan takes twice as long as all devices together need to compute. */
static bool is_promising(const struct listing *l, const struct subset *x)
{
    uint32_t leading = coarse_leading(l->q);
    bool whole = true;
    for (int32_t k = 0; k < l->q->n_classes; k++) whole &= x->count[k] == (leading >> k & 1 ? l->q->classes[k].n : 0);
    return by_money(l) || (whole && x->task) || is_part(l, x);
}

/* The subset of the best value that is left and may precede the best plan; NULL: none. estimated_only: of the estimated ones. */
static struct subset *next_of(struct listing *l, bool estimated_only)
{
    struct subset *best = NULL;
    for (struct subset *x = l->out; x < l->out + l->n; x++) {
        int64_t least = x->estimated ? x->value.iteration_ns / SEARCH_BEYOND * 100 : x->least_ns;
        x->done |= !is_promising(l, x) || !may_precede(l, x, least);
        if (estimated_only && !x->estimated) continue;
        if (!x->done && (!best || incumbents_better(&l->t->incumbents, &x->value, &best->value)))
            best = x;
    }
    return best;
}

static enum status estimate(struct listing *l, struct subset *x, struct error *err)
{
    int64_t ns;
    make_task(l, x);
    x->estimated = true;
    TRY(coarse_estimate(x->coarse, most_of(l, x), &ns, err));
    x->value = value_of(x->price_per_h, ns);
    return OK;
}

static enum status search(struct listing *l, struct subset *x, struct error *err)
{
    int32_t n_tried;
    x->done = true;
    TRY(coarse_search(x->coarse, &n_tried, err));
    if (by_money(l)) add_neighbours(l);
    return OK;
}

/* The best value first: a bound becomes an estimate, an estimated subset is searched. The searches of all subsets together have as much work as the
 * trials and the local searches of the whole cluster, and so have the estimates: those of small models on many GPUs took 90 of 110 CPU s. */
static enum status try_coarse(struct listing *l, struct error *err)
{
    struct search_context *t = l->t;
    int64_t estimates = 2 * coarse_work_ns(l->q), searches = estimates;
    for (struct subset *x; (x = next_of(l, estimates <= 0)) && searches > 0 && !search_context_over(t);) {
        int64_t before = scorer_work(t->scorer), *left = x->estimated ? &searches : &estimates;
        TRY(x->estimated ? search(l, x, err) : estimate(l, x, err));
        *left -= scorer_work(t->scorer) - before;
    }
    return OK;
}

/* Presets within the budgets, the coarse search within its own. By money it comes first, because it tells which of many subsets have cheap plans. */
static enum status try_all(struct listing *l, struct error *err)
{
    struct search_context *t = l->t;
    int64_t end = t->work_end, before = scorer_work(t->scorer);
    if (!by_money(l)) TRY(try_presets(l, err));
    t->work_end = 0;
    TRY(try_coarse(l, err));
    if (!by_money(l)) return OK;
    if (end) t->work_end = end + scorer_work(t->scorer) - before;
    TRY(try_presets(l, err));
    t->work_end = 0;
    return OK;
}

enum status subsets_search(struct search_context *t, const struct baselines_request *r,
                           struct error *err)
{
    struct listing *l = ARENA_ARRAY(t->arena, struct listing, 1);
    *l = (struct listing){.t = t, .r = r, .q = r->coarse};
    list(l);
    enum status st = try_all(l, err);
    for (int32_t i = 0; i < l->n; i++) coarse_free(l->out[i].coarse);
    return st;
}
