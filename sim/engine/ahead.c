/* Collectives that have their links to themselves.
 *
 * A collective is a number of parts, each with a message of every member. As long as no other message moves on their links, their
 * times follow from one another: a member begins a part when its own message of the part before has left and the one that it
 * receives has arrived, and a message starts when both ends have begun its part. Such a collective claims its links and is
 * computed to its end without an event for each message; of a long ring AHEAD_PARTS parts at first, then twice as many, until each
 * part takes all members as long as the part before. If another message becomes ready on one of its links, the claim is broken: the collective is
 * computed again up to that instant, its messages that move then are handed to the network with the bytes that are left, and it
 * goes on event by event until its links are free again.
 * Members that begin wait for one event, at the instant at which the first message may be ready. If all are there, the claim
 * is made without a message; one that begins as the execution before it did ends as that one did (ahead_known.c).
 * Times are those of the messages one by one, up to the rounding of ends to nanoseconds: the clock of fair sharing advances by
 * fractions of them, so a message that starts in the nanosecond in which another one ends may start up to half a nanosecond
 * later with that one in the network than without it.
 * Not used with a trace, which has every message, with jitter, or where messages slow down operators.
 * Cost: a few nanoseconds a message instead of four events, and nothing for the messages of periodic parts or of an execution
 * like the one before it. Where members share a FIFO link, ahead_queues.c computes them.
 */
#include "sim/engine/ahead_internal.h"

#include "core/base/arena.h"

#include <string.h>

enum {
    /* Messages left, below which no claim is made in the middle of a collective. Of no measurable effect: 192 GPUs in sharded stages,
     * unfolded, 3 % of the collectives claimed late: 1.2 s with 2, 1.0 s with 8, 1.1 s with 32, 1.0 s with 128 (runs differ by 10 %;
     * 2026-11-23, 2 cores). */
    AHEAD_LEAST = 8
};

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

static struct senders *find_senders(const struct engine *e)
{
    const struct collective_streams *c = e->collectives;
    struct senders *s = ARENA_ARRAY(e->arena, struct senders, 2 * (size_t)e->program->n_links + 1);
    for (int32_t i = 0; i < e->program->n_channels; i++)
        note(s, e->channels[i].resource, e->channels[i].from_lane, true);
    for (int32_t i = 0; i < c->n_hops; i++)
        note(s, c->hops[i].resource, c->hops[i].from_lane, false);
    return s;
}

/* Its members exchange messages in parts. Gradient all-reduces in rounds have events, because groups that overlap share their hops. */
static bool may_be_able(const struct engine *e, int32_t group)
{
    const struct collective *g = &e->program->collectives[group];
    bool messages = collective_of_tensor(g) || (program_collective_rings(g) && !g->each_call && !g->flow_link &&
                                                g->elements >= collectives_ranks(g));
    return messages && collectives_ranks(g) > 1 && e->collectives->rendezvous[group].price_ns < 0;
}

static void find_members(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    const struct collective *g = &e->program->collectives[group];
    r->member = ARENA_ARRAY(e->arena, int32_t, 2 * (size_t)g->n_members);
    r->place = r->member + g->n_members;
    for (int32_t i = 0; i < g->n_members; i++) {
        if (collective_like(g, i) != i) continue;
        r->place[i] = r->n, r->member[r->n++] = i;
    }
}

/* Every member sends one message in each part and receives one, from a member that sends it in that part. */
static bool pairs_up(const struct engine *e, int32_t group)
{
    const struct ahead *r = ahead_of(e, group);
    const struct collective *g = &e->program->collectives[group];
    for (int32_t k = 0; k < r->parts && program_collective_in_rounds(g); k++)
        for (int32_t i = 0; i < r->n; i++) {
            struct collectives_part p = collectives_part(e, group, r->member[i], k);
            if (!p.send_bytes || !p.receive_bytes || p.to < 0) return false;
            if (collectives_part(e, group, p.to, k).receive != p.send) return false;
        }
    return true;
}

/* Of one link: the members whose messages use it, + 1; -1: several. */
struct use {
    int32_t sender, receiver;
};

static void use(int32_t *who, int32_t member)
{
    *who = !*who || *who == member + 1 ? member + 1 : -1;
}

/* Messages of a member are one after the other, those to it too: a link that is of one sender or of one receiver has one at a time. */
static bool find_links(struct engine *e, int32_t group, const struct senders *s, struct use *of,
                       int32_t *links)
{
    struct ahead *r = ahead_of(e, group);
    const struct collective *g = &e->program->collectives[group];
    const int32_t *hops = e->collectives->collective_hop_of[group];
    int32_t each = program_collective_in_rounds(g) && g->algorithm != ALGORITHM_RING ? g->n_members : 1;
    int32_t n_queues = 0, *queues = links + 2 * e->program->n_links + 1;
    bool able = true, shared = false;
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t k = 0; k < each; k++) {
            int32_t hop =
                hops ? hops[r->member[i] * each + k] : e->collectives->first_hop[group] + i;
            int32_t n, resource = hop < 0 ? -1 : e->collectives->hops[hop].resource;
            if (hop < 0) continue;
            able &= resource >= 0;
            if (resource >= 0 && !network_fair(e->network, resource)) {
                shared |= s[resource].channels || s[resource].several;
                if (program_collective_in_rounds(g)) ahead_queues_add(queues, &n_queues, resource);
            }
            if (resource < 0 || !network_fair(e->network, resource)) continue;
            int32_t to = collective_like(g, each > 1 ? k : (r->member[i] + 1) % g->n_members);
            const int32_t *path = network_links(e->network, resource, &n);
            for (int32_t x = 0; x < n; x++) {
                if (!of[path[x]].sender) links[r->n_links++] = path[x];
                use(&of[path[x]].sender, i), use(&of[path[x]].receiver, to);
            }
        }
    for (int32_t i = 0; i < r->n_links; i++) {
        able &= of[links[i]].sender > 0 || of[links[i]].receiver > 0;
        of[links[i]] = (struct use){0};
    }
    return able && (!shared || (!r->n_links && ahead_queues_new(e, group, queues, n_queues)));
}

static network_break broken;

void ahead_new(struct engine *e)
{
    const struct program *p = e->program;
    struct collective_streams *c = e->collectives;
    bool any = false;
    for (int32_t i = 0; i < p->n_collectives && !any; i++) any = may_be_able(e, i);
    if (!any || e->trace || e->jitter || e->overlap) return;
    struct senders *s = find_senders(e);
    struct use *of = ARENA_ARRAY(e->arena, struct use, 2 * (size_t)p->n_links + 1);
    int32_t *links = ARENA_ARRAY(e->arena, int32_t, 2 * (2 * (size_t)p->n_links + 1));
    c->ahead = ARENA_ARRAY(e->arena, struct ahead, (size_t)p->n_collectives);
    network_claims(e->network, broken, e);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        struct ahead *r = &c->ahead[i];
        if (!may_be_able(e, i)) continue;
        find_members(e, i);
        r->parts = collective_parts(&p->collectives[i]);
        r->able = find_links(e, i, s, of, links) && pairs_up(e, i);
        if (!r->able) continue;
        size_t n = (size_t)r->n;
        r->links = arena_copy(e->arena, links, (size_t)r->n_links * sizeof *links);
        r->members = ARENA_ARRAY(e->arena, struct ahead_member, 3 * n), r->ahead = r->members + n;
        r->steady = r->ahead + n;
        r->messages = ARENA_ARRAY(e->arena, struct ahead_message, 2 * n);
        r->ahead_messages = r->messages + n;
        r->known_members = ARENA_ARRAY(e->arena, struct ahead_known, n);
        r->first_ns = r->second_ns = r->due_ns = INT64_MAX;
        r->looked_up = true;
    }
}

/* --- with a claim --- */

static void push(struct engine *e, int64_t time_ns, uint64_t order, int32_t kind, int32_t index,
                 int64_t stamp)
{
    event_queue_push(e->queue, (struct event){.time_ns = time_ns,
                                              .seq = order,
                                              .kind = kind,
                                              .index = index,
                                              .stamp = stamp});
}

/* The ends are computed: one event where all members end together. */
static void announce(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    bool together = true;
    uint64_t order = 0;
    int64_t seen_ns = ahead_end_of(r, 0).seen_ns;
    for (int32_t i = 0; i < r->n; i++) {
        struct ahead_end x = ahead_end_of(r, i);
        together &= x.seen_ns == seen_ns;
        if (x.order > order) order = x.order;
        if (x.end_ns <= ENGINE_MAX_NS) continue;
        engine_fail(e, ERR_INPUT, "simulated time exceeds 73 years");
        return;
    }
    if (together) push(e, seen_ns, order, EVENT_AHEAD_OVER, group, r->stamp);
    for (int32_t i = 0; i < r->n && !together; i++) {
        struct ahead_end x = ahead_end_of(r, i);
        push(e, x.seen_ns, x.order, EVENT_AHEAD_ENDED,
             e->collectives->first_member[group] + r->member[i], r->stamp);
    }
}

/* From the members' state, which stays: what follows the parts that were computed is computed before the first member has passed them,
 * because members may be many parts apart and the first one's end must not be in the past. */
static void run_ahead(struct engine *e, int32_t group, int32_t reach)
{
    struct ahead *r = ahead_of(e, group);
    int64_t first_ns;
    r->reach = reach;
    if (ahead_run(e, group, &first_ns) == r->parts)
        announce(e, group);
    else
        push(e, first_ns, 0, EVENT_AHEAD, group, r->stamp);
}

/* The whole execution, from the members' begins. */
static void run_whole(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    if (ahead_known_repeats(e, group)) {
        announce(e, group);
        return;
    }
    for (int32_t i = 0; i < r->n; i++) {
        int64_t begin_ns = ahead_member(e, group, i)->begin_ns;
        r->members[i] = (struct ahead_member){
            .began_ns = begin_ns, .ends_ns = begin_ns, .seen_ns = e->now_ns};
    }
    ahead_queues_remember(e, group);
    run_ahead(e, group, AHEAD_PARTS);
    ahead_known_keep(r);
}

static void give_up(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    network_release(e->network, r->links, r->n_links);
    ahead_queues_release(e, r);
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

/* Messages that move at the end of what was computed ahead. */
static void hand_back(struct engine *e, int32_t group, int32_t i, int64_t now_ns)
{
    const struct ahead_message *x = &ahead_of(e, group)->ahead_messages[i];
    struct hop *h = &e->collectives->hops[x->hop];
    struct member *m = ahead_member(e, group, i);
    h->from = (int32_t)(m - e->collectives->members), h->bytes = x->bytes;
    h->to = (int32_t)(ahead_member(e, group, x->to) - e->collectives->members);
    h->moves = true;
    m->pending++, ahead_member(e, group, x->to)->pending++;
    network_resume(e->network, e->program->n_channels + x->hop, h->resource, x->left_bytes,
                   x->since_ns, now_ns);
}

/* A message of others is about to start on one of its links. */
static void broken(void *engine, int32_t group, int64_t now_ns)
{
    struct engine *e = engine;
    struct ahead *r = ahead_of(e, group);
    ahead_known_write(r);
    ahead_walk(e, group, r->parts, now_ns);
    for (int32_t i = 0; i < r->n; i++) r->ahead[i].gone = r->members[i].gone;
    give_up(e, group);
    for (int32_t i = 0; i < r->n; i++) {
        const struct ahead_member *x = &r->ahead[i];
        struct member *m = ahead_member(e, group, i);
        if (x->gone || x->part == r->parts) continue;
        m->part = x->part, m->begin_ns = x->began_ns, m->part_end_ns = x->ends_ns;
        m->sent = x->sent, m->received = x->received;
        m->pending = 0;
    }
    for (int32_t i = 0; i < r->n; i++)
        if (r->ahead[i].part < r->parts && !r->ahead[i].sent && r->ahead_messages[i].moves &&
            r->ahead_messages[i].part == r->ahead[i].part)
            hand_back(e, group, i, now_ns);
    for (int32_t i = 0; i < r->n; i++)
        if (r->ahead[i].part < r->parts) collectives_go_on(e, ahead_member(e, group, i));
    for (int32_t i = 0; i < r->n; i++)
        if (!r->ahead[i].gone && r->ahead[i].part == r->parts)
            end_member(e, ahead_member(e, group, i), r->ahead[i].began_ns);
}

/* --- the claim --- */

static void claim(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    network_claim(e->network, r->links, r->n_links, group);
    ahead_queues_claim(e, r, group);
    r->claims = true, r->repeats = false;
    r->running = r->n;
    r->stamp++;
}

static void wait_again(struct ahead *r)
{
    r->here = 0;
    r->by_messages = false;
    r->first_ns = r->second_ns = r->due_ns = INT64_MAX;
}

bool ahead_begins(struct engine *e, struct member *m, int64_t now_ns)
{
    struct ahead *r = e->collectives->ahead ? ahead_of(e, m->group) : NULL;
    if (!r || !r->able) return false;
    r->here++;
    if (r->by_messages) {
        if (r->here == r->n) wait_again(r);
        return false;
    }
    m->begin_ns = m->part_end_ns = now_ns;
    m->sent = m->received = false;
    m->waits = true;
    m->pending = 1;
    if (now_ns < r->first_ns)
        r->second_ns = r->first_ns, r->first_ns = now_ns;
    else if (now_ns < r->second_ns)
        r->second_ns = now_ns;
    int64_t due = r->n > 1 ? r->second_ns : r->first_ns;
    if (due >= r->due_ns) return true;
    r->due_ns = due;
    push(e, due, 0, EVENT_AHEAD_DUE, m->group, ++r->gathering);
    return true;
}

/* The first messages of an execution may be ready. */
static void start(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    bool all = r->here == r->n;
    bool claims =
        all && !r->claims && ahead_queues_claimable(e, r) &&
        network_claimable(e->network, r->links, r->n_links, 0, e->now_ns);
    r->by_messages = !all;
    if (all) wait_again(r);
    if (claims) claim(e, group);
    for (int32_t i = 0; claims && r->looked_up && i < r->n; i++) r->messages[i].part = -1;
    r->looked_up &= !claims;
    for (int32_t i = 0; i < r->n; i++) {
        struct member *m = ahead_member(e, group, i);
        if (!m->waits) continue;
        m->waits = false;
        if (claims) continue;
        m->pending = 0;
        collectives_go_on(e, m);
    }
    if (claims) run_whole(e, group);
}

/* All members are in one execution of it, which does not end soon, and no other message is on its links. */
static bool may_claim(struct engine *e, int32_t group)
{
    const struct ahead *r = ahead_of(e, group);
    const struct member *first = ahead_member(e, group, 0);
    for (int32_t i = 0; i < r->n; i++) {
        const struct member *m = ahead_member(e, group, i);
        if (!m->active || m->waits || m->ended != first->ended ||
            (r->parts - m->part) * r->n < AHEAD_LEAST)
            return false;
    }
    return true;
}

/* Its messages that move; false: one of them has just ended, or other messages move on its links. */
static bool find_moving(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    int32_t own = 0;
    r->looked_up = true;
    for (int32_t i = 0; i < r->n; i++) {
        const struct member *m = ahead_member(e, group, i);
        ahead_look_up(e, group, i, m->part, &r->messages[i]);
        const struct hop *h = &e->collectives->hops[r->messages[i].hop];
        int32_t n_links = 0;
        r->messages[i].moves = !m->sent && h->moves;
        if (r->messages[i].moves) (void)network_links(e->network, h->resource, &n_links);
        own += n_links;
    }
    bool free = network_claimable(e->network, r->links, r->n_links, own, e->now_ns);
    for (int32_t i = 0; free && i < r->n; i++) {
        int32_t hop = r->messages[i].hop;
        if (r->messages[i].moves)
            free = network_moves(e->network, e->program->n_channels + hop,
                                 e->collectives->hops[hop].resource);
    }
    return free;
}

static void take_hop(struct hop *h)
{
    h->moves = h->from_here = h->to_here = false;
    h->ready_ns = 0;
    h->outdated = h->queued;
}

bool ahead_claim(struct engine *e, int32_t hop)
{
    struct collective_streams *c = e->collectives;
    const struct member *from = &c->members[c->hops[hop].from];
    if (!c->ahead || from->index || !c->ahead[from->group].able) return false;
    int32_t group = from->group;
    struct ahead *r = &c->ahead[group];
    if (r->claims || r->n_queues || !may_claim(e, group) || !find_moving(e, group)) return false;
    for (int32_t i = 0; i < r->n; i++) {
        const struct member *m = ahead_member(e, group, i);
        r->members[i] = (struct ahead_member){.part = m->part,
                                              .began_ns = m->begin_ns,
                                              .ends_ns = m->part_end_ns,
                                              .seen_ns = e->now_ns,
                                              .sent = m->sent,
                                              .received = m->received};
        struct ahead_message *x = &r->messages[i];
        if (!x->moves) continue;
        x->since_ns = e->now_ns;
        x->left_bytes = network_withdraw(e->network, c->hops[x->hop].resource, e->now_ns);
    }
    for (int32_t i = 0; i < r->n; i++) {
        struct collectives_part p = collectives_part(e, group, r->member[i], r->members[i].part);
        if (!r->members[i].sent) take_hop(&c->hops[p.send]);
        if (!r->members[i].received) take_hop(&c->hops[p.receive]);
    }
    claim(e, group);
    run_ahead(e, group, AHEAD_PARTS);
    return true;
}

/* --- events --- */

static void over(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    give_up(e, group);
    for (int32_t i = 0; i < r->n; i++)
        end_member(e, ahead_member(e, group, i), ahead_end_of(r, i).end_ns);
}

static void ended(struct engine *e, struct member *m)
{
    struct ahead *r = ahead_of(e, m->group);
    int32_t i = r->place[m->index];
    ahead_known_write(r);
    r->members[i].gone = true;
    if (!--r->running) give_up(e, m->group);
    end_member(e, m, r->ahead[i].began_ns);
}

void ahead_event(struct engine *e, const struct event *x)
{
    struct member *m = x->kind == EVENT_AHEAD_ENDED ? &e->collectives->members[x->index] : NULL;
    int32_t group = m ? m->group : x->index;
    struct ahead *r = ahead_of(e, group);
    if (x->stamp != (x->kind == EVENT_AHEAD_DUE ? r->gathering : r->stamp)) return;
    if (m) {
        ended(e, m);
    } else if (x->kind == EVENT_AHEAD_DUE) {
        start(e, group);
    } else if (x->kind == EVENT_AHEAD_OVER) {
        over(e, group);
    } else {
        run_ahead(e, group, 2 * r->reach);
    }
}
