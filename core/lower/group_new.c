/* core/lower/group_new.c - a collective of segments under construction: its place, the type of its messages, its links. */
#include "core/collective/rounds.h"
#include "core/lower/groups.h"
#include "core/lower/links.h"
#include "core/lower/param_uses.h"

#include <inttypes.h>

#include <string.h>

struct collective *lower_group_add(struct lowering *l, struct group_plan plan)
{
    struct program *p = l->p;
    p->collectives = arena_grow(l->a, p->collectives, (size_t)p->n_collectives, &l->groups->group_capacity,
                           sizeof *p->collectives);
    l->groups->plans = arena_grow(l->tables, l->groups->plans, (size_t)p->n_collectives,
                                  &l->groups->plan_capacity, sizeof *l->groups->plans);
    l->groups->plans[p->n_collectives] = plan;
    return &p->collectives[p->n_collectives++];
}


void lower_group_reserve(struct lowering *l, int32_t more)
{
    struct program *p = l->p;
    struct lower_groups *g = l->groups;
    size_t n = (size_t)p->n_collectives, all = n + (size_t)more;
    struct collective *collectives = ARENA_ARRAY(l->a, struct collective, all);
    struct group_plan *plans = ARENA_ARRAY(l->tables, struct group_plan, all);
    if (n) memcpy(collectives, p->collectives, n * sizeof *collectives);
    if (n) memcpy(plans, g->plans, n * sizeof *plans);
    p->collectives = collectives, g->plans = plans;
    g->group_capacity = g->plan_capacity = all;
}

/* Of messages. A deterministic plan's gradient all-reduces have equal bits for every route, because none is rounded in flight. */
static enum dtype dtype_of(const struct lowering *l, enum collective_algorithm algorithm, const struct group_plan *x)
{
    static const enum dtype half[] = {[COMPRESSION_BF16] = DTYPE_bf16, [COMPRESSION_FP16] = DTYPE_fp16};
    const struct plan_compression *c = &l->plan->compression;
    enum compression by = x->outer ? c->outer.kind : c->gradients.kind;
    bool exact = algorithm == ALGORITHM_CHAIN || x->agrees || l->plan->deterministic || x->factor;
    bool rounds = (by == COMPRESSION_BF16 || by == COMPRESSION_FP16) && (!c->gradients.between || x->outer || x->between);
    if (x->code.kind) return DTYPE_int32;
    if (exact) return dtype_master(l->p->dtype);
    return rounds && x->n_uses && !x->tied ? half[by] : l->p->dtype;
}

struct collective *lower_group_new(struct lowering *l, const char *name,
                                   enum collective_algorithm algorithm, int32_t n,
                                   struct group_plan plan)
{
    struct collective *g = lower_group_add(l, plan);
    *g = (struct collective){.name = name,
                             .kind = plan.code.kind ? COLLECTIVE_ALL_GATHER : COLLECTIVE_ALL_REDUCE,
                             .algorithm = algorithm,
                             .n_members = n,
                             /* local SGD exchanges tied parameters in the update and again in the outer one */
                             .repeated = plan.outer || (plan.tied && plan_islands(l->plan) > 1),
                             .dtype = dtype_of(l, algorithm, &plan)};
    g->members = ARENA_ARRAY(l->a, struct collective_member, (size_t)n);
    g->link = ARENA_ARRAY(l->a, int32_t, (size_t)n),
    g->direction = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    if (algorithm == ALGORITHM_CHAIN)
        g->back_link = ARENA_ARRAY(l->a, int32_t, (size_t)n),
        g->back_direction = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    return g;
}

/* --- rounds --- */

struct known_pairs { /* links of the messages among these devices */
    enum collective_algorithm algorithm;
    int32_t n, *device;        /* (n) */
    int32_t *link, *direction; /* (n, n) */
    struct known_pairs *next;
};

static bool same_pairs(const struct known_pairs *x, const struct collective *g, const int32_t *device)
{
    size_t bytes = (size_t)g->n_members * sizeof *device;
    return x->algorithm == g->algorithm && x->n == g->n_members && !memcmp(x->device, device, bytes);
}

/* The buckets of one stage share them. */
static enum status join_pairs(struct lowering *l, struct collective *g, struct error *err)
{
    size_t n = (size_t)g->n_members;
    int32_t *device = ARENA_ARRAY(l->tables, int32_t, n);
    struct known_pairs *x = l->groups->pairs;
    for (size_t i = 0; i < n; i++) device[i] = l->stages[g->members[i].stage].device;
    while (x && !same_pairs(x, g, device)) x = x->next;
    if (!x) {
        x = ARENA_ARRAY(l->tables, struct known_pairs, 1);
        *x = (struct known_pairs){.algorithm = g->algorithm, .n = g->n_members, .device = device, .next = l->groups->pairs};
        x->link = ARENA_ARRAY(l->a, int32_t, n * n), x->direction = ARENA_ARRAY(l->a, int32_t, n * n);
        for (size_t i = 0; i < n * n; i++) {
            int32_t from = (int32_t)(i / n), to = (int32_t)(i % n);
            x->link[i] = -1;
            if (collective_sends(g, from, to))
                TRY(lower_link(l, &l->stages[g->members[from].stage], &l->stages[g->members[to].stage], &x->link[i],
                               &x->direction[i], err));
        }
        l->groups->pairs = x;
    }
    g->pair_link = x->link, g->pair_direction = x->direction;
    return OK;
}

/* Of the nodes of its members; NULL: not equally many on each of several. */
static int32_t *tiers_of(const struct lowering *l, const struct collective *g)
{
    int32_t n = g->n_members, *node = ARENA_ARRAY(l->tables, int32_t, (size_t)n), *tier = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) node[i] = l->plan->cluster.devices[l->stages[g->members[i].stage].device].node;
    int32_t each = collective_tiers_of(node, n, tier);
    return each > 1 && each < n ? tier : NULL;
}

enum status lower_group_choose(struct lowering *l, int32_t group, struct error *err)
{
    struct collective *g = &l->p->collectives[group];
    int32_t use = l->groups->plans[group].uses[0];
    const struct stage_build *first = lower_param_use_owner(l, 0, use);
    enum collective_algorithm w = first->plan->all_reduce;
    for (int32_t r = 1; r < l->plan->n_replicas; r++) {
        const struct stage_build *b = lower_param_use_owner(l, r, use);
        if (b->plan->all_reduce != w)
            return lower_error(l, b, err, ERR_INPUT,
                               "all_reduce: %s, but replicas[%" PRId32 "].stages[%" PRId32 "], which holds the same layers, has %s",
                               collective_algorithm_name(b->plan->all_reduce), first->replica, first->stage,
                               collective_algorithm_name(w));
    }
    if (w == ALGORITHM_RING || g->algorithm != ALGORITHM_RING || g->kind != COLLECTIVE_ALL_REDUCE) return OK;
    if (g->n_members > COLLECTIVE_ROUNDS_MEMBERS)
        return lower_error(l, first, err, ERR_INPUT, "all_reduce: %s is for at most %d devices, not %" PRId32 "; leave it out for ring",
                           collective_algorithm_name(w), (int)COLLECTIVE_ROUNDS_MEMBERS, g->n_members);
    bool tiers = collective_rounds_of(w)->tiers;
    const int32_t *tier = tiers ? tiers_of(l, g) : NULL;
    if (g->n_members < 2 || collective_misfit(w, g->n_members, tier != NULL)) return OK;
    g->algorithm = w, g->tier = tier;
    if (tiers) collective_set_tiers(l->a, g);
    g->most = collective_max(g);
    l->groups->in_rounds = true;
    return OK;
}

enum status lower_groups_check_rounds(const struct lowering *l, struct error *err)
{
    for (int32_t s = 0; s < l->p->n_stages && !l->groups->in_rounds; s++) {
        const struct stage_build *b = &l->stages[s];
        if (b->plan->all_reduce == ALGORITHM_RING) continue;
        const char *misfit = collective_misfit(b->plan->all_reduce, 0, false);
        return lower_error(l, b, err, ERR_INPUT,
                           "all_reduce: no gradient all-reduce of the plan can be %s; it takes place between two or more devices%s%s, "
                           "in every step, without deterministic, codes, zero (but between the nodes of hybrid_shard), parameter_server and shards that differ between replicas; remove all_reduce",
                           collective_algorithm_name(b->plan->all_reduce), misfit ? ", " : "", misfit ? misfit : "");
    }
    return OK;
}

/* --- links --- */

/* Links of a ring go around; those of a chain go forth and back, and never from the last to the
 * first. */
static enum status join_links(struct lowering *l, struct collective *g, struct error *err)
{
    int32_t n = g->n_members;
    for (int32_t i = 0; i < n; i++) g->link[i] = -1;
    if (g->algorithm == ALGORITHM_LOCAL) return OK;
    if (program_collective_in_rounds(g)) return join_pairs(l, g, err);
    for (int32_t i = 0; i < n; i++) {
        const struct stage_build *self = &l->stages[g->members[i].stage];
        bool chain = g->algorithm == ALGORITHM_CHAIN;
        if (n > 1 && !(chain && i == n - 1))
            TRY(lower_link(l, self, &l->stages[g->members[(i + 1) % n].stage], &g->link[i],
                           &g->direction[i], err));
        if (!chain) continue;
        g->back_link[i] = -1;
        if (i > 0)
            TRY(lower_link(l, self, &l->stages[g->members[i - 1].stage], &g->back_link[i],
                           &g->back_direction[i], err));
    }
    return OK;
}

/* Whether compute streams wait for the group's links, so that it cannot overlap with computation. */
static bool is_awaited(const struct lowering *l, const struct collective *g)
{
    for (int32_t i = 0; i < g->n_members; i++)
        if (g->link[i] >= 0 && lower_blocking(l, g->link[i])) return true;
    for (int32_t i = 0; g->pair_link && i < g->n_members * g->n_members; i++)
        if (g->pair_link[i] >= 0 && lower_blocking(l, g->pair_link[i])) return true;
    return false;
}

enum status lower_group_join(struct lowering *l, int32_t group, struct error *err)
{
    TRY(join_links(l, &l->p->collectives[group], err));
    if (is_awaited(l, &l->p->collectives[group])) l->groups->plans[group].bucketed = false;
    return OK;
}
