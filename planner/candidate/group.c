#include "planner/candidate/group.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/graph/gradient.h"
#include "core/sharding/shard.h"

struct space_group {
    int32_t n, base; /* base: the type of a single GPU */
    struct stage_group stage;
    struct stage_table *table;
    int64_t forward_ns, backward_ns; /* of one border */
};

static struct cost_link hop(const void *of, int32_t from, int32_t to)
{
    return *space_link(of, from, to);
}

/* The training graph of the group's first GPU for layers first … last. */
static enum status view_of(struct space *s, const struct sharding *x, int32_t first, int32_t last,
                           struct graph **out, struct error *err)
{
    struct shard_stage *stage;
    struct graph *g;
    if (!s->whole) TRY(lower_graph_unsharded(s->arena, s->job, s->microbatch, &s->whole, err));
    TRY(shard_stage_new(s->arena, s->whole, x, first, last, &stage, err));
    TRY(shard_stage_graph(s->arena, stage, 0, &g, err));
    g = graph_fuse(g, s->lower->fused, s->lower->n_fused);
    if (first > 0) g->edge[g->n_edges++] = first - 1;
    if (last + 1 < g->n_layers) g->edge[g->n_edges++] = last;
    TRY(gradient_build(g, (double)s->microbatch / (double)s->job->global_batch, err));
    *out = g;
    return OK;
}

static enum status table_of(struct space *s, const struct space_group *x, int32_t first,
                            int32_t last, struct stage_table **out, struct error *err)
{
    struct graph *g;
    TRY(view_of(s, x->stage.sharding, first, last, &g, err));
    *out = stage_table_new(s->arena, g, s->cost, &s->job->optimizer);
    stage_table_fused(*out, s->lower->fused, s->lower->n_fused);
    stage_table_group(*out, &x->stage);
    return OK;
}

enum status group_add(struct space *s, int32_t type, const struct group_request *r,
                      struct error *err)
{
    struct space_group *x = ARENA_ARRAY(s->arena, struct space_group, 1);
    int32_t last = s->n_layers - 1, middle = s->n_layers / 2;
    struct stage_table *alone;
    struct stage_cost within, whole, one;
    *x = (struct space_group){
        .n = r->n,
        .base = s->cluster->devices[r->device[0]].type,
        .stage = {.sharding = r->sharding,
                  .device = arena_copy(s->arena, r->device, (size_t)r->n * sizeof *r->device),
                  .hop = hop,
                  .of = s,
                  .beside = r->bus ? r->n : 1}};
    if (!s->groups) s->groups = ARENA_ARRAY(s->arena, struct space_group *, (size_t)s->n_types);
    TRY(table_of(s, x, 0, last, &x->table, err));
    TRY(stage_table_cost(x->table, 0, last, type, &whole, err)); /* later prices cannot fail */
    if (middle > 0 && middle < last) {
        TRY(table_of(s, x, middle, middle, &alone, err));
        TRY(stage_table_cost(alone, middle, middle, type, &one, err));
        TRY(stage_table_cost(x->table, middle, middle, type, &within, err));
        x->forward_ns = units_max(0, one.forward_ns - within.forward_ns) / 2;
        x->backward_ns = units_max(0, one.input_ns - within.input_ns) / 2;
    }
    s->groups[type] = x;
    return OK;
}

void group_add_measured(struct space *s, int32_t type, int32_t base,
                        const struct sharding *sharding)
{
    struct space_group *x = ARENA_ARRAY(s->arena, struct space_group, 1);
    *x = (struct space_group){
        .n = sharding->n_devices, .base = base, .stage = {.sharding = sharding}, .table = s->table};
    if (!s->groups) s->groups = ARENA_ARRAY(s->arena, struct space_group *, (size_t)s->n_types);
    s->groups[type] = x;
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

int64_t group_stage_ns(const struct space *s, const struct plan_stage *x)
{
    int64_t slowest = 0;
    for (int32_t k = 0; k < (x->sharding ? 1 : plan_stage_devices(x)); k++) {
        const struct stage_cost *c =
            x->sharding ? group_stage(s, x)
                        : space_stage(s, plan_stage_device(x, k), x->first_layer, x->last_layer);
        int64_t ns = c->forward_ns + c->input_ns + c->weight_ns;
        if (x->recompute == RECOMPUTE_STAGE || x->recompute == RECOMPUTE_BLOCKS)
            ns += c->recompute_ns;
        if (x->n_shards && x->sequences) ns = ns * x->sequences[k] / s->microbatch;
        slowest = units_max(slowest, ns);
    }
    return slowest;
}
