/* core/lower/stages.c - the program's stages and lanes, and the training graph of each stage.
 *
 * A stage of the plan on n devices is n consecutive stages of the program; each device is a lane.
 */
#include "core/lower/stages.h"

#include "core/base/stop.h"
#include "core/lower/graphs.h"
#include "core/lower/lowering.h"
#include "core/lower/param_uses.h"
#include "core/lower/servers.h"
#include "core/lower/shard_views.h"
#include "core/plan/internal.h"

static const struct device_type *type_of(const struct lowering *l, int32_t device)
{
    const struct cluster *c = &l->plan->cluster;
    return &c->types[c->devices[device].type];
}

static void make_stage(struct lowering *l, int32_t index, int32_t replica, int32_t stage,
                       int32_t shard, int32_t first_microbatch)
{
    const struct plan_replica *r = &l->plan->replicas[replica];
    const struct plan_stage *plan = &r->stages[stage];
    struct program_stage *s = &l->p->stages[index];
    struct stage_build *b = &l->stages[index];
    int32_t device = plan_stage_device(plan, shard);
    *s = (struct program_stage){.replica = replica,
                                .island = lower_is_served(l) ? 1 + replica : plan_island(l->plan, replica),
                                .stage = stage,
                                .first_layer = plan->first_layer,
                                .last_layer = plan->last_layer,
                                .microbatches = r->microbatches,
                                .first_microbatch = first_microbatch,
                                .recompute = plan->recompute != RECOMPUTE_NONE,
                                .offloads = type_of(l, device)->offloads,
                                .reserve_bytes = type_of(l, device)->reserve_bytes};
    *b = (struct stage_build){.s = s,
                              .plan = plan,
                              .index = index,
                              .replica = replica,
                              .stage = stage,
                              .device = device,
                              .shard = shard,
                              .n_shards = plan_stage_devices(plan),
                              .sequences = plan_stage_sequences(l->plan, plan, shard)};
    if (b->n_shards == 1 || plan->sharding) return;
    for (int32_t k = 0; k < shard; k++) b->first_sequence += plan_stage_sequences(l->plan, plan, k);
    s->first_sequence = b->first_sequence, s->sequences = b->sequences;
}

/* Devices in the order of first mention in the plan, those of one stage consecutive. */
static void make_lanes(struct lowering *l, int32_t replica, const int32_t *first_of)
{
    struct plan_lane *found;
    const struct plan_replica *r = &l->plan->replicas[replica];
    int32_t n = plan_lanes(l->tables, r, &found);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < plan_stage_devices(&r->stages[found[i].stages[0]]); k++) {
            struct lane_build *lane = &l->lanes[l->p->n_devices];
            *lane =
                (struct lane_build){.replica = replica, .turn = i, .n_stages = found[i].n_stages};
            lane->device = plan_stage_device(&r->stages[found[i].stages[0]], k);
            lane->stages = ARENA_ARRAY(l->a, int32_t, (size_t)lane->n_stages);
            for (int32_t c = 0; c < lane->n_stages; c++) {
                lane->stages[c] = first_of[found[i].stages[c]] + k;
                struct stage_build *b = &l->stages[lane->stages[c]];
                b->chunk = c;
                b->s->device = l->p->n_devices;
            }
            l->p->n_devices++;
        }
}

static void make_stages(struct lowering *l)
{
    const struct plan *plan = l->plan;
    struct program *p = l->p;
    for (int32_t r = 0; r < plan->n_replicas; r++)
        for (int32_t s = 0; s < plan->replicas[r].n_stages; s++)
            p->n_stages += plan_stage_devices(&plan->replicas[r].stages[s]);
    p->stages = ARENA_ARRAY(l->a, struct program_stage, (size_t)p->n_stages);
    l->stages = ARENA_ARRAY(l->tables, struct stage_build, (size_t)p->n_stages);
    l->lanes = ARENA_ARRAY(l->tables, struct lane_build, (size_t)p->n_stages);
    l->stage_of_layer = ARENA_ARRAY(l->tables, int32_t, (size_t)plan->n_replicas * (size_t)l->n_layers);
    int32_t index = 0;
    for (int32_t r = 0; r < plan->n_replicas; r++) {
        const struct plan_replica *x = &plan->replicas[r];
        int32_t *first_of = ARENA_ARRAY(l->tables, int32_t, (size_t)x->n_stages);
        for (int32_t s = 0; s < x->n_stages; s++) {
            first_of[s] = index;
            for (int32_t k = x->stages[s].first_layer; k <= x->stages[s].last_layer; k++)
                l->stage_of_layer[r * l->n_layers + k] = index;
            for (int32_t k = 0; k < plan_stage_devices(&x->stages[s]); k++)
                make_stage(l, index++, r, s, k, p->microbatches);
        }
        make_lanes(l, r, first_of);
        p->microbatches += x->microbatches;
    }
}

/* --- variants --- */

/* Edges with several live activations and a sharded neighbour: each activation has one gradient there. */
static int32_t shared_ends(const struct lowering *l, const struct stage_build *b,
                           const struct graph *g, int32_t edge[GRAPH_EDGES_MAX])
{
    const struct plan_replica *r = &l->plan->replicas[b->replica];
    int32_t n = 0, first = b->plan->first_layer, last = b->plan->last_layer;
    if (b->stage > 0 && r->stages[b->stage - 1].sharding && g->cut[first - 1].n > 1)
        edge[n++] = first - 1;
    if (b->stage + 1 < r->n_stages && r->stages[b->stage + 1].sharding && g->cut[last].n > 1)
        edge[n++] = last;
    return n;
}

/* A separate graph for an unsharded stage next to a sharded one. */
static enum status end_like(struct lowering *l, struct stage_build *b, const struct graph **g,
                            struct error *err)
{
    int32_t edge[GRAPH_EDGES_MAX], n = shared_ends(l, b, *g, edge);
    if (!n) return OK;
    const struct stage_build *before = b->shard ? b - 1 : NULL;
    if (before && before->sequences == b->sequences) {
        *g = before->v->g;
        return OK;
    }
    struct graph *own;
    TRY(lower_graph_between(l->a, &l->plan->job, b->sequences, l->o, n, edge, &own, err));
    *g = own;
    return OK;
}

/* Graphs of the caller's set outlive the lowering. */
static bool is_kept(const struct lower_graphs *s, const struct graph *g)
{
    for (int32_t i = 0; i < s->n; i++)
        if (s->graphs[i] == g) return true;
    return false;
}

static enum status find_views(struct lowering *l, const struct lower_graphs *s,
                              struct shard_views *shared, struct error *err)
{
    const struct plan *p = l->plan;
    struct lower_graphs own = *s;
    own.capacity = (size_t)own.n; /* graphs missing in the set are added to a list of this call */
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        struct stage_build *b = &l->stages[i];
        const struct graph *g = NULL;
        struct error why = {0};
        TRY(stop_check(err));
        if (b->plan->sharding) {
            TRY(shard_views_set(l, shared, b, err));
            continue;
        }
        enum status st =
            lower_graphs_need(l->a, &own, &p->job, l->o, b->sequences, &g, &why);
        if (st == OK) st = end_like(l, b, &g, &why);
        if (st != OK) return lower_error(l, b, err, st, "%s", why.text);
        b->v = param_uses_view(l->uses, g, is_kept(s, g));
    }
    return OK;
}

static enum status make_views(struct lowering *l, const struct lower_graphs *s, struct error *err)
{
    struct shard_views *shared = shard_views_new(l);
    enum status status = param_uses_new(l->tables, l->p->n_stages, s->graphs[0], &l->uses, err);
    if (status == OK) status = find_views(l, s, shared, err);
    shard_views_end(shared);
    return status;
}

enum status lower_stages(struct lowering *l, const struct lower_graphs *s, struct error *err)
{
    make_stages(l);
    return make_views(l, s, err);
}
