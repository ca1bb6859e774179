#include "planner/near.h"

#include "core/arena.h"
#include "planner/baseline.h"

/* The rest of a pipeline: which devices it may use, where it starts, whom it receives from. */
struct cell {
    /* bytes the fullest device has too many, below 0 where it has room; MAX: impossible */
    int64_t worst;
    int32_t device, last; /* the next stage */
};

struct table {
    const struct space *s;
    struct cell *cells; /* (1 << n_devices, n_layers, n_devices + 1), by number of devices */
};

static struct cell *cell(const struct table *t, uint32_t mask, int32_t first, int32_t above)
{
    int64_t row = (int64_t)mask * t->s->n_layers + first;
    return &t->cells[row * (t->s->n_devices + 1) + above];
}

static int64_t over(const struct space *s, int32_t d, int32_t first, int32_t last)
{
    const struct stage_cost *c = space_stage(s, d, first, last);
    return c->parameter_bytes + c->gradient_bytes + c->state_bytes + c->activation_bytes -
           s->cluster->types[s->cluster->devices[d].type].memory_bytes;
}

static void fill(struct table *t, uint32_t mask, int32_t first, int32_t above)
{
    const struct space *s = t->s;
    struct cell best = {INT64_MAX, -1, -1};
    for (int32_t d = 0; d < s->n_devices; d++) {
        if (!(mask >> d & 1)) continue;
        bool linked =
            above == s->n_devices || (space_linked(s, above, d) && space_linked(s, d, above));
        for (int32_t last = first; last < s->n_layers && linked; last++) {
            int64_t worst = over(s, d, first, last), rest = INT64_MIN;
            if (last + 1 < s->n_layers) rest = cell(t, mask & ~(1u << d), last + 1, d)->worst;
            if (rest > worst) worst = rest;
            if (worst < best.worst) best = (struct cell){worst, d, last};
        }
    }
    *cell(t, mask, first, above) = best;
}

enum status near_try(struct arena *a, struct scorer *w, const struct space *s, struct error *err)
{
    int32_t n = s->n_devices, stages = 0, first = 0, above = n;
    uint32_t mask = (1u << n) - 1;
    struct table t = {.s = s};
    t.cells =
        ARENA_ARRAY(a, struct cell, ((size_t)mask + 1) * (size_t)s->n_layers * ((size_t)n + 1));
    for (uint32_t m = 0; m <= mask; m++)
        for (int32_t l = 0; l < s->n_layers; l++)
            for (int32_t d = 0; d <= n; d++) fill(&t, m, l, d);
    if (cell(&t, mask, 0, n)->worst == INT64_MAX) return OK;
    struct plan_stage *stage = ARENA_ARRAY(a, struct plan_stage, (size_t)n);
    for (; first < s->n_layers; stages++) {
        const struct cell *c = cell(&t, mask, first, above);
        stage[stages] = (struct plan_stage){
            .device = c->device, .first_layer = first, .last_layer = c->last, .receive_ahead = 2};
        mask &= ~(1u << c->device), above = c->device, first = c->last + 1;
    }
    struct plan p;
    int64_t iteration_ns;
    plan_skeleton(a, s, "nearest", 1, &stages, &p);
    p.replicas[0].microbatches = s->microbatches;
    p.replicas[0].stages = stage;
    struct error why = {0};
    enum status st = scorer_fit(w, s, &p, &iteration_ns, &why);
    /* ERR_INPUT: no link between two stages that sum up a parameter they share. */
    return st == OK || st == ERR_INPUT ? OK : error_set(err, st, "%s", why.text);
}
