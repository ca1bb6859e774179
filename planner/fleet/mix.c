#include "planner/fleet/mix.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "planner/lp.h"

#include <math.h>
#include <string.h>

enum { PACES = 24, NEWTON_MAX = 6, ROUNDS_MAX = 8, NODES_MAX = 300, COLUMNS_MAX = 1000 };

struct master {
    struct template_maker *maker;
    const struct mix_options *o;
    int32_t microbatches, n_columns, n_pools, n_classes;
    size_t capacity;
    struct template *columns;
    int64_t pace[PACES];
    double *price; /* (n_pools) dual price of a GPU */
    double replica_price;
    double t_ns;
    struct lp *lp;
};

static bool same_template(const struct template *a, const struct template *b)
{
    if (a->n_stages != b->n_stages) return false;
    for (int32_t i = 0; i < a->n_stages; i++)
        if (a->stages[i].device_class != b->stages[i].device_class ||
            a->stages[i].last != b->stages[i].last)
            return false;
    return true;
}

static double value_of(const struct master *q, const struct template *t)
{
    return (q->t_ns - (double)t->fill_ns - (double)t->tail_ns) / (double)t->tau_ns + 1;
}

static bool is_widest(const struct template_maker *m, int32_t device_class)
{
    for (int32_t k = 0; k < m->n_classes; k++)
        if (m->classes[k].pool == m->classes[device_class].pool &&
            m->classes[k].tp > m->classes[device_class].tp)
            return false;
    return true;
}

static bool allowed(const struct master *q, const struct template *t)
{
    const struct template_maker *m = q->maker;
    for (int32_t i = 0; i < t->n_stages; i++) {
        const struct template_stage *x = &t->stages[i];
        if (x->last - x->first >= m->max_layers) return false;
        if (m->starts && !m->starts[x->first]) return false;
        if (q->o->left_out >> m->classes[x->device_class].pool & 1) return false;
        if (q->o->widest && !is_widest(m, x->device_class)) return false;
        if (q->o->one_class && x->device_class != t->stages[0].device_class) return false;
        if (q->o->one_zone &&
            m->classes[x->device_class].zone != m->classes[t->stages[0].device_class].zone)
            return false;
    }
    return true;
}

static void put_column(struct master *q, const struct template *t)
{
    if (q->n_columns == COLUMNS_MAX || !allowed(q, t)) return;
    q->columns = arena_grow(q->maker->arena, q->columns, (size_t)q->n_columns, &q->capacity,
                            sizeof *q->columns);
    q->columns[q->n_columns++] = *t;
    for (int32_t k = 0; k < q->n_pools; k++) lp_put(q->lp, k, t->use[k]);
    lp_put(q->lp, q->n_pools, 1);
    lp_column(q->lp, 0, 0, 0);
}

static void add_column(struct master *q, const struct template *t)
{
    struct template_maker *m = q->maker;
    for (int32_t i = 0; i < m->n_pool; i++)
        if (same_template(&m->pool[i], t)) return;
    m->pool = arena_grow(m->arena, m->pool, (size_t)m->n_pool, &m->pool_capacity, sizeof *m->pool);
    m->pool[m->n_pool++] = *t;
    put_column(q, t);
}

/* Both the dynamic program's template and its classes with balanced layers. */
static void offer(struct master *q, const struct template *t)
{
    struct template even;
    int32_t classes[TEMPLATE_STAGES_MAX];
    for (int32_t i = 0; i < t->n_stages; i++) classes[i] = t->stages[i].device_class;
    if (template_balance(q->maker, classes, t->n_stages, t->tau_ns, &even) &&
        even.tau_ns <= t->tau_ns)
        add_column(q, &even);
    else
        add_column(q, t);
}

static void find_paces(struct master *q)
{
    int64_t least, most;
    template_paces(q->maker, &least, &most);
    if (most < least) most = least;
    double ratio = pow((double)most / (double)least, 1.0 / (PACES - 1)), pace = (double)least;
    for (int i = 0; i < PACES; i++, pace *= ratio) q->pace[i] = (int64_t)ceil(pace) + 1;
}

/* Prices of the allowed classes: one class or all (-1), one zone or all. */
static void only_classes(const struct master *q, double *price, int32_t device_class, int32_t zone)
{
    for (int32_t k = 0; k < q->n_classes; k++) {
        const struct template_class *x = &q->maker->classes[k];
        bool in = (device_class < 0 || k == device_class) && (zone < 0 || x->zone == zone) &&
                  (!q->o->widest || is_widest(q->maker, k)) && !(q->o->left_out >> x->pool & 1);
        price[k] = in ? q->price[x->pool] * x->tp : -1;
    }
}

static void first_columns(struct master *q)
{
    double price[TEMPLATE_CLASSES_MAX];
    struct template t;
    for (int32_t k = 0; k < q->n_classes; k++)
        for (int i = 0; i < PACES; i += 2) {
            only_classes(q, price, k, -1);
            if (template_cheapest(q->maker, q->pace[i], price, &t)) offer(q, &t);
        }
}

static double solve(struct master *q)
{
    for (int32_t i = 0; i < q->n_columns; i++) {
        double value = value_of(q, &q->columns[i]);
        lp_set_cost(q->lp, i, value > 0 ? value : 0);
        lp_set_bounds(q->lp, i, 0, value >= 1 ? INFINITY : 0);
    }
    if (lp_solve(q->lp, NULL) == LP_FAILED) return 0;
    for (int32_t k = 0; k < q->n_pools; k++) q->price[k] = fmax(0, lp_price(q->lp, k));
    q->replica_price = fmax(0, lp_price(q->lp, q->n_pools));
    return lp_objective(q->lp);
}

/* Adds columns of positive reduced cost; returns whether there was one. */
static bool generate(struct master *q)
{
    double price[TEMPLATE_CLASSES_MAX];
    int32_t before = q->n_columns, n_zones = q->o->one_zone ? q->maker->g->n_zones : 1;
    if (q->o->one_class) return false;
    for (int32_t zone = 0; zone < n_zones; zone++) {
        only_classes(q, price, -1, q->o->one_zone ? zone : -1);
        for (int i = 0; i < PACES; i++) {
            struct template t;
            if ((double)q->pace[i] >= q->t_ns) break;
            if (!template_cheapest(q->maker, q->pace[i], price, &t)) continue;
            double pays = value_of(q, &t) - q->replica_price;
            for (int32_t k = 0; k < q->n_pools; k++) pays -= q->price[k] * t.use[k];
            if (pays > 1e-6 * q->microbatches / (1 + (double)q->n_classes)) offer(q, &t);
        }
    }
    return q->n_columns > before;
}

/* Initial T: the batch at the best pace of any template. */
static double first_time(const struct master *q)
{
    double rate = 0, fill = 0;
    for (int32_t k = 0; k < q->n_pools; k++) {
        double best = 0;
        for (int32_t i = 0; i < q->n_columns; i++) {
            const struct template *t = &q->columns[i];
            if (!t->use[k]) continue;
            double one = 1 / ((double)t->tau_ns * t->use[k]);
            if (one > best) best = one;
            if (fill == 0 || (double)t->fill_ns < fill) fill = (double)(t->fill_ns + t->tail_ns);
        }
        rate += best * q->maker->g->classes[k].n;
    }
    return rate > 0 ? q->microbatches / rate + fill : 0;
}

static bool relax(struct master *q)
{
    first_columns(q);
    if (!q->n_columns && !generate(q)) {
        q->t_ns = 1e18; /* no single class holds the model */
        generate(q);
    }
    if (!q->n_columns) return false;
    q->t_ns = first_time(q);
    for (int i = 0; i < NEWTON_MAX; i++) {
        double done = solve(q), slope = 0;
        for (int r = 0; r < ROUNDS_MAX && generate(q); r++) {
            double before = done;
            done = solve(q);
            if (done < before * (1 + 1e-3)) break;
        }
        for (int32_t c = 0; c < q->n_columns; c++)
            slope += lp_value(q->lp, c) / (double)q->columns[c].tau_ns;
        if (slope <= 0) {
            q->t_ns *= 2;
            continue;
        }
        double step = (q->microbatches - done) / slope;
        q->t_ns += step;
        if (fabs(step) < 0.004 * q->t_ns) break;
    }
    return true;
}

/* --- integer counts --- */

bool mix_share(struct mix *x, int32_t microbatches)
{
    int64_t low = 0, high = 0;
    for (int32_t i = 0; i < x->n; i++) {
        if (!x->count[i]) continue;
        int64_t most = template_ns(&x->templates[i], microbatches);
        if (most > high) high = most;
    }
    while (low < high) { /* least T at which all replicas together take the batch */
        int64_t t = low + (high - low) / 2, done = 0;
        for (int32_t i = 0; i < x->n; i++) {
            int64_t rest = t - x->templates[i].fill_ns - x->templates[i].tail_ns;
            int64_t most = rest >= 0 ? rest / x->templates[i].tau_ns + 1 : 0;
            if (most > 0) done += most * x->count[i];
        }
        if (done >= microbatches)
            high = t;
        else
            low = t + 1;
    }
    int64_t left = microbatches, replicas = 0;
    x->t_ns = high;
    for (int32_t i = 0; i < x->n; i++) {
        int64_t rest = high - x->templates[i].fill_ns - x->templates[i].tail_ns;
        int64_t most = rest >= 0 ? rest / x->templates[i].tau_ns + 1 : 0;
        x->least[i] = (int32_t)(most > 1 ? most : 1), x->more[i] = 0;
        left -= (int64_t)x->least[i] * x->count[i];
        replicas += x->count[i];
    }
    if (replicas > microbatches || !replicas) return false;
    for (int32_t i = 0; left < 0; i = (i + 1) % x->n) { /* surplus: one less each, in turn */
        if (!x->count[i] || x->least[i] <= 1) continue;
        int64_t fewer = -left < x->count[i] ? -left : x->count[i];
        x->least[i]--, x->more[i] = x->count[i] - (int32_t)fewer;
        left += fewer;
        if (left < 0) continue;
        break;
    }
    return true;
}

/* Branch and bound at the current T; returns the columns used. */
static bool whole(struct master *q, struct mix *out)
{
    struct arena *a = q->maker->arena;
    *out = (struct mix){0};
    size_t n = (size_t)q->n_columns;
    out->templates = ARENA_ARRAY(a, struct template, n);
    out->count = ARENA_ARRAY(a, int32_t, n), out->least = ARENA_ARRAY(a, int32_t, n);
    out->more = ARENA_ARRAY(a, int32_t, n);
    double *value = ARENA_ARRAY(a, double, n);
    bool found = lp_solve_integer(q->lp, NODES_MAX, 1e-3, value);
    for (int32_t i = 0; i < q->n_columns; i++) {
        double x = found ? value[i] : floor(lp_value(q->lp, i) + 1e-6);
        if (x < 0.5) continue;
        out->templates[out->n] = q->columns[i];
        out->count[out->n++] = (int32_t)(x + 0.5);
    }
    return out->n > 0 && mix_share(out, q->microbatches);
}

bool mix_solve(struct template_maker *m, int32_t microbatches, const struct mix_options *o,
               struct mix *out, int64_t *relaxed_ns)
{
    struct master q = {.maker = m,
                       .o = o,
                       .microbatches = microbatches,
                       .n_classes = m->n_classes,
                       .n_pools = m->n_pools};
    q.price = ARENA_ARRAY(m->arena, double, (size_t)q.n_pools);
    q.lp = lp_new(m->arena, LP_MAX);
    for (int32_t k = 0; k < q.n_pools; k++) lp_row(q.lp, -INFINITY, m->g->classes[k].n);
    int32_t most =
        m->max_replicas && m->max_replicas < microbatches ? m->max_replicas : microbatches;
    lp_row(q.lp, -INFINITY, most);
    for (int32_t i = 0; i < m->n_pool; i++) put_column(&q, &m->pool[i]);
    find_paces(&q);
    bool found = relax(&q) && !stop_requested();
    if (found) {
        static const double slack[] = {1, 1.04, 1.1, 1.25};
        double t_ns = q.t_ns;
        *relaxed_ns = (int64_t)t_ns;
        found = false;
        for (size_t i = 0; i < sizeof slack / sizeof *slack; i++) {
            struct mix x;
            q.t_ns = t_ns * slack[i];
            solve(&q);
            if (!whole(&q, &x) || (found && x.t_ns >= out->t_ns)) continue;
            *out = x;
            found = true;
        }
    }
    lp_free(q.lp);
    return found;
}
