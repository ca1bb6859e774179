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

#include <string.h>

/* A group's links, in the form of program collectives; NULL if no collective uses that algorithm. */
struct lower_team {
    int32_t n;
    struct collective_member *members; /* (n) of its collectives in the program */
    bool found[COLLECTIVE_ALGORITHM_COUNT];
    int32_t *link, *direction, *pair_link, *pair_direction;
    int32_t *no_link, *no_direction; /* (members) -1 and 0: links of a collective that is not a ring */
    const int32_t *tier; /* (members) their nodes; NULL: no hierarchical collectives */
};

struct collective_use { /* an operator's collective on this device */
    int32_t known; /* index into known */
    int32_t axis, self, in, out;
    const struct collective *like; /* the collective without its team; in and out: those of all members once the stage is lowered */
};

struct stage_collectives {
    struct lower_team *team[MESH_AXES_MAX]; /* its group along each axis; NULL: no collectives there */
    int32_t n_uses, *used;                  /* (n_uses) collectives, as they were made */
    const struct collective_use *uses;      /* (n_uses) */
    size_t use_capacity, used_capacity;
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
    t = ARENA_ARRAY(l->tables, struct lower_team, 1);
    for (int32_t i = 0; i < e->n; i++) first[e->member[i]].collectives->team[e->axis] = t;
    t->n = e->n;
    t->members = ARENA_ARRAY(l->a, struct collective_member, n);
    for (int32_t i = 0; i < e->n; i++)
        t->members[i] = (struct collective_member){.stage = first[e->member[i]].index, .chain_ring = -1};
    t->link = ARENA_ARRAY(l->a, int32_t, n), t->direction = ARENA_ARRAY(l->a, int32_t, n);
    int32_t *node = ARENA_ARRAY(l->tables, int32_t, n), *tier = ARENA_ARRAY(l->a, int32_t, n);
    t->no_link = ARENA_ARRAY(l->a, int32_t, n), t->no_direction = ARENA_ARRAY(l->a, int32_t, n);
    for (int32_t i = 0; i < e->n; i++) {
        t->link[i] = t->no_link[i] = -1;
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
    struct stage_collectives *all = ARENA_ARRAY(l->tables, struct stage_collectives, (size_t)first->n_shards);
    for (int32_t k = 0; k < first->n_shards; k++) first[k].collectives = &all[k];
    all->algorithms_used = ARENA_ARRAY(l->a, bool, (size_t)first->plan->sharding->n_algorithms);
}

/* The collectives of a view: of stages with it, and of devices on as many nodes, all have the same algorithms. */
struct view_collectives {
    const struct stage_build *of; /* the first stage with the view; NULL: none yet */
    int32_t n,
        *op; /* (n) operators of distinct algorithms and entries of the plan, along each axis */
    size_t capacity;
    int32_t first,
        first_again; /* collectives whose first member the device is; those of the forward, which may run again */
};

static bool new_use(const struct stage_build *b, const struct view_collectives *x,
                    const struct graph_op *op)
{
    const struct sharding *s = b->plan->sharding;
    int32_t axis = op->attrs.exchange->axis;
    const int32_t *tier = b->collectives->team[axis]->tier;
    for (int32_t i = 0; i < x->n; i++) {
        const struct graph_op *known = &b->v->g->ops[x->op[i]];
        if (known->attrs.exchange->axis == axis &&
            shard_collective_algorithm(s, known, tier) == shard_collective_algorithm(s, op, tier) &&
            entry_of(b, known) == entry_of(b, op))
            return false;
    }
    return true;
}

static enum status use_team(struct lowering *l, struct stage_build *b, const struct graph_op *op,
                            struct error *err)
{
    struct stage_build *first = b - b->shard;
    TRY(find_team(l, first, op, err));
    int32_t entry = entry_of(b, op);
    if (entry >= 0) first->collectives->algorithms_used[entry] = true;
    return OK;
}

static enum status all_teams(struct lowering *l, struct stage_build *b, struct view_collectives *x,
                             struct error *err)
{
    const struct graph *g = b->v->g;
    struct view_collectives all = {.of = b};
    for (int32_t k = 0; k < g->n_ops; k++) {
        if (!op_is_group(g->ops[k].kind) || !lower_owns(b, g->ops[k].layer)) continue;
        TRY(use_team(l, b, &g->ops[k], err));
        all.first += g->ops[k].attrs.exchange->self == 0;
        all.first_again += g->ops[k].attrs.exchange->self == 0 && k < g->n_forward;
        if (!new_use(b, &all, &g->ops[k])) continue;
        all.op = arena_grow(l->tables, all.op, (size_t)all.n, &all.capacity, sizeof *all.op);
        all.op[all.n++] = k;
    }
    if (!x->of) *x = all;
    return OK;
}

static enum status teams_of(struct lowering *l, struct stage_build *b, struct view_collectives *x,
                            struct error *err)
{
    if (x->of)
        for (int32_t i = 0; i < x->n; i++)
            team_of(l, b - b->shard, b->v->g->ops[x->op[i]].attrs.exchange);
    if (!x->of || !lower_same_teams(l, x->of, b)) return all_teams(l, b, x, err);
    for (int32_t i = 0; i < x->n; i++) TRY(use_team(l, b, &b->v->g->ops[x->op[i]], err));
    return OK;
}

enum status lower_shard_teams(struct lowering *l, struct error *err)
{
    struct view_collectives *known =
        ARENA_ARRAY(l->tables, struct view_collectives, (size_t)l->uses->n_views);
    l->n_tensor_collectives = 0;
    for (int32_t i = 0; i < l->p->n_stages; i++) {
        struct stage_build *b = &l->stages[i], *first = b - b->shard;
        struct view_collectives *x = &known[b->v - l->uses->views];
        if (!b->plan->sharding) continue;
        TRY(stop_check(err));
        if (b == first) begin_stage(l, first);
        TRY(teams_of(l, b, x, err));
        l->n_tensor_collectives += x->first + (b->plan->recompute ? x->first_again : 0);
        if (b->shard + 1 == b->n_shards)
            TRY(check_entries(l, first, first->collectives->algorithms_used, err));
    }
    return OK;
}

/* Members and links of a new collective are its team's; its operands are those of an equal one (shared), or filled in later. */
static int32_t add_collective(struct lowering *l, const struct lower_team *t,
                              const struct collective *like, bool shared)
{
    bool ring = like->algorithm == ALGORITHM_RING;
    struct group_plan plan = {.like = like, .shares_operands = shared};
    struct collective copy = *like;
    copy.members = t->members;
    copy.link = ring ? t->link : t->no_link, copy.direction = ring ? t->direction : t->no_direction;
    copy.pair_link = ring ? NULL : t->pair_link, copy.pair_direction = ring ? NULL : t->pair_direction;
    *lower_group_add(l, plan) = copy;
    return l->p->n_collectives - 1;
}

static int32_t new_tensor_collective(struct lowering *l, struct stage_build *b, const struct graph_op *op,
                           const char *name)
{
    struct collective *m = tensor_collective_of(l, b, op);
    m->name = name, m->each_call = true;
    m->dtype = b->v->g->tensors[op->input[0]].dtype;
    return add_collective(l, b->collectives->team[op->attrs.exchange->axis], m, false);
}

/* The operands of member `self`. Those of an equal collective are shared until they differ. */
static void set_operands(struct lowering *l, int32_t number, int32_t self, int32_t in, int32_t out)
{
    struct collective *x = &l->p->collectives[number];
    struct group_plan *plan = &l->groups->plans[number];
    size_t bytes = (size_t)x->n_members * sizeof *x->in;
    if (plan->shares_operands) {
        if (x->in[self] == in && x->out[self] == out) return;
        x->in = arena_copy(l->a, x->in, bytes), x->out = arena_copy(l->a, x->out, bytes);
        plan->shares_operands = false;
    }
    x->in[self] = in, x->out[self] = out;
}

static void note_use(struct lowering *l, struct stage_build *b, int32_t number,
                     const struct collective_use *use)
{
    struct stage_collectives *c = b->collectives;
    struct collective_use *uses = (struct collective_use *)(uintptr_t)c->uses; /* its own */
    c->used = arena_grow(l->tables, c->used, (size_t)c->n_uses, &c->used_capacity, sizeof *c->used);
    c->uses = uses = arena_grow(l->tables, uses, (size_t)c->n_uses, &c->use_capacity, sizeof *uses);
    c->used[c->n_uses] = number, uses[c->n_uses++] = *use;
}

/* Devices of a stage are lowered one after the other, so one table serves all stages. */
static int32_t *known_of(struct lowering *l, struct stage_build *b)
{
    struct stage_collectives *first = (b - b->shard)->collectives;
    size_t n = 2 * (size_t)b->v->g->n_ops * (size_t)b->n_shards;
    if (first->known) return first->known;
    if (n > l->groups->known_capacity)
        l->groups->known = ARENA_ARRAY(l->tables, int32_t, l->groups->known_capacity = n);
    else
        memset(l->groups->known, 0, n * sizeof *l->groups->known);
    return first->known = l->groups->known;
}

int32_t lower_shard_collective(struct lowering *l, struct stage_build *b, int32_t op, bool again,
                            const char *name, int32_t in, int32_t out)
{
    const struct graph *g = b->v->g;
    const struct exchange *e = g->ops[op].attrs.exchange;
    struct collective_use use = {((again ? g->n_ops : 0) + op) * b->n_shards + e->member[0], e->axis,
                                 e->self, in, out, NULL};
    int32_t *known = &known_of(l, b)[use.known];
    if (!*known) *known = 1 + new_tensor_collective(l, b, &g->ops[op], name);
    set_operands(l, *known - 1, e->self, in, out);
    const struct collective *x = &l->p->collectives[*known - 1];
    int64_t staging = collective_tensor_staging_bytes(x, x->dtype);
    if (staging > b->s->buffer_bytes) b->s->buffer_bytes = staging;
    use.like = l->groups->plans[*known - 1].like;
    note_use(l, b, *known - 1, &use);
    return *known - 1;
}

/* --- copies --- */

bool lower_same_teams(const struct lowering *l, const struct stage_build *a,
                      const struct stage_build *b)
{
    if (!a->collectives || !b->collectives) return a->collectives == b->collectives;
    (void)l;
    for (int x = 0; x < MESH_AXES_MAX; x++) {
        const struct lower_team *t = a->collectives->team[x], *u = b->collectives->team[x];
        if (!t || !u) {
            if (t != u) return false;
            continue;
        }
        if (t->n != u->n || !t->tier != !u->tier ||
            (t->tier && memcmp(t->tier, u->tier, (size_t)t->n * sizeof *t->tier) != 0))
            return false;
    }
    return true;
}

const int32_t *lower_team_tiers(const struct stage_build *b, int32_t axis, int32_t *n)
{
    const struct lower_team *t = b->collectives ? b->collectives->team[axis] : NULL;
    *n = t ? t->n : 0;
    return t ? t->tier : NULL;
}

int32_t *lower_collectives_of(const struct stage_build *b, int32_t *n)
{
    *n = b->collectives ? b->collectives->n_uses : 0;
    return b->collectives ? b->collectives->used : NULL;
}

struct kept_collectives lower_keep_collectives(struct arena *a, const struct stage_build *b)
{
    const struct stage_collectives *c = b->collectives;
    int32_t n = c ? c->n_uses : 0;
    return (struct kept_collectives){n, n ? arena_copy(a, c->uses, (size_t)n * sizeof *c->uses) : NULL};
}

void lower_copy_collectives(struct lowering *l, const struct kept_collectives *kept, struct stage_build *b)
{
    struct stage_collectives *c = b->collectives;
    if (!kept->n) return;
    c->n_uses = kept->n, c->uses = kept->uses;
    c->used = ARENA_ARRAY(l->tables, int32_t, (size_t)kept->n);
    int32_t *all = known_of(l, b);
    for (int32_t i = 0; i < kept->n; i++) {
        const struct collective_use *use = &kept->uses[i];
        int32_t *known = &all[use->known];
        if (!*known) *known = 1 + add_collective(l, c->team[use->axis], use->like, true);
        set_operands(l, *known - 1, use->self, use->in, use->out);
        c->used[i] = *known - 1;
    }
}
