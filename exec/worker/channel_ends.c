#include "exec/worker/channel_ends.h"

#include "exec/clock.h"
#include "exec/worker/async_issue.h"
#include "exec/worker/chunks.h"
#include "exec/worker/progress.h"
#include "exec/worker/transports.h"

#include <inttypes.h>

/* at_ns: (window) instants, -1 unknown. Between two chunks of this device message seq is copied when handed[seq mod
 * window] and posted[…] are both seq. */
struct channel_end {
    int64_t next; /* next number to be handed over (sender) or posted (receiver) */
    int64_t window, *at_ns;
    int32_t *after;           /* (window) discrete device: event + 1 of that instant */
    struct place place, to;   /* to: local destination; place is the source then */
    int64_t *handed, *posted; /* (window) local; NULL otherwise */
};

/* ---- before time 0 ---------------------------------------------------------------------------- */

static int64_t *unknown(struct channel_ends *x, int64_t n) { return ARENA_ARRAY(x->r->run, int64_t, (size_t)n); }

static void forget(int64_t *at, int64_t n)
{
    for (int64_t i = 0; at && i < n; i++) at[i] = -1;
}

void channel_ends_restart(struct channel_ends *x)
{
    for (int32_t i = 0; i < x->r->p->n_channels; i++) {
        struct channel_end *e = &x->at[i];
        e->next = 0;
        forget(e->at_ns, e->window);
        forget(e->handed, e->window);
        forget(e->posted, e->window);
        for (int64_t seq = 0; e->posted && seq < x->r->p->channels[i].receive_ahead; seq++) e->posted[seq] = seq;
    }
}

static void open_end(struct channel_ends *x, const struct chunks *chunks, int32_t channel)
{
    const struct channel *c = &x->r->p->channels[channel];
    const struct chunk *from = chunks_of_stage(chunks, c->from_stage),
                       *to = chunks_of_stage(chunks, c->to_stage);
    struct channel_end *e = &x->at[channel];
    if (!from && !to) return;
    e->window = 2 * (int64_t)program_channel_messages(x->r->p, c) + c->receive_ahead;
    e->place = from ? lane_memory_place(&from->memory, c->from_slot)
                    : lane_memory_place(&to->memory, c->to_slot);
    if (!from || !to) {
        e->at_ns = unknown(x, e->window);
        if (x->r->discrete) e->after = ARENA_ARRAY(x->r->run, int32_t, (size_t)e->window);
        return;
    }
    e->to = lane_memory_place(&to->memory, c->to_slot);
    e->handed = unknown(x, e->window), e->posted = unknown(x, e->window);
}

void channel_ends_open(struct channel_ends *x, struct rank *r, const struct chunks *c,
                       struct transports *t, struct async_issue *ahead, struct device_clock *clock, const struct progress *g)
{
    *x = (struct channel_ends){.r = r, .t = t, .ahead = ahead, .clock = clock, .progress = g};
    x->at = ARENA_ARRAY(r->run, struct channel_end, (size_t)r->p->n_channels + 1);
    for (int32_t i = 0; i < r->p->n_channels; i++) open_end(x, c, i);
    channel_ends_restart(x);
}

/* ---- messages --------------------------------------------------------------------------------- */

/* Between two chunks of this device. */
static bool is_local(const struct channel_ends *x, int32_t channel)
{
    return x->at[channel].handed != NULL;
}

/* By the rules of program.h the copy is due at the later of hand-over and post. Both come from this thread, so no
 * later use of the message has to wait. */
static enum status copy_local(struct channel_ends *x, int32_t channel, int64_t seq,
                              struct error *err)
{
    struct channel_end *e = &x->at[channel];
    if (e->handed[seq % e->window] != seq || e->posted[seq % e->window] != seq) return OK;
    async_issue_break(x->ahead);
    return x->r->backend.copy(&x->r->backend, STREAM_COMPUTE, place_at(&e->to, seq),
                              place_at(&e->place, seq), x->r->p->channels[channel].bytes, err);
}

/* An entry of a later message means that this one was copied earlier. */
static enum status need_local(const struct channel_ends *x, int32_t channel, int64_t seq,
                              struct error *err)
{
    const struct channel_end *e = &x->at[channel];
    if (e->handed[seq % e->window] >= seq && e->posted[seq % e->window] >= seq) return OK;
    return error_set(err, ERR_INPUT,
                     "%s: message %" PRId64 " of channel %" PRId32
                     " between its own stages is needed before it is sent",
                     x->r->p->devices[x->r->index].name, seq, channel);
}

static enum status order_message(struct channel_ends *x, enum comm_thread_order_kind kind,
                                 int32_t channel, int64_t number, int64_t at_ns, int32_t after,
                                 struct error *err)
{
    if (x->t->channel[channel] == TRANSPORT_DEVICE)
        return kind == ORDER_HAND ? device_transport_send(x->t->device, channel, number, err)
                                  : device_transport_post(x->t->device, channel, number, err);
    comm_thread_order(&x->t->comm_thread,
                      (struct comm_thread_order){.kind = kind,
                                                 .index = channel,
                                                 .number = number,
                                                 .data = place_at(&x->at[channel].place, number),
                                                 .bytes = x->r->p->channels[channel].bytes,
                                                 .at_ns = at_ns,
                                                 .after = after});
    return OK;
}

/* Numbers of the current numbering; an evaluation has forwards alone. */
static int64_t total_messages(const struct channel_ends *x, int32_t channel)
{
    const struct channel *c = &x->r->p->channels[channel];
    if (x->progress->evaluates && (c->gradient || c->by_step)) return 0;
    return (x->progress->until - x->progress->begun) * program_channel_messages(x->r->p, c);
}

enum status channel_ends_post_first(struct channel_ends *x, struct error *err)
{
    for (int32_t i = 0; i < x->r->p->n_channels; i++) {
        const struct channel *c = &x->r->p->channels[i];
        if (x->r->p->stages[c->to_stage].device != x->r->index || is_local(x, i)) continue;
        while (x->at[i].next < c->receive_ahead && x->at[i].next < total_messages(x, i))
            TRY(order_message(x, ORDER_POST, i, x->at[i].next++, 0, 0, err));
    }
    return OK;
}

/* Message seq is issued at its turn or kept until then: the sender's data is ready, the receiver's buffer (of `ahead`
 * later) is free. */
static enum status note_end(struct channel_ends *x, int32_t channel, int64_t seq, struct error *err)
{
    struct channel_end *e = &x->at[channel];
    int32_t after = 0;
    if (x->t->channel[channel] == TRANSPORT_HOST) TRY(transports_mark(x->t, x->r, &after, err));
    if (e->after) e->after[seq % e->window] = after;
    e->at_ns[seq % e->window] = device_clock_now(x->clock);
    return OK;
}

/* Issues the kept messages whose turn has come, from number `next` of the window on. */
static enum status order_kept(struct channel_ends *x, enum comm_thread_order_kind kind,
                              int32_t channel, int64_t number, struct error *err)
{
    struct channel_end *e = &x->at[channel];
    int64_t *at_ns = &e->at_ns[number % e->window], was_ns = *at_ns;
    *at_ns = -1;
    return order_message(x, kind, channel, e->next++, was_ns,
                         e->after ? e->after[number % e->window] : 0, err);
}

/* The call that consumed message seq has ended: its buffer is free for the one receive_ahead later, in the order of
 * numbers. */
enum status channel_ends_post_next(struct channel_ends *x, int32_t channel, int64_t seq,
                                   struct error *err)
{
    struct channel_end *e = &x->at[channel];
    int32_t ahead = x->r->p->channels[channel].receive_ahead;
    if (is_local(x, channel)) {
        e->posted[(seq + ahead) % e->window] = seq + ahead;
        return copy_local(x, channel, seq + ahead, err);
    }
    TRY(note_end(x, channel, seq, err));
    while (e->next < total_messages(x, channel) && e->at_ns[(e->next - ahead) % e->window] >= 0)
        TRY(order_kept(x, ORDER_POST, channel, e->next - ahead, err));
    return OK;
}

enum status channel_ends_send(struct channel_ends *x, int32_t channel, int64_t seq,
                              struct error *err)
{
    struct channel_end *e = &x->at[channel];
    if (is_local(x, channel)) {
        e->handed[seq % e->window] = seq;
        return copy_local(x, channel, seq, err);
    }
    TRY(async_issue_settle(x->ahead, err));
    device_clock_pace(x->clock);
    TRY(note_end(x, channel, seq, err));
    while (e->at_ns[e->next % e->window] >= 0)
        TRY(order_kept(x, ORDER_HAND, channel, e->next, err));
    return OK;
}

/* A message through the host has ended at this end; advances the device's clock. */
static enum status wait_for_host(struct channel_ends *x, int32_t channel, int64_t seq,
                                 struct error *err)
{
    int64_t at_ns = 0;
    TRY(async_issue_settle(x->ahead, err));
    device_clock_wait(x->clock);
    TRY(comm_thread_wait_channel(&x->t->comm_thread, channel, seq, &at_ns, err));
    device_clock_waited(x->clock, at_ns);
    return OK;
}

enum status channel_ends_receive(struct channel_ends *x, int32_t channel, int64_t seq,
                                 struct error *err)
{
    if (is_local(x, channel)) return need_local(x, channel, seq, err);
    if (x->t->channel[channel] == TRANSPORT_DEVICE) {
        async_issue_break(x->ahead);
        return device_transport_receive(x->t->device, channel, seq, err);
    }
    TRY(wait_for_host(x, channel, seq, err));
    return x->r->discrete
               ? async_issue_wait(x->ahead, bounce_copied(&x->t->bounce, channel, seq), err)
               : OK;
}

enum status channel_ends_wait_for_room(struct channel_ends *x,
                                       const struct buffer_ring *buffer_ring, int64_t seq,
                                       struct error *err)
{
    int64_t before = seq - buffer_ring->count;
    if (before < 0) return OK;
    if (is_local(x, buffer_ring->sent)) return need_local(x, buffer_ring->sent, before, err);
    if (x->t->channel[buffer_ring->sent] != TRANSPORT_DEVICE)
        return wait_for_host(x, buffer_ring->sent, before, err);
    async_issue_break(x->ahead);
    return device_transport_room(x->t->device, buffer_ring->sent, before, err);
}
