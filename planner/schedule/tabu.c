/* planner/schedule/tabu.c - critical blocks, moves, estimates, the tabu list. */
#include "planner/schedule/tabu.h"

#include "core/base/arena.h"
#include "core/base/units.h"

#include <string.h>

/* Steps for which a reversed pair stays tabu (once to three times as many, drawn). 148 of the 154 pipelines of tests/data/schedules are proved optimal with it (docs/measurements.md, 2026-11-26). */
enum { TENURE = 8 };
enum { FORBIDDEN = 1 << 16 }; /* values of pair() */

struct move {
    int64_t from,
        to; /* positions in the device's word; from > to: move to the front, from < to: to the end */
    int32_t device;
    int64_t estimate_ns;
    bool forbidden;
};
struct tabu {
    const struct shop *s;
    struct shop_times times;
    uint8_t *word;  /* (n_devices, length) */
    uint8_t *moved; /* (length) a device's word after a move */
    uint32_t *node; /* likewise: the node there */
    int64_t *held;  /* likewise: bytes after it */
    int64_t *place; /* (n_nodes) position in its device's word */
    uint32_t *path; /* (n_nodes) a critical path, last node first */
    int64_t n_path;
    int64_t *until; /* (FORBIDDEN) step until which a pair may not be exchanged back, by hash */
    uint32_t *order; /* (length) nodes of a block after a move */
    int64_t *start;  /* likewise: their starts */
    struct shop_random random;
    int64_t step;
};

static uint64_t draw(struct tabu *t, uint64_t n) { return shop_draw(&t->random, n); }

struct tabu *tabu_new(struct arena *a, const struct shop *s, uint64_t seed)
{
    struct tabu *t = ARENA_ARRAY(a, struct tabu, 1);
    size_t n = (size_t)s->n_nodes;
    t->s = s, t->random = (struct shop_random){.seed = seed, .stream = 7};
    shop_times_new(a, s, &t->times);
    t->word = ARENA_ARRAY(a, uint8_t, n), t->node = ARENA_ARRAY(a, uint32_t, n);
    t->moved = ARENA_ARRAY(a, uint8_t, (size_t)s->length);
    t->order = ARENA_ARRAY(a, uint32_t, (size_t)s->length);
    t->start = ARENA_ARRAY(a, int64_t, (size_t)s->length);
    t->held = ARENA_ARRAY(a, int64_t, n), t->place = ARENA_ARRAY(a, int64_t, n);
    t->path = ARENA_ARRAY(a, uint32_t, n);
    t->until = ARENA_ARRAY(a, int64_t, FORBIDDEN);
    return t;
}

/* --- one word --- */

static const struct shop_type *type_of(const struct tabu *t, uint32_t node)
{
    return &t->s->type[node / (uint32_t)t->s->microbatches];
}

static int64_t start_of(const struct tabu *t, uint32_t node)
{
    return t->times.end[node] - type_of(t, node)->ns;
}

static void set_word(struct tabu *t, const uint8_t *word)
{
    const struct shop *s = t->s;
    memcpy(t->word, word, (size_t)s->n_nodes);
    memset(t->times.done, 0, sizeof *t->times.done * (size_t)s->n_devices * (size_t)s->n_types);
    for (int32_t d = 0; d < s->n_devices; d++) {
        int64_t held = s->held[d];
        for (int64_t i = 0; i < s->length; i++) {
            int32_t g = d * s->n_types + word[d * s->length + i];
            uint32_t node = (uint32_t)((int64_t)g * s->microbatches + t->times.done[g]++);
            held += s->type[g].bytes;
            t->node[d * s->length + i] = node, t->held[d * s->length + i] = held;
            t->place[node] = i;
        }
    }
}

static void make_move(struct tabu *t, int32_t d, int64_t from, int64_t to)
{
    const struct shop *s = t->s;
    uint8_t *word = &t->word[d * s->length], letter = word[from];
    uint32_t *node = &t->node[d * s->length], moved = node[from];
    int64_t *held = &t->held[d * s->length], step = to > from ? 1 : -1;
    for (int64_t i = from; i != to; i += step) {
        word[i] = word[i + step], node[i] = node[i + step];
        t->place[node[i]] = i;
    }
    word[to] = letter, node[to] = moved, t->place[moved] = to;
    int64_t low = from < to ? from : to, high = from < to ? to : from;
    int64_t sum = low ? held[low - 1] : s->held[d];
    for (int64_t i = low; i <= high; i++) held[i] = sum += s->type[d * s->n_types + word[i]].bytes;
}

/* --- a critical path, from the end --- */

/* The message predecessor that determined the node's start, or the previous message on its link if that one delayed it. -1:
 * none */
static int64_t feeder(const struct tabu *t, uint32_t node, int64_t start)
{
    const struct shop_type *x = type_of(t, node);
    uint32_t m = (uint32_t)t->s->microbatches, j = node % m;
    if (x->before < 0) return -1;
    uint32_t from = (uint32_t)x->before * m + j;
    if (t->times.arrival[from] != start) return -1;
    const struct shop_type *y = &t->s->type[x->before];
    while (from % m &&
           t->times.end[from] + y->occupancy_ns + y->latency_ns < t->times.arrival[from]) {
        from--;
        start -= y->occupancy_ns;
    }
    return from;
}

static uint32_t last_node(struct tabu *t)
{
    const struct shop *s = t->s;
    uint32_t last = 0;
    uint64_t n = 0;
    for (int32_t d = 0; d < s->n_devices; d++) {
        uint32_t node = t->node[(d + 1) * s->length - 1];
        if (t->times.end[node] == t->times.makespan_ns && draw(t, ++n) == 0) last = node;
    }
    return last;
}

static void find_path(struct tabu *t)
{
    const struct shop *s = t->s;
    uint32_t node = last_node(t);
    for (t->n_path = 0;;) {
        t->path[t->n_path++] = node;
        int64_t start = start_of(t, node), from = feeder(t, node, start), at = t->place[node];
        int32_t d = type_of(t, node)->device;
        int64_t own = at && t->times.end[t->node[d * s->length + at - 1]] == start
                          ? (int64_t)t->node[d * s->length + at - 1]
                          : -1;
        if (from < 0 && own < 0) break;
        node = (uint32_t)(own < 0 || (from >= 0 && draw(t, 2)) ? from : own);
    }
}

/* --- moves --- */

static uint32_t pair(uint32_t first, uint32_t second)
{
    uint64_t h = ((uint64_t)first << 32 | second) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 48);
}

/* The pair that a move reverses: (moved, crossed) to the front, (crossed, moved) to the end. */
static bool is_forbidden(const struct tabu *t, const struct move *v)
{
    const uint32_t *node = &t->node[v->device * t->s->length];
    int64_t step = v->to > v->from ? 1 : -1;
    for (int64_t i = v->from; i != v->to; i += step) {
        uint32_t crossed = node[i + step];
        uint32_t p = step < 0 ? pair(node[v->from], crossed) : pair(crossed, node[v->from]);
        if (t->until[p] > t->step) return true;
    }
    return false;
}

static void forbid_back(struct tabu *t, const struct move *v)
{
    const uint32_t *node = &t->node[v->device * t->s->length];
    int64_t step = v->to > v->from ? 1 : -1,
            until = t->step + TENURE + (int64_t)draw(t, 2 * TENURE);
    for (int64_t i = v->from; i != v->to; i += step) {
        uint32_t crossed = node[i + step];
        t->until[step < 0 ? pair(crossed, node[v->from]) : pair(node[v->from], crossed)] = until;
    }
}

static int64_t input_of(const struct tabu *t, uint32_t node)
{
    const struct shop_type *x = type_of(t, node);
    uint32_t m = (uint32_t)t->s->microbatches;
    return x->before < 0 ? 0 : t->times.arrival[(uint32_t)x->before * m + node % m];
}

/* Tail from the node's end through its message. */
static int64_t output_of(const struct tabu *t, uint32_t node)
{
    const struct shop_type *x = type_of(t, node);
    return x->after < 0 ? 0 : t->times.left[node] + x->occupancy_ns;
}

static bool room_for(const struct tabu *t, const struct move *v)
{
    const struct shop *s = t->s;
    const int64_t *held = &t->held[v->device * s->length];
    int64_t limit = s->limit[v->device],
            bytes = type_of(t, t->node[v->device * s->length + v->from])->bytes;
    if (limit == PIPELINE_NO_LIMIT) return true;
    if (v->to > v->from) {
        for (int64_t i = v->from + 1; bytes < 0 && i <= v->to; i++)
            if (held[i] - bytes > limit) return false;
        return true;
    }
    for (int64_t i = v->to; bytes > 0 && i < v->from; i++)
        if ((i ? held[i - 1] : s->held[v->device]) + bytes > limit || held[i] + bytes > limit)
            return false;
    return true;
}

/* The same of buffer rings, whose peaks a move may raise anywhere between its ends. O(length). */
static bool rings_hold(struct tabu *t, const struct move *v)
{
    const struct shop *s = t->s;
    const uint8_t *word = &t->word[v->device * s->length];
    int64_t low = v->from < v->to ? v->from : v->to, n = v->from < v->to ? v->to - low : v->from - low;
    if (!s->rings) return true;
    memcpy(t->moved, word, (size_t)s->length);
    memcpy(&t->moved[low + (v->to == low)], &word[low + (v->from == low)], (size_t)n);
    t->moved[v->to] = word[v->from];
    return shop_fits(s, v->device, t->moved);
}

/* Sufficient condition for feasibility: no path from a crossed node to the moved node's input, or from its output to a
 * crossed node. */
static bool no_circle(const struct tabu *t, const struct move *v)
{
    const struct shop *s = t->s;
    const uint32_t *node = &t->node[v->device * s->length];
    uint32_t moved = node[v->from], m = (uint32_t)s->microbatches, other = node[v->to],
             j = moved % m;
    const struct shop_type *x = type_of(t, moved);
    if (v->to < v->from) {
        if (x->own_before >= 0 && t->place[(uint32_t)x->own_before * m + j] >= v->to) return false;
        if (x->before < 0) return true;
        uint32_t from = (uint32_t)x->before * m + j;
        return from != other && t->times.end[from] <= t->times.end[other];
    }
    uint32_t own = moved + m; /* W follows I in the list of types */
    if ((moved / m) % SHOP_KINDS == SHOP_I && t->place[own] <= v->to) return false;
    if (x->after < 0) return true;
    uint32_t to = (uint32_t)x->after * m + j;
    return to != other && t->times.rest[to] <= t->times.rest[other];
}

/* Estimate of a move: the longest path through the exchanged nodes. */
static int64_t estimate(struct tabu *t, const struct move *v)
{
    const struct shop *s = t->s;
    const uint32_t *node = &t->node[v->device * s->length];
    int64_t low = v->from < v->to ? v->from : v->to, high = v->from < v->to ? v->to : v->from,
            n = high - low + 1;
    int64_t shift = v->to > v->from ? 1 : -1, longest = 0;
    int64_t free = low ? t->times.end[node[low - 1]] : 0,
            rest = high + 1 < s->length ? t->times.rest[node[high + 1]] : 0;
    for (int64_t i = 0; i < n; i++)
        t->order[i] = low + i == v->to ? node[v->from] : node[low + i + shift];
    for (int64_t i = 0; i < n; i++) {
        t->start[i] = units_max(free, input_of(t, t->order[i]));
        free = t->start[i] + type_of(t, t->order[i])->ns;
    }
    for (int64_t i = n; i-- > 0;) {
        rest = units_max(rest, output_of(t, t->order[i])) + type_of(t, t->order[i])->ns;
        longest = units_max(longest, t->start[i] + rest);
    }
    return longest;
}

static void consider(struct tabu *t, int32_t d, int64_t from, int64_t to, struct move *best,
                     uint64_t *equal)
{
    struct move v = {.from = from, .to = to, .device = d};
    if (!no_circle(t, &v) || !room_for(t, &v)) return;
    v.forbidden = is_forbidden(t, &v);
    v.estimate_ns = estimate(t, &v);
    if (best->device >= 0) {
        if (v.forbidden != best->forbidden) {
            if (v.forbidden) return;
        } else if (v.estimate_ns != best->estimate_ns) {
            if (v.estimate_ns > best->estimate_ns) return;
        } else if (draw(t, ++*equal) != 0)
            return;
    }
    if (!rings_hold(t, &v)) return;
    if (best->device < 0 || v.estimate_ns != best->estimate_ns || v.forbidden != best->forbidden)
        *equal = 1;
    *best = v;
}

/* Moves of a block: the first node of every other type to its front, the last of every other type to its end. */
static void consider_block(struct tabu *t, int32_t d, int64_t low, int64_t high, struct move *best,
                           uint64_t *equal)
{
    const uint8_t *word = &t->word[d * t->s->length];
    uint64_t seen = (uint64_t)1 << word[low];
    for (int64_t i = low + 1; i <= high; i++)
        if (!(seen >> word[i] & 1)) {
            seen |= (uint64_t)1 << word[i];
            consider(t, d, i, low, best, equal);
        }
    seen = (uint64_t)1 << word[high];
    for (int64_t i = high - 1; i >= low; i--)
        if (!(seen >> word[i] & 1)) {
            seen |= (uint64_t)1 << word[i];
            consider(t, d, i, high, best, equal);
        }
}

static bool find_move(struct tabu *t, struct move *best)
{
    uint64_t equal = 1;
    *best = (struct move){.device = -1};
    for (int64_t i = 0; i < t->n_path;) {
        int32_t d = type_of(t, t->path[i])->device;
        int64_t high = t->place[t->path[i]], low = high, k = i + 1;
        while (k < t->n_path && type_of(t, t->path[k])->device == d &&
               t->place[t->path[k]] == low - 1)
            low--, k++;
        if (high > low) consider_block(t, d, low, high, best, &equal);
        i = k;
    }
    return best->device >= 0;
}

/* --- the search --- */

static bool time_word(struct tabu *t)
{
    if (!shop_time(t->s, t->word, &t->times)) return false;
    shop_rest(t->s, &t->times);
    return true;
}

static bool step(struct tabu *t)
{
    struct move v;
    t->step++;
    find_path(t);
    if (!find_move(t, &v)) return false;
    forbid_back(t, &v);
    make_move(t, v.device, v.from, v.to);
    if (time_word(t)) return true;
    make_move(t, v.device, v.to, v.from); /* operations of zero duration */
    if (!time_word(t)) BUG("a move taken back");
    return true;
}

int64_t tabu_run(struct tabu *t, uint8_t *word, int64_t steps, int64_t bound_ns,
                 int64_t *operations, bool (*stop)(void *user), void *user)
{
    const struct shop *s = t->s;
    set_word(t, word);
    if (!time_word(t)) BUG("a word that cannot be executed");
    int64_t best_ns = t->times.makespan_ns;
    memset(t->until, 0, sizeof *t->until * FORBIDDEN);
    t->step = 0;
    for (int64_t since = 0; since < steps && best_ns > bound_ns; since++) {
        *operations -= s->n_nodes;
        if (*operations <= 0 || (stop && stop(user)) || !step(t)) break;
        if (t->times.makespan_ns >= best_ns) continue;
        best_ns = t->times.makespan_ns, since = 0;
        memcpy(word, t->word, (size_t)s->n_nodes);
    }
    return best_ns;
}
