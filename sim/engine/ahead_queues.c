/* Collectives ahead of their events on FIFO links that their members share, e.g. the bus of a node.
 *
 * A message's times are known as soon as it is ready, so the messages are taken in the order in which they become ready, those of
 * one instant in the order of queues.c, as the event queue would. A member's part begins when its messages of the part before have
 * ended, never before they were ready, so each message that becomes ready is behind those taken before it. */
#include "sim/engine/ahead_internal.h"

#include "core/base/arena.h"

enum {
    /* Members among all of which the next message is looked for: more than a node has GPUs. */
    QUEUING_MEMBERS = 64
};

void ahead_queues_add(int32_t *queues, int32_t *n, int32_t resource)
{
    for (int32_t i = 0; i < *n; i++)
        if (queues[i] == resource) return;
    queues[(*n)++] = resource;
}

bool ahead_queues_new(struct engine *e, int32_t group, const int32_t *of, int32_t n)
{
    struct ahead *r = ahead_of(e, group);
    if (!program_collective_in_rounds(&e->program->collectives[group]) || r->n > QUEUING_MEMBERS)
        return false;
    r->n_queues = n;
    r->queues = arena_copy(e->arena, of, (size_t)n * sizeof *of);
    r->free_ns = ARENA_ARRAY(e->arena, int64_t, 3 * (size_t)n);
    r->known_free_ns = r->free_ns + n, r->known_left_ns = r->known_free_ns + n;
    return true;
}

bool ahead_queues_claimable(const struct engine *e, const struct ahead *r)
{
    for (int32_t i = 0; i < r->n_queues; i++)
        if (network_queue_claimed(e->network, r->queues[i])) return false;
    return true;
}

void ahead_queues_claim(struct engine *e, const struct ahead *r, int32_t group)
{
    for (int32_t i = 0; i < r->n_queues; i++) network_claim_queue(e->network, r->queues[i], group);
}

void ahead_queues_release(struct engine *e, const struct ahead *r)
{
    for (int32_t i = 0; i < r->n_queues; i++) {
        network_claim_queue(e->network, r->queues[i], -1);
        *network_queue_free_ns(e->network, r->queues[i]) = r->free_ns[i];
    }
}

/* When the queue is free, after the first member's begin; 0: before any message of the collective. */
static int64_t late(const struct engine *e, int32_t group, int32_t i)
{
    const struct ahead *r = ahead_of(e, group);
    int64_t free = *network_queue_free_ns(e->network, r->queues[i]), first = INT64_MAX;
    for (int32_t m = 0; m < r->n; m++) {
        int64_t begin = ahead_member(e, group, m)->begin_ns;
        if (begin < first) first = begin;
    }
    return free > first ? free - first : 0;
}

bool ahead_queues_known(const struct engine *e, int32_t group)
{
    const struct ahead *r = ahead_of(e, group);
    for (int32_t i = 0; i < r->n_queues; i++)
        if (late(e, group, i) != r->known_free_ns[i]) return false;
    return true;
}

void ahead_queues_remember(struct engine *e, int32_t group)
{
    struct ahead *r = ahead_of(e, group);
    for (int32_t i = 0; i < r->n_queues; i++) r->known_free_ns[i] = late(e, group, i);
}

/* The next message to become ready, and when; -1: none. */
static int32_t next(struct ahead_walk *w, int64_t *ready_ns, uint64_t *order)
{
    struct ahead *r = ahead_of(w->e, w->group);
    int32_t best = -1;
    for (int32_t i = 0; i < r->n; i++) {
        const struct ahead_member *from = &r->ahead[i];
        struct ahead_message *x = &r->ahead_messages[i];
        if (from->part >= w->target || from->sent) continue;
        if (x->part != from->part) ahead_look_up(w->e, w->group, i, from->part, x);
        const struct ahead_member *to = &r->ahead[x->to];
        if (from->part != to->part) continue;
        int64_t ready = from->began_ns > to->began_ns ? from->began_ns : to->began_ns;
        uint64_t at = w->e->collectives->hops[x->hop].order;
        if (best >= 0 && (ready > *ready_ns || (ready == *ready_ns && at >= *order))) continue;
        best = i, *ready_ns = ready, *order = at;
    }
    return best;
}

static void end_message(struct ahead_member *m, bool sent, int64_t when_ns, int64_t ready_ns,
                        uint64_t order)
{
    *(sent ? &m->sent : &m->received) = true;
    if (when_ns > m->ends_ns) m->ends_ns = when_ns;
    if (ready_ns > m->seen_ns) m->seen_ns = ready_ns, m->order = order;
    if (ready_ns == m->seen_ns && order > m->order) m->order = order;
    if (!m->sent || !m->received) return;
    m->part++;
    m->began_ns = m->ends_ns;
    m->sent = m->received = false;
}

void ahead_queues_walk(struct ahead_walk *w)
{
    struct engine *e = w->e;
    struct ahead *r = ahead_of(e, w->group);
    int64_t ready = 0;
    uint64_t order = 0;
    for (int32_t i = 0; i < r->n_queues; i++)
        r->free_ns[i] = *network_queue_free_ns(e->network, r->queues[i]);
    for (int32_t i; (i = next(w, &ready, &order)) >= 0;) {
        if (ready > w->until_ns || (ready == w->until_ns && order >= e->order)) return;
        const struct ahead_message *x = &r->ahead_messages[i];
        int32_t resource = e->collectives->hops[x->hop].resource, q = 0;
        while (r->queues[q] != resource) q++;
        int64_t start = ready > r->free_ns[q] ? ready : r->free_ns[q],
                left = start + network_occupancy_ns(e->network, resource, x->bytes);
        r->free_ns[q] = left;
        end_message(&r->ahead[i], true, left, ready, order);
        end_message(&r->ahead[x->to], false, left + network_latency(e->network, resource), ready,
                    order);
        if (ready > w->last_ns) w->last_ns = ready;
    }
}
