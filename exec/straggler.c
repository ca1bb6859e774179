#include "exec/straggler.h"

#include "core/base/arena.h"

#include <stdlib.h>
#include <string.h>

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(const double *values, int n)
{
    double sorted[STRAGGLER_BASE > STRAGGLER_WINDOW ? STRAGGLER_BASE : STRAGGLER_WINDOW];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

bool straggler_add(struct straggler_series *s, double value)
{
    double least, most;
    if (s->n < STRAGGLER_BASE) {
        s->first[s->n++] = value;
        if (s->n == STRAGGLER_BASE) s->base = median(s->first, STRAGGLER_BASE), s->level = 1;
        return false;
    }
    s->last[s->n++ % STRAGGLER_WINDOW] = value / s->base;
    if (s->n < STRAGGLER_BASE + STRAGGLER_WINDOW) return false;
    least = most = s->last[0];
    for (int i = 1; i < STRAGGLER_WINDOW; i++) {
        if (s->last[i] < least) least = s->last[i];
        if (s->last[i] > most) most = s->last[i];
    }
    if (least < s->level * STRAGGLER_FACTOR && most > s->level / STRAGGLER_FACTOR) return false;
    s->level = median(s->last, STRAGGLER_WINDOW);
    return true;
}

struct straggler_watch *straggler_open(struct arena *a, const struct program *p, int32_t rank, struct straggler_table *table)
{
    if (!table) return NULL;
    struct straggler_watch *w = ARENA_ARRAY(a, struct straggler_watch, 1);
    w->report = &table->ranks[rank];
    w->peers = ARENA_ARRAY(a, struct straggler_sum, (size_t)p->n_devices);
    return w;
}

/* Adds to the step in progress. Returns whether the step before it changed the level. */
static bool add(struct straggler_sum *x, int64_t step, int64_t ns, int64_t bytes)
{
    bool changed = false;
    if (step > x->step) {
        /* The first step has the costs of a start: pages that are touched, kernels that are loaded. */
        if (x->step > 0 && x->value > 0) changed = straggler_add(&x->series, x->size > 0 ? x->value / x->size : x->value);
        x->step = step;
        x->value = x->size = 0;
    }
    x->value += (double)ns;
    x->size += (double)bytes;
    return changed;
}

static int64_t ppm(const struct straggler_series *s) { return (int64_t)(s->level * 1e6 + 0.5); }

void straggler_operator(struct straggler_watch *w, int64_t step, int64_t ns)
{
    if (!w) return;
    bool changed = add(&w->compute, step, ns, 0);
    atomic_store(&w->report->step, w->compute.step);
    if (!changed) return;
    atomic_store(&w->report->compute_step, step);
    atomic_store(&w->report->compute_ppm, ppm(&w->compute.series));
}

void straggler_message(struct straggler_watch *w, int32_t peer, int64_t step, int64_t bytes, int64_t ns)
{
    if (!w || bytes <= 0 || !add(&w->peers[peer], step, ns, bytes)) return;
    atomic_store(&w->report->peer, peer);
    atomic_store(&w->report->link_step, step);
    atomic_store(&w->report->link_ppm, ppm(&w->peers[peer].series));
}
