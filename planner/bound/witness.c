#include "planner/bound/witness.h"

#include "core/base/arena.h"
#include "sim/pipeline/static.h"

#include <string.h>

enum rule { BY_MIDDLE, BY_EARLIEST, BY_LATEST, RULES };

/* Twice the time by which an operation is ordered. */
static int64_t key_of(const struct bound_part *p, const struct bound_windows *w, size_t i, int kind,
                      enum rule rule)
{
    int64_t early = w->from[i], late = w->until[i] - p->ns[kind];
    return rule == BY_MIDDLE ? early + late : rule == BY_EARLIEST ? 2 * early : 2 * late;
}

static bool allowed(const struct bound_part *p, const int32_t done[BOUND_KINDS], int32_t m,
                    int kind)
{
    if (done[kind] == m || (kind > 0 && done[kind] == done[kind - 1])) return false;
    if (kind > 0 || p->room == INT64_MAX) return true;
    return p->take * (done[BOUND_F] + 1 - done[BOUND_I]) +
               (p->take - p->back) * (done[BOUND_I] - done[BOUND_W]) <=
           p->room;
}

/* false: memory blocks every operation. */
static bool order_stage(const struct bound_line *l, const struct bound_windows *w, int32_t stage,
                        enum rule rule, struct schedule_lane *out)
{
    const struct bound_part *p = &l->parts[stage];
    int32_t done[BOUND_KINDS] = {0};
    for (out->n_ops = 0; done[BOUND_W] < l->m; out->n_ops++) {
        int next = -1;
        int64_t least = 0;
        for (int kind = 0; kind < BOUND_KINDS; kind++) {
            if (!allowed(p, done, l->m, kind)) continue;
            size_t i = ((size_t)stage * BOUND_KINDS + (size_t)kind) * (size_t)l->m;
            int64_t key = key_of(p, w, i + (size_t)done[kind], kind, rule);
            if (next < 0 || key < least) next = kind, least = key;
        }
        if (next < 0) return false;
        out->ops[out->n_ops] = (struct schedule_op){"FIW"[next], 0, done[next]++};
    }
    return true;
}

static bool order_all(struct arena *a, const struct bound_line *l, const struct bound_windows *w,
                      enum rule rule, struct schedule *out)
{
    size_t n = (size_t)l->n;
    *out = (struct schedule){"searched",
                             l->n,
                             1,
                             l->m,
                             ARENA_ARRAY(a, int32_t, n),
                             ARENA_ARRAY(a, struct schedule_lane, n)};
    for (int32_t s = 0; s < l->n; s++) {
        out->stage[s] = s;
        out->lanes[s].ops = ARENA_ARRAY(a, struct schedule_op, BOUND_KINDS * (size_t)l->m);
        if (!order_stage(l, w, s, rule, &out->lanes[s])) return false;
    }
    return true;
}

bool bound_witness_try(struct bound_witness *b, const struct bound_line *l,
                       const struct bound_windows *w)
{
    bool better = false;
    for (int rule = 0; rule < RULES; rule++) {
        struct schedule s;
        struct static_timer *t;
        int64_t ns, *peak;
        arena_reset(b->scratch);
        peak = ARENA_ARRAY(b->scratch, int64_t, (size_t)l->n);
        if (!order_all(b->scratch, l, w, (enum rule)rule, &s)) continue;
        if (static_new(b->scratch, &s, &t, NULL) != OK || !static_time(t, b->pipeline, &ns))
            continue; /* deadlock between stages */
        if (ns >= b->best_ns || !static_memory(t, b->pipeline, peak)) continue;
        (void)order_all(b->arena, l, w, (enum rule)rule, &b->schedule);
        b->best_ns = ns;
        b->found = better = true;
    }
    return better;
}
