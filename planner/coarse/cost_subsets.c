#include "planner/coarse/cost_subsets.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/coarse/coarse.h"

#include <string.h>

enum {
    PARTS = 4,   /* all nodes of a type, a half, a quarter, an eighth: a subset between two of them costs little less */
    SEARCHED = 3 /* subsets, because the estimates err by some percent */
};

/* A subset of the GPUs. value: estimated iteration time, and the cost of all its GPUs for that long. */
struct subset {
    bool *idle; /* (devices) */
    int32_t used;
    struct search_plan value;
};

struct listing {
    struct search_context *t;
    const struct search_task *task;
    struct subset *out;
    int32_t n;
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

/* Estimates the subset, but not the whole cluster, which was searched. */
static enum status add(struct listing *l, const bool *with, int32_t part, struct error *err)
{
    const struct cluster *c = l->task->cluster;
    struct subset x = part_of(l->t->arena, c, with, part);
    struct search_task task = *l->task;
    int64_t ns = INT64_MAX;
    for (int32_t i = 0; i < l->n; i++)
        if (!memcmp(l->out[i].idle, x.idle, (size_t)c->n_devices * sizeof *x.idle)) return OK;
    if (x.used == c->n_devices || search_context_over(l->t)) return OK;
    task.idle = x.idle;
    struct coarse *q = coarse_new(l->t, &task, false);
    enum status st = coarse_estimate(q, &ns, err);
    coarse_free(q);
    if (st != OK) return st;
    if (ns == INT64_MAX) return OK;
    x.value = (struct search_plan){.iteration_ns = ns,
                                   .cost = price_of(c, &x) * (double)ns / NS_PER_H};
    int32_t at = l->n++;
    for (; at > 0 && incumbents_better(&l->t->incumbents, &x.value, &l->out[at - 1].value); at--)
        l->out[at] = l->out[at - 1];
    l->out[at] = x;
    return OK;
}

/* A half, a quarter … of the types' nodes too. */
static enum status add_parts(struct listing *l, const bool *with, struct error *err)
{
    for (int32_t k = 0; k < PARTS; k++) TRY(add(l, with, 1 << k, err));
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
    for (int32_t i = 0; i < l->n; i++)
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
    size_t most = 2 * (size_t)PARTS * (size_t)task->cluster->n_types;
    struct listing l = {.t = t, .task = task, .out = ARENA_ARRAY(t->arena, struct subset, most)};
    TRY(list(&l, err));
    for (int32_t i = 0; i < l.n && i < SEARCHED && !search_context_over(t); i++) {
        struct search_task part = *task;
        int32_t n_tried;
        part.idle = l.out[i].idle;
        struct coarse *q = coarse_new(t, &part, false);
        enum status st = coarse_search(q, &n_tried, err);
        coarse_free(q);
        if (st != OK) return st;
    }
    return OK;
}
