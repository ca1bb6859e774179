#include "traces/saves.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/model/checkpoint_interval.h"
#include "traces/quantile.h"
#include "traces/trace.h"

#include <math.h>

void saves_add(struct saves *s, struct arena *a, struct saves_one one)
{
    s->all = arena_grow(a, s->all, s->n, &s->capacity, sizeof *s->all);
    s->all[s->n++] = one;
}

static int64_t overlap(int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t begin = a > c ? a : c, end = b < d ? b : d;
    return end > begin ? end - begin : 0;
}

/* Time of a step without pauses and waits of checkpoints; *busy: part of it overlaps a write. */
static int64_t step_ns(const struct saves *s, int64_t begin_ns, int64_t end_ns, bool stopped, bool *busy)
{
    int64_t ns = end_ns - begin_ns;
    *busy = false;
    for (size_t i = 0; i < s->n && !stopped; i++) {
        const struct saves_one *x = &s->all[i];
        ns -= overlap(begin_ns, end_ns, x->begin_ns - x->wait_ns, x->end_ns);
        if (overlap(begin_ns, end_ns, x->end_ns, x->written_ns)) *busy = true;
    }
    return ns;
}

/* Sum over the steps that overlap a write of what they take longer than the median of the others; the first step is left out. */
static int64_t slowdown(const struct saves *s, const int64_t *end_ns, int64_t steps, bool stopped, int64_t *quiet_ns)
{
    struct arena *a = arena_new();
    int64_t *quiet = ARENA_ARRAY(a, int64_t, (size_t)steps + 1), *busy = ARENA_ARRAY(a, int64_t, (size_t)steps + 1), sum = 0;
    size_t n_quiet = 0, n_busy = 0;
    for (int64_t i = 1; i < steps; i++) {
        bool is_busy;
        int64_t ns = step_ns(s, end_ns[i - 1], end_ns[i], stopped, &is_busy);
        if (is_busy)
            busy[n_busy++] = ns;
        else
            quiet[n_quiet++] = ns;
    }
    *quiet_ns = n_quiet ? quantile_median_ns(quiet, n_quiet) : quantile_median_ns(busy, n_busy);
    for (size_t i = 0; i < n_busy && n_quiet; i++) sum += busy[i] - *quiet_ns;
    arena_free(a);
    return sum > 0 ? sum : 0;
}

static struct saves_cost measure(const struct saves *s, const int64_t *end_ns, int64_t steps, bool stopped, int64_t *quiet_ns)
{
    struct saves_cost out = {0};
    int64_t slow_ns = slowdown(s, end_ns, steps, stopped, quiet_ns), all_ns = steps ? end_ns[steps - 1] : 0;
    for (size_t i = 0; i < s->n; i++) {
        const struct saves_one *x = &s->all[i];
        if (!x->written_ns) continue;
        out.n++;
        out.snapshot_ns += x->end_ns - x->begin_ns;
        out.write_ns += x->written_ns - x->end_ns;
        out.wait_ns += x->wait_ns;
    }
    if (!out.n) return out;
    if (stopped) all_ns += out.snapshot_ns;
    if (all_ns > 0) out.share = (double)(out.snapshot_ns + out.wait_ns + slow_ns) / (double)all_ns;
    out.snapshot_ns /= out.n, out.write_ns /= out.n, out.wait_ns /= out.n, out.slowdown_ns = slow_ns / out.n;
    return out;
}

struct saves_cost saves_measure(const struct saves *s, const int64_t *step_end_ns, int64_t steps, bool stopped)
{
    int64_t quiet_ns;
    return measure(s, step_end_ns, steps, stopped, &quiet_ns);
}

/* Spans of a trace in memory are in the file's order: of a device snapshots before writes, both by time. */
struct saves_cost saves_of_trace(const struct trace *t)
{
    struct arena *a = arena_new();
    struct saves all = {0};
    int64_t *ends = ARENA_ARRAY(a, int64_t, (size_t)t->steps + 1), steps = 0;
    int32_t device = -1;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind == SPAN_STEP && s->step < t->steps) ends[s->step] = s->end_ns, steps = s->step >= steps ? s->step + 1 : steps;
        if (s->kind == SPAN_SNAPSHOT && device < 0) device = s->device;
        if (s->kind == SPAN_SNAPSHOT && s->device == device) saves_add(&all, a, (struct saves_one){s->begin_ns, s->end_ns, 0, 0});
    }
    for (size_t i = 0; i < t->n_spans; i++)
        for (size_t k = 0; t->spans[i].kind == SPAN_SAVE && t->spans[i].device == device && k < all.n; k++)
            if (all.all[k].end_ns == t->spans[i].begin_ns) all.all[k].written_ns = t->spans[i].end_ns;
    for (size_t k = 1; k < all.n; k++) { /* from the end of a step before until the write before has ended */
        int64_t step_ns = 0;
        for (int64_t i = 0; i < steps; i++)
            if (ends[i] <= all.all[k].begin_ns && ends[i] > step_ns) step_ns = ends[i];
        if (all.all[k - 1].written_ns > step_ns) all.all[k].wait_ns = all.all[k].begin_ns - step_ns;
    }
    struct saves_cost x = saves_measure(&all, ends, steps, false);
    arena_free(a);
    return x;
}

int64_t saves_every(const struct saves *s, const int64_t *step_end_ns, int64_t steps, bool stopped, double mtbf_s, int64_t now)
{
    int64_t quiet_ns;
    struct saves_cost x = measure(s, step_end_ns, steps, stopped, &quiet_ns);
    if (!x.n || quiet_ns <= 0) return now;
    double wanted_s = checkpoint_interval_daly(units_s_from_ns(x.snapshot_ns + x.slowdown_ns), mtbf_s);
    double least_s = units_s_from_ns(x.write_ns), every = ceil(fmax(wanted_s, least_s) / units_s_from_ns(quiet_ns));
    return every < 1 ? 1 : every > (double)SAVES_EVERY_MAX ? SAVES_EVERY_MAX : (int64_t)every;
}
