/* exec/worker/steps.c - the compute thread: takes a lane's instructions word by word
 * (core/program/program.h).
 *
 * On a host lane an instruction has been done when it has been taken. A lane apart asks its device for it and goes on
 * (exec/worker/async_issue.h); what must be in order is ordered by events, and the thread itself waits only for messages that the
 * host carries, and for room of theirs. */
#include "exec/worker/internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- messages ---------------------------------------------------------------------------------
 */

/* Between two chunks of this device. */
static bool is_local(const struct worker *w, int32_t channel)
{
    return w->ends[channel].handed != NULL;
}

/* By the rules of program.h a copy is due when it is handed over and posted, whichever comes last; both come from this
 * thread, so whoever needs the message after that never waits. */
static enum status copy_local(struct worker *w, int32_t channel, int64_t seq, struct error *err)
{
    struct channel_end *e = &w->ends[channel];
    if (e->handed[seq % e->window] != seq || e->posted[seq % e->window] != seq) return OK;
    async_issue_break(w);
    return w->backend.copy(&w->backend, STREAM_COMPUTE, place_at(&e->to, seq),
                           place_at(&e->place, seq), w->p->channels[channel].bytes, err);
}

/* An entry of a later message means that this one has long been copied. */
static enum status need_local(const struct worker *w, int32_t channel, int64_t seq,
                              struct error *err)
{
    const struct channel_end *e = &w->ends[channel];
    if (e->handed[seq % e->window] >= seq && e->posted[seq % e->window] >= seq) return OK;
    return error_set(err, ERR_INPUT,
                     "%s: message %" PRId64 " of channel %" PRId32
                     " between its own stages is needed before it is sent",
                     w->p->devices[w->rank].name, seq, channel);
}

static enum status order_message(struct worker *w, enum comm_thread_order_kind kind,
                                 int32_t channel, int64_t number, int64_t at_ns, int32_t after,
                                 struct error *err)
{
    if (w->channel_by[channel] == TRANSPORT_DEVICE)
        return kind == ORDER_HAND ? device_transport_send(w->transport, channel, number, err)
                                  : device_transport_post(w->transport, channel, number, err);
    comm_thread_order(&w->comm_thread,
                      (struct comm_thread_order){.kind = kind,
                                                 .index = channel,
                                                 .number = number,
                                                 .data = place_at(&w->ends[channel].place, number),
                                                 .bytes = w->p->channels[channel].bytes,
                                                 .at_ns = at_ns,
                                                 .after = after});
    return OK;
}

/* What the compute stream was asked so far, as an event + 1 that the host may wait for; 0: it has been done already. */
static enum status mark(struct worker *w, bool wanted, int32_t *after, struct error *err)
{
    int32_t event;
    *after = 0;
    if (!w->apart || !wanted) return OK;
    TRY(comm_thread_take_event(&w->comm_thread, &event, err));
    *after = event + 1;
    return w->backend.event_record(&w->backend, event, STREAM_COMPUTE, err);
}

static int64_t total_messages(const struct worker *w, int32_t channel)
{
    return w->o->steps * w->p->stages[w->p->channels[channel].to_stage].microbatches;
}

enum status worker_post_first(struct worker *w, struct error *err)
{
    for (int32_t i = 0; i < w->p->n_channels; i++) {
        const struct channel *c = &w->p->channels[i];
        if (w->p->stages[c->to_stage].device != w->rank || is_local(w, i)) continue;
        while (w->ends[i].next < c->receive_ahead && w->ends[i].next < total_messages(w, i))
            TRY(order_message(w, ORDER_POST, i, w->ends[i].next++, 0, 0, err));
    }
    return OK;
}

/* Message seq has come to its turn or is kept until then: a sender's is ready, a receiver's room (of `ahead` later) free. */
static enum status note_end(struct worker *w, int32_t channel, int64_t seq, struct error *err)
{
    struct channel_end *e = &w->ends[channel];
    int32_t after;
    TRY(mark(w, w->channel_by[channel] == TRANSPORT_HOST, &after, err));
    if (e->after) e->after[seq % e->window] = after;
    e->at_ns[seq % e->window] = device_clock_now(&w->clock);
    return OK;
}

/* Those whose turn it is, from number `next` of the window on. */
static enum status order_kept(struct worker *w, enum comm_thread_order_kind kind, int32_t channel,
                              int64_t number, struct error *err)
{
    struct channel_end *e = &w->ends[channel];
    int64_t *at_ns = &e->at_ns[number % e->window], was_ns = *at_ns;
    *at_ns = -1;
    return order_message(w, kind, channel, e->next++, was_ns,
                         e->after ? e->after[number % e->window] : 0, err);
}

/* The call that consumed message seq has ended: room for the one receive_ahead later, in the order
 * of numbers. */
static enum status post_next(struct worker *w, int32_t channel, int64_t seq, struct error *err)
{
    struct channel_end *e = &w->ends[channel];
    int32_t ahead = w->p->channels[channel].receive_ahead;
    if (is_local(w, channel)) {
        e->posted[(seq + ahead) % e->window] = seq + ahead;
        return copy_local(w, channel, seq + ahead, err);
    }
    TRY(note_end(w, channel, seq, err));
    while (e->next < total_messages(w, channel) && e->at_ns[(e->next - ahead) % e->window] >= 0)
        TRY(order_kept(w, ORDER_POST, channel, e->next - ahead, err));
    return OK;
}

static enum status take_send(struct worker *w, int32_t channel, int64_t seq, struct error *err)
{
    struct channel_end *e = &w->ends[channel];
    if (is_local(w, channel)) {
        e->handed[seq % e->window] = seq;
        return copy_local(w, channel, seq, err);
    }
    TRY(async_issue_settle(w, err));
    device_clock_pace(&w->clock);
    TRY(note_end(w, channel, seq, err));
    while (e->at_ns[e->next % e->window] >= 0)
        TRY(order_kept(w, ORDER_HAND, channel, e->next, err));
    return OK;
}

/* A message that the host carries has ended at this end; the device's clock knows. */
static enum status wait_for_host(struct worker *w, int32_t channel, int64_t seq, struct error *err)
{
    int64_t at_ns = 0;
    TRY(async_issue_settle(w, err));
    device_clock_wait(&w->clock);
    TRY(comm_thread_wait_channel(&w->comm_thread, channel, seq, &at_ns, err));
    device_clock_waited(&w->clock, at_ns);
    return OK;
}

static enum status take_receive(struct worker *w, int32_t channel, int64_t seq, struct error *err)
{
    if (is_local(w, channel)) return need_local(w, channel, seq, err);
    if (w->channel_by[channel] == TRANSPORT_DEVICE) {
        async_issue_break(w);
        return device_transport_receive(w->transport, channel, seq, err);
    }
    TRY(wait_for_host(w, channel, seq, err));
    return w->apart ? async_issue_wait(w, bounce_copied(&w->bounce, channel, seq), err) : OK;
}

static enum status wait_for_room(struct worker *w, const struct chunk *k,
                                 const struct prepared_procedure *f, int64_t seq, struct error *err)
{
    for (int32_t i = 0; i < f->n_rooms; i++) {
        const struct ring *r = &k->stage->rings[f->rooms[i]];
        if (seq < r->count) continue;
        if (is_local(w, r->sent)) {
            TRY(need_local(w, r->sent, seq - r->count, err));
        } else if (w->channel_by[r->sent] == TRANSPORT_DEVICE) {
            async_issue_break(w);
            TRY(device_transport_room(w->transport, r->sent, seq - r->count, err));
        } else {
            TRY(wait_for_host(w, r->sent, seq - r->count, err));
        }
    }
    return OK;
}

/* ---- the other instructions -------------------------------------------------------------------
 */

struct taking { /* the call at hand */
    struct chunk *chunk;
    const struct procedure *procedure;
    int32_t microbatch;
    int64_t seq; /* -1 for updates */
};

static enum status take_compute(struct worker *w, int32_t op, const struct taking *t,
                                struct error *err)
{
    const struct program_op *x = &t->chunk->stage->ops[op];
    struct prepared_op *o = &t->chunk->ops[op];
    for (int32_t i = 0; i < x->n_inputs; i++) o->call.input[i] = place_at(&o->input[i], t->seq);
    for (int32_t i = 0; i < x->n_outputs; i++) o->call.output[i] = place_at(&o->output[i], t->seq);
    if (t->microbatch >= 0)
        o->call.first_sequence = worker_first_sequence(w, t->chunk->stage, t->microbatch);
    int64_t begin_ns = device_clock_begin(&w->clock);
    if (w->apart) TRY(async_issue_begin(w, err));
    TRY(worker_activity_enter(w, err));
    if (w->backend.run(&w->backend, STREAM_COMPUTE, &o->call, err) != OK)
        return error_wrap(err, err ? err->code : ERR_RESOURCE, "operator %s", x->name);
    TRY(worker_activity_leave(w, err));
    int64_t end_ns = w->apart ? 0 : device_clock_end(&w->clock);
    if (!w->spans.a && !w->ahead.timed) return OK;
    struct span s = {.kind = SPAN_COMPUTE,
                     .stream = STREAM_compute,
                     .device = w->rank,
                     .peer = -1,
                     .stage = t->chunk->index,
                     .letter = t->procedure->letter,
                     .step = (int32_t)w->step,
                     .microbatch = t->microbatch,
                     .op = op,
                     .begin_ns = begin_ns,
                     .end_ns = end_ns,
                     .key = x->key,
                     .bytes = op_bytes_read(x->kind, &x->attrs, &x->shapes, x->dtype) +
                              op_bytes_written(x->kind, &x->attrs, &x->shapes, x->dtype)};
    if (w->apart) return async_issue_end(w, &s, &o->call, err);
    if (x->kind == OP_gating) TRY(worker_routing(w, &o->call, &s.uneven_ppm, err));
    span_list_add(&w->spans, s);
    return OK;
}

void worker_note_loss(struct worker *w, int64_t step, const struct async_issue_loss *l,
                      const void *value)
{
    const struct program_stage *stage = l->stage;
    float single = 0;
    double loss = 0;
    if (l->dtype == DTYPE_fp64)
        memcpy(&loss, value, sizeof loss);
    else
        memcpy(&single, value, sizeof single), loss = (double)single;
    if (!isfinite(loss) && w->bad_step < 0) w->bad_step = step;
    /* All ranks' are added up in the end. */
    if (stage->shares_loss) loss *= stage->loss_share;
    if (stage->sequences) loss *= (double)stage->sequences / (double)w->p->microbatch;
    w->losses[step * w->p->microbatches + stage->first_microbatch + l->microbatch] = loss;
}

static enum status take_loss(struct worker *w, int32_t slot, const struct taking *t,
                             struct error *err)
{
    char value[sizeof(double)];
    struct async_issue_loss l = {t->chunk->stage, t->microbatch,
                                 t->chunk->stage->slots[slot].dtype};
    const void *from = lane_memory_slot(&t->chunk->memory, slot, t->seq);
    if (w->apart) return async_issue_loss(w, &l, from, err);
    TRY(w->backend.download(&w->backend, value, from, dtype_bytes(l.dtype), err));
    worker_note_loss(w, w->step, &l, value);
    return OK;
}

static enum status take_reduce(struct worker *w, int32_t group, char letter, int64_t seq,
                               struct error *err)
{
    struct launches *n = &w->launches[group];
    int32_t after;
    TRY(async_issue_settle(w, err));
    device_clock_pace(&w->clock);
    n->times = n->number && n->step == w->step ? n->times + 1 : 0;
    n->step = w->step;
    int64_t number = n->number++;
    if (w->apart && w->group_by[group] == TRANSPORT_LOCAL) return worker_local_sum(w, group, err);
    if (w->group_by[group] == TRANSPORT_DEVICE) {
        TRY(async_issue_keep_pace(w, w->p->collectives[group].n_members, err));
        return device_transport_reduce(w->transport, group, number, w->step, n->times, seq, letter,
                                       err);
    }
    TRY(mark(w, true, &after, err));
    comm_thread_order(&w->comm_thread,
                      (struct comm_thread_order){.kind = ORDER_REDUCE,
                                                 .index = group,
                                                 .number = number,
                                                 .step = w->step,
                                                 .times = n->times,
                                                 .seq = seq,
                                                 .letter = letter,
                                                 .at_ns = device_clock_now(&w->clock),
                                                 .after = after});
    return OK;
}

static enum status take_await(struct worker *w, int32_t group, struct error *err)
{
    int64_t end_ns = 0;
    int64_t last = collective_repeats(&w->p->collectives[group]) && w->launches[group].number
                       ? w->launches[group].number - 1
                       : w->step;
    if (w->apart && w->group_by[group] == TRANSPORT_LOCAL) return OK;
    if (w->group_by[group] == TRANSPORT_DEVICE) {
        async_issue_break(w);
        return device_transport_await(w->transport, group, last, err);
    }
    TRY(async_issue_settle(w, err));
    device_clock_wait(&w->clock);
    TRY(comm_thread_wait_group(&w->comm_thread, group, last, &end_ns, err));
    device_clock_waited(&w->clock, end_ns);
    return w->apart ? async_issue_wait(w, bounce_given(&w->bounce, group), err) : OK;
}

static enum status take(struct worker *w, const struct instr *x, const struct taking *t,
                        struct error *err)
{
    comm_alive(w->comm);
    switch (x->kind) {
    case INSTR_COMPUTE:
        return take_compute(w, x->arg, t, err);
    case INSTR_RECEIVE:
        return take_receive(w, x->arg, t->seq, err);
    case INSTR_SEND:
        return take_send(w, x->arg, t->seq, err);
    case INSTR_COLLECTIVE_START:
        return take_reduce(w, x->arg, 'U', -1, err);
    case INSTR_COLLECTIVE_WAIT:
        return take_await(w, x->arg, err);
    case INSTR_LOAD:
        return worker_load(w, t->chunk, t->microbatch, t->seq, err);
    case INSTR_LOSS:
        return take_loss(w, x->arg, t, err);
    case INSTR_COLLECTIVE:
        TRY(take_reduce(w, x->arg, t->procedure->letter, t->seq, err));
        return take_await(w, x->arg, err);
    case INSTR_KIND_COUNT:
        break;
    }
    BUG("instruction %d", (int)x->kind);
}

static enum status end_call(struct worker *w, struct chunk *k, const struct prepared_procedure *f,
                            int64_t seq, struct error *err)
{
    if (!w->apart) TRY(w->backend.finish(&w->backend, err));
    TRY(async_issue_settle(w, err));
    device_clock_pace(&w->clock);
    if (!w->apart || !f->reads_inputs || seq < 0) return OK;
    k->read_seq[seq % k->reading] = seq;
    return w->backend.event_record(&w->backend, k->read[seq % k->reading], STREAM_COMPUTE, err);
}

static enum status take_call(struct worker *w, const struct call *c, struct error *err)
{
    struct chunk *k = &w->chunks[c->chunk];
    const struct prepared_procedure *f = &k->procedures[c->procedure];
    struct taking t = {k, &k->stage->procedures[c->procedure], c->microbatch, -1};
    if (c->microbatch >= 0) t.seq = w->step * k->stage->microbatches + c->microbatch;
    TRY(wait_for_room(w, k, f, t.seq, err));
    for (int32_t i = 0; i < t.procedure->n_instrs; i++)
        TRY(take(w, &t.procedure->instrs[i], &t, err));
    TRY(end_call(w, k, f, t.seq, err));
    for (int32_t i = 0; i < f->n_receives; i++) TRY(post_next(w, f->receives[i], t.seq, err));
    return OK;
}

/* When this rank ended its last update so far; without any, its calls. */
static enum status note_update(struct worker *w, struct error *err)
{
    if (w->apart) TRY(async_issue_updated(w, err));
    if (!w->apart || w->clock.slowdown > 0)
        w->step_end_ns[w->step] = clock_wall_ns() - w->clock.zero_ns;
    return OK;
}

enum status worker_step(struct worker *w, struct error *err)
{
    struct cursor cursor;
    struct call call;
    bool updated = false;
    int64_t skipped = w->scales ? 0 : (int64_t)w->scale_before[LOSS_SCALE_SKIPPED];
    w->optimizer.step = w->first_step + w->step + 1 - skipped; /* a loss scale counts its own */
    cursor_start(&cursor, &w->p->orders[w->p->lanes[w->rank].order]);
    while (cursor_next(&cursor, &call)) {
        TRY(take_call(w, &call, err));
        bool update = w->chunks[call.chunk].stage->procedures[call.procedure].letter == 'U';
        if (update || !updated) TRY(note_update(w, err));
        updated = updated || update;
    }
    TRY(worker_see_scale(w, err));
    return w->apart ? async_issue_step_asked(w, err) : OK;
}
