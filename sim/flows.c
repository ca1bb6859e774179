/* Flows, routes and groups: three heaps, one inside the other, and the clock. A flow is in its route's heap, the route in
 * its group's, the group in the one of all ends; only the first of each is ever asked. flows_share.c moves routes from
 * group to group. */
#include "sim/flows_internal.h"

#include "core/arena.h"

#include <string.h>

struct flows *flows_new(struct arena *a)
{
    struct flows *f = ARENA_ARRAY(a, struct flows, 1);
    f->arena = a;
    return f;
}

static void *wider(struct arena *a, const void *old, size_t n, size_t capacity, size_t size)
{
    void *new = arena_alloc(a, capacity, size);
    if (n) memcpy(new, old, n * size);
    return new;
}

enum status flows_resource(struct flows *f, const char *name, double capacity_Bps, int32_t *out,
                           struct error *err)
{
    size_t n = (size_t)f->n_resources, before = f->resource_capacity;
    if (!(capacity_Bps > 0) || !isfinite(capacity_Bps))
        return error_set(err, ERR_INPUT, "%s: a capacity of %g B/s cannot be shared", name,
                         capacity_Bps);
    f->resources =
        arena_grow(f->arena, f->resources, n, &f->resource_capacity, sizeof *f->resources);
    if (f->resource_capacity != before) {
        size_t c = f->resource_capacity;
        f->ends = wider(f->arena, f->ends, (size_t)f->n_ends, c, sizeof *f->ends);
        f->dirty = wider(f->arena, f->dirty, (size_t)f->n_dirty, c, sizeof *f->dirty);
        f->touched = ARENA_ARRAY(f->arena, int32_t, c);
        f->bounds = ARENA_ARRAY(f->arena, struct flow_bound, c);
    }
    f->resources[n] = (struct flow_resource){.capacity_Bpns = capacity_Bps / 1e9, .end_at = -1};
    *out = f->n_resources++;
    return OK;
}

int32_t flows_route(struct flows *f, const int32_t *resources, int32_t n)
{
    size_t at = (size_t)f->n_routes, before = f->route_capacity;
    f->routes = arena_grow(f->arena, f->routes, at, &f->route_capacity, sizeof *f->routes);
    if (f->route_capacity != before) {
        f->fresh =
            wider(f->arena, f->fresh, (size_t)f->n_fresh, f->route_capacity, sizeof *f->fresh);
        f->taken = ARENA_ARRAY(f->arena, int32_t, f->route_capacity);
    }
    struct flow_route *r = &f->routes[at];
    *r = (struct flow_route){.group = -1, .at = -1, .narrow = resources[0]};
    r->resources = ARENA_ARRAY(f->arena, int32_t, (size_t)n);
    r->place = ARENA_ARRAY(f->arena, int32_t, (size_t)n);
    r->bounding = ARENA_ARRAY(f->arena, int32_t, (size_t)n);
    f->search++;
    for (int32_t i = 0; i < n; i++) {
        struct flow_resource *x = &f->resources[resources[i]];
        if (x->touched == f->search) continue;
        x->touched = f->search;
        r->resources[r->n_resources++] = resources[i];
        if (x->capacity_Bpns < f->resources[r->narrow].capacity_Bpns) r->narrow = resources[i];
    }
    r->cap_Bpns = f->resources[r->narrow].capacity_Bpns;
    return f->n_routes++;
}

/* --- flows of a route --- */

static bool flow_before(const struct flow *a, const struct flow *b)
{
    return a->mark_bytes != b->mark_bytes ? a->mark_bytes < b->mark_bytes : a->seq < b->seq;
}

static void push_flow(struct flows *f, struct flow_route *r, struct flow x)
{
    if ((size_t)r->n_flows == r->capacity)
        r->flows =
            arena_grow(f->arena, r->flows, (size_t)r->n_flows, &r->capacity, sizeof *r->flows);
    int32_t hole = r->n_flows++;
    for (int32_t up; hole && (up = (hole - 1) / 2, flow_before(&x, &r->flows[up])); hole = up)
        r->flows[hole] = r->flows[up];
    r->flows[hole] = x;
}

static struct flow pop_flow(struct flow_route *r)
{
    struct flow first = r->flows[0], last = r->flows[--r->n_flows];
    int32_t hole = 0;
    for (int32_t child; (child = 2 * hole + 1) < r->n_flows; hole = child) {
        if (child + 1 < r->n_flows && flow_before(&r->flows[child + 1], &r->flows[child])) child++;
        if (!flow_before(&r->flows[child], &last)) break;
        r->flows[hole] = r->flows[child];
    }
    r->flows[hole] = last;
    return first;
}

/* --- routes of a group --- */

static bool member_before(const struct flow_route *a, const struct flow_route *b)
{
    return a->key_bytes != b->key_bytes ? a->key_bytes < b->key_bytes
                                        : a->flows[0].seq < b->flows[0].seq;
}

static void put_member(struct flows *f, struct flow_resource *g, int32_t place, int32_t route)
{
    g->members[place] = route;
    f->routes[route].at = place;
}

/* The route at this place is right among those below or above it. */
static void settle_member(struct flows *f, struct flow_resource *g, int32_t place)
{
    int32_t route = g->members[place];
    const struct flow_route *r = &f->routes[route];
    for (int32_t up; place; place = up) {
        up = (place - 1) / 2;
        if (!member_before(r, &f->routes[g->members[up]])) break;
        put_member(f, g, place, g->members[up]);
    }
    for (int32_t child; (child = 2 * place + 1) < g->n_members; place = child) {
        if (child + 1 < g->n_members &&
            member_before(&f->routes[g->members[child + 1]], &f->routes[g->members[child]]))
            child++;
        if (!member_before(&f->routes[g->members[child]], r)) break;
        put_member(f, g, place, g->members[child]);
    }
    put_member(f, g, place, route);
}

void flows_join_group(struct flows *f, int32_t route, int32_t resource)
{
    struct flow_resource *g = &f->resources[resource];
    struct flow_route *r = &f->routes[route];
    double count = 0;
    if (r->group >= 0) {
        count = flows_served(&f->resources[r->group], f->now_ns) + r->offset_bytes;
        flows_leave_group(f, route);
    }
    if (!g->n_members) g->served_bytes = 0, g->since_ns = f->now_ns;
    if ((size_t)g->n_members == g->member_capacity)
        g->members = arena_grow(f->arena, g->members, (size_t)g->n_members, &g->member_capacity,
                                sizeof *g->members);
    r->group = resource;
    r->offset_bytes = count - g->served_bytes;
    r->key_bytes = r->flows[0].mark_bytes - r->offset_bytes;
    g->members[g->n_members++] = route;
    settle_member(f, g, g->n_members - 1);
    if (f->many) flows_cross(f, route, r->n_flows);
}

void flows_leave_group(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    struct flow_resource *g = &f->resources[r->group];
    if (f->many && r->n_flows) flows_cross(f, route, -r->n_flows);
    int32_t place = r->at, last = g->members[--g->n_members];
    if (place < g->n_members) {
        g->members[place] = last;
        settle_member(f, g, place);
    }
    if (!g->n_members) flows_new_end(f, r->group);
    r->group = r->at = -1;
}

void flows_new_key(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    r->key_bytes = r->flows[0].mark_bytes - r->offset_bytes;
    settle_member(f, &f->resources[r->group], r->at);
    flows_new_end(f, r->group);
}

/* --- groups by their next end --- */

static bool end_before(const struct flows *f, int32_t a, int32_t b)
{
    double x = f->resources[a].end_ns, y = f->resources[b].end_ns;
    return x != y ? x < y : a < b;
}

static void put_end(struct flows *f, int32_t place, int32_t resource)
{
    f->ends[place] = resource;
    f->resources[resource].end_at = place;
}

static void settle_end(struct flows *f, int32_t place)
{
    int32_t x = f->ends[place];
    for (int32_t up; place; place = up) {
        up = (place - 1) / 2;
        if (!end_before(f, x, f->ends[up])) break;
        put_end(f, place, f->ends[up]);
    }
    for (int32_t child; (child = 2 * place + 1) < f->n_ends; place = child) {
        if (child + 1 < f->n_ends && end_before(f, f->ends[child + 1], f->ends[child])) child++;
        if (!end_before(f, f->ends[child], x)) break;
        put_end(f, place, f->ends[child]);
    }
    put_end(f, place, x);
}

void flows_new_end(struct flows *f, int32_t resource)
{
    struct flow_resource *g = &f->resources[resource];
    if (g->n_members) {
        double key = f->routes[g->members[0]].key_bytes;
        g->end_ns = g->since_ns + (key - g->served_bytes) / g->level_Bpns;
        if (g->end_at < 0) g->end_at = f->n_ends, f->ends[f->n_ends++] = resource;
        settle_end(f, g->end_at);
    } else if (g->end_at >= 0) {
        int32_t place = g->end_at, last = f->ends[--f->n_ends];
        g->end_at = -1;
        if (last == resource) return;
        put_end(f, place, last);
        settle_end(f, place);
    }
}

/* --- starts and ends --- */

static void list_fresh(struct flows *f, int32_t route)
{
    f->stale = true;
    if (f->routes[route].listed) return;
    f->routes[route].listed = true;
    f->fresh[f->n_fresh++] = route;
}

static void first_flow(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    for (int32_t i = 0; i < r->n_resources; i++) {
        struct flow_resource *x = &f->resources[r->resources[i]];
        if ((size_t)x->n_users == x->user_capacity)
            x->users = arena_grow(f->arena, x->users, (size_t)x->n_users, &x->user_capacity,
                                  sizeof *x->users);
        r->place[i] = x->n_users;
        x->users[x->n_users++] = (struct flow_user){route, i};
        x->n_flows++;
        bool before = flows_contended(x);
        x->demand_Bpns += r->cap_Bpns;
        if (!before && flows_contended(x)) flows_load(f, r->resources[i]);
        if (r->resources[i] == r->narrow) x->n_narrow++;
        if (f->many) flows_track(f, r->resources[i]);
    }
}

static void last_flow(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    int32_t group = r->group;
    flows_leave_group(f, route);
    if (f->resources[group].n_members) flows_new_end(f, group);
    for (int32_t i = 0; i < r->n_resources; i++) {
        struct flow_resource *x = &f->resources[r->resources[i]];
        struct flow_user last = x->users[--x->n_users];
        x->users[r->place[i]] = last;
        f->routes[last.route].place[last.index] = r->place[i];
        x->demand_Bpns = x->n_users ? x->demand_Bpns - r->cap_Bpns : 0;
        x->load_Bpns -= r->carried_Bpns;
        x->n_flows--;
        if (r->resources[i] == r->narrow) x->n_narrow--;
        if (f->many) flows_track(f, r->resources[i]);
        if (x->listed || !x->n_members) continue;
        x->listed = true;
        f->dirty[f->n_dirty++] = r->resources[i];
    }
    r->carried_Bpns = 0;
    f->stale = true;
}

void flows_start(struct flows *f, double now_ns, int32_t route, double bytes, int64_t owner)
{
    if (now_ns > f->now_ns) {
        if (flows_next_ns(f) < now_ns - FLOWS_GRAIN_NS) BUG("a flow starts before one that ended");
        f->now_ns = now_ns;
    }
    struct flow_route *r = &f->routes[route];
    double count =
        r->group < 0 ? 0 : flows_served(&f->resources[r->group], f->now_ns) + r->offset_bytes;
    if (!r->n_flows)
        first_flow(f, route);
    else
        for (int32_t i = 0; i < r->n_resources; i++) f->resources[r->resources[i]].n_flows++;
    push_flow(f, r, (struct flow){count + bytes, f->now_ns, ++f->starts, owner});
    f->alive++;
    if (f->many && r->group >= 0) flows_cross(f, route, 1);
    if (r->group >= 0 && r->flows[0].seq == f->starts) flows_new_key(f, route);
    list_fresh(f, route);
}

static void take_first(struct flows *f, struct flow_end *out)
{
    int32_t route = f->resources[f->ends[0]].members[0];
    struct flow_route *r = &f->routes[route];
    struct flow x = pop_flow(r);
    f->alive--;
    if (f->many) flows_cross(f, route, -1);
    if (r->n_flows) {
        for (int32_t i = 0; i < r->n_resources; i++) f->resources[r->resources[i]].n_flows--;
        flows_new_key(f, route);
        list_fresh(f, route);
    } else {
        last_flow(f, route);
    }
    *out = (struct flow_end){x.owner, x.start_ns, f->now_ns};
}

bool flows_end(struct flows *f, double limit_ns, struct flow_end *out)
{
    /* What else ends in this instant needs no new rates. */
    if (!f->n_ends || f->resources[f->ends[0]].end_ns > f->now_ns + FLOWS_GRAIN_NS) {
        double next = flows_next_ns(f);
        if (next > limit_ns + FLOWS_GRAIN_NS || isinf(next)) return false;
        if (next > f->now_ns) f->now_ns = next;
    }
    take_first(f, out);
    return true;
}

double flows_next_ns(struct flows *f)
{
    if (f->stale) flows_share(f);
    if (!f->n_ends) return INFINITY;
    double end = f->resources[f->ends[0]].end_ns;
    return end > f->now_ns ? end : f->now_ns;
}

int64_t flows_alive(const struct flows *f) { return f->alive; }

double flows_rate(struct flows *f, int32_t route)
{
    if (f->stale) flows_share(f);
    const struct flow_route *r = &f->routes[route];
    return r->group < 0 ? 0 : f->resources[r->group].level_Bpns * 1e9;
}

void flows_rebase(struct flows *f, double shift_ns)
{
    f->now_ns -= shift_ns;
    for (int32_t i = 0; i < f->n_ends; i++) {
        f->resources[f->ends[i]].since_ns -= shift_ns;
        f->resources[f->ends[i]].end_ns -= shift_ns;
    }
    for (int32_t i = 0; i < f->n_routes; i++)
        for (int32_t k = 0; k < f->routes[i].n_flows; k++)
            f->routes[i].flows[k].start_ns -= shift_ns;
}
