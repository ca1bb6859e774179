/* Rates if bottlenecks stay: most changes only move the levels of groups, so routes need no inspection.
 *
 * The groups that a change reaches are found as in flows_share.c. If every route keeps its bottleneck, the level of each
 * group follows from its capacity and from the levels of lower groups whose flows cross it. These levels are the max-min
 * ones if and only if no resource carries more than its capacity and no flow crosses a group of a lower level than its own; this
 * is checked, and if it does not hold the search by routes decides.
 * A new route gets the bottleneck with the lowest estimated level.
 * Cost: O(crossings of the groups reached).
 */
#include "sim/network/flows_internal.h"

enum { GROUPS_MAX = 64 }; /* above it the search by routes is as fast */

struct keeping {
    struct flows *f;
    int32_t n, groups[GROUPS_MAX]; /* by level before the change */
    bool failed;
};

static double load_of(const struct flows *f, const struct flow_resource *x, int32_t but)
{
    double load = 0;
    for (int32_t i = 0; i < x->n_crossings; i++)
        if (x->crossings[i].group != but)
            load += f->resources[x->crossings[i].group].new_level * (double)x->crossings[i].n_flows;
    return load;
}

static void reach_group(struct keeping *k, int32_t group)
{
    struct flow_resource *g = &k->f->resources[group];
    if (g->opened == k->f->search) return;
    if (k->n == GROUPS_MAX || !g->tracked) {
        k->failed = true;
        return;
    }
    g->opened = k->f->search;
    g->served_bytes = flows_served(g, k->f->now_ns);
    g->since_ns = k->f->now_ns;
    k->groups[k->n++] = group;
}

/* Estimated level of a new route on a resource. */
static double promise(const struct flows *f, const struct flow_resource *x, int64_t n_flows)
{
    double left = x->capacity_Bpns;
    int64_t same = 0;
    for (int32_t i = 0; i < x->n_crossings; i++) {
        const struct flow_resource *g = &f->resources[x->crossings[i].group];
        if (g == x)
            same = x->crossings[i].n_flows;
        else
            left -= g->level_Bpns * (double)x->crossings[i].n_flows;
    }
    double share = left / (double)(n_flows + same), equal = x->capacity_Bpns / (double)x->n_flows;
    return share > equal ? share : equal;
}

static void give_home(struct keeping *k, int32_t route)
{
    struct flows *f = k->f;
    struct flow_route *r = &f->routes[route];
    int32_t best = -1;
    double least = INFINITY;
    for (int32_t i = 0; i < r->n_resources; i++) {
        const struct flow_resource *x = &f->resources[r->resources[i]];
        if (!x->tracked) continue;
        double share = promise(f, x, (int64_t)r->n_flows * flows_weight(r, i));
        if (share < least) least = share, best = r->resources[i];
    }
    struct flow_resource *g = &f->resources[best];
    if (g->n_members)
        reach_group(k, best);
    else
        g->level_Bpns = g->new_level = least;
    if (k->failed) return;
    flows_join_group(f, route, best);
    reach_group(k, best);
}

static void reach_all(struct keeping *k)
{
    struct flows *f = k->f;
    for (int32_t i = 0; i < f->n_fresh && !k->failed; i++) {
        struct flow_route *r = &f->routes[f->fresh[i]];
        if (!r->n_flows) continue;
        if (r->group < 0)
            give_home(k, f->fresh[i]);
        else
            reach_group(k, r->group);
    }
    for (int32_t i = 0; i < f->n_dirty && !k->failed; i++)
        if (f->resources[f->dirty[i]].n_members) reach_group(k, f->dirty[i]);
    for (int32_t i = 0; i < k->n && !k->failed; i++) {
        const struct flow_resource *g = &f->resources[k->groups[i]];
        for (int32_t j = 0; j < g->n_reach && !k->failed; j++)
            if (f->resources[g->reach[j].resource].n_members) reach_group(k, g->reach[j].resource);
    }
}

static void sort_by_level(struct keeping *k)
{
    const struct flow_resource *r = k->f->resources;
    for (int32_t i = 1; i < k->n; i++) {
        int32_t x = k->groups[i], hole = i;
        for (; hole && r[k->groups[hole - 1]].level_Bpns > r[x].level_Bpns; hole--)
            k->groups[hole] = k->groups[hole - 1];
        k->groups[hole] = x;
    }
}

static bool find_levels(struct keeping *k)
{
    struct flows *f = k->f;
    for (int32_t i = 0; i < k->n; i++) f->resources[k->groups[i]].new_level = -1;
    for (int32_t i = 0; i < k->n; i++) {
        struct flow_resource *g = &f->resources[k->groups[i]];
        double left = g->capacity_Bpns;
        int64_t own = 0;
        for (int32_t j = 0; j < g->n_crossings; j++) {
            const struct flow_resource *other = &f->resources[g->crossings[j].group];
            if (other == g)
                own = g->crossings[j].n_flows;
            else if (other->new_level < 0)
                return false; /* two groups depend on each other */
            else
                left -= other->new_level * (double)g->crossings[j].n_flows;
        }
        if (!(left > 0)) return false;
        g->new_level = left / (double)own;
    }
    return true;
}

static bool holds(struct keeping *k)
{
    struct flows *f = k->f;
    for (int32_t i = 0; i < k->n; i++) {
        struct flow_resource *g = &f->resources[k->groups[i]];
        for (int32_t j = 0; j < g->n_crossings; j++)
            if (f->resources[g->crossings[j].group].new_level > g->new_level * FLOWS_SAME)
                return false;
        for (int32_t j = 0; j < g->n_reach; j++) {
            struct flow_resource *x = &f->resources[g->reach[j].resource];
            if (x->touched == f->search) continue;
            x->touched = f->search;
            if (load_of(f, x, -1) > x->capacity_Bpns * FLOWS_SAME) return false;
        }
    }
    return true;
}

bool flows_keep(struct flows *f)
{
    struct keeping k = {.f = f};
    f->search++;
    reach_all(&k);
    if (k.failed) return false;
    sort_by_level(&k);
    if (!find_levels(&k) || !holds(&k)) {
        for (int32_t i = 0; i < k.n; i++)
            f->resources[k.groups[i]].new_level = f->resources[k.groups[i]].level_Bpns;
        return false;
    }
    for (int32_t i = 0; i < k.n; i++) {
        struct flow_resource *g = &f->resources[k.groups[i]];
        g->level_Bpns = g->new_level;
        flows_new_end(f, k.groups[i]);
    }
    for (int32_t i = 0; i < f->n_fresh; i++) f->routes[f->fresh[i]].listed = false;
    for (int32_t i = 0; i < f->n_dirty; i++) f->resources[f->dirty[i]].listed = false;
    f->n_fresh = f->n_dirty = 0;
    return true;
}
