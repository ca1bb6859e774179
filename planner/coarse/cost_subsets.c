#include "planner/coarse/cost_subsets.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/coarse/coarse.h"

#include <string.h>

/* A subset of the GPUs. value: estimated iteration time, and the cost of all its GPUs for that long. */
struct subset {
    bool *idle; /* (devices) */
    int32_t used;
    struct search_plan value;
};

struct listing {
    struct search_context *t;
    const struct search_task *task;
    struct subset *out; /* (n) best first */
    size_t n, capacity;
};

/* Of each type in `with` the first 1 / part of the nodes that begin with it; all other GPUs are idle. */
static struct subset part_of(struct arena *a, const struct cluster *c, const bool *with,
                             int32_t part)
{
    struct subset x = {.idle = ARENA_ARRAY(a, bool, (size_t)c->n_devices)};
    int32_t *all = ARENA_ARRAY(a, int32_t, (size_t)c->n_types),
            *taken = ARENA_ARRAY(a, int32_t, (size_t)c->n_types);
    for (int32_t n = 0; n < c->n_nodes; n++) all[c->devices[c->nodes[n].first_device].type]++;
    for (int32_t n = 0; n < c->n_nodes; n++) {
        const struct device *d = &c->devices[c->nodes[n].first_device];
        int32_t type = d->type;
        bool in = taken[type]++ < (all[type] + part - 1) / part;
        for (int32_t i = 0; i < c->nodes[n].n_devices; i++) {
            bool used = in && with[d[i].type];
            x.idle[c->nodes[n].first_device + i] = !used;
            x.used += used;
        }
    }
    return x;
}

static double price_of(const struct cluster *c, const struct subset *x)
{
    double sum = 0;
    for (int32_t d = 0; d < c->n_devices; d++)
        if (!x->idle[d]) sum += c->types[c->devices[d].type].price_per_h;
    return sum;
}

static bool is_known(const struct listing *l, const struct subset *x)
{
    size_t bytes = (size_t)l->task->cluster->n_devices * sizeof *x->idle;
    for (size_t i = 0; i < l->n; i++)
        if (!memcmp(l->out[i].idle, x->idle, bytes)) return true;
    return false;
}

/* Sets the subset's value; iteration_ns INT64_MAX: nothing fits. */
static enum status estimate(const struct listing *l, struct subset *x, struct error *err)
{
    struct search_task task = *l->task;
    task.idle = x->idle;
    struct coarse *q = coarse_new(l->t, &task, false);
    enum status st = coarse_estimate(q, &x->value.iteration_ns, err);
    coarse_free(q);
    x->value.cost = price_of(task.cluster, x) * (double)x->value.iteration_ns / NS_PER_H;
    return st;
}

static bool better(const struct listing *l, const struct subset *x, const struct subset *y)
{
    return incumbents_better(&l->t->incumbents, &x->value, &y->value);
}

static void add(struct listing *l, const struct subset *x)
{
    l->out = arena_grow(l->t->arena, l->out, l->n, &l->capacity, sizeof *x);
    size_t at = l->n++;
    for (; at > 0 && better(l, x, &l->out[at - 1]); at--) l->out[at] = l->out[at - 1];
    l->out[at] = *x;
}

/* All nodes of the types, but not the whole cluster, which was searched; a half, a quarter … as long as the estimate is better. */
static enum status add_parts(struct listing *l, const bool *with, struct error *err)
{
    struct subset before = {.used = 0};
    for (int32_t part = 1; !search_context_over(l->t); part *= 2) {
        struct subset x = part_of(l->t->arena, l->task->cluster, with, part);
        bool whole = x.used == l->task->cluster->n_devices;
        if (whole ? part > 1 : is_known(l, &x)) break;
        if (whole) continue;
        TRY(estimate(l, &x, err));
        if (x.value.iteration_ns == INT64_MAX) break;
        add(l, &x);
        if (before.used && !better(l, &x, &before)) break;
        before = x;
    }
    return OK;
}

/* Each type alone; then the type of the best subset with that of the next, and so on. */
static enum status list(struct listing *l, struct error *err)
{
    const struct cluster *c = l->task->cluster;
    size_t types = (size_t)c->n_types;
    int32_t *by = ARENA_ARRAY(l->t->arena, int32_t, types), n = 0;
    bool *with = ARENA_ARRAY(l->t->arena, bool, types),
         *seen = ARENA_ARRAY(l->t->arena, bool, types);
    for (int32_t type = 0; type < c->n_types; type++) {
        with[type] = true;
        TRY(add_parts(l, with, err));
        with[type] = false;
    }
    for (size_t i = 0; i < l->n; i++)
        for (int32_t d = 0; d < c->n_devices; d++) {
            int32_t type = c->devices[d].type;
            if (l->out[i].idle[d] || seen[type]) continue;
            seen[type] = true, by[n++] = type;
        }
    for (int32_t i = 0; i < n; i++) {
        with[by[i]] = true;
        TRY(add_parts(l, with, err));
    }
    return OK;
}

enum status cost_subsets_search(struct search_context *t, const struct search_task *task,
                                struct error *err)
{
    struct listing l = {.t = t, .task = task};
    bool more = true;
    TRY(list(&l, err));
    for (size_t i = 0; i < l.n && more && !search_context_over(t); i++) {
        struct search_plan best = t->incumbents.n ? t->incumbents.plans[0] : (struct search_plan){.iteration_ns = 0};
        struct search_task part = *task;
        int32_t n_tried;
        part.idle = l.out[i].idle;
        struct coarse *q = coarse_new(t, &part, false);
        enum status st = coarse_search(q, &n_tried, err);
        coarse_free(q);
        if (st != OK) return st;
        more = !best.iteration_ns || incumbents_better(&t->incumbents, &t->incumbents.plans[0], &best);
    }
    return OK;
}
