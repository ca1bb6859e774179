#include "exec/straggler.h"

#include "core/base/arena.h"
#include "exec/clock.h"
#include "exec/comm/launch_local.h"

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

double straggler_base(struct straggler_series *s, double value)
{
    if (s->n >= STRAGGLER_BASE) return value / s->base;
    s->first[s->n++] = value;
    if (s->n == STRAGGLER_BASE) s->base = median(s->first, STRAGGLER_BASE), s->level = 1;
    return 0;
}

bool straggler_level(struct straggler_series *s, double ratio, int64_t now_ns, int64_t least_ns)
{
    s->last[s->n++ % STRAGGLER_WINDOW] = ratio;
    int way = ratio >= s->level * STRAGGLER_FACTOR ? 1 : ratio <= s->level / STRAGGLER_FACTOR ? -1 : 0;
    if (!way || (s->streak < 0) != (way < 0)) s->streak = 0;
    if (!way) return false;
    if (!s->streak) s->since_ns = now_ns;
    s->streak += way;
    if (s->streak * way < STRAGGLER_WINDOW || now_ns - s->since_ns < least_ns) return false;
    s->level = median(s->last, STRAGGLER_WINDOW);
    s->streak = 0;
    return true;
}

bool straggler_add(struct straggler_series *s, double value, int64_t now_ns, int64_t least_ns)
{
    double ratio = straggler_base(s, value);
    return ratio > 0 && straggler_level(s, ratio, now_ns, least_ns);
}

struct straggler_watch *straggler_open(struct arena *a, const struct program *p, int32_t rank, struct straggler_table *table)
{
    if (!table) return NULL;
    struct straggler_watch *w = ARENA_ARRAY(a, struct straggler_watch, 1);
    w->report = &table->ranks[rank];
    w->least_ns = p->emulated ? 0 : STRAGGLER_NS;
    w->peers = ARENA_ARRAY(a, struct straggler_sum, (size_t)p->n_devices);
    return w;
}

/* Adds to the step in progress. Returns whether the step before it changed the level. */
static bool add(const struct straggler_watch *w, struct straggler_sum *x, int64_t step, int64_t ns, int64_t bytes)
{
    bool changed = false;
    if (step > x->step) {
        /* The first step has the costs of a start: pages that are touched, kernels that are loaded. */
        if (x->step > 0 && x->value > 0) changed = straggler_add(&x->series, x->size > 0 ? x->value / x->size : x->value, w->least_ns ? clock_wall_ns() : 0, w->least_ns);
        x->step = step;
        x->value = x->size = 0;
    }
    x->value += (double)ns;
    x->size += (double)bytes;
    return changed;
}

/* Row of a step that has not ended. */
static struct straggler_row *row_of(const struct straggler_watch *w, int64_t step)
{
    struct straggler_row *row = &w->report->rows[step % STRAGGLER_ROWS];
    if (row->step != step) *row = (struct straggler_row){.step = step};
    return row;
}

static void end_steps(const struct straggler_watch *w, int64_t until)
{
    int64_t ended = atomic_load(&w->report->ended);
    if (ended >= until) return;
    for (int64_t now_ns = clock_wall_ns(); ended < until; ended++) row_of(w, ended)->end_ns = now_ns;
    atomic_store(&w->report->ended, until);
    if (until % STRAGGLER_WAKE == 0) launch_local_wake();
}

void straggler_operator(struct straggler_watch *w, int64_t step, int64_t ns)
{
    if (!w) return;
    end_steps(w, step);
    row_of(w, step)->operators_ns += (double)ns;
    atomic_store(&w->report->step, step);
}

void straggler_inputs(struct straggler_watch *w, int64_t step, int64_t ns)
{
    if (w) row_of(w, step)->inputs_ns += (double)ns;
}

void straggler_ended(struct straggler_watch *w, int64_t step)
{
    if (w) end_steps(w, step + 1);
}

void straggler_message(struct straggler_watch *w, int32_t peer, int64_t step, int64_t bytes, int64_t ns)
{
    if (!w || bytes <= 0 || !add(w, &w->peers[peer], step, ns, bytes)) return;
    atomic_store(&w->report->peer, peer);
    atomic_store(&w->report->link_step, step);
    atomic_store(&w->report->link_ppm, (int64_t)(w->peers[peer].series.level * 1e6 + 0.5));
    launch_local_wake();
}
