#include "planner/bound/refute.h"

#include "core/base/arena.h"
#include "planner/bound/pipeline_bound.h"

#include <string.h>

enum { DEPTH_MAX = 400 };

struct refuter {
    struct arena *arena;
    const struct bound_line *line;
    struct bound_walker *walker;
    size_t n;                  /* values of from and of until */
    struct bound_windows base; /* of all schedules that end by base_ns */
    int64_t base_ns;
    struct bound_windows trial, cases[DEPTH_MAX]; /* branching state: created on first use */
    int64_t steps;
    int32_t stage;
};

static double least(double a, double b) { return a < b ? a : b; }

static struct bound_windows windows_new(struct arena *a, size_t n)
{
    return (struct bound_windows){ARENA_ARRAY(a, int64_t, n), ARENA_ARRAY(a, int64_t, n)};
}

static void windows_copy(const struct refuter *r, const struct bound_windows *from,
                         struct bound_windows *to)
{
    memcpy(to->from, from->from, r->n * sizeof *to->from);
    memcpy(to->until, from->until, r->n * sizeof *to->until);
}

/* Stage and time of operation i of the windows. */
static int32_t stage_of(const struct refuter *r, size_t i)
{
    return (int32_t)(i / (BOUND_KINDS * (size_t)r->line->m));
}
static int64_t time_of(const struct refuter *r, size_t i)
{
    return r->line->parts[stage_of(r, i)].ns[i / (size_t)r->line->m % BOUND_KINDS];
}

/* Bound by head + duration + tail of single operations at the fixed point of windows without an end. */
static int64_t longest_path(const struct refuter *r)
{
    int64_t longest = 0;
    for (size_t i = 0; i < r->n; i++)
        longest =
            units_max(longest, r->base.from[i] + time_of(r, i) + BOUND_FAR - r->base.until[i]);
    return longest;
}

/* --- branching --- */

/* Slack of a window relative to the operation's duration; W counts less, because its position implies little. */
static double looseness(const struct refuter *r, const struct bound_windows *w, size_t i)
{
    int64_t ns = time_of(r, i), choice = w->until[i] - w->from[i] - ns;
    double ratio = (double)choice / (double)units_max(ns, 1);
    return i / (size_t)r->line->m % BOUND_KINDS == BOUND_W ? least(ratio, 1) / 2 : ratio;
}

/* The branching operation: the tightest of those with slack above 1, else the loosest; r->n: none. */
static size_t choose(const struct refuter *r, const struct bound_windows *w)
{
    size_t chosen = r->n;
    double best = 0;
    for (size_t i = 0; i < r->n; i++) {
        double x = looseness(r, w, i);
        bool better = best > 1 ? x > 1 && x < best : x > best;
        if (better) chosen = i, best = x;
    }
    return chosen;
}

/* Whether no schedule satisfies the windows at a fixed point. */
static bool cases_refuted(struct refuter *r, const struct bound_windows *w, int depth)
{
    size_t i = choose(r, w);
    if (i == r->n || depth == DEPTH_MAX) return false;
    if (!r->cases[depth].from) r->cases[depth] = windows_new(r->arena, r->n);
    struct bound_windows *half = &r->cases[depth];
    int64_t ns = time_of(r, i), middle = w->from[i] + (w->until[i] - w->from[i] - ns) / 2;
    for (int late = 0; late < 2; late++) {
        windows_copy(r, w, half);
        if (late)
            half->from[i] = middle + 1;
        else
            half->until[i] = middle + ns;
        enum bound_outcome o =
            bound_windows_narrow(r->walker, half, stage_of(r, i), &r->steps, &r->stage);
        if (o == BOUND_EMPTY) continue;
        if (o == BOUND_CUT || !cases_refuted(r, half, depth + 1)) return false;
    }
    return true;
}

/* --- makespans --- */

/* Whether ns is refuted by propagation alone. If not, its windows become the base of shorter makespans. */
static bool refuted(struct refuter *r, int64_t ns)
{
    memcpy(r->trial.from, r->base.from, r->n * sizeof *r->trial.from);
    for (size_t i = 0; i < r->n; i++) r->trial.until[i] = r->base.until[i] - (r->base_ns - ns);
    if (bound_windows_narrow(r->walker, &r->trial, -1, &r->steps, &r->stage) == BOUND_EMPTY)
        return true;
    struct bound_windows t = r->base;
    r->base = r->trial, r->trial = t, r->base_ns = ns;
    return false;
}

/* The same with branching, within a limit of steps. */
static bool refuted_by_cases(struct refuter *r, int64_t ns, int64_t most)
{
    int64_t kept = r->steps > most ? r->steps - most : 0;
    r->steps -= kept;
    bool yes = refuted(r, ns) || (r->steps > 0 && cases_refuted(r, &r->base, 0));
    r->steps = kept + units_max(r->steps, 0);
    return yes;
}

/* Bisection between `low`, a bound, and `high`, not refuted or known; returns the bound. part: each attempt with branching
 * gets 1 / part of the remaining steps; 0: propagation alone. */
static int64_t bisect(struct refuter *r, int64_t low, int64_t high, int part, int32_t *stage)
{
    while (low < high && r->steps > 0 && high - low > high / 1000000) {
        int64_t middle = low + (high - low) / 2;
        bool yes = part ? refuted_by_cases(r, middle, r->steps / part) : refuted(r, middle);
        if (yes)
            low = middle + 1, *stage = r->stage;
        else
            high = middle;
    }
    return low;
}

/* Windows at a makespan are valid for all shorter ones; for longer ones the windows without an end are recomputed. */
static void reopen(struct refuter *r)
{
    bound_windows_open(r->line, BOUND_FAR, &r->base);
    r->base_ns = BOUND_FAR;
    (void)bound_windows_narrow(r->walker, &r->base, -1, &r->steps, &r->stage);
}

/* Without a known schedule: exponential search for a makespan that is not refuted, then bisection. */
static int64_t explore(struct refuter *r, int64_t low, int32_t *stage)
{
    for (int64_t ns = low; r->steps > 0; ns += ns / 16 + 1) {
        if (!refuted(r, ns)) return bisect(r, low, ns, 0, stage);
        low = ns + 1, *stage = r->stage;
    }
    return low;
}

/* Below a known schedule: by propagation, then by branching. */
static int64_t aim(struct refuter *r, int64_t low, int64_t best_ns, int32_t *stage)
{
    if (refuted(r, best_ns - 1)) {
        *stage = r->stage;
        return best_ns;
    }
    low = bisect(r, low, best_ns - 1, 0, stage);
    if (r->steps > 0) reopen(r);
    if (r->steps > 0 && refuted_by_cases(r, best_ns - 1, r->steps / 2)) {
        *stage = r->stage;
        return best_ns;
    }
    return bisect(r, low, best_ns - 1, 4, stage);
}

int64_t bound_refute(struct arena *a, const struct bound_line *l, int64_t low, int64_t best_ns,
                     int64_t *steps, int32_t *stage)
{
    struct refuter r = {.arena = a, .line = l, .steps = *steps, .stage = -1};
    r.n = (size_t)l->n * BOUND_KINDS * (size_t)l->m;
    r.walker = bound_walker_new(a, l);
    r.base = windows_new(a, r.n), r.trial = windows_new(a, r.n);
    reopen(&r);
    if (longest_path(&r) > low) low = longest_path(&r), *stage = -1;
    if (!best_ns)
        low = explore(&r, low, stage);
    else if (low < best_ns && r.steps > 0)
        low = aim(&r, low, best_ns, stage);
    *steps = r.steps;
    return low;
}
