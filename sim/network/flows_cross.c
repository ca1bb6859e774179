/* Crossings: for each resource the number of flows by the group of their bottleneck. flows_keep.c adds up loads from
 * them, so that a thousand routes of one group count as one. Kept for resources that can matter: demand above
 * capacity, or the narrowest resource of some route. A resource rarely has more than a few crossings, so
 * lookup is a linear scan. */
#include "sim/network/flows_internal.h"

#include "core/base/arena.h"

static void remove_crossing(struct flows *f, struct flow_resource *x, int32_t i)
{
    struct flow_resource *g = &f->resources[x->crossings[i].group];
    int32_t back = x->crossings[i].back;
    struct flow_reach last = g->reach[--g->n_reach];
    g->reach[back] = last;
    f->resources[last.resource].crossings[last.back].back = back;
    struct flow_crossing moved = x->crossings[--x->n_crossings];
    if (i == x->n_crossings) return;
    x->crossings[i] = moved;
    f->resources[moved.group].reach[moved.back].back = i;
}

static void add(struct flows *f, int32_t resource, int32_t group, int64_t n_flows)
{
    struct flow_resource *x = &f->resources[resource], *g = &f->resources[group];
    for (int32_t i = 0; i < x->n_crossings; i++)
        if (x->crossings[i].group == group) {
            x->crossings[i].n_flows += n_flows;
            if (!x->crossings[i].n_flows) remove_crossing(f, x, i);
            return;
        }
    x->crossings = arena_grow(f->arena, x->crossings, (size_t)x->n_crossings, &x->crossing_capacity,
                              sizeof *x->crossings);
    g->reach =
        arena_grow(f->arena, g->reach, (size_t)g->n_reach, &g->reach_capacity, sizeof *g->reach);
    x->crossings[x->n_crossings] = (struct flow_crossing){group, g->n_reach, n_flows};
    g->reach[g->n_reach++] = (struct flow_reach){resource, x->n_crossings++};
}

void flows_cross(struct flows *f, int32_t route, int64_t n_flows)
{
    const struct flow_route *r = &f->routes[route];
    for (int32_t i = 0; i < r->n_resources; i++)
        if (f->resources[r->resources[i]].tracked)
            add(f, r->resources[i], r->group, n_flows * flows_weight(r, i));
}

void flows_track(struct flows *f, int32_t resource)
{
    struct flow_resource *x = &f->resources[resource];
    bool wanted = x->n_narrow > 0 || flows_contended(x);
    if (wanted == x->tracked) return;
    x->tracked = wanted;
    while (!wanted && x->n_crossings) remove_crossing(f, x, x->n_crossings - 1);
    for (int32_t i = 0; wanted && i < x->n_users; i++) {
        const struct flow_route *r = &f->routes[x->users[i].route];
        if (r->group >= 0 && r->n_flows)
            add(f, resource, r->group, (int64_t)r->n_flows * flows_weight(r, x->users[i].index));
    }
}
