#include "exec/device_transport/device_channels.h"

#include <inttypes.h>

struct device_channel {
    bool mine, sends;
    int32_t peer; /* device */
    struct place place;
    int64_t elements;
    enum dtype dtype;
    int64_t window;
    int32_t *ready, *ended; /* (window) events */
    int64_t given, issued,
        done;    /* numbers below: ordered by the worker, issued to the stream, known to have ended */
    enum phase phase; /* of the calls */
};

struct device_channel_group {
    int32_t communicator, stream; /* stream -1: not this rank's */
    int64_t next;                 /* the next message: its number … */
    int32_t place; /* … and its channel in the group */
};

/* ---- before time 0 ---------------------------------------------------------------------------- */

static enum status make_events(struct device_channels *c, struct device_channel *x,
                               struct error *err)
{
    x->ready = ARENA_ARRAY(c->a, int32_t, (size_t)x->window);
    x->ended = ARENA_ARRAY(c->a, int32_t, (size_t)x->window);
    for (int64_t i = 0; i < x->window; i++) {
        TRY(c->b->event_make(c->b, false, &x->ready[i], err));
        TRY(c->b->event_make(c->b, false, &x->ended[i], err));
    }
    return OK;
}

static enum phase phase_here(const struct program_stage *s, int32_t channel, enum instr_kind kind)
{
    for (int32_t i = 0; i < s->n_procedures; i++)
        for (int32_t k = 0; k < s->procedures[i].n_instrs; k++)
            if (s->procedures[i].instrs[k].kind == kind &&
                s->procedures[i].instrs[k].arg == channel)
                return s->procedures[i].phase;
    return 0;
}

static enum status open_end(struct device_channels *c, int32_t channel, bool sends,
                            struct error *err)
{
    const struct channel *k = &c->p->channels[channel];
    int32_t stage = sends ? k->from_stage : k->to_stage,
            other = sends ? k->to_stage : k->from_stage;
    const struct program_stage *s = &c->p->stages[stage];
    const struct slot *slot = &s->slots[sends ? k->from_slot : k->to_slot];
    struct device_channel *x = &c->ends[channel];
    int64_t size = dtype_bytes(slot->dtype),
            back = sends && slot->buffer_ring >= 0 ? s->buffer_rings[slot->buffer_ring].count : k->receive_ahead;
    *x = (struct device_channel){
        .mine = true,
        .sends = sends,
        .peer = c->p->stages[other].device,
        .place = lane_memory_place(c->o->memory[stage], sends ? k->from_slot : k->to_slot),
        .elements = k->bytes / size,
        .dtype = slot->dtype,
        .window = back + 1,
        .phase = phase_here(s, channel, sends ? INSTR_SEND : INSTR_RECEIVE)};
    if (k->bytes % size)
        return error_set(err, ERR_INPUT, "channel of slot %s: %" PRId64 " bytes are not a multiple of the size of %s",
                         slot->name, k->bytes, dtype_name(slot->dtype));
    return make_events(c, x, err);
}

void device_channels_init(struct device_channels *c, struct arena *a,
                          const struct device_transport_options *o,
                          const struct communicators *communicators, struct timed_spans *spans,
                          struct watchdog *watchdog)
{
    *c = (struct device_channels){.a = a,
                                  .o = o,
                                  .b = o->backend,
                                  .p = o->p,
                                  .talks = communicators->talks,
                                  .communicators = communicators,
                                  .spans = spans,
                                  .watchdog = watchdog};
    c->groups = ARENA_ARRAY(a, struct device_channel_group, (size_t)c->talks->n_channel_groups + 1);
    c->ends = ARENA_ARRAY(a, struct device_channel, (size_t)o->p->n_channels + 1);
}

enum status device_channels_open(struct device_channels *c, struct error *err)
{
    for (int32_t i = 0; i < c->talks->n_channel_groups; i++) {
        const struct channel_group *b = &c->talks->channel_group[i];
        const struct talk *talk = &c->talks->talk[b->talk];
        bool sends = talk->device[0] == c->o->rank, receives = talk->device[1] == c->o->rank;
        c->groups[i] = (struct device_channel_group){.communicator = b->talk, .stream = -1};
        if (!sends && !receives) continue;
        TRY(c->b->stream_make(c->b, &c->groups[i].stream, err));
        for (int32_t k = 0; k < b->n; k++) TRY(open_end(c, b->channel[k], sends, err));
    }
    return OK;
}

/* ---- one message ------------------------------------------------------------------------------ */

static void keep_span(struct device_channels *c, int32_t channel, int64_t number, int32_t begin,
                      int32_t end)
{
    const struct channel *k = &c->p->channels[channel];
    const struct device_channel *x = &c->ends[channel];
    int32_t stage = x->sends ? k->from_stage : k->to_stage,
            microbatches = c->p->stages[stage].microbatches;
    timed_spans_keep(c->spans, begin, end,
                     (struct span){.kind = x->sends ? SPAN_SEND : SPAN_RECEIVE,
                                   .stream = x->sends ? STREAM_send : STREAM_receive,
                                   .device = c->o->rank,
                                   .peer = x->peer,
                                   .stage = stage,
                                   .phase = x->phase,
                                   .step = (int32_t)(c->begun + number / microbatches),
                                   .microbatch = (int32_t)(number % microbatches),
                                   .op = channel,
                                   .bytes = k->bytes});
}

static enum status move(struct device_channels *c, const struct device_channel_group *b,
                        int32_t channel, int64_t number, struct error *err)
{
    struct device_channel *x = &c->ends[channel];
    void *communicator = communicators_handle(c->communicators, b->communicator),
         *at = place_at(&x->place, number);
    int32_t begin, end;
    TRY(c->b->event_wait(c->b, b->stream, x->ready[number % x->window], err));
    TRY(timed_spans_record(c->spans, b->stream, &begin, err));
    if (x->elements && x->sends)
        TRY(c->b->comm->send(c->b, communicator, b->stream, at, x->elements, x->dtype, 1, err));
    else if (x->elements)
        TRY(c->b->comm->receive(c->b, communicator, b->stream, at, x->elements, x->dtype, 0, err));
    TRY(timed_spans_record(c->spans, b->stream, &end, err));
    TRY(c->b->event_record(c->b, x->ended[number % x->window], b->stream, err));
    keep_span(c, channel, number, begin, end);
    x->issued = number + 1;
    watchdog_progress(c->watchdog);
    return OK;
}

/* Issues all messages whose turn has come. */
static enum status go_on(struct device_channels *c, int32_t channel_group, struct error *err)
{
    const struct channel_group *k = &c->talks->channel_group[channel_group];
    struct device_channel_group *b = &c->groups[channel_group];
    while (c->ends[k->channel[b->place]].given > b->next) {
        TRY(move(c, b, k->channel[b->place], b->next, err));
        b->place = (b->place + 1) % k->n;
        b->next += b->place == 0;
    }
    return OK;
}

enum status device_channels_order(struct device_channels *c, int32_t channel, int64_t seq,
                                  struct error *err)
{
    struct device_channel *x = &c->ends[channel];
    TRY(communicators_live(c->communicators, err));
    if (seq != x->given)
        BUG("channel %d: message %lld after %lld", channel, (long long)seq,
            (long long)x->given - 1);
    TRY(c->b->event_record(c->b, x->ready[seq % x->window], STREAM_COMPUTE, err));
    x->given++;
    return go_on(c, c->talks->channel_group_of[channel], err);
}

/* Waiting for an event that was never recorded does not block: the program would continue without the message. */
enum status device_channels_wait(struct device_channels *c, int32_t channel, int64_t seq,
                                 struct error *err)
{
    const struct device_channel *x = &c->ends[channel];
    TRY(communicators_live(c->communicators, err));
    if (seq >= x->issued)
        return error_set(err, ERR_INPUT,
                         "%s: message %" PRId64 " of channel %" PRId32 " is needed before it is %s",
                         c->p->devices[c->o->rank].name, seq, channel,
                         x->sends ? "sent" : "asked for");
    return c->b->event_wait(c->b, STREAM_COMPUTE, x->ended[seq % x->window], err);
}

void device_channels_restart(struct device_channels *c, int64_t begun)
{
    for (int32_t i = 0; i < c->p->n_channels; i++) c->ends[i].given = c->ends[i].issued = c->ends[i].done = 0;
    for (int32_t i = 0; i < c->talks->n_channel_groups; i++) c->groups[i].next = 0, c->groups[i].place = 0;
    c->begun = begun;
}

/* ---- looked at -------------------------------------------------------------------------------- */

enum status device_channels_count(struct device_channels *c, bool *in_flight, struct error *err)
{
    for (int32_t i = 0; i < c->p->n_channels; i++) {
        struct device_channel *x = &c->ends[i];
        if (!x->mine) continue;
        TRY(watchdog_count(c->watchdog, c->b, x->issued, &x->done, x->ended, x->window, err));
        *in_flight |= x->done < x->issued;
    }
    return OK;
}

void device_channels_blame(const struct device_channels *c, struct error *why)
{
    for (int sends = 0; sends < 2; sends++)
        for (int32_t i = 0; i < c->p->n_channels; i++) {
            const struct device_channel *x = &c->ends[i];
            if (!x->mine || x->sends != sends || x->done == x->issued) continue;
            error_set(why, ERR_RANK,
                      "%s: message %" PRId64 " %s %s (channel %" PRId32
                      ") has not ended for %.0f s: %s is gone",
                      program_device_label(c->p, c->o->rank).text, x->done, sends ? "to" : "from",
                      c->p->devices[x->peer].name, i, (double)c->o->limit_ns / 1e9,
                      program_device_label(c->p, x->peer).text);
            return;
        }
}
