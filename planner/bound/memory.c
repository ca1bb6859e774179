#include "planner/bound/memory.h"

#include "core/base/arena.h"
#include "planner/bound/lp.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    DEPTHS =
        8, /* runs of equal layers, each at the least depth of its layers: one more changes a bound by less than 1 % */
    HALVINGS =
        10 /* of the interval between the known bound and the program's value there: 1e-3 of it */
};

/* Equal layers of a run. */
struct run {
    int32_t of, last, n; /* representative, deepest, number */
};
struct runs {
    int32_t n;
    struct run *run;
};

static bool same(const struct bound_memory *m, int32_t i, int32_t j)
{
    const struct bound_memory_layer *x = &m->layers[i], *y = &m->layers[j];
    size_t n = (size_t)m->n_classes * sizeof(double);
    return x->kept_bytes == y->kept_bytes && x->state_bytes == y->state_bytes &&
           !memcmp(x->work_ns, y->work_ns, n) && !memcmp(x->again_ns, y->again_ns, n) &&
           !memcmp(x->update_ns, y->update_ns, n);
}

/* Equal layers in the order of the model, cut into at most DEPTHS runs. */
static struct runs runs_of(struct arena *a, const struct bound_memory *m)
{
    struct runs r = {0, ARENA_ARRAY(a, struct run, (size_t)m->n_layers)};
    bool *done = ARENA_ARRAY(a, bool, (size_t)m->n_layers);
    for (int32_t l = 0; l < m->n_layers; l++) {
        int32_t equal = 0, nth = 0, before = -1;
        if (done[l]) continue;
        for (int32_t k = l; k < m->n_layers; k++) equal += same(m, l, k);
        for (int32_t k = l; k < m->n_layers; k++) {
            if (!same(m, l, k)) continue;
            int32_t depth = (int32_t)((int64_t)nth++ * DEPTHS / equal);
            if (depth != before) r.run[r.n++] = (struct run){l, k, 0};
            r.run[r.n - 1].last = k, r.run[r.n - 1].n++;
            before = depth, done[k] = true;
        }
    }
    return r;
}

/* Columns: 0 is P; then for every class and run the parts kept, recomputed and updated. */
enum part { KEPT, AGAIN, UPDATE, PARTS };
static int32_t column_of(const struct runs *r, int32_t device_class, int32_t run, enum part part)
{
    return 1 + (device_class * r->n + run) * PARTS + (int32_t)part;
}

static void put_busy(struct bound_lp *p, const struct bound_memory *m, const struct runs *r,
                     double unit)
{
    for (int32_t g = 0; g < m->n_classes; g++) {
        if (!m->count[g]) continue;
        int32_t busy = bound_lp_row(p, 0);
        bound_lp_put(p, busy, 0, (double)m->count[g]);
        for (int32_t i = 0; i < r->n; i++) {
            const struct bound_memory_layer *x = &m->layers[r->run[i].of];
            double n = r->run[i].n, ns[PARTS];
            if (isinf(x->work_ns[g])) continue;
            ns[KEPT] = m->batch * x->work_ns[g];
            ns[AGAIN] = m->batch * (x->work_ns[g] + x->again_ns[g]);
            ns[UPDATE] = x->update_ns[g];
            for (int k = 0; k < PARTS; k++)
                bound_lp_put(p, busy, column_of(r, g, i, (enum part)k), -n * ns[k] / unit);
        }
    }
}

static void put_done(struct bound_lp *p, const struct bound_memory *m, const struct runs *r)
{
    for (int32_t i = 0; i < r->n; i++) {
        int32_t done = bound_lp_row(p, 1), updated = bound_lp_row(p, 1);
        for (int32_t g = 0; g < m->n_classes; g++) {
            if (!m->count[g] || isinf(m->layers[r->run[i].of].work_ns[g])) continue;
            bound_lp_put(p, done, column_of(r, g, i, KEPT), 1);
            bound_lp_put(p, done, column_of(r, g, i, AGAIN), 1);
            bound_lp_put(p, updated, column_of(r, g, i, UPDATE), 1);
        }
    }
}

/* Samples of the run's deepest layer in flight, if iterations take at most `ns`. */
static double in_flight(const struct bound_memory *m, const struct run *x, double ns)
{
    return fmax(m->microbatch, m->batch * m->layers[x->last].hold_ns / ns);
}

static void put_memory(struct bound_lp *p, const struct bound_memory *m, const struct runs *r,
                       double ns)
{
    for (int32_t pool = 0; pool < m->n_classes; pool++) {
        double bytes = 0;
        for (int32_t g = 0; g < m->n_classes; g++)
            if (m->pool[g] == pool) bytes += (double)m->count[g] * m->bytes[g];
        if (!(bytes > 0)) continue;
        int32_t row = bound_lp_row(p, -1);
        for (int32_t i = 0; i < r->n; i++) {
            const struct bound_memory_layer *x = &m->layers[r->run[i].of];
            double n = r->run[i].n, kept = x->kept_bytes * in_flight(m, &r->run[i], ns);
            for (int32_t g = 0; g < m->n_classes; g++) {
                if (m->pool[g] != pool || !m->count[g] || isinf(x->work_ns[g])) continue;
                bound_lp_put(p, row, column_of(r, g, i, KEPT), -n * kept / bytes);
                bound_lp_put(p, row, column_of(r, g, i, UPDATE), -n * x->state_bytes / bytes);
            }
        }
    }
}

/* Least iteration of the plans with iterations of at most `ns`. */
static double least_of(const struct bound_memory *m, double ns)
{
    struct arena *a = arena_new();
    struct runs r = runs_of(a, m);
    struct bound_lp *p = bound_lp_new(a, column_of(&r, m->n_classes, 0, KEPT));
    put_busy(p, m, &r, ns);
    put_done(p, m, &r);
    put_memory(p, m, &r, ns);
    double least = bound_lp_solve(p) * ns;
    arena_free(a);
    return least;
}

double bound_memory_ns(const struct bound_memory *m, double least_ns)
{
    if (!(least_ns > 0)) return least_ns;
    double low = least_ns, high = least_of(m, low);
    if (!(high > low)) return low;
    if (isinf(high)) /* the state alone, or one microbatch, may exceed all memory */
        for (high = 2 * low; high < 1e6 * least_ns && least_of(m, high) > high;)
            low = high, high *= 2;
    for (int k = 0; k < HALVINGS; k++) {
        double middle = (low + high) / 2;
        *(least_of(m, middle) > middle ? &low : &high) = middle;
    }
    return low;
}
