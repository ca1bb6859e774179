#include "planner/fleet/template_enum.h"

#include "core/base/arena.h"
#include "planner/lp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHOSEN_MAX = 72, HALVINGS = 18, COUNTS = 12 };

struct template_use { /* a template with the estimate of its gradient all-reduce */
    struct template t;
    int64_t sum_ns;
    double value; /* microbatches within the current T */
    double share; /* ratio of its value to its price */
    int32_t group;
};

struct course { /* a mix and its time with gradient all-reduces */
    struct mix x;
    int64_t ns;
};

struct template_enum {
    struct template_maker *m;
    struct arena *a;
    int32_t microbatches, n, n_groups, n_courses, most;
    size_t capacity;
    struct template_use *uses;
    int32_t *best;             /* (n_groups) most valuable template of each use of GPUs */
    double *price;             /* (n_pools) dual price of a GPU */
    int64_t least_ns, most_ns; /* paces */
    struct course *courses;    /* (most) by time */
};

/* --- one order of classes, balanced --- */

/* Work of a stage of layers first … last between its neighbours; false: it does not fit without recomputation. */
static bool work_of(const struct template_enum *q, const int32_t *classes, int32_t n, int32_t i,
                    int32_t first, int32_t last, int64_t *out)
{
    struct template_time t;
    if (!template_stage_time(q->m, classes[i], first, last, n - i, &t) || t.recompute) return false;
    *out = t.t_ns;
    if (i + 1 < n) *out += template_busy_ns(q->m, classes[i], classes[i + 1], last);
    if (i > 0) *out += template_busy_ns(q->m, classes[i], classes[i - 1], first - 1);
    return true;
}

/* Each stage, from the last backwards, as long as the pace allows; returns whether all layers are placed. */
static bool fill_back(const struct template_enum *q, const int32_t *classes, int32_t n,
                      int64_t tau_ns, struct template_stage *stages)
{
    int32_t end = q->m->s->n_layers;
    for (int32_t i = n - 1; i >= 0; i--) {
        int32_t low = i, high = end; /* least first layer; one layer for each stage before */
        while (low < high) {
            int32_t first = low + (high - low) / 2;
            int64_t work = 0;
            if (work_of(q, classes, n, i, first, end - 1, &work) && work <= tau_ns)
                high = first;
            else
                low = first + 1;
        }
        if (low >= end || (i == 0 && low > 0)) return false;
        stages[i] = (struct template_stage){classes[i], low, end - 1, n - i, false};
        end = low;
    }
    return end == 0;
}

static void measure(const struct template_enum *q, struct template_use *d)
{
    const struct template_maker *m = q->m;
    struct template *t = &d->t;
    int32_t classes[TEMPLATE_ENUM_STAGES];
    t->use = ARENA_ARRAY(q->a, int32_t, (size_t)m->n_pools);
    for (int32_t i = 0; i < t->n_stages; i++) {
        const struct template_class *k = &m->classes[classes[i] = t->stages[i].device_class];
        t->use[k->pool] += k->tp;
    }
    for (int32_t i = 0; i < t->n_stages; i++) {
        const struct template_stage *x = &t->stages[i];
        const struct template_class *k = &m->classes[x->device_class];
        const struct stage_cost *c = space_stage_type(m->s, k->type, x->first, x->last);
        const struct device_route *far = m->far[x->device_class * m->n_classes + x->device_class];
        int64_t work = 0;
        work_of(q, classes, t->n_stages, i, x->first, x->last, &work);
        t->fill_ns += work;
        if (i) {
            int64_t transfer_ns = template_transfer_ns(m, classes[i - 1], classes[i], x->first - 1);
            int64_t twice = template_busy_ns(m, classes[i - 1], classes[i], x->first - 1);
            t->fill_ns += twice ? -2 * transfer_ns : 2 * transfer_ns; /* counted in the work of both ends, subtracted once */
        }
        if (work > t->tau_ns) t->tau_ns = work;
        if (c->update_ns > t->tail_ns) t->tail_ns = c->update_ns;
        double bytes = (double)c->parameter_bytes * k->tp,
               sum = far ? 2e9 * bytes / far->link.bandwidth_Bps : 0;
        if (sum > (double)d->sum_ns) d->sum_ns = (int64_t)sum;
    }
}

static void balance(struct template_enum *q, const int32_t *classes, int32_t n)
{
    struct template_stage stages[TEMPLATE_ENUM_STAGES], good[TEMPLATE_ENUM_STAGES];
    int64_t low, high;
    low = q->least_ns, high = 4 * q->most_ns;
    int32_t use[DEVICE_CLASSES_MAX] = {0};
    for (int32_t i = 0; i < n; i++) {
        const struct template_class *k = &q->m->classes[classes[i]];
        if ((use[k->pool] += k->tp) > q->m->g->classes[k->pool].n) return;
    }
    for (int32_t i = 0; i + 1 < n; i++)
        if (!q->m->near[classes[i] * q->m->n_classes + classes[i + 1]]) return;
    if (!fill_back(q, classes, n, high, good)) return;
    while (low < high - high / 2048) {
        int64_t tau = low + (high - low) / 2;
        if (fill_back(q, classes, n, tau, stages))
            high = tau, memcpy(good, stages, sizeof good);
        else
            low = tau + 1;
    }
    q->uses = arena_grow(q->a, q->uses, (size_t)q->n, &q->capacity, sizeof *q->uses);
    struct template_use *d = &q->uses[q->n++];
    *d = (struct template_use){.t = {.n_stages = n, .tau_ns = 1}};
    d->t.stages = arena_copy(q->a, good, (size_t)n * sizeof *good);
    measure(q, d);
}

/* --- dual prices of GPUs --- */

static bool same_use(const struct template_enum *q, const struct template_use *x,
                     const struct template_use *y)
{
    return !memcmp(x->t.use, y->t.use, (size_t)q->m->n_pools * sizeof *x->t.use);
}

static void group_uses(struct template_enum *q)
{
    q->best = ARENA_ARRAY(q->a, int32_t, (size_t)q->n);
    for (int32_t i = 0; i < q->n; i++) {
        int32_t g = 0;
        while (g < q->n_groups && !same_use(q, &q->uses[i], &q->uses[q->best[g]])) g++;
        q->uses[i].group = g;
        if (g == q->n_groups) q->best[q->n_groups++] = i;
    }
}

static double value_in(const struct template_use *d, double ns)
{
    double rest = ns - (double)(d->sum_ns + d->t.fill_ns + d->t.tail_ns);
    return rest < 0 ? 0 : floor(rest / (double)d->t.tau_ns) + 1;
}

/* LP relaxation: most microbatches within T with fractional replicas; dual prices of GPUs. */
static double relaxed(struct template_enum *q, struct lp *lp, double ns)
{
    for (int32_t g = 0; g < q->n_groups; g++) q->uses[q->best[g]].value = -1;
    for (int32_t i = 0; i < q->n; i++) {
        struct template_use *d = &q->uses[i];
        d->value = value_in(d, ns);
        if (d->value > q->uses[q->best[d->group]].value) q->best[d->group] = i;
    }
    for (int32_t g = 0; g < q->n_groups; g++) lp_set_cost(lp, g, q->uses[q->best[g]].value);
    if (lp_solve(lp, NULL) == LP_FAILED) return 0;
    for (int32_t p = 0; p < q->m->n_pools; p++) q->price[p] = fmax(0, lp_price(lp, p));
    return lp_objective(lp);
}

static struct lp *program_of(struct template_enum *q)
{
    int32_t pools = q->m->n_pools;
    struct lp *lp = lp_new(q->a, LP_MAX);
    for (int32_t p = 0; p < pools; p++) lp_row(lp, -INFINITY, q->m->g->classes[p].n);
    for (int32_t g = 0; g < q->n_groups; g++) {
        const struct template *t = &q->uses[q->best[g]].t;
        for (int32_t p = 0; p < pools; p++) lp_put(lp, p, t->use[p]);
        lp_column(lp, 0, INFINITY, 0);
    }
    return lp;
}

/* Least T of the LP relaxation, and the dual prices slightly above it. */
static double min_time(struct template_enum *q)
{
    struct lp *lp = program_of(q);
    double low = 0, high = 0;
    for (int32_t i = 0; i < q->n; i++) {
        const struct template_use *d = &q->uses[i];
        double ns = (double)(template_ns(&d->t, q->microbatches) + d->sum_ns);
        if (i == 0 || ns < high) high = ns;
    }
    for (int k = 0; k < HALVINGS; k++) {
        double middle = (low + high) / 2;
        if (relaxed(q, lp, middle) >= q->microbatches)
            high = middle;
        else
            low = middle;
    }
    relaxed(q, lp, high * 1.04);
    lp_free(lp);
    return high;
}

/* --- mixes --- */

static int by_share(const void *x, const void *y)
{
    const struct template_use *a = x, *b = y;
    if (a->share != b->share) return a->share > b->share ? -1 : 1;
    return (a->t.tau_ns > b->t.tau_ns) - (a->t.tau_ns < b->t.tau_ns);
}

/* Sorts by value; returns how many are kept. */
static int32_t choose(struct template_enum *q)
{
    int32_t n = 0;
    for (int32_t i = 0; i < q->n; i++) {
        struct template_use *d = &q->uses[i];
        double price = 0;
        for (int32_t p = 0; p < q->m->n_pools; p++) price += q->price[p] * d->t.use[p];
        d->share = d->value < 1 ? 0 : price > 0 ? d->value / price : 1;
    }
    qsort(q->uses, (size_t)q->n, sizeof *q->uses, by_share);
    while (n < q->n && n < CHOSEN_MAX && q->uses[n].share > 0.85) n++;
    return n;
}

/* Number of replicas of a template on the remaining GPUs. */
static int32_t room_for(const struct template_enum *q, const struct template *t,
                        const int32_t *left)
{
    int32_t n = INT32_MAX;
    for (int32_t p = 0; p < q->m->n_pools; p++)
        if (t->use[p] && left[p] / t->use[p] < n) n = left[p] / t->use[p];
    return n;
}

static void put_in(struct template_enum *q, struct mix *x, const struct template_use *d,
                   int32_t count, int32_t *left)
{
    if (count < 1) return;
    for (int32_t p = 0; p < q->m->n_pools; p++) left[p] -= count * d->t.use[p];
    x->templates[x->n] = d->t;
    x->count[x->n++] = count;
}

static void add_mix(struct template_enum *q, const struct mix *x, int64_t sum_ns)
{
    int64_t ns = x->t_ns + sum_ns;
    if (q->n_courses == q->most && ns >= q->courses[q->most - 1].ns) return;
    for (int32_t i = 0; i < q->n_courses; i++)
        if (q->courses[i].ns == ns) return; /* the same in another order, or of equal time */
    int32_t at = q->n_courses < q->most ? q->n_courses++ : q->most - 1;
    for (; at > 0 && q->courses[at - 1].ns > ns; at--) q->courses[at] = q->courses[at - 1];
    size_t n = (size_t)x->n;
    q->courses[at] = (struct course){*x, ns};
    q->courses[at].x.templates = arena_copy(q->a, x->templates, n * sizeof *x->templates);
    q->courses[at].x.count = arena_copy(q->a, x->count, n * sizeof *x->count);
    q->courses[at].x.least = arena_copy(q->a, x->least, n * sizeof *x->least);
    q->courses[at].x.more = arena_copy(q->a, x->more, n * sizeof *x->more);
}

/* n replicas of the first template, as many of the second as fit, then of any third that fits. */
static void try_mix(struct template_enum *q, int32_t chosen, const struct template_use *first,
                    int32_t count, const struct template_use *second)
{
    struct template templates[3];
    int32_t counts[3], least[3], more[3], left[DEVICE_CLASSES_MAX];
    struct mix x = {.templates = templates, .count = counts, .least = least, .more = more};
    int64_t sum_ns = first->sum_ns;
    for (int32_t p = 0; p < q->m->n_pools; p++) left[p] = q->m->g->classes[p].n;
    put_in(q, &x, first, count, left);
    if (second != first) {
        int32_t n = room_for(q, &second->t, left);
        if (n < 1) return;
        put_in(q, &x, second, n, left);
        if (second->sum_ns > sum_ns) sum_ns = second->sum_ns;
    }
    if (mix_share(&x, q->microbatches)) add_mix(q, &x, sum_ns);
    for (int32_t i = 0; i < chosen; i++) {
        const struct template_use *d = &q->uses[i];
        int32_t n = room_for(q, &d->t, left);
        if (n < 1 || d == first || d == second) continue;
        put_in(q, &x, d, n, left);
        if (d->sum_ns > sum_ns) sum_ns = d->sum_ns;
        if (mix_share(&x, q->microbatches)) add_mix(q, &x, sum_ns);
        return;
    }
}

static void try_mixes(struct template_enum *q, int32_t chosen)
{
    int32_t all[DEVICE_CLASSES_MAX];
    for (int32_t p = 0; p < q->m->n_pools; p++) all[p] = q->m->g->classes[p].n;
    for (int32_t i = 0; i < chosen; i++)
        for (int32_t k = i; k < chosen; k++) {
            int32_t most = room_for(q, &q->uses[i].t, all), step = (most + COUNTS - 1) / COUNTS;
            for (int32_t n = most; n >= 1; n -= step) {
                try_mix(q, chosen, &q->uses[i], n, &q->uses[k]);
                if (i == k && n < most) break;
            }
        }
}

void template_enum_mixes(struct template_maker *m, int32_t microbatches, int32_t most,
                         struct mix **out, int32_t *n)
{
    struct template_enum q = {.m = m, .a = m->arena, .microbatches = microbatches, .most = most};
    int32_t classes[TEMPLATE_ENUM_STAGES], layers = m->s->n_layers;
    int64_t orders = 1, tried = 0;
    *n = 0;
    template_paces(m, &q.least_ns, &q.most_ns);
    int32_t longest =
        m->g->n_devices < TEMPLATE_ENUM_LARGE ? TEMPLATE_ENUM_STAGES - 1 : TEMPLATE_ENUM_STAGES;
    for (int32_t stages = 1; stages <= longest && stages <= layers; stages++) {
        orders *= m->n_classes;
        tried += orders;
        if (tried > TEMPLATE_ENUM_ORDERS_MAX) break;
        for (int64_t order = 0; order < orders; order++) {
            int64_t rest = order;
            for (int32_t i = 0; i < stages; i++, rest /= m->n_classes)
                classes[i] = (int32_t)(rest % m->n_classes);
            balance(&q, classes, stages);
        }
    }
    if (!q.n) return;
    q.price = ARENA_ARRAY(q.a, double, (size_t)m->n_pools);
    q.courses = ARENA_ARRAY(q.a, struct course, (size_t)most);
    group_uses(&q);
    min_time(&q);
    try_mixes(&q, choose(&q));
    *out = ARENA_ARRAY(q.a, struct mix, (size_t)most);
    for (; *n < q.n_courses; ++*n) (*out)[*n] = q.courses[*n].x;
}
