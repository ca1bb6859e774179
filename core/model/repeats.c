#include "core/model/repeats.h"

#include "core/base/arena.h"

#include <stdlib.h>

struct run {
    int32_t first, period,
        matches; /* element first + i equals first + period + i, for i < matches */
};

static int64_t states(const struct run *r) { return (int64_t)(r->matches / r->period) * r->period; }

/* All pairs at this distance that match in a row around (at, at + period), inside [low, high). */
static struct run run_around(const struct repeats_of *s, int32_t at, int32_t period, int32_t low,
                             int32_t high)
{
    int32_t first = at, end = at + 1;
    while (first > low && s->same(s->user, first - 1, first - 1 + period)) first--;
    while (end + period < high && s->same(s->user, end, end + period)) end++;
    return (struct run){first, period, end - first};
}

static struct run best_run(const struct repeats_of *s, int32_t low, int32_t high)
{
    struct run best = {0, 1, 0};
    for (int32_t period = 1; 2 * period <= high - low; period++)
        for (int32_t at = low; at + period < high; at += period) {
            if (!s->same(s->user, at, at + period)) continue;
            struct run r = run_around(s, at, period, low, high);
            if (r.matches >= period && states(&r) > states(&best)) best = r;
            while (at + period < r.first + r.matches) at += period;
        }
    return best;
}

/* A run of m matches holds m / p + 1 copies; from a later start, as many as still fit. */
static struct repeat place(const struct repeats_of *s, const struct run *r)
{
    struct repeat best = {0};
    int64_t least = 0;
    for (int32_t shift = 0; shift < r->period && shift <= r->matches; shift++) {
        struct repeat x = {r->first + shift, r->period, (r->matches - shift) / r->period + 1};
        int64_t seam = s->seam ? s->seam(s->user, x.first) : 0;
        if (x.copies < 2) break;
        if (best.copies && (seam > least || (seam == least && x.copies <= best.copies))) continue;
        best = x, least = seam;
    }
    return best;
}

struct found {
    struct arena *arena;
    int32_t n;
    struct repeat *list;
    size_t capacity;
};

static void find(const struct repeats_of *s, int32_t low, int32_t high, struct found *f)
{
    while (high - low >= 2) {
        struct run r = best_run(s, low, high);
        if (!r.matches) return;
        struct repeat x = place(s, &r);
        f->list = arena_grow(f->arena, f->list, (size_t)f->n, &f->capacity, sizeof *f->list);
        f->list[f->n++] = x;
        find(s, low, x.first, f);
        low = x.first + x.period * x.copies;
    }
}

static int by_place(const void *x, const void *y)
{
    const struct repeat *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

int32_t repeats_find(struct arena *a, const struct repeats_of *s, struct repeat **out)
{
    struct found f = {.arena = a};
    find(s, 0, s->n, &f);
    if (f.n) qsort(f.list, (size_t)f.n, sizeof *f.list, by_place);
    *out = f.list;
    return f.n;
}
