#include "exec/host_transport/wire.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"

#include <string.h>

enum { TURN_MIN = 4096, TURN_MAX = 65536, TURNS = 8 };
#define POLL_AT_ONCE 64

/* ---- where things are -------------------------------------------------------------------------
 */

static int32_t edges_of(const struct collective *g)
{
    if (g->n_members < 2 || g->algorithm == ALGORITHM_LOCAL || program_collective_in_rounds(g)) return 0;
    return g->algorithm == ALGORITHM_CHAIN ? 2 * g->n_members : g->n_members;
}

static int32_t count_edges(const struct program *p)
{
    int32_t n = p->n_channels;
    for (int32_t g = 0; g < p->n_collectives; g++) n += edges_of(&p->collectives[g]);
    return n;
}

/* A wire of collectives; those from one rank to another form a list. */
struct tensor_wire {
    int32_t from, to, link, direction, next; /* next: + 1; 0: the last */
};
struct tensor_wires {
    int32_t n;
    size_t capacity;
    struct tensor_wire *list;
    int32_t *first; /* (n_devices, n_devices) + 1; 0: none */
};

static int32_t find_wire(struct arena *a, const struct program *p, struct tensor_wires *w,
                         struct tensor_wire like)
{
    int32_t *first = &w->first[like.from * p->n_devices + like.to];
    for (int32_t i = *first; i; i = w->list[i - 1].next)
        if (w->list[i - 1].link == like.link && w->list[i - 1].direction == like.direction)
            return i - 1;
    w->list = arena_grow(a, w->list, (size_t)w->n, &w->capacity, sizeof *w->list);
    like.next = *first;
    w->list[w->n] = like;
    return (*first = ++w->n) - 1;
}

/* of: (n_groups), see struct wires; NULL if not needed. */
static struct tensor_wires tensor_wires(struct arena *a, const struct program *p, int32_t **of)
{
    struct tensor_wires w = {0};
    int32_t first = count_edges(p);
    for (int32_t g = 0; g < p->n_collectives; g++) {
        const struct collective *x = &p->collectives[g];
        int32_t n = x->n_members;
        if (!program_collective_in_rounds(x)) continue;
        if (!w.first)
            w.first = ARENA_ARRAY(a, int32_t, (size_t)p->n_devices * (size_t)p->n_devices);
        if (of) of[g] = ARENA_ARRAY(a, int32_t, (size_t)n * (size_t)n);
        for (int32_t i = 0; i < n * n; i++) {
            struct tensor_wire like = {.from = p->stages[x->members[i / n].stage].device,
                                        .to = p->stages[x->members[i % n].stage].device};
            program_collective_link(x, i / n, i % n, &like.link, &like.direction);
            int32_t wire = like.link < 0 ? -1 : first + find_wire(a, p, &w, like);
            if (of) of[g][i] = wire;
        }
    }
    return w;
}

int64_t wires_shared_bytes(const struct program *p)
{
    if (!p->emulated) return 0;
    struct arena *a = arena_new();
    int64_t n = count_edges(p) + tensor_wires(a, p, NULL).n;
    arena_free(a);
    return (int64_t)sizeof(struct link_clock) * 2 * p->n_links +
           (int64_t)sizeof(struct wire_control) * n + 64;
}

static struct link_clock *make_clocks(void *shared, int32_t n, bool maker)
{
    struct link_clock *clocks = shared;
    for (int32_t i = 0; maker && i < n; i++)
        if (link_clock_init(&clocks[i])) BUG("link_clock_init");
    return clocks;
}

static void init_end(struct wires *w, const struct program *p, int32_t wire, int32_t from,
                     int32_t to, int32_t link, int32_t direction, struct link_clock *clocks,
                     struct wire_control *controls)
{
    struct wire *x = &w->wire[wire];
    *x = (struct wire){.from = from, .to = to, .link = link >= 0 ? &p->links[link] : NULL};
    x->used = from != to && (from == w->rank || to == w->rank);
    if (link >= 0) x->slower = &w->slower[link];
    if (controls) x->control = &controls[wire];
    if (clocks && link >= 0)
        x->clock = &clocks[2 * link + (p->links[link].half_duplex ? 0 : direction)];
    if (x->used) w->mine[w->n_mine++] = wire;
}

static void init_group(struct wires *w, const struct program *p, int32_t group,
                       struct link_clock *clocks, struct wire_control *controls)
{
    const struct collective *g = &p->collectives[group];
    int32_t n = g->n_members, edge = w->group_first[group];
    for (int32_t k = 0; n > 1 && k < edges_of(g); k++) {
        bool back = k >= n;
        int32_t i = k % n, to = back ? (i + n - 1) % n : (i + 1) % n;
        init_end(w, p, edge + k, p->stages[g->members[i].stage].device,
                 p->stages[g->members[to].stage].device, back ? g->back_link[i] : g->link[i],
                 back ? g->back_direction[i] : g->direction[i], clocks, controls);
    }
}

void wires_init(struct wires *w, struct arena *a, const struct program *p, struct comm *c,
                void *shared, wire_ended *ended, void *owner)
{
    int32_t n_edges = count_edges(p),
            **of = ARENA_ARRAY(a, int32_t *, (size_t)p->n_collectives + 1);
    struct tensor_wires met = tensor_wires(a, p, of);
    int32_t reports = n_edges + met.n, n = reports + p->n_devices;
    *w = (struct wires){.collective = of,
                        .a = a,
                        .comm = c,
                        .rank = comm_rank(c),
                        .n = n,
                        .reports = reports,
                        .ended = ended,
                        .owner = owner};
    w->wire = ARENA_ARRAY(a, struct wire, (size_t)n + 1);
    w->mine = ARENA_ARRAY(a, int32_t, (size_t)n + 1);
    w->group_first = ARENA_ARRAY(a, int32_t, (size_t)p->n_collectives + 1);
    w->slower = ARENA_ARRAY(a, _Atomic double, (size_t)p->n_links + 1);
    for (int32_t i = 0; i < p->n_links; i++) atomic_init(&w->slower[i], 1);
    struct link_clock *clocks = shared ? make_clocks(shared, 2 * p->n_links, w->rank == 0) : NULL;
    struct wire_control *controls =
        shared ? (void *)((char *)shared + sizeof *clocks * 2 * (size_t)p->n_links) : NULL;
    for (int32_t i = 0; i < p->n_channels; i++) {
        const struct channel *x = &p->channels[i];
        init_end(w, p, i, p->stages[x->from_stage].device, p->stages[x->to_stage].device, x->link,
                 x->direction, clocks, controls);
    }
    for (int32_t g = 0, edge = p->n_channels; g < p->n_collectives; g++) {
        w->group_first[g] = edge;
        init_group(w, p, g, clocks, controls);
        edge += edges_of(&p->collectives[g]);
    }
    for (int32_t i = 0; i < met.n; i++)
        init_end(w, p, n_edges + i, met.list[i].from, met.list[i].to, met.list[i].link,
                 met.list[i].direction, clocks, controls);
    for (int32_t i = 1; i < p->n_devices; i++) init_end(w, p, reports + i, i, 0, -1, 0, NULL, NULL);
}

void wires_slow(struct wires *w, int32_t link, double factor)
{
    atomic_store_explicit(&w->slower[link], factor, memory_order_relaxed);
}

static void restart(struct wire *x)
{
    if (x->first != x->next) BUG("messages are numbered anew while one is under way");
    x->first = x->started = x->next = 0;
    if (!x->control) return;
    atomic_store(&x->control->handed, 0);
    atomic_store(&x->control->left, 0);
}

void wires_restart(struct wires *w, int32_t n, int64_t now_ns)
{
    for (int32_t i = 0; i < w->n_mine; i++) {
        struct wire *x = &w->wire[w->mine[i]];
        if (w->mine[i] < n) restart(x);
        if (x->previous_left_ns > now_ns) x->previous_left_ns = now_ns;
        if (!x->clock) continue;
        link_clock_lock(x->clock);
        if (x->clock->free_ns > now_ns) x->clock->free_ns = now_ns;
        link_clock_unlock(x->clock);
    }
}

int32_t wires_peer(const struct wires *w, int32_t wire)
{
    const struct wire *x = &w->wire[wire];
    return x->from == w->rank ? x->to : x->from;
}

static struct wire_message *message_at(const struct wire *x, int64_t n)
{
    return &x->queue[n & (x->capacity - 1)];
}

static struct wire_message *push(struct wires *w, struct wire *x, struct wire_message m)
{
    if (x->next - x->first == x->capacity) {
        struct wire bigger = *x;
        bigger.capacity = x->capacity ? 2 * x->capacity : 8;
        bigger.queue = ARENA_ARRAY(w->a, struct wire_message, (size_t)bigger.capacity);
        for (int64_t n = x->first; n < x->next; n++) *message_at(&bigger, n) = *message_at(x, n);
        *x = bigger;
    }
    struct wire_message *slot = message_at(x, x->next++);
    *slot = m;
    return slot;
}

/* ---- sender -----------------------------------------------------------------------------------
 */

/* Announces ready messages to the other end, as far as the shared table has space. */
static bool announce(struct wires *w, int32_t wire)
{
    struct wire *x = &w->wire[wire];
    bool any = false;
    for (; x->started < x->next; x->started++) {
        struct wire_message *m = message_at(x, x->started);
        if (x->control && x->started - x->first >= WIRE_DEPTH)
            break; /* its entry has not been read yet */
        comm_send(w->comm, m->data, m->bytes, x->to, wire, wire, x->started);
        if (x->control) {
            x->control->entry[x->started % WIRE_DEPTH].ready_ns = m->at_ns;
            atomic_store(&x->control->handed, x->started + 1);
        }
        any = true;
    }
    if (any) comm_ring(w->comm, x->to);
    return any;
}

void wire_hand(struct wires *w, int32_t wire, void *data, int64_t bytes, int64_t ready_ns)
{
    push(w, &w->wire[wire], (struct wire_message){.data = data, .bytes = bytes, .at_ns = ready_ns});
    announce(w, wire);
}

static bool finish_sent(struct wires *w, int32_t wire)
{
    struct wire *x = &w->wire[wire];
    bool any = false;
    while (x->first < x->started && message_at(x, x->first)->moved) {
        struct wire_message m = *message_at(x, x->first);
        m.start_ns = m.at_ns;
        m.left_ns = m.moved_ns;
        if (x->control && !comm_gone(w->comm, x->to)) {
            if (atomic_load(&x->control->left) <= x->first) break;
            m.start_ns = x->control->entry[x->first % WIRE_DEPTH].start_ns;
            m.left_ns = x->control->entry[x->first % WIRE_DEPTH].left_ns;
        }
        w->ended(w->owner, wire, x->first++, m.start_ns, m.left_ns, m.bytes, m.at_ns);
        any = true;
    }
    return any;
}

/* ---- receiver ---------------------------------------------------------------------------------
 */

void wire_post(struct wires *w, int32_t wire, void *data, int64_t bytes, int64_t posted_ns)
{
    struct wire *x = &w->wire[wire];
    comm_receive(w->comm, data, bytes, x->from, wire, wire, x->next);
    push(w, x, (struct wire_message){.data = data, .bytes = bytes, .at_ns = posted_ns});
}

static int64_t occupancy_ns(const struct wire *x, int64_t bytes, double slower)
{
    return x->link && x->link->bandwidth_Bps > 0 ? units_ns_from_s((double)bytes / x->link->bandwidth_Bps * slower)
                                                 : 0;
}

static int64_t latency_ns(const struct wire *x)
{
    return x->link ? units_ns_from_s(x->link->latency_s) : 0;
}

/* The instant at which the first unreserved message is ready (or continues): handed over, posted, and its predecessor
 * gone. INT64_MAX while one end is missing. */
static int64_t earliest_ns(const struct wire *x)
{
    if (!x->control || x->started >= x->next || atomic_load(&x->control->handed) <= x->started)
        return INT64_MAX;
    const struct wire_message *m = message_at(x, x->started);
    if (m->reserved_bytes > 0) return m->left_ns;
    int64_t at = x->control->entry[x->started % WIRE_DEPTH].ready_ns;
    if (m->at_ns > at) at = m->at_ns;
    return x->previous_left_ns > at ? x->previous_left_ns : at;
}

/* Messages that really share a link have several turns each, however small they are. */
static int64_t turn_bytes(const struct wire *x, const struct wire_message *m)
{
    if (!x->link || x->link->sharing != LINK_FAIR) return m->bytes;
    int64_t bytes = m->bytes / TURNS;
    return bytes < TURN_MIN ? TURN_MIN : bytes > TURN_MAX ? TURN_MAX : bytes;
}

bool wires_fill(struct wires *w, int32_t wire, int64_t bytes, int64_t *until_ns)
{
    const struct wire *x = &w->wire[wire];
    double slower = atomic_load_explicit(x->slower, memory_order_relaxed);
    int64_t now_ns = clock_wall_ns() - w->zero_ns;
    link_clock_lock(x->clock);
    bool idle = x->clock->free_ns <= now_ns;
    if (idle) x->clock->free_ns = now_ns + occupancy_ns(x, bytes, slower);
    *until_ns = x->clock->free_ns;
    link_clock_unlock(x->clock);
    return idle;
}

/* The next turn of a message; true if it was the last. */
static bool take_turn(struct wire *x, struct wire_message *m)
{
    int64_t from = m->reserved_bytes, to = m->bytes, turn = turn_bytes(x, m);
    if (to - from > turn) to = from + turn;
    double slower = x->slower ? atomic_load_explicit(x->slower, memory_order_relaxed) : 1;
    int64_t length = occupancy_ns(x, to, slower) - occupancy_ns(x, from, slower), at = earliest_ns(x);
    int64_t start = x->clock ? link_clock_reserve(x->clock, at, length) : at;
    if (from == 0) m->start_ns = start;
    m->left_ns = start + length;
    m->reserved_bytes = to;
    return to == m->bytes;
}

/* After a turn that is not the last, this rank's other wires have theirs. */
static bool reserve(struct wires *w, struct wire *x)
{
    bool any = false;
    for (;;) {
        int64_t at = earliest_ns(x);
        if (at == INT64_MAX || clock_wall_ns() < w->zero_ns + at) return any;
        struct wire_message *m = message_at(x, x->started);
        if (!take_turn(x, m)) return true;
        struct wire_entry *e = &x->control->entry[x->started % WIRE_DEPTH];
        e->start_ns = m->start_ns;
        e->left_ns = x->previous_left_ns = m->left_ns;
        atomic_store(&x->control->left, ++x->started);
        comm_ring(w->comm, x->from);
        any = true;
    }
}

static bool finish_received(struct wires *w, int32_t wire)
{
    struct wire *x = &w->wire[wire];
    bool any = false;
    while (x->first < x->next && message_at(x, x->first)->moved &&
           (!x->control || x->first < x->started)) {
        struct wire_message m = *message_at(x, x->first);
        int64_t start = x->control ? m.start_ns : m.at_ns;
        int64_t arrival = x->control ? m.left_ns + latency_ns(x) : m.moved_ns;
        w->ended(w->owner, wire, x->first++, start, arrival, m.bytes, m.at_ns);
        any = true;
    }
    return any;
}

/* ---- both -------------------------------------------------------------------------------------
 */

static enum status poll_bytes(struct wires *w, bool *progress, struct error *err)
{
    struct comm_ended ended[POLL_AT_ONCE];
    int32_t n = 0;
    do {
        TRY(comm_poll(w->comm, ended, POLL_AT_ONCE, &n, err));
        int64_t now_ns = n ? clock_wall_ns() - w->zero_ns : 0;
        for (int32_t i = 0; i < n; i++) {
            struct wire_message *m = message_at(&w->wire[ended[i].owner], ended[i].number);
            m->moved = true;
            m->moved_ns = now_ns;
            /* The sender's library must poll once more to complete the send. */
            if (!ended[i].sent) comm_ring(w->comm, w->wire[ended[i].owner].from);
            *progress = true;
        }
    } while (n == POLL_AT_ONCE);
    return OK;
}

enum status wires_progress(struct wires *w, bool *progress, struct error *err)
{
    TRY(poll_bytes(w, progress, err));
    for (int32_t i = 0; i < w->n_mine; i++) {
        int32_t wire = w->mine[i];
        struct wire *x = &w->wire[wire];
        if (x->from == w->rank) {
            if (x->started < x->next && announce(w, wire)) *progress = true;
            if (x->first < x->started && finish_sent(w, wire)) *progress = true;
        } else if (x->first < x->next) {
            if (x->control && reserve(w, x)) *progress = true;
            if (finish_received(w, wire)) *progress = true;
        }
    }
    return OK;
}

int64_t wires_next_ns(const struct wires *w)
{
    int64_t next = INT64_MAX;
    for (int32_t i = 0; i < w->n_mine; i++) {
        const struct wire *x = &w->wire[w->mine[i]];
        if (x->from == w->rank) continue;
        int64_t at = earliest_ns(x);
        if (at < next) next = at;
    }
    return next;
}

bool wires_sending(const struct wires *w)
{
    for (int32_t i = 0; i < w->n_mine; i++) {
        const struct wire *x = &w->wire[w->mine[i]];
        if (x->from == w->rank && x->first < x->next && w->mine[i] < w->reports) return true;
    }
    return false;
}
