/* tests/support/schedules.h - reference timing of a schedule: sweeps over all devices until nothing changes.
 *
 * Shares no code with sim/pipeline/static: times are looked up by (stage, microbatch) without sorting. Links have latency only;
 * for occupancy use sim_run.
 */
#ifndef TESTS_SUPPORT_SCHEDULES_H
#define TESTS_SUPPORT_SCHEDULES_H

#include "core/base/arena.h"
#include "core/plan/schedule.h"

#include "tests/support/suites.h"

struct sweep_costs { /* (n_stages) each; latency: (n_stages - 1), NULL: 0 */
    const int64_t *f, *i, *w, *latency;
};
struct sweep {
    /* bubble: longest idle time of a device between its first and last operation */
    int64_t makespan, bubble;
    int64_t *begin, *end, *busy; /* (n_devices) */
    int64_t *peak; /* (n_devices) chunks alive between the start of F and the end of B or W */
    int64_t peak_max;
    bool stuck; /* not all operations could be taken */
};

static inline struct sweep sweep_time(struct arena *a, const struct schedule *s,
                                      const struct sweep_costs *c)
{
    size_t p = (size_t)s->n_devices, n = p * (size_t)s->n_chunks * (size_t)s->n_microbatches;
    int32_t last = s->n_devices * s->n_chunks - 1, moved = 1, *at = ARENA_ARRAY(a, int32_t, p);
    int64_t *end[2] = {ARENA_ARRAY(a, int64_t, n), ARENA_ARRAY(a, int64_t, n)};
    int64_t *alive = ARENA_ARRAY(a, int64_t, p);
    struct sweep r = {0};
    r.begin = ARENA_ARRAY(a, int64_t, p), r.end = ARENA_ARRAY(a, int64_t, p);
    r.busy = ARENA_ARRAY(a, int64_t, p), r.peak = ARENA_ARRAY(a, int64_t, p);
    for (size_t i = 0; i < n; i++) end[0][i] = end[1][i] = -1;
    while (moved) {
        moved = 0;
        for (int32_t d = 0; d < s->n_devices; d++)
            for (; at[d] < s->lanes[d].n_ops; at[d]++, moved = 1) {
                const struct schedule_op *o = &s->lanes[d].ops[at[d]];
                int32_t v = s->stage[d * s->n_chunks + o->chunk], m = s->n_microbatches;
                bool f = o->phase == PHASE_F, w = o->phase == PHASE_W;
                int64_t start = r.end[d], need = 0;
                if (f && v > 0) need = end[0][(v - 1) * m + o->microbatch];
                if (!f && !w && v < last) need = end[1][(v + 1) * m + o->microbatch];
                if (need < 0) break;
                if (f && v > 0 && c->latency) need += c->latency[v - 1];
                if (!f && !w && v < last && c->latency) need += c->latency[v];
                if (need > start) start = need;
                int64_t took = f ? c->f[v] : w ? c->w[v] : c->i[v];
                if (o->phase == PHASE_B) took += c->w[v];
                if (at[d] == 0) r.begin[d] = start;
                r.end[d] = start + took, r.busy[d] += took;
                if (!w) end[!f][v * m + o->microbatch] = r.end[d];
                if (f && ++alive[d] > r.peak[d]) r.peak[d] = alive[d];
                if (w || o->phase == PHASE_B) alive[d]--;
            }
    }
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (at[d] < s->lanes[d].n_ops) r.stuck = true;
        int64_t idle = r.end[d] - r.begin[d] - r.busy[d];
        if (idle > r.bubble) r.bubble = idle;
        if (r.end[d] > r.makespan) r.makespan = r.end[d];
        if (r.peak[d] > r.peak_max) r.peak_max = r.peak[d];
    }
    return r;
}

/* All stages alike. */
static inline struct sweep sweep_uniform(struct arena *a, const struct schedule *s, int64_t f,
                                         int64_t i, int64_t w)
{
    size_t n = (size_t)s->n_devices * (size_t)s->n_chunks;
    int64_t *cost[3];
    for (int k = 0; k < 3; k++) {
        cost[k] = ARENA_ARRAY(a, int64_t, n);
        for (size_t v = 0; v < n; v++) cost[k][v] = k == 0 ? f : k == 1 ? i : w;
    }
    struct sweep r = sweep_time(a, s, &(struct sweep_costs){cost[0], cost[1], cost[2], NULL});
    ck_assert(!r.stuck);
    return r;
}

static inline struct schedule schedule_of(struct arena *a, enum schedule_kind kind, int32_t p,
                                          int32_t v, int32_t m, bool split)
{
    struct schedule_spec spec = {
        .kind = kind, .n_devices = p, .n_chunks = v, .n_microbatches = m, .split = split};
    struct schedule s;
    struct error err = {0};
    ck_assert_msg(schedule_make(a, &spec, &s, &err) == OK, "%s", err.text);
    return s;
}

#endif
