/* exec/host_transport/segment_rounds.c - all-reduces of segments in rounds (core/collective/collective.h): hierarchical,
 * halving-doubling, double tree.
 *
 * A message is a run of the list of segments, sent and received in place where it is contiguous in memory and in the wire dtype, else
 * through staging. A narrower wire dtype rounds each message; a sum that goes out complete is rounded in memory too, so that its owner
 * has the receivers' bits.
 */
#include "exec/host_transport/collective_internal.h"

struct at_hand { /* the running collective */
    const struct collective *g;
    const struct collective_end *end;
    int32_t group;
    int64_t size; /* of an element on the wire */
    bool narrows;
};

static struct at_hand at_hand(const struct collectives *c)
{
    int32_t group = collective_current(c)->group;
    const struct collective *g = &c->p->collectives[group];
    return (struct at_hand){g, &c->members[group], group, dtype_bytes(g->dtype), dtype_is_half(g->dtype)};
}

static char *in_place(const struct collectives *c, const struct at_hand *h, int64_t first, int64_t n)
{
    return h->narrows ? NULL : collective_contiguous(c, first, first + n);
}

static void send(struct collectives *c, const struct at_hand *h, const struct collective_round *s, int32_t round)
{
    char *data = in_place(c, h, s->out_first, s->send);
    if (!data) {
        data = h->end->incoming + program_collective_incoming_bytes(h->g);
        collective_pass(c, s->out_first, s->out_first + s->send, data, COPY_OUT);
        if (h->narrows && !collective_round(h->g, s->to, round).adds)
            collective_pass(c, s->out_first, s->out_first + s->send, data, COPY_IN);
    }
    collective_send(c, wires_tensor(c->wires, h->group, h->end->member, s->to, h->g->n_members), data, s->send * h->size);
}

/* NULL: beside the segments. */
static char *landing(const struct collectives *c, const struct at_hand *h, const struct collective_round *s)
{
    return s->adds ? NULL : in_place(c, h, s->in_first, s->receive);
}

static void go_on(struct collectives *c, int32_t round, int64_t at_ns)
{
    struct at_hand h = at_hand(c);
    if (round == collective_steps(h.g)) {
        collective_finish(c, at_ns);
        return;
    }
    struct collective_round s = collective_round(h.g, h.end->member, round);
    collective_begin_part(c, round, at_ns);
    if (s.to >= 0) send(c, &h, &s, round);
    if (s.from < 0) return;
    char *to = landing(c, &h, &s);
    collective_receive(c, wires_tensor(c->wires, h.group, s.from, h.end->member, h.g->n_members), to ? to : h.end->incoming,
                       s.receive * h.size);
}

void segment_rounds_begin(struct collectives *c, int64_t at_ns) { go_on(c, 0, at_ns); }

void segment_rounds_part_over(struct collectives *c)
{
    struct at_hand h = at_hand(c);
    struct collective_round s = collective_round(h.g, h.end->member, c->part);
    if (s.from >= 0 && !landing(c, &h, &s))
        collective_pass(c, s.in_first, s.in_first + s.receive, h.end->incoming, s.adds ? ADD_IN : COPY_IN);
    collective_report_part(c);
    go_on(c, c->part + 1, collective_part_end_ns(c));
}
