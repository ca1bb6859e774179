#include "core/lower/stage_key.h"

#include "core/lower/cells.h"
#include "core/lower/channels.h"
#include "core/lower/codes.h"
#include "core/lower/launches.h"
#include "core/lower/noise.h"
#include "core/lower/orders.h"
#include "core/lower/outer.h"
#include "core/lower/scale.h"
#include "core/lower/servers.h"
#include "core/lower/tensor_collectives.h"
#include "core/lower/zero.h"

#include <string.h>

static void add(struct stage_key *k, int64_t x)
{
    k->list = arena_grow(k->arena, k->list, k->n, &k->capacity, sizeof *k->list);
    k->list[k->n++] = x;
}

static void add_double(struct stage_key *k, double value)
{
    int64_t x;
    memcpy(&x, &value, sizeof x);
    add(k, x);
}

static void add_text(struct stage_key *k, const char *text)
{
    size_t n = strlen(text);
    add(k, (int64_t)n);
    for (size_t i = 0; i < n; i += sizeof(int64_t)) {
        int64_t x = 0;
        memcpy(&x, text + i, n - i < sizeof x ? n - i : sizeof x);
        add(k, x);
    }
}

static const struct lane_build *lane_of(const struct lowering *l, const struct stage_build *b)
{
    return &l->lanes[b->s->device];
}

static const struct device_type *type_of(const struct lowering *l, const struct stage_build *b)
{
    const struct cluster *c = &l->plan->cluster;
    return &c->types[c->devices[b->device].type];
}

static void add_code(struct stage_key *k, struct encoding c)
{
    add(k, c.kind), add(k, c.feedback), add(k, c.stochastic), add(k, c.block), add(k, c.kept);
}

static void add_settings(struct stage_key *k, const struct lowering *l, const struct stage_build *b)
{
    const struct plan_stage *x = b->plan;
    add(k, b->v->g->serial);
    add(k, x->first_layer), add(k, x->last_layer);
    add(k, x->recompute), add(k, x->recompute_blocks), add(k, x->offload), add(k, x->zero), add(k, x->hybrid_shard);
    add(k, b->shard), add(k, b->n_shards);
    add(k, b->chunk), add(k, lane_of(l, b)->n_stages);
    add(k, b->first_sequence), add(k, b->sequences);
    add(k, b->s->first_sequence), add(k, b->s->sequences);
    add(k, type_of(l, b)->parameter_copies), add(k, type_of(l, b)->offloads);
    add(k, b->order->split), add(k, b->order->apart), add(k, b->order->ahead > 0), add(k, plan_delays_gradients(l->plan));
    add(k, l->plan->deterministic);
    add(k, l->p->dtype), add(k, l->p->optimizer.kind);
    add(k, lower_state_tensors(l)), add(k, lower_is_served(l));
    add(k, lower_scales(l)), add(k, l->p->loss_scale.grows_after), add(k, lower_measures_noise(l));
    add(k, lower_clips(l)), add(k, l->p->optimizer.decay_all);
    if (lower_clips(l)) add(k, lower_clip_replica(l, b)), add(k, lower_scale_gives_back(l, b));
    add(k, l->plan->compression.gradients.between);
    add(k, l->plan->compression.gradients.rank), add(k, l->plan->compression.gradients.feedback);
    add_code(k, lower_code(l, false)), add_code(k, lower_code(l, true));
    const struct outer_optimizer *o = &l->plan->local_sgd.outer;
    add(k, o->every), add(k, o->kind);
    if (!o->every) return;
    add(k, o->fragments), add(k, o->delay), add_double(k, o->alpha), add(k, lower_outer_steps(l, b));
    add(k, b->s->microbatches); /* the weight of its change */
    add(k, plan_island_microbatches(l->plan, plan_island(l->plan, b->replica)));
    add(k, l->p->microbatches);
}

static void add_edges(struct stage_key *k, const struct stage_build *b)
{
    for (int e = 0; e < EDGE_COUNT; e++) {
        add(k, b->edge[e].n);
        for (int32_t i = 0; i < b->edge[e].n; i++) {
            const struct crossing *x = &b->edge[e].list[i];
            add(k, x->tensor), add(k, x->first), add(k, x->n), add(k, x->link);
            add(k, x->cut), add_code(k, x->code);
            add(k, x->whole), add(k, x->part), add(k, x->parts), add(k, x->rounds);
        }
    }
}

/* Index of a group among the stage's; -1. */
static int32_t index_of(const struct stage_build *b, int32_t group)
{
    int32_t low = 0, high = b->groups->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (b->groups->group[middle] < group)
            low = middle + 1;
        else
            high = middle;
    }
    return low < b->groups->n && b->groups->group[low] == group ? low : -1;
}

/* Index of a group among the stage's: -1: another device's; -2: there is none. */
static int64_t local(const struct stage_build *b, int32_t group)
{
    return group < 0 ? -2 : index_of(b, group);
}

static void add_zero(struct stage_key *k, const struct lowering *l, const struct stage_build *b,
                     int32_t group)
{
    const struct group_plan *p = lower_group_plan(l, group);
    const struct zero_group *z = lower_zero_group(l, group);
    add(k, local(b, z->gathered)), add(k, local(b, z->owner_group));
    for (int i = 0; i < PHASE_INDICES; i++) add(k, local(b, z->gather[i]));
    add(k, z->n_flat_params);
    for (int32_t i = 0; i < z->n_flat_params; i++)
        add(k, z->flat_param[i].decay), add(k, z->flat_param[i].elements);
    if (z->gathered >= 0) return;
    add_text(k, l->p->collectives[group].name); /* part of its slots' names */
    for (int32_t u = 0; u < p->n_uses; u++)
        add(k, z->places[u].flat_param), add(k, z->places[u].first);
}

/* Members of one number in groups of the same cells have equal segments. Overflow checks of gradient shards leave out the padding in
 * the member's chunk. */
static void add_group(struct stage_key *k, const struct lowering *l, const struct stage_build *b,
                      int32_t i)
{
    const struct group_plan *x = lower_group_plan(l, b->groups->group[i]);
    const struct collective *g = &l->p->collectives[b->groups->group[i]];
    const int32_t n_cells = x->cells ? x->cells->n : 0;
    add(k, x->n_uses);
    for (int32_t u = 0; u < x->n_uses; u++) add(k, x->uses[u]);
    add(k, x->bucketed), add(k, x->tied), add(k, x->agrees), add(k, x->back), add(k, x->outer), add(k, x->fragment), add(k, x->between);
    add(k, x->factor), add(k, x->zero);
    add(k, lower_clips(l) && x->between && b->groups->member[i]); /* only of the first part do shards count */
    add(k, g->kind), add(k, g->algorithm), add(k, g->n_members), add(k, g->dtype), add(k, g->elements), add(k, g->most);
    add(k, n_cells);
    for (int32_t c = 0; c < n_cells; c++) add(k, x->cells->param_use[c]);
    k->unique |= x->tied && g->algorithm == ALGORITHM_LOCAL;
    if (!x->zero) return;
    add_zero(k, l, b, b->groups->group[i]);
    bool looks = (lower_scales(l) && x->zero > 1) || (lower_clips(l) && lower_clip_by_member(l, b, b->groups->group[i]));
    add(k, looks ? b->groups->member[i] : -1);
}

const struct stage_build *stage_key_chunk(const struct lowering *l, const struct stage_build *b,
                                          int32_t k)
{
    int32_t chunk = !k ? b->chunk : k <= b->chunk ? k - 1 : k;
    return &l->stages[lane_of(l, b)->stages[chunk]];
}

/* The first chunk with the group, and its index there. */
static void add_launch(struct stage_key *k, const struct lowering *l, const struct stage_build *b,
                       int32_t group)
{
    for (int32_t c = 0; c < lane_of(l, b)->n_stages; c++) {
        int32_t i = index_of(stage_key_chunk(l, b, c), group);
        if (i < 0) continue;
        add(k, c), add(k, i);
        return;
    }
    k->unique = true;
}

static uint64_t hash_of(const struct stage_key *k)
{
    uint64_t h = 1;
    for (size_t i = 0; i < k->n; i++) {
        h = (h ^ (uint64_t)k->list[i]) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 29;
    }
    return h;
}

void stage_key_set(struct stage_key *k, const struct lowering *l, const struct stage_build *b)
{
    k->n = 0, k->unique = false;
    add_settings(k, l, b);
    add_edges(k, b);
    for (int32_t c = 0; c < lane_of(l, b)->n_stages; c++)
        add(k, stage_key_chunk(l, b, c)->groups->n);
    for (int32_t i = 0; i < b->groups->n; i++) add_group(k, l, b, i);
    add(k, b->launches->n), add(k, b->launches->late);
    for (int32_t i = 0; i < b->launches->n; i++) add_launch(k, l, b, b->launches->group[i]);
    for (int32_t x = 0; x < MESH_AXES_MAX; x++) {
        int32_t n;
        const int32_t *tier = lower_team_tiers(b, x, &n);
        add(k, n), add(k, tier != NULL);
        for (int32_t i = 0; tier && i < n; i++) add(k, tier[i]);
    }
    k->hash = hash_of(k);
}
