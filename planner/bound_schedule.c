#include "planner/bound_schedule.h"

#include "core/arena.h"
#include "planner/bound_windows.h"
#include "sim/static.h"

#include <string.h>

enum { STEPS_DEFAULT = 60000000 };
/* A stage of more points than this is left to the closed forms. */
enum { POINTS_MOST = 4000000 };

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static const char *const classes[] = {
    [BOUND_SPLIT] = "one contiguous chunk a device as given, any order of F, I and W",
    [BOUND_FUSED] = "one contiguous chunk a device as given, any order of F and B",
    [BOUND_MIXED] = "one contiguous chunk a device as given, any order of F and B or I and W",
};

/* A fused backward whose two halves take less together is bounded by halves that add up to it. */
static void part_times(const struct pipeline_stage *s, enum bound_orders orders,
                       struct bound_part *p)
{
    int64_t fused = s->fused_ns ? s->fused_ns : s->input_ns + s->weight_ns;
    p->ns[BOUND_F] = s->forward_ns, p->ns[BOUND_I] = s->input_ns, p->ns[BOUND_W] = s->weight_ns;
    if (orders == BOUND_FUSED) p->ns[BOUND_I] = fused, p->ns[BOUND_W] = 0;
    if (orders == BOUND_MIXED && fused < s->input_ns + s->weight_ns) {
        p->ns[BOUND_I] = min64(s->input_ns, fused);
        p->ns[BOUND_W] = fused - p->ns[BOUND_I];
    }
}

/* Changes of memory that are never more than the real ones at any point. What gives back more than was taken has no
 * limit here; what is left over of a microbatch is forgotten. */
static void part_memory(const struct pipeline_stage *s, int64_t room, enum bound_orders orders,
                        int32_t m, struct bound_part *p)
{
    p->take = s->forward_bytes, p->room = room;
    p->back = max64(0, -s->input_bytes);
    if (orders == BOUND_FUSED) p->back = max64(0, -s->input_bytes - s->weight_bytes);
    if (p->take <= 0 || p->back > p->take ||
        s->forward_bytes + s->input_bytes + s->weight_bytes < 0)
        p->take = p->back = 0, p->room = INT64_MAX;
    p->in_flight = m;
    if (p->room != INT64_MAX && p->room / p->take < m) p->in_flight = (int32_t)(p->room / p->take);
    p->waiting = p->ns[BOUND_W] ? m : 1;
}

static struct bound_line line_of(struct arena *a, const struct pipeline *p, int32_t m,
                                 enum bound_orders orders)
{
    struct bound_line l = {p->n_stages, m, NULL, NULL};
    l.parts = ARENA_ARRAY(a, struct bound_part, (size_t)l.n);
    l.ways = ARENA_ARRAY(a, struct bound_way, (size_t)l.n);
    for (int32_t s = 0; s < l.n; s++) {
        const struct pipeline_device *d = p->devices ? &p->devices[s] : NULL;
        bool limited = d && d->limit_bytes != PIPELINE_NO_LIMIT;
        part_times(&p->stages[s], orders, &l.parts[s]);
        part_memory(&p->stages[s], limited ? d->limit_bytes - d->resident_bytes : INT64_MAX, orders,
                    m, &l.parts[s]);
        for (int up = 0; up < 2 && p->links && s + 1 < l.n; up++) {
            l.ways[s].occupancy_ns[up] = p->links[s].occupancy_ns[up];
            l.ways[s].latency_ns[up] = p->links[s].latency_ns[up];
        }
    }
    return l;
}

/* --- closed forms --- */

static int64_t way_ns(const struct bound_way *w, int up)
{
    return w->occupancy_ns[up] + w->latency_ns[up];
}

static void raise(struct bound_schedule *b, int64_t ns, const char *term, int32_t stage)
{
    if (ns <= b->lower_bound_ns) return;
    b->lower_bound_ns = ns, b->term = term, b->stage = stage;
}

/* Little's law: every microbatch holds `take` from the start of F until I has ended and the rest until W has. Rounded
 * down by more than a double loses. */
static int64_t little_ns(const struct bound_part *p, int32_t m, int64_t round_trip)
{
    if (p->room == INT64_MAX) return 0;
    double held = (double)p->take * (double)(p->ns[BOUND_F] + round_trip + p->ns[BOUND_I]) +
                  (double)(p->take - p->back) * (double)p->ns[BOUND_W];
    double ns = m * held / (double)p->room * (1 - 1e-12);
    return ns < (double)BOUND_FAR ? (int64_t)ns : BOUND_FAR;
}

/* down: h_s; up: from the end of the last I of s to the end of the step; trip: R_s. */
static void cheap_stage(const struct bound_line *l, int32_t s, int64_t down, int64_t up,
                        int64_t trip, struct bound_schedule *out)
{
    const struct bound_part *p = &l->parts[s];
    int64_t m = l->m, f = p->ns[BOUND_F], i = p->ns[BOUND_I], w = p->ns[BOUND_W];
    int64_t gap = max64(0, trip - (p->in_flight - 1) * f);
    raise(out, down + m * (f + i + w) + gap, "work", s);
    raise(out, down + m * (f + i) + gap + max64(up, w), "way back", s);
    raise(out, down + little_ns(p, l->m, trip), "memory", s);
    for (int u = 0; u < 2 && s + 1 < l->n; u++) { /* below the link: the rest of the trip */
        int64_t rest = trip - way_ns(&l->ways[s], 0) - way_ns(&l->ways[s], 1);
        int64_t busy = way_ns(&l->ways[s], u) + (m - 1) * l->ways[s].occupancy_ns[u];
        raise(out, down + f + busy + way_ns(&l->ways[s], !u) + rest + i + max64(up, w), "link", s);
    }
}

static void cheap(const struct bound_line *l, struct bound_schedule *out)
{
    int64_t down = 0, up = l->parts[0].ns[BOUND_W], trip = 0;
    for (int32_t s = 0; s < l->n; s++) {
        if (l->parts[s].in_flight < 1) {
            raise(out, INT64_MAX, "does not fit", s);
            return;
        }
        if (s == 0) continue;
        const struct bound_part *p = &l->parts[s];
        trip += p->ns[BOUND_F] + p->ns[BOUND_I] + way_ns(&l->ways[s - 1], 0) +
                way_ns(&l->ways[s - 1], 1);
    }
    for (int32_t s = 0; s < l->n; s++) {
        cheap_stage(l, s, down, up, trip, out);
        if (s + 1 == l->n) break;
        const struct bound_part *p = &l->parts[s], *below = &l->parts[s + 1];
        int64_t ways = way_ns(&l->ways[s], 0) + way_ns(&l->ways[s], 1);
        down += p->ns[BOUND_F] + way_ns(&l->ways[s], 0);
        up = max64(up, p->ns[BOUND_W]) + p->ns[BOUND_I] + way_ns(&l->ways[s], 1);
        trip -= below->ns[BOUND_F] + below->ns[BOUND_I] + ways;
    }
}

/* --- windows --- */

struct deep {
    const struct bound_line *line;
    struct bound_walker *walker;
    size_t n;                  /* values of from and of until */
    struct bound_windows base; /* of all schedules that end by base_ns */
    int64_t base_ns;
    struct bound_windows trial;
    int64_t steps;
    int32_t stage;
};

static struct bound_windows windows_new(struct arena *a, size_t n)
{
    return (struct bound_windows){ARENA_ARRAY(a, int64_t, n), ARENA_ARRAY(a, int64_t, n)};
}

/* Heads plus tails of single operations, once windows without an end lie still. */
static int64_t longest_path(const struct deep *d)
{
    int64_t longest = 0;
    size_t m = (size_t)d->line->m;
    for (size_t i = 0; i < d->n; i++) {
        const struct bound_part *p = &d->line->parts[i / (BOUND_KINDS * m)];
        int64_t tail = BOUND_FAR - d->base.until[i];
        longest = max64(longest, d->base.from[i] + p->ns[i / m % BOUND_KINDS] + tail);
    }
    return longest;
}

/* Whether no schedule ends by ns. Where that stays open, its windows become the base of shorter ones. */
static bool refuted(struct deep *d, int64_t ns)
{
    memcpy(d->trial.from, d->base.from, d->n * sizeof *d->trial.from);
    for (size_t i = 0; i < d->n; i++) d->trial.until[i] = d->base.until[i] - (d->base_ns - ns);
    enum bound_outcome o = bound_windows_narrow(d->walker, &d->trial, &d->steps, &d->stage);
    if (o == BOUND_EMPTY) return true;
    struct bound_windows t = d->base;
    d->base = d->trial, d->trial = t, d->base_ns = ns;
    return false;
}

/* Longest makespan that is refuted, between `low` (no schedule is shorter) and `high` (not refuted). */
static void bisect(struct deep *d, int64_t low, int64_t high, struct bound_schedule *out)
{
    while (low < high && d->steps > 0 && high - low > high / 1000000) {
        int64_t middle = low + (high - low) / 2;
        if (refuted(d, middle)) {
            low = middle + 1;
            raise(out, low, "windows", d->stage);
        } else {
            high = middle;
        }
    }
}

static void deep(struct arena *a, const struct bound_line *l,
                 const struct bound_schedule_options *o, struct bound_schedule *out)
{
    struct deep d = {.line = l, .steps = o->steps ? o->steps : STEPS_DEFAULT, .stage = -1};
    int64_t given = d.steps;
    d.n = (size_t)l->n * BOUND_KINDS * (size_t)l->m;
    for (int32_t s = 0; s < l->n; s++)
        if (bound_points(&l->parts[s], l->m) > POINTS_MOST) return;
    d.walker = bound_walker_new(a, l);
    d.base = windows_new(a, d.n), d.trial = windows_new(a, d.n), d.base_ns = BOUND_FAR;
    bound_windows_open(l, BOUND_FAR, &d.base);
    (void)bound_windows_narrow(d.walker, &d.base, &d.steps, &d.stage);
    raise(out, longest_path(&d), "windows", -1);
    int64_t best = o->best_ns;
    if (best && best > out->lower_bound_ns && d.steps > 0) {
        if (refuted(&d, best - 1))
            raise(out, best, "windows", d.stage);
        else
            bisect(&d, out->lower_bound_ns, best - 1, out);
    }
    for (int64_t ns = out->lower_bound_ns; !best && d.steps > 0; ns += ns / 16 + 1)
        if (!refuted(&d, ns)) {
            bisect(&d, out->lower_bound_ns, ns, out);
            break;
        } else {
            raise(out, ns + 1, "windows", d.stage);
        }
    out->steps = given - d.steps;
}

void bound_schedule(const struct pipeline *p, int32_t microbatches,
                    const struct bound_schedule_options *o, struct bound_schedule *out)
{
    struct arena *a = arena_new();
    struct bound_line l = line_of(a, p, microbatches, o->orders);
    *out = (struct bound_schedule){.term = "work", .stage = -1, .class_text = classes[o->orders]};
    cheap(&l, out);
    if (o->depth == BOUND_DEEP && out->lower_bound_ns != INT64_MAX &&
        (!o->best_ns || out->lower_bound_ns < o->best_ns))
        deep(a, &l, o, out);
    arena_free(a);
}
