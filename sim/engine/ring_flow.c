#include "sim/engine/ring_flow.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "sim/collective/price.h"

#include <math.h>
#include <string.h>

struct flowing {
    struct arena *arena;
    const struct program *p;
    struct cost *k;
    const struct sim_scale *scale;
    struct program *out;
    size_t capacity;               /* of out->links */
    const struct collective *last; /* the last one that has a route */
    int32_t *
        at; /* (2 n_links + 1) of the current ring: place of a link and direction among its hops, + 1 */
};

static bool shared_fairly(const struct program *p, int32_t link)
{
    const struct program_link *l = &p->links[link];
    bool fair = l->n_hops || l->sharing != LINK_FIFO;
    for (int32_t i = 0; i < l->n_hops; i++) fair &= !(p->links[l->hop[i]].compute_slowdown > 0);
    return fair && !(l->compute_slowdown > 0);
}

/* Whether several devices of a stage follow one another in each of several stages, so that their places differ. */
static bool in_several_groups(const struct program *p, const struct collective *g)
{
    bool beside = false, apart = false;
    for (int32_t i = 1; i < g->n_members; i++) {
        const struct program_stage *x = &p->stages[g->members[i - 1].stage],
                                   *y = &p->stages[g->members[i].stage];
        bool same = x->replica == y->replica && x->stage == y->stage;
        beside |= same, apart |= !same;
    }
    return beside && apart;
}

/* Many ranks, or some whose places keep equal lanes separate; and no price. */
static bool may_apply(const struct program *p, const struct collective *g, struct cost *k)
{
    if (program_collective_in_rounds(g) || g->algorithm == ALGORITHM_LOCAL) return false;
    if (g->n_members <= RING_FLOW_GROUPED || g->each_call || g->stands_for) return false;
    if (g->n_members <= RING_FLOW_RANKS && !in_several_groups(p, g)) return false;
    return collective_price_ns(k, p, g, NULL) < 0;
}

static int64_t chunk_bytes(const struct collective *g)
{
    int64_t n = program_collective_rings(g) ? g->n_members : 1;
    return (g->elements + n - 1) / n * dtype_bytes(g->dtype);
}

/* --- steps --- */

/* A chunk on all hops without other traffic: a step of a ring takes the slowest one, and a chain all of them, one after the other. */
struct passing {
    int64_t bytes, slowest_ns, all_ns;
    bool fair,
        brief; /* links of all hops are shared fairly, and occupied for a small part of their latency */
};

/* Bandwidth 0: no price. */
static struct cost_link priced(const struct flowing *w, int32_t link)
{
    struct cost_link c = {0};
    double factor = w->scale && w->scale->link ? w->scale->link[link] : 1;
    if (cost_program_link(w->k, &w->p->links[link], link, &c, NULL) != OK) return c;
    c.latency_ns = (int64_t)(factor * (double)c.latency_ns);
    c.bandwidth_Bps = factor > 0 ? c.bandwidth_Bps / factor : 1e30;
    if (factor != 1) c.curve = NULL;
    return c;
}

static void pass(const struct flowing *w, struct passing *x, int32_t link)
{
    const struct program_link *l = link < 0 ? NULL : &w->p->links[link];
    int64_t occupied = 0, latency = 0;
    x->fair &= l && shared_fairly(w->p, link);
    for (int32_t i = 0; l && x->fair && i < (l->n_hops ? l->n_hops : 1); i++) {
        struct cost_link c = priced(w, l->n_hops ? l->hop[i] : link);
        x->fair &= c.bandwidth_Bps > 0;
        occupied = units_max(occupied, cost_occupancy_ns(&c, x->bytes));
        latency += c.latency_ns;
    }
    x->brief &= occupied <= latency / RING_FLOW_LATENCIES;
    x->slowest_ns = units_max(x->slowest_ns, occupied + latency);
    x->all_ns += occupied + latency;
}

static struct passing pass_all(const struct flowing *w, const struct collective *g)
{
    struct passing x = {.bytes = chunk_bytes(g), .fair = true, .brief = true};
    bool ring = program_collective_rings(g);
    for (int32_t i = 0; i < g->n_members && x.fair; i++) {
        if (ring || i + 1 < g->n_members) pass(w, &x, g->link[i]);
        if (!ring && i) pass(w, &x, g->back_link[i]);
    }
    return x;
}

/* --- routes --- */

static int32_t place_of(const struct flowing *w, int32_t link, int32_t direction)
{
    return 2 * link + (w->p->links[link].half_duplex ? 0 : direction);
}

/* One more message on this link and direction. */
static void load(struct flowing *w, struct program_link *route, int32_t *messages, int32_t link,
                 int32_t direction)
{
    int32_t *at = &w->at[place_of(w, link, direction)];
    if (!*at) {
        route->hop[route->n_hops] = link, route->hop_direction[route->n_hops] = direction;
        *at = ++route->n_hops;
    }
    messages[*at - 1]++;
}

/* A step takes the slowest hop, whose links other hops of the ring use at the same time. */
static void set_pace(const struct flowing *w, const struct collective *g, struct program_link *x)
{
    double slowest_ns = 1;
    for (int32_t i = 0; i < g->n_members; i++) {
        const struct program_link *l = &w->p->links[g->link[i]];
        double occupied = 0, latency = 0;
        for (int32_t h = 0; h < (l->n_hops ? l->n_hops : 1); h++) {
            int32_t at = l->n_hops ? l->hop[h] : g->link[i],
                    towards = g->direction[i] ^ (l->n_hops ? l->hop_direction[h] : 0);
            struct cost_link c = priced(w, at);
            double messages = x->hop_messages[w->at[place_of(w, at, towards)] - 1];
            occupied = fmax(occupied, messages * (double)cost_occupancy_ns(&c, chunk_bytes(g)));
            latency += (double)c.latency_ns;
        }
        if (occupied + latency <= slowest_ns) continue;
        slowest_ns = occupied + latency, x->latency_s = 1e-9 * latency;
    }
    x->pace_Bps = 1e9 * (double)chunk_bytes(g) / slowest_ns;
}

/* A message loads a link once, though its route may cross it twice (half duplex, between two devices behind it). */
static bool crossed(const struct flowing *w, const struct program_link *l, int32_t hop)
{
    int32_t at = place_of(w, l->hop[hop], l->hop_direction[hop]), i = 0;
    while (place_of(w, l->hop[i], l->hop_direction[i]) != at) i++;
    return i < hop;
}

static int32_t make_route(struct flowing *w, const struct collective *g)
{
    const struct program *p = w->p;
    int32_t most = 0, *messages;
    for (int32_t i = 0; i < g->n_members; i++)
        most += p->links[g->link[i]].n_hops ? p->links[g->link[i]].n_hops : 1;
    struct program_link x = {.name = g->name,
                             .sharing = LINK_FAIR,
                             .of = -1,
                             .hop = ARENA_ARRAY(w->arena, int32_t, (size_t)most),
                             .hop_direction = ARENA_ARRAY(w->arena, int32_t, (size_t)most),
                             .hop_messages = messages =
                                 ARENA_ARRAY(w->arena, int32_t, (size_t)most)};
    for (int32_t i = 0; i < g->n_members; i++) {
        const struct program_link *l = &p->links[g->link[i]];
        if (!l->n_hops) load(w, &x, messages, g->link[i], g->direction[i]);
        for (int32_t h = 0; h < l->n_hops; h++)
            if (!crossed(w, l, h))
                load(w, &x, messages, l->hop[h], l->hop_direction[h] ^ g->direction[i]);
    }
    set_pace(w, g, &x);
    for (int32_t h = 0; h < x.n_hops; h++) w->at[place_of(w, x.hop[h], x.hop_direction[h])] = 0;
    w->out->links = arena_grow(w->arena, w->out->links, (size_t)w->out->n_links, &w->capacity,
                               sizeof *w->out->links);
    w->out->links[w->out->n_links] = x;
    return w->out->n_links++;
}

/* The buckets of one stage have the same hops. */
static bool alike(const struct collective *a, const struct collective *b)
{
    size_t bytes = (size_t)a->n_members * sizeof *a->link;
    return a->n_members == b->n_members && chunk_bytes(a) == chunk_bytes(b) &&
           !memcmp(a->link, b->link, bytes) && !memcmp(a->direction, b->direction, bytes);
}

static void start(struct flowing *w)
{
    const struct program *p = w->p;
    struct program *out = w->out = ARENA_ARRAY(w->arena, struct program, 1);
    *out = *p;
    out->collectives =
        arena_copy(w->arena, p->collectives, (size_t)p->n_collectives * sizeof *p->collectives);
    w->capacity = (size_t)p->n_links + 16;
    out->links = ARENA_ARRAY(w->arena, struct program_link, w->capacity);
    memcpy(out->links, p->links, (size_t)p->n_links * sizeof *p->links);
    w->at = ARENA_ARRAY(w->arena, int32_t, 2 * (size_t)p->n_links + 1);
}

const struct program *ring_flow_make(struct arena *a, const struct program *p, struct cost *k,
                                     const struct sim_scale *scale)
{
    struct flowing w = {.arena = a, .p = p, .k = k, .scale = scale};
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        if (!may_apply(p, g, k)) continue;
        struct passing x = pass_all(&w, g);
        bool ring = program_collective_rings(g);
        if (!x.fair || (!x.brief && (!ring || g->n_members <= RING_FLOW_RANKS))) continue;
        if (!w.out) start(&w);
        struct collective *out = &w.out->collectives[i];
        if (x.brief) {
            int64_t steps = (program_collective_divides(g) ? 1 : 2) * (g->n_members - 1);
            out->stands_for = g->n_members;
            out->stands_ns = ring ? steps * x.slowest_ns : x.all_ns;
        } else {
            out->flow_link = w.last && alike(w.last, g) ? w.last->flow_link : 1 + make_route(&w, g);
            w.last = out;
        }
    }
    return w.out ? w.out : p;
}
