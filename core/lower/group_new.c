/* core/lower/group_new.c - a collective of segments under construction: its place, the type of its messages, its links. */
#include "core/lower/groups.h"
#include "core/lower/links.h"

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
    bool exact = algorithm == ALGORITHM_CHAIN || x->overflow || l->plan->deterministic || x->factor;
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

/* Links of a ring go around; those of a chain go forth and back, and never from the last to the
 * first. */
static enum status join_links(struct lowering *l, struct collective *g, struct error *err)
{
    int32_t n = g->n_members;
    for (int32_t i = 0; i < n; i++) g->link[i] = -1;
    if (g->algorithm == ALGORITHM_LOCAL) return OK;
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
    return false;
}

enum status lower_group_join(struct lowering *l, int32_t group, struct error *err)
{
    TRY(join_links(l, &l->p->collectives[group], err));
    if (is_awaited(l, &l->p->collectives[group])) l->groups->plans[group].bucketed = false;
    return OK;
}
