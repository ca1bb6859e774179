#include "planner/fleet/tp_options.h"

#include "core/base/arena.h"
#include "core/cluster/group.h"
#include "core/model/measured.h"
#include "core/sharding/sharding.h"
#include "planner/candidate/group.h"
#include "profiles/measured.h"
#include "profiles/team.h"

#include <string.h>

static bool shared(const struct device_type *t) { return t->tensor_parallel > 1; }

/* The device type of tp GPUs of type `base`, created on demand; -1: the table is full. */
static int32_t type_of(struct arena *a, struct tp_options *o, int32_t base, int32_t tp,
                       int32_t most)
{
    struct cluster *c = &o->priced;
    if (tp == 1) return base;
    for (int32_t t = o->n_base; t < c->n_types; t++)
        if (o->base_type[t] == base && c->types[t].tensor_parallel == tp) return t;
    if (c->n_types == most) return -1;
    /* A type that exists in the task's cluster is duplicated, because its devices are a separate pool here. place_tidy
     * merges both in a plan's cluster. */
    int32_t found;
    c->types[c->n_types] = cluster_tp_type(a, c, &c->types[base], tp, false, &found);
    o->base_type[c->n_types] = base;
    return c->n_types++;
}

static void add_class(struct tp_options *o, int32_t pool, int32_t type, int32_t tp)
{
    const struct device_class *k = &o->graph->classes[pool];
    const struct device *d = o->graph->cluster->devices;
    int32_t run = 0, longest = 0, all = 0;
    /* A node's GPUs may belong to several classes, so they are counted per class. */
    for (int32_t i = 0; i < k->n; i++) {
        run = i && d[k->devices[i]].node == d[k->devices[i - 1]].node ? run + 1 : 1;
        if (run > longest) longest = run;
        all += run % tp == 0;
    }
    if (type < 0 || !all || o->n_classes == TEMPLATE_CLASSES_MAX) return;
    o->classes[o->n_classes++] =
        (struct template_class){pool, type, k->zone, tp, longest / tp, all};
}

/* One type per base type and degree that some node allows. */
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

/* Plans compare shardings by address, so types of one degree have one. */
static void make_shardings(struct arena *a, struct tp_options *o)
{
    const struct cluster *c = &o->priced;
    o->sharding = ARENA_ARRAY(a, const struct sharding *, (size_t)c->n_types);
    for (int32_t t = o->n_base; t < c->n_types; t++) {
        int32_t same = o->n_base, tp = c->types[t].tensor_parallel;
        while (c->types[same].tensor_parallel != tp) same++;
        o->sharding[t] =
            same < t ? o->sharding[same] : sharding_of_index(a, INDEX_tensor, NULL, tp);
    }
}

static void make_classes(struct tp_options *o, const int32_t *numbers, int32_t n)
{
    for (int32_t pool = 0; pool < o->graph->n_classes; pool++) {
        int32_t base = o->graph->classes[pool].type;
        if (!numbers || shared(&o->priced.types[base])) {
            add_class(o, pool, base, 1);
            continue;
        }
        for (int32_t i = 0; i < n; i++)
            if (numbers[i] <= o->graph->classes[pool].per_node)
                add_class(o, pool, type_of(NULL, o, base, numbers[i], o->priced.n_types),
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
    if (j->model.measured) make_shardings(a, out);
    out->cost = cost_new(a, p, &out->priced);
    out->classes = ARENA_ARRAY(a, struct template_class, TEMPLATE_CLASSES_MAX);
    TRY(device_graph_new(a, c, out->cost, &out->graph, err));
    make_classes(out, numbers, n);
    return OK;
}

/* Approximate bytes per parameter with gradient and AdamW state. */
enum { STATE_BYTES = 16, DEVICES_OF_A_REPLICA = 12 };

/* 0: only single GPUs were measured. */
static int32_t measured_degrees(const struct measured_model *m, const struct cluster *c,
                                const struct profile *p, int32_t *numbers)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_tp && n < TP_OPTIONS_DEFAULT_MAX; i++) {
        bool everywhere = true, possible = false;
        for (int32_t t = 0; t < c->n_types; t++) {
            if (cluster_most_on_node(c, t) < m->tp[i]) continue;
            possible = true;
            everywhere &= measured_on(p, c->types[t].catalogue, m->tp[i]);
        }
        if (possible && everywhere) numbers[n++] = m->tp[i];
    }
    return n && numbers[n - 1] > 1 ? n : 0;
}

int32_t tp_options_default(const struct job *j, const struct cluster *c, const struct profile *p,
                           int32_t numbers[TP_OPTIONS_DEFAULT_MAX])
{
    int64_t least = INT64_MAX, on_node = 0, tp = 1;
    int32_t n = 0;
    if (c->n_devices <= TP_OPTIONS_FEW || c->emulated) return 0;
    if (!j->model.measured) return 0;
    for (int32_t t = 0; t < c->n_types; t++) {
        if (shared(&c->types[t])) return 0;
        if (c->types[t].memory_bytes < least) least = c->types[t].memory_bytes;
    }
    if (j->model.measured) return measured_degrees(j->model.measured, c, p, numbers);
    for (int32_t i = 0; i < c->n_nodes; i++)
        if (c->nodes[i].n_devices > on_node) on_node = c->nodes[i].n_devices;
    double bytes = STATE_BYTES * (double)model_parameters(&j->model);
    while (((double)(DEVICES_OF_A_REPLICA * tp) * (double)least / 2 < bytes ||
            c->n_devices > TP_OPTIONS_DEVICES_MAX * tp) &&
           2 * tp <= on_node && model_allows_tp(&j->model, 2 * tp))
        tp *= 2;
    if (tp == 1) return 0;
    numbers[n++] = (int32_t)tp;
    if (2 * tp <= on_node && model_allows_tp(&j->model, 2 * tp)) numbers[n++] = (int32_t)(2 * tp);
    return n;
}

enum status tp_options_size(struct arena *a, const struct tp_options *o, int64_t microbatch,
                            const struct lower_options *lower, struct space *space,
                            struct template_maker **maker, struct error *err)
{
    TRY(space_make_on(a, &o->job, &o->priced, o->cost, o->graph, microbatch, lower, space, err));
    for (int32_t t = o->n_base; o->sharding && t < o->priced.n_types; t++)
        group_add_measured(space, t, o->base_type[t], o->sharding[t]);
    *maker = template_maker_new(a, space, o->graph, o->classes, o->n_classes);
    return OK;
}
