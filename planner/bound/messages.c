#include "planner/bound/messages.h"

#include "core/base/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Most work first, for equal bytes. */
static int compare_layers(const void *x, const void *y)
{
    const struct bound_layer_cost *a = x, *b = y;
    double left = a->work_ns * b->bytes, right = b->work_ns * a->bytes;
    if (left != right) return left > right ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

struct curve { /* W(g): corners */
    int32_t n;
    double *work, *bytes; /* (n), both ascending */
};

static struct curve curve_of(struct arena *a, struct bound_messages *m)
{
    struct curve c = {0, ARENA_ARRAY(a, double, (size_t)m->n_layers + 1),
                      ARENA_ARRAY(a, double, (size_t)m->n_layers + 1)};
    int32_t kept = 0;
    for (int32_t l = 0; l < m->n_layers; l++)
        if (m->layers[l].work_ns > 0) m->layers[kept++] = m->layers[l];
    m->n_layers = kept;
    qsort(m->layers, (size_t)m->n_layers, sizeof *m->layers, compare_layers);
    double work = 0, bytes = 0;
    c.n = 1;
    for (int32_t l = 0; l < m->n_layers; l++) {
        const struct bound_layer_cost *x = &m->layers[l];
        bool on = x->bytes > 0 && (!l || x->work_ns * m->layers[l - 1].bytes !=
                                             m->layers[l - 1].work_ns * x->bytes);
        work += x->work_ns, bytes += x->bytes;
        if (on) c.n++; /* else on the line of the layer before, or free */
        c.work[c.n - 1] = work, c.bytes[c.n - 1] = bytes;
    }
    return c;
}

/* Bytes per unit of work where W(g) = work, for a part that does at most `most`. */
static double cost_at(const struct bound_messages *m, double work, double bytes, double most)
{
    if (!(work > 0)) return INFINITY;
    double s = work > most ? most / work : 1;
    return (4 * m->crossing_bytes * s + 4 * bytes) / (s * work);
}

/* Between two corners the cost has its minimum at an end, where the part is filled by all samples, or where its slope is 0. */
static double least_cost(const struct bound_messages *m, const struct curve *c, double most)
{
    double least = cost_at(m, c->work[0], c->bytes[0], most);
    for (int32_t i = 1; i < c->n; i++) {
        double rise = c->work[i] - c->work[i - 1], run = c->bytes[i] - c->bytes[i - 1];
        least = fmin(least, cost_at(m, c->work[i], c->bytes[i], most));
        if (!(rise > 0)) continue;
        double at[2] = {most, sqrt(m->crossing_bytes * most * rise / run)};
        for (int k = 0; k < 2; k++)
            if (at[k] > c->work[i - 1] && at[k] < c->work[i])
                least = fmin(least, cost_at(m, at[k],
                                            c->bytes[i - 1] + run * (at[k] - c->work[i - 1]) / rise,
                                            most));
    }
    return least;
}

static bool too_short(const struct bound_messages *m, const struct curve *c, double *cost, double T)
{
    double left = c->work[c->n - 1],
           bytes =
               -4 * m->crossing_bytes - 4 * c->bytes[c->n - 1]; /* beyond what the links carry */
    for (int32_t i = 0; i < m->n_parts; i++) {
        const struct bound_part_kind *p = &m->parts[i];
        cost[i] = least_cost(m, c, T * p->share);
        bytes -= T * 1e-9 * p->Bps * (double)p->times;
    }
    while (left > 0) {
        int32_t next = -1;
        for (int32_t i = 0; i < m->n_parts; i++)
            if (!isinf(cost[i]) && (next < 0 || cost[i] < cost[next])) next = i;
        if (next < 0) return true; /* all parts are full */
        double work = fmin(left, T * m->parts[next].share * (double)m->parts[next].times);
        bytes += work * cost[next];
        left = work < left ? left - work : 0;
        cost[next] = INFINITY;
    }
    return bytes > 0;
}

double bound_messages_ns(struct arena *scratch, struct bound_messages *m, double least_ns)
{
    enum {
        HALVINGS = 30
    }; /* of the interval to the first T that is long enough, at most twice the bound: 1e-9 of it */
    struct curve c = curve_of(scratch, m);
    double *cost = ARENA_ARRAY(scratch, double, (size_t)m->n_parts + 1);
    if (!(least_ns > 0) || !too_short(m, &c, cost, least_ns)) return least_ns;
    double low = least_ns, high = 2 * least_ns;
    while (too_short(m, &c, cost, high)) {
        low = high, high *= 2;
        if (isinf(high)) return low;
    }
    for (int k = 0; k < HALVINGS; k++) {
        double middle = (low + high) / 2;
        *(too_short(m, &c, cost, middle) ? &low : &high) = middle;
    }
    return low;
}
