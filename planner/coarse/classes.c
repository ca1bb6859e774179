/* planner/coarse/classes.c - classes of GPUs, and the prices of stages on several of them. */
#include "planner/spmd_stage/tp_options.h"
#include "planner/coarse/internal.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/model/measured.h"
#include "planner/candidate/group.h"

#include <stdlib.h>
#include <string.h>

/* Shape of every node: its devices' types and the cost of the links at the node and at its devices. */
static uint64_t *node_shapes(struct arena *a, const struct cluster *c)
{
    uint64_t *shape = ARENA_ARRAY(a, uint64_t, (size_t)c->n_nodes);
    for (int32_t n = 0; n < c->n_nodes; n++)
        for (int32_t d = 0; d < c->nodes[n].n_devices; d++)
            shape[n] = rng_hash_bytes(shape[n], &c->devices[c->nodes[n].first_device + d].type,
                                      sizeof(int32_t));
    for (int32_t i = 0; i < c->n_links; i++) {
        const struct link *l = &c->links[i];
        double cost[2] = {l->bandwidth_Bps, l->latency_s};
        for (int e = 0; e < l->n_ends && !link_of_every_pair(l); e++) {
            int32_t node = l->kind[e] == END_NODE     ? l->end[e]
                           : l->kind[e] == END_DEVICE ? c->devices[l->end[e]].node
                                                      : -1;
            /* a sum does not depend on the order of links in the file */
            if (node >= 0) shape[node] += rng_hash_bytes((uint64_t)l->kind[e], cost, sizeof cost);
        }
    }
    return shape;
}

static void add_device(struct coarse *q, const uint64_t *shape, uint64_t *class_shape, int32_t d)
{
    const struct cluster *c = q->task->cluster;
    const struct device *x = &c->devices[d];
    int32_t k = 0;
    while (k < q->n_classes && (class_shape[k] != shape[x->node] || q->classes[k].type != x->type))
        k++;
    if (k == COARSE_CLASSES) return;
    struct coarse_class *y = &q->classes[k];
    if (k == q->n_classes) {
        q->n_classes++;
        *y = (struct coarse_class){.type = x->type};
        y->device = ARENA_ARRAY(q->arena, int32_t, (size_t)c->n_devices);
        for (int32_t i = 0; i < c->nodes[x->node].n_devices; i++)
            y->per_node += c->devices[c->nodes[x->node].first_device + i].type == x->type;
        class_shape[k] = shape[x->node];
    }
    y->device[y->n++] = d;
}

static int32_t *first_of_nodes(struct coarse *q, int32_t *n)
{
    const struct cluster *c = q->task->cluster;
    bool *seen = ARENA_ARRAY(q->arena, bool, (size_t)c->n_nodes);
    int32_t *nodes = ARENA_ARRAY(q->arena, int32_t, (size_t)c->n_nodes);
    *n = 0;
    for (int32_t i = 0; i < c->n_devices; i++) {
        int32_t node = c->devices[q->graph->order[i]].node;
        if (!seen[node]) nodes[(*n)++] = node;
        seen[node] = true;
    }
    return nodes;
}

/* Whether a stage may have n GPUs of a class; of measured layers those that were measured, and one; without sharding one. */
static bool offered(const struct coarse *q, const struct coarse_class *x, int32_t n)
{
    const struct measured_model *m = q->task->job->model.measured;
    bool known = n == 1;
    if (!m) return known || (tp_options_offered(n, x->per_node) && !q->t->o->no_sharding);
    for (int32_t i = 0; i < m->n_tp; i++) known |= m->tp[i] == n;
    return known;
}

/* One priced type for each class and number of its GPUs on a node. */
static void add_degrees(struct coarse *q)
{
    struct cluster *c = &q->priced;
    int32_t most = c->n_types + q->n_classes * COARSE_DEGREES;
    struct device_type *types = ARENA_ARRAY(q->arena, struct device_type, (size_t)most);
    memcpy(types, c->types, (size_t)c->n_types * sizeof *types);
    c->types = types;
    for (int32_t k = 0; k < q->n_classes; k++) {
        struct coarse_class *x = &q->classes[k];
        int kinds = q->task->job->model.measured ? 1 : GROUP_RULES_COUNT;
        for (int kind = 0; kind < kinds; kind++)
            for (int32_t n = kind ? 2 : 1; n <= x->per_node && x->n_degrees < COARSE_DEGREES; n++) {
                if (n > 1 && !offered(q, x, n)) continue;
                if (n > 1 && kinds > 1 && q->parameters_only && kind != GROUP_RULES_PARAMETERS) continue;
                x->degree[x->n_degrees++] =
                    (struct coarse_degree){.n = n,
                                           .type = n > 1 ? c->n_types : x->type,
                                           .kind = (enum group_rules)kind,
                                           .usable = n == 1 && offered(q, x, 1)};
                if (n > 1) types[c->n_types++] = types[x->type];
            }
    }
}

static int cmp_classes(const struct cluster *c, const struct coarse_class *x,
                       const struct coarse_class *y)
{
    const struct device_type *a = &c->types[x->type], *b = &c->types[y->type];
    if (a->memory_bytes != b->memory_bytes) return a->memory_bytes > b->memory_bytes ? -1 : 1;
    if (x->per_node != y->per_node) return y->per_node - x->per_node;
    return x->n != y->n ? y->n - x->n : strcmp(a->catalogue, b->catalogue);
}

/* By memory, size of node and number, so that the order of the cluster file does not change the answer. */
static void sort_classes(struct coarse *q)
{
    for (int32_t i = 1; i < q->n_classes; i++)
        for (int32_t k = i;
             k > 0 && cmp_classes(q->task->cluster, &q->classes[k], &q->classes[k - 1]) < 0; k--) {
            struct coarse_class x = q->classes[k];
            q->classes[k] = q->classes[k - 1], q->classes[k - 1] = x;
        }
}

/* Links of measured layers are curves by the number of GPUs that send together. */
static void tell_gpus(struct coarse *q)
{
    int32_t *gpus = ARENA_ARRAY(q->arena, int32_t, (size_t)q->priced.n_types);
    for (int32_t t = 0; t < q->priced.n_types; t++) gpus[t] = 1;
    for (int32_t k = 0; k < q->n_classes; k++)
        for (int32_t d = 0; d < q->classes[k].n_degrees; d++)
            gpus[q->classes[k].degree[d].type] = q->classes[k].degree[d].n;
    q->graph->gpus = gpus;
}

void coarse_find_crossings(struct coarse *q)
{
    for (int32_t i = 0; i < q->n_classes; i++)
        for (int32_t k = 0; k < q->n_classes; k++) {
            const struct coarse_class *x = &q->classes[i], *y = &q->classes[k];
            if (i != k)
                q->crossing[i][k] =
                    device_graph_route(q->graph, x->device[0], y->device[0], x->type, y->type);
        }
}

int32_t coarse_class_groups(const struct coarse_class *k, int32_t n)
{
    return k->n / k->per_node * (k->per_node / n) + k->n % k->per_node / n;
}

enum status coarse_classes(struct coarse *q, struct error *err)
{
    const struct cluster *c = q->task->cluster;
    uint64_t *shape = node_shapes(q->arena, c), class_shape[COARSE_CLASSES];
    int32_t n_nodes;
    q->priced = *c;
    q->cost = cost_new(q->arena, q->task->profile, &q->priced);
    TRY(device_graph_new(q->arena, c, q->cost, &q->graph, err));
    int32_t *nodes = first_of_nodes(q, &n_nodes);
    for (int32_t i = 0; i < n_nodes; i++)
        for (int32_t k = 0; k < c->nodes[nodes[i]].n_devices; k++) {
            int32_t d = c->nodes[nodes[i]].first_device + k;
            if (!q->task->idle || !q->task->idle[d]) add_device(q, shape, class_shape, d);
        }
    sort_classes(q);
    add_degrees(q);
    q->graph->n_types = q->priced.n_types;
    for (int32_t k = 0; k < q->n_classes; k++) q->of_whole[k] = k;
    coarse_find_crossings(q);
    if (q->task->job->model.measured) tell_gpus(q);
    return OK;
}

/* --- the rules of a group ---------------------------------------------------------------------- */

static bool price(const struct coarse_class *k, struct coarse_degree *x, struct space *s,
                  struct group_scratch *scratch)
{
    struct error why;
    struct group_request r = {
        .n = x->n, .device = k->device, .sharding = x->sharding, .scratch = scratch};
    if (k->n < x->n || !x->sharding || group_add(s, x->type, &r, &why) != OK) return false;
    int64_t here = space_stage_type(s, x->type, 0, s->n_layers - 1)->parameter_bytes,
            once = space_stage_type(s, k->type, 0, s->n_layers - 1)->parameter_bytes;
    x->copies = (int32_t)((here * x->n + once / 2) / (once + 1));
    return true;
}

/* All classes use one set of rules for a number of GPUs, because ZeRO divides equal shards only. */
static const struct sharding *rules_of(const struct coarse_class *k, const struct coarse_degree *x)
{
    for (int32_t d = 1; d < k->n_degrees; d++)
        if (k->degree[d].n == x->n && k->degree[d].kind == x->kind) return k->degree[d].sharding;
    return NULL;
}

static enum status price_class(struct coarse *q, struct coarse_class *x, struct space *s,
                               struct group_scratch *scratch, struct error *err)
{
    for (int32_t d = 1; d < x->n_degrees; d++) {
        struct coarse_degree *y = &x->degree[d];
        /* A microbatch of fewer sequences cannot be divided by batch. */
        if (y->kind == GROUP_RULES_ANY && s->microbatch < y->n) continue;
        for (int32_t j = 0; &q->classes[j] < x && !y->sharding; j++)
            y->sharding = rules_of(&q->classes[j], y);
        if (!y->sharding && x->n >= y->n)
            TRY(group_rules_solve(q->t->spmd_stage, q->t->scorer, s, x->device, y->n, y->kind, q->t->arena,
                                  &y->sharding, err));
        y->usable = price(x, y, s, scratch);
    }
    return OK;
}

/* Whether rules y of as many GPUs are as good as x in time and in every kind of memory. */
static bool covers(const struct space *s, const struct coarse_degree *y, const struct coarse_degree *x)
{
    const struct stage_cost *a = space_stage_type(s, y->type, 0, s->n_layers - 1),
                            *b = space_stage_type(s, x->type, 0, s->n_layers - 1);
    int64_t ns[2] = {a->forward_ns + a->input_ns + a->weight_ns,
                     b->forward_ns + b->input_ns + b->weight_ns};
    return ns[0] <= ns[1] && a->activation_bytes <= b->activation_bytes &&
           a->parameter_bytes <= b->parameter_bytes && a->gradient_bytes <= b->gradient_bytes &&
           a->state_bytes <= b->state_bytes && a->scratch_bytes <= b->scratch_bytes &&
           a->input_bytes <= b->input_bytes && a->update_ns <= b->update_ns;
}

static struct coarse_degree *degree_of_kind(struct coarse_class *x, int32_t n, enum group_rules kind)
{
    for (int32_t d = 1; d < x->n_degrees; d++)
        if (x->degree[d].n == n && x->degree[d].kind == kind) return &x->degree[d];
    return NULL;
}

/* Whether in every class that has rules of this kind those of another kind cover them. */
static bool covered(struct coarse *q, const struct space *s, int32_t n, enum group_rules kind,
                    enum group_rules by)
{
    bool any = false;
    for (int32_t k = 0; k < q->n_classes; k++) {
        const struct coarse_degree *x = degree_of_kind(&q->classes[k], n, kind),
                                   *y = degree_of_kind(&q->classes[k], n, by);
        if (!x || !x->usable) continue;
        if (!y || !y->usable || !covers(s, y, x)) return false;
        any = true;
    }
    return any;
}

/* Rules that others cover are left out; of equal ones the first remain. */
static void drop_covered(struct coarse *q, const struct space *s, int32_t n)
{
    for (int x = GROUP_RULES_COUNT - 1; x >= 0; x--)
        for (int y = 0; y < GROUP_RULES_COUNT; y++) {
            if (x == y || !covered(q, s, n, (enum group_rules)x, (enum group_rules)y)) continue;
            for (int32_t k = 0; k < q->n_classes; k++) {
                struct coarse_degree *d = degree_of_kind(&q->classes[k], n, (enum group_rules)x);
                if (d) d->usable = false;
            }
            break;
        }
}

enum status coarse_space(struct coarse *q, int32_t size, struct error *err)
{
    struct space *s = &q->spaces[size];
    struct group_scratch scratch = {arena_new(), NULL};
    q->size = size;
    if (coarse_take_priced(q, size)) {
        arena_free(scratch.arena);
        return OK;
    }
    enum status st = space_make_on(q->arena, q->task->job, &q->priced, q->cost, q->graph,
                                   q->task->sizes[size], q->t->lower, s, err);
    for (int32_t k = 0; k < q->n_classes && st == OK; k++) {
        struct coarse_class *x = &q->classes[k];
        const struct stage_cost *all = space_stage_type(s, x->type, 0, s->n_layers - 1);
        x->speed = 1e9 / (double)(all->forward_ns + all->input_ns + all->weight_ns + 1);
        st = price_class(q, x, s, &scratch, err);
    }
    for (int32_t n = 2; st == OK && n <= COARSE_GPUS; n *= 2) drop_covered(q, s, n);
    if (st == OK) q->at_size[size] = arena_copy(q->arena, q->classes, sizeof q->classes);
    arena_free(scratch.arena);
    return st;
}

enum status coarse_priced(struct coarse *q, int32_t size, bool groups, struct space **out,
                          struct error *err)
{
    struct space *s = &q->spaces[size];
    *out = s;
    if (!q->graph) TRY(coarse_classes(q, err));
    if (s->arena && (s->groups || !groups)) return OK;
    if (q->whole) {
        TRY(coarse_priced(q->whole, size, groups, out, err));
        if (!coarse_take_priced(q, size)) *s = **out;
        *out = s;
        return OK;
    }
    if (groups) return coarse_space(q, size, err);
    return space_make_on(q->arena, q->task->job, &q->priced, q->cost, q->graph,
                         q->task->sizes[size], q->t->lower, s, err);
}
