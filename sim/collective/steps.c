/* The builder keeps, for every member, the transfers that ended its previous pass: at most one sent and one received. A
 * transfer that begins a pass, or a step of a ring, depends on those of both its members. */
#include "sim/collective/steps.h"

#include "core/base/arena.h"
#include "core/collective/rounds.h"
#include "sim/collective/routes.h"
#include "sim/event_queue.h"
#include "sim/network/network.h"

#include <inttypes.h>

enum { LEFT = 0, ARRIVED = 1 };

struct ends { /* transfers + 1; 0: none */
    int32_t sent, received;
};

struct builder {
    struct arena *arena, *scratch;
    const struct collective_case *c;
    struct steps *out;
    size_t capacity, after_capacity;
    struct ends *last, *next; /* (members) of the previous pass, of this pass */
    bool full;
};

/* --- building -------------------------------------------------------------------------------- */

static void after(struct builder *b, int32_t transfer, int what)
{
    struct steps *s = b->out;
    struct step_transfer *t = &s->transfers[s->n - 1];
    int32_t word = 2 * transfer + what;
    for (int32_t i = 0; i < t->n_after; i++) { /* two dependencies on one transfer: the stronger one */
        int32_t *old = &s->after[t->first_after + i];
        if (*old / 2 != transfer) continue;
        if (word > *old) *old = word;
        return;
    }
    s->after = arena_grow(b->arena, s->after, (size_t)s->n_after, &b->after_capacity, sizeof word);
    s->after[s->n_after++] = word;
    t->n_after++;
}

/* A new transfer, after the previous pass of both its members. -1: it is empty. */
static int32_t transfer(struct builder *b, int32_t from, int32_t to, int64_t bytes)
{
    struct steps *s = b->out;
    if (s->n == STEPS_MAX) b->full = true;
    if (!bytes || b->full) return -1;
    s->transfers =
        arena_grow(b->arena, s->transfers, (size_t)s->n, &b->capacity, sizeof *s->transfers);
    s->transfers[s->n++] = (struct step_transfer){
        .from = from, .to = to, .bytes = bytes, .first_after = (int32_t)s->n_after};
    const int32_t both[] = {from, to};
    for (int i = 0; i < 2; i++) {
        const struct ends *e = &b->last[both[i]];
        if (e->sent) after(b, e->sent - 1, LEFT);
        if (e->received) after(b, e->received - 1, ARRIVED);
    }
    b->next[from].sent = b->next[to].received = s->n;
    return s->n - 1;
}

/* These members' pass is over; a member without transfers keeps its previous state. */
static void part_over(struct builder *b, const int32_t *member, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        struct ends *next = &b->next[member[i]];
        if (next->sent || next->received) b->last[member[i]] = *next;
        *next = (struct ends){0};
    }
}

static void ring(struct builder *b, const int32_t *member, int32_t n, const int64_t *chunk,
                 int32_t ahead, int32_t steps)
{
    for (int32_t k = 0; n > 1 && k < steps && !b->full; k++) {
        for (int32_t i = 0; i < n; i++) {
            int32_t c = (i + ahead - k) % n;
            transfer(b, member[i], member[(i + 1) % n], chunk[c < 0 ? c + n : c]);
        }
        part_over(b, member, n);
    }
}

static void line(struct builder *b, const int32_t *member, int32_t n, int64_t elements)
{
    int32_t pieces = collective_pieces(b->c, elements);
    int32_t *before = ARENA_ARRAY(b->scratch, int32_t, (size_t)n); /* same hop, previous piece, + 1 */
    for (int32_t p = 0; n > 1 && p < pieces && !b->full; p++) {
        int64_t bytes = collective_chunk_of(elements, p, pieces) * b->c->element_bytes;
        for (int32_t i = 0; i + 1 < n; i++) {
            int32_t t = transfer(b, member[i], member[i + 1], bytes);
            if (t < 0) return;
            if (p) after(b, before[i] - 1, LEFT);
            if (i) after(b, before[i - 1] - 1, ARRIVED);
            before[i] = t + 1;
        }
    }
    part_over(b, member, n);
}

/* Partial sums to the parent on arrival, results to the children. The algorithm's only pass, so ends are not recorded. */
static void tree(struct builder *b, bool up)
{
    int32_t n = b->c->n_members, pieces = collective_pieces(b->c, b->c->elements), at = 0;
    int32_t *order = ARENA_ARRAY(b->scratch, int32_t, (size_t)n),
            *rise =
                ARENA_ARRAY(b->scratch, int32_t, (size_t)n), /* + 1: up of this piece, by child */
                *fall = ARENA_ARRAY(b->scratch, int32_t, (size_t)n);
    for (int64_t low = 1; low < n; low *= 2)
        for (int64_t i = low; i < n; i += 2 * low) order[at++] = (int32_t)i;
    for (int32_t p = 0; p < pieces; p++) {
        int64_t bytes = collective_chunk_of(b->c->elements, p, pieces) * b->c->element_bytes;
        for (int32_t k = 0; up && k < n - 1; k++) {
            int32_t i = order[k], height = i & -i,
                    t = transfer(b, i, collective_parent(i, n), bytes);
            if (t < 0) return;
            if (p) after(b, rise[i] - 1, LEFT);
            for (int32_t low = height / 2; low; low /= 2) { /* children: one on either side of i */
                if (collective_parent(i - low, n) == i) after(b, rise[i - low] - 1, ARRIVED);
                if (i + low < n && collective_parent(i + low, n) == i)
                    after(b, rise[i + low] - 1, ARRIVED);
            }
            rise[i] = t + 1;
        }
        for (int32_t k = n - 2; k >= 0; k--) {
            int32_t i = order[k], from = collective_parent(i, n), t = transfer(b, from, i, bytes);
            if (t < 0) return;
            if (p) after(b, fall[i] - 1, LEFT);
            if (from) after(b, fall[from] - 1, ARRIVED);
            for (int32_t low = 1; up && !from && low < n; low *= 2)
                if (!collective_parent(low, n)) after(b, rise[low] - 1, ARRIVED);
            fall[i] = t + 1;
        }
    }
}

static void pairs(struct builder *b, const int32_t *member)
{
    int32_t n = b->c->n_members;
    for (int32_t k = 1; k < n && !b->full; k++) {
        for (int32_t i = 0; i < n; i++)
            transfer(b, i, (i + k) % n,
                     collective_chunk_of(b->c->elements, (i + k) % n, n) * b->c->element_bytes);
        part_over(b, member, n);
    }
}

/* --- ways ------------------------------------------------------------------------------------ */

static int32_t *members(struct builder *b, int32_t first, int32_t n, int32_t step)
{
    int32_t *out = ARENA_ARRAY(b->scratch, int32_t, (size_t)n), all = b->c->n_members;
    for (int32_t i = 0; i < n; i++) {
        int32_t m = (first + i * step) % all;
        out[i] = m < 0 ? m + all : m;
    }
    return out;
}

static int64_t *chunks(struct builder *b, int64_t elements, int32_t n)
{
    int64_t *out = ARENA_ARRAY(b->scratch, int64_t, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        out[i] = collective_chunk_of(elements, i, n) * b->c->element_bytes;
    return out;
}

static int64_t *shards(struct builder *b)
{
    int64_t *out = chunks(b, b->c->elements, b->c->n_members), most = 0;
    for (int32_t i = 0; i < b->c->n_members; i++) {
        if (b->c->shards) out[i] = b->c->shards[i] * b->c->element_bytes;
        if (out[i] > most) most = out[i];
    }
    for (int32_t i = 0; b->c->algorithm == ALGORITHM_PADDED && i < b->c->n_members; i++)
        out[i] = most;
    return out;
}

static int32_t node_end(const struct collective_case *c, int32_t first)
{
    int32_t end = first + 1;
    if (!c->node) return c->n_members;
    while (end < c->n_members && c->node[end] == c->node[first]) end++;
    return end;
}

static void leader(struct builder *b)
{
    const struct collective_case *c = b->c;
    int32_t *leaders = ARENA_ARRAY(b->scratch, int32_t, (size_t)c->n_members), n = 0;
    for (int32_t i = 0, end; i < c->n_members; i = end) {
        end = node_end(c, i);
        leaders[n++] = i;
        line(b, members(b, end - 1, end - i, -1), end - i, c->elements);
    }
    ring(b, leaders, n, chunks(b, c->elements, n), 0, 2 * (n - 1));
    for (int32_t i = 0, end; i < c->n_members; i = end) {
        end = node_end(c, i);
        line(b, members(b, i, end - i, 1), end - i, c->elements);
    }
}

static void sharded(struct builder *b)
{
    const struct collective_case *c = b->c;
    int32_t g = node_end(c, 0), nodes = c->n_members / g;
    for (int32_t i = 0; i < nodes; i++)
        ring(b, members(b, i * g, g, 1), g, chunks(b, c->elements, g), 0, g - 1);
    for (int32_t l = 0; l < g; l++)
        ring(b, members(b, l, nodes, g), nodes,
             chunks(b, collective_chunk_of(c->elements, l + 1, g), nodes), 0, 2 * (nodes - 1));
    for (int32_t i = 0; i < nodes; i++)
        ring(b, members(b, i * g, g, 1), g, chunks(b, c->elements, g), 1, g - 1);
}

static void chain(struct builder *b)
{
    struct collective_case whole = *b->c;
    int32_t n = whole.n_members;
    if (whole.kind == COLLECTIVE_ALL_REDUCE) { /* the full vector is one piece */
        whole.piece_bytes = whole.elements * whole.element_bytes;
        b->c = &whole;
    }
    line(b, members(b, 0, n, 1), n, whole.elements);
    if (whole.kind == COLLECTIVE_ALL_REDUCE) line(b, members(b, n - 1, n, -1), n, whole.elements);
}

static void rounds(struct builder *b)
{
    const struct collective *c = collective_of_case(b->scratch, b->c);
    int32_t *everyone = members(b, 0, c->n_members, 1);
    for (int32_t k = 0; k < collective_steps(c) && !b->full; k++) {
        for (int32_t i = 0; i < c->n_members; i++) {
            struct collective_round s = collective_round(c, i, k);
            if (s.to >= 0) transfer(b, i, s.to, s.send * b->c->element_bytes);
        }
        part_over(b, everyone, c->n_members);
    }
}

static void hierarchical(struct builder *b)
{
    if (b->c->kind == COLLECTIVE_ALL_REDUCE)
        sharded(b);
    else
        rounds(b);
}

static void ring_all(struct builder *b)
{
    const struct collective_case *c = b->c;
    int32_t n = c->n_members, *everyone = members(b, 0, n, 1);
    if (c->kind == COLLECTIVE_ALL_REDUCE)
        ring(b, everyone, n, chunks(b, c->elements, n), 0, 2 * (n - 1));
    else
        ring(b, everyone, n, shards(b), c->kind == COLLECTIVE_ALL_GATHER ? 0 : -1, n - 1);
}

static void pairs_all(struct builder *b)
{
    if (b->c->kind == COLLECTIVE_ALL_TO_ALL)
        pairs(b, members(b, 0, b->c->n_members, 1));
    else
        rounds(b);
}

static void tree_all(struct builder *b) { tree(b, b->c->kind == COLLECTIVE_ALL_REDUCE); }

static void grouped(struct builder *b)
{
    const struct collective_case *c = b->c;
    int32_t last = c->kind == COLLECTIVE_ALL_GATHER ? 0 : 1, n = c->n_members;
    for (int32_t i = 0; i < n; i++)
        line(b, members(b, i + last, n, 1), n, shards(b)[i] / c->element_bytes);
}

/* The algorithms with closed forms in sim/collective/cost.c; an algorithm in rounds needs none. */
static void all(struct builder *b)
{
    static void (*const made[COLLECTIVE_ALGORITHM_COUNT])(struct builder *) = {
        [ALGORITHM_RING] = ring_all,   [ALGORITHM_PAIRS] = pairs_all,
        [ALGORITHM_TREE] = tree_all,   [ALGORITHM_LEADER] = leader,
        [ALGORITHM_CHAIN] = chain,     [ALGORITHM_HIERARCHICAL] = hierarchical,
        [ALGORITHM_PADDED] = ring_all, [ALGORITHM_GROUPED] = grouped};
    if (made[b->c->algorithm])
        made[b->c->algorithm](b);
    else if (collective_rounds_of(b->c->algorithm)->round)
        rounds(b);
    else
        BUG("algorithm %s has neither transfers nor rounds",
            collective_algorithm_name(b->c->algorithm));
}

enum status steps_make(struct arena *a, const struct collective_case *c, struct steps *out,
                       struct error *err)
{
    TRY(collective_check(c, err));
    struct arena *scratch = arena_new();
    *out = (struct steps){.n_members = c->n_members};
    struct builder b = {.arena = a, .scratch = scratch, .c = c, .out = out};
    b.last = ARENA_ARRAY(scratch, struct ends, (size_t)c->n_members);
    b.next = ARENA_ARRAY(scratch, struct ends, (size_t)c->n_members);
    all(&b);
    arena_free(scratch);
    if (!b.full) return OK;
    return error_set(err, ERR_INPUT, "%s by %s of %" PRId32 " members has more than %d transfers",
                     collective_kind_name(c->kind), collective_algorithm_name(c->algorithm),
                     c->n_members, (int)STEPS_MAX);
}

/* --- playing --------------------------------------------------------------------------------- */

enum { EVENT_READY, EVENT_FLOW };

struct waiting { /* a transfer of a play */
    int64_t ready_ns;
    int32_t pending, play, resource;
    int32_t first_next, n_next; /* its dependents: into player.next */
};
struct player {
    struct steps_play *plays;
    struct network *network;
    struct event_queue *queue;
    int32_t *first; /* (plays) global index of its first transfer */
    int32_t n;
    struct waiting *waiting;
    int32_t *next; /* 2 · global transfer, + 1 if it waits for the arrival */
};

static const struct step_transfer *step(const struct player *p, int32_t i)
{
    const struct waiting *w = &p->waiting[i];
    return &p->plays[w->play].steps->transfers[i - p->first[w->play]];
}

static int64_t start_of(const struct steps_play *play, int32_t member)
{
    return play->start_ns ? play->start_ns[member] : 0;
}

/* Inverts the dependencies. */
static void turn_round(struct arena *a, struct player *p)
{
    int64_t n_next = 0, at = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct steps *s = p->plays[p->waiting[i].play].steps;
        const struct step_transfer *t = step(p, i);
        p->waiting[i].pending = t->n_after;
        for (int32_t k = 0; k < t->n_after; k++)
            p->waiting[p->first[p->waiting[i].play] + s->after[t->first_after + k] / 2].n_next++;
        n_next += t->n_after;
    }
    p->next = ARENA_ARRAY(a, int32_t, (size_t)n_next);
    for (int32_t i = 0; i < p->n; i++) {
        p->waiting[i].first_next = (int32_t)at;
        at += p->waiting[i].n_next;
        p->waiting[i].n_next = 0;
    }
    for (int32_t i = 0; i < p->n; i++) {
        const struct steps *s = p->plays[p->waiting[i].play].steps;
        const struct step_transfer *t = step(p, i);
        for (int32_t k = 0; k < t->n_after; k++) {
            int32_t word = s->after[t->first_after + k];
            struct waiting *w = &p->waiting[p->first[p->waiting[i].play] + word / 2];
            p->next[w->first_next + w->n_next++] = 2 * i + word % 2;
        }
    }
}

/* The route of transfer `at` of a play, and when its members have begun. */
static enum status collective(struct player *p, struct collective_routes *routes, const struct cluster *c,
                        int32_t play, int32_t at, int32_t *link, int32_t *direction,
                        struct error *err)
{
    const struct steps_play *q = &p->plays[play];
    struct waiting *w = &p->waiting[at];
    w->play = play;
    const struct step_transfer *s = step(p, at);
    int32_t from = q->device[s->from], to = q->device[s->to];
    int64_t begin = start_of(q, s->from), other = start_of(q, s->to);
    w->ready_ns = begin > other ? begin : other;
    if (collective_routes_find(routes, from, to, link, direction)) return OK;
    return error_set(err, ERR_INPUT, "no link between %s and %s", c->devices[from].name,
                     c->devices[to].name);
}

static enum status set_up(struct arena *a, struct player *p, const struct cluster *c,
                          struct cost *k, int32_t n_plays, struct error *err)
{
    int64_t n = 0;
    p->first = ARENA_ARRAY(a, int32_t, (size_t)n_plays);
    for (int32_t i = 0; i < n_plays; i++) {
        p->first[i] = (int32_t)n;
        n += p->plays[i].steps->n;
        if (n > 4 * (int64_t)STEPS_MAX)
            return error_set(err, ERR_INPUT, "more than %d transfers at once", 4 * STEPS_MAX);
    }
    p->n = (int32_t)n;
    p->waiting = ARENA_ARRAY(a, struct waiting, (size_t)n);
    p->queue = event_queue_new(a, 1024);
    /* all routes are found before the network is built from them */
    struct collective_routes *routes = collective_routes_new(a, c);
    int32_t *link = ARENA_ARRAY(a, int32_t, (size_t)n),
            *direction = ARENA_ARRAY(a, int32_t, (size_t)n);
    for (int32_t i = 0; i < n_plays; i++)
        for (int32_t t = 0; t < p->plays[i].steps->n; t++) {
            int32_t at = p->first[i] + t;
            TRY(collective(p, routes, c, i, at, &link[at], &direction[at], err));
        }
    p->network = network_new(a, collective_routes_program(routes), p->queue, EVENT_FLOW, NULL);
    for (int32_t i = 0; i < p->n; i++)
        TRY(network_join(p->network, k, link[i], direction[i], step(p, i)->bytes,
                         &p->waiting[i].resource, err));
    network_start(p->network, a);
    turn_round(a, p);
    return OK;
}

static void push(struct player *p, int32_t i)
{
    event_queue_push(
        p->queue,
        (struct event){.time_ns = p->waiting[i].ready_ns, .kind = EVENT_READY, .index = i});
}

static void over(struct player *p, int32_t i, const struct passage *algorithm)
{
    const struct waiting *w = &p->waiting[i];
    const struct step_transfer *t = step(p, i);
    int64_t *end_ns = p->plays[w->play].end_ns;
    if (algorithm->left_ns > end_ns[t->from]) end_ns[t->from] = algorithm->left_ns;
    if (algorithm->arrival_ns > end_ns[t->to]) end_ns[t->to] = algorithm->arrival_ns;
    for (int32_t k = 0; k < w->n_next; k++) {
        int32_t word = p->next[w->first_next + k];
        struct waiting *x = &p->waiting[word / 2];
        int64_t when = word % 2 ? algorithm->arrival_ns : algorithm->left_ns;
        if (when > x->ready_ns) x->ready_ns = when;
        if (!--x->pending) push(p, word / 2);
    }
}

static enum status play(struct player *p, int32_t n_plays, struct error *err)
{
    for (int32_t i = 0; i < n_plays; i++)
        for (int32_t m = 0; m < p->plays[i].steps->n_members; m++)
            p->plays[i].end_ns[m] = start_of(&p->plays[i], m);
    for (int32_t i = 0; i < p->n; i++)
        if (!p->waiting[i].pending) push(p, i);
    while (event_queue_size(p->queue)) {
        struct event e = event_queue_pop(p->queue);
        struct passage algorithm;
        int32_t i = e.index;
        if (e.time_ns > INT64_MAX / 4)
            return error_set(err, ERR_INPUT, "simulated time exceeds 73 years");
        if (e.kind == EVENT_READY) {
            int32_t resource = p->waiting[i].resource;
            int64_t occupancy_ns = network_occupancy_ns(p->network, resource, step(p, i)->bytes);
            if (network_ready(p->network, i, resource, occupancy_ns, e.time_ns, &algorithm))
                over(p, i, &algorithm);
        } else if (network_flow(p->network, &e, &i, &algorithm)) {
            over(p, i, &algorithm);
        }
    }
    return OK;
}

enum status steps_run(const struct cluster *c, struct cost *k, struct steps_play *plays,
                      int32_t n_plays, struct error *err)
{
    struct arena *a = arena_new();
    struct player p = {.plays = plays};
    enum status st = set_up(a, &p, c, k, n_plays, err);
    if (st == OK) st = play(&p, n_plays, err);
    for (int32_t i = 0; i < n_plays && st == OK; i++) {
        plays[i].makespan_ns = 0;
        for (int32_t m = 0; m < plays[i].steps->n_members; m++)
            if (plays[i].end_ns[m] > plays[i].makespan_ns)
                plays[i].makespan_ns = plays[i].end_ns[m];
    }
    arena_free(a);
    return st;
}
