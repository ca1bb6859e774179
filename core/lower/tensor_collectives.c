/* core/lower/tensor_collectives.c - conversions between devices of a stage as collectives: members, links, algorithms.
 *
 * The devices of a group along an axis of the mesh form a team; its links are looked up once for each algorithm that one of its
 * collectives uses. The plan states the algorithm (collectives of core/sharding/sharding.h), or it follows from the sizes of shards.
 */
#include "core/lower/tensor_collectives.h"

#include "core/base/stop.h"
#include "core/collective/rounds.h"
#include "core/lower/groups.h"
#include "core/lower/links.h"
#include "core/lower/param_uses.h"
#include "core/sharding/shard.h"

/* A group's links, in the form of program collectives; NULL if no collective uses that algorithm. */
struct lower_team {
    bool found[COLLECTIVE_ALGORITHM_COUNT];
    int32_t *link, *direction, *pair_link, *pair_direction;
    const int32_t *tier; /* (members) their nodes; NULL: no hierarchical collectives */
};

struct stage_collectives {
    struct lower_team *team[MESH_AXES_MAX]; /* its group along each axis; NULL: no collectives there */
    /* of the stage's first device: */
    int32_t *known;  /* (2, operators, n_shards) group of a collective + 1, see lower_shard_collective */
    bool *algorithms_used; /* (entries of collectives) */
};

/* first: the stage's first device. */
static struct lower_team *team_of(struct lowering *l, struct stage_build *first,
                                  const struct exchange *e)
{
    struct lower_team *t = first[e->member[0]].collectives->team[e->axis];
    size_t n = (size_t)e->n;
    if (t) return t;
    t = ARENA_ARRAY(l->a, struct lower_team, 1);
    for (int32_t i = 0; i < e->n; i++) first[e->member[i]].collectives->team[e->axis] = t;
    t->link = ARENA_ARRAY(l->a, int32_t, n), t->direction = ARENA_ARRAY(l->a, int32_t, n);
    int32_t *node = ARENA_ARRAY(l->a, int32_t, n), *tier = ARENA_ARRAY(l->a, int32_t, n);
    for (int32_t i = 0; i < e->n; i++) {
        t->link[i] = -1;
        node[i] = l->plan->cluster.devices[first[e->member[i]].device].node;
    }
    int32_t each = collective_tiers_of(node, e->n, tier);
    if (each > 1 && each < e->n) t->tier = tier;
    return t;
}

/* The entry of the plan's collectives for the operator; -1: none. */
static int32_t entry_of(const struct stage_build *b, const struct graph_op *op)
{
    const struct lower_team *t = b->collectives->team[op->attrs.exchange->axis];
    return sharding_algorithm_for(b->plan->sharding, op->name, shard_collective_kind(op),
                            op->attrs.exchange->n, t->tier);
}

static struct collective *tensor_collective_of(struct lowering *l, const struct stage_build *b,
                                     const struct graph_op *op)
{
    const int32_t *tier = b->collectives->team[op->attrs.exchange->axis]->tier;
    struct collective *m = shard_collective(l->a, b->v->g, op, b->plan->sharding, tier);
    m->in = ARENA_ARRAY(l->a, int32_t, (size_t)m->n_members);
    m->out = ARENA_ARRAY(l->a, int32_t, (size_t)m->n_members);
    return m;
}

/* The links of a group of devices that its collectives use: m over all members has the same messages. */
static enum status find_links(struct lowering *l, struct stage_build *first,
                              const struct exchange *e, const struct collective *m,
                              struct error *err)
{
    struct lower_team *t = first[e->member[0]].collectives->team[e->axis];
    size_t n = (size_t)e->n;
    bool ring = m->algorithm == ALGORITHM_RING;
    if (t->found[m->algorithm]) return OK;
    t->found[m->algorithm] = true;
    if (!ring && !t->pair_link) {
        t->pair_link = ARENA_ARRAY(l->a, int32_t, n * n);
        t->pair_direction = ARENA_ARRAY(l->a, int32_t, n * n);
        for (size_t i = 0; i < n * n; i++) t->pair_link[i] = -1;
    }
    for (int32_t i = 0; i < e->n * e->n; i++) {
        int32_t from = i / e->n, to = i % e->n;
        if (!collective_sends(m, from, to)) continue;
        TRY(lower_link(l, &first[e->member[from]], &first[e->member[to]],
                       ring ? &t->link[from] : &t->pair_link[i],
                       ring ? &t->direction[from] : &t->pair_direction[i], err));
    }
    return OK;
}

static enum status find_team(struct lowering *l, struct stage_build *first,
                             const struct graph_op *op, struct error *err)
{
    const struct exchange *e = op->attrs.exchange;
    const struct stage_build *b = &first[e->member[0]];
    struct lower_team *t = team_of(l, first, e);
    struct collective m = {.kind = COLLECTIVE_ALL_REDUCE,
                           .algorithm = shard_collective_algorithm(b->plan->sharding, op, t->tier),
                           .n_members = e->n,
                           .whole = {1, {0}},
                           .tier = t->tier};
    if (collective_rounds_of(m.algorithm)->tiers) collective_set_tiers(l->a, &m);
    return find_links(l, first, e, &m, err);
}

/* Error for an entry that applies to no collective of the stage. */
static enum status check_entries(const struct lowering *l, const struct stage_build *first,
                                 const bool *used, struct error *err)
{
    const struct sharding *s = first->plan->sharding;
    for (int32_t k = 0; k < s->n_algorithms; k++) {
        const struct sharding_algorithm *w = &s->algorithms[k];
        const char *text, *name = NULL, *misfit = collective_misfit(w->algorithm, 0, false);
        const struct graph *g = first->v->g;
        if (used[k]) continue;
        for (int32_t i = 0; i < g->n_ops && !name; i++)
            if (op_is_group(g->ops[i].kind) && lower_owns(first, g->ops[i].layer))
                name = g->ops[i].name;
        text = arena_printf(
            l->a,
            "collectives: \"%s\" applies to no collective that supports algorithm %s and that no earlier entry "
            "takes; %s%s%s%s",
            w->match, collective_algorithm_name(w->algorithm),
            misfit ? arena_printf(l->a, "it needs %s; ", misfit) : "",
            name ? "one collective is '" : "this stage has no collectives", name ? name : "", name ? "'" : "");
        if (w->node) return node_error(w->node, err, "%s", text);
        return lower_error(l, first, err, ERR_INPUT, "sharding: %s", text);
    }
    return OK;
}

static void begin_stage(const struct lowering *l, struct stage_build *first)
{
    struct stage_collectives *all = ARENA_ARRAY(l->a, struct stage_collectives, (size_t)first->n_shards);
    for (int32_t k = 0; k < first->n_shards; k++) first[k].collectives = &all[k];
    all->algorithms_used = ARENA_ARRAY(l->a, bool, (size_t)first->plan->sharding->n_algorithms);
}

enum status lower_shard_teams(struct lowering *l, struct error *err)
{
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        struct stage_build *b = &l->stages[i], *first = b - b->shard;
        const struct graph *g = b->v->g;
        const struct sharding *s = b->plan->sharding;
        if (!s) continue;
        TRY(stop_check(err));
        if (b == first) begin_stage(l, first);
        for (int32_t k = 0; k < g->n_ops; k++) {
            if (!op_is_group(g->ops[k].kind) || !lower_owns(b, g->ops[k].layer)) continue;
            TRY(find_team(l, first, &g->ops[k], err));
            int32_t entry = entry_of(b, &g->ops[k]);
            if (entry >= 0) first->collectives->algorithms_used[entry] = true;
        }
        if (b->shard + 1 == b->n_shards)
            TRY(check_entries(l, first, first->collectives->algorithms_used, err));
    }
    return OK;
}

static int32_t new_tensor_collective(struct lowering *l, struct stage_build *b, const struct graph_op *op,
                           const char *name)
{
    const struct exchange *e = op->attrs.exchange;
    const struct lower_team *t = b->collectives->team[e->axis];
    struct collective *m = tensor_collective_of(l, b, op);
    struct collective *g =
        lower_group_new(l, name, m->algorithm, e->n, (struct group_plan){.last_use = -1});
    m->name = name, m->members = g->members, m->link = g->link, m->direction = g->direction;
    *g = *m;
    for (int32_t i = 0; i < e->n; i++)
        g->members[i] =
            (struct collective_member){.stage = b->index - b->shard + e->member[i], .chain_ring = -1};
    if (g->algorithm == ALGORITHM_RING)
        g->link = t->link, g->direction = t->direction;
    else
        for (int32_t i = 0; i < e->n; i++) g->link[i] = -1;
    g->pair_link = g->algorithm == ALGORITHM_RING ? NULL : t->pair_link;
    g->pair_direction = g->algorithm == ALGORITHM_RING ? NULL : t->pair_direction;
    g->each_call = true;
    g->dtype = b->v->g->tensors[op->input[0]].dtype;
    return l->p->n_collectives - 1;
}

int32_t lower_shard_collective(struct lowering *l, struct stage_build *b, int32_t op, bool again,
                            const char *name, int32_t in, int32_t out)
{
    const struct graph *g = b->v->g;
    const struct exchange *e = g->ops[op].attrs.exchange;
    struct stage_build *first = b - b->shard;
    int32_t n_ops = g->n_ops, n = b->n_shards;
    if (!first->collectives->known)
        first->collectives->known = ARENA_ARRAY(l->a, int32_t, 2 * (size_t)n_ops * (size_t)n);
    int32_t *known = &first->collectives->known[((again ? n_ops : 0) + op) * n + e->member[0]];
    if (!*known) *known = 1 + new_tensor_collective(l, b, &g->ops[op], name);
    struct collective *x = &l->p->collectives[*known - 1];
    x->in[e->self] = in, x->out[e->self] = out;
    int64_t staging = collective_tensor_staging_bytes(x, x->dtype);
    if (staging > b->s->buffer_bytes) b->s->buffer_bytes = staging;
    return *known - 1;
}
