#include "planner/fleet/tp_options.h"

#include "core/base/arena.h"
#include "core/cluster/group.h"
#include "core/model/measured.h"
#include "core/sharding/sharding.h"
#include "planner/candidate/group.h"
#include "planner/spmd_stage/group_rules.h"
#include "profiles/measured.h"
#include "profiles/team.h"

#include <string.h>

static bool shared(const struct device_type *t) { return t->tensor_parallel > 1; }

/* The type that prices stages on n GPUs of type `base`, created on demand; -1: the table is full. A type of measured layers has their
 * degree, and so their measured times. */
static int32_t type_of(struct arena *a, struct tp_options *o, int32_t base, int32_t n, int32_t most)
{
    struct cluster *c = &o->priced;
    if (n == 1) return base;
    for (int32_t t = o->n_base; t < c->n_types; t++)
        if (o->base_type[t] == base && o->gpus[t] == n) return t;
    if (c->n_types == most) return -1;
    int32_t found;
    c->types[c->n_types] = o->job.model.measured
                               ? cluster_tp_type(a, c, &c->types[base], n, false, &found)
                               : c->types[base];
    o->base_type[c->n_types] = base, o->gpus[c->n_types] = n;
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

enum status tp_options_make(struct search_context *t, struct arena *a, const struct job *j,
                            const struct cluster *c, const struct profile *p,
                            const int32_t *numbers, int32_t n, struct tp_options *out,
                            struct error *err)
{
    int32_t most = c->n_types * (1 + (numbers ? n : 0));
    *out = (struct tp_options){.priced = *c, .job = *j, .profile = p, .n_base = c->n_types, .t = t};
    out->priced.types = ARENA_ARRAY(a, struct device_type, (size_t)most);
    out->base_type = ARENA_ARRAY(a, int32_t, (size_t)most);
    memcpy(out->priced.types, c->types, (size_t)c->n_types * sizeof *c->types);
    out->gpus = ARENA_ARRAY(a, int32_t, (size_t)most);
    out->sharding = ARENA_ARRAY(a, const struct sharding *, (size_t)most);
    for (int32_t k = 0; k < c->n_types; k++)
        out->base_type[k] = k,
        out->gpus[k] = c->types[k].tensor_parallel > 1 ? c->types[k].tensor_parallel : 1;
    if (numbers) make_types(a, out, c, numbers, n, most);
    out->cost = cost_new(a, p, &out->priced);
    out->classes = ARENA_ARRAY(a, struct template_class, TEMPLATE_CLASSES_MAX);
    TRY(device_graph_new(a, c, out->cost, &out->graph, err));
    make_classes(out, numbers, n);
    return OK;
}

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
    if (c->n_devices <= TP_OPTIONS_FEW || c->emulated || !j->model.measured) return 0;
    for (int32_t t = 0; t < c->n_types; t++)
        if (shared(&c->types[t])) return 0;
    return measured_degrees(j->model.measured, c, p, numbers);
}

/* GPUs of a type on one node; NULL: no node has n. */
static const int32_t *some_gpus(const struct tp_options *o, int32_t type, int32_t n)
{
    const struct device *d = o->graph->cluster->devices;
    for (int32_t p = 0; p < o->graph->n_classes; p++) {
        const struct device_class *k = &o->graph->classes[p];
        for (int32_t i = 0; k->type == type && i + n <= k->n; i++)
            if (d[k->devices[i]].node == d[k->devices[i + n - 1]].node) return &k->devices[i];
    }
    return NULL;
}

/* The rules of a number of GPUs are one object, because plans compare shardings by address. */
static enum status rules_of(const struct tp_options *o, const struct space *s, int32_t type,
                            const int32_t *gpus, struct error *err)
{
    for (int32_t t = o->n_base; t < o->priced.n_types && !o->sharding[type]; t++)
        if (o->gpus[t] == o->gpus[type]) o->sharding[type] = o->sharding[t];
    if (o->sharding[type]) return OK;
    return group_rules_solve(o->t->spmd_stage, o->t->scorer, s, gpus, o->gpus[type],
                             GROUP_RULES_PARAMETERS, o->t->arena, &o->sharding[type], err);
}

static enum status price_types(const struct tp_options *o, struct space *s, bool *usable,
                               struct error *err)
{
    struct group_scratch scratch = {arena_new(), NULL};
    enum status st = OK;
    for (int32_t t = 0; t < o->n_base; t++) usable[t] = true;
    for (int32_t t = o->n_base; t < o->priced.n_types && st == OK; t++) {
        const int32_t *gpus = some_gpus(o, o->base_type[t], o->gpus[t]);
        struct error why;
        if (!gpus) continue;
        st = rules_of(o, s, t, gpus, err);
        if (st != OK || !o->sharding[t]) continue;
        struct group_request r = {o->gpus[t], gpus, o->sharding[t], &scratch};
        if (o->job.model.measured) group_add_measured(s, t, o->base_type[t], o->sharding[t]);
        usable[t] = o->job.model.measured || group_add(s, t, &r, &why) == OK;
    }
    arena_free(scratch.arena);
    return st;
}

enum status tp_options_size(struct arena *a, const struct tp_options *o, int64_t microbatch,
                            const struct lower_options *lower, struct space *space,
                            struct template_maker **maker, struct error *err)
{
    TRY(space_make_on(a, &o->job, &o->priced, o->cost, o->graph, microbatch, lower, space, err));
    bool *usable = ARENA_ARRAY(a, bool, (size_t)o->priced.n_types);
    struct template_class *classes = ARENA_ARRAY(a, struct template_class, (size_t)o->n_classes);
    int32_t n = 0;
    TRY(price_types(o, space, usable, err));
    for (int32_t k = 0; k < o->n_classes; k++)
        if (usable[o->classes[k].type]) classes[n++] = o->classes[k];
    *maker = template_maker_new(a, space, o->graph, classes, n);
    return OK;
}
