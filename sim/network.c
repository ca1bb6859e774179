#include "sim/network.h"

#include "core/arena.h"

#include <inttypes.h>
#include <math.h>

#define SHARE 5040 /* = lcm(1 … 10): parts of a nanosecond */
/* Twelve days: what is left of a message, in parts, stays inside int64. */
#define FAIR_MOST_NS ((int64_t)1000000000000000)

struct flow {
    int32_t owner;
    int64_t left, start_ns; /* left: parts of a nanosecond of the whole link */
};

struct resource {
    struct cost_link cost;
    bool fair;
    int64_t free_ns;           /* FIFO: when all that were ready before have left */
    int64_t changed_ns, stamp; /* fair */
    int32_t n_flows, n_owners;
    struct flow *flows; /* (n_owners), in order of start */
};

struct network {
    const struct program *program;
    struct event_queue *queue;
    int32_t flow_event;
    const double *scale; /* (n_links) or NULL */
    struct resource
        *resources; /* (n_links, 2) by direction; the second is unused where half duplex */
};

static enum status link_cost(const struct program_link *l, int32_t index, struct cost *k,
                             struct cost_link *out, struct error *err)
{
    int32_t found = cost_link_index(k, index, l->name);
    if (found >= 0) return cost_link(k, found, out, err);
    return error_set(err, ERR_INPUT, "link %s is not a link of the cluster", l->name);
}

struct network *network_new(struct arena *a, const struct program *p, struct event_queue *q,
                            int32_t flow_event, const double *link_scale)
{
    struct network *n = ARENA_ARRAY(a, struct network, 1);
    *n = (struct network){.program = p,
                          .queue = q,
                          .flow_event = flow_event,
                          .scale = link_scale,
                          .resources = ARENA_ARRAY(a, struct resource, 2 * (size_t)p->n_links)};
    return n;
}

static enum status stretch(const struct network *n, int32_t link, struct cost_link *c,
                           struct error *err)
{
    double factor = n->scale ? n->scale[link] : 1, latency_ns = (double)c->latency_ns * factor;
    if (factor == 1) return OK;
    if (!(latency_ns >= 0 && latency_ns <= (double)COST_MOST_NS && factor < HUGE_VAL))
        return error_set(err, ERR_INPUT, "link %s cannot take %g times as long",
                         n->program->links[link].name, factor);
    c->bandwidth_Bps /= factor; /* infinite where it takes no time: any bytes ÷ it are 0 */
    c->latency_ns = (int64_t)llround(latency_ns);
    return OK;
}

/* Links are priced only where something uses them: a link that is not measured yet harms nobody else. */
static enum status price(struct network *n, struct cost *k, int32_t link, struct error *err)
{
    for (int32_t d = 0; d < 2; d++) {
        struct resource *r = &n->resources[2 * link + d];
        if (r->cost.bandwidth_Bps > 0) continue;
        TRY(link_cost(&n->program->links[link], link, k, &r->cost, err));
        TRY(stretch(n, link, &r->cost, err));
        r->fair = n->program->links[link].sharing == LINK_FAIR;
    }
    return OK;
}

enum status network_join(struct network *n, struct cost *k, int32_t link, int32_t direction,
                         int64_t bytes, int32_t *out_resource, struct error *err)
{
    *out_resource = -1;
    if (link < 0) return OK;
    TRY(price(n, k, link, err));
    *out_resource = 2 * link + (n->program->links[link].half_duplex ? 0 : direction);
    struct resource *r = &n->resources[*out_resource];
    r->n_owners++;
    if (r->fair && cost_occupancy_ns(&r->cost, bytes) > FAIR_MOST_NS)
        return error_set(err, ERR_INPUT,
                         "link %s: a message of %" PRId64 " bytes takes more than twelve days",
                         n->program->links[link].name, bytes);
    return OK;
}

void network_start(struct network *n, struct arena *a)
{
    for (int32_t i = 0; i < 2 * n->program->n_links; i++)
        if (n->resources[i].fair)
            n->resources[i].flows = ARENA_ARRAY(a, struct flow, (size_t)n->resources[i].n_owners);
}

int64_t network_occupancy_ns(const struct network *n, int32_t resource, int64_t bytes)
{
    return resource < 0 ? 0 : cost_occupancy_ns(&n->resources[resource].cost, bytes);
}

/* --- fair sharing --- */

static void serve_until(struct resource *r, int64_t now_ns)
{
    int64_t passed = now_ns - r->changed_ns;
    r->changed_ns = now_ns;
    if (!r->n_flows) return;
    int64_t each = passed / r->n_flows * SHARE + passed % r->n_flows * SHARE / r->n_flows;
    for (int32_t i = 0; i < r->n_flows; i++) {
        struct flow *f = &r->flows[i];
        f->left = f->left > each ? f->left - each : 0;
    }
}

/* The next end, if nothing else happens; all earlier such events are void. */
static void foresee(struct network *n, int32_t resource)
{
    struct resource *r = &n->resources[resource];
    r->stamp++;
    if (!r->n_flows) return;
    int64_t least = r->flows[0].left;
    for (int32_t i = 1; i < r->n_flows; i++)
        if (r->flows[i].left < least) least = r->flows[i].left;
    int64_t wait = least / SHARE * r->n_flows + (least % SHARE * r->n_flows + SHARE - 1) / SHARE;
    event_queue_push(n->queue, (struct event){.time_ns = r->changed_ns + wait,
                                              .kind = n->flow_event,
                                              .index = resource,
                                              .stamp = r->stamp});
}

bool network_flow(struct network *n, const struct event *e, int32_t *owner, struct passage *out)
{
    struct resource *r = &n->resources[e->index];
    if (e->stamp != r->stamp) return false;
    serve_until(r, e->time_ns);
    int32_t i = 0;
    while (i < r->n_flows && r->flows[i].left) i++;
    if (i == r->n_flows) BUG("a flow event without a flow that ends");
    *owner = r->flows[i].owner;
    *out = (struct passage){r->flows[i].start_ns, e->time_ns, e->time_ns + r->cost.latency_ns};
    for (r->n_flows--; i < r->n_flows; i++) r->flows[i] = r->flows[i + 1];
    foresee(n, e->index);
    return true;
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
        int64_t start = now_ns > r->free_ns ? now_ns : r->free_ns;
        r->free_ns = start + occupancy_ns;
        *out = (struct passage){start, r->free_ns, r->free_ns + r->cost.latency_ns};
        return true;
    }
    serve_until(r, now_ns);
    r->flows[r->n_flows++] = (struct flow){owner, occupancy_ns * SHARE, now_ns};
    foresee(n, resource);
    return false;
}
