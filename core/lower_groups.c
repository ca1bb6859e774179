/* core/lower_groups.c - which gradients are summed by whom, and in what order everybody meets.
 *
 * A unit is one use of one parameter. Units stand in one order for the whole plan (layer of the
 * use, parameter, use). Where neighbours are owned by the same stages in every replica they form an
 * interval: the common refinement of the replicas' cuts. Intervals are cut into buckets from the
 * back, as backward completes them. Groups are numbered in that order, tied exchanges last, and
 * every device launches its groups by ascending number: so no two can meet them in different
 * orders. Tied parameters: each use is summed over the replicas first; then, inside each replica,
 * the two owners add theirs up (two addends: the order does not matter), across a link or within their common device, or
 * the one owner does so alone.
 */
#include "core/lower_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Layer and use are the same in every view. */
static const struct unit *unit_at(const struct lowering *l, int32_t unit)
{
    return &l->views[0].units[unit];
}

/* Of several devices the first. */
static int32_t owner(const struct lowering *l, int32_t replica, int32_t layer)
{
    return l->stage_of_layer[replica * l->n_layers + layer];
}

static const struct stage_build *unit_owner(const struct lowering *l, int32_t replica, int32_t unit)
{
    return &l->stages[owner(l, replica, unit_at(l, unit)->layer)];
}

static bool same_owners(const struct lowering *l, int32_t unit, int32_t other)
{
    for (int32_t r = 0; r < l->plan->n_replicas; r++)
        if (unit_owner(l, r, unit) != unit_owner(l, r, other)) return false;
    return true;
}

/* One device that owns it alone sums nothing, unless its gradients are kept apart and still to be added in
 * order. */
static bool needs_group(const struct lowering *l, int32_t unit)
{
    const struct stage_build *first = unit_owner(l, 0, unit);
    return l->plan->n_replicas > 1 || first->n_shards > 1 || first->apart;
}

static int64_t interval_bucket(const struct lowering *l, int32_t unit)
{
    int64_t least = 0;
    for (int32_t r = 0; r < l->plan->n_replicas; r++) {
        int64_t bytes = unit_owner(l, r, unit)->plan->bucket_bytes;
        if (bytes > 0 && (!least || bytes < least)) least = bytes;
    }
    return least;
}

/* Of what one card of the stage holds. */
static int64_t elements_on(const struct stage_build *b, int32_t unit)
{
    return shape_elements(&b->v->g->tensors[b->v->units[unit].gradient].shape);
}

/* The larger of the largest share so far (-1: none) and what any device of a stage holds. */
static int64_t largest_share(const struct lowering *l, const struct stage_build *first,
                             int32_t unit, int64_t most)
{
    for (int32_t k = 0; k < first->n_shards; k++) {
        int64_t n = elements_on(first + k, unit);
        if (most >= 0 && n != most) l->p->uneven = true;
        most = n > most ? n : most;
    }
    return most;
}

/* Cards that hold equal shares are the rule, and one way to compute makes nothing else. */
static int64_t unit_elements(const struct lowering *l, int32_t unit)
{
    if (l->n_views == 1) return elements_on(unit_owner(l, 0, unit), unit);
    int64_t most = -1;
    for (int32_t r = 0; r < l->plan->n_replicas; r++)
        most = largest_share(l, unit_owner(l, r, unit), unit, most);
    return most;
}

static int64_t unit_bytes(const struct lowering *l, int32_t unit)
{
    const struct lower_view *v = unit_owner(l, 0, unit)->v;
    return unit_elements(l, unit) * dtype_bytes(v->g->tensors[v->units[unit].gradient].dtype);
}

struct group_maker {
    struct lowering *l;
    size_t group_capacity, plan_capacity;
    struct error *err;
};

static struct group *new_group(struct group_maker *m, const char *name,
                               enum group_algorithm algorithm, int32_t n, struct group_plan plan)
{
    struct lowering *l = m->l;
    struct program *p = l->p;
    p->groups =
        arena_grow(l->a, p->groups, (size_t)p->n_groups, &m->group_capacity, sizeof *p->groups);
    l->group_plans = arena_grow(l->a, l->group_plans, (size_t)p->n_groups, &m->plan_capacity,
                                sizeof *l->group_plans);
    l->group_plans[p->n_groups] = plan;
    struct group *g = &p->groups[p->n_groups++];
    *g = (struct group){.name = name, .algorithm = algorithm, .n_members = n, .dtype = l->p->dtype};
    g->members = ARENA_ARRAY(l->a, struct group_member, (size_t)n);
    g->link = ARENA_ARRAY(l->a, int32_t, (size_t)n),
    g->direction = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    if (algorithm == GROUP_CHAIN)
        g->back_link = ARENA_ARRAY(l->a, int32_t, (size_t)n),
        g->back_direction = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    return g;
}

/* Links of a ring go around; those of a chain go there and back and never from the last to the
 * first. */
static enum status link_members(struct lowering *l, struct group *g, struct error *err)
{
    int32_t n = g->n_members;
    for (int32_t i = 0; i < n; i++) g->link[i] = -1;
    if (g->algorithm == GROUP_LOCAL) return OK;
    for (int32_t i = 0; i < n; i++) {
        const struct stage_build *self = &l->stages[g->members[i].stage];
        bool chain = g->algorithm == GROUP_CHAIN;
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

/* A stage of the plan, on all its devices. */
static int32_t add_members(const struct stage_build *first, struct group *g, int32_t n)
{
    for (int32_t k = 0; k < first->n_shards; k++)
        g->members[n++] = (struct group_member){.stage = first->index + k, .apart = -1};
    return n;
}

static enum status make_bucket(struct group_maker *m, int32_t first, int32_t last, int32_t number,
                               bool bucketed, const char *interval)
{
    struct lowering *l = m->l;
    int32_t n = 0, at = 0;
    for (int32_t r = 0; r < l->plan->n_replicas; r++) n += unit_owner(l, r, first)->n_shards;
    struct group *g = new_group(m, arena_printf(l->a, "%s#%" PRId32, interval, number),
                                l->plan->deterministic ? GROUP_CHAIN : GROUP_RING, n,
                                (struct group_plan){first, last, bucketed, false});
    for (int32_t r = 0; r < l->plan->n_replicas; r++)
        at = add_members(unit_owner(l, r, first), g, at);
    for (int32_t u = first; u <= last; u++) g->elements += unit_elements(l, u);
    return link_members(l, g, m->err);
}

static enum status make_interval(struct group_maker *m, int32_t first, int32_t last)
{
    const struct lowering *l = m->l;
    const char *name = arena_printf(l->a, "grad[%" PRId32 "..%" PRId32 "]", first, last);
    int64_t bucket = interval_bucket(l, first), bytes = 0;
    int32_t number = 0, end = last;
    for (int32_t u = last; u >= first; u--) {
        bytes += unit_bytes(l, u);
        if (u > first && (!bucket || bytes < bucket)) continue;
        TRY(make_bucket(m, u, end, number++, bucket > 0, name));
        end = u - 1, bytes = 0;
    }
    return OK;
}

/* Every device of the one stage, and every one of the other, holds that use's whole sum. Of each stage the first
 * brings it, the others have cleared theirs (lower_procedures.c), and all get both. */
static enum status exchange_far(struct group_maker *m, const char *name, struct group_plan plan,
                                const struct stage_build *a, const struct stage_build *b)
{
    struct lowering *l = m->l;
    struct group *g = new_group(m, name, GROUP_RING, a->n_shards + b->n_shards, plan);
    add_members(b, g, add_members(a, g, 0));
    g->elements = largest_share(l, b, plan.last_unit, largest_share(l, a, plan.first_unit, -1));
    return link_members(l, g, m->err);
}

/* On devices that have both, each for itself. */
static void exchange_local(struct group_maker *m, const char *name, struct group_plan plan,
                           const struct stage_build *a, const struct stage_build *b)
{
    for (int32_t k = 0; k < a->n_shards; k++) {
        const char *own = a->n_shards > 1 ? arena_printf(m->l->a, "%s.%" PRId32, name, k) : name;
        struct group *g = new_group(m, own, GROUP_LOCAL, 2, plan);
        g->members[0] = (struct group_member){.stage = a->index + k, .apart = -1};
        g->members[1] = (struct group_member){.stage = b->index + k, .apart = -1};
        g->elements = elements_on(a + k, plan.first_unit);
        for (int32_t i = 0; i < 2; i++) g->link[i] = -1;
    }
}

static enum status make_exchange(struct group_maker *m, int32_t replica, int32_t first,
                                 int32_t second)
{
    struct lowering *l = m->l;
    const struct stage_build *a = unit_owner(l, replica, first),
                             *b = unit_owner(l, replica, second);
    if (a == b) return OK;
    const struct tensor *t = &a->v->g->tensors[a->v->units[first].parameter];
    const char *name = arena_printf(l->a, "tied[%s]@%" PRId32, t->name, replica);
    struct group_plan plan = {first, second, false, true};
    if (a->s->device != b->s->device) return exchange_far(m, name, plan, a, b);
    exchange_local(m, name, plan, a, b);
    return OK;
}

static void tell_members(struct lowering *l)
{
    const struct program *p = l->p;
    for (int32_t i = 0; i < p->n_groups; i++)
        for (int32_t k = 0; k < p->groups[i].n_members; k++)
            l->stages[p->groups[i].members[k].stage].n_groups++;
    for (int32_t s = 0; s < p->n_stages; s++) {
        l->stages[s].groups = ARENA_ARRAY(l->a, int32_t, (size_t)l->stages[s].n_groups);
        l->stages[s].n_groups = 0;
    }
    for (int32_t i = 0; i < p->n_groups; i++)
        for (int32_t k = 0; k < p->groups[i].n_members; k++) {
            struct stage_build *b = &l->stages[p->groups[i].members[k].stage];
            b->groups[b->n_groups++] = i;
        }
}

enum status lower_groups(struct lowering *l, struct error *err)
{
    struct group_maker m = {.l = l, .err = err};
    for (int32_t last = l->n_units - 1, first; last >= 0; last = first - 1) {
        for (first = last; first > 0 && same_owners(l, first - 1, last);) first--;
        if (needs_group(l, last)) TRY(make_interval(&m, first, last));
    }
    for (int32_t u = 0; u < l->n_units; u++)
        if (unit_at(l, u)->use == 1)
            for (int32_t r = 0; r < l->plan->n_replicas; r++)
                TRY(make_exchange(&m, r, l->views[0].use_unit[2 * unit_at(l, u)->parameter], u));
    tell_members(l);
    return OK;
}

/* --- who launches them --- */

/* The stage of a device that is a member of the group. */
static const struct stage_build *member_on(const struct lowering *l, const struct group *g,
                                           int32_t device)
{
    for (int32_t k = 0; k < g->n_members; k++)
        if (l->stages[g->members[k].stage].s->device == device)
            return &l->stages[g->members[k].stage];
    return NULL;
}

static int by_number(const void *x, const void *y)
{
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return (a > b) - (a < b);
}

/* Groups of a device, without the tied ones, by ascending number. */
static int32_t lane_groups(const struct lowering *l, const struct lane_build *lane, int32_t **out)
{
    int32_t n = 0;
    for (int32_t c = 0; c < lane->n_stages; c++) n += l->stages[lane->stages[c]].n_groups;
    *out = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    n = 0;
    for (int32_t c = 0; c < lane->n_stages; c++) {
        const struct stage_build *b = &l->stages[lane->stages[c]];
        for (int32_t i = 0; i < b->n_groups; i++)
            if (!l->group_plans[b->groups[i]].tied) (*out)[n++] = b->groups[i];
    }
    qsort(*out, (size_t)n, sizeof **out, by_number);
    return n;
}

/* Each chunk's last weight gradients may launch its groups, but never one before a group of lower number: a chunk that
 * is ready too early leaves its launch to the chunk that is ready next. */
void lower_launches(struct lowering *l)
{
    for (int32_t k = 0; k < l->p->n_devices; k++) {
        const struct lane_build *lane = &l->lanes[k];
        int32_t *groups, n = lane_groups(l, lane, &groups);
        struct stage_build *at = NULL;
        for (int32_t i = 0; i < n; i++) {
            const struct stage_build *b = member_on(l, &l->p->groups[groups[i]], k);
            if (!at || b->last_weight > at->last_weight) at = &l->stages[b->index];
            if (!at->launches) at->launches = ARENA_ARRAY(l->a, int32_t, (size_t)n);
            at->launches[at->n_launches++] = groups[i];
        }
    }
}

/* Updates come by descending chunk. */
bool lower_exchanged_before(const struct lowering *l, const struct stage_build *b, int32_t group)
{
    const struct group *g = &l->p->groups[group];
    for (int32_t k = 0; g->algorithm == GROUP_LOCAL && k < g->n_members; k++)
        if (l->stages[g->members[k].stage].chunk > b->chunk) return true;
    return false;
}

int32_t lower_group_of_unit(const struct lowering *l, const struct stage_build *b, int32_t unit)
{
    for (int32_t i = 0; i < b->n_groups; i++) {
        const struct group_plan *g = &l->group_plans[b->groups[i]];
        if (!g->tied && unit >= g->first_unit && unit <= g->last_unit) return b->groups[i];
    }
    return -1;
}

static void segments_of(struct lowering *l, const struct stage_build *b, int32_t group,
                        struct group_member *m)
{
    const struct group_plan *plan = &l->group_plans[group];
    int32_t n = plan->tied ? 1 : plan->last_unit - plan->first_unit + 1;
    m->segments = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    m->n_segments = n;
    if (plan->tied) {
        m->segments[0] =
            l->sum_slot[lower_owns(b, unit_at(l, plan->first_unit)->layer) ? plan->first_unit
                                                                           : plan->last_unit];
        return;
    }
    for (int32_t i = 0; i < n; i++) m->segments[i] = l->sum_slot[plan->first_unit + i];
    if (!b->apart) return;
    m->apart_segments = ARENA_ARRAY(l->a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) m->apart_segments[i] = l->apart_slot[plan->first_unit + i];
    m->apart = b->s->slots[m->apart_segments[0]].ring;
}

/* One collective runs at a time, so the largest staging area serves all. */
void lower_group_segments(struct lowering *l, struct stage_build *b)
{
    for (int32_t i = 0; i < b->n_groups; i++) {
        struct group *g = &l->p->groups[b->groups[i]];
        for (int32_t k = 0; k < g->n_members; k++) {
            if (g->members[k].stage != b->index) continue;
            segments_of(l, b, b->groups[i], &g->members[k]);
            int64_t bytes = group_staging_bytes(g, &g->members[k], b->s);
            if (bytes > b->s->buffer_bytes) b->s->buffer_bytes = bytes;
        }
    }
}
