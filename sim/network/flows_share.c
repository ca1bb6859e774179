/* Many flows: the search for rates after a change.
 *
 * Which rates can change? A group's level depends on the capacity left by routes that cross it and have a lower rate elsewhere.
 * A change of a group therefore affects its routes, and through them the groups on their resources, whose levels are at
 * least as high, because a route has its bottleneck at its lowest level. All lower levels stay, and so does
 * everything that shares no full resource with the change. Beginning with the changed groups and routes, everything
 * reachable in this way is *taken*, and its rates are found by progressive filling, with the others as given.
 * Filling: the resource with the smallest share (capacity left ÷ flows without a rate) is the bottleneck of all those flows;
 * they get that rate, it is subtracted from their other resources, and so on. Shares never decrease.
 * A bottleneck may end up lower than the rate of a route that was not taken. That route is then taken too, and the filling is
 * repeated. The taken set only grows, so this terminates; in the end each route has a bottleneck, the taken ones by filling,
 * the others as before.
 *
 * A resource whose routes could not fill it even at the rate of their narrowest resources (demand <= capacity) is
 * never a bottleneck and is skipped. Instead each route has a *cap*, its narrowest resource. In a tree with
 * many links most resources are of that kind.
 *
 * Cost: O(T · resources of a route + B log B) for T routes taken and B contended resources on them.
 */
#include "sim/network/flows_internal.h"

enum { SCAN_MAX = 24 }; /* up to this number bounds are scanned, above it they are a heap */

static void take_route(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    if (r->taken == f->search) return;
    r->taken = f->search;
    f->taken[f->n_taken++] = route;
}

static void open_group(struct flows *f, struct flow_resource *g)
{
    if (g->opened == f->search || !g->n_members) return;
    g->opened = f->search;
    g->served_bytes = flows_served(g, f->now_ns);
    g->since_ns = f->now_ns;
    for (int32_t i = 0; i < g->n_members; i++) take_route(f, g->members[i]);
}

/* Everything that the routes from `first` on can affect. */
static void spread(struct flows *f, int32_t first)
{
    for (int32_t i = first; i < f->n_taken; i++) {
        struct flow_route *r = &f->routes[f->taken[i]];
        r->n_bounding = 0;
        for (int32_t k = 0; k < r->n_resources; k++) {
            int32_t resource = r->resources[k];
            struct flow_resource *x = &f->resources[resource];
            if (x->n_members) open_group(f, x);
            if (!flows_contended(x)) continue;
            r->bounding[r->n_bounding++] = k;
            if (x->touched == f->search) continue;
            x->touched = f->search;
            f->touched[f->n_touched++] = resource;
        }
    }
}

static void begin(struct flows *f)
{
    f->search++;
    f->n_taken = f->n_touched = 0;
    for (int32_t i = 0; i < f->n_fresh; i++) {
        struct flow_route *r = &f->routes[f->fresh[i]];
        r->listed = false;
        if (r->n_flows) take_route(f, f->fresh[i]);
    }
    for (int32_t i = 0; i < f->n_dirty; i++) {
        struct flow_resource *x = &f->resources[f->dirty[i]];
        x->listed = false;
        open_group(f, x);
    }
    f->n_fresh = f->n_dirty = 0;
    spread(f, 0);
}

/* --- bounds: the least share first --- */

static void sink(struct flow_bound *b, int32_t n, int32_t hole)
{
    struct flow_bound x = b[hole];
    for (int32_t child; (child = 2 * hole + 1) < n; hole = child) {
        if (child + 1 < n && b[child + 1].share_Bpns < b[child].share_Bpns) child++;
        if (!(b[child].share_Bpns < x.share_Bpns)) break;
        b[hole] = b[child];
    }
    b[hole] = x;
}

/* Shares only rise, so an outdated entry is reinserted lower down. -1: no bounds left. */
static int32_t least_of_heap(struct flows *f)
{
    struct flow_bound *b = f->bounds;
    while (f->n_bounds) {
        const struct flow_resource *x = &f->resources[b[0].resource];
        if (!x->count) {
            b[0] = b[--f->n_bounds];
        } else if (x->share_Bpns > b[0].share_Bpns) {
            b[0].share_Bpns = x->share_Bpns;
        } else {
            return b[0].resource;
        }
        if (f->n_bounds) sink(b, f->n_bounds, 0);
    }
    return -1;
}

static int32_t least_of_few(struct flows *f)
{
    int32_t best = -1;
    double share = INFINITY;
    for (int32_t i = 0; i < f->n_bounds;) {
        int32_t resource = f->bounds[i].resource;
        const struct flow_resource *x = &f->resources[resource];
        if (!x->count) {
            f->bounds[i] = f->bounds[--f->n_bounds];
            continue;
        }
        if (x->share_Bpns < share || (x->share_Bpns == share && resource < best))
            share = x->share_Bpns, best = resource;
        i++;
    }
    return best;
}

static int32_t min_bound(struct flows *f, bool few)
{
    return few ? least_of_few(f) : least_of_heap(f);
}

/* --- filling --- */

static void new_share(struct flow_resource *x)
{
    if (x->count) x->share_Bpns = (x->left_Bpns > 0 ? x->left_Bpns : 0) / (double)x->count;
}

/* Capacity left by the routes that are not taken. */
static double left_by_others(const struct flows *f, const struct flow_resource *x)
{
    double left = x->capacity_Bpns;
    for (int32_t i = 0; i < x->n_users; i++) {
        const struct flow_route *r = &f->routes[x->users[i].route];
        if (r->taken != f->search)
            left -= f->resources[r->group].level_Bpns * (double)r->n_flows *
                    flows_weight(r, x->users[i].index);
    }
    return left;
}

static double prepare(struct flows *f)
{
    double min_cap = INFINITY;
    for (int32_t i = 0; i < f->n_touched; i++) f->resources[f->touched[i]].count = 0;
    for (int32_t i = 0; i < f->n_taken; i++) {
        struct flow_route *r = &f->routes[f->taken[i]];
        r->new_group = -1;
        r->new_level = r->cap_Bpns / (double)r->n_flows;
        if (r->new_level < min_cap) min_cap = r->new_level;
        for (int32_t k = 0; k < r->n_bounding; k++)
            f->resources[r->resources[r->bounding[k]]].count +=
                (int64_t)r->n_flows * flows_weight(r, r->bounding[k]);
    }
    f->n_bounds = f->n_touched;
    for (int32_t i = 0; i < f->n_touched; i++) {
        struct flow_resource *x = &f->resources[f->touched[i]];
        x->left_Bpns = x->count == x->n_flows ? x->capacity_Bpns : left_by_others(f, x);
        new_share(x);
        f->bounds[i] = (struct flow_bound){x->share_Bpns, f->touched[i]};
    }
    for (int32_t i = f->n_bounds / 2; i-- > 0 && f->n_bounds > SCAN_MAX;)
        sink(f->bounds, f->n_bounds, i);
    return min_cap;
}

static void settle(struct flows *f, struct flow_route *r, double level, int32_t group)
{
    r->new_group = group;
    r->new_level = level;
    double all = level * (double)r->n_flows;
    for (int32_t k = 0; k < r->n_bounding; k++) {
        struct flow_resource *x = &f->resources[r->resources[r->bounding[k]]];
        int32_t weight = flows_weight(r, r->bounding[k]);
        x->count -= (int64_t)r->n_flows * weight;
        x->left_Bpns -= all * weight;
        new_share(x);
    }
}

/* Settles the caps up to this level. Settling below a share only raises it, so all of them at once. */
static double settle_caps(struct flows *f, double level, int32_t *unsettled)
{
    double min_cap = INFINITY;
    for (int32_t i = 0; i < f->n_taken; i++) {
        struct flow_route *r = &f->routes[f->taken[i]];
        if (r->new_group >= 0) continue;
        if (r->new_level <= level)
            settle(f, r, r->new_level, r->narrow), --*unsettled;
        else if (r->new_level < min_cap)
            min_cap = r->new_level;
    }
    return min_cap;
}

/* Assigns the rate to the routes of a bottleneck. true: a route that was not taken has a higher rate. */
static bool settle_bottleneck(struct flows *f, int32_t resource, int32_t *unsettled)
{
    const struct flow_resource *x = &f->resources[resource];
    double level = x->share_Bpns;
    bool more = false;
    for (int32_t i = 0; i < x->n_users; i++) {
        struct flow_route *r = &f->routes[x->users[i].route];
        if (r->taken != f->search) {
            if (f->resources[r->group].level_Bpns > level * FLOWS_SAME)
                take_route(f, x->users[i].route), more = true;
        } else if (r->new_group < 0) {
            settle(f, r, level, resource), --*unsettled;
        }
    }
    return more;
}

/* false: further routes were taken. */
static bool fill(struct flows *f)
{
    int32_t n = f->n_taken, unsettled = n;
    double min_cap = prepare(f);
    bool few = f->n_bounds <= SCAN_MAX;
    while (unsettled) {
        int32_t resource = min_bound(f, few);
        double level = resource < 0 ? INFINITY : f->resources[resource].share_Bpns;
        if (min_cap <= level)
            min_cap = settle_caps(f, level, &unsettled);
        else if (settle_bottleneck(f, resource, &unsettled)) {
            spread(f, n);
            return false;
        }
    }
    return true;
}

static void commit(struct flows *f)
{
    for (int32_t i = 0; i < f->n_taken; i++) {
        struct flow_route *r = &f->routes[f->taken[i]];
        struct flow_resource *g = &f->resources[r->new_group];
        if (r->group != r->new_group) flows_join_group(f, f->taken[i], r->new_group);
        g->level_Bpns = g->new_level = r->new_level;
        g->changed = true;
    }
    for (int32_t i = 0; i < f->n_taken; i++) {
        struct flow_resource *g = &f->resources[f->routes[f->taken[i]].group];
        if (!g->changed) continue;
        g->changed = false;
        flows_new_end(f, f->routes[f->taken[i]].group);
    }
}

void flows_share(struct flows *f)
{
    if (flows_keep(f)) return;
    begin(f);
    if (!f->n_taken) return;
    while (!fill(f)) {
    }
    commit(f);
}
