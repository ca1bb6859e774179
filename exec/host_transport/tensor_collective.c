/* exec/host_transport/tensor_collective.c - collectives inside calls: packing, steps, unpacking, as
 * core/collective/collective.h specifies.
 *
 * A member's own elements are copied to their place before the first step. Every step sends from the operand, from
 * the chunks or from the outgoing buffer; incoming data is added or unpacked when the step has ended. Chunks of
 * ALGORITHM_RING are padded in the buffer as on the wire; padding is never read.
 */
#include "exec/host_transport/collective_internal.h"

#include "core/base/arena.h"
#include "core/collective/rounds.h"

#include <string.h>

struct at_hand { /* the running collective */
    const struct collective *m;
    const struct tensor_operands *o;
    enum dtype dtype;
    int32_t group, i; /* this member */
    int64_t size;     /* of an element */
    char *in, *out;
};

static struct at_hand at_hand(const struct collectives *c)
{
    const struct collective_order *order = collective_current(c);
    const struct collective *g = &c->p->collectives[order->group];
    const struct collective_end *x = &c->members[order->group];
    return (struct at_hand){.m = g,
                            .o = x->collective,
                            .dtype = g->dtype,
                            .group = order->group,
                            .i = x->member,
                            .size = dtype_bytes(g->dtype),
                            .in = place_at(&x->collective->in, order->seq),
                            .out = place_at(&x->collective->out, order->seq)};
}

/* Data passed on from member to member is in chunks; all_reduce's chunks are the operand's. */
static bool in_chunks(const struct at_hand *h)
{
    return !collective_rounds_of(h->m->algorithm)->direct;
}
static char *chunk_at(const struct at_hand *h, int64_t first)
{
    return (h->m->kind == COLLECTIVE_ALL_REDUCE ? h->out : h->o->chunks) + first * h->size;
}
static char *chunk(const struct at_hand *h, int32_t member)
{
    return chunk_at(h, collective_chunk_first(h->m, member));
}

static int64_t bytes_of(const struct shape *s, const struct at_hand *h)
{
    return shape_elements(s) * h->size;
}

static void add(const struct at_hand *h, char *to, char *from, int64_t elements)
{
    const struct region flat = {.shape = {.rank = 1, .dim = {elements}}};
    region_copy(&flat, h->dtype, to, from, REGION_ADD);
}

static void pack(const struct at_hand *h, int32_t to, char *packed)
{
    region_copy(&h->o->from[to], h->dtype, h->in, packed, REGION_PACK);
}

static void unpack(const struct at_hand *h, int32_t from, char *packed)
{
    region_copy(&h->o->into[from], h->dtype, h->out, packed, REGION_UNPACK);
}

/* Copies that need no message. */
static void keep_own(const struct at_hand *h)
{
    struct shape whole = collective_in(h->m, h->i);
    if (h->m->kind == COLLECTIVE_ALL_REDUCE || h->m->n_members == 1) {
        if (h->in != h->out && shape_elements(&whole))
            memcpy(h->out, h->in, (size_t)bytes_of(&whole, h));
    } else if (h->m->kind == COLLECTIVE_ALL_GATHER) {
        if (in_chunks(h))
            pack(h, h->i, chunk(h, h->i));
        else
            unpack(h, h->i, h->in);
    } else if (in_chunks(h)) {
        for (int32_t k = 0; k < h->m->n_members; k++) pack(h, k, chunk(h, k));
    } else if (h->m->kind == COLLECTIVE_REDUCE_SCATTER) {
        pack(h, h->i, h->out);
    } else {
        pack(h, h->i, h->o->outgoing);
        unpack(h, h->i, h->o->outgoing);
    }
}

static char *source(const struct at_hand *h, const struct collective_round *s)
{
    if (in_chunks(h)) return chunk_at(h, s->out_first);
    if (h->m->kind == COLLECTIVE_ALL_GATHER) return h->in;
    pack(h, s->to, h->o->outgoing);
    return h->o->outgoing;
}

/* Whether the step's message is a partial value; gathered chunks are received in place. */
static bool sums(const struct collective_round *s) { return s->adds > 0; }

static char *landing(const struct at_hand *h, const struct collective_round *s)
{
    return in_chunks(h) && !sums(s) ? chunk_at(h, s->in_first) : h->o->incoming;
}

static void begin_step(struct collectives *c, int32_t step, int64_t at_ns)
{
    struct at_hand h = at_hand(c);
    struct collective_round s = collective_round(h.m, h.i, step);
    collective_begin_part(c, step, at_ns);
    if (s.to >= 0)
        collective_send(c, wires_tensor(c->wires, h.group, h.i, s.to, h.m->n_members),
                        source(&h, &s), s.send * h.size);
    if (s.from >= 0)
        collective_receive(c, wires_tensor(c->wires, h.group, s.from, h.i, h.m->n_members),
                           landing(&h, &s), s.receive * h.size);
}

static void take_in(const struct at_hand *h, const struct collective_round *s)
{
    if (s->from < 0) return;
    if (sums(s))
        add(h, in_chunks(h) ? chunk_at(h, s->in_first) : h->out, h->o->incoming, s->adds);
    else if (!in_chunks(h))
        unpack(h, s->from, h->o->incoming);
}

static void end(const struct at_hand *h)
{
    if (!in_chunks(h) || h->m->n_members == 1) return;
    for (int32_t k = 0; h->m->kind == COLLECTIVE_ALL_GATHER && k < h->m->n_members; k++)
        unpack(h, k, chunk(h, k));
    struct shape part = collective_out(h->m, h->i);
    if (h->m->kind == COLLECTIVE_REDUCE_SCATTER && shape_elements(&part))
        memcpy(h->out, chunk(h, h->i), (size_t)bytes_of(&part, h));
}

static void go_on(struct collectives *c, int32_t step, int64_t at_ns)
{
    struct at_hand h = at_hand(c);
    if (step < collective_steps(h.m)) {
        begin_step(c, step, at_ns);
        return;
    }
    end(&h);
    collective_finish(c, at_ns);
}

void tensor_collective_begin(struct collectives *c, int64_t at_ns)
{
    struct at_hand h = at_hand(c);
    keep_own(&h);
    go_on(c, 0, at_ns);
}

void tensor_collective_part_over(struct collectives *c)
{
    struct at_hand h = at_hand(c);
    struct collective_round s = collective_round(h.m, h.i, c->part);
    take_in(&h, &s);
    collective_report_part(c);
    go_on(c, c->part + 1, collective_part_end_ns(c));
}
