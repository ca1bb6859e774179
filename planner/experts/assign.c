#include "planner/experts/assign.h"

#include "core/base/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

struct assigning {
    const struct experts_question *q;
    int32_t *place;  /* (experts) -1: none yet */
    int64_t *tokens; /* (places) */
    int32_t *n;      /* (places) */
};

static double time_of(const struct experts_question *q, int32_t k, int64_t tokens, int32_t n)
{
    return q->per_token[k] * (double)tokens + q->per_expert[k] * n;
}

static double now(const struct assigning *x, int32_t k) { return time_of(x->q, k, x->tokens[k], x->n[k]); }

static bool has_room(const struct assigning *x, int32_t k) { return !x->q->most || x->n[k] < x->q->most[k]; }

static void put(struct assigning *x, int32_t e, int32_t k)
{
    if (x->place[e] >= 0) x->tokens[x->place[e]] -= x->q->tokens[e], x->n[x->place[e]]--;
    x->place[e] = k, x->tokens[k] += x->q->tokens[e], x->n[k]++;
}

static struct assigning begin(struct arena *a, const struct experts_question *q, int32_t *place)
{
    struct assigning x = {q, place, ARENA_ARRAY(a, int64_t, (size_t)q->n_places), ARENA_ARRAY(a, int32_t, (size_t)q->n_places)};
    return x;
}

/* --- list scheduling --- */

struct weighted {
    int64_t tokens;
    int32_t expert;
};

static int heaviest_first(const void *x, const void *y)
{
    const struct weighted *a = x, *b = y;
    if (a->tokens != b->tokens) return a->tokens > b->tokens ? -1 : 1;
    return a->expert - b->expert;
}

/* The place with room that would be done first with the expert; of equal ones that with fewer experts. -1: none. */
static int32_t soonest(const struct assigning *x, int32_t e)
{
    int32_t best = -1;
    double least = INFINITY;
    for (int32_t k = 0; k < x->q->n_places; k++) {
        if (!has_room(x, k)) continue;
        double t = time_of(x->q, k, x->tokens[k] + x->q->tokens[e], x->n[k] + 1);
        if (best < 0 || t < least || (t == least && x->n[k] < x->n[best])) best = k, least = t;
    }
    return best;
}

static bool list_schedule(struct arena *a, struct assigning *x)
{
    int32_t n = x->q->n_experts;
    struct weighted *by = ARENA_ARRAY(a, struct weighted, (size_t)n);
    for (int32_t e = 0; e < n; e++) by[e] = (struct weighted){x->q->tokens[e], e}, x->place[e] = -1;
    qsort(by, (size_t)n, sizeof *by, heaviest_first);
    for (int32_t i = 0; i < n; i++) {
        int32_t k = soonest(x, by[i].expert);
        if (k < 0) return false;
        put(x, by[i].expert, k);
    }
    return true;
}

/* --- moves and swaps --- */

static int32_t longest(const struct assigning *x)
{
    int32_t most = 0;
    for (int32_t k = 1; k < x->q->n_places; k++)
        if (now(x, k) > now(x, most)) most = k;
    return most;
}

struct change { /* expert e of the longest place to place `to`, from which `back` comes in return, -1: nothing */
    int32_t e, to, back;
    double time; /* of the longer one of the two afterwards */
};

static double time_after(const struct assigning *x, int32_t from, const struct change *c)
{
    int64_t moved = x->q->tokens[c->e] - (c->back >= 0 ? x->q->tokens[c->back] : 0);
    int32_t n = c->back < 0;
    return fmax(time_of(x->q, from, x->tokens[from] - moved, x->n[from] - n),
                time_of(x->q, c->to, x->tokens[c->to] + moved, x->n[c->to] + n));
}

static void consider(const struct assigning *x, int32_t from, struct change c, struct change *best)
{
    c.time = time_after(x, from, &c);
    if (c.time < best->time) *best = c;
}

/* Shortens the longest place once; false: no move or swap does. */
static bool improve(struct assigning *x)
{
    int32_t from = longest(x), n = x->q->n_experts;
    struct change best = {-1, -1, -1, now(x, from)};
    for (int32_t e = 0; e < n; e++) {
        if (x->place[e] != from) continue;
        for (int32_t k = 0; k < x->q->n_places; k++)
            if (k != from && has_room(x, k)) consider(x, from, (struct change){e, k, -1, 0}, &best);
        for (int32_t back = 0; back < n; back++)
            if (x->place[back] != from) consider(x, from, (struct change){e, x->place[back], back, 0}, &best);
    }
    if (best.e < 0) return false;
    put(x, best.e, best.to);
    if (best.back >= 0) put(x, best.back, from);
    return true;
}

double experts_time(const struct experts_question *q, const int32_t *place)
{
    struct arena *a = arena_new();
    int32_t *copy = ARENA_ARRAY(a, int32_t, (size_t)q->n_experts);
    struct assigning x = begin(a, q, copy);
    for (int32_t e = 0; e < q->n_experts; e++) copy[e] = -1;
    for (int32_t e = 0; e < q->n_experts; e++) put(&x, e, place[e]);
    double t = now(&x, longest(&x));
    arena_free(a);
    return t;
}

/* Each step makes the longest place shorter and no other one as long, so there is an end; the bound is for rounding. */
double experts_assign(const struct experts_question *q, int32_t *place)
{
    struct arena *a = arena_new();
    struct assigning x = begin(a, q, place);
    double t = -1;
    if (list_schedule(a, &x)) {
        for (int64_t step = 0; step < (int64_t)q->n_experts * q->n_experts && improve(&x);) step++;
        t = now(&x, longest(&x));
    }
    arena_free(a);
    return t;
}

/* --- contiguous runs of an order --- */

double experts_cut(const struct experts_question *q, const int32_t *order, int64_t *n)
{
    struct arena *a = arena_new();
    size_t width = (size_t)q->n_experts + 1;
    double *least = ARENA_ARRAY(a, double, width *((size_t)q->n_places + 1)); /* of the first k places with the first i experts */
    int32_t *cut = ARENA_ARRAY(a, int32_t, width *((size_t)q->n_places + 1));
    int64_t *before = ARENA_ARRAY(a, int64_t, width);
    for (int32_t i = 0; i < q->n_experts; i++) before[i + 1] = before[i] + q->tokens[order[i]];
    for (size_t i = 1; i < width; i++) least[i] = INFINITY;
    for (int32_t k = 0; k < q->n_places; k++)
        for (int32_t i = 0; i <= q->n_experts; i++) {
            size_t at = (size_t)(k + 1) * width + (size_t)i;
            least[at] = INFINITY;
            for (int32_t j = i; j >= 0 && (!q->most || i - j <= q->most[k]); j--) {
                double t = fmax(least[(size_t)k * width + (size_t)j], time_of(q, k, before[i] - before[j], i - j));
                if (t < least[at]) least[at] = t, cut[at] = j;
            }
        }
    double t = least[(size_t)q->n_places * width + (size_t)q->n_experts];
    for (int32_t k = q->n_places, i = q->n_experts; k > 0 && t < INFINITY; k--) {
        int32_t j = cut[(size_t)k * width + (size_t)i];
        n[k - 1] = i - j, i = j;
    }
    arena_free(a);
    return t < INFINITY ? t : -1;
}
