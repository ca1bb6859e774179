/* Conversion from few flows to many and back. The routes with flows move from one representation to the other, each with the
 * bytes its flows have received; the next search recomputes rates. At least FLOWS_MANY - FLOWS_FEW flows, or enough to fill
 * the seats, start or end between two conversions, so the cost per flow is small. */
#include "sim/network/flows_internal.h"

void flows_to_many(struct flows *f)
{
    f->many = true;
    f->few.full = false;
    for (uint64_t seats = f->few.used; seats; seats &= seats - 1) {
        int32_t route = f->few.seats[flows_lowest(seats)].route;
        f->routes[route].before_bytes = flows_stand(f, route);
        flows_link(f, route);
    }
}

static int32_t routes_with_flows(const struct flows *f, int32_t routes[FLOWS_FEW])
{
    int32_t n = 0;
    for (int32_t i = 0; i < f->n_ends; i++) {
        const struct flow_resource *g = &f->resources[f->ends[i]];
        for (int32_t k = 0; k < g->n_members; k++) routes[n++] = g->members[k];
    }
    for (int32_t i = 0; i < f->n_fresh; i++) {
        const struct flow_route *r = &f->routes[f->fresh[i]];
        if (r->group < 0 && r->n_flows) routes[n++] = f->fresh[i];
    }
    return n;
}

void flows_to_few(struct flows *f)
{
    int32_t routes[FLOWS_FEW], n = routes_with_flows(f, routes);
    for (int32_t i = 0; i < n; i++) {
        double count = flows_count(f, routes[i]);
        flows_unlink(f, routes[i]);
        flows_sit(f, routes[i], count);
    }
    for (int32_t i = 0; i < f->n_fresh; i++) f->routes[f->fresh[i]].listed = false;
    for (int32_t i = 0; i < f->n_dirty; i++) f->resources[f->dirty[i]].listed = false;
    f->n_fresh = f->n_dirty = 0;
    f->many = false;
    if (!f->few.full) return;
    f->wide = true;
    flows_to_many(f);
}
