#include "planner/fleet/tp_options.h"

#include "core/base/arena.h"
#include "core/cluster/group.h"
#include "profiles/team.h"

#include <string.h>

static bool shared(const struct device_type *t) { return t->tensor_parallel > 1; }

/* A type for so many cards of type `base`, made where it is not there; -1 where there is no room. */
static int32_t type_of(struct arena *a, struct tp_options *o, int32_t base, int32_t cards,
                       int32_t most)
{
    struct cluster *c = &o->priced;
    if (cards == 1) return base;
    for (int32_t t = o->n_base; t < c->n_types; t++)
        if (o->base_type[t] == base && c->types[t].tensor_parallel == cards) return t;
    if (c->n_types == most) return -1;
    /* One that the task's cluster already has is made again: its devices are a pool of their own here. A plan's cluster has
     * both as one (place_tidy). */
    int32_t found;
    c->types[c->n_types] = cluster_shared_type(a, c, &c->types[base], cards, false, &found);
    o->base_type[c->n_types] = base;
    return c->n_types++;
}

static void add_kind(struct tp_options *o, int32_t pool, int32_t type, int32_t cards)
{
    const struct kind *k = &o->graph->kinds[pool];
    const struct device *d = o->graph->cluster->devices;
    int32_t run = 0, longest = 0, all = 0;
    /* A node's cards may be of several kinds, so they are counted. */
    for (int32_t i = 0; i < k->n; i++) {
        run = i && d[k->devices[i]].node == d[k->devices[i - 1]].node ? run + 1 : 1;
        if (run > longest) longest = run;
        all += run % cards == 0;
    }
    if (type < 0 || !all || o->n_kinds == TEMPLATE_KINDS_MAX) return;
    o->kinds[o->n_kinds++] =
        (struct template_kind){pool, type, k->zone, cards, longest / cards, all};
}

/* One type for every number of cards that some node has of it. */
static void make_types(struct arena *a, struct tp_options *o, const struct cluster *c,
                       const int32_t *numbers, int32_t n, int32_t most)
{
    int32_t *on_node = ARENA_ARRAY(a, int32_t, (size_t)c->n_types);
    int32_t *most_of = ARENA_ARRAY(a, int32_t, (size_t)c->n_types);
    for (int32_t node = 0; node < c->n_nodes; node++) {
        memset(on_node, 0, (size_t)c->n_types * sizeof *on_node);
        for (int32_t d = 0; d < c->nodes[node].n_devices; d++) {
            int32_t t = c->devices[c->nodes[node].first_device + d].type;
            if (++on_node[t] > most_of[t]) most_of[t] = on_node[t];
        }
    }
    for (int32_t t = 0; t < c->n_types; t++)
        for (int32_t i = 0; i < n && !shared(&c->types[t]); i++)
            if (numbers[i] > 1 && numbers[i] <= most_of[t]) type_of(a, o, t, numbers[i], most);
}

static void make_kinds(struct tp_options *o, const int32_t *numbers, int32_t n)
{
    for (int32_t pool = 0; pool < o->graph->n_kinds; pool++) {
        int32_t base = o->graph->kinds[pool].type;
        if (!numbers || shared(&o->priced.types[base])) {
            add_kind(o, pool, base, 1);
            continue;
        }
        for (int32_t i = 0; i < n; i++)
            if (numbers[i] <= o->graph->kinds[pool].per_node)
                add_kind(o, pool, type_of(NULL, o, base, numbers[i], o->priced.n_types),
                         numbers[i]);
    }
}

enum status tp_options_make(struct arena *a, const struct job *j, const struct cluster *c,
                            const struct profile *p, const int32_t *numbers, int32_t n,
                            struct tp_options *out, struct error *err)
{
    int32_t most = c->n_types * (1 + (numbers ? n : 0));
    *out = (struct tp_options){.priced = *c, .job = *j, .profile = p, .n_base = c->n_types};
    out->priced.types = ARENA_ARRAY(a, struct device_type, (size_t)most);
    out->base_type = ARENA_ARRAY(a, int32_t, (size_t)most);
    memcpy(out->priced.types, c->types, (size_t)c->n_types * sizeof *c->types);
    for (int32_t t = 0; t < c->n_types; t++) out->base_type[t] = t;
    if (numbers) make_types(a, out, c, numbers, n, most);
    out->cost = cost_new(a, p, &out->priced);
    out->kinds = ARENA_ARRAY(a, struct template_kind, TEMPLATE_KINDS_MAX);
    TRY(device_graph_new(a, c, out->cost, &out->graph, err));
    make_kinds(out, numbers, n);
    return OK;
}

/* Parameter, gradient and state of each parameter, about: what AdamW keeps. */
enum { STATE_BYTES = 16, DEVICES_OF_A_REPLICA = 12 };

int32_t tp_options_default(const struct job *j, const struct cluster *c, int32_t *numbers)
{
    int64_t least = INT64_MAX, on_node = 0, cards = 1;
    int32_t n = 0;
    if (c->n_devices <= TP_OPTIONS_LARGE || c->emulated || j->model.measured) return 0;
    for (int32_t t = 0; t < c->n_types; t++) {
        if (shared(&c->types[t])) return 0;
        if (c->types[t].memory_bytes < least) least = c->types[t].memory_bytes;
    }
    for (int32_t i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].n_devices > on_node) on_node = c->nodes[i].n_devices;
    double bytes = STATE_BYTES * (double)model_parameters(&j->model);
    while (((double)(DEVICES_OF_A_REPLICA * cards) * (double)least / 2 < bytes ||
            c->n_devices > TP_OPTIONS_DEVICES_MAX * cards) &&
           2 * cards <= on_node && model_shares(&j->model, 2 * cards))
        cards *= 2;
    if (cards == 1) return 0;
    numbers[n++] = (int32_t)cards;
    if (2 * cards <= on_node && model_shares(&j->model, 2 * cards))
        numbers[n++] = (int32_t)(2 * cards);
    return n;
}

enum status tp_options_size(struct arena *a, const struct tp_options *o, int64_t microbatch,
                            const struct lower_options *lower, struct space *space,
                            struct template_maker **maker, struct error *err)
{
    TRY(space_make_on(a, &o->job, &o->priced, o->cost, o->graph, microbatch, lower, space, err));
    *maker = template_maker_new(a, space, o->graph, o->kinds, o->n_kinds);
    return OK;
}
