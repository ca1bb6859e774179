/* exec/device_transport/messages.c - a program's channels on streams of their own, receives ahead of time.
 *
 * What the worker orders early stands with an event of the compute stream until its turn in the ordered channel group has come; then the
 * ordered channel group's stream waits for that event, moves the bytes and leaves an event of its own. Events are used in turns of a window
 * that is never shorter than what may be looked back at: a sender asks for room of a message that lies a ring's buffers back,
 * a receiver posts a message only when the one receive_ahead before it was consumed.
 */
#include "exec/device_transport/internal.h"

#include <inttypes.h>

/* ---- before time 0 ---------------------------------------------------------------------------- */

static enum status make_events(struct device_transport *t, struct channel_end_device *c,
                               struct error *err)
{
    c->ready = ARENA_ARRAY(t->a, int32_t, (size_t)c->window);
    c->ended = ARENA_ARRAY(t->a, int32_t, (size_t)c->window);
    for (int64_t i = 0; i < c->window; i++) {
        TRY(t->b->event_make(t->b, false, &c->ready[i], err));
        TRY(t->b->event_make(t->b, false, &c->ended[i], err));
    }
    return OK;
}

static enum phase letter_here(const struct program_stage *s, int32_t channel, enum instr_kind kind)
{
    for (int32_t i = 0; i < s->n_procedures; i++)
        for (int32_t k = 0; k < s->procedures[i].n_instrs; k++)
            if (s->procedures[i].instrs[k].kind == kind &&
                s->procedures[i].instrs[k].arg == channel)
                return s->procedures[i].letter;
    return 0;
}

static enum status open_end(struct device_transport *t, int32_t channel, bool sends,
                            struct error *err)
{
    const struct channel *x = &t->p->channels[channel];
    int32_t stage = sends ? x->from_stage : x->to_stage,
            other = sends ? x->to_stage : x->from_stage;
    const struct program_stage *s = &t->p->stages[stage];
    const struct slot *slot = &s->slots[sends ? x->from_slot : x->to_slot];
    struct channel_end_device *c = &t->channels[channel];
    int64_t size = dtype_bytes(slot->dtype),
            back = sends && slot->ring >= 0 ? s->rings[slot->ring].count : x->receive_ahead;
    *c = (struct channel_end_device){
        .mine = true,
        .sends = sends,
        .peer = t->p->stages[other].device,
        .place = lane_memory_place(t->o.memory[stage], sends ? x->from_slot : x->to_slot),
        .elements = x->bytes / size,
        .dtype = slot->dtype,
        .window = back + 1,
        .letter = letter_here(s, channel, sends ? INSTR_SEND : INSTR_RECEIVE)};
    if (x->bytes % size)
        return error_set(err, ERR_INPUT, "channel of slot %s: %" PRId64 " bytes are no whole %s",
                         slot->name, x->bytes, dtype_name(slot->dtype));
    return make_events(t, c, err);
}

enum status device_messages_open(struct device_transport *t, struct error *err)
{
    for (int32_t i = 0; i < t->talks.n_channel_groups; i++) {
        const struct channel_group *b = &t->talks.channel_group[i];
        const struct talk *talk = &t->talks.talk[b->talk];
        bool sends = talk->device[0] == t->o.rank, receives = talk->device[1] == t->o.rank;
        t->channel_groups[i] = (struct channel_group_end){.communicator = b->talk, .stream = -1};
        if (!sends && !receives) continue;
        TRY(t->b->stream_make(t->b, &t->channel_groups[i].stream, err));
        for (int32_t k = 0; k < b->n; k++) TRY(open_end(t, b->channel[k], sends, err));
    }
    return OK;
}

/* ---- one message ------------------------------------------------------------------------------ */

static void keep_span(struct device_transport *t, int32_t channel, int64_t number, int32_t begin,
                      int32_t end)
{
    const struct channel *x = &t->p->channels[channel];
    const struct channel_end_device *c = &t->channels[channel];
    int32_t stage = c->sends ? x->from_stage : x->to_stage,
            microbatches = t->p->stages[stage].microbatches;
    device_keep(t, begin, end,
                (struct span){.kind = c->sends ? SPAN_SEND : SPAN_RECEIVE,
                              .stream = c->sends ? STREAM_send : STREAM_receive,
                              .device = t->o.rank,
                              .peer = c->peer,
                              .stage = stage,
                              .letter = c->letter,
                              .step = (int32_t)(number / microbatches),
                              .microbatch = (int32_t)(number % microbatches),
                              .op = channel,
                              .bytes = x->bytes});
}

static enum status move(struct device_transport *t, const struct channel_group_end *b,
                        int32_t channel, int64_t number, struct error *err)
{
    struct channel_end_device *c = &t->channels[channel];
    void *communicator = t->communicators[b->communicator].handle,
         *at = place_at(&c->place, number);
    int32_t begin, end;
    TRY(t->b->event_wait(t->b, b->stream, c->ready[number % c->window], err));
    TRY(device_mark(t, b->stream, &begin, err));
    if (c->elements && c->sends)
        TRY(t->comm->send(t->b, communicator, b->stream, at, c->elements, c->dtype, 1, err));
    else if (c->elements)
        TRY(t->comm->receive(t->b, communicator, b->stream, at, c->elements, c->dtype, 0, err));
    TRY(device_mark(t, b->stream, &end, err));
    TRY(t->b->event_record(t->b, c->ended[number % c->window], b->stream, err));
    keep_span(t, channel, number, begin, end);
    c->asked = number + 1;
    t->changes++;
    return OK;
}

/* All whose turn it is. */
static enum status go_on(struct device_transport *t, int32_t channel_group, struct error *err)
{
    const struct channel_group *x = &t->talks.channel_group[channel_group];
    struct channel_group_end *b = &t->channel_groups[channel_group];
    while (t->channels[x->channel[b->place]].given > b->next) {
        TRY(move(t, b, x->channel[b->place], b->next, err));
        b->place = (b->place + 1) % x->n;
        b->next += b->place == 0;
    }
    return OK;
}

static enum status order(struct device_transport *t, int32_t channel, int64_t seq,
                         struct error *err)
{
    struct channel_end_device *c = &t->channels[channel];
    TRY(device_live(t, err));
    if (seq != c->given)
        BUG("channel %d: message %lld after %lld", channel, (long long)seq,
            (long long)c->given - 1);
    TRY(t->b->event_record(t->b, c->ready[seq % c->window], STREAM_COMPUTE, err));
    c->given++;
    return go_on(t, t->talks.channel_group_of[channel], err);
}

/* An event that was not recorded yet holds up nobody: the program would go on without the message. */
static enum status wait_for(struct device_transport *t, int32_t channel, int64_t seq,
                            struct error *err)
{
    const struct channel_end_device *c = &t->channels[channel];
    TRY(device_live(t, err));
    if (seq >= c->asked)
        return error_set(err, ERR_INPUT,
                         "%s: message %" PRId64 " of channel %" PRId32 " is needed before it is %s",
                         t->p->devices[t->o.rank].name, seq, channel,
                         c->sends ? "sent" : "asked for");
    return t->b->event_wait(t->b, STREAM_COMPUTE, c->ended[seq % c->window], err);
}

enum status device_transport_post(struct device_transport *t, int32_t channel, int64_t seq,
                                  struct error *err)
{
    return order(t, channel, seq, err);
}

enum status device_transport_send(struct device_transport *t, int32_t channel, int64_t seq,
                                  struct error *err)
{
    return order(t, channel, seq, err);
}

enum status device_transport_receive(struct device_transport *t, int32_t channel, int64_t seq,
                                     struct error *err)
{
    return wait_for(t, channel, seq, err);
}

enum status device_transport_room(struct device_transport *t, int32_t channel, int64_t seq,
                                  struct error *err)
{
    return wait_for(t, channel, seq, err);
}
