/* Many flows: routes in groups, groups by their next end. Two heaps on top of the heap of a route's flows; only the first
 * entry of each is read. flows_share.c moves routes from group to group. */
#include "sim/network/flows_internal.h"

#include "core/base/arena.h"

/* --- routes of a group --- */

static bool member_before(const struct flow_route *a, const struct flow_route *b)
{
    return a->key_bytes != b->key_bytes ? a->key_bytes < b->key_bytes
                                        : a->store.flows[0].seq < b->store.flows[0].seq;
}

static void put_member(struct flows *f, struct flow_resource *g, int32_t place, int32_t route)
{
    g->members[place] = route;
    f->routes[route].at = place;
}

/* Restores the heap around the route at this index. */
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

double flows_count(const struct flows *f, int32_t route)
{
    const struct flow_route *r = &f->routes[route];
    if (r->group < 0) return r->before_bytes;
    return flows_served(&f->resources[r->group], f->now_ns) + r->offset_bytes;
}

void flows_join_group(struct flows *f, int32_t route, int32_t resource)
{
    struct flow_resource *g = &f->resources[resource];
    struct flow_route *r = &f->routes[route];
    double count = flows_count(f, route);
    if (r->group >= 0) flows_leave_group(f, route);
    if (!g->n_members) g->served_bytes = 0, g->since_ns = f->now_ns;
    if ((size_t)g->n_members == g->member_capacity)
        g->members = arena_grow(f->arena, g->members, (size_t)g->n_members, &g->member_capacity,
                                sizeof *g->members);
    r->group = resource;
    r->offset_bytes = count - g->served_bytes;
    r->key_bytes = r->store.flows[0].mark_bytes - r->offset_bytes;
    g->members[g->n_members++] = route;
    settle_member(f, g, g->n_members - 1);
    flows_cross(f, route, r->n_flows);
}

void flows_leave_group(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    struct flow_resource *g = &f->resources[r->group];
    if (r->n_flows) flows_cross(f, route, -r->n_flows);
    int32_t place = r->at, last = g->members[--g->n_members];
    if (place < g->n_members) {
        g->members[place] = last;
        settle_member(f, g, place);
    }
    if (!g->n_members) flows_new_end(f, r->group);
    r->group = r->at = -1;
}

static void new_key(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    r->key_bytes = r->store.flows[0].mark_bytes - r->offset_bytes;
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

void flows_link(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    for (int32_t i = 0; i < r->n_resources; i++) {
        struct flow_resource *x = &f->resources[r->resources[i]];
        if ((size_t)x->n_users == x->user_capacity)
            x->users = arena_grow(f->arena, x->users, (size_t)x->n_users, &x->user_capacity,
                                  sizeof *x->users);
        r->place[i] = x->n_users;
        x->users[x->n_users++] = (struct flow_user){route, i};
        x->n_flows += (int64_t)r->n_flows * flows_weight(r, i);
        x->demand_Bpns += r->cap_Bpns * flows_weight(r, i);
        if (r->resources[i] == r->narrow) x->n_narrow++;
        flows_track(f, r->resources[i]);
    }
    list_fresh(f, route);
}

void flows_unlink(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    int32_t group = r->group;
    if (group >= 0) {
        flows_leave_group(f, route);
        if (f->resources[group].n_members) flows_new_end(f, group);
    }
    for (int32_t i = 0; i < r->n_resources; i++) {
        struct flow_resource *x = &f->resources[r->resources[i]];
        struct flow_user last = x->users[--x->n_users];
        x->users[r->place[i]] = last;
        f->routes[last.route].place[last.index] = r->place[i];
        x->demand_Bpns = x->n_users ? x->demand_Bpns - r->cap_Bpns * flows_weight(r, i) : 0;
        x->n_flows -= (int64_t)r->n_flows * flows_weight(r, i);
        if (r->resources[i] == r->narrow) x->n_narrow--;
        flows_track(f, r->resources[i]);
        if (x->listed || !x->n_members) continue;
        x->listed = true;
        f->dirty[f->n_dirty++] = r->resources[i];
    }
    r->before_bytes = 0;
    f->stale = true;
}

static void more_flows(struct flows *f, const struct flow_route *r, int64_t n)
{
    for (int32_t i = 0; i < r->n_resources; i++)
        f->resources[r->resources[i]].n_flows += n * flows_weight(r, i);
}

void flows_many_start(struct flows *f, int32_t route, double bytes, int64_t owner)
{
    struct flow_route *r = &f->routes[route];
    flows_push(f, route, flows_count(f, route) + bytes, owner);
    if (r->n_flows == 1) {
        flows_link(f, route);
        return;
    }
    more_flows(f, r, 1);
    if (r->group >= 0) {
        flows_cross(f, route, 1);
        if (r->store.flows[0].seq == f->starts) new_key(f, route);
    }
    list_fresh(f, route);
}

void flows_many_withdraw(struct flows *f, int32_t route)
{
    flows_cross(f, route, -1);
    more_flows(f, &f->routes[route], -1);
    flows_pop(f, route);
    flows_unlink(f, route);
}

static void take_first(struct flows *f, struct flow_end *out)
{
    int32_t route = f->resources[f->ends[0]].members[0];
    struct flow_route *r = &f->routes[route];
    flows_cross(f, route, -1);
    more_flows(f, r, -1);
    struct flow x = flows_pop(f, route);
    if (r->n_flows) {
        new_key(f, route);
        list_fresh(f, route);
    } else {
        flows_unlink(f, route);
    }
    *out = (struct flow_end){x.owner, x.start_ns, f->now_ns};
}

bool flows_many_end(struct flows *f, double limit_ns, struct flow_end *out)
{
    /* Other ends of this instant need no new rates. */
    if (!f->n_ends || f->resources[f->ends[0]].end_ns > f->now_ns + FLOWS_GRAIN_NS) {
        double next = flows_next_ns(f);
        if (!f->many) return flows_few_end(f, limit_ns, out); /* the search switched to few */
        if (next > limit_ns + FLOWS_GRAIN_NS || isinf(next)) return false;
        if (next > f->now_ns) f->now_ns = next;
    }
    take_first(f, out);
    return true;
}
