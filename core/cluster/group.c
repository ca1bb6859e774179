#include "core/cluster/group.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct grouping {
    struct arena *a;
    const struct cluster *old;
    struct cluster *c;
    size_t type_capacity;
    /* (old devices): the GPU that stands for it; itself where it is in no group */
    int32_t *lowest;
    int32_t *type;  /* (old devices): of the device that it stands for */
    int32_t *where; /* (old devices) */
    struct error *err;
};

static enum status check_gpu(const struct grouping *m, const struct cluster_group *g, int32_t k,
                              bool *taken)
{
    const struct cluster *c = m->old;
    int32_t gpu = g->devices[k];
    if (gpu < 0 || gpu >= c->n_devices)
        return error_set(m->err, ERR_INPUT,
                         "there is no device %" PRId32 "; the cluster has %" PRId32, gpu,
                         c->n_devices);
    const struct device *d = &c->devices[gpu], *first = &c->devices[g->devices[0]];
    if (taken[gpu]) return error_set(m->err, ERR_INPUT, "%s is in two groups", d->name);
    taken[gpu] = true;
    if (g->n == 1) return OK;
    if (d->node != first->node || d->type != first->type)
        return error_set(m->err, ERR_INPUT,
                         "%s and %s cannot shard operators; GPUs must be of one node and one type",
                         first->name, d->name);
    if (c->types[d->type].tensor_parallel > 1)
        return error_set(m->err, ERR_INPUT, "%s already consists of %" PRId32 " GPUs", d->name,
                         c->types[d->type].tensor_parallel);
    return OK;
}

static bool same_rates(const struct device_rates *x, const struct device_rates *y)
{
    for (int p = 0; p < DEVICE_PEAK_COUNT; p++)
        if (x->peak_flops[p] != y->peak_flops[p]) return false;
    return x->memory_Bps == y->memory_Bps && x->power_w == y->power_w;
}

bool cluster_same_type(const struct device_type *x, const struct device_type *y)
{
    return !strcmp(x->catalogue, y->catalogue) && x->slowdown == y->slowdown &&
           x->multiprocessors == y->multiprocessors && x->memory_bytes == y->memory_bytes &&
           x->reserve_bytes == y->reserve_bytes && x->parameter_copies == y->parameter_copies &&
           x->price_per_h == y->price_per_h && same_rates(&x->stated, &y->stated) &&
           x->tensor_parallel == y->tensor_parallel &&
           x->sequence_parallel == y->sequence_parallel && !x->gpu_type == !y->gpu_type &&
           (!x->gpu_type || !strcmp(x->gpu_type, y->gpu_type));
}

static int32_t find_type(const struct cluster *c, const char *name)
{
    for (int32_t t = 0; t < c->n_types; t++)
        if (!strcmp(c->types[t].name, name)) return t;
    return -1;
}

struct device_type cluster_tp_type(struct arena *a, const struct cluster *c,
                                       const struct device_type *gpu, int32_t n,
                                       bool sequence_parallel, int32_t *found)
{
    struct device_type t = *gpu;
    t.tensor_parallel = n, t.sequence_parallel = sequence_parallel;
    if (!t.gpu_type) t.gpu_type = gpu->name;
    const char *base =
        arena_printf(a, "%s-x%" PRId32 "%s", gpu->name, n, sequence_parallel ? "s" : "");
    t.name = base;
    for (int32_t number = 2; (*found = find_type(c, t.name)) >= 0; number++) {
        if (cluster_same_type(&c->types[*found], &t)) break;
        t.name = arena_printf(a, "%s-%" PRId32, base, number);
    }
    return t;
}

static int32_t derived_type(struct grouping *m, const struct cluster_group *g)
{
    struct cluster *c = m->c;
    const struct device_type *gpu = &m->old->types[m->old->devices[g->devices[0]].type];
    int32_t found;
    struct device_type t = cluster_tp_type(m->a, c, gpu, g->n, g->sequence_parallel, &found);
    if (found >= 0) return found;
    c->types = arena_grow(m->a, c->types, (size_t)c->n_types, &m->type_capacity, sizeof *c->types);
    c->types[c->n_types] = t;
    return c->n_types++;
}

static enum status take_groups(struct grouping *m, const struct cluster_group *groups, int32_t n)
{
    bool *taken = ARENA_ARRAY(m->a, bool, (size_t)m->old->n_devices);
    for (int32_t i = 0; i < n; i++) {
        const struct cluster_group *g = &groups[i];
        if (g->n < 1) return error_set(m->err, ERR_INPUT, "an empty group");
        for (int32_t k = 0; k < g->n; k++) TRY(check_gpu(m, g, k, taken));
        int32_t lowest = g->devices[0];
        for (int32_t k = 1; k < g->n; k++)
            if (g->devices[k] < lowest) lowest = g->devices[k];
        for (int32_t k = 0; k < g->n; k++) m->lowest[g->devices[k]] = lowest;
        if (g->n > 1) m->type[lowest] = derived_type(m, g);
    }
    return OK;
}

static void copy_devices(struct grouping *m)
{
    const struct cluster *old = m->old;
    struct cluster *c = m->c;
    c->nodes = ARENA_ARRAY(m->a, struct node_spec, (size_t)old->n_nodes);
    c->devices = ARENA_ARRAY(m->a, struct device, (size_t)old->n_devices);
    c->n_devices = 0;
    for (int32_t n = 0; n < old->n_nodes; n++) {
        const struct node_spec *at = &old->nodes[n];
        c->nodes[n] = *at;
        c->nodes[n].first_device = c->n_devices;
        for (int32_t d = at->first_device; d < at->first_device + at->n_devices; d++) {
            if (m->lowest[d] != d) continue;
            c->devices[c->n_devices] = old->devices[d];
            c->devices[c->n_devices].type = m->type[d];
            m->where[d] = c->n_devices++;
        }
        c->nodes[n].n_devices = c->n_devices - c->nodes[n].first_device;
    }
    for (int32_t d = 0; d < old->n_devices; d++) m->where[d] = m->where[m->lowest[d]];
}

/* --- links --- */

struct pair { /* the ends of a link, whichever stands first */
    int32_t kind[2], end[2], link;
};

static int compare_ends(const struct pair *x, const struct pair *y)
{
    for (int i = 0; i < 2; i++) {
        if (x->kind[i] != y->kind[i]) return x->kind[i] < y->kind[i] ? -1 : 1;
        if (x->end[i] != y->end[i]) return x->end[i] < y->end[i] ? -1 : 1;
    }
    return 0;
}

static int by_ends(const void *x, const void *y)
{
    const struct pair *p = x, *q = y;
    int ends = compare_ends(p, q);
    return ends ? ends : (p->link > q->link) - (p->link < q->link);
}

static struct pair pair_of(const struct link *l, int32_t index)
{
    int low = l->kind[0] != l->kind[1] ? l->kind[0] > l->kind[1] : l->end[0] > l->end[1];
    return (struct pair){
        {(int32_t)l->kind[low], (int32_t)l->kind[!low]}, {l->end[low], l->end[!low]}, index};
}

static void copy_links(struct grouping *m)
{
    const struct cluster *old = m->old;
    struct cluster *c = m->c;
    size_t n = (size_t)old->n_links;
    struct pair *pairs = ARENA_ARRAY(m->a, struct pair, n);
    bool *gone = ARENA_ARRAY(m->a, bool, n);
    int32_t n_pairs = 0;
    c->links = ARENA_ARRAY(m->a, struct link, n);
    c->n_links = 0;
    for (int32_t i = 0; i < old->n_links; i++) {
        struct link *l = &c->links[i];
        *l = old->links[i];
        bool gpu = false;
        for (int e = 0; e < 2; e++)
            if (l->kind[e] == END_DEVICE) l->end[e] = m->where[l->end[e]], gpu = true;
        if (!gpu) continue;
        gone[i] = l->kind[0] == l->kind[1] && l->end[0] == l->end[1];
        pairs[n_pairs++] = pair_of(l, i);
    }
    if (n_pairs) qsort(pairs, (size_t)n_pairs, sizeof *pairs, by_ends);
    for (int32_t i = 1; i < n_pairs; i++)
        if (!compare_ends(&pairs[i - 1], &pairs[i])) gone[pairs[i].link] = true;
    for (int32_t i = 0; i < old->n_links; i++)
        if (!gone[i]) c->links[c->n_links++] = c->links[i];
}

enum status cluster_group(struct arena *a, const struct cluster *c,
                          const struct cluster_group *groups, int32_t n_groups, struct cluster *out,
                          int32_t **where, struct error *err)
{
    size_t n = (size_t)c->n_devices, types = (size_t)c->n_types;
    struct cluster fresh = *c;
    struct grouping m = {.a = a, .old = c, .c = &fresh, .type_capacity = types, .err = err};
    m.lowest = ARENA_ARRAY(a, int32_t, n);
    m.type = ARENA_ARRAY(a, int32_t, n);
    m.where = ARENA_ARRAY(a, int32_t, n);
    for (int32_t d = 0; d < c->n_devices; d++) m.lowest[d] = d, m.type[d] = c->devices[d].type;
    fresh.types = ARENA_ARRAY(a, struct device_type, types);
    memcpy(fresh.types, c->types, types * sizeof *fresh.types);
    TRY(take_groups(&m, groups, n_groups));
    copy_devices(&m);
    copy_links(&m);
    if (where) *where = m.where;
    *out = fresh;
    return OK;
}
