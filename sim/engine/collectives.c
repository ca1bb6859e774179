/* Collectives as messages on the links.
 *
 * A member is one lane in one collective. Its work is a list of parts (core/program/program.h's steps): each sends at
 * most one message and receives at most one, and the next begins when both have ended. A hop is one direction between two
 * neighbours: its message is ready when both ends have reached their parts. Neither end can reach the next part of
 * the hop before this one is over, so one flag per end is the complete state.
 * A lane's collective stream executes its launches in order, one after the other.
 */
#include "sim/engine/engine.h"

#include "core/base/arena.h"
#include "sim/collective/price.h"

#include <inttypes.h>

struct member {
    int32_t group, index, lane; /* index in the collective */
    int32_t part, pending;      /* messages of this part that have not ended */
    int32_t launched, ended;    /* launches of this collective, one a step for a gradient all-reduce */
    int32_t step, times; /* of the running one: its step, and the earlier launches of that step */
    int32_t next_step, next_times;             /* of the last one launched */
    int64_t begin_ns, part_end_ns, part_bytes; /* of the part */
    int64_t end_ns;                            /* of the last collective */
};

/* A hop of collectives inside calls is shared by all collectives of the two lanes over this link, because each lane is in one
 * collective at a time; `from` and `to` are then the members of the latest one. */
struct hop {
    int32_t from, to; /* members */
    int32_t resource, link, direction, from_lane, to_lane;
    bool from_here, to_here;
    int64_t ready_ns, bytes;
};

struct handed {
    int32_t member, step, times;
    int64_t when_ns;
};

struct stream_state {
    bool busy;
    int64_t free_ns;
    int32_t *members, n_members; /* of this lane, by collective */
    size_t first, n, capacity;
    struct handed *queue; /* waiting: queue[first … first + n - 1] */
};

struct rendezvous { /* of one collective */
    int64_t price_ns; /* sim/collective/price.h; -1: simulated by messages */
    int32_t here; /* priced: the members that have arrived, and the last arrival */
    int64_t latest_ns;
    int32_t started; /* the current execution; their latest launch, and that of the last execution that all have started */
    int64_t launching_ns, launched_ns;
};

struct collectives {
    struct rendezvous *rendezvous;     /* (n_collectives) */
    int32_t *first_member, *first_hop; /* (n_groups) */
    int32_t **collective_hop_of; /* (n_groups) of collectives: (n, n), or (n) by ring; -1: none */
    int32_t n_members, n_hops;
    struct member *members;
    struct hop *hops;
    struct stream_state *streams; /* (n_devices) */
};

/* --- setting up --- */

/* Members before folding: in a folded ring (sim/engine/fold) one represents all. */
static int32_t ranks_of(const struct collective *g)
{
    return g->stands_for ? g->stands_for : g->n_members;
}

static bool folded(const struct collective *g) { return ranks_of(g) > g->n_members; }

/* Not simulated in this file. */
static bool is_separate(const struct collective *g)
{
    return g->each_call && !collective_of_tensor(g);
}

static int32_t hops_of(const struct collective *g)
{
    if (ranks_of(g) < 2 || g->each_call || g->algorithm == ALGORITHM_LOCAL) return 0;
    return program_collective_rings(g) ? g->n_members : 2 * (g->n_members - 1);
}

static enum status make_hop(struct engine *e, struct cost *k, const struct collective *g,
                            int32_t first, int32_t i, struct hop *h, struct error *err)
{
    int32_t n = g->n_members, direction;
    bool back = g->algorithm == ALGORITHM_CHAIN && i >= n - 1;
    int32_t from = back ? i - (n - 1) + 1 : i, to = back ? from - 1 : (i + 1) % n;
    int32_t ranks = ranks_of(g);
    int64_t elements = program_collective_rings(g) ? (g->elements + ranks - 1) / ranks : g->elements;
    h->from = first + from, h->to = first + to;
    h->link = back ? g->back_link[from] : g->link[from];
    direction = back ? g->back_direction[from] : g->direction[from];
    return network_join(e->network, k, h->link, direction, elements * dtype_bytes(g->dtype),
                        &h->resource, err);
}

static void count(struct engine *e, struct collectives *c)
{
    const struct program *p = e->program;
    c->first_member = ARENA_ARRAY(e->arena, int32_t, (size_t)p->n_collectives);
    c->first_hop = ARENA_ARRAY(e->arena, int32_t, (size_t)p->n_collectives);
    c->streams = ARENA_ARRAY(e->arena, struct stream_state, (size_t)p->n_devices);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        c->first_member[i] = c->n_members, c->first_hop[i] = c->n_hops;
        c->n_members += is_separate(g) ? 0 : g->n_members, c->n_hops += hops_of(g);
        for (int32_t m = 0; m < g->n_members && !is_separate(g); m++)
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
    struct collectives *c = s->e->collectives;
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
    bool ring = g->algorithm == ALGORITHM_RING;
    size_t n = (size_t)g->n_members * (ring ? 1 : (size_t)g->n_members);
    int32_t *hop = s->e->collectives->collective_hop_of[group] = ARENA_ARRAY(s->e->arena, int32_t, n);
    for (int32_t i = 0; i < g->n_members; i++)
        for (int32_t k = 0; k < (ring ? 1 : g->n_members); k++) {
            int32_t to = ring ? (i + 1) % g->n_members : k, at = ring ? i : i * g->n_members + k;
            int64_t most = g->algorithm == ALGORITHM_PAIRS ? collective_elements(g, i, k) : g->most;
            hop[at] = -1;
            if (!most || !collective_sends(g, i, to)) continue;
            struct hop like = {.from_lane = s->e->lane_of_stage[g->members[i].stage],
                               .to_lane = s->e->lane_of_stage[g->members[to].stage],
                               .bytes = most * dtype_bytes(g->dtype)};
            program_collective_link(g, i, to, &like.link, &like.direction);
            hop[at] = see_hop(s, &like);
        }
}

/* After the hops of gradient all-reduces: one for every two lanes and link, shared by all collectives inside calls. */
static void find_collective_hops(struct engine *e)
{
    const struct program *p = e->program;
    struct collectives *c = e->collectives;
    size_t most = 1;
    c->collective_hop_of = ARENA_ARRAY(e->arena, int32_t *, (size_t)p->n_collectives);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        size_t n = (size_t)p->collectives[i].n_members;
        most += p->collectives[i].algorithm == ALGORITHM_RING ? n : n * n;
    }
    size_t lanes = (size_t)p->n_devices, pairs = lanes * lanes * 4;
    struct seeing s = {.e = e, .n_seen = 2, .capacity = (size_t)c->n_hops};
    while (s.n_seen < 2 * (most < pairs ? most : pairs)) s.n_seen *= 2;
    s.seen = ARENA_ARRAY(e->arena, struct seen_hop, s.n_seen);
    c->hops = ARENA_ARRAY(e->arena, struct hop, s.capacity);
    for (int32_t i = 0; i < p->n_collectives; i++)
        if (collective_of_tensor(&p->collectives[i])) see_group(&s, i);
}

enum status collective_new(struct engine *e, struct cost *k, struct error *err)
{
    const struct program *p = e->program;
    struct collectives *c = e->collectives = ARENA_ARRAY(e->arena, struct collectives, 1);
    count(e, c);
    c->rendezvous = ARENA_ARRAY(e->arena, struct rendezvous, (size_t)p->n_collectives);
    for (int32_t i = 0; i < p->n_collectives; i++)
        c->rendezvous[i].price_ns = collective_price_ns(k, p, &p->collectives[i], NULL);
    int32_t n_reduces = c->n_hops;
    find_collective_hops(e);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        const struct collective *g = &p->collectives[i];
        for (int32_t m = 0; m < g->n_members && !is_separate(g); m++) {
            int32_t lane = e->lane_of_stage[g->members[m].stage], at = c->first_member[i] + m;
            struct stream_state *s = &c->streams[lane];
            c->members[at] = (struct member){.group = i, .index = m, .lane = lane};
            s->members[s->n_members++] = at;
        }
        for (int32_t h = 0; h < hops_of(g); h++)
            TRY(make_hop(e, k, g, c->first_member[i], h, &c->hops[c->first_hop[i] + h], err));
    }
    for (int32_t h = n_reduces; h < c->n_hops; h++)
        TRY(network_join(e->network, k, c->hops[h].link, c->hops[h].direction, c->hops[h].bytes,
                         &c->hops[h].resource, err));
    return OK;
}

/* --- parts --- */

static int64_t chunk_bytes(const struct collective *g, int32_t chunk)
{
    int64_t first, last;
    if (folded(g)) return (g->elements + g->stands_for - 1) / g->stands_for * dtype_bytes(g->dtype);
    chunk %= g->n_members;
    collective_chunk(g, chunk < 0 ? chunk + g->n_members : chunk, &first, &last);
    return (last - first) * dtype_bytes(g->dtype);
}

int32_t collective_parts(const struct collective *g)
{
    if (collective_of_tensor(g)) return collective_steps(g);
    if (ranks_of(g) < 2 || g->algorithm == ALGORITHM_LOCAL) return 0;
    if (program_collective_divides(g)) return ranks_of(g) - 1;
    return g->algorithm == ALGORITHM_RING ? 2 * (ranks_of(g) - 1) : 4;
}

struct part {
    int32_t send, receive; /* hops of the collective; -1: none */
    int64_t send_bytes, receive_bytes;
};

static struct part ring_part(const struct collective *g, int32_t i, int32_t k)
{
    int32_t n = g->n_members;
    if (program_collective_gathers(g)) k += n - 1;
    int32_t chunk = k < n - 1 ? i - k : i + 1 - (k - (n - 1));
    return (struct part){i, (i + n - 1) % n, chunk_bytes(g, chunk), chunk_bytes(g, chunk - 1)};
}

static struct part tensor_part_of(const struct engine *e, const struct member *m)
{
    const struct collective *g = &e->program->collectives[m->group];
    const int32_t *hop = e->collectives->collective_hop_of[m->group];
    struct collective_round s = collective_round(g, m->index, m->part);
    bool ring = g->algorithm == ALGORITHM_RING;
    int64_t size = dtype_bytes(g->dtype);
    struct part p = {-1, -1, s.send * size, s.receive * size};
    if (s.to >= 0) p.send = hop[ring ? m->index : m->index * g->n_members + s.to];
    if (s.from >= 0) p.receive = hop[ring ? s.from : s.from * g->n_members + m->index];
    return p;
}

/* Chain: receive the partial sum, add and forward it, receive the result, send it back. */
static struct part chain_part(const struct collective *g, int32_t i, int32_t k)
{
    int32_t last = g->n_members - 1, hop = -1;
    if (k == 0 && i > 0) hop = i - 1;
    if (k == 1 && i < last) hop = i;
    if (k == 2 && i < last) hop = last + i;
    if (k == 3 && i > 0) hop = last + i - 1;
    int64_t bytes = hop < 0 ? 0 : g->elements * dtype_bytes(g->dtype);
    return k % 2 ? (struct part){hop, -1, bytes, 0} : (struct part){-1, hop, 0, bytes};
}

/* One end of a hop has reached its part; an empty message is skipped. */
static void come(struct engine *e, struct member *m, int32_t group_hop, bool sender, int64_t bytes,
                 int64_t now_ns)
{
    if (group_hop < 0 || !bytes) return;
    bool met = collective_of_tensor(&e->program->collectives[m->group]);
    int32_t index = (met ? 0 : e->collectives->first_hop[m->group]) + group_hop;
    struct hop *h = &e->collectives->hops[index];
    if (met) *(sender ? &h->from : &h->to) = (int32_t)(m - e->collectives->members);
    m->pending++;
    if (now_ns > h->ready_ns) h->ready_ns = now_ns;
    *(sender ? &h->from_here : &h->to_here) = true;
    if (!h->from_here || !h->to_here) return;
    h->bytes = bytes;
    event_queue_push(e->queue, (struct event){.time_ns = h->ready_ns,
                                              .kind = EVENT_READY,
                                              .index = e->program->n_channels + index});
    h->from_here = h->to_here = false;
    h->ready_ns = 0;
}

static void end_collective(struct engine *e, struct member *m, int64_t now_ns)
{
    struct stream_state *s = &e->collectives->streams[m->lane];
    m->ended++;
    m->end_ns = s->free_ns = now_ns;
    s->busy = false;
}

/* A member has arrived at a priced collective; after the last arrival it runs for all. */
static void come_together(struct engine *e, struct member *m, int64_t now_ns)
{
    const struct collective *g = &e->program->collectives[m->group];
    struct rendezvous *r = &e->collectives->rendezvous[m->group];
    int64_t price_ns = r->price_ns;
    m->begin_ns = now_ns;
    m->part_bytes = g->elements * dtype_bytes(g->dtype);
    m->pending = 1;
    if (now_ns > r->latest_ns) r->latest_ns = now_ns;
    if (++r->here < g->n_members) return;
    if (e->jitter)
        price_ns = jitter_hop_ns(e->jitter,
                                 e->collectives->n_hops + e->collectives->first_member[m->group],
                                 m->ended, 0, price_ns);
    event_queue_push(e->queue, (struct event){.time_ns = r->latest_ns + price_ns,
                                              .kind = EVENT_COLLECTIVE,
                                              .index = m->group});
}

/* Advances from the member's part until it must wait. */
static void advance(struct engine *e, struct member *m, int64_t now_ns)
{
    const struct collective *g = &e->program->collectives[m->group];
    if (e->collectives->rendezvous[m->group].price_ns >= 0) {
        come_together(e, m, now_ns);
        return;
    }
    for (; m->part < collective_parts(g); m->part++) {
        struct part p = collective_of_tensor(g) ? tensor_part_of(e, m)
                        : program_collective_rings(g)   ? ring_part(g, m->index, m->part)
                                                : chain_part(g, m->index, m->part);
        m->begin_ns = m->part_end_ns = now_ns;
        m->part_bytes = p.send_bytes;
        come(e, m, p.send, true, p.send_bytes, now_ns);
        come(e, m, p.receive, false, p.receive_bytes, now_ns);
        if (m->pending) return;
    }
    end_collective(e, m, now_ns);
}

int64_t collective_launched(const struct engine *e, int32_t group)
{
    return e->collectives->rendezvous[group].launched_ns;
}

static void run_stream(struct engine *e, int32_t lane)
{
    struct stream_state *s = &e->collectives->streams[lane];
    while (!s->busy && s->n) {
        struct handed h = s->queue[s->first];
        s->first = --s->n ? s->first + 1 : 0;
        s->busy = true;
        struct member *m = &e->collectives->members[h.member];
        struct rendezvous *r = &e->collectives->rendezvous[m->group];
        if (h.when_ns > r->launching_ns) r->launching_ns = h.when_ns;
        if (++r->started == e->program->collectives[m->group].n_members)
            r->launched_ns = r->launching_ns, r->started = 0, r->launching_ns = 0;
        m->part = 0, m->step = h.step, m->times = h.times;
        advance(e, m, h.when_ns > s->free_ns ? h.when_ns : s->free_ns);
    }
}

/* --- called by the engine --- */

static int32_t find_member(const struct engine *e, int32_t group, int32_t lane)
{
    const struct stream_state *s = &e->collectives->streams[lane];
    int32_t low = 0, high = s->n_members;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (e->collectives->members[s->members[middle]].group < group)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->n_members && e->collectives->members[s->members[low]].group == group
               ? s->members[low]
               : -1;
}

void collective_hand_over(struct engine *e, int32_t group, int32_t lane, int64_t now_ns)
{
    struct stream_state *s = &e->collectives->streams[lane];
    int32_t member = find_member(e, group, lane);
    if (member < 0) {
        engine_fail(e, ERR_INPUT, "%s is not a member of collective %s that it starts",
                    e->program->devices[lane].name, e->program->collectives[group].name);
        return;
    }
    if (s->first + s->n == s->capacity && s->first > 0) {
        for (size_t i = 0; i < s->n; i++) s->queue[i] = s->queue[s->first + i];
        s->first = 0;
    }
    s->queue = arena_grow(e->arena, s->queue, s->first + s->n, &s->capacity, sizeof *s->queue);
    struct member *m = &e->collectives->members[member];
    m->next_times = m->launched++ && m->next_step == e->lanes[lane].step ? m->next_times + 1 : 0;
    m->next_step = e->lanes[lane].step;
    s->queue[s->first + s->n++] = (struct handed){member, m->next_step, m->next_times, now_ns};
    run_stream(e, lane);
}

int64_t collective_end(const struct engine *e, int32_t group, int32_t lane, int32_t step)
{
    int32_t index = find_member(e, group, lane);
    if (index < 0) return -1;
    const struct member *m = &e->collectives->members[index];
    bool several = program_collective_repeats(&e->program->collectives[group]) && m->launched > 0;
    return m->ended >= (several ? m->launched : step + 1) ? m->end_ns : -1;
}

int32_t collective_resource(const struct engine *e, int32_t hop, int64_t *occupancy_ns)
{
    const struct hop *h = &e->collectives->hops[hop];
    *occupancy_ns = network_occupancy_ns(e->network, h->resource, h->bytes);
    const struct member *m = &e->collectives->members[h->from];
    /* Shared hops of collectives are distinguished by their sender. */
    int32_t number = collective_of_tensor(&e->program->collectives[m->group])
                         ? e->collectives->n_hops + h->from
                         : hop;
    if (e->jitter)
        *occupancy_ns = jitter_hop_ns(e->jitter, number, m->ended, m->part, *occupancy_ns);
    return h->resource;
}

static void message_over(struct engine *e, int32_t member, int64_t when_ns)
{
    struct member *m = &e->collectives->members[member];
    if (when_ns > m->part_end_ns) m->part_end_ns = when_ns;
    if (--m->pending) return;
    if (e->trace)
        report_collective(e, m->lane, m->group, m->index, m->part, m->step, m->times, m->begin_ns,
                          m->part_end_ns, m->part_bytes);
    m->part++;
    advance(e, m, m->part_end_ns);
    run_stream(e, m->lane);
}

void collective_started(struct engine *e, int32_t hop, int64_t start_ns)
{
    const struct hop *h = &e->collectives->hops[hop];
    const struct member *m = e->collectives->members;
    if (e->overlap) overlap_begins(e, h->link, m[h->from].lane, m[h->to].lane, start_ns);
}

void collective_moved(struct engine *e, int32_t hop, const struct passage *passage)
{
    struct hop h = e->collectives->hops[hop];
    const struct member *m = e->collectives->members;
    if (e->overlap) overlap_ends(e, h.link, m[h.from].lane, m[h.to].lane, passage->left_ns);
    message_over(e, h.from, passage->left_ns);
    message_over(e, h.to, passage->arrival_ns);
    engine_wake(e, e->collectives->members[h.from].lane);
    engine_wake(e, e->collectives->members[h.to].lane);
}

void collective_over(struct engine *e, int32_t group, int64_t now_ns)
{
    const struct collective *g = &e->program->collectives[group];
    struct member *members = &e->collectives->members[e->collectives->first_member[group]];
    struct rendezvous *r = &e->collectives->rendezvous[group];
    r->here = 0, r->latest_ns = 0;
    for (int32_t i = 0; i < g->n_members; i++) {
        struct member *m = &members[i];
        m->pending = 0;
        if (e->trace)
            report_collective(e, m->lane, m->group, m->index, 0, m->step, m->times, m->begin_ns,
                              now_ns, m->part_bytes);
        end_collective(e, m, now_ns);
    }
    for (int32_t i = 0; i < g->n_members; i++) {
        run_stream(e, members[i].lane);
        engine_wake(e, members[i].lane);
    }
}

int32_t collective_unfinished(const struct engine *e, int32_t lane)
{
    const struct stream_state *s = &e->collectives->streams[lane];
    for (int32_t i = 0; s->busy && i < s->n_members; i++)
        if (e->collectives->members[s->members[i]].pending)
            return e->collectives->members[s->members[i]].group;
    return -1;
}
