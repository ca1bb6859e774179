#include "sim/network/network.h"

#include "core/base/arena.h"
#include "sim/network/flows.h"

#include <inttypes.h>
#include <math.h>

/* Twelve days: the limit at which a double still resolves quarters of a nanosecond. */
#define FAIR_MAX_NS ((int64_t)1000000000000000)
/* The flows' clock is rebased before it exceeds the range of their grain (an hour). */
#define CLOCK_MAX_NS ((int64_t)1 << 42)

struct resource {
    struct cost_link cost; /* of a route: the smallest bandwidth, the sum of latencies */
    int32_t n_owners;
    bool fair, priced;
    int64_t free_ns;                   /* FIFO: when all messages that were ready before have left */
    int64_t ready_ns;                  /* network_overtaken: of the last message, and its order */
    uint64_t ready_order;
    int32_t claimant; /* FIFO: number of the claim on the queue, + 1; 0: none */
    int64_t longest_ns;                /* occupancy of one message */
    int64_t last_bytes, last_ns;       /* of the last query: most sizes are equal */
    int32_t flow_resource, flow_route; /* fair: indices in the flows; -1 if unused */
};

struct leaving { /* a message that has left and is not reported yet */
    int32_t owner, resource;
    int64_t start_ns, left_ns;
};

struct network {
    struct arena *arena;
    const struct program *program;
    struct event_queue *queue;
    int32_t flow_event;
    const double *scale;        /* (n_links) or NULL */
    struct resource *resources; /* (n_links, 2) by direction; the second is unused for half duplex */
    struct flows *flows;
    int64_t origin_ns; /* instant of 0 on the flows' clock */
    int64_t stamp;     /* of the one valid event */
    int64_t looked_ns; /* time of that event */
    int32_t *claims; /* (2 · links) number of the claim, + 1; 0: none */
    network_break *broken;
    void *with;
    size_t first, n_leaving, capacity;
    struct leaving *leaving; /* [first … first + n_leaving - 1], in order of time */
};

struct network *network_new(struct arena *a, const struct program *p, struct event_queue *q,
                            int32_t flow_event, const double *link_scale)
{
    struct network *n = ARENA_ARRAY(a, struct network, 1);
    *n = (struct network){.arena = a,
                          .program = p,
                          .queue = q,
                          .flow_event = flow_event,
                          .scale = link_scale,
                          .looked_ns = -1,
                          .resources = ARENA_ARRAY(a, struct resource, 2 * (size_t)p->n_links)};
    for (int32_t i = 0; i < 2 * p->n_links; i++)
        n->resources[i].flow_resource = n->resources[i].flow_route = n->resources[i].ready_ns = -1;
    return n;
}

static enum status stretch(const struct network *n, int32_t link, struct cost_link *c,
                           struct error *err)
{
    double factor = n->scale ? n->scale[link] : 1, latency_ns = (double)c->latency_ns * factor;
    if (factor == 1) return OK;
    if (!(latency_ns >= 0 && latency_ns <= (double)COST_MAX_NS && factor < HUGE_VAL))
        return error_set(err, ERR_INPUT, "link %s: factor %g gives no duration of 0 s to ten years",
                         n->program->links[link].name, factor);
    /* Factor 0: a finite bandwidth, for flows, beyond any measurable one. */
    c->bandwidth_Bps = factor > 0 ? fmin(c->bandwidth_Bps / factor, 1e30) : 1e30;
    c->latency_ns = (int64_t)llround(latency_ns);
    if (!c->curve) return OK;
    struct link_model *curve = arena_copy(n->arena, c->curve, sizeof *curve);
    for (int32_t i = 0; i < curve->n_points; i++)
        curve->points[i].Bps = factor > 0 ? fmin(curve->points[i].Bps / factor, 1e30) : 1e30;
    c->curve = curve;
    return OK;
}

static int32_t resource_of(const struct network *n, int32_t link, int32_t direction)
{
    return 2 * link + (n->program->links[link].half_duplex ? 0 : direction);
}

/* Links are priced on first use, so an unmeasured link affects only its users. */
static enum status price_link(struct network *n, struct cost *k, int32_t link, struct error *err)
{
    const struct program_link *l = &n->program->links[link];
    for (int32_t d = 0; d < 2; d++) {
        struct resource *r = &n->resources[2 * link + d];
        if (r->priced) continue;
        TRY(cost_program_link(k, l, link, &r->cost, err));
        TRY(stretch(n, link, &r->cost, err));
        r->priced = true;
        r->fair |= l->sharing != LINK_FIFO;
    }
    return OK;
}

static enum status not_too_long(const struct network *n, int32_t link, struct error *err)
{
    const struct resource *r = &n->resources[2 * link];
    int64_t longest = r[0].longest_ns > r[1].longest_ns ? r[0].longest_ns : r[1].longest_ns;
    if (!r->fair || longest <= FAIR_MAX_NS) return OK;
    return error_set(err, ERR_INPUT,
                     "link %s: a message takes %" PRId64
                     " s, more than twelve days: that cannot be "
                     "shared fairly",
                     n->program->links[link].name, longest / 1000000000);
}

/* Its hops are shared fairly by all messages from now on. */
static enum status price_route(struct network *n, struct cost *k, int32_t link, struct error *err)
{
    const struct program_link *l = &n->program->links[link];
    struct resource *path = &n->resources[2 * link];
    if (path->priced) return OK;
    struct cost_link all = {.bandwidth_Bps = INFINITY};
    for (int32_t i = 0; i < l->n_hops; i++) {
        struct resource *hop = &n->resources[2 * l->hop[i]];
        TRY(price_link(n, k, l->hop[i], err));
        hop[0].fair = hop[1].fair = true;
        TRY(not_too_long(n, l->hop[i], err));
        if (hop->cost.bandwidth_Bps < all.bandwidth_Bps)
            all.bandwidth_Bps = hop->cost.bandwidth_Bps;
        all.latency_ns += hop->cost.latency_ns;
        if (all.latency_ns > COST_MAX_NS)
            return error_set(err, ERR_INPUT,
                             "route %s: its latencies add up to more than ten years", l->name);
    }
    if (l->pace_Bps > 0 && l->pace_Bps < all.bandwidth_Bps) all.bandwidth_Bps = l->pace_Bps;
    if (l->n_hops == 1 && !(l->pace_Bps > 0)) all = n->resources[2 * l->hop[0]].cost; /* with its curve */
    for (int32_t d = 0; d < 2; d++) path[d].cost = all, path[d].priced = path[d].fair = true;
    return OK;
}

enum status network_price(struct network *n, struct cost *k, int32_t link, struct cost_link *out,
                          struct error *err)
{
    TRY(n->program->links[link].n_hops ? price_route(n, k, link, err)
                                       : price_link(n, k, link, err));
    *out = n->resources[2 * link].cost;
    return OK;
}

enum status network_join(struct network *n, struct cost *k, int32_t link, int32_t direction,
                         int64_t bytes, int32_t *out_resource, struct error *err)
{
    *out_resource = -1;
    if (link < 0) return OK;
    TRY(n->program->links[link].n_hops ? price_route(n, k, link, err)
                                       : price_link(n, k, link, err));
    *out_resource = resource_of(n, link, direction);
    struct resource *r = &n->resources[*out_resource];
    int64_t ns = cost_occupancy_ns(&r->cost, bytes);
    if (ns > r->longest_ns) r->longest_ns = ns;
    r->n_owners++;
    return not_too_long(n, link, err);
}

static int32_t flow_resource(struct network *n, int32_t resource)
{
    struct resource *r = &n->resources[resource];
    struct error err = {0};
    if (r->flow_resource < 0 &&
        flows_resource(n->flows, n->program->links[resource / 2].name, r->cost.bandwidth_Bps,
                       &r->flow_resource, &err) != OK)
        BUG("a priced link without bandwidth: %s", err.text);
    return r->flow_resource;
}

static void make_route(struct network *n, int32_t resource)
{
    const struct program_link *l = &n->program->links[resource / 2];
    int32_t hops = l->n_hops ? l->n_hops : 1;
    int32_t *path = ARENA_ARRAY(n->arena, int32_t, 2 * (size_t)hops + 2), *messages = NULL;
    if (!l->n_hops) path[0] = flow_resource(n, resource);
    for (int32_t i = 0; i < l->n_hops; i++)
        path[i] = flow_resource(n, resource_of(n, l->hop[i], l->hop_direction[i] ^ (resource & 1)));
    if (l->pace_Bps > 0) { /* a link of its own */
        messages = path + hops + 1;
        for (int32_t i = 0; i < hops; i++) messages[i] = l->hop_messages ? l->hop_messages[i] : 1;
        messages[hops] = 1;
        path[hops++] = flow_resource(n, resource);
    }
    n->resources[resource].flow_route =
        flows_weighted_route(n->flows, path, messages ? messages : l->hop_messages, hops);
}

void network_start(struct network *n, struct arena *a)
{
    n->arena = a;
    n->flows = flows_new(a);
    for (int32_t i = 0; i < 2 * n->program->n_links; i++)
        if (n->resources[i].fair && n->resources[i].n_owners) make_route(n, i);
}

bool network_alone(const struct network *n, int32_t resource)
{
    return resource < 0 || (n->resources[resource].n_owners == 1 && !n->resources[resource].fair);
}

bool network_queues(const struct network *n, int32_t resource)
{
    return resource >= 0 && n->resources[resource].n_owners > 1 && !n->resources[resource].fair;
}

int64_t network_occupancy_ns(const struct network *n, int32_t resource, int64_t bytes)
{
    if (resource < 0) return 0;
    struct resource *r = &n->resources[resource];
    if (bytes != r->last_bytes)
        r->last_bytes = bytes, r->last_ns = cost_occupancy_ns(&r->cost, bytes);
    return r->last_ns;
}

/* --- fair sharing --- */

/* At any time one event is pending: a query of the flows. At the instant of a start it comes after everything already pending
 * for that instant, so that all starts of the instant cost one search. */
static void look_at(struct network *n, int64_t when_ns)
{
    if (n->looked_ns == when_ns) return;
    n->looked_ns = when_ns;
    event_queue_push(
        n->queue, (struct event){.time_ns = when_ns, .kind = n->flow_event, .stamp = ++n->stamp});
}

static void leave_until(struct network *n, int64_t now_ns, double until)
{
    struct flow_end e;
    while (flows_end(n->flows, until, &e)) {
        if (n->first && !n->n_leaving) n->first = 0;
        n->leaving = arena_grow(n->arena, n->leaving, n->first + n->n_leaving, &n->capacity,
                                sizeof *n->leaving);
        n->leaving[n->first + n->n_leaving++] =
            (struct leaving){(int32_t)(e.owner & INT32_MAX), (int32_t)(e.owner >> 32),
                             n->origin_ns + llround(e.start_ns), now_ns};
    }
}

/* Rounds an end to its nanosecond. Flows within a grain end together, so the same value is used for all of them. */
static int64_t rounded(const struct network *n, double ns)
{
    return n->origin_ns + (int64_t)floor(ns + 0.5 + FLOWS_GRAIN_NS);
}
static double last_of(const struct network *n, int64_t ns) /* the last end that is rounded to ns */
{
    return (double)(ns - n->origin_ns) + 0.5 - 2 * FLOWS_GRAIN_NS;
}

bool network_flow(struct network *n, const struct event *e, int32_t *owner, struct passage *out)
{
    if (e->stamp != n->stamp) return false;
    n->looked_ns = -1;
    leave_until(n, e->time_ns, last_of(n, e->time_ns));
    if (!n->n_leaving) {
        double next = flows_next_ns(n->flows);
        if (isfinite(next)) look_at(n, rounded(n, next));
        return false;
    }
    struct leaving x = n->leaving[n->first];
    n->first = --n->n_leaving ? n->first + 1 : 0;
    *owner = x.owner;
    *out = (struct passage){x.start_ns, x.left_ns,
                            x.left_ns + n->resources[x.resource].cost.latency_ns};
    look_at(n, e->time_ns);
    return true;
}

/* Whoever claims a link of this resource must know. */
static void break_claims(struct network *n, const struct resource *r, int64_t now_ns)
{
    if (!n->claims) return;
    int32_t n_links;
    const int32_t *links = flows_path(n->flows, r->flow_route, &n_links);
    for (int32_t i = 0; i < n_links; i++)
        if (n->claims[links[i]]) n->broken(n->with, n->claims[links[i]] - 1, now_ns);
}

static int64_t flow_owner(int32_t owner, int32_t resource) { return (int64_t)resource << 32 | owner; }

static void start_flow(struct network *n, int32_t owner, int32_t resource, double bytes,
                       int64_t now_ns)
{
    const struct resource *r = &n->resources[resource];
    break_claims(n, r, now_ns);
    leave_until(n, now_ns, (double)(now_ns - n->origin_ns));
    if (now_ns - n->origin_ns > CLOCK_MAX_NS) {
        flows_rebase(n->flows, (double)(now_ns - n->origin_ns));
        n->origin_ns = now_ns;
    }
    flows_start(n->flows, (double)(now_ns - n->origin_ns), r->flow_route, bytes,
                flow_owner(owner, resource));
    look_at(n, now_ns);
}

/* --- claims --- */

void network_claims(struct network *n, network_break *broken, void *with)
{
    n->claims = ARENA_ARRAY(n->arena, int32_t, 2 * (size_t)n->program->n_links + 1);
    n->broken = broken, n->with = with;
}

void network_claim_queue(struct network *n, int32_t resource, int32_t claimant)
{
    n->resources[resource].claimant = claimant + 1;
}

bool network_queue_claimed(const struct network *n, int32_t resource)
{
    return n->resources[resource].claimant != 0;
}

int64_t *network_queue_free_ns(struct network *n, int32_t resource)
{
    return &n->resources[resource].free_ns;
}

bool network_fair(const struct network *n, int32_t resource) { return n->resources[resource].fair; }

const int32_t *network_links(const struct network *n, int32_t resource, int32_t *n_links)
{
    return flows_path(n->flows, n->resources[resource].flow_route, n_links);
}

bool network_moves(const struct network *n, int32_t owner, int32_t resource)
{
    return flows_owner(n->flows, n->resources[resource].flow_route) == flow_owner(owner, resource);
}

bool network_claimable(struct network *n, const int32_t *links, int32_t n_links, int32_t own, int64_t now_ns)
{
    leave_until(n, now_ns, (double)(now_ns - n->origin_ns));
    if (n->n_leaving) look_at(n, now_ns);
    for (int32_t i = 0; i < n_links; i++) {
        if (n->claims[links[i]]) return false;
        own -= flows_routes_on(n->flows, links[i]);
        if (own < 0) return false;
    }
    return !own;
}

void network_claim(struct network *n, const int32_t *links, int32_t n_links, int32_t claimant)
{
    for (int32_t i = 0; i < n_links; i++) n->claims[links[i]] = claimant + 1;
}

void network_release(struct network *n, const int32_t *links, int32_t n_links)
{
    for (int32_t i = 0; i < n_links; i++) n->claims[links[i]] = 0;
}

double network_bytes(const struct network *n, int32_t resource, int64_t occupancy_ns)
{
    return (double)occupancy_ns * (n->resources[resource].cost.bandwidth_Bps / 1e9);
}

int64_t network_alone_end(const struct network *n, int32_t resource, double bytes, int64_t since_ns)
{
    double Bpns = flows_alone_Bpns(n->flows, n->resources[resource].flow_route);
    return rounded(n, (double)(since_ns - n->origin_ns) + bytes / Bpns);
}

int64_t network_latency(const struct network *n, int32_t resource)
{
    return n->resources[resource].cost.latency_ns;
}

double network_withdraw(struct network *n, int32_t resource, int64_t now_ns)
{
    double left = flows_withdraw(n->flows, (double)(now_ns - n->origin_ns),
                                 n->resources[resource].flow_route);
    look_at(n, now_ns);
    return left;
}

void network_resume(struct network *n, int32_t owner, int32_t resource, double bytes,
                    int64_t since_ns, int64_t now_ns)
{
    double Bpns = flows_alone_Bpns(n->flows, n->resources[resource].flow_route),
           left = bytes - Bpns * (double)(now_ns - since_ns);
    start_flow(n, owner, resource, left > 0 ? left : 0, now_ns);
}

bool network_overtaken(struct network *n, int32_t resource, uint64_t order, int64_t now_ns)
{
    if (!network_queues(n, resource)) return false;
    struct resource *r = &n->resources[resource];
    bool overtaken = r->ready_ns == now_ns && r->ready_order > order;
    r->ready_ns = now_ns, r->ready_order = order;
    return overtaken;
}

bool network_ready(struct network *n, int32_t owner, int32_t resource, int64_t occupancy_ns,
                   int64_t now_ns, struct passage *out)
{
    if (resource < 0) {
        *out = (struct passage){now_ns, now_ns, now_ns};
        return true;
    }
    struct resource *r = &n->resources[resource];
    if (!r->fair) {
        if (r->claimant) n->broken(n->with, r->claimant - 1, now_ns);
        int64_t start = now_ns > r->free_ns ? now_ns : r->free_ns;
        r->free_ns = start + occupancy_ns;
        *out = (struct passage){start, r->free_ns, r->free_ns + r->cost.latency_ns};
        return true;
    }
    start_flow(n, owner, resource, network_bytes(n, resource, occupancy_ns), now_ns);
    return false;
}
