#include "planner/replan/balance_layers.h"

#include "core/base/arena.h"

enum { LEVEL_STAGES_MAX = 1024 };

static int64_t price(const struct space *s, int32_t type, const struct plan_stage *x, bool again)
{
    const struct stage_cost *c = space_stage_type(s, type, x->first_layer, x->last_layer);
    return c->forward_ns + c->input_ns + c->weight_ns + (again ? c->recompute_ns : 0);
}

/* Of a stage that shards operators a device is taken to have an equal part of everything. */
static int64_t device_ns(const struct warm_prices *w, const struct plan_stage *x, int32_t k,
                         int32_t in_flight)
{
    const struct space *s = w->whole;
    int32_t type = s->cluster->devices[plan_stage_device(x, k)].type;
    const struct stage_cost *c = space_stage_type(s, type, x->first_layer, x->last_layer);
    int64_t all = s->microbatch, n = x->sequences ? x->sequences[k] : all, parts = x->sharding ? x->n_shards : 1;
    int64_t held = c->parameter_bytes + c->gradient_bytes + (x->zero ? 0 : c->state_bytes);
    int64_t room = s->cluster->types[type].memory_bytes - held / parts;
    int64_t bytes = c->activation_bytes / all * n / parts;
    if (bytes > room) return INT64_MAX;
    bool again = in_flight * bytes > room;
    int64_t whole = price(s, type, x, again) / parts;
    if (n == all) return whole;
    if (!w->few || w->few->microbatch >= all) return whole * n / all;
    int64_t least = w->few->microbatch, few = price(w->few, type, x, again);
    return few + (whole - few) * (n - least) / (all - least);
}

static int64_t slowest_device_ns(const struct warm_prices *w, const struct plan_stage *x, int32_t in_flight)
{
    int64_t slowest = 0;
    for (int32_t k = 0; k < plan_stage_devices(x); k++) {
        int64_t ns = device_ns(w, x, k, in_flight);
        if (ns > slowest) slowest = ns;
    }
    return slowest;
}

static int64_t message_ns(const struct warm_prices *w, const struct plan_stage *x,
                          const struct plan_stage *next, int32_t cut)
{
    if (!space_linked(w->whole, x->device, next->device)) return INT64_MAX;
    return space_transfer_ns(w->whole, x->device, next->device, cut);
}

static int32_t flying(const struct plan_replica *r, int32_t i)
{
    int32_t n = r->n_stages - i;
    return n < r->microbatches ? n : r->microbatches;
}

int64_t balance_layers_stage_ns(const struct warm_prices *w, const struct plan_replica *r, int32_t i)
{
    const struct plan_stage *x = &r->stages[i];
    int64_t ns = slowest_device_ns(w, x, flying(r, i)), message = 0;
    if (i + 1 < r->n_stages) message = message_ns(w, x, x + 1, x->last_layer);
    return ns > message ? ns : message;
}

int64_t balance_layers_replica_ns(const struct warm_prices *w, const struct plan_replica *r, int64_t *fill)
{
    int64_t slowest = 1, sum = 0;
    for (int32_t i = 0; i < r->n_stages; i++) {
        int64_t ns = balance_layers_stage_ns(w, r, i);
        if (ns == INT64_MAX) return ns;
        if (ns > slowest) slowest = ns;
        sum += ns;
    }
    if (fill) *fill = sum - slowest;
    return slowest;
}

/* The stage of a replica that holds a layer. */
static const struct plan_stage *holder(const struct plan_replica *r, int32_t layer)
{
    const struct plan_stage *x = r->stages;
    while (x->last_layer < layer) x++;
    return x;
}

/* Time of the gradients over a route that all devices of a node share if it leaves the node. */
static int64_t path_ns(const struct warm_prices *w, const int32_t *on_node, int32_t from, int32_t to,
                      int64_t bytes)
{
    const struct cluster *c = w->whole->cluster;
    const struct cost_link *l = space_link(w->whole, from, to);
    int32_t here = c->devices[from].node, there = c->devices[to].node;
    int64_t users = here == there                    ? 1
                    : on_node[here] > on_node[there] ? on_node[here]
                                                     : on_node[there];
    if (from == to) return 0;
    return l ? cost_occupancy_ns(l, bytes) * users : INT64_MAX / 4;
}

/* Ring all-reduce over all holders of the stage's first layer: each link carries 2 (n - 1) / n of the gradients. */
static int64_t sum_ns(const struct warm_prices *w, const struct plan *p, const int32_t *on_node,
                      int32_t r, int32_t i)
{
    const struct plan_stage *x = &p->replicas[r].stages[i];
    const struct plan_stage *next = holder(&p->replicas[(r + 1) % p->n_replicas], x->first_layer);
    int64_t n = plan_stage_devices(x), members = n * p->n_replicas, most = 0;
    if (members < 2) return 0;
    int64_t bytes = space_stage(w->whole, x->device, x->first_layer, x->last_layer)->gradient_bytes;
    bytes = 2 * (bytes / members) * (members - 1);
    for (int32_t k = 0; k < n; k++) {
        int32_t to = k + 1 < n ? plan_stage_device(x, k + 1) : next->device;
        int64_t ns = path_ns(w, on_node, plan_stage_device(x, k), to, bytes);
        if (ns > most) most = ns;
    }
    return most;
}

static void count_nodes(const struct warm_prices *w, const struct plan *p, int32_t *on_node)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            for (int32_t k = 0; k < plan_stage_devices(x); k++)
                on_node[w->whole->cluster->devices[plan_stage_device(x, k)].node]++;
        }
}

int64_t balance_layers_estimate(struct arena *a, const struct warm_prices *w, const struct plan *p)
{
    int64_t most = 0, sums = 0;
    int32_t *on_node = ARENA_ARRAY(a, int32_t, (size_t)w->whole->cluster->n_nodes);
    count_nodes(w, p, on_node);
    for (int32_t r = 0; r < p->n_replicas; r++) {
        int64_t fill = 0, ns = balance_layers_replica_ns(w, &p->replicas[r], &fill);
        if (ns == INT64_MAX) return ns;
        ns = fill + ns * p->replicas[r].microbatches;
        if (ns > most) most = ns;
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            int64_t sum = sum_ns(w, p, on_node, r, i);
            if (sum > sums) sums = sum;
        }
    }
    return most + sums;
}

/* The last boundary after stage i with a message of at most `most` that leaves layers and such boundaries for the other
 * stages; -1: none. */
static int32_t latest(const struct warm_prices *w, const struct plan_replica *r, int32_t i,
                      int32_t next, int64_t most)
{
    int32_t cut = next - 1;
    while (cut >= i && message_ns(w, &r->stages[i], &r->stages[i + 1], cut) > most) cut--;
    return cut >= i ? cut : -1;
}

/* Fills every stage while it and its message take at most `most`; false: layers remain. write: stores the boundaries in the
 * replica. */
static bool level_within(const struct warm_prices *w, struct plan_replica *r, int64_t most,
                         bool write)
{
    int32_t at = 0, end[LEVEL_STAGES_MAX];
    end[r->n_stages - 1] = w->whole->n_layers - 1;
    for (int32_t i = r->n_stages - 2; i >= 0; i--)
        if ((end[i] = latest(w, r, i, end[i + 1], most)) < 0) return false;
    for (int32_t i = 0; i < r->n_stages; i++) {
        bool last = i + 1 == r->n_stages;
        struct plan_stage x = r->stages[i];
        int32_t good = -1;
        x.first_layer = at;
        for (x.last_layer = at; x.last_layer <= end[i]; x.last_layer++) {
            if (slowest_device_ns(w, &x, flying(r, i)) > most) break;
            if (last || message_ns(w, &x, &r->stages[i + 1], x.last_layer) <= most)
                good = x.last_layer;
        }
        if (good < 0) return false;
        if (write) r->stages[i].first_layer = at, r->stages[i].last_layer = good;
        at = good + 1;
    }
    return at == w->whole->n_layers;
}

bool balance_layers(const struct warm_prices *w, struct plan_replica *r)
{
    int64_t low = 0, high = 1000;
    if (r->n_stages > LEVEL_STAGES_MAX) return false;
    while (!level_within(w, r, high, false)) {
        if (high > COST_MAX_NS / 4) return false;
        low = high, high *= 4;
    }
    while (high - low > 1 + high / 1024) {
        int64_t middle = low + (high - low) / 2;
        *(level_within(w, r, middle, false) ? &high : &low) = middle;
    }
    return level_within(w, r, high, true);
}
