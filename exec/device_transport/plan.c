/* exec/device_transport/plan.c - communicators, ordered channel groups and forms of collectives from the program
 * alone, so that all ranks agree.
 *
 * Messages of one communicator must be issued in one order at both ends, but a rank's program need not send in the
 * order in which its peer posts buffers. An ordered channel group has such an order: channels from one stage to
 * another that are sent by calls of one phase, received by calls of one phase and posted equally far ahead. Message n
 * of each precedes message n+1 of any, and those of one number follow the order of the sender's instructions: the
 * sender hands them over so, and the calls that free the buffer for message n of one channel of the group free it for
 * message n of the others.
 *
 * Groups with the same devices share a communicator. ZeRO's groups fix the order of ranks, because NCCL leaves shard
 * r on rank r; other groups accept any order.
 */
#include "exec/device_transport/plan.h"

#include "core/cluster/cluster.h"
#include "core/collective/rounds.h"
#include "exec/device_transport/device_transport.h"

#include <inttypes.h>
#include <string.h>

/* NCCL 2.28 fuses grouped broadcasts if none is larger than this multiple of the first. */
#define DEVICE_FORM_SPREAD 4
#define NAMES_MAX 8 /* of a communicator, for errors */

/* ---- ordered channel groups ---------------------------------------------------------------------------------- */

struct kind { /* common properties of the channels of a group */
    int32_t from, to, ahead;
    enum phase sent, received;
};

static enum phase phase_of(const struct program_stage *s, enum instr_kind kind, int32_t channel,
                           int32_t *at)
{
    for (int32_t i = 0; i < s->n_procedures; i++)
        for (int32_t k = 0; k < s->procedures[i].n_instrs; k++) {
            struct instr x = s->procedures[i].instrs[k];
            if (x.kind != kind || x.arg != channel) continue;
            if (at) *at = k;
            return s->procedures[i].phase;
        }
    return 0;
}

static struct kind kind_of(const struct program *p, int32_t channel, int32_t *at)
{
    const struct channel *c = &p->channels[channel];
    return (struct kind){.from = c->from_stage,
                         .to = c->to_stage,
                         .ahead = c->receive_ahead,
                         .sent = phase_of(&p->stages[c->from_stage], INSTR_SEND, channel, at),
                         .received =
                             phase_of(&p->stages[c->to_stage], INSTR_RECEIVE, channel, NULL)};
}

static bool alike(const struct kind *x, const struct kind *y)
{
    return x->from == y->from && x->to == y->to && x->ahead == y->ahead && x->sent == y->sent &&
           x->received == y->received;
}

static int32_t new_talk(struct arena *a, struct talks *t, struct talk talk)
{
    talk.phase = arena_printf(a, "joining communicator %s", talk.name);
    t->talk[t->n] = talk;
    return t->n++;
}

static void goes_over(const struct program *p, struct talk *t, int32_t link)
{
    if (link < 0 || link >= p->n_links) return;
    link_nccl_join(p->links[link].max_ctas, p->links[link].net_name, &t->max_ctas, &t->net_name,
                   &t->clash);
    if (t->clash) t->net_name = NULL;
}

static int32_t new_channel_group(struct arena *a, const struct program *p, struct talks *t,
                                 const struct kind *k)
{
    int32_t *device = ARENA_ARRAY(a, int32_t, 2);
    device[0] = p->stages[k->from].device, device[1] = p->stages[k->to].device;
    struct talk talk = {.name = arena_printf(a, "%s to %s (%c, stage %" PRId32 " to %" PRId32 ")",
                                             program_device_label(p, device[0]).text,
                                             program_device_label(p, device[1]).text,
                                             k->sent ? k->sent : '-', k->from, k->to),
                        .n = 2,
                        .device = device};
    t->channel_group[t->n_channel_groups] = (struct channel_group){
        .talk = new_talk(a, t, talk), .channel = ARENA_ARRAY(a, int32_t, (size_t)p->n_channels)};
    return t->n_channel_groups++;
}

/* Inserts a channel into its group, ordered by the instruction that sends it. */
static void add_channel(struct channel_group *b, const int32_t *at, int32_t channel)
{
    int32_t i = b->n++;
    for (; i > 0 && at[b->channel[i - 1]] > at[channel]; i--) b->channel[i] = b->channel[i - 1];
    b->channel[i] = channel;
}

static void channel_group_up(struct arena *a, const struct program *p, const unsigned char *by,
                             struct talks *t)
{
    struct kind *kinds = ARENA_ARRAY(a, struct kind, (size_t)p->n_channels + 1);
    int32_t *at = ARENA_ARRAY(a, int32_t, (size_t)p->n_channels + 1);
    for (int32_t c = 0; c < p->n_channels; c++) {
        t->channel_group_of[c] = -1;
        if (by[c] != TRANSPORT_DEVICE) continue;
        struct kind k = kind_of(p, c, &at[c]);
        int32_t b = 0;
        while (b < t->n_channel_groups && !alike(&kinds[b], &k)) b++;
        if (b == t->n_channel_groups) kinds[new_channel_group(a, p, t, &k)] = k;
        t->channel_group_of[c] = b;
        add_channel(&t->channel_group[b], at, c);
        goes_over(p, &t->talk[t->channel_group[b].talk], p->channels[c].link);
    }
    for (int32_t b = 0; b < t->n_channel_groups; b++)
        for (int32_t i = 0; i < t->channel_group[b].n; i++)
            t->place[t->channel_group[b].channel[i]] = i;
}

/* ---- groups ----------------------------------------------------------------------------------- */

static int32_t device_of(const struct program *p, const struct collective *g, int32_t member)
{
    return p->stages[g->members[member].stage].device;
}

static int32_t rank_in(const struct talk *t, int32_t device)
{
    for (int32_t i = 0; i < t->n; i++)
        if (t->device[i] == device) return i;
    return -1;
}

/* "n.0, n.1 on a, m.0 on b": the host once per run of devices. */
static const char *names(struct arena *a, const struct program *p, const int32_t *device, int32_t n)
{
    const char *text = "";
    for (int32_t i = 0; i < n && i < NAMES_MAX; i++) {
        bool more =
            i + 1 < n && i + 1 < NAMES_MAX && program_same_host(p, device[i], device[i + 1]);
        text = arena_printf(a, "%s%s%s", text, i ? ", " : "",
                            more ? p->devices[device[i]].name
                                 : program_device_label(p, device[i]).text);
    }
    return n <= NAMES_MAX ? text : arena_printf(a, "%s and %" PRId32 " more", text, n - NAMES_MAX);
}

/* Devices by rank: member i of ZeRO's groups has shard i + 1. */
static int32_t find_talk(struct arena *a, const struct program *p, struct talks *t,
                         const struct collective *g, int32_t first_of_groups)
{
    int32_t n = g->n_members, *device = ARENA_ARRAY(a, int32_t, (size_t)n);
    bool fixed = program_collective_divides(g);
    for (int32_t i = 0; i < n; i++)
        device[fixed ? program_collective_own_chunk(i, n) : i] = device_of(p, g, i);
    for (int32_t k = first_of_groups; k < t->n; k++) {
        bool same = t->talk[k].n == n;
        for (int32_t i = 0; same && i < n; i++)
            same = fixed ? t->talk[k].device[i] == device[i] : rank_in(&t->talk[k], device[i]) >= 0;
        if (same) return k;
    }
    return new_talk(a, t,
                    (struct talk){.name = arena_printf(a, "of %s", names(a, p, device, n)),
                                  .n = n,
                                  .device = device});
}

/* The links between its members. */
static void note_links(const struct program *p, struct talk *t, const struct collective *g)
{
    const struct collective *m = g;
    for (int32_t i = 0; i < g->n_members; i++) {
        if (g->link) goes_over(p, t, g->link[i]);
        if (g->back_link) goes_over(p, t, g->back_link[i]);
        for (int32_t k = 0; m && m->pair_link && k < m->n_members; k++)
            goes_over(p, t, m->pair_link[i * m->n_members + k]);
    }
}

static void note_needs(struct talk *t, const struct collective *g)
{
    if (program_collective_divides(g)) t->gathers = true;
    if (!collective_of_tensor(g)) t->pairs |= g->algorithm == ALGORITHM_CHAIN || program_collective_in_rounds(g);
    if (!collective_of_tensor(g)) return;
    enum device_form form = device_form(g);
    t->gathers |= form == DEVICE_FORM_PADDED && g->kind != COLLECTIVE_ALL_REDUCE;
    t->roots |= form == DEVICE_FORM_ROOTS;
    t->pairs |= form == DEVICE_FORM_PAIRS || form == DEVICE_FORM_ROUNDS;
}

static void join_groups(struct arena *a, const struct program *p, const unsigned char *by,
                        struct talks *t)
{
    int32_t first = t->n;
    for (int32_t g = 0; g < p->n_collectives; g++) t->talk_of[g] = -1;
    for (int divides = 1; divides >= 0; divides--)
        for (int32_t i = 0; i < p->n_collectives; i++) {
            const struct collective *g = &p->collectives[i];
            if (by[i] != TRANSPORT_DEVICE || program_collective_divides(g) != divides ||
                g->n_members < 2)
                continue;
            int32_t k = t->talk_of[i] = find_talk(a, p, t, g, first);
            t->rank_of[i] = ARENA_ARRAY(a, int32_t, (size_t)g->n_members);
            for (int32_t m = 0; m < g->n_members; m++)
                t->rank_of[i][m] = rank_in(&t->talk[k], device_of(p, g, m));
            note_needs(&t->talk[k], g);
            note_links(p, &t->talk[k], g);
        }
}

void plan_talks(struct arena *a, const struct program *p, const unsigned char *channel,
                       const unsigned char *group, struct talks *out)
{
    size_t most = (size_t)p->n_channels + (size_t)p->n_collectives + 1;
    *out = (struct talks){.talk = ARENA_ARRAY(a, struct talk, most),
                          .channel_group =
                              ARENA_ARRAY(a, struct channel_group, (size_t)p->n_channels + 1),
                          .channel_group_of = ARENA_ARRAY(a, int32_t, (size_t)p->n_channels + 1),
                          .place = ARENA_ARRAY(a, int32_t, (size_t)p->n_channels + 1),
                          .talk_of = ARENA_ARRAY(a, int32_t, (size_t)p->n_collectives + 1),
                          .rank_of = ARENA_ARRAY(a, int32_t *, (size_t)p->n_collectives + 1)};
    channel_group_up(a, p, channel, out);
    join_groups(a, p, group, out);
}

/* ---- forms and sizes -------------------------------------------------------------------------- */

enum device_form device_form(const struct collective *m)
{
    int64_t least = INT64_MAX, most = 0;
    if (collective_native(m->kind, m->algorithm)) return DEVICE_FORM_PADDED;
    if (!collective_rounds_of(m->algorithm)->direct) return DEVICE_FORM_ROUNDS;
    if (m->kind == COLLECTIVE_ALL_TO_ALL) return DEVICE_FORM_PAIRS;
    for (int32_t i = 0; i < m->n_members; i++) {
        int64_t n = collective_elements(m, i, i);
        if (n < least) least = n;
        if (n > most) most = n;
    }
    return most <= DEVICE_FORM_SPREAD * least ? DEVICE_FORM_ROOTS : DEVICE_FORM_PAIRS;
}

bool plan_segments_join(const struct program *p, const struct collective *g, int32_t k)
{
    for (int32_t i = 0; i < g->n_members; i++) {
        const struct collective_member *m = &g->members[i];
        if (plan_segment_is_cut(m, k) || plan_segment_is_cut(m, k + 1)) return false;
        const struct program_stage *s = &p->stages[m->stage];
        const struct slot *x = plan_segment(p, m, k), *y = plan_segment(p, m, k + 1);
        if (x->class != y->class || x->buffer_ring >= 0 || y->buffer_ring >= 0 ||
            x->dtype != g->dtype || y->dtype != g->dtype ||
            program_slot_offset(s, x) + shape_elements(&x->shape) * dtype_bytes(x->dtype) !=
                program_slot_offset(s, y))
            return false;
    }
    return true;
}
