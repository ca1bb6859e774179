/* exec/worker_steps.c - the compute thread: takes a lane's instructions word by word
 * (core/program.h). */
#include "exec/worker_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- preparation ------------------------------------------------------------------------------
 */

/* In half precision some operands are fp32: statistics, gradients, masters. What is fp32 throughout is called so. */
static void prepare_dtypes(const struct program_stage *s, const struct program_op *x,
                           struct op_call *c)
{
    uint32_t wide_input = 0, wide_output = 0;
    enum dtype half = DTYPE_COUNT;
    for (int32_t i = 0; i < x->n_inputs; i++) {
        enum dtype t = s->slots[x->input[i]].dtype;
        if (dtype_is_half(t)) half = t;
        wide_input |= (uint32_t)(t == DTYPE_fp32) << i;
    }
    for (int32_t i = 0; i < x->n_outputs; i++) {
        enum dtype t = s->slots[x->output[i]].dtype;
        if (dtype_is_half(t)) half = t;
        wide_output |= (uint32_t)(t == DTYPE_fp32) << i;
    }
    if (half == DTYPE_COUNT) {
        if (dtype_is_half(c->dtype)) c->dtype = DTYPE_fp32;
        return;
    }
    c->dtype = half, c->wide_input = wide_input, c->wide_output = wide_output;
}

static void prepare_op(struct worker *w, struct chunk *k, int32_t op)
{
    const struct program_op *x = &k->stage->ops[op];
    struct prepared_op *o = &k->ops[op];
    o->call = (struct op_call){.kind = x->kind,
                               .dtype = x->dtype,
                               .attrs = &x->attrs,
                               .shapes = &x->shapes,
                               .optimizer = x->phase == PHASE_U ? &w->optimizer : NULL,
                               .seed = w->p->seed};
    prepare_dtypes(k->stage, x, &o->call);
    for (int32_t i = 0; i < x->n_inputs; i++)
        o->input[i] = lane_memory_place(&k->memory, x->input[i]);
    for (int32_t i = 0; i < x->n_outputs; i++)
        o->output[i] = lane_memory_place(&k->memory, x->output[i]);
}

static void prepare_procedure(struct worker *w, struct chunk *k, int32_t procedure)
{
    const struct program_stage *s = k->stage;
    const struct procedure *f = &s->procedures[procedure];
    struct prepared_procedure *x = &k->procedures[procedure];
    x->rooms = ARENA_ARRAY(w->run, int32_t, (size_t)s->n_rings + 1);
    x->receives = ARENA_ARRAY(w->run, int32_t, (size_t)f->n_instrs + 1);
    for (int32_t r = 0; r < s->n_rings; r++)
        if (s->rings[r].sent >= 0 && procedure_writes_ring(s, f, r)) x->rooms[x->n_rooms++] = r;
    for (int32_t i = 0; i < f->n_instrs; i++)
        if (f->instrs[i].kind == INSTR_RECEIVE) x->receives[x->n_receives++] = f->instrs[i].arg;
}

/* The chunk of this rank that is the stage; NULL where it is another rank's. */
static struct chunk *chunk_of(const struct worker *w, int32_t stage)
{
    for (int32_t i = 0; i < w->n_chunks; i++)
        if (w->chunks[i].index == stage) return &w->chunks[i];
    return NULL;
}

static int64_t *unknown(struct worker *w, int64_t n)
{
    int64_t *at = ARENA_ARRAY(w->run, int64_t, (size_t)n);
    for (int64_t i = 0; i < n; i++) at[i] = -1;
    return at;
}

static void prepare_end(struct worker *w, int32_t channel)
{
    const struct channel *c = &w->p->channels[channel];
    const struct chunk *from = chunk_of(w, c->from_stage), *to = chunk_of(w, c->to_stage);
    struct channel_end *e = &w->ends[channel];
    if (!from && !to) return;
    e->window = 2 * (int64_t)(from ? from : to)->stage->microbatches + c->receive_ahead;
    e->place = from ? lane_memory_place(&from->memory, c->from_slot)
                    : lane_memory_place(&to->memory, c->to_slot);
    if (!from || !to) {
        e->at_ns = unknown(w, e->window);
        return;
    }
    e->to = lane_memory_place(&to->memory, c->to_slot);
    e->handed = unknown(w, e->window), e->posted = unknown(w, e->window);
    for (int64_t seq = 0; seq < c->receive_ahead; seq++) e->posted[seq] = seq;
}

static void prepare_meeting(struct worker *w, const struct chunk *k, int32_t group, int32_t member)
{
    const struct meeting *m = w->p->groups[group].meeting;
    struct meeting_operands *o = ARENA_ARRAY(w->run, struct meeting_operands, 1);
    o->in = lane_memory_place(&k->memory, m->in[member]);
    o->out = lane_memory_place(&k->memory, m->out[member]);
    o->from = ARENA_ARRAY(w->run, struct region, (size_t)m->n);
    o->into = ARENA_ARRAY(w->run, struct region, (size_t)m->n);
    for (int32_t i = 0; m->kind != MEETING_all_reduce && i < m->n; i++) {
        o->from[i] = meeting_from(w->run, m, member, i);
        o->into[i] = meeting_into(w->run, m, i, member);
    }
    mover_member(&w->mover,
                 (struct collective_member){.group = group, .member = member, .meeting = o},
                 k->memory.staging);
}

struct joining { /* pieces of a member, neighbours in memory joined */
    struct collective_member *x;
    size_t capacity;
    struct arena *a;
    char *slot;
    int64_t size; /* of an element */
    bool apart;   /* not joined */
};

static void add_piece(void *owner, int64_t first, int64_t packed, int64_t n)
{
    (void)packed;
    struct joining *j = owner;
    struct collective_member *x = j->x;
    char *data = j->slot + first * j->size;
    struct piece *last = x->n_pieces ? &x->pieces[x->n_pieces - 1] : NULL;
    if (last && !j->apart && last->data + last->elements * j->size == data) {
        last->elements += n;
        return;
    }
    x->pieces = arena_grow(j->a, x->pieces, (size_t)x->n_pieces, &j->capacity, sizeof *x->pieces);
    x->pieces[x->n_pieces++] = (struct piece){data, n};
}

static void prepare_group(struct worker *w, const struct chunk *k, int32_t group, int32_t member)
{
    const struct group *g = &w->p->groups[group];
    const struct group_member *m = &g->members[member];
    const struct program_stage *s = k->stage;
    struct collective_member x = {
        .group = group, .member = member, .microbatches = s->microbatches};
    struct joining j = {&x,   (size_t)m->n_segments + 1, w->run,
                        NULL, dtype_bytes(g->dtype),     group_divides(g)};
    x.pieces = ARENA_ARRAY(w->run, struct piece, j.capacity);
    for (int32_t i = 0; i < m->n_segments; i++) {
        j.slot = lane_memory_slot(&k->memory, m->segments[i], 0);
        if (m->within && m->within[i].n_dims)
            region_walk(&m->within[i], add_piece, &j);
        else
            add_piece(&j, 0, 0, shape_elements(&s->slots[m->segments[i]].shape));
    }
    if (m->own) x.own = ARENA_ARRAY(w->run, char *, (size_t)m->n_segments + 1);
    for (int32_t i = 0; m->own && i < m->n_segments; i++)
        x.own[i] = lane_memory_slot(&k->memory, m->own[i], 0);
    if (m->apart >= 0) {
        x.ring = k->memory.ring[m->apart];
        x.ring_count = s->rings[m->apart].count;
        x.ring_stride = s->rings[m->apart].stride_bytes;
        x.apart = ARENA_ARRAY(w->run, struct piece, (size_t)m->n_segments + 1);
        for (int32_t i = 0; i < m->n_segments; i++) {
            const struct slot *slot = &s->slots[m->apart_segments[i]];
            x.apart[x.n_apart++] =
                (struct piece){(char *)(intptr_t)slot->offset_bytes, shape_elements(&slot->shape)};
        }
    }
    mover_member(&w->mover, x, k->memory.staging);
}

static void prepare_chunk(struct worker *w, struct chunk *k)
{
    const struct program_stage *s = k->stage;
    k->ops = ARENA_ARRAY(w->run, struct prepared_op, (size_t)s->n_ops + 1);
    k->procedures = ARENA_ARRAY(w->run, struct prepared_procedure, (size_t)s->n_procedures + 1);
    for (int32_t i = 0; i < s->n_ops; i++) prepare_op(w, k, i);
    for (int32_t i = 0; i < s->n_procedures; i++) prepare_procedure(w, k, i);
}

void worker_prepare(struct worker *w)
{
    w->ends = ARENA_ARRAY(w->run, struct channel_end, (size_t)w->p->n_channels + 1);
    w->launches = ARENA_ARRAY(w->run, struct launches, (size_t)w->p->n_groups + 1);
    for (int32_t i = 0; i < w->n_chunks; i++) prepare_chunk(w, &w->chunks[i]);
    for (int32_t i = 0; i < w->p->n_channels; i++) prepare_end(w, i);
    for (int32_t g = 0; g < w->p->n_groups; g++)
        for (int32_t i = 0; i < w->p->groups[g].n_members; i++) {
            const struct chunk *k = chunk_of(w, w->p->groups[g].members[i].stage);
            if (k && w->p->groups[g].meeting)
                prepare_meeting(w, k, g, i);
            else if (k)
                prepare_group(w, k, g, i);
        }
}

/* ---- messages ---------------------------------------------------------------------------------
 */

/* Between two chunks of this device. */
static bool is_local(const struct worker *w, int32_t channel)
{
    return w->ends[channel].handed != NULL;
}

/* By the rules of program.h a copy is due when it is handed over and posted, whichever comes last; both come from this
 * thread, so whoever needs the message after that never waits. */
static void copy_local(struct worker *w, int32_t channel, int64_t seq)
{
    struct channel_end *e = &w->ends[channel];
    if (e->handed[seq % e->window] != seq || e->posted[seq % e->window] != seq) return;
    memcpy(place_at(&e->to, seq), place_at(&e->place, seq), (size_t)w->p->channels[channel].bytes);
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

static void order_message(struct worker *w, enum mover_order_kind kind, int32_t channel,
                          int64_t number, int64_t at_ns)
{
    mover_order(&w->mover, (struct mover_order){.kind = kind,
                                                .index = channel,
                                                .number = number,
                                                .data = place_at(&w->ends[channel].place, number),
                                                .bytes = w->p->channels[channel].bytes,
                                                .at_ns = at_ns});
}

static int64_t total_messages(const struct worker *w, int32_t channel)
{
    return w->o->steps * w->p->stages[w->p->channels[channel].to_stage].microbatches;
}

void worker_post_first(struct worker *w)
{
    for (int32_t i = 0; i < w->p->n_channels; i++) {
        const struct channel *c = &w->p->channels[i];
        if (w->p->stages[c->to_stage].device != w->rank || is_local(w, i)) continue;
        while (w->ends[i].next < c->receive_ahead && w->ends[i].next < total_messages(w, i))
            order_message(w, ORDER_POST, i, w->ends[i].next++, 0);
    }
}

/* The call that consumed message seq has ended: room for the one receive_ahead later, in the order
 * of numbers. */
static void post_next(struct worker *w, int32_t channel, int64_t seq)
{
    struct channel_end *e = &w->ends[channel];
    int32_t ahead = w->p->channels[channel].receive_ahead;
    if (is_local(w, channel)) {
        e->posted[(seq + ahead) % e->window] = seq + ahead;
        copy_local(w, channel, seq + ahead);
        return;
    }
    e->at_ns[seq % e->window] = device_clock_now(&w->clock);
    while (e->next < total_messages(w, channel) && e->at_ns[(e->next - ahead) % e->window] >= 0) {
        int64_t *posted = &e->at_ns[(e->next - ahead) % e->window];
        order_message(w, ORDER_POST, channel, e->next++, *posted);
        *posted = -1;
    }
}

static void take_send(struct worker *w, int32_t channel, int64_t seq)
{
    struct channel_end *e = &w->ends[channel];
    if (is_local(w, channel)) {
        e->handed[seq % e->window] = seq;
        copy_local(w, channel, seq);
        return;
    }
    device_clock_pace(&w->clock);
    e->at_ns[seq % e->window] = device_clock_now(&w->clock);
    while (e->at_ns[e->next % e->window] >= 0) {
        int64_t *handed = &e->at_ns[e->next % e->window];
        order_message(w, ORDER_HAND, channel, e->next++, *handed);
        *handed = -1;
    }
}

static enum status take_receive(struct worker *w, int32_t channel, int64_t seq, struct error *err)
{
    int64_t at_ns = 0;
    if (is_local(w, channel)) return need_local(w, channel, seq, err);
    device_clock_wait(&w->clock);
    TRY(mover_wait_channel(&w->mover, channel, seq, &at_ns, err));
    device_clock_waited(&w->clock, at_ns);
    return OK;
}

static enum status wait_for_room(struct worker *w, const struct chunk *k,
                                 const struct prepared_procedure *f, int64_t seq, struct error *err)
{
    for (int32_t i = 0; i < f->n_rooms; i++) {
        const struct ring *r = &k->stage->rings[f->rooms[i]];
        int64_t left_ns = 0;
        if (seq < r->count) continue;
        if (is_local(w, r->sent)) {
            TRY(need_local(w, r->sent, seq - r->count, err));
            continue;
        }
        device_clock_wait(&w->clock);
        TRY(mover_wait_channel(&w->mover, r->sent, seq - r->count, &left_ns, err));
        device_clock_waited(&w->clock, left_ns);
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
    if (w->backend.run(&w->backend, STREAM_COMPUTE, &o->call, err) != OK)
        return error_wrap(err, err ? err->code : ERR_RESOURCE, "operator %s", x->name);
    int64_t end_ns = device_clock_end(&w->clock);
    if (!w->spans.a) return OK;
    int32_t uneven = 0;
    if (x->kind == OP_gating) TRY(worker_routing(w, &o->call, &uneven, err));
    span_list_add(
        &w->spans,
        (struct span){.kind = SPAN_COMPUTE,
                      .uneven_ppm = uneven,
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
                               op_bytes_written(x->kind, &x->attrs, &x->shapes, x->dtype)});
    return OK;
}

static enum status take_loss(struct worker *w, int32_t slot, const struct taking *t,
                             struct error *err)
{
    union {
        float single;
        double whole;
    } value;
    const struct program_stage *stage = t->chunk->stage;
    const struct slot *s = &stage->slots[slot];
    TRY(w->backend.download(&w->backend, &value, lane_memory_slot(&t->chunk->memory, slot, t->seq),
                            dtype_bytes(s->dtype), err));
    double loss = s->dtype == DTYPE_fp64 ? value.whole : (double)value.single;
    if (!isfinite(loss) && w->bad_step < 0) w->bad_step = w->step;
    /* All ranks' are added up in the end. */
    if (stage->shares_loss) loss *= stage->loss_share;
    if (stage->sequences) loss *= (double)stage->sequences / (double)w->p->microbatch;
    w->losses[w->step * w->p->microbatches + stage->first_microbatch + t->microbatch] = loss;
    return OK;
}

static void take_reduce(struct worker *w, int32_t group, char letter, int64_t seq)
{
    struct launches *n = &w->launches[group];
    device_clock_pace(&w->clock);
    n->times = n->number && n->step == w->step ? n->times + 1 : 0;
    n->step = w->step;
    mover_order(&w->mover, (struct mover_order){.kind = ORDER_REDUCE,
                                                .index = group,
                                                .number = n->number++,
                                                .step = w->step,
                                                .times = n->times,
                                                .seq = seq,
                                                .letter = letter,
                                                .at_ns = device_clock_now(&w->clock)});
}

static enum status take_await(struct worker *w, int32_t group, struct error *err)
{
    int64_t end_ns = 0;
    device_clock_wait(&w->clock);
    int64_t last = group_repeats(&w->p->groups[group]) && w->launches[group].number
                       ? w->launches[group].number - 1
                       : w->step;
    TRY(mover_wait_group(&w->mover, group, last, &end_ns, err));
    device_clock_waited(&w->clock, end_ns);
    return OK;
}

static enum status take(struct worker *w, const struct instr *x, const struct taking *t,
                        struct error *err)
{
    switch (x->kind) {
    case INSTR_COMPUTE:
        return take_compute(w, x->arg, t, err);
    case INSTR_RECEIVE:
        return take_receive(w, x->arg, t->seq, err);
    case INSTR_SEND:
        take_send(w, x->arg, t->seq);
        return OK;
    case INSTR_REDUCE:
        take_reduce(w, x->arg, 'U', -1);
        return OK;
    case INSTR_AWAIT:
        return take_await(w, x->arg, err);
    case INSTR_LOAD:
        return worker_load(w, t->chunk, t->microbatch, t->seq, err);
    case INSTR_LOSS:
        return take_loss(w, x->arg, t, err);
    case INSTR_COLLECT:
        take_reduce(w, x->arg, t->procedure->letter, t->seq);
        return take_await(w, x->arg, err);
    case INSTR_KIND_COUNT:
        break;
    }
    BUG("instruction %d", (int)x->kind);
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
    TRY(w->backend.finish(&w->backend, err));
    device_clock_pace(&w->clock);
    for (int32_t i = 0; i < f->n_receives; i++) post_next(w, f->receives[i], t.seq);
    return OK;
}

enum status worker_step(struct worker *w, struct error *err)
{
    struct cursor cursor;
    struct call call;
    bool updated = false;
    w->optimizer.step = w->first_step + w->step + 1;
    cursor_start(&cursor, &w->p->orders[w->p->lanes[w->rank].order]);
    while (cursor_next(&cursor, &call)) {
        TRY(take_call(w, &call, err));
        bool update = w->chunks[call.chunk].stage->procedures[call.procedure].letter == 'U';
        if (update || !updated) w->step_end_ns[w->step] = clock_wall_ns() - w->clock.zero_ns;
        updated = updated || update;
    }
    return OK;
}
