/* Rings that have their links to themselves.
 *
 * A ring of n members takes n - 1 steps or twice as many, each with a message of every member. As long as no other message moves on
 * their links, their times follow from one another: a member begins a part when its own message of the part before has left and
 * the one that it receives has arrived, and a message starts when both ends have begun its part. Such a ring claims its links and is
 * computed ahead without an event for each message, RING_AHEAD parts at a time, and to its end at once as soon as each part takes
 * all members as long as the part before. If another message becomes ready on one of its links, the claim is broken: the ring is
 * computed again up to that instant, its messages that move then are handed to the network with the bytes that are left, and it
 * goes on event by event until its links are free again.
 * Times are those of the messages one by one, up to the rounding of ends to nanoseconds: the clock of fair sharing advances by
 * fractions of them, so a message that starts in the nanosecond in which another one ends may start up to half a nanosecond
 * later with that one in the network than without it.
 * Not used with a trace, which has every message, with jitter, or where messages slow down operators.
 * Cost: a few nanoseconds a message instead of four events, and nothing for the messages of periodic parts.
 */
#include "sim/engine/collectives_internal.h"

#include "core/base/arena.h"

#include <string.h>

enum {
    /* Parts that are computed before a period is looked for. A ring whose members begin apart takes about as many parts as it
     * has hops of different durations (8 GPUs a node) to become periodic; each part more is computed in vain when the claim is broken.
     * 2,048 GPUs with ZeRO-3, folded: 0.32 s with 12, 0.36 s with 24, 0.51 s with 64. */
    RING_AHEAD = 16,
    RING_LEAST =
        8 /* parts left: below it a claim costs about as much as the events that it saves */
};

struct ring_member {
    int64_t began_ns, ends_ns; /* of its part; ends: of the message that has ended, else began */
    int64_t seen_ns;           /* when the engine would have processed the last end */
    int32_t part;
    bool sent, received; /* in its part */
    bool gone;           /* its end has been processed */
};
struct ring_hop { /* from its member to the next one */
    bool moves;
    int64_t since_ns;
    double bytes; /* left at since_ns */
};

struct ring {
    bool able, claims;
    int32_t parts, running; /* running: members whose end has not been processed */
    int64_t stamp;          /* outdated events carry an older one */
    /* steady_ns > 0: from the state `steady` on, which the engine would have processed by steady_seen_ns, every part takes all
     * members so long */
    int64_t steady_ns, steady_seen_ns;
    struct ring_member *steady;
    struct ring_member *members, *ahead;
    struct ring_hop *hops,
        *ahead_hops; /* (n_members); ahead: the state after what is computed ahead */
};

static struct hop *hop_of(const struct engine *e, int32_t group, int32_t i)
{
    return &e->collectives->hops[e->collectives->first_hop[group] + i];
}
static struct member *member_of(const struct engine *e, int32_t group, int32_t i)
{
    return &e->collectives->members[e->collectives->first_member[group] + i];
}

/* --- setting up --- */

/* Who sends on a resource. */
struct senders {
    int32_t lane; /* + 1; 0: none */
    bool several,
        channels; /* lanes; not only collectives, of which a lane's stream sends one after the other */
};

static void note(struct senders *s, int32_t resource, int32_t lane, bool channel)
{
    if (resource < 0) return;
    s[resource].several |= s[resource].lane && s[resource].lane != lane + 1;
    s[resource].channels |= channel;
    s[resource].lane = lane + 1;
}

/* Where several lanes share a queue, messages of one instant are served in the order of the events before them, which a ring without
 * events would change. */
static bool find_senders(const struct engine *e, struct senders *s)
{
    const struct collective_streams *c = e->collectives;
    bool queued = false;
    for (int32_t i = 0; i < e->program->n_channels; i++)
        note(s, e->channels[i].resource, e->channels[i].from_lane, true);
    for (int32_t i = 0; i < c->n_hops; i++)
        note(s, c->hops[i].resource, c->hops[i].from_lane, false);
    for (int32_t i = 0; i < 2 * e->program->n_links; i++)
        queued |= s[i].several && !network_fair(e->network, i);
    return !queued;
}

/* A ring of messages, none of them empty. */
static bool is_long(const struct engine *e, int32_t group)
{
    const struct collective *g = &e->program->collectives[group];
    return program_collective_rings(g) && !g->each_call && collectives_ranks(g) > 1 &&
           e->collectives->rendezvous[group].price_ns < 0 && g->elements >= collectives_ranks(g) &&
           collective_parts(g) > RING_LEAST;
}

static bool is_able(const struct engine *e, int32_t group, const struct senders *s)
{
    const struct collective *g = &e->program->collectives[group];
    bool able = is_long(e, group);
    for (int32_t i = 0; able && i < g->n_members; i++) {
        const struct hop *h = hop_of(e, group, i);
        able =
            h->resource >= 0 && (network_fair(e->network, h->resource) || !s[h->resource].channels);
    }
    if (!able) return false;
    int32_t claimed = 0; /* messages of a ring must not share a link with each other either */
    for (; claimed < g->n_members; claimed++) {
        const struct hop *h = hop_of(e, group, claimed);
        if (network_fair(e->network, h->resource) && !network_claim(e->network, h->resource, group))
            break;
    }
    for (int32_t i = 0; i < claimed; i++)
        if (network_fair(e->network, hop_of(e, group, i)->resource))
            network_release(e->network, hop_of(e, group, i)->resource);
    return claimed == g->n_members;
}

static network_break broken;

void rings_new(struct engine *e)
{
    const struct program *p = e->program;
    struct collective_streams *c = e->collectives;
    bool any = false;
    for (int32_t i = 0; i < p->n_collectives && !any; i++) any = is_long(e, i);
    if (!any || e->trace || e->jitter || e->overlap) return;
    struct senders *s = ARENA_ARRAY(e->arena, struct senders, 2 * (size_t)p->n_links + 1);
    if (!find_senders(e, s)) return;
    c->rings = ARENA_ARRAY(e->arena, struct ring, (size_t)p->n_collectives);
    network_claims(e->network, broken, e);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        struct ring *r = &c->rings[i];
        size_t n = (size_t)p->collectives[i].n_members;
        r->able = is_able(e, i, s);
        if (!r->able) continue;
        r->parts = collective_parts(&p->collectives[i]);
        r->members = ARENA_ARRAY(e->arena, struct ring_member, 3 * n), r->ahead = r->members + n;
        r->steady = r->ahead + n;
        r->hops = ARENA_ARRAY(e->arena, struct ring_hop, 2 * n), r->ahead_hops = r->hops + n;
    }
}

/* --- what follows from a state --- */

struct walk {
    struct engine *e;
    int32_t group, target; /* parts that no member goes beyond */
    int64_t until_ns;      /* messages that end later are left moving */
    struct ring_member *members;
    struct ring_hop *hops;
    int64_t last_ns; /* when the engine would have processed the last message that has ended */
};

static void end_part(struct ring_member *m)
{
    if (!m->sent || !m->received) return;
    m->part++;
    m->began_ns = m->ends_ns;
    m->sent = m->received = false;
}

static void end_message(struct ring_member *m, bool sent, int64_t when_ns, int64_t seen_ns)
{
    *(sent ? &m->sent : &m->received) = true;
    if (when_ns > m->ends_ns) m->ends_ns = when_ns;
    if (seen_ns > m->seen_ns) m->seen_ns = seen_ns;
}

/* The message that member i sends in its part, if both ends have begun it. true: it has ended. */
static bool pass_on(struct walk *w, int32_t i)
{
    struct engine *e = w->e;
    const struct collective *g = &e->program->collectives[w->group];
    struct ring_member *from = &w->members[i], *to = &w->members[(i + 1) % g->n_members];
    const struct hop *h = hop_of(e, w->group, i);
    struct ring_hop *x = &w->hops[i];
    if (from->part >= w->target || from->sent || from->part != to->part) return false;
    bool fair = network_fair(e->network, h->resource);
    int64_t start = from->began_ns > to->began_ns ? from->began_ns : to->began_ns, left;
    double bytes = 0;
    if (x->moves) {
        left = network_alone_end(e->network, h->resource, x->bytes, x->since_ns);
    } else {
        int64_t ns =
            network_occupancy_ns(e->network, h->resource, collectives_ring_bytes(g, i, from->part));
        if (fair) bytes = network_bytes(e->network, h->resource, ns);
        left = fair ? network_alone_end(e->network, h->resource, bytes, start) : start + ns;
    }
    int64_t seen = fair ? left : start;
    if (seen > w->until_ns) {
        if (!x->moves && start <= w->until_ns) *x = (struct ring_hop){true, start, bytes};
        return false;
    }
    x->moves = false;
    end_message(from, true, left, seen);
    end_message(to, false, left + network_latency(e->network, h->resource), seen);
    end_part(from), end_part(to);
    if (seen > w->last_ns) w->last_ns = seen;
    return true;
}

static void walk(struct walk *w)
{
    int32_t n = w->e->program->collectives[w->group].n_members;
    for (bool any = true; any;) {
        any = false;
        for (int32_t i = 0; i < n; i++) any |= pass_on(w, i);
    }
}

static void pass_parts(struct ring_member *m, int32_t n, int32_t parts, int64_t ns)
{
    for (int32_t i = 0; i < n; i++) {
        m[i].part += parts;
        m[i].began_ns += parts * ns, m[i].ends_ns += parts * ns, m[i].seen_ns += parts * ns;
    }
}

/* From the ring's state, or from the steady one if that is over by until_ns. */
static struct walk start_walk(struct engine *e, int32_t group, int32_t target, int64_t until_ns)
{
    struct ring *r = &e->collectives->rings[group];
    size_t n = (size_t)e->program->collectives[group].n_members;
    memcpy(r->ahead, r->members, n * sizeof *r->ahead);
    memcpy(r->ahead_hops, r->hops, n * sizeof *r->ahead_hops);
    if (r->steady_ns > 0 && until_ns >= r->steady_seen_ns) {
        int64_t parts = (until_ns - r->steady_seen_ns) / r->steady_ns,
                left = target - r->steady->part;
        memcpy(r->ahead, r->steady, n * sizeof *r->ahead);
        memset(r->ahead_hops, 0, n * sizeof *r->ahead_hops);
        pass_parts(r->ahead, (int32_t)n, (int32_t)(parts < left ? parts : left), r->steady_ns);
    }
    return (struct walk){.e = e,
                         .group = group,
                         .target = target,
                         .until_ns = until_ns,
                         .members = r->ahead,
                         .hops = r->ahead_hops};
}

/* --- with a claim --- */

/* All members have begun the same part. If they begin the next one all so much later, they do so in every part that follows, because
 * times follow from those of the part before by maxima and constant durations. 0: they do not. */
static int64_t find_period(struct walk *w)
{
    struct ring *r = &w->e->collectives->rings[w->group];
    const struct collective *g = &w->e->program->collectives[w->group];
    if (!collectives_folded(g) && g->elements % g->n_members) return 0; /* unequal chunks */
    memcpy(r->steady, w->members, (size_t)g->n_members * sizeof *r->steady);
    w->target++;
    walk(w);
    int64_t ns = w->members[0].began_ns - r->steady[0].began_ns;
    for (int32_t i = 1; i < g->n_members; i++)
        if (w->members[i].began_ns - r->steady[i].began_ns != ns) return 0;
    return ns;
}

static void run_ahead(struct engine *e, int32_t group)
{
    struct ring *r = &e->collectives->rings[group];
    int32_t n = e->program->collectives[group].n_members, furthest = 0;
    r->steady_ns = 0;
    for (int32_t i = 0; i < n; i++)
        if (r->members[i].part > furthest) furthest = r->members[i].part;
    int32_t target = r->parts - furthest > RING_AHEAD ? furthest + RING_AHEAD : r->parts;
    struct walk w = start_walk(e, group, target, INT64_MAX);
    w.last_ns = e->now_ns;
    walk(&w);
    if (target < r->parts) {
        int64_t period = find_period(&w);
        target = w.target;
        if (period > 0) {
            memcpy(r->steady, r->ahead, (size_t)n * sizeof *r->steady);
            r->steady_ns = period, r->steady_seen_ns = w.last_ns;
            pass_parts(r->ahead, n, r->parts - target, period);
            target = r->parts;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (r->ahead[i].began_ns > ENGINE_MAX_NS) {
            engine_fail(e, ERR_INPUT, "simulated time exceeds 73 years");
            return;
        }
        if (target == r->parts)
            event_queue_push(e->queue,
                             (struct event){.time_ns = r->ahead[i].seen_ns,
                                            .kind = EVENT_RING_ENDED,
                                            .index = e->collectives->first_member[group] + i,
                                            .stamp = r->stamp});
    }
    if (target < r->parts)
        event_queue_push(e->queue, (struct event){.time_ns = w.last_ns,
                                                  .kind = EVENT_RING,
                                                  .index = group,
                                                  .stamp = r->stamp});
}

static void give_up(struct engine *e, int32_t group)
{
    struct ring *r = &e->collectives->rings[group];
    for (int32_t i = 0; i < e->program->collectives[group].n_members; i++) {
        int32_t resource = hop_of(e, group, i)->resource;
        if (network_fair(e->network, resource)) network_release(e->network, resource);
    }
    r->claims = false;
    r->stamp++;
}

/* The member leaves the collective, whose end it may know before others do. */
static void end_member(struct engine *e, struct member *m, int64_t when_ns)
{
    m->pending = 0;
    collectives_end(e, m, when_ns);
    engine_wake(e, m->lane);
}

/* The hop's next message as the engine has it, at the end of what was computed ahead. */
static void hand_back(struct engine *e, int32_t group, int32_t i, int64_t now_ns)
{
    struct ring *r = &e->collectives->rings[group];
    const struct collective *g = &e->program->collectives[group];
    const struct ring_member *from = &r->ahead[i], *to = &r->ahead[(i + 1) % g->n_members];
    const struct ring_hop *x = &r->ahead_hops[i];
    struct hop *h = hop_of(e, group, i);
    if (from->part == r->parts) return; /* it may be in the next execution already */
    h->done = from->part + from->sent;
    if (h->done == r->parts) return;
    h->bytes = collectives_ring_bytes(g, i, h->done);
    if (x->moves) {
        h->moves = true;
        network_resume(e->network, e->program->n_channels + (int32_t)(h - e->collectives->hops),
                       h->resource, x->bytes, x->since_ns, now_ns);
    } else if (!from->sent && from->part == to->part) {
        h->ready_ns = from->began_ns > to->began_ns ? from->began_ns : to->began_ns;
        collectives_ready(e, h);
    } else if (!from->sent) {
        h->from_here = true, h->ready_ns = from->began_ns;
    } else if (to->part > from->part) {
        h->to_here = true, h->ready_ns = to->began_ns;
    }
}

/* A message of others is about to start on one of its links. */
static void broken(void *engine, int32_t group, int64_t now_ns)
{
    struct engine *e = engine;
    struct ring *r = &e->collectives->rings[group];
    int32_t n = e->program->collectives[group].n_members;
    struct walk w = start_walk(e, group, r->parts, now_ns);
    walk(&w);
    give_up(e, group);
    for (int32_t i = 0; i < n; i++) {
        const struct ring_member *x = &r->ahead[i];
        struct member *m = member_of(e, group, i);
        hand_back(e, group, i, now_ns);
        if (r->members[i].gone || x->part == r->parts) continue;
        m->part = x->part;
        m->begin_ns = x->began_ns, m->part_end_ns = x->ends_ns;
        m->pending = 2 - x->sent - x->received;
    }
    for (int32_t i = 0; i < n; i++)
        if (!r->members[i].gone && r->ahead[i].part == r->parts)
            end_member(e, member_of(e, group, i), r->ahead[i].began_ns);
}

void rings_event(struct engine *e, const struct event *x)
{
    struct collective_streams *c = e->collectives;
    bool ended = x->kind == EVENT_RING_ENDED;
    int32_t group = ended ? c->members[x->index].group : x->index;
    struct ring *r = &c->rings[group];
    size_t n = (size_t)e->program->collectives[group].n_members;
    if (x->stamp != r->stamp) return;
    if (!ended) {
        memcpy(r->members, r->ahead, n * sizeof *r->members);
        memcpy(r->hops, r->ahead_hops, n * sizeof *r->hops);
        run_ahead(e, group);
        return;
    }
    int32_t i = c->members[x->index].index;
    r->members[i].gone = true;
    if (!--r->running) give_up(e, group);
    end_member(e, &c->members[x->index], r->ahead[i].began_ns);
}

/* --- the claim --- */

/* All members are in one execution of it, which does not end soon, and no other message is on its links. */
static bool may_claim(struct engine *e, int32_t group)
{
    const struct ring *r = &e->collectives->rings[group];
    const struct member *first = member_of(e, group, 0);
    for (int32_t i = 0; i < e->program->collectives[group].n_members; i++) {
        const struct member *m = member_of(e, group, i);
        const struct hop *h = hop_of(e, group, i);
        if (!m->active || m->ended != first->ended || m->part + RING_LEAST > r->parts) return false;
        if (network_fair(e->network, h->resource) &&
            !network_claimable(e->network, h->resource, h->moves, e->now_ns))
            return false;
    }
    return true;
}

bool rings_claim(struct engine *e, int32_t hop)
{
    struct collective_streams *c = e->collectives;
    int32_t group = c->members[c->hops[hop].from].group;
    if (!c->rings || !c->rings[group].able || hop != c->first_hop[group]) return false;
    struct ring *r = &c->rings[group];
    int32_t n = e->program->collectives[group].n_members;
    if (r->claims || !may_claim(e, group)) return false;
    r->claims = true;
    r->running = n;
    r->stamp++;
    for (int32_t i = 0; i < n; i++) {
        const struct member *m = member_of(e, group, i);
        const struct hop *h = hop_of(e, group, i), *before = hop_of(e, group, (i + n - 1) % n);
        bool sent = h->done > m->part, received = before->done > m->part;
        r->members[i] = (struct ring_member){.part = m->part,
                                             .began_ns = m->begin_ns,
                                             .ends_ns = m->part_end_ns,
                                             .seen_ns = e->now_ns,
                                             .sent = sent,
                                             .received = received};
        r->hops[i] = (struct ring_hop){.moves = h->moves, .since_ns = e->now_ns};
        if (h->moves) r->hops[i].bytes = network_withdraw(e->network, h->resource, e->now_ns);
    }
    for (int32_t i = 0; i < n; i++) {
        struct hop *h = hop_of(e, group, i);
        if (network_fair(e->network, h->resource)) network_claim(e->network, h->resource, group);
        h->moves = h->from_here = h->to_here = false;
        h->ready_ns = 0;
        h->outdated = h->queued;
    }
    run_ahead(e, group);
    return true;
}
