#include "planner/bound/alone.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/bound/pipeline_bound.h"

#include <stdbool.h>

#define NEVER INT64_MAX

struct alone {
    const struct bound_part *p;
    const struct bound_alone *by;
    int32_t m;
    int64_t *now,
        *before; /* (m + 1, m + 1) of points (b, c): b I and c W done, for a F done and for a - 1 */
    int64_t *input; /* (m) earliest start of I */
    int64_t last_input, points;
};

/* Least c (W done) with a F and b I done within memory: take (a - b) + (take - back) (b - c) <= room. a + 1: none. */
static int32_t min_done(const struct alone *k, int32_t a, int32_t b)
{
    const struct bound_part *p = k->p;
    int64_t most = p->waiting, rest = p->take - p->back;
    if (p->room != INT64_MAX) {
        int64_t left = p->room - p->take * (a - b);
        if (left < 0) return a + 1;
        if (rest > 0) most = units_min(most, left / rest);
    }
    return most < b ? b - (int32_t)most : 0;
}

/* Earliest start of I of microbatch i after the end of its F. */
static void set_input(struct alone *k, int32_t i, int64_t over)
{
    k->input[i] = over + k->by->trip_ns;
    if (i) k->input[i] = units_max(k->input[i], k->input[i - 1] + k->by->trip_step_ns);
}

/* All points with a F done. Points outside memory are neither written nor read. */
static void walk_row(struct alone *k, int32_t a)
{
    const struct bound_part *p = k->p;
    size_t wide = (size_t)k->m + 1;
    int64_t over = NEVER, start = k->by->head_ns + (a - 1) * k->by->head_step_ns;
    int32_t above = a + 1; /* min_done of b - 1 */
    for (int32_t b = 0; b <= a; b++) {
        int64_t *row = k->now + (size_t)b * wide, *was = k->before + (size_t)b * wide;
        int32_t first = min_done(k, a, b);
        if (a && b == a) set_input(k, a - 1, over); /* this I precedes its F */
        for (int32_t c = first; c <= b; c++) {
            int64_t t = a ? NEVER : 0;
            if (b < a && was[c] != NEVER) {
                t = units_max(was[c], start) + p->ns[BOUND_F];
                over = units_min(over, t);
            }
            if (c < b && c >= above && row[c - (int64_t)wide] != NEVER)
                t = units_min(t,
                              units_max(row[c - (int64_t)wide], k->input[b - 1]) + p->ns[BOUND_I]);
            if (c > first && row[c - 1] != NEVER) t = units_min(t, row[c - 1] + p->ns[BOUND_W]);
            row[c] = t;
            if (b == k->m) k->last_input = units_min(k->last_input, t);
        }
        above = first;
        k->points += b - first + 1 > 0 ? b - first + 1 : 0;
    }
}

void bound_alone_ends(const struct bound_part *p, int32_t m, const struct bound_alone *by,
                      int64_t *last_input_ns, int64_t *last_ns, int64_t *steps)
{
    struct arena *a = arena_new();
    size_t wide = (size_t)m + 1;
    struct alone k = {.p = p, .by = by, .m = m, .last_input = NEVER};
    k.now = ARENA_ARRAY(a, int64_t, wide * wide);
    k.before = ARENA_ARRAY(a, int64_t, wide * wide);
    k.input = ARENA_ARRAY(a, int64_t, (size_t)m);
    for (int32_t done = 0; done <= m; done++) {
        walk_row(&k, done);
        int64_t *swap = k.now;
        k.now = k.before, k.before = swap;
    }
    *last_input_ns = k.last_input;
    *last_ns = k.before[wide * wide - 1];
    *steps -= k.points;
    arena_free(a);
}
