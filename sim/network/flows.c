/* Resources, routes, the flows of a route as a heap, and the clock. The next end is found by a different structure for few
 * and for many flows (flows_internal.h). */
#include "sim/network/flows_internal.h"

#include "core/base/arena.h"

#include <string.h>

struct flows *flows_new(struct arena *a)
{
    struct flows *f = ARENA_ARRAY(a, struct flows, 1);
    f->arena = a;
    f->few.next_ns = INFINITY;
    for (int32_t i = 0; i < FLOWS_SEATS; i++) f->few.end_ns[i] = INFINITY;
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
        return error_set(err, ERR_INPUT, "%s: capacity %g B/s is not finite and above 0", name,
                         capacity_Bps);
    f->resources =
        arena_grow(f->arena, f->resources, n, &f->resource_capacity, sizeof *f->resources);
    if (f->resource_capacity != before) {
        size_t c = f->resource_capacity;
        f->doors = wider(f->arena, f->doors, n, c, sizeof *f->doors);
        f->ends = wider(f->arena, f->ends, (size_t)f->n_ends, c, sizeof *f->ends);
        f->dirty = wider(f->arena, f->dirty, (size_t)f->n_dirty, c, sizeof *f->dirty);
        f->touched = ARENA_ARRAY(f->arena, int32_t, c);
        f->bounds = ARENA_ARRAY(f->arena, struct flow_bound, c);
    }
    f->resources[n] = (struct flow_resource){.capacity_Bpns = capacity_Bps / 1e9, .end_at = -1};
    f->doors[n] = (struct flow_door){.capacity_Bpns = capacity_Bps / 1e9,
                                     .room_Bpns = capacity_Bps / 1e9 * FLOWS_SAME,
                                     .gate = -1};
    *out = f->n_resources++;
    return OK;
}

/* The door keeps the weights of its users from now on. */
static void keep_weights(struct flows *f, struct flow_door *d)
{
    if (d->weight) return;
    d->weight = ARENA_ARRAY(f->arena, double, FLOWS_SEATS);
    for (int32_t k = 0; k < FLOWS_SEATS; k++) d->weight[k] = 1;
}

int32_t flows_route(struct flows *f, const int32_t *resources, int32_t n)
{
    return flows_weighted_route(f, resources, NULL, n);
}

int32_t flows_weighted_route(struct flows *f, const int32_t *resources, const int32_t *weights,
                             int32_t n)
{
    size_t at = (size_t)f->n_routes, before = f->route_capacity;
    f->routes = arena_grow(f->arena, f->routes, at, &f->route_capacity, sizeof *f->routes);
    if (f->route_capacity != before) {
        f->fresh =
            wider(f->arena, f->fresh, (size_t)f->n_fresh, f->route_capacity, sizeof *f->fresh);
        f->spare =
            wider(f->arena, f->spare, (size_t)f->n_spare, f->route_capacity, sizeof *f->spare);
        f->taken = ARENA_ARRAY(f->arena, int32_t, f->route_capacity);
    }
    struct flow_route *r = &f->routes[at];
    *r = (struct flow_route){
        .group = -1, .at = -1, .seat = -1, .narrow = resources[0], .cap_Bpns = INFINITY};
    r->resources = ARENA_ARRAY(f->arena, int32_t, (size_t)n);
    r->place = ARENA_ARRAY(f->arena, int32_t, (size_t)n);
    r->bounding = ARENA_ARRAY(f->arena, int32_t, (size_t)n);
    if (weights) r->weight = ARENA_ARRAY(f->arena, int32_t, (size_t)n);
    f->search++;
    for (int32_t i = 0; i < n; i++) {
        struct flow_resource *x = &f->resources[resources[i]];
        if (x->touched == f->search) continue;
        x->touched = f->search;
        if (weights) r->weight[r->n_resources] = weights[i];
        if (weights && weights[i] > 1) keep_weights(f, &f->doors[resources[i]]);
        r->resources[r->n_resources++] = resources[i];
        double cap = x->capacity_Bpns / (weights ? weights[i] : 1);
        if (cap < r->cap_Bpns) r->cap_Bpns = cap, r->narrow = resources[i];
    }
    return f->n_routes++;
}

/* --- flows of a route --- */

static bool flow_before(const struct flow *a, const struct flow *b)
{
    return a->mark_bytes != b->mark_bytes ? a->mark_bytes < b->mark_bytes : a->seq < b->seq;
}

void flows_push(struct flows *f, int32_t route, double mark_bytes, int64_t owner)
{
    struct flow_route *r = &f->routes[route];
    struct flow x = {mark_bytes, f->now_ns, ++f->starts, owner};
    f->alive++;
    if (!r->n_flows && f->n_spare) r->store = f->spare[--f->n_spare];
    struct flow_store *s = &r->store;
    s->flows = arena_grow(f->arena, s->flows, (size_t)r->n_flows, &s->capacity, sizeof *s->flows);
    int32_t hole = r->n_flows++;
    for (int32_t up; hole && (up = (hole - 1) / 2, flow_before(&x, &s->flows[up])); hole = up)
        s->flows[hole] = s->flows[up];
    s->flows[hole] = x;
}

struct flow flows_pop(struct flows *f, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    struct flow *flows = r->store.flows, first = flows[0], last = flows[--r->n_flows];
    int32_t hole = 0;
    f->alive--;
    if (!r->n_flows) {
        f->spare[f->n_spare++] = r->store;
        r->store = (struct flow_store){0};
        return first;
    }
    for (int32_t child; (child = 2 * hole + 1) < r->n_flows; hole = child) {
        if (child + 1 < r->n_flows && flow_before(&flows[child + 1], &flows[child])) child++;
        if (!flow_before(&flows[child], &last)) break;
        flows[hole] = flows[child];
    }
    flows[hole] = last;
    return first;
}

/* --- starts and ends --- */

void flows_start(struct flows *f, double now_ns, int32_t route, double bytes, int64_t owner)
{
    if (now_ns > f->now_ns) {
        if (flows_next_ns(f) < now_ns - FLOWS_GRAIN_NS) BUG("a flow starts before one that ended");
        f->now_ns = now_ns;
    }
    if (!f->many &&
        (f->alive == FLOWS_MANY || (f->routes[route].seat < 0 && f->few.used == UINT64_MAX)))
        flows_to_many(f);
    if (f->many) {
        flows_many_start(f, route, bytes, owner);
        return;
    }
    flows_few_start(f, route, bytes, owner);
    if (!f->few.full) return;
    f->wide = true;
    flows_to_many(f);
}

double flows_withdraw(struct flows *f, double now_ns, int32_t route)
{
    struct flow_route *r = &f->routes[route];
    double next = flows_next_ns(f); /* with rates */
    if (now_ns > f->now_ns) {
        if (next < now_ns - FLOWS_GRAIN_NS) BUG("a flow is withdrawn after another one ended");
        f->now_ns = now_ns;
    }
    double mark = r->store.flows[0].mark_bytes, count;
    if (f->many) {
        count = flows_count(f, route);
        flows_many_withdraw(f, route);
    } else {
        flows_pop(f, route);
        count = flows_stand(f, route);
    }
    return mark > count ? mark - count : 0;
}

int32_t flows_routes_on(const struct flows *f, int32_t resource)
{
    if (f->many) return f->resources[resource].n_users;
    uint64_t users = f->doors[resource].users; /* mostly none */
    return users ? (int32_t)__builtin_popcountll(users) : 0;
}

double flows_alone_Bpns(const struct flows *f, int32_t route) { return f->routes[route].cap_Bpns; }

int64_t flows_owner(const struct flows *f, int32_t route)
{
    const struct flow_route *r = &f->routes[route];
    return r->n_flows == 1 ? r->store.flows[0].owner : -1;
}

const int32_t *flows_path(const struct flows *f, int32_t route, int32_t *n)
{
    *n = f->routes[route].n_resources;
    return f->routes[route].resources;
}

bool flows_end(struct flows *f, double limit_ns, struct flow_end *out)
{
    return f->many ? flows_many_end(f, limit_ns, out) : flows_few_end(f, limit_ns, out);
}

static void find_rates(struct flows *f)
{
    if (f->many && f->alive <= FLOWS_FEW && !f->wide) flows_to_few(f);
    if (f->many)
        flows_share(f);
    else
        flows_few_share(f);
    f->stale = false;
}

double flows_next_ns(struct flows *f)
{
    if (f->stale) find_rates(f);
    double end = f->few.next_ns;
    if (f->many) end = f->n_ends ? f->resources[f->ends[0]].end_ns : INFINITY;
    return end > f->now_ns ? end : f->now_ns;
}

int64_t flows_alive(const struct flows *f) { return f->alive; }

double flows_rate(struct flows *f, int32_t route)
{
    if (f->stale) find_rates(f);
    const struct flow_route *r = &f->routes[route];
    if (r->seat >= 0) return f->few.seats[r->seat].level_Bpns * 1e9;
    return r->group < 0 ? 0 : f->resources[r->group].level_Bpns * 1e9;
}

void flows_rebase(struct flows *f, double shift_ns)
{
    f->now_ns -= shift_ns;
    f->few.next_ns -= shift_ns;
    for (int32_t i = 0; i < FLOWS_SEATS; i++) {
        f->few.seats[i].since_ns -= shift_ns;
        f->few.end_ns[i] -= shift_ns;
    }
    for (int32_t i = 0; i < f->n_ends; i++) {
        f->resources[f->ends[i]].since_ns -= shift_ns;
        f->resources[f->ends[i]].end_ns -= shift_ns;
    }
    for (int32_t i = 0; i < f->n_routes; i++)
        for (int32_t k = 0; k < f->routes[i].n_flows; k++)
            f->routes[i].store.flows[k].start_ns -= shift_ns;
}
