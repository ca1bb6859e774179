/* tests/support/schedule_oracle.h - exact optimality check: enumeration of all active schedules of one chunk per device.
 *
 * Giffler and Thompson's tree: on the device whose shortest ready operation ends first, every operation that starts before that
 * end is a branch. Some optimal schedule is among the leaves (an F moved forwards past I and W that free memory still fits).
 * Pruning: states with equal counts that are dominated in time by an earlier state, and states that cannot end in time by a
 * device's remaining work or an operation's tail. Shares no code with the search.
 */
#ifndef TESTS_SUPPORT_SCHEDULE_ORACLE_H
#define TESTS_SUPPORT_SCHEDULE_ORACLE_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/pipeline/static.h"

#include "tests/support/suites.h"

enum {
    ORACLE_STAGES = 4,
    ORACLE_MICROBATCHES = 12,
    ORACLE_BUCKETS = 1 << 16,
    ORACLE_SEEN = 2000000
};

struct oracle_state {
    int32_t done[ORACLE_STAGES][3];
    int64_t free[ORACLE_STAGES], held[ORACLE_STAGES];
    /* when F and I of each stage and microbatch end; read only where they are waited for */
    int64_t end[ORACLE_STAGES][2][ORACLE_MICROBATCHES];
};
struct oracle_seen {
    struct oracle_seen *next;
    int32_t done[ORACLE_STAGES][3];
    int64_t times[ORACLE_STAGES * (1 + 2 * ORACLE_MICROBATCHES)];
    int32_t n;
};
struct oracle {
    struct arena *arena;
    const struct pipeline *p;
    int32_t n, m;
    int64_t target; /* a schedule shorter than this is sought */
    struct oracle_seen **bucket;
    int64_t seen, visited;
    bool gave_up;
};

static inline int64_t oracle_ns(const struct oracle *o, int32_t s, int kind)
{
    const struct pipeline_stage *x = &o->p->stages[s];
    return kind == 0 ? x->forward_ns : kind == 1 ? x->input_ns : x->weight_ns;
}

static inline int64_t oracle_latency(const struct oracle *o, int32_t link, int direction)
{
    return o->p->links ? o->p->links[link].latency_ns[direction] : 0;
}

/* Earliest start of the next operation of the type; -1: not ready, no memory, or none left. */
static inline int64_t oracle_ready(const struct oracle *o, const struct oracle_state *x, int32_t s,
                                   int kind)
{
    int32_t j = x->done[s][kind];
    int64_t at = 0;
    if (j >= o->m || (kind == 2 && x->done[s][1] <= j)) return -1;
    if (kind == 0 && s > 0) {
        if (x->done[s - 1][0] <= j) return -1;
        at = x->end[s - 1][0][j] + oracle_latency(o, s - 1, 0);
    }
    if (kind == 1) {
        bool last = s + 1 == o->n;
        if (x->done[last ? s : s + 1][last ? 0 : 1] <= j) return -1;
        at = last ? x->end[s][0][j] : x->end[s + 1][1][j] + oracle_latency(o, s, 1);
    }
    if (kind == 0 && o->p->devices && o->p->devices[s].limit_bytes != PIPELINE_NO_LIMIT &&
        x->held[s] + o->p->stages[s].forward_bytes > o->p->devices[s].limit_bytes)
        return -1;
    return at > x->free[s] ? at : x->free[s];
}

/* Tail: longest path from the start of the operation to the end, without resource conflicts. */
static inline int64_t oracle_tail(const struct oracle *o, int32_t s, int kind)
{
    int64_t sum = 0;
    if (kind == 2) return oracle_ns(o, s, 2);
    for (int32_t t = s; kind == 0 && t < o->n; t++)
        sum += oracle_ns(o, t, 0) + (t + 1 < o->n ? oracle_latency(o, t, 0) : 0);
    for (int32_t t = kind == 0 ? o->n - 1 : s; t >= 0; t--)
        sum += oracle_ns(o, t, 1) + (t > 0 ? oracle_latency(o, t - 1, 1) : 0);
    return sum + oracle_ns(o, 0, 2);
}

static inline bool oracle_too_long(const struct oracle *o, const struct oracle_state *x)
{
    for (int32_t s = 0; s < o->n; s++) {
        int64_t work = 0, begin = INT64_MAX;
        for (int k = 0; k < 3; k++) {
            work += (o->m - x->done[s][k]) * oracle_ns(o, s, k);
            int64_t ready = oracle_ready(o, x, s, k);
            if (ready < 0) continue;
            if (ready + oracle_tail(o, s, k) >= o->target) return true;
            if (ready < begin) begin = ready;
        }
        if (work && (begin == INT64_MAX ? x->free[s] : begin) + work >= o->target) return true;
    }
    return false;
}

/* The times that later operations depend on. */
static inline int32_t oracle_times(const struct oracle *o, const struct oracle_state *x,
                                   int64_t *times)
{
    int32_t n = 0;
    for (int32_t s = 0; s < o->n; s++) {
        bool last = s + 1 == o->n;
        times[n++] = x->free[s];
        int32_t waits = last ? x->done[s][1] : x->done[s + 1][0];
        for (int32_t j = waits; j < x->done[s][0]; j++) times[n++] = x->end[s][0][j];
        for (int32_t j = s > 0 ? x->done[s - 1][1] : o->m; j < x->done[s][1]; j++)
            times[n++] = x->end[s][1][j];
    }
    return n;
}

static inline bool oracle_dominated(struct oracle *o, const struct oracle_state *x)
{
    int64_t times[ORACLE_STAGES * (1 + 2 * ORACLE_MICROBATCHES)];
    int32_t n = oracle_times(o, x, times);
    size_t bytes = sizeof x->done[0] * (size_t)o->n;
    struct oracle_seen **at = &o->bucket[rng_hash_bytes(3, x->done, bytes) % ORACLE_BUCKETS];
    for (struct oracle_seen *e = *at; e; e = e->next) {
        if (memcmp(e->done, x->done, bytes)) continue;
        bool later = true;
        for (int32_t i = 0; i < n && later; i++) later = times[i] >= e->times[i];
        if (later) return true;
    }
    if (o->seen++ >= ORACLE_SEEN) return false;
    struct oracle_seen *e = ARENA_ARRAY(o->arena, struct oracle_seen, 1);
    memcpy(e->done, x->done, bytes);
    memcpy(e->times, times, sizeof *times * (size_t)n);
    e->n = n, e->next = *at, *at = e;
    return false;
}

static inline bool oracle_descend(struct oracle *o, const struct oracle_state *x)
{
    int64_t ready[ORACLE_STAGES][3], first = INT64_MAX;
    int32_t d = -1;
    if (++o->visited > 20000000) o->gave_up = true;
    if (o->gave_up || oracle_too_long(o, x)) return false;
    for (int32_t s = 0; s < o->n; s++)
        for (int k = 0; k < 3; k++) {
            ready[s][k] = oracle_ready(o, x, s, k);
            if (ready[s][k] < 0 || ready[s][k] + oracle_ns(o, s, k) >= first) continue;
            first = ready[s][k] + oracle_ns(o, s, k), d = s;
        }
    if (d < 0) return true; /* all done, in time */
    if (oracle_dominated(o, x)) return false;
    for (int k = 0; k < 3; k++) {
        if (ready[d][k] < 0 || ready[d][k] >= first) continue;
        struct oracle_state y = *x;
        const struct pipeline_stage *c = &o->p->stages[d];
        y.free[d] = ready[d][k] + oracle_ns(o, d, k);
        y.held[d] += k == 0 ? c->forward_bytes : k == 1 ? c->input_bytes : c->weight_bytes;
        if (k < 2) y.end[d][k][y.done[d][k]] = y.free[d];
        y.done[d][k]++;
        if (oracle_descend(o, &y)) return true;
    }
    return false;
}

/* Precondition: durations > 0, F takes memory, I and W free it. *gave_up: too many states, the result is undefined. */
static inline bool oracle_shorter(const struct pipeline *p, int32_t m, int64_t target,
                                  bool *gave_up)
{
    struct oracle o = {.arena = arena_new(), .p = p, .n = p->n_stages, .m = m, .target = target};
    o.bucket = ARENA_ARRAY(o.arena, struct oracle_seen *, ORACLE_BUCKETS);
    struct oracle_state x = {0};
    for (int32_t d = 0; d < o.n && p->devices; d++) x.held[d] = p->devices[d].resident_bytes;
    bool found = oracle_descend(&o, &x);
    *gave_up = o.gave_up;
    arena_free(o.arena);
    return found;
}

#endif
