/* Collectives as messages on the links.
 *
 * A member is one lane in one collective. Its work is a list of parts (core/program/program.h's steps): each sends at
 * most one message and receives at most one, and the next begins when both have ended. A hop is one direction between two
 * neighbours: its message is ready when both ends have reached their parts. Neither end can reach the next part of
 * the hop before this one is over, so one flag per end is the complete state.
 * A lane's collective stream executes its launches in order, one after the other.
 */
#include "sim/engine/collectives_internal.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <math.h>

/* --- parts --- */

static int64_t chunk_bytes(const struct collective *g, int32_t chunk)
{
    int64_t first, last;
    if (collectives_folded(g)) return (g->elements + g->stands_for - 1) / g->stands_for * dtype_bytes(g->dtype);
    chunk %= g->n_members;
    collective_chunk(g, chunk < 0 ? chunk + g->n_members : chunk, &first, &last);
    return (last - first) * dtype_bytes(g->dtype);
}

int32_t collective_parts(const struct collective *g)
{
    if (program_collective_in_rounds(g)) return collective_steps(g);
    if (collectives_ranks(g) < 2 || g->algorithm == ALGORITHM_LOCAL) return 0;
    if (g->flow_link) return 1;
    return g->algorithm == ALGORITHM_RING ? collectives_ring_steps(g) : 4;
}

static struct collectives_part ring_part(const struct engine *e, int32_t group, int32_t i, int32_t k)
{
    const struct collective *g = &e->program->collectives[group];
    int32_t n = g->n_members, first = e->collectives->first_hop[group];
    if (program_collective_gathers(g)) k += n - 1;
    int32_t chunk = k < n - 1 ? i - k : i + 1 - (k - (n - 1));
    return (struct collectives_part){first + i, first + (i + n - 1) % n, (i + 1) % n, chunk_bytes(g, chunk),
                                     chunk_bytes(g, chunk - 1)};
}

static struct collectives_part round_part(const struct engine *e, int32_t group, int32_t i, int32_t k)
{
    const struct collective *g = &e->program->collectives[group];
    const int32_t *hop = e->collectives->collective_hop_of[group];
    struct collective_round s = collective_round(g, i, k);
    bool ring = g->algorithm == ALGORITHM_RING;
    int64_t size = dtype_bytes(g->dtype);
    struct collectives_part p = {-1, -1, -1, s.send * size, s.receive * size};
    if (s.to >= 0) p.to = collective_like(g, s.to), p.send = hop[ring ? i : i * g->n_members + s.to];
    if (s.from < 0) return p;
    /* A sender that another member represents sends over that one's hop of this part. */
    int32_t from = collective_like(g, s.from), to = i;
    if (from != s.from) to = collective_round(g, from, k).to;
    p.receive = hop[ring ? from : from * g->n_members + to];
    return p;
}

/* Chain: receive the partial sum, add and forward it, receive the result, send it back. */
static struct collectives_part chain_part(const struct engine *e, int32_t group, int32_t i, int32_t k)
{
    const struct collective *g = &e->program->collectives[group];
    int32_t last = g->n_members - 1, hop = -1;
    if (k == 0 && i > 0) hop = i - 1;
    if (k == 1 && i < last) hop = i;
    if (k == 2 && i < last) hop = last + i;
    if (k == 3 && i > 0) hop = last + i - 1;
    int64_t bytes = hop < 0 ? 0 : g->elements * dtype_bytes(g->dtype);
    if (hop >= 0) hop += e->collectives->first_hop[group];
    return k % 2 ? (struct collectives_part){hop, -1, k == 1 ? i + 1 : i - 1, bytes, 0}
                 : (struct collectives_part){-1, hop, -1, 0, bytes};
}

struct collectives_part collectives_part(const struct engine *e, int32_t group, int32_t member, int32_t part)
{
    const struct collective *g = &e->program->collectives[group];
    return program_collective_in_rounds(g) ? round_part(e, group, member, part)
           : program_collective_rings(g)   ? ring_part(e, group, member, part)
                                           : chain_part(e, group, member, part);
}

/* Both ends of the hop's message are ready, at ready_ns. */
static void become_ready(struct engine *e, struct hop *h)
{
    int32_t index = (int32_t)(h - e->collectives->hops);
    if (h->outdated && h->queued_ns == h->ready_ns) { /* the event of this message is still there */
        h->outdated--;
    } else {
        h->queued++, h->queued_ns = h->ready_ns;
        event_queue_push(e->queue, (struct event){.time_ns = h->ready_ns,
                                                  .kind = EVENT_READY,
                                                  .index = e->program->n_channels + index,
                                                  .seq = h->order});
    }
    h->from_here = h->to_here = false;
    h->ready_ns = 0;
}

bool collective_due(struct engine *e, int32_t hop)
{
    struct hop *h = &e->collectives->hops[hop];
    h->queued--;
    if (h->outdated) {
        h->outdated--;
        return false;
    }
    return !ahead_claim(e, hop);
}

/* One end of a hop has reached its part; an empty message is skipped. */
static void come(struct engine *e, struct member *m, int32_t hop, bool sender, int64_t bytes)
{
    if (hop < 0 || !bytes) return;
    struct hop *h = &e->collectives->hops[hop];
    *(sender ? &h->from : &h->to) = (int32_t)(m - e->collectives->members);
    m->pending++;
    if (m->begin_ns > h->ready_ns) h->ready_ns = m->begin_ns;
    *(sender ? &h->from_here : &h->to_here) = true;
    if (!h->from_here || !h->to_here) return;
    h->bytes = bytes;
    become_ready(e, h);
}

static void end_collective(struct engine *e, struct member *m, int64_t now_ns)
{
    struct stream_state *s = &e->collectives->streams[m->lane];
    m->ended++;
    m->end_ns = s->free_ns = now_ns;
    s->busy = m->active = false;
}

static void end_at(struct engine *e, int32_t group, int64_t when_ns)
{
    event_queue_push(
        e->queue, (struct event){.time_ns = when_ns, .kind = EVENT_COLLECTIVE, .index = group});
}

static void start_flow(struct engine *e, int32_t group)
{
    struct hop *h = &e->collectives->hops[e->collectives->first_hop[group]];
    h->ready_ns = e->collectives->rendezvous[group].latest_ns;
    become_ready(e, h);
}

/* A ring that shared its links was longer under way than alone: half of the latencies are not behind other messages (ring_flow.h). */
static void flow_moved(struct engine *e, int32_t group, const struct passage *passage)
{
    const struct collective *g = &e->program->collectives[group];
    const struct program_link *l = &e->program->links[g->flow_link - 1];
    const struct hop *h = &e->collectives->hops[e->collectives->first_hop[group]];
    double took_ns = (double)(passage->left_ns - passage->start_ns);
    double more_ns = took_ns - 1e9 * (double)h->bytes / l->pace_Bps;
    double latencies_ns = 1e9 * l->latency_s * collectives_ring_steps(g);
    end_at(e, group, passage->left_ns + (int64_t)(fmax(0, fmin(latencies_ns, more_ns)) / 2));
}

/* A member has arrived at a collective that is priced or a flow; after the last arrival it runs for all. */
static void come_together(struct engine *e, struct member *m, int64_t now_ns)
{
    const struct collective *g = &e->program->collectives[m->group];
    struct rendezvous *r = &e->collectives->rendezvous[m->group];
    int64_t price_ns = r->price_ns;
    m->begin_ns = now_ns;
    m->part_bytes = g->elements * dtype_bytes(g->dtype);
    if (g->flow_link) m->part_bytes = e->collectives->hops[e->collectives->first_hop[m->group]].bytes;
    m->pending = 1;
    if (now_ns > r->latest_ns) r->latest_ns = now_ns;
    if (++r->here < r->n_members) return;
    if (g->flow_link) {
        start_flow(e, m->group);
        return;
    }
    if (e->jitter)
        price_ns = jitter_hop_ns(e->jitter,
                                 e->collectives->n_hops + e->collectives->first_member[m->group],
                                 m->ended, 0, price_ns);
    end_at(e, m->group, r->latest_ns + price_ns);
}

/* Advances from the member's part until it must wait. */
static void advance(struct engine *e, struct member *m, int64_t now_ns)
{
    int32_t parts = collective_parts(&e->program->collectives[m->group]);
    for (; m->part < parts; m->part++) {
        struct collectives_part p = collectives_part(e, m->group, m->index, m->part);
        m->begin_ns = m->part_end_ns = now_ns;
        m->part_bytes = p.send_bytes;
        m->sent = m->received = false;
        come(e, m, p.send, true, p.send_bytes);
        come(e, m, p.receive, false, p.receive_bytes);
        if (m->pending) return;
    }
    end_collective(e, m, now_ns);
}

void collectives_go_on(struct engine *e, struct member *m)
{
    struct collectives_part p = collectives_part(e, m->group, m->index, m->part);
    const struct hop *hops = e->collectives->hops;
    const struct member *members = e->collectives->members;
    bool sends = hops[p.send].moves && &members[hops[p.send].from] == m;
    bool receives = hops[p.receive].moves && &members[hops[p.receive].to] == m;
    if (!m->sent && !sends) come(e, m, p.send, true, p.send_bytes);
    if (!m->received && !receives) come(e, m, p.receive, false, p.receive_bytes);
}

static void begin(struct engine *e, struct member *m, int64_t now_ns)
{
    if (e->collectives->rendezvous[m->group].together)
        come_together(e, m, now_ns);
    else if (!ahead_begins(e, m, now_ns))
        advance(e, m, now_ns);
}

int64_t collective_launched(const struct engine *e, int32_t name)
{
    return e->collectives->rendezvous[collective_named(e, name)].launched_ns;
}

static void start(struct engine *e, struct stream_state *s, struct handed h)
{
    struct member *m = &e->collectives->members[h.member];
    struct rendezvous *r = &e->collectives->rendezvous[m->group];
    s->busy = true;
    if (h.when_ns > r->launching_ns) r->launching_ns = h.when_ns;
    if (++r->started == r->n_launches)
        r->launched_ns = r->launching_ns, r->started = 0, r->launching_ns = 0;
    m->part = 0, m->step = h.step, m->times = h.times;
    m->active = true;
    begin(e, m, h.when_ns > s->free_ns ? h.when_ns : s->free_ns);
}

static void run_stream(struct engine *e, int32_t lane)
{
    struct stream_state *s = &e->collectives->streams[lane];
    while (!s->busy && s->n) {
        struct handed h = s->queue[s->first];
        s->first = --s->n ? s->first + 1 : 0;
        start(e, s, h);
    }
}

void collectives_end(struct engine *e, struct member *m, int64_t now_ns)
{
    end_collective(e, m, now_ns);
    run_stream(e, m->lane);
}

/* --- called by the engine --- */

int32_t collective_named(const struct engine *e, int32_t name)
{
    return name < 0 ? -1 - name : e->collectives->members[name].group;
}

static void enqueue(struct engine *e, struct stream_state *s, struct handed h)
{
    if (s->first + s->n == s->capacity && s->first > 0) {
        for (size_t i = 0; i < s->n; i++) s->queue[i] = s->queue[s->first + i];
        s->first = 0;
    }
    s->queue = arena_grow(e->arena, s->queue, s->first + s->n, &s->capacity, sizeof *s->queue);
    s->queue[s->first + s->n++] = h;
}

void collective_hand_over(struct engine *e, int32_t name, int32_t lane, int64_t now_ns)
{
    struct stream_state *s = &e->collectives->streams[lane];
    if (name < 0) {
        engine_fail(e, ERR_INPUT, "%s is not a member of collective %s that it starts",
                    e->program->devices[lane].name,
                    e->program->collectives[collective_named(e, name)].name);
        return;
    }
    struct member *m = &e->collectives->members[name];
    m->next_times = m->launched++ && m->next_step == e->lanes[lane].step ? m->next_times + 1 : 0;
    m->next_step = e->lanes[lane].step;
    struct handed h = {name, m->next_step, m->next_times, now_ns};
    if (s->busy)
        enqueue(e, s, h);
    else
        start(e, s, h);
}

int64_t collective_end(const struct engine *e, int32_t name, int32_t step)
{
    if (name < 0) return -1;
    const struct member *m = &e->collectives->members[name];
    int32_t least = m->repeats && m->launched > 0 ? m->launched : step + 1;
    return m->ended >= least ? m->end_ns : -1;
}

int32_t collective_resource(const struct engine *e, int32_t hop, int64_t *occupancy_ns)
{
    const struct hop *h = &e->collectives->hops[hop];
    *occupancy_ns = network_occupancy_ns(e->network, h->resource, h->bytes);
    const struct member *m = &e->collectives->members[h->from];
    /* Shared hops of collectives are distinguished by their sender. */
    int32_t number = program_collective_in_rounds(&e->program->collectives[m->group])
                         ? e->collectives->n_hops + h->from
                         : hop;
    if (e->jitter)
        *occupancy_ns = jitter_hop_ns(e->jitter, number, m->ended, m->part, *occupancy_ns);
    return h->resource;
}

static void message_over(struct engine *e, int32_t member, bool sender, int64_t when_ns)
{
    struct member *m = &e->collectives->members[member];
    *(sender ? &m->sent : &m->received) = true;
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
    struct hop *h = &e->collectives->hops[hop];
    const struct member *m = e->collectives->members;
    h->moves = true;
    if (e->overlap && !e->program->collectives[m[h->from].group].flow_link)
        overlap_begins(e, h->link, m[h->from].lane, m[h->to].lane, start_ns);
}

void collective_moved(struct engine *e, int32_t hop, const struct passage *passage)
{
    e->collectives->hops[hop].moves = false;
    struct hop h = e->collectives->hops[hop];
    const struct member *m = e->collectives->members;
    if (e->program->collectives[m[h.from].group].flow_link) {
        flow_moved(e, m[h.from].group, passage);
        return;
    }
    if (e->overlap) overlap_ends(e, h.link, m[h.from].lane, m[h.to].lane, passage->left_ns);
    message_over(e, h.from, true, passage->left_ns);
    message_over(e, h.to, false, passage->arrival_ns);
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
        if (collective_like(g, i) != i) continue;
        m->pending = 0;
        if (e->trace)
            report_collective(e, m->lane, m->group, m->index, 0, m->step, m->times, m->begin_ns,
                              now_ns, m->part_bytes);
        end_collective(e, m, now_ns);
    }
    for (int32_t i = 0; i < g->n_members; i++) {
        if (collective_like(g, i) != i) continue;
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
