/* core/lower/hybrid.c - ZeRO with shards inside nodes: parts of the holders, and the all-reduces between them. */
#include "core/lower/hybrid.h"

#include "core/base/units.h"
#include "core/lower/codes.h"
#include "core/lower/param_uses.h"
#include "core/lower/shards.h"
#include "core/lower/stage_scratch.h"
#include "core/lower/zero.h"
#include "core/lower/zero_slots.h"

#include <inttypes.h>

/* The holders of one shard. */
struct holders {
    int32_t n, n_parts, part; /* part: g */
    struct collective_member *member; /* (n) */
    int32_t *node, *of;               /* (n) the node, and the part */
};

static int32_t node_of(const struct lowering *l, const struct collective_member *m)
{
    return l->plan->cluster.devices[l->stages[m->stage].device].node;
}

/* Parts are numbered in the order of their first members. */
static void find_parts(const struct lowering *l, struct holders *h)
{
    size_t nodes = (size_t)l->plan->cluster.n_nodes;
    int32_t *before = ARENA_ARRAY(l->tables, int32_t, nodes), *last = ARENA_ARRAY(l->tables, int32_t, nodes);
    for (int32_t i = 0; i < h->n; i++) {
        int32_t at = h->node[i];
        if (before[at]++ % h->part == 0) last[at] = h->n_parts++;
        h->of[i] = last[at];
    }
}

static struct holders holders_of(const struct lowering *l, int32_t param_use, int32_t key)
{
    struct holders h = {.n = lower_group_members(l, -1, param_use, key, NULL, 0)};
    h.member = ARENA_ARRAY(l->tables, struct collective_member, (size_t)h.n);
    h.node = ARENA_ARRAY(l->tables, int32_t, (size_t)h.n);
    h.of = ARENA_ARRAY(l->tables, int32_t, (size_t)h.n);
    struct collective list = {.members = h.member};
    (void)lower_group_members(l, -1, param_use, key, &list, 0);
    int32_t *here = ARENA_ARRAY(l->tables, int32_t, (size_t)l->plan->cluster.n_nodes);
    for (int32_t i = 0; i < h.n; i++) here[h.node[i] = node_of(l, &h.member[i])]++;
    for (int32_t i = 0; i < h.n; i++) h.part = units_gcd(here[h.node[i]], h.part);
    return h;
}

int32_t lower_hybrid_part(const struct lowering *l, int32_t param_use)
{
    const struct stage_build *first = lower_param_use_owner(l, 0, param_use);
    int32_t part = 0;
    if (!first->plan->hybrid_shard) return 0;
    for (int32_t key = 0; key < lower_shard_keys(first, param_use); key++)
        part = units_gcd(holders_of(l, param_use, key).part, part);
    return part;
}

/* "3 on a, 1 on b", of at most four nodes. */
static const char *copies_of(const struct lowering *l, const struct stage_build *b)
{
    const struct cluster *c = &l->plan->cluster;
    int32_t *here = ARENA_ARRAY(l->tables, int32_t, (size_t)c->n_nodes), shown = 0;
    const char *text = "";
    for (int32_t r = 0; r < l->plan->n_replicas; r++) {
        const struct stage_build *owner = &l->stages[lower_owner(l, r, b->plan->first_layer)];
        for (int32_t k = 0; k < owner->n_shards; k++) here[c->devices[owner[k].device].node]++;
    }
    for (int32_t n = 0; n < c->n_nodes; n++) {
        if (!here[n]) continue;
        if (++shown > 4) return arena_join(l->tables, text, " …");
        text = arena_printf(l->tables, "%s%s%" PRId32 " on %s", text, *text ? ", " : "", here[n], c->nodes[n].name);
    }
    return text;
}

enum status lower_hybrid_check(const struct lowering *l, struct error *err)
{
    const struct stage_build *asks = NULL;
    for (int32_t u = 0; u < l->uses->n_param_uses; u++) {
        const struct stage_build *b = lower_param_use_owner(l, 0, u);
        if (!b->plan->hybrid_shard) continue;
        if (lower_zero_of(l, u) && lower_hybrid_part(l, u) > 1) return OK;
        asks = b;
    }
    if (!asks) return OK;
    return lower_error(l, asks, err, ERR_INPUT,
                       "hybrid_shard: copies of these layers are %s; no number above 1 divides the copies of every node. Place equally many on "
                       "each, or leave hybrid_shard out, so that zero shards over all replicas",
                       copies_of(l, asks));
}

static enum status make_part(struct lowering *l, const struct holders *h, int32_t part, struct group_plan plan, const char *name,
                             struct error *err)
{
    struct collective *g = lower_group_new(l, name, ALGORITHM_RING, h->part, plan);
    g->kind = COLLECTIVE_REDUCE_SCATTER;
    for (int32_t i = 0, at = 0; i < h->n; i++)
        if (h->of[i] == part) g->members[at++] = h->member[i];
    lower_zero_flat_params(l, l->p->n_collectives - 1);
    return lower_group_join(l, l->p->n_collectives - 1, err);
}

/* Of the i-th members of all parts. */
static enum status make_between(struct lowering *l, const struct holders *h, int32_t first, int32_t i, struct group_plan plan,
                                const char *name, struct error *err)
{
    struct collective *g = lower_group_new(l, name, ALGORITHM_RING, h->n_parts, plan);
    for (int32_t p = 0; p < h->n_parts; p++) {
        const struct collective *part = &l->p->collectives[first + p];
        g->members[p] = (struct collective_member){.stage = part->members[i].stage, .chain_ring = -1};
    }
    g->elements = l->p->collectives[first].elements / h->part;
    if (plan.code.kind) g->elements = h->n_parts * lower_code_words_between(l, &plan, first);
    TRY(lower_group_choose(l, l->p->n_collectives - 1, err));
    return lower_group_join(l, l->p->n_collectives - 1, err);
}

enum status lower_hybrid_groups(struct lowering *l, struct group_plan plan, int32_t key, const char *name, struct error *err)
{
    struct holders h = holders_of(l, plan.uses[0], key);
    h.part = lower_hybrid_part(l, plan.uses[0]);
    find_parts(l, &h);
    int32_t first = l->p->n_collectives;
    plan.zero = lower_zero_of(l, plan.uses[0]);
    for (int32_t p = 0; p < h.n_parts; p++)
        TRY(make_part(l, &h, p, plan, name, err));
    /* From level 2 on the second use of a tied parameter is added to the first one's shard, which is summed once. */
    if (h.n_parts < 2 || (plan.zero > 1 && lower_zero_group(l, first)->owner_group != first)) return OK;
    plan.between = true;
    plan.code = lower_code(l, false);
    plan.bucketed = plan.bucketed || plan.zero > 1;
    plan.zero = 0;
    name = arena_join(l->a, name, ".between");
    for (int32_t i = 0; i < h.part; i++) TRY(make_between(l, &h, first, i, plan, name, err));
    return OK;
}

void lower_hybrid_segments(const struct stage_scratch *h, int32_t group, struct collective_member *m)
{
    const struct lowering *l = h->l;
    const struct group_plan *plan = lower_group_plan(l, group);
    int32_t use = plan->uses[0], of = lower_group_of_param_use(l, h->b, use).group;
    const struct flat_shard *f = lower_zero_flat_shard(h, of);
    m->n_segments = lower_zero_group(l, of)->n_flat_params;
    m->segments = ARENA_ARRAY(l->a, int32_t, (size_t)m->n_segments);
    for (int32_t k = 0; k < m->n_segments; k++)
        m->segments[k] = plan->outer && f->outer[k][2] >= 0 ? f->outer[k][2] : f->own_gradient[k];
}
