/* Few flows: rates and ends in a data structure of a few cache lines.
 *
 * A route with flows holds a seat, a contended resource is a gate, and both are bits: the users of a gate, the gates of a route
 * and the members of a bottleneck are one word each. The search is that of flows_share.c, which states the
 * reason: everything that the change reaches is taken, and filled with the rest as given. A resource that is no gate is visited
 * when a route gets its first or loses its last flow, and never in a search; most resources of a tree are of that kind, and most
 * searches end with a handful of seats.
 * Seats whose rate stays are not touched. Ends are not kept in order: a scan over the words of 64 seats takes less
 * time than a heap with its unpredictable branches.
 */
#include "sim/network/flows_internal.h"

static struct flow_door *gate_at(struct flows *f, int32_t gate)
{
    return &f->doors[f->few.resource[gate]];
}

/* --- doors and gates --- */

static void make_gate(struct flows *f, int32_t resource)
{
    struct flow_few *w = &f->few;
    struct flow_door *d = &f->doors[resource];
    if (w->numbers == UINT64_MAX) {
        w->full = true; /* the caller of the start switches to many */
        return;
    }
    d->gate = flows_lowest(~w->numbers);
    w->numbers |= flows_bit(d->gate);
    w->resource[d->gate] = resource;
    for (uint64_t u = d->users; u; u &= u - 1) w->gates[flows_lowest(u)] |= flows_bit(d->gate);
}

/* Its members are already marked as changed, and so get another bottleneck. */
static void end_gate(struct flows *f, struct flow_door *d)
{
    struct flow_few *w = &f->few;
    for (uint64_t u = d->users; u; u &= u - 1) w->gates[flows_lowest(u)] &= ~flows_bit(d->gate);
    for (uint64_t m = d->members; m; m &= m - 1) w->seats[flows_lowest(m)].gate = -1;
    w->numbers &= ~flows_bit(d->gate);
    d->members = 0;
    d->gate = -1;
}

/* --- seats --- */

/* Flows of a seat on this door. */
static double flows_on(const struct flows *f, const struct flow_door *d, int32_t seat)
{
    double n = f->few.n_flows[seat];
    return d->weight ? n * d->weight[seat] : n;
}

static void more_flows(struct flows *f, const struct flow_route *r, double n)
{
    f->few.n_flows[r->seat] += n;
    f->few.seats[r->seat].cap_Bpns = r->cap_Bpns / f->few.n_flows[r->seat];
    for (int32_t i = 0; i < r->n_resources; i++)
        f->doors[r->resources[i]].n_flows += n * flows_weight(r, i);
}

static double served(const struct flow_seat *s, double now_ns)
{
    return s->served_bytes + s->level_Bpns * (now_ns - s->since_ns);
}

/* The first flow of its route has changed. */
static void new_first(struct flows *f, int32_t seat, const struct flow *first)
{
    struct flow_seat *s = &f->few.seats[seat];
    s->mark_bytes = first->mark_bytes;
    s->seq = first->seq;
    if (s->level_Bpns > 0)
        f->few.end_ns[seat] = s->since_ns + (s->mark_bytes - s->served_bytes) / s->level_Bpns;
}

void flows_sit(struct flows *f, int32_t route, double served_bytes)
{
    struct flow_few *w = &f->few;
    struct flow_route *r = &f->routes[route];
    int32_t seat = r->seat = flows_lowest(~w->used);
    double n = r->n_flows;
    struct flow_seat *s = &w->seats[seat];
    s->level_Bpns = 0;
    s->served_bytes = served_bytes;
    s->since_ns = f->now_ns;
    s->cap_Bpns = r->cap_Bpns / n;
    s->route = route;
    s->gate = -1;
    w->n_flows[seat] = n;
    w->gates[seat] = 0;
    new_first(f, seat, &r->store.flows[0]);
    for (int32_t i = 0; i < r->n_resources; i++) {
        struct flow_door *d = &f->doors[r->resources[i]];
        double weight = flows_weight(r, i);
        if (d->weight) d->weight[seat] = weight;
        d->users |= flows_bit(seat);
        d->n_flows += n * weight;
        d->demand_Bpns += r->cap_Bpns * weight;
        if (d->gate >= 0)
            w->gates[seat] |= flows_bit(d->gate);
        else if (d->demand_Bpns > d->room_Bpns)
            make_gate(f, r->resources[i]);
    }
    w->used |= flows_bit(seat);
    w->changed |= flows_bit(seat);
    f->stale = true;
}

double flows_stand(struct flows *f, int32_t route)
{
    struct flow_few *w = &f->few;
    struct flow_route *r = &f->routes[route];
    struct flow_seat *s = &w->seats[r->seat];
    uint64_t others = ~flows_bit(r->seat);
    for (int32_t i = 0; i < r->n_resources; i++) {
        struct flow_door *d = &f->doors[r->resources[i]];
        d->users &= others;
        d->n_flows -= flows_on(f, d, r->seat);
        /* 0 without flows, so that rounding errors do not accumulate; half of all cases, hence no branch. */
        d->demand_Bpns = (d->demand_Bpns - r->cap_Bpns * flows_weight(r, i)) * (d->users != 0);
        if (d->gate < 0) continue;
        w->changed |= d->members;
        d->members &= others;
        if (!(d->demand_Bpns > d->room_Bpns)) end_gate(f, d);
    }
    w->used &= others;
    w->changed &= others;
    w->due &= others;
    w->end_ns[r->seat] = INFINITY;
    r->seat = -1;
    f->stale = true;
    return served(s, f->now_ns);
}

/* --- the search --- */

/* Everything that the taken seats can affect. */
static uint64_t spread(struct flows *f, uint64_t taken, uint64_t *gates)
{
    *gates = 0;
    for (uint64_t reached = taken; reached;) {
        int32_t seat = flows_lowest(reached);
        reached &= reached - 1;
        uint64_t g = f->few.gates[seat] & ~*gates;
        for (*gates |= g; g; g &= g - 1) {
            uint64_t found = gate_at(f, flows_lowest(g))->members & ~taken;
            taken |= found, reached |= found;
        }
    }
    return taken;
}

static void new_share(struct flow_door *d)
{
    d->share_Bpns = (d->left_Bpns > 0 ? d->left_Bpns : 0) / d->count;
}

/* Assigns the rate to these seats and subtracts it from the gates that they cross. */
static void settle(struct flows *f, uint64_t seats, uint64_t open, uint64_t *gates)
{
    uint64_t crossed = 0;
    for (uint64_t u = seats; u; u &= u - 1) crossed |= f->few.gates[flows_lowest(u)];
    for (crossed &= *gates; crossed; crossed &= crossed - 1) {
        int32_t gate = flows_lowest(crossed);
        struct flow_door *d = gate_at(f, gate);
        if (!(d->users & open)) {
            *gates &= ~flows_bit(gate);
            continue;
        }
        for (uint64_t u = d->users & seats; u; u &= u - 1) {
            int32_t seat = flows_lowest(u);
            double n = flows_on(f, d, seat);
            d->count -= n;
            d->left_Bpns -= f->few.seats[seat].new_level * n;
        }
        new_share(d);
    }
}

/* The smallest of their caps; each seat's rate if no gate limits it. */
static double prepare(struct flows *f, uint64_t taken, uint64_t gates)
{
    double min_cap = INFINITY;
    for (uint64_t u = taken; u; u &= u - 1) {
        struct flow_seat *s = &f->few.seats[flows_lowest(u)];
        s->new_level = s->cap_Bpns;
        s->new_gate = -1;
        min_cap = s->cap_Bpns < min_cap ? s->cap_Bpns : min_cap;
    }
    for (; gates; gates &= gates - 1) {
        struct flow_door *d = gate_at(f, flows_lowest(gates));
        double left = d->capacity_Bpns, count = d->n_flows;
        for (uint64_t u = d->users & ~taken; u; u &= u - 1) {
            int32_t seat = flows_lowest(u);
            left -= f->few.carried_Bpns[seat] * (d->weight ? d->weight[seat] : 1);
            count -= flows_on(f, d, seat);
        }
        d->left_Bpns = left;
        d->count = count;
        new_share(d);
    }
    return min_cap;
}

/* Settles the caps up to this level; min_cap becomes the smallest of the others. */
static uint64_t capped(struct flows *f, uint64_t open, double level, double *min_cap)
{
    uint64_t hold = 0;
    *min_cap = INFINITY;
    for (uint64_t u = open; u; u &= u - 1) {
        int32_t seat = flows_lowest(u);
        double cap = f->few.seats[seat].cap_Bpns;
        if (cap <= level)
            hold |= flows_bit(seat);
        else if (cap < *min_cap)
            *min_cap = cap;
    }
    return hold;
}

/* Seats that were not taken and have a higher rate. */
static uint64_t above(struct flows *f, uint64_t seats, double level)
{
    uint64_t more = 0;
    for (; seats; seats &= seats - 1) {
        int32_t seat = flows_lowest(seats);
        if (f->few.seats[seat].level_Bpns > level * FLOWS_SAME) more |= flows_bit(seat);
    }
    return more;
}

static int32_t min_share(struct flows *f, uint64_t gates, double *level)
{
    int32_t best = -1;
    *level = INFINITY;
    for (; gates; gates &= gates - 1) {
        int32_t gate = flows_lowest(gates);
        double share = gate_at(f, gate)->share_Bpns;
        if (share < *level) *level = share, best = gate;
    }
    return best;
}

/* Progressive filling. Returns further seats to be taken; 0 when all have their rates. */
static uint64_t fill(struct flows *f, uint64_t taken, uint64_t gates)
{
    uint64_t open = taken;
    double min_cap = prepare(f, taken, gates);
    while (gates) {
        double level;
        int32_t gate = min_share(f, gates, &level);
        uint64_t now;
        if (min_cap <= level) {
            now = capped(f, open, level, &min_cap);
        } else {
            const struct flow_door *d = gate_at(f, gate);
            uint64_t more = above(f, d->users & ~taken, level);
            if (more) return more;
            now = d->users & open;
            for (uint64_t u = now; u; u &= u - 1) {
                struct flow_seat *s = &f->few.seats[flows_lowest(u)];
                s->new_level = level;
                s->new_gate = gate;
            }
        }
        open &= ~now;
        settle(f, now, open, &gates);
    }
    return 0; /* seats that are still open have their cap, as prepared */
}

static void commit(struct flows *f, uint64_t taken)
{
    for (uint64_t u = taken; u; u &= u - 1) {
        int32_t seat = flows_lowest(u);
        struct flow_seat *s = &f->few.seats[seat];
        if (s->new_gate != s->gate) {
            if (s->gate >= 0) gate_at(f, s->gate)->members &= ~flows_bit(seat);
            if (s->new_gate >= 0) gate_at(f, s->new_gate)->members |= flows_bit(seat);
            s->gate = s->new_gate;
        }
        f->few.carried_Bpns[seat] = s->new_level * f->few.n_flows[seat];
        if (s->new_level == s->level_Bpns) continue;
        s->served_bytes = served(s, f->now_ns);
        s->since_ns = f->now_ns;
        s->level_Bpns = s->new_level;
        f->few.end_ns[seat] = f->now_ns + (s->mark_bytes - s->served_bytes) / s->level_Bpns;
    }
}

static double lesser(double a, double b) { return a < b ? a : b; }

static void find_next(struct flow_few *w)
{
    double next = INFINITY;
    w->n_blocks = w->used ? (63 - __builtin_clzll(w->used)) / FLOWS_BLOCK + 1 : 0;
    for (int32_t i = 0; i < w->n_blocks; i++) {
        const double *e = &w->end_ns[FLOWS_BLOCK * i];
        w->least_ns[i] = lesser(lesser(e[0], e[1]), lesser(e[2], e[3]));
        next = lesser(next, w->least_ns[i]);
    }
    w->next_ns = next;
}

void flows_few_share(struct flows *f)
{
    uint64_t taken = f->few.changed, gates;
    f->few.changed = f->few.due = 0;
    for (uint64_t more = taken; more; taken |= more) {
        taken = spread(f, taken, &gates);
        more = fill(f, taken, gates);
    }
    commit(f, taken);
    find_next(&f->few);
}

/* --- starts and ends --- */

void flows_few_start(struct flows *f, int32_t route, double bytes, int64_t owner)
{
    struct flow_few *w = &f->few;
    struct flow_route *r = &f->routes[route];
    if (r->seat < 0) {
        flows_push(f, route, bytes, owner);
        flows_sit(f, route, 0);
        return;
    }
    flows_push(f, route, served(&w->seats[r->seat], f->now_ns) + bytes, owner);
    more_flows(f, r, 1);
    if (r->store.flows[0].seq == f->starts) new_first(f, r->seat, &r->store.flows[0]);
    w->changed |= flows_bit(r->seat);
    f->stale = true;
}

/* Seats whose next flow ends by then. */
static uint64_t ends_until(const struct flow_few *w, double limit_ns)
{
    uint64_t due = 0;
    for (int32_t i = 0; i < w->n_blocks; i++) {
        if (w->least_ns[i] > limit_ns) continue;
        for (int32_t k = FLOWS_BLOCK * i; k < FLOWS_BLOCK * (i + 1); k++)
            due |= (uint64_t)(w->end_ns[k] <= limit_ns) << k;
    }
    return due;
}

/* The resource that limits it. */
static int32_t bottleneck(const struct flows *f, const struct flow_seat *s)
{
    return s->gate >= 0 ? f->few.resource[s->gate] : f->routes[s->route].narrow;
}

static bool ends_before(const struct flows *f, int32_t a, int32_t b)
{
    const struct flow_seat *x = &f->few.seats[a], *y = &f->few.seats[b];
    if (f->few.end_ns[a] != f->few.end_ns[b]) return f->few.end_ns[a] < f->few.end_ns[b];
    int32_t at = bottleneck(f, x), other = bottleneck(f, y);
    return at != other ? at < other : x->seq < y->seq;
}

static int32_t first_due(const struct flows *f)
{
    uint64_t due = f->few.due;
    int32_t best = flows_lowest(due);
    for (due &= due - 1; due; due &= due - 1)
        if (ends_before(f, flows_lowest(due), best)) best = flows_lowest(due);
    return best;
}

bool flows_few_end(struct flows *f, double limit_ns, struct flow_end *out)
{
    struct flow_few *w = &f->few;
    /* Other ends of this instant need no new rates. */
    if (!w->due) {
        double next = flows_next_ns(f);
        if (next > limit_ns + FLOWS_GRAIN_NS || isinf(next)) return false;
        if (next > f->now_ns) f->now_ns = next;
        w->due = ends_until(w, f->now_ns + FLOWS_GRAIN_NS);
    }
    int32_t seat = first_due(f), route = w->seats[seat].route;
    struct flow_route *r = &f->routes[route];
    struct flow x = flows_pop(f, route);
    if (r->n_flows) {
        more_flows(f, r, -1);
        new_first(f, seat, &r->store.flows[0]);
        if (w->end_ns[seat] > f->now_ns + FLOWS_GRAIN_NS) w->due &= ~flows_bit(seat);
        w->changed |= flows_bit(seat);
        f->stale = true;
    } else {
        flows_stand(f, route);
    }
    *out = (struct flow_end){x.owner, x.start_ns, f->now_ns};
    return true;
}
