/* Members of collectives, and the hops over which they send. */
#include "sim/engine/collectives_internal.h"

#include "core/base/arena.h"
#include "sim/collective/price.h"

static int32_t hops_of(const struct collective *g)
{
    if (collectives_ranks(g) < 2 || g->each_call || g->algorithm == ALGORITHM_LOCAL) return 0;
    if (program_collective_in_rounds(g)) return 0; /* shared: find_collective_hops */
    if (g->flow_link) return 1;
    if (g->stands_for && g->stands_ns >= 0) return 0;
    return program_collective_rings(g) ? g->n_members : 2 * (g->n_members - 1);
}

static enum status make_hop(struct engine *e, struct cost *k, const struct collective *g,
                            int32_t first, int32_t i, struct hop *h, struct error *err)
{
    int32_t n = g->n_members, direction;
    bool back = g->algorithm == ALGORITHM_CHAIN && i >= n - 1;
    int32_t from = back ? i - (n - 1) + 1 : i, to = back ? from - 1 : (i + 1) % n;
    int32_t ranks = collectives_ranks(g);
    int64_t elements =
        program_collective_rings(g) ? (g->elements + ranks - 1) / ranks : g->elements;
    h->from = first + from, h->to = first + to;
    h->from_lane = e->lane_of_stage[g->members[from].stage];
    h->to_lane = e->lane_of_stage[g->members[to].stage];
    h->link = back ? g->back_link[from] : g->link[from];
    direction = back ? g->back_direction[from] : g->direction[from];
    return network_join(e->network, k, h->link, direction, elements * dtype_bytes(g->dtype),
                        &h->resource, err);
}

/* The one hop of a ring that is a flow. */
static enum status make_flow(struct engine *e, struct cost *k, int32_t group, struct error *err)
{
    const struct collective *g = &e->program->collectives[group];
    struct collective_streams *c = e->collectives;
    struct hop *h = &c->hops[c->first_hop[group]];
    int64_t ranks = collectives_ranks(g);
    h->from = h->to = c->first_member[group];
    h->from_lane = h->to_lane = e->lane_of_stage[g->members[0].stage];
    h->link = g->flow_link - 1;
    h->bytes = (g->elements + ranks - 1) / ranks * dtype_bytes(g->dtype) * collectives_ring_steps(g);
    return network_join(e->network, k, h->link, 0, h->bytes, &h->resource, err);
}

static void count(struct engine *e, struct collective_streams *c)
{
    const struct program *p = e->program;
    c->first_member = ARENA_ARRAY(e->arena, int32_t, (size_t)p->n_collectives);
    c->first_hop = ARENA_ARRAY(e->arena, int32_t, (size_t)p->n_collectives);
    c->streams = ARENA_ARRAY(e->arena, struct stream_state, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        c->first_member[i] = c->n_members, c->first_hop[i] = c->n_hops;
        c->n_members += collectives_elsewhere(g) ? 0 : g->n_members, c->n_hops += hops_of(g);
        for (int32_t m = 0; m < g->n_members && !collectives_elsewhere(g); m++)
            if (collective_like(g, m) == m)
                c->streams[e->lane_of_stage[g->members[m].stage]].n_members++;
    }
    c->members = ARENA_ARRAY(e->arena, struct member, (size_t)c->n_members);
    for (int32_t i = 0; i < p->n_devices; i++) {
        struct stream_state *s = &c->streams[i];
        s->members = ARENA_ARRAY(e->arena, int32_t, (size_t)s->n_members);
        s->capacity = (size_t)s->n_members;
        s->queue = ARENA_ARRAY(e->arena, struct handed, s->capacity);
        s->n_members = 0;
    }
}

/* --- hops of collectives --- */

struct seen_hop {
    uint64_t key;
    int32_t index; /* + 1; 0: empty */
};

struct seeing {
    struct engine *e;
    struct seen_hop *seen; /* (n_seen) open hash, a power of two */
    size_t n_seen, capacity;
};

/* The hop of these lanes over this link; `bytes` is the most that it carries. */
static int32_t see_hop(struct seeing *s, const struct hop *like)
{
    struct collective_streams *c = s->e->collectives;
    uint64_t key = ((uint64_t)(uint32_t)like->from_lane << 32 | (uint32_t)like->to_lane) *
                       UINT64_C(0x9E3779B97F4A7C15) ^
                   ((uint64_t)(uint32_t)like->link << 1 | (uint32_t)like->direction);
    for (size_t at = (size_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 24);; at++) {
        struct seen_hop *x = &s->seen[at & (s->n_seen - 1)];
        struct hop *h = x->index ? &c->hops[x->index - 1] : NULL;
        if (!h) {
            c->hops =
                arena_grow(s->e->arena, c->hops, (size_t)c->n_hops, &s->capacity, sizeof *c->hops);
            c->hops[c->n_hops++] = *like;
            *x = (struct seen_hop){key, c->n_hops};
            return c->n_hops - 1;
        }
        if (x->key != key || h->from_lane != like->from_lane || h->to_lane != like->to_lane ||
            h->link != like->link || h->direction != like->direction)
            continue;
        if (like->bytes > h->bytes) h->bytes = like->bytes;
        return x->index - 1;
    }
}

static void see_group(struct seeing *s, int32_t group)
{
    const struct collective *g = &s->e->program->collectives[group];
    const struct collective *m = g;
    bool ring = m->algorithm == ALGORITHM_RING;
    size_t n = (size_t)m->n_members * (ring ? 1 : (size_t)m->n_members);
    int32_t *hop = s->e->collectives->collective_hop_of[group] =
        ARENA_ARRAY(s->e->arena, int32_t, n);
    for (int32_t i = 0; i < m->n_members; i++)
        for (int32_t k = 0; k < (ring ? 1 : m->n_members) && collective_like(g, i) == i; k++) {
            int32_t to = ring ? (i + 1) % m->n_members : k, at = ring ? i : i * m->n_members + k;
            int64_t most = m->algorithm == ALGORITHM_PAIRS ? collective_elements(m, i, k) : m->most;
            hop[at] = -1;
            if (!most || !collective_sends(m, i, to)) continue;
            struct hop like = {.from_lane = s->e->lane_of_stage[g->members[i].stage],
                               .to_lane = s->e->lane_of_stage[g->members[to].stage],
                               .bytes = most * dtype_bytes(g->dtype)};
            program_collective_link(g, i, to, &like.link, &like.direction);
            hop[at] = see_hop(s, &like);
        }
}

/* After the hops of rings and chains: one for every two lanes and link, shared by all collectives in rounds. */
static void find_collective_hops(struct engine *e)
{
    const struct program *p = e->program;
    struct collective_streams *c = e->collectives;
    size_t most = 1;
    c->collective_hop_of = ARENA_ARRAY(e->arena, int32_t *, (size_t)p->n_collectives);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *m = &p->collectives[i];
        if (m)
            most +=
                (size_t)m->n_members * (m->algorithm == ALGORITHM_RING ? 1 : (size_t)m->n_members);
    }
    size_t lanes = (size_t)p->n_devices, pairs = lanes * lanes * 4;
    struct seeing s = {.e = e, .n_seen = 2, .capacity = (size_t)c->n_hops};
    while (s.n_seen < 2 * (most < pairs ? most : pairs)) s.n_seen *= 2;
    s.seen = ARENA_ARRAY(e->arena, struct seen_hop, s.n_seen);
    c->hops = ARENA_ARRAY(e->arena, struct hop, s.capacity);
    for (int32_t i = 0; i < p->n_collectives; i++)
        if (program_collective_in_rounds(&p->collectives[i])) see_group(&s, i);
}

/* --- instructions --- */

/* The lane's member of the collective; -1: none. */
static int32_t find_member(const struct collective_streams *c, int32_t group, int32_t lane)
{
    const struct stream_state *s = &c->streams[lane];
    int32_t low = 0, high = s->n_members;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (c->members[s->members[middle]].group < group)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n_members && c->members[s->members[low]].group == group
               ? s->members[low]
               : -1;
}

static void name_members(struct engine *e, int32_t lane, struct code *code)
{
    for (; code->kind != CODE_END; code++) {
        if (code->kind != CODE_COLLECTIVE && code->kind != CODE_COLLECTIVE_START &&
            code->kind != CODE_COLLECTIVE_WAIT)
            continue;
        int32_t member = find_member(e->collectives, code->arg, lane);
        code->arg = member < 0 ? -1 - code->arg : member;
    }
}

enum status collective_new(struct engine *e, struct cost *k, struct error *err)
{
    const struct program *p = e->program;
    struct collective_streams *c = e->collectives = ARENA_ARRAY(e->arena, struct collective_streams, 1);
    count(e, c);
    c->rendezvous = ARENA_ARRAY(e->arena, struct rendezvous, (size_t)p->n_collectives);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        struct rendezvous *r = &c->rendezvous[i];
        r->price_ns = collective_price_ns(k, p, g, NULL);
        r->n_launches = g->n_members, r->together = r->price_ns >= 0 || g->flow_link;
        for (int32_t m = 0; m < g->n_members; m++) r->n_members += collective_like(g, m) == m;
        if (!g->each_call && g->like) r->n_launches = r->n_members;
    }
    int32_t n_reduces = c->n_hops;
    find_collective_hops(e);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        for (int32_t m = 0; m < g->n_members && !collectives_elsewhere(g); m++) {
            int32_t lane = e->lane_of_stage[g->members[m].stage], at = c->first_member[i] + m;
            struct stream_state *s = &c->streams[lane];
            c->members[at] = (struct member){
                .group = i, .index = m, .lane = lane, .repeats = program_collective_repeats(g)};
            if (collective_like(g, m) == m) s->members[s->n_members++] = at;
        }
        if (g->flow_link) TRY(make_flow(e, k, i, err));
        for (int32_t h = 0; h < hops_of(g) && !g->flow_link; h++)
            TRY(make_hop(e, k, g, c->first_member[i], h, &c->hops[c->first_hop[i] + h], err));
    }
    for (int32_t h = n_reduces; h < c->n_hops; h++)
        TRY(network_join(e->network, k, c->hops[h].link, c->hops[h].direction, c->hops[h].bytes,
                         &c->hops[h].resource, err));
    for (int32_t i = 0; i < p->n_devices; i++)
        for (int32_t s = 0; s < p->lanes[i].n_stages; s++)
            for (int32_t f = 0; f < p->stages[p->lanes[i].stages[s]].n_procedures; f++)
                name_members(e, i, e->lanes[i].procedures[s][f].code);
    return OK;
}
