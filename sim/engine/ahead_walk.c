/* What follows from the state of a collective that has its links to itself. */
#include "sim/engine/ahead_internal.h"

#include <string.h>

void ahead_look_up(const struct engine *e, int32_t group, int32_t i, int32_t part,
                   struct ahead_message *out)
{
    const struct ahead *r = ahead_of(e, group);
    struct collectives_part p = collectives_part(e, group, r->member[i], part);
    *out = (struct ahead_message){
        .part = part, .to = r->place[p.to], .hop = p.send, .bytes = p.send_bytes};
}

static void end_part(struct ahead_member *m)
{
    if (!m->sent || !m->received) return;
    m->part++;
    m->began_ns = m->ends_ns;
    m->sent = m->received = false;
}

static void end_message(struct ahead_member *m, bool sent, int64_t when_ns, int64_t seen_ns)
{
    *(sent ? &m->sent : &m->received) = true;
    if (when_ns > m->ends_ns) m->ends_ns = when_ns;
    if (seen_ns > m->seen_ns) m->seen_ns = seen_ns;
}

/* The message that member i sends in its part, if both ends have begun it. true: it has ended. */
static bool pass_on(struct ahead_walk *w, struct ahead *r, int32_t i)
{
    struct engine *e = w->e;
    struct ahead_member *from = &r->ahead[i];
    struct ahead_message *x = &r->ahead_messages[i];
    if (from->part >= w->target || from->sent) return false;
    if (x->part != from->part) ahead_look_up(e, w->group, i, from->part, x);
    struct ahead_member *to = &r->ahead[x->to];
    if (from->part != to->part) return false;
    int32_t resource = e->collectives->hops[x->hop].resource;
    bool fair = network_fair(e->network, resource);
    int64_t start = from->began_ns > to->began_ns ? from->began_ns : to->began_ns, left;
    double bytes = 0;
    if (x->moves) {
        left = network_alone_end(e->network, resource, x->left_bytes, x->since_ns);
    } else {
        int64_t ns = network_occupancy_ns(e->network, resource, x->bytes);
        if (fair) bytes = network_bytes(e->network, resource, ns);
        left = fair ? network_alone_end(e->network, resource, bytes, start) : start + ns;
    }
    int64_t seen = fair ? left : start;
    if (seen > w->until_ns) {
        if (!x->moves && start <= w->until_ns)
            x->moves = true, x->since_ns = start, x->left_bytes = bytes;
        return false;
    }
    x->moves = false;
    end_message(from, true, left, seen);
    end_message(to, false, left + network_latency(e->network, resource), seen);
    end_part(from), end_part(to);
    if (seen > w->last_ns) w->last_ns = seen;
    return true;
}

static void walk(struct ahead_walk *w)
{
    struct ahead *r = ahead_of(w->e, w->group);
    for (bool any = true; any;) {
        any = false;
        for (int32_t i = 0; i < r->n; i++) any |= pass_on(w, r, i);
    }
}

static void pass_parts(struct ahead_member *m, int32_t n, int32_t parts, int64_t ns)
{
    for (int32_t i = 0; i < n; i++) {
        m[i].part += parts;
        m[i].began_ns += parts * ns, m[i].ends_ns += parts * ns, m[i].seen_ns += parts * ns;
    }
}

/* From the collective's state, or from the steady one if that is over by until_ns. */
struct ahead_walk ahead_walk(struct engine *e, int32_t group, int32_t target, int64_t until_ns)
{
    struct ahead *r = ahead_of(e, group);
    size_t n = (size_t)r->n;
    memcpy(r->ahead, r->members, n * sizeof *r->ahead);
    memcpy(r->ahead_messages, r->messages, n * sizeof *r->ahead_messages);
    if (r->steady_ns > 0 && until_ns >= r->steady_seen_ns) {
        int64_t parts = (until_ns - r->steady_seen_ns) / r->steady_ns,
                left = target - r->steady->part;
        memcpy(r->ahead, r->steady, n * sizeof *r->ahead);
        for (size_t i = 0; i < n; i++) r->ahead_messages[i].part = -1;
        pass_parts(r->ahead, r->n, (int32_t)(parts < left ? parts : left), r->steady_ns);
    }
    struct ahead_walk w = {
        .e = e, .group = group, .target = target, .until_ns = until_ns, .last_ns = e->now_ns};
    if (r->n_queues)
        ahead_queues_walk(&w);
    else
        walk(&w);
    return w;
}

/* All members have begun the same part of a ring. If they begin the next one all so much later, they do so in every part that follows,
 * because times follow from those of the part before by maxima and constant durations. 0: they do not. */
static int64_t find_period(struct ahead_walk *w)
{
    struct ahead *r = ahead_of(w->e, w->group);
    const struct collective *g = &w->e->program->collectives[w->group];
    if (!collectives_folded(g) && g->elements % g->n_members) return 0; /* unequal chunks */
    memcpy(r->steady, r->ahead, (size_t)r->n * sizeof *r->steady);
    w->target++;
    walk(w);
    int64_t ns = r->ahead[0].began_ns - r->steady[0].began_ns;
    for (int32_t i = 1; i < r->n; i++)
        if (r->ahead[i].began_ns - r->steady[i].began_ns != ns) return 0;
    return ns;
}

int32_t ahead_run(struct engine *e, int32_t group, int64_t *first_ns)
{
    struct ahead *r = ahead_of(e, group);
    bool ring = program_collective_rings(&e->program->collectives[group]);
    int32_t furthest = 0;
    r->steady_ns = 0;
    for (int32_t i = 0; i < r->n; i++)
        if (r->members[i].part > furthest) furthest = r->members[i].part;
    bool long_ring = ring && !r->n_queues && r->parts - furthest > r->reach;
    int32_t target = long_ring ? furthest + r->reach : r->parts;
    struct ahead_walk w = ahead_walk(e, group, target, INT64_MAX);
    if (target < r->parts) {
        int64_t period = find_period(&w);
        target = w.target;
        if (period > 0) {
            memcpy(r->steady, r->ahead, (size_t)r->n * sizeof *r->steady);
            r->steady_ns = period, r->steady_seen_ns = w.last_ns;
            pass_parts(r->ahead, r->n, r->parts - target, period);
            target = r->parts;
        }
    }
    *first_ns = INT64_MAX;
    for (int32_t i = 0; i < r->n; i++)
        if (r->ahead[i].seen_ns < *first_ns) *first_ns = r->ahead[i].seen_ns;
    if (*first_ns < e->now_ns) *first_ns = e->now_ns;
    return target;
}
