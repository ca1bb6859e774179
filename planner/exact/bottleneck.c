#include "planner/exact/bottleneck.h"

#include "core/base/arena.h"
#include "planner/bound/pipeline_bound.h"

#include <stdlib.h>

struct bottleneck {
    int32_t n_layers;
    int64_t *ns; /* (1 << n_devices, n_layers + 1), row-major */
};

/* best[mask][first] = min over device d of mask, end e: max(F+B of d on first … e, best[mask − d][e
 * + 1]). */
struct bottleneck *bottleneck_make(struct arena *a, const struct space *s)
{
    struct bottleneck *b = ARENA_ARRAY(a, struct bottleneck, 1);
    int32_t n = b->n_layers = s->n_layers;
    uint32_t masks = 1u << s->n_devices;
    b->ns = ARENA_ARRAY(a, int64_t, (size_t)masks * (size_t)(n + 1));
    for (uint32_t mask = 0; mask < masks; mask++)
        for (int32_t first = 0; first <= n; first++) {
            int64_t best = mask == 0 && first == n ? 0 : INT64_MAX;
            for (int32_t d = 0; d < s->n_devices && first < n; d++) {
                if (!(mask >> d & 1)) continue;
                const int64_t *rest = &b->ns[(size_t)(mask & ~(1u << d)) * (size_t)(n + 1)];
                for (int32_t last = first; last < n; last++) {
                    if (rest[last + 1] == INT64_MAX) continue;
                    const struct stage_cost *c = space_stage(s, d, first, last);
                    int64_t work = c->forward_ns + c->input_ns + c->weight_ns;
                    if (work >= best) break; /* time grows with the length of a stage */
                    int64_t slowest = work > rest[last + 1] ? work : rest[last + 1];
                    if (slowest < best) best = slowest;
                }
            }
            b->ns[(size_t)mask * (size_t)(n + 1) + (size_t)first] = best;
        }
    return b;
}

int64_t bottleneck_steps(const struct space *s)
{
    return ((int64_t)1 << s->n_devices) / 2 * s->n_devices * s->n_layers * s->n_layers / 2;
}

int64_t bottleneck_ns(const struct bottleneck *b, uint32_t mask, int32_t first)
{
    return b->ns[(size_t)mask * (size_t)(b->n_layers + 1) + (size_t)first];
}

struct walk {
    struct arena *arena;
    const struct space *s;
    const struct bottleneck *b;
    int32_t m, n_stages;
    int64_t limit_ns, max_steps;
    int64_t late_ns; /* upper bound of a stage's work after its last outgoing gradient */
    size_t most;
    struct pipeline_list *out;
    struct exact_pipeline p;
    struct bound_stage stage[SPACE_TABLES_MAX];
};

static int by_bound(const void *a, const void *b)
{
    const struct exact_pipeline *x = a, *y = b;
    if (x->bound_ns != y->bound_ns) return x->bound_ns < y->bound_ns ? -1 : 1;
    for (int32_t i = 0; i < x->n_stages; i++) {
        if (x->device[i] != y->device[i]) return x->device[i] - y->device[i];
        if (x->last[i] != y->last[i]) return x->last[i] - y->last[i];
    }
    return 0;
}

/* Full list: keeps the better half and lowers the limit to its worst bound. */
static void keep_better_half(struct walk *w)
{
    struct pipeline_list *l = w->out;
    qsort(l->items, l->n, sizeof *l->items, by_bound);
    l->n = w->most / 2;
    l->complete = false;
    if (l->n) w->limit_ns = l->items[l->n - 1].bound_ns;
}

static void finish(struct walk *w)
{
    struct pipeline_list *l = w->out;
    l->seen++;
    w->p.bound_ns = bound_pipeline(w->stage, w->n_stages, w->m, &w->p.path_ns);
    if (w->p.bound_ns >= w->limit_ns) return;
    l->items = arena_grow(w->arena, l->items, l->n, &l->capacity, sizeof *l->items);
    l->items[l->n++] = w->p;
    if (l->n >= w->most) keep_better_half(w);
}

/* Symmetry breaking: an unused interchangeable device of smaller index comes first. */
static bool out_of_turn(const struct space *s, uint32_t unused, int32_t d)
{
    for (int32_t e = 0; e < d; e++)
        if ((unused >> e & 1) && s->class_of[e] == s->class_of[d]) return true;
    return false;
}

static bool place(struct walk *w, int32_t depth, int32_t d, int32_t first, int32_t last)
{
    int32_t in_flight = w->n_stages - depth < w->m ? w->n_stages - depth : w->m;
    struct space_stage_time t;
    space_stage_time(w->s, d, first, last, in_flight, &t);
    if (t.missing_bytes > 0) return false;
    w->stage[depth] = (struct bound_stage){.forward_ns = t.forward_ns,
                                           .backward_ns = t.backward_ns,
                                           .update_ns = t.update_ns,
                                           .recompute_ns = t.recompute_ns,
                                           .return_ns = t.return_ns,
                                           .in_flight = in_flight};
    w->p.device[depth] = (int8_t)d;
    w->p.last[depth] = (int16_t)last;
    w->p.recompute[depth] = t.recompute;
    return true;
}

/* around_ns: forwards, gradient returns and transfers of the stages above, each once. */
static void descend(struct walk *w, int32_t depth, uint32_t unused, int32_t first,
                    int64_t around_ns)
{
    const struct space *s = w->s;
    if (depth == w->n_stages) {
        if (first == s->n_layers) finish(w);
        return;
    }
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (!(unused >> d & 1) || out_of_turn(s, unused, d)) continue;
        int64_t transfer = 0;
        if (depth > 0) {
            int32_t above = w->p.device[depth - 1];
            if (!space_linked(s, above, d) || !space_linked(s, d, above)) continue;
            transfer = space_least_transfer_ns(s, above, d, first - 1);
            w->stage[depth - 1].transfer_ns = transfer;
        }
        uint32_t rest = unused & ~(1u << d);
        int32_t left = w->n_stages - depth - 1;
        for (int32_t last = left ? first : s->n_layers - 1; last < s->n_layers - left; last++) {
            if (w->out->steps++ >= w->max_steps) {
                w->out->complete = false;
                return;
            }
            if (!place(w, depth, d, first, last))
                break; /* memory grows with the length of a stage */
            const struct bound_stage *stage = &w->stage[depth];
            int64_t work = w->m * (stage->forward_ns + stage->backward_ns);
            int64_t late = stage->backward_ns - stage->recompute_ns - stage->return_ns;
            int64_t around = around_ns + 2 * transfer;
            if (work >= w->limit_ns) break;
            if (around + work - late >= w->limit_ns) continue;
            around += stage->forward_ns + stage->return_ns;
            if (left) {
                int64_t below = bottleneck_ns(w->b, rest, last + 1);
                if (below == INT64_MAX) continue;
                int64_t after = around > w->late_ns ? around - w->late_ns : 0;
                if (after + w->m * below >= w->limit_ns) continue;
            }
            descend(w, depth + 1, rest, last + 1, around);
        }
    }
}

void bottleneck_enumerate(struct arena *a, const struct space *s, const struct bottleneck *b,
                          uint32_t mask, int32_t m, int64_t limit_ns, size_t most,
                          int64_t max_steps, struct pipeline_list *out)
{
    *out = (struct pipeline_list){.complete = true};
    struct walk w = {.arena = a,
                     .s = s,
                     .b = b,
                     .m = m,
                     .n_stages = __builtin_popcount(mask),
                     .limit_ns = limit_ns,
                     .max_steps = max_steps,
                     .most = most,
                     .out = out};
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t l = 1; (mask >> d & 1) && l < s->n_layers; l++)
            if (space_late_ns(s, d, l, s->n_layers - 1) > w.late_ns)
                w.late_ns = space_late_ns(s, d, l, s->n_layers - 1);
    w.p.n_stages = w.n_stages;
    descend(&w, 0, mask, 0, 0);
    if (out->n) qsort(out->items, out->n, sizeof *out->items, by_bound);
}
