#include "planner/candidate/group.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/graph/gradient.h"
#include "core/lower/stage_graph.h"
#include "core/sharding/shard.h"

#include <math.h>
#include <stdlib.h>

struct space_group {
    int32_t n, base; /* base: the type of a single GPU */
    int32_t slowest; /* the member whose view is priced */
    struct stage_group stage;
    struct shard_choices *choices; /* NULL until a view is made */
    struct stage_table *table;
    int64_t forward_ns, backward_ns; /* of one border */
    int32_t copies; /* of an activation at a border, over all GPUs */
    int32_t *rings; /* (n_layers + 1) of the layers before */
    double *excess_bytes; /* (n_layers + 1) likewise: parameters of this GPU beyond an equal share of every parameter */
};

static struct cost_link hop(const void *of, int32_t from, int32_t to)
{
    return *space_link(of, from, to);
}

/* The training graph of one GPU of a group for layers first … last. */
struct group_view {
    const struct sharding *sharding;
    int32_t member, first, last;
    const struct graph *graph;
    struct group_view *next;
};

static enum status view_new(struct arena *a, struct space *s, struct shard_choices **choices,
                            const struct group_view *x, struct graph **out, struct error *err)
{
    struct shard_stage *stage;
    struct graph *g;
    if (!s->whole) TRY(lower_graph(s->arena, s->job, s->microbatch, &s->whole, err));
    if (!*choices) TRY(shard_choices_new(s->arena, s->whole, x->sharding, choices, err));
    TRY(shard_stage_of(a, *choices, x->first, x->last, -1, &stage, err));
    TRY(shard_stage_graph(a, stage, x->member, &g, err));
    g = graph_fuse(g, s->lower->fused, s->lower->n_fused);
    if (x->first > 0) g->edge[g->n_edges++] = x->first - 1;
    if (x->last + 1 < g->n_layers) g->edge[g->n_edges++] = x->last;
    TRY(gradient_build(g, (double)s->microbatch / (double)s->job->global_batch, err));
    *out = g;
    return OK;
}

/* A graph that is kept for the whole search is copied from the memory in which it was made. */
static enum status view_kept(struct arena *a, struct space *s, struct shard_choices **choices,
                             const struct group_view *x, const struct graph **out,
                             struct error *err)
{
    struct arena *own = arena_new();
    struct graph *g;
    enum status st = view_new(own, s, choices, x, &g, err);
    if (st == OK)
        *out =
            stage_graph_of(stage_graph_pool_new(a, a), g, s->whole->layer_name, x->first, x->last)
                .g;
    arena_free(own);
    return st;
}

/* Groups of one sharding have one graph, whatever their GPUs' type. */
static enum status view_of(struct arena *a, struct space *s, struct shard_choices **choices,
                           struct group_view **views, const struct group_view *x,
                           const struct graph **out, struct error *err)
{
    struct group_view *v = *views;
    while (v && (v->sharding != x->sharding || v->member != x->member || v->first != x->first ||
                 v->last != x->last))
        v = v->next;
    if (!v) {
        struct group_view made = *x;
        made.next = *views;
        struct graph *g = NULL;
        if (a == s->arena) {
            TRY(view_kept(a, s, choices, x, &made.graph, err));
        } else {
            TRY(view_new(a, s, choices, x, &g, err));
            made.graph = g;
        }
        *views = v = arena_copy(a, &made, sizeof made);
    }
    *out = v->graph;
    return OK;
}

/* The table of layers first … last in an arena, with the views that are there. */
static enum status table_of(struct arena *a, struct space *s, struct group_view **views,
                            struct space_group *x, int32_t first, int32_t last,
                            struct stage_table **out, struct error *err)
{
    struct group_view v = {
        .sharding = x->stage.sharding, .member = x->slowest, .first = first, .last = last};
    const struct graph *g;
    TRY(view_of(a, s, &x->choices, views, &v, &g, err));
    *out = stage_table_new(a, g, s->cost, &s->job->optimizer);
    stage_table_fused(*out, s->lower->fused, s->lower->n_fused);
    stage_table_group(*out, &x->stage);
    return OK;
}

/* A block alone, of two layers where possible, as a stage of their own on the slower one of the first and the last GPU. Causal
 * attention over positions has the most work on the last. */
struct block {
    int32_t first, last;
    struct stage_cost cost;
};

static enum status price_block(struct space *s, struct group_scratch *scratch,
                               struct space_group *x, int32_t type, int32_t first, int32_t layers,
                               struct block *out, struct error *err)
{
    int64_t most = -1;
    int32_t slowest = 0;
    *out = (struct block){.first = first, .last = units_min(first + layers, s->n_layers) - 1};
    for (int32_t end = 0; end < 2; end++) {
        struct stage_table *t;
        struct stage_cost c;
        x->slowest = end * (x->n - 1);
        TRY(table_of(scratch->arena, s, &scratch->blocks, x, first, out->last, &t, err));
        TRY(stage_table_cost(t, first, out->last, type, &c, err));
        int64_t ns = c.forward_ns + c.input_ns + c.weight_ns;
        if (ns > most) most = ns, slowest = x->slowest, out->cost = c;
    }
    x->slowest = slowest;
    return OK;
}

/* In the middle, one layer later, or of one layer: with some rules a stage cannot begin at every layer, because a sum is complete only
 * behind a later one. */
static enum status find_block(struct space *s, struct group_scratch *scratch, struct space_group *x,
                              int32_t type, struct block *out, struct error *err)
{
    int32_t middle = s->n_layers / 2;
    enum status st = price_block(s, scratch, x, type, middle, 2, out, err);
    if (st == ERR_INPUT && middle + 1 < s->n_layers)
        st = price_block(s, scratch, x, type, middle + 1, 2, out, err);
    return st == ERR_INPUT ? price_block(s, scratch, x, type, middle, 1, out, err) : st;
}

/* The GPUs hold an activation at the block's border as often as their bytes of it amount to: once if they divide the sequences, each if it is
 * replicated. */
static void count_copies(struct space *s, struct group_scratch *scratch, struct space_group *x,
                         const struct block *b)
{
    const struct group_view *v = scratch->blocks;
    x->copies = x->n;
    if (!b->first || s->job->model.measured) return;
    while (v->sharding != x->stage.sharding || v->member != x->slowest || v->first != b->first ||
           v->last != b->last)
        v = v->next;
    int64_t own = layer_classes_crossings(scratch->arena, v->graph)[b->first - 1].activation_bytes,
            all = units_max(1, s->cut_bytes[b->first - 1]);
    x->copies = (int32_t)units_max(1, units_min(x->n, (x->n * own + all / 2) / all));
}

/* The link that messages within the node share; NULL: none. */
static const struct link *bus_of(const struct cluster *c, const int32_t *device)
{
    int32_t direction, link = cluster_link(c, device[0], device[1], &direction);
    return link >= 0 && c->links[link].n_ends == 1 ? &c->links[link] : NULL;
}

struct use { /* of a parameter */
    int32_t layer, parameter, partial;
};

static int by_place(const void *x, const void *y)
{
    const struct use *a = x, *b = y;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    return (a->parameter > b->parameter) - (a->parameter < b->parameter);
}

/* Bytes of a GPU's shard of a parameter, over the GPUs that hold the same, beyond the n-th part of the parameter: 3 of 8 experts on one of
 * three GPUs. */
static double excess_of(const struct tensor *x, int32_t n)
{
    double share = 1;
    for (int32_t k = 0; k < x->shard.n_cuts; k++)
        share *= (double)x->shape.dim[x->shard.cut[k].dim] / (double)x->shard.cut[k].whole;
    double copies = fmax(1, round(n * share));
    return (double)(shape_elements(&x->shape) * dtype_bytes(x->dtype)) * (1 / copies - 1 / (n * share));
}

static void count_excess(struct space *s, struct space_group *x, const struct graph *g)
{
    x->excess_bytes = ARENA_ARRAY(s->arena, double, (size_t)s->n_layers + 1);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *y = &g->tensors[t];
        if (y->role == TENSOR_PARAMETER_GRADIENT && y->producer >= 0 && !y->use)
            x->excess_bytes[g->ops[y->producer].layer + 1] += excess_of(&g->tensors[y->of], x->n);
    }
    for (int32_t k = 0; k < s->n_layers; k++) x->excess_bytes[k + 1] += x->excess_bytes[k];
}

static const struct graph *whole_view(const struct space *s, const struct space_group *x)
{
    const struct group_view *v = s->views;
    while (v->sharding != x->stage.sharding || v->first > 0 || v->last + 1 < s->n_layers) v = v->next;
    return v->graph;
}

static void count_rings(struct space *s, struct space_group *x, const struct graph *g)
{
    struct arena *scratch = arena_new();
    struct use *uses = ARENA_ARRAY(scratch, struct use, (size_t)g->n_tensors + 1);
    int32_t n = 0;
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *y = &g->tensors[t];
        if (y->role == TENSOR_PARAMETER_GRADIENT && y->producer >= 0)
            uses[n++] = (struct use){g->ops[y->producer].layer, y->of, y->partial};
    }
    if (n > 1) qsort(uses, (size_t)n, sizeof *uses, by_place);
    x->rings = ARENA_ARRAY(s->arena, int32_t, (size_t)s->n_layers + 1);
    for (int32_t i = 0; i < n; i++)
        if (!i || uses[i].partial != uses[i - 1].partial)
            x->rings[uses[i].layer + 1]++;
    for (int32_t k = 0; k < s->n_layers; k++) x->rings[k + 1] += x->rings[k];
    arena_free(scratch);
}

int32_t group_rings(const struct space *s, int32_t type, int32_t first, int32_t last)
{
    if (!s->groups || !s->groups[type]) return 1;
    const int32_t *rings = s->groups[type]->rings;
    return (int32_t)units_max(1, rings[last + 1] - rings[first]);
}

int32_t group_copies(const struct space *s, int32_t type)
{
    return s->groups && s->groups[type] ? s->groups[type]->copies : 1;
}

static int64_t state_bytes(const struct space *s, int32_t type, int32_t first, int32_t last)
{
    return first > last ? 0 : space_stage_type(s, type, first, last)->state_bytes;
}

/* |A ∩ B| = |A| + |B| - |A ∪ B|, for the layers before and those behind. */
int64_t group_tied_bytes(const struct space *s, int32_t type, int32_t first, int32_t last)
{
    int32_t end = s->n_layers - 1;
    return 2 * state_bytes(s, type, first, last) + state_bytes(s, type, 0, first - 1) -
           state_bytes(s, type, 0, last) + state_bytes(s, type, last + 1, end) -
           state_bytes(s, type, first, end);
}

int64_t group_zero_bytes(const struct space *s, int32_t type, int32_t first, int32_t last,
                         int32_t replicas)
{
    const struct space_group *x = s->groups ? s->groups[type] : NULL;
    int32_t base = x ? x->base : type;
    const struct stage_cost *one = space_stage_type(s, base, first, last);
    int64_t whole = one->state_bytes, holders = (x ? x->n : 1) * (int64_t)replicas;
    if (x && one->parameter_bytes)
        whole += (int64_t)(x->n * (x->excess_bytes[last + 1] - x->excess_bytes[first]) * (double)whole /
                           (double)one->parameter_bytes);
    if (!s->ties || s->ties[first] == s->ties[last + 1]) return whole / holders;
    return group_tied_bytes(s, type, first, last) + (whole - group_tied_bytes(s, base, first, last)) / holders;
}

enum status group_add(struct space *s, int32_t type, const struct group_request *r,
                      struct error *err)
{
    struct space_group *x = ARENA_ARRAY(s->arena, struct space_group, 1);
    struct stage_cost within, whole;
    struct block block;
    const struct link *bus = bus_of(s->cluster, r->device);
    *x = (struct space_group){
        .n = r->n,
        .base = s->cluster->devices[r->device[0]].type,
        .stage = {.sharding = r->sharding,
                  .device = arena_copy(s->arena, r->device, (size_t)r->n * sizeof *r->device),
                  .hop = hop,
                  .of = s,
                  .beside = bus ? r->n : 1,
                  .duplex = bus && !bus->half_duplex}};
    if (!s->groups) s->groups = ARENA_ARRAY(s->arena, struct space_group *, (size_t)s->n_types);
    TRY(find_block(s, r->scratch, x, type, &block, err));
    count_copies(s, r->scratch, x, &block);
    TRY(table_of(s->arena, s, &s->views, x, 0, s->n_layers - 1, &x->table, err));
    /* later prices cannot fail */
    TRY(stage_table_cost(x->table, 0, s->n_layers - 1, type, &whole, err));
    if (block.first > 0 && block.last + 1 < s->n_layers) {
        TRY(stage_table_cost(x->table, block.first, block.last, type, &within, err));
        x->forward_ns = units_max(0, block.cost.forward_ns - within.forward_ns) / 2;
        x->backward_ns = units_max(0, block.cost.input_ns - within.input_ns) / 2;
    }
    count_rings(s, x, whole_view(s, x));
    count_excess(s, x, whole_view(s, x));
    s->groups[type] = x;
    return OK;
}

struct stage_table *group_table(const struct space *s, int32_t type)
{
    return s->groups && s->groups[type] ? s->groups[type]->table : s->table;
}

void group_borders(const struct space *s, int32_t type, int32_t first, int32_t last,
                   struct stage_cost *out)
{
    if (!s->groups || !s->groups[type]) return;
    const struct space_group *x = s->groups[type];
    int64_t n = (first > 0) + (last + 1 < s->n_layers);
    out->forward_ns += n * x->forward_ns;
    out->input_ns += n * x->backward_ns;
    out->input_least_ns += n * x->backward_ns;
}

int32_t group_type_of(const struct space *s, const struct plan_stage *x)
{
    int32_t base = s->cluster->devices[x->device].type;
    for (int32_t t = 0; s->groups && x->sharding && t < s->n_types; t++) {
        const struct space_group *g = s->groups[t];
        if (g && g->base == base && g->n == x->n_shards &&
            sharding_equal(g->stage.sharding, x->sharding))
            return t;
    }
    return base;
}

int64_t group_recompute_ns(const struct space *s, const struct plan_stage *x, const struct stage_cost *c)
{
    if (x->recompute != RECOMPUTE_STAGE && x->recompute != RECOMPUTE_BLOCKS) return 0;
    int32_t all = layer_classes_blocks(s->classes, x->first_layer, x->last_layer), n = x->recompute_blocks;
    return n && n < all ? c->recompute_ns / all * n : c->recompute_ns;
}

int64_t group_stage_ns(const struct space *s, const struct plan_stage *x)
{
    int64_t slowest = 0;
    for (int32_t k = 0; k < (x->sharding ? 1 : plan_stage_devices(x)); k++) {
        const struct stage_cost *c =
            x->sharding ? group_stage(s, x)
                        : space_stage(s, plan_stage_device(x, k), x->first_layer, x->last_layer);
        int64_t ns = c->forward_ns + c->input_ns + c->weight_ns + group_recompute_ns(s, x, c);
        if (x->n_shards && x->sequences) ns = ns * x->sequences[k] / s->microbatch;
        slowest = units_max(slowest, ns);
    }
    return slowest;
}

int64_t group_busiest_ns(const struct space *s, const struct plan *p)
{
    int64_t most = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            struct plan_stage x = p->replicas[r].stages[i];
            x.recompute = RECOMPUTE_NONE, x.recompute_blocks = 0;
            most = units_max(most, p->replicas[r].microbatches * group_stage_ns(s, &x));
        }
    return most;
}
