#include "planner/spmd_stage/tp_options.h"

#include "core/base/arena.h"
#include "core/model/measured.h"
#include "core/sharding/sharding.h"
#include "planner/bound/cluster.h"
#include "planner/candidate/group.h"
#include "planner/spmd_stage/group_rules.h"
#include "profiles/measured.h"

#include <string.h>

int32_t tp_options_type(const struct tp_options *o, int32_t base, int32_t n)
{
    int32_t t = o->n_base;
    if (n == 1) return base;
    while (t < o->priced.n_types && (o->base_type[t] != base || o->gpus[t] != n)) t++;
    return t < o->priced.n_types ? t : -1;
}

static void add_type(struct tp_options *o, int32_t base, int32_t n)
{
    struct cluster *c = &o->priced;
    if (tp_options_type(o, base, n) >= 0) return;
    c->types[c->n_types] = c->types[base];
    o->base_type[c->n_types] = base, o->gpus[c->n_types] = n;
    c->n_types++;
}

/* One type per base type and degree that some node allows. */
static void make_types(struct arena *a, struct tp_options *o, const struct cluster *c,
                       const int32_t *numbers, int32_t n)
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
        for (int32_t i = 0; i < n; i++)
            if (numbers[i] > 1 && numbers[i] <= most_of[t]) add_type(o, t, numbers[i]);
}

enum status tp_options_make(struct search_context *t, struct arena *a, const struct job *j,
                            const struct cluster *c, const struct profile *p,
                            const int32_t *numbers, int32_t n, struct tp_options *out,
                            struct error *err)
{
    int32_t most = c->n_types * (1 + n);
    *out = (struct tp_options){.priced = *c, .job = *j, .profile = p, .n_base = c->n_types, .t = t};
    out->priced.types = ARENA_ARRAY(a, struct device_type, (size_t)most);
    out->base_type = ARENA_ARRAY(a, int32_t, (size_t)most);
    memcpy(out->priced.types, c->types, (size_t)c->n_types * sizeof *c->types);
    out->gpus = ARENA_ARRAY(a, int32_t, (size_t)most);
    out->sharding = ARENA_ARRAY(a, const struct sharding *, (size_t)most);
    for (int32_t k = 0; k < c->n_types; k++)
        out->base_type[k] = k, out->gpus[k] = 1;
    make_types(a, out, c, numbers, n);
    out->cost = cost_new(a, p, &out->priced);
    return device_graph_new(a, c, out->cost, &out->graph, err);
}

/* Whether every type of which a node has as many GPUs was measured on n, and some node has. */
static bool measured_everywhere(const struct cluster *c, const struct profile *p, int32_t n)
{
    bool possible = false;
    for (int32_t t = 0; t < c->n_types; t++) {
        if (cluster_most_on_node(c, t) < n) continue;
        if (!measured_on(p, c->types[t].catalogue, n)) return false;
        possible = true;
    }
    return possible;
}

int32_t tp_options_numbers(const struct job *j, const struct cluster *c, const struct profile *p,
                           bool no_sharding, int32_t numbers[TP_NUMBERS_MAX])
{
    const struct measured_model *m = j->model.measured;
    int32_t n = 0, most = 1;
    for (int32_t t = 0; t < c->n_types; t++)
        if (cluster_most_on_node(c, t) > most) most = cluster_most_on_node(c, t);
    for (int32_t i = 0; m && i < m->n_tp && n < TP_NUMBERS_MAX; i++)
        if (measured_everywhere(c, p, m->tp[i])) numbers[n++] = m->tp[i];
    for (int32_t i = 1; !m && i <= most && n < TP_NUMBERS_MAX; i *= 2)
        if (i == 1 || !no_sharding) numbers[n++] = i;
    if (!n) numbers[n++] = 1; /* lowering reports what is missing */
    return n;
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
        usable[t] = false;
        if (!gpus) continue;
        st = rules_of(o, s, t, gpus, err);
        if (st != OK || !o->sharding[t]) continue;
        struct group_request r = {o->gpus[t], gpus, o->sharding[t], &scratch};
        usable[t] = group_add(s, t, &r, &why) == OK;
    }
    arena_free(scratch.arena);
    return st;
}

enum status tp_options_space(struct arena *a, const struct tp_options *o, int64_t microbatch,
                             const struct lower_options *lower, struct space *space, bool *usable,
                             struct error *err)
{
    TRY(space_make_on(a, &o->job, &o->priced, o->cost, o->graph, microbatch, lower, space, err));
    return price_types(o, space, usable, err);
}

/* --- lower bound --- */

/* GPUs of the stages that each type offers; 0: the type has no prices at this size. */
static enum status offer(struct bound_any *b, const struct search_task *task,
                         const struct tp_options *o, const int32_t *numbers, int32_t n,
                         struct space *spaces, int32_t size, struct error *err)
{
    struct arena *a = o->t->arena;
    bool *usable = ARENA_ARRAY(a, bool, (size_t)o->priced.n_types);
    int32_t *tp = ARENA_ARRAY(a, int32_t, (size_t)o->priced.n_types);
    TRY(tp_options_space(a, o, task->sizes[size], o->t->lower, &spaces[size], usable, err));
    for (int32_t k = 0; k < o->priced.n_types; k++)
        for (int32_t i = 0; i < n; i++)
            if (usable[k] && o->gpus[k] == numbers[i]) tp[k] = numbers[i];
    bound_cluster_offer(b, &spaces[size], tp, o->base_type);
    return OK;
}

enum status tp_options_bound(struct search_context *t, const struct search_task *task,
                             struct bound_certificate *out, struct error *err)
{
    const struct cluster *c = task->cluster;
    struct tp_options o;
    int32_t numbers[TP_NUMBERS_MAX];
    int32_t n = tp_options_numbers(task->job, c, task->profile, t->o->no_sharding, numbers);
    int64_t *count = ARENA_ARRAY(t->arena, int64_t, (size_t)c->n_types);
    struct space *spaces = ARENA_ARRAY(t->arena, struct space, (size_t)task->n_sizes);
    TRY(tp_options_make(t, t->arena, task->job, c, task->profile, numbers, n, &o, err));
    for (int32_t d = 0; d < c->n_devices; d++) count[c->devices[d].type]++;
    struct bound_any *b = bound_any_new(t->arena, (int32_t)task->job->model.measured->n_layers,
                                        c->n_types, count, task->job->global_batch);
    for (int32_t i = 0; i < task->n_sizes; i++)
        TRY(offer(b, task, &o, numbers, n, spaces, i, err));
    TRY(bound_cluster_cuts(t->arena, b, c, o.cost, err));
    bound_cluster_prices(b, c, incumbents_max_ns(t->o));
    TRY(bound_any_solve(b, out, err));
    for (int32_t i = 0; i < n && n > 1; i++)
        out->class_text = arena_printf(t->arena, "%s%s%d", out->class_text,
                                       i ? ", " : "; GPUs a stage: ", (int)numbers[i]);
    return OK;
}
