#include "planner/bound/schedule.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/bound/alone.h"
#include "planner/bound/pipeline_bound.h"
#include "planner/bound/refute.h"
#include "sim/pipeline/static.h"

/* A stage with more lattice points uses the closed forms only. */
enum { POINTS_MAX = 4000000 };
/* Limit of microbatches of bound/alone, which takes 16 bytes times their square. */
enum { ALONE_MAX = 2048 };

static const char *const classes[] = {
    [BOUND_SPLIT] = "one contiguous chunk per device as given, any order of F, I and W",
    [BOUND_FUSED] = "one contiguous chunk per device as given, any order of F and B",
    [BOUND_MIXED] = "one contiguous chunk per device as given, any order of F and B or I and W",
};

/* A fused backward shorter than I + W is bounded with I and W shortened to its sum. */
static void part_times(const struct pipeline_stage *s, enum bound_orders orders,
                       struct bound_part *p)
{
    int64_t fused = s->fused_ns ? s->fused_ns : s->input_ns + s->weight_ns;
    p->ns[BOUND_F] = s->forward_ns, p->ns[BOUND_I] = s->input_ns, p->ns[BOUND_W] = s->weight_ns;
    if (orders == BOUND_FUSED) p->ns[BOUND_I] = fused, p->ns[BOUND_W] = 0;
    if (orders == BOUND_MIXED && fused < s->input_ns + s->weight_ns) {
        p->ns[BOUND_I] = units_min(s->input_ns, fused);
        p->ns[BOUND_W] = fused - p->ns[BOUND_I];
    }
}

/* Memory changes that never exceed the real ones. A stage that frees more than it takes gets no limit; bytes that remain
 * after a microbatch are ignored. */
static void part_memory(const struct pipeline_stage *s, int64_t room, enum bound_orders orders,
                        int32_t m, struct bound_part *p)
{
    p->take = s->forward_bytes, p->room = room;
    p->back = units_max(0, -s->input_bytes);
    if (orders == BOUND_FUSED) p->back = units_max(0, -s->input_bytes - s->weight_bytes);
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
    l.links = ARENA_ARRAY(a, struct bound_link, (size_t)l.n);
    for (int32_t s = 0; s < l.n; s++) {
        const struct pipeline_device *d = p->devices ? &p->devices[s] : NULL;
        bool limited = d && d->limit_bytes != PIPELINE_NO_LIMIT;
        part_times(&p->stages[s], orders, &l.parts[s]);
        part_memory(&p->stages[s], limited ? d->limit_bytes - d->resident_bytes : INT64_MAX, orders,
                    m, &l.parts[s]);
        for (int up = 0; up < 2 && p->links && s + 1 < l.n; up++) {
            l.links[s].occupancy_ns[up] = p->links[s].occupancy_ns[up];
            l.links[s].latency_ns[up] = p->links[s].latency_ns[up];
        }
    }
    return l;
}

/* --- closed forms --- */

static int64_t link_ns(const struct bound_link *w, int up)
{
    return w->occupancy_ns[up] + w->latency_ns[up];
}

static void raise(struct bound_schedule *b, int64_t ns, const char *term, int32_t stage)
{
    if (ns <= b->lower_bound_ns) return;
    b->lower_bound_ns = ns, b->term = term, b->stage = stage;
}

/* Little's law: every microbatch holds `take` from the start of F to the end of I and the rest to the end of W. Rounded down
 * by more than the error of a double. */
static int64_t little_ns(const struct bound_part *p, int32_t m, int64_t round_trip)
{
    if (p->room == INT64_MAX) return 0;
    double held = (double)p->take * (double)(p->ns[BOUND_F] + round_trip + p->ns[BOUND_I]) +
                  (double)(p->take - p->back) * (double)p->ns[BOUND_W];
    double ns = m * held / (double)p->room * (1 - 1e-12);
    return ns < (double)BOUND_FAR ? (int64_t)ns : BOUND_FAR;
}

/* Surroundings of a stage: path to it, path from the end of its last I to the end of the step, round trip below it, and
 * least distances between successive arrivals of F and returns of I. */
struct place {
    int64_t down, up, trip, down_step, trip_step, bound_ns;
};

static struct place *places_of(struct arena *a, const struct bound_line *l)
{
    struct place *at = ARENA_ARRAY(a, struct place, (size_t)l->n);
    at[0].up = l->parts[0].ns[BOUND_W];
    for (int32_t s = 1; s < l->n; s++) {
        const struct bound_part *p = &l->parts[s - 1];
        const struct bound_link *w = &l->links[s - 1];
        at[s].down = at[s - 1].down + p->ns[BOUND_F] + link_ns(w, 0);
        at[s].up = units_max(at[s - 1].up, p->ns[BOUND_W]) + p->ns[BOUND_I] + link_ns(w, 1);
        at[s].down_step = units_max(at[s - 1].down_step, units_max(p->ns[BOUND_F], w->occupancy_ns[0]));
    }
    for (int32_t s = l->n - 2; s >= 0; s--) {
        const struct bound_part *p = &l->parts[s + 1];
        const struct bound_link *w = &l->links[s];
        at[s].trip = at[s + 1].trip + p->ns[BOUND_F] + p->ns[BOUND_I] + link_ns(w, 0) + link_ns(w, 1);
        at[s].trip_step = units_max(at[s + 1].trip_step, units_max(p->ns[BOUND_I], w->occupancy_ns[1]));
    }
    return at;
}

static void cheap_stage(const struct bound_line *l, int32_t s, struct place *at,
                        struct bound_schedule *out)
{
    const struct bound_part *p = &l->parts[s];
    int64_t m = l->m, f = p->ns[BOUND_F], i = p->ns[BOUND_I], w = p->ns[BOUND_W];
    int64_t gap = units_max(0, at->trip - (p->in_flight - 1) * f), end = units_max(at->up, w);
    int64_t work = at->down + m * (f + i + w) + gap, back = at->down + m * (f + i) + gap + end;
    int64_t memory = at->down + little_ns(p, l->m, at->trip);
    at->bound_ns = units_max(work, units_max(back, memory));
    raise(out, work, "work", s);
    raise(out, back, "drain", s);
    raise(out, memory, "memory", s);
    for (int up = 0; up < 2 && s + 1 < l->n; up++) /* the first message meets no contention */
        raise(out, at->down + f + at->trip + (m - 1) * l->links[s].occupancy_ns[up] + i + end,
              "link", s);
}

static void cheap(const struct bound_line *l, struct place *at, struct bound_schedule *out)
{
    for (int32_t s = 0; s < l->n; s++)
        if (l->parts[s].in_flight < 1) {
            raise(out, INT64_MAX, "does not fit", s);
            return;
        }
    for (int32_t s = 0; s < l->n; s++) cheap_stage(l, s, &at[s], out);
}

/* --- cycles of one stage --- */

static void cycle(const struct bound_line *l, int32_t s, const struct place *at, int64_t *steps,
                  struct bound_schedule *out)
{
    struct bound_alone by = {at->down, at->down_step, at->trip, at->trip_step};
    int64_t input, last;
    bound_alone_ends(&l->parts[s], l->m, &by, &input, &last, steps);
    raise(out, units_max(last, input + at->up), "cycle", s);
}

/* Stages by falling closed-form bound, while steps remain and `best_ns` (0: none) is not reached. */
static void cycles(struct arena *a, const struct bound_line *l, const struct place *at,
                   int64_t best_ns, int64_t *steps, struct bound_schedule *out)
{
    bool *done = ARENA_ARRAY(a, bool, (size_t)l->n);
    for (int32_t turn = 0; turn < l->n; turn++) {
        int32_t next = -1;
        for (int32_t s = 0; s < l->n; s++)
            if (!done[s] && (next < 0 || at[s].bound_ns > at[next].bound_ns)) next = s;
        done[next] = true;
        if (best_ns && out->lower_bound_ns >= best_ns) return;
        if (l->m <= ALONE_MAX && bound_points(&l->parts[next], l->m) <= *steps)
            cycle(l, next, &at[next], steps, out);
    }
}

/* --- all stages at once --- */

/* Sweeps over all stages follow the cycles of single stages, if the steps allow some. */
static bool sweeps_fit(const struct bound_line *l, int64_t steps)
{
    int64_t points = 0;
    for (int32_t s = 0; s < l->n; s++) {
        int64_t one = bound_points(&l->parts[s], l->m);
        if (one > POINTS_MAX) return false;
        points += one;
    }
    return 4 * points <= steps;
}

void bound_schedule(const struct pipeline *p, int32_t microbatches,
                    const struct bound_schedule_options *o, struct bound_schedule *out)
{
    struct arena *a = arena_new();
    struct bound_line l = line_of(a, p, microbatches, o->orders);
    *out = (struct bound_schedule){.term = "work", .stage = -1, .class_text = classes[o->orders]};
    struct place *at = places_of(a, &l);
    int64_t given = o->steps ? o->steps : BOUND_SCHEDULE_STEPS, steps = given / 4,
            best = o->best_ns;
    cheap(&l, at, out);
    if (o->depth != BOUND_CHEAP && out->lower_bound_ns != INT64_MAX) {
        cycles(a, &l, at, best, &steps, out);
        steps += given - given / 4;
        bool open = !best || out->lower_bound_ns < best;
        if (o->depth == BOUND_DEEP && open && sweeps_fit(&l, steps)) {
            int32_t stage = -1;
            int64_t ns = bound_refute(a, &l, out->lower_bound_ns, best, &steps, &stage);
            raise(out, ns, "windows", stage);
        }
        out->steps = given - steps;
    }
    arena_free(a);
}
