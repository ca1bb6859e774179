#include "exec/host_transport/collective_internal.h"

#include "core/base/arena.h"
#include "core/graph/half.h"
#include "exec/host_transport/bounce.h"

#include <string.h>

/* Steps of a chain for this member: the running sum comes in and goes on; the total comes back and goes back on. */
enum { LEG_IN, LEG_ON, LEG_BACK_IN, LEG_BACK_ON, N_LEGS };

void collective_add(struct collectives *c, struct collective_order what)
{
    if (c->next - c->first == c->capacity) {
        int64_t capacity = c->capacity ? 2 * c->capacity : 8;
        struct collective_order *queue =
            ARENA_ARRAY(c->a, struct collective_order, (size_t)capacity);
        for (int64_t i = c->first; i < c->next; i++)
            queue[i % capacity] = c->queue[i % c->capacity];
        c->queue = queue;
        c->capacity = capacity;
    }
    c->queue[c->next++ % c->capacity] = what;
}

const struct collective_order *collective_current(const struct collectives *c)
{
    return &c->queue[c->first % c->capacity];
}
static const struct collective *group_of(const struct collectives *c)
{
    return &c->p->collectives[collective_current(c)->group];
}
static const struct collective_end *member_of(const struct collectives *c)
{
    return &c->members[collective_current(c)->group];
}
static char *incoming_of(const struct collectives *c) { return member_of(c)->incoming; }
/* Bytes of an element on the wire and in memory: sums are fp32 in memory if they are half precision on the wire. */
static int64_t size_of(const struct collectives *c) { return dtype_bytes(group_of(c)->dtype); }
static enum dtype memory_of(const struct collective *g)
{
    return program_collective_gathers(g) ? g->dtype : dtype_master(g->dtype);
}
static bool narrows(const struct collective *g) { return memory_of(g) != g->dtype; }

/* ---- elements [first, last) of the list of segments -------------------------------------------
 */

static void add_elements(enum dtype t, void *to, const void *from, int64_t n)
{
    if (t == DTYPE_fp32) {
        float *y = to;
        const float *x = from;
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
    } else if (t == DTYPE_fp64) {
        double *y = to;
        const double *x = from;
        for (int64_t i = 0; i < n; i++) y[i] += x[i];
    } else {
        BUG("add_elements: dtype %s", dtype_name(t));
    }
}

/* n elements at `mine`, in the memory dtype, and at `other`, in the wire dtype: rounded in flight and added in fp32. */
static void pass(const struct collective *g, char *mine, char *other, int64_t n, enum copy how)
{
    enum { AT_ONCE = 512 };
    float wide[AT_ONCE];
    enum dtype t = g->dtype;
    if (!narrows(g)) {
        if (how == ADD_IN)
            add_elements(t, mine, other, n);
        else if (n)
            memcpy(how == COPY_IN ? mine : other, how == COPY_IN ? other : mine,
                   (size_t)(n * dtype_bytes(t)));
    } else if (how == COPY_OUT) {
        half_narrow(t, (const float *)(void *)mine, (uint16_t *)(void *)other, n);
    } else if (how == COPY_IN) {
        half_widen(t, (const uint16_t *)(void *)other, (float *)(void *)mine, n);
    } else {
        for (int64_t i = 0, k; i < n; i += k) {
            k = n - i < AT_ONCE ? n - i : AT_ONCE;
            half_widen(t, (const uint16_t *)(void *)other + i, wide, k);
            add_elements(DTYPE_fp32, (float *)(void *)mine + i, wide, k);
        }
    }
}

void collective_pass(const struct collectives *c, int64_t first, int64_t last, char *staging, enum copy how)
{
    const struct collective_end *m = member_of(c);
    const struct collective *g = group_of(c);
    int64_t size = size_of(c), memory = dtype_bytes(memory_of(g)), at = 0;
    for (int32_t k = 0; k < m->n_pieces && at < last; at += m->pieces[k++].elements) {
        int64_t from = first > at ? first : at, to = at + m->pieces[k].elements;
        if (to > last) to = last;
        if (from >= to) continue;
        pass(g, m->pieces[k].data + (from - at) * memory, staging + (from - first) * size,
             to - from, how);
    }
}

char *collective_contiguous(const struct collectives *c, int64_t first, int64_t last)
{
    const struct collective_end *m = member_of(c);
    int64_t at = 0;
    for (int32_t k = 0; k < m->n_pieces; at += m->pieces[k++].elements)
        if (first >= at && last <= at + m->pieces[k].elements)
            return m->pieces[k].data + (first - at) * size_of(c);
    return NULL;
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* Of a ring's steps: reduce-scatter, then all-gather. */
static int32_t first_part(const struct collective *g)
{
    return program_collective_gathers(g) ? g->n_members - 1 : 0;
}
static int32_t last_part(const struct collective *g)
{
    return (program_collective_scatters(g) ? 1 : 2) * (g->n_members - 1) - 1;
}

void collective_begin_part(struct collectives *c, int32_t part, int64_t at_ns)
{
    c->part = part;
    c->begin_ns = c->left_ns = c->arrival_ns = at_ns;
    c->sent = c->received = true;
    c->part_bytes = 0;
    c->part_moves = false;
}

void collective_send(struct collectives *c, int32_t wire, char *data, int64_t bytes)
{
    c->sent = false;
    c->part_moves = true;
    c->part_bytes = bytes;
    wire_hand(c->wires, wire, data, bytes, c->begin_ns);
}

void collective_receive(struct collectives *c, int32_t wire, char *data, int64_t bytes)
{
    c->received = false;
    c->part_moves = true;
    wire_post(c->wires, wire, data, bytes, c->begin_ns);
}

static void send_part(struct collectives *c, int32_t edge, char *data, int64_t bytes)
{
    collective_send(c, c->wires->group_first[collective_current(c)->group] + edge, data, bytes);
}

static void receive_part(struct collectives *c, int32_t edge, char *data, int64_t bytes)
{
    collective_receive(c, c->wires->group_first[collective_current(c)->group] + edge, data, bytes);
}

int64_t collective_part_end_ns(const struct collectives *c)
{
    return c->left_ns > c->arrival_ns ? c->left_ns : c->arrival_ns;
}

void collective_report_part(struct collectives *c)
{
    if (c->part_moves)
        c->step_ended(c->owner, collective_current(c), c->part - first_part(group_of(c)),
                      c->begin_ns, collective_part_end_ns(c), c->part_bytes);
}

void collective_finish(struct collectives *c, int64_t end_ns)
{
    struct collective_order done = *collective_current(c);
    c->first++;
    c->running = false;
    c->previous_end_ns = end_ns;
    if (bounce_mirrors(c->bounce, done.group)) bounce_give(c->bounce, &done);
    c->ended(c->owner, &done, end_ns);
}

/* ---- ring -------------------------------------------------------------------------------------
 */

static int32_t modulo(int32_t i, int32_t n) { return (i % n + n) % n; }

static void ring_chunks(const struct collectives *c, int32_t *out, int32_t *in)
{
    int32_t n = group_of(c)->n_members, i = member_of(c)->member, k = c->part;
    if (k < n - 1) {
        *out = modulo(i - k, n);
        *in = modulo(i - 1 - k, n);
    } else {
        *out = modulo(i + 1 - (k - (n - 1)), n);
        *in = modulo(i - (k - (n - 1)), n);
    }
}

static int64_t chunk_elements(const struct collectives *c, int32_t chunk)
{
    int64_t first, last;
    collective_chunk(group_of(c), chunk, &first, &last);
    return last - first;
}

/* The address of a chunk that is contiguous and in the wire dtype; else NULL. */
static char *chunk_place(const struct collectives *c, int32_t chunk)
{
    const struct collective *g = group_of(c);
    const struct collective_end *m = member_of(c);
    int64_t first, last;
    if (narrows(g)) return NULL;
    if (program_collective_divides(g))
        return m->n_pieces == 1
                   ? m->pieces[0].data + chunk * (m->pieces[0].elements / g->n_members) * size_of(c)
                   : NULL;
    collective_chunk(g, chunk, &first, &last);
    return collective_contiguous(c, first, last);
}

static void pass_chunk(const struct collectives *c, int32_t chunk, char *staging, enum copy how)
{
    const struct collective *g = group_of(c);
    const struct collective_end *m = member_of(c);
    int64_t first, last;
    if (!program_collective_divides(g)) {
        collective_chunk(g, chunk, &first, &last);
        collective_pass(c, first, last, staging, how);
        return;
    }
    for (int32_t k = 0; k < m->n_pieces; k++) {
        int64_t n = m->pieces[k].elements / g->n_members;
        pass(g, m->pieces[k].data + chunk * n * dtype_bytes(memory_of(g)), staging, n, how);
        staging += n * size_of(c);
    }
}

/* This member's chunk: copied from its own slots before an all-gather, added to them after a reduce-scatter. */
static void pass_own(const struct collectives *c, bool scattered)
{
    const struct collective *g = group_of(c);
    const struct collective_end *m = member_of(c);
    int32_t chunk = program_collective_own_chunk(m->member, g->n_members);
    for (int32_t k = 0; m->own && k < m->n_pieces; k++) {
        int64_t n = m->pieces[k].elements / g->n_members;
        char *there = m->pieces[k].data + chunk * n * dtype_bytes(memory_of(g));
        if (scattered)
            add_elements(memory_of(g), m->own[k], there, n);
        else
            memcpy(there, m->own[k], (size_t)(n * size_of(c)));
    }
}

/* In an all-gather a contiguous chunk is received in place. */
static char *ring_landing(const struct collectives *c, int32_t chunk)
{
    char *there = c->part >= group_of(c)->n_members - 1 ? chunk_place(c, chunk) : NULL;
    return there ? there : incoming_of(c);
}

static void ring_part(struct collectives *c, int32_t part, int64_t at_ns)
{
    const struct collective *g = group_of(c);
    int32_t out, in, i = member_of(c)->member;
    int64_t size = size_of(c);
    collective_begin_part(c, part, at_ns);
    ring_chunks(c, &out, &in);
    if (chunk_elements(c, out)) {
        char *data = chunk_place(c, out);
        if (!data)
            pass_chunk(c, out, data = incoming_of(c) + program_collective_incoming_bytes(g),
                       COPY_OUT);
        send_part(c, i, data, chunk_elements(c, out) * size);
    }
    if (chunk_elements(c, in))
        receive_part(c, modulo(i - 1, g->n_members), ring_landing(c, in),
                     chunk_elements(c, in) * size);
}

/* A partial sum has come in. The complete sum is rounded to the wire dtype for its owner as well as for the
 * receivers. */
static void add_chunk(const struct collectives *c, int32_t chunk)
{
    pass_chunk(c, chunk, incoming_of(c), ADD_IN);
    if (!narrows(group_of(c)) || c->part != group_of(c)->n_members - 2) return;
    pass_chunk(c, chunk, incoming_of(c), COPY_OUT);
    pass_chunk(c, chunk, incoming_of(c), COPY_IN);
}

static void ring_step_over(struct collectives *c)
{
    const struct collective *g = group_of(c);
    int32_t out, in;
    ring_chunks(c, &out, &in);
    if (c->part < g->n_members - 1)
        add_chunk(c, in);
    else if (chunk_elements(c, in) && ring_landing(c, in) == incoming_of(c))
        pass_chunk(c, in, incoming_of(c), COPY_IN);
    collective_report_part(c);
    int64_t end_ns = collective_part_end_ns(c);
    if (c->part < last_part(g)) {
        ring_part(c, c->part + 1, end_ns);
        return;
    }
    if (program_collective_scatters(g)) pass_own(c, true);
    collective_finish(c, end_ns);
}

/* ---- chain ------------------------------------------------------------------------------------
 */

/* Adds this member's microbatches, one after the other, to the running sum. */
static void add_own(const struct collectives *c, char *sum)
{
    const struct collective_end *m = member_of(c);
    const struct collective *g = group_of(c);
    int64_t size = size_of(c), at = 0;
    for (int32_t k = 0; !m->n_chain_pieces && k < m->n_pieces; at += m->pieces[k++].elements)
        add_elements(g->dtype, sum + at * size, m->pieces[k].data, m->pieces[k].elements);
    for (int64_t b = 0; m->n_chain_pieces && b < m->microbatches; b++) {
        const char *buffer = m->buffer_ring + (collective_current(c)->step * m->microbatches + b) %
                                                  m->buffer_ring_count * m->buffer_ring_stride;
        at = 0;
        for (int32_t k = 0; k < m->n_chain_pieces; at += m->chain_pieces[k++].elements)
            add_elements(g->dtype, sum + at * size, buffer + (intptr_t)m->chain_pieces[k].data,
                         m->chain_pieces[k].elements);
    }
}

static int64_t chain_bytes(const struct collectives *c)
{
    return group_of(c)->elements * size_of(c);
}

static void chain_leg(struct collectives *c, int32_t leg, int64_t at_ns)
{
    int32_t n = group_of(c)->n_members, i = member_of(c)->member;
    int64_t bytes = chain_bytes(c);
    collective_begin_part(c, leg, at_ns);
    if (!bytes) return;
    if (leg == LEG_IN && i > 0) receive_part(c, i - 1, incoming_of(c), bytes);
    if (leg == LEG_ON && i < n - 1) send_part(c, i, incoming_of(c), bytes);
    if (leg == LEG_BACK_IN && i < n - 1) receive_part(c, n + i + 1, incoming_of(c), bytes);
    if (leg == LEG_BACK_ON && i > 0) send_part(c, n + i, incoming_of(c), bytes);
}

static void chain_leg_over(struct collectives *c)
{
    const struct collective_end *m = member_of(c);
    int64_t end_ns = collective_part_end_ns(c), elements = group_of(c)->elements;
    collective_report_part(c);
    if (c->part == LEG_IN) {
        if (m->member == 0) memset(incoming_of(c), 0, (size_t)chain_bytes(c));
        add_own(c, incoming_of(c));
    }
    if (c->part == LEG_BACK_IN) collective_pass(c, 0, elements, incoming_of(c), COPY_IN);
    if (c->part + 1 < N_LEGS)
        chain_leg(c, c->part + 1, end_ns);
    else
        collective_finish(c, end_ns);
}

/* ---- local ------------------------------------------------------------------------------------
 */

/* y += x or x = y over two lists of pieces with equal numbers of elements. */
static void pair_up(enum dtype t, const struct collective_end *y, const struct collective_end *x,
                    enum copy how)
{
    int64_t size = dtype_bytes(t), at_x = 0, at_y = 0;
    for (int32_t i = 0, k = 0; i < y->n_pieces && k < x->n_pieces;) {
        int64_t left_y = y->pieces[i].elements - at_y, left_x = x->pieces[k].elements - at_x,
                n = left_y < left_x ? left_y : left_x;
        char *sum = y->pieces[i].data + at_y * size, *other = x->pieces[k].data + at_x * size;
        if (how == ADD_IN)
            add_elements(t, sum, other, n);
        else
            memcpy(other, sum, (size_t)(n * size));
        at_y = n == left_y ? 0 : at_y + n, i += n == left_y;
        at_x = n == left_x ? 0 : at_x + n, k += n == left_x;
    }
}

static void add_chunks(struct collectives *c, int64_t at_ns)
{
    const struct collective_end *first = member_of(c);
    enum dtype t = dtype_master(group_of(c)->dtype);
    for (const struct collective_end *m = first->also; m; m = m->also) pair_up(t, first, m, ADD_IN);
    for (const struct collective_end *m = first->also; m; m = m->also)
        pair_up(t, first, m, COPY_OUT);
    collective_finish(c, at_ns);
}

/* ---- all --------------------------------------------------------------------------------------
 */

/* Zeroes this member's summand, because another member contributes the same value. */
static void be_silent(const struct collective_end *m, int64_t size)
{
    for (int32_t k = 0; k < m->n_pieces; k++)
        memset(m->pieces[k].data, 0, (size_t)(m->pieces[k].elements * size));
}

/* For an asynchronous lane the time of the order is not the time at which the device had the data. */
static int64_t ready_ns(const struct collectives *c)
{
    const struct collective_order *o = collective_current(c);
    if (!bounce_mirrors(c->bounce, o->group) || c->p->emulated) return o->ready_ns;
    return clock_wall_ns() - c->wires->zero_ns;
}

static void begin(struct collectives *c)
{
    int64_t ready = ready_ns(c), at_ns = ready > c->previous_end_ns ? ready : c->previous_end_ns;
    c->begun = true;
    if (collective_of_tensor(group_of(c)))
        tensor_collective_begin(c, at_ns);
    else if (group_of(c)->algorithm == ALGORITHM_LOCAL)
        add_chunks(c, at_ns);
    else if (group_of(c)->algorithm == ALGORITHM_CHAIN)
        chain_leg(c, LEG_IN, at_ns);
    else if (program_collective_in_rounds(group_of(c)))
        segment_rounds_begin(c, at_ns);
    else if (group_of(c)->n_members > 1) {
        if (group_of(c)->members[member_of(c)->member].silent)
            be_silent(member_of(c), dtype_bytes(memory_of(group_of(c))));
        if (program_collective_gathers(group_of(c))) pass_own(c, false);
        ring_part(c, first_part(group_of(c)), at_ns);
    } else
        collective_finish(c, at_ns);
}

static void start(struct collectives *c)
{
    const struct collective_order *o = collective_current(c);
    if (member_of(c)->member < 0) BUG("rank %d is not a member of collective %d", c->rank, o->group);
    c->running = true;
    c->begun = false;
    if (bounce_mirrors(c->bounce, o->group))
        bounce_fetch(c->bounce, o);
    else
        begin(c);
}

/* A collective starts when it was handed over and the previous one has ended. */
bool collective_progress(struct collectives *c)
{
    bool any = false;
    for (;;) {
        if (!c->running && c->first < c->next) {
            start(c);
            any = true;
        }
        if (c->running && !c->begun && !c->bounce->fetching) {
            begin(c);
            any = true;
        }
        if (!c->running || !c->begun || !c->sent || !c->received) return any;
        if (collective_of_tensor(group_of(c)))
            tensor_collective_part_over(c);
        else if (group_of(c)->algorithm == ALGORITHM_CHAIN)
            chain_leg_over(c);
        else if (program_collective_in_rounds(group_of(c)))
            segment_rounds_part_over(c);
        else
            ring_step_over(c);
        any = true;
    }
}

void collective_message(struct collectives *c, int32_t wire, int64_t end_ns)
{
    if (c->wires->wire[wire].from == c->rank) {
        c->sent = true;
        c->left_ns = end_ns;
    } else {
        c->received = true;
        c->arrival_ns = end_ns;
    }
}

int32_t collective_waits_for(const struct collectives *c, int32_t *group)
{
    if (!c->running || !c->begun) return -1;
    const struct collective *g = group_of(c);
    *group = collective_current(c)->group;
    int32_t n = g->n_members, i = member_of(c)->member,
            other = modulo(c->received ? i + 1 : i - 1, n);
    if (program_collective_in_rounds(g)) {
        struct collective_round s = collective_round(g, i, c->part);
        other = c->received ? s.to : s.from;
    } else if (g->algorithm == ALGORITHM_CHAIN)
        other = c->part == LEG_IN || c->part == LEG_BACK_ON ? modulo(i - 1, n) : modulo(i + 1, n);
    return other < 0 ? -1 : c->p->stages[g->members[other].stage].device;
}
