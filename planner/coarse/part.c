/* planner/coarse/part.c - searches of a part of the cluster, and of nodes that are divided in two parts. */
#include "planner/coarse/internal.h"

#include "core/base/arena.h"

static int32_t largest_power(int32_t n)
{
    int32_t power = 1;
    while (power <= n / 2) power *= 2;
    return power;
}

/* Classes as they are priced in `from`, but with their own GPUs. A part of a node is one group, or its largest power of two is. */
static void take_classes(struct coarse *q, const struct coarse_class *from)
{
    for (int32_t k = 0; k < q->n_classes; k++) {
        struct coarse_class own = q->classes[k], *x = &q->classes[k];
        int32_t whole = own.per_node, power = largest_power(whole);
        *x = from[q->of_whole[k]];
        for (int32_t d = 0; d < x->n_degrees && whole < x->per_node; d++)
            x->degree[d].usable &= x->degree[d].n == whole || x->degree[d].n == power;
        x->device = own.device, x->n = own.n, x->per_node = whole;
    }
}

static void add_class(struct coarse *q, const struct coarse_class *x, int32_t of)
{
    if (!x->n) return;
    q->of_whole[q->n_classes] = of;
    q->classes[q->n_classes++] = *x;
}

/* --- a part of the cluster --- */

/* The GPUs of a class that are not idle; n 0: none. */
static struct coarse_class part_of(struct coarse *q, const struct coarse_class *x)
{
    struct coarse_class y = *x;
    y.device = ARENA_ARRAY(q->arena, int32_t, (size_t)x->n);
    y.n = 0;
    for (int32_t i = 0; i < x->n; i++)
        if (!q->task->idle[x->device[i]]) y.device[y.n++] = x->device[i];
    return y;
}

struct coarse *coarse_part(struct coarse *q, const struct search_task *task)
{
    struct coarse *x = coarse_new(q->t, task, q->parameters_only);
    x->trial_ns = q->trial_ns, x->all_replicas = q->all_replicas;
    x->whole = q, x->priced = q->priced, x->cost = q->cost, x->graph = q->graph;
    for (int32_t k = 0; k < q->n_classes; k++) {
        struct coarse_class y = part_of(x, &q->classes[k]);
        add_class(x, &y, k);
    }
    coarse_find_crossings(x);
    return x;
}

bool coarse_take_priced(struct coarse *q, int32_t size)
{
    if (!q->whole || !q->whole->at_size[size]) return false;
    q->spaces[size] = q->whole->spaces[size];
    take_classes(q, q->whole->at_size[size]);
    return true;
}

/* --- divided nodes --- */

/* GPUs of the first part of a node; all: it is not divided. */
static int32_t first_part(int32_t per_node, enum coarse_halving how)
{
    return how == COARSE_BY_HALF && per_node % 2 ? (per_node + 1) / 2 : largest_power(per_node);
}

/* Of every node those GPUs whose index on the node is from `first` to `end` - 1. */
static struct coarse_class nodes_part(struct coarse *q, const struct coarse_class *x, int32_t first,
                                      int32_t end)
{
    const struct device *d = q->task->cluster->devices;
    struct coarse_class y = *x;
    y.device = ARENA_ARRAY(q->arena, int32_t, (size_t)x->n);
    y.n = 0, y.per_node = end - first;
    for (int32_t i = 0, on = 0; i < x->n; i++) {
        on = i && d[x->device[i]].node == d[x->device[i - 1]].node ? on + 1 : 0;
        if (on >= first && on < end) y.device[y.n++] = x->device[i];
    }
    return y;
}

/* Whether a class is divided at all, or in another way than by the way before. */
static bool divides(const struct coarse *q, enum coarse_halving how)
{
    for (int32_t k = 0; k < q->n_classes; k++) {
        int32_t n = q->classes[k].per_node, other = how == COARSE_BY_HALF ? first_part(n, COARSE_BY_POWER) : n;
        if (first_part(n, how) != other) return true;
    }
    return false;
}

struct coarse *coarse_divided(struct coarse *q, enum coarse_halving how)
{
    if (q->task->job->model.measured || q->t->o->no_sharding || !divides(q, how)) return NULL;
    struct coarse *x = ARENA_ARRAY(q->arena, struct coarse, 1);
    int32_t more = COARSE_CLASSES - q->n_classes;
    *x = *q;
    x->divided = true, x->n_classes = 0;
    for (int32_t k = 0; k < q->n_classes; k++) {
        const struct coarse_class *y = &q->classes[k];
        int32_t n = y->per_node, first = first_part(n, how);
        if (first < n && more-- <= 0) first = n;
        struct coarse_class parts[2] = {nodes_part(q, y, 0, first), nodes_part(q, y, first, n)};
        for (int i = 0; i < 2; i++) add_class(x, &parts[i], k);
    }
    coarse_find_crossings(x);
    return x;
}

void coarse_divided_take(struct coarse *x, const struct coarse *q)
{
    x->size = q->size, x->spare_percent = q->spare_percent, x->templates = q->templates, x->most_ns = q->most_ns;
    take_classes(x, q->classes);
}
