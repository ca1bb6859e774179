/* exec/worker/steps.c - the compute thread's interpreter of a lane's instructions (core/program/program.h).
 *
 * On a host lane an instruction is complete when its call returns. On a discrete device it is issued and the thread
 * goes on (exec/worker/async_issue.h); events keep the order, and the thread itself waits only for messages through
 * the host and their buffers. Messages are in exec/worker/channel_ends.c. */
#include "exec/worker/internal.h"

#include "core/program/ahead.h"
#include "core/program/period.h"
#include "exec/worker/routing.h"

/* ---- instructions ----------------------------------------------------------------------------- */

struct taking { /* the current call */
    struct chunk *chunk;
    const struct procedure *procedure;
    int32_t index; /* of the chunk */
    int32_t microbatch;
    int64_t seq; /* -1 for updates */
    int64_t step;    /* of this run; on a parameter server the worker's */
    int64_t message; /* number of messages: seq, of updates the step */
    bool dropped;    /* no operators are executed */
};

/* The device's clock stops meanwhile. */
static enum status measure_routing(struct worker *w, const struct op_call *c, struct span *s, struct error *err)
{
    device_clock_wait(&w->clock);
    enum status status = routing_measure(&w->routing, &w->rank.backend, s, c, &s->uneven_ppm, err);
    device_clock_waited(&w->clock, 0);
    return status;
}

static enum status load_inputs(struct worker *w, const struct taking *t, struct error *err)
{
    int64_t begin_ns = clock_wall_ns();
    TRY(inputs_load(&w->inputs, t->chunk, t->seq, err));
    int64_t ns = clock_wall_ns() - begin_ns;
    straggler_inputs(w->stragglers, t->step, ns);
    if (!w->progress.evaluates) reports_data(&w->reports, ns);
    return OK;
}

static enum status take_compute(struct worker *w, int32_t op, const struct taking *t,
                                struct error *err)
{
    const struct program_op *x = &t->chunk->stage->ops[op];
    struct prepared_op *o = w->progress.evaluates ? &t->chunk->evaluated[op] : &t->chunk->ops[op];
    for (int32_t i = 0; i < x->n_inputs; i++) o->call.input[i] = place_at(&o->input[i], t->seq);
    for (int32_t i = 0; i < x->n_outputs; i++) o->call.output[i] = place_at(&o->output[i], t->seq);
    if (t->microbatch >= 0)
        o->call.first_sequence = inputs_first_sequence(&w->inputs, t->chunk->stage, t->seq);
    int64_t begin_ns = device_clock_begin(&w->clock);
    if (w->rank.discrete) TRY(async_issue_begin(&w->ahead, err));
    TRY(kernel_spans_enter(&w->kernels, err));
    if (w->rank.backend.run(&w->rank.backend, STREAM_COMPUTE, &o->call, err) != OK)
        return error_wrap(err, err ? err->code : ERR_RESOURCE, "operator %s", x->name);
    TRY(kernel_spans_leave(&w->kernels, err));
    int64_t end_ns = w->rank.discrete ? 0 : device_clock_end(&w->clock);
    if (!w->rank.discrete) straggler_operator(w->stragglers, t->step, end_ns - begin_ns);
    if (!w->rank.discrete && !w->progress.evaluates) reports_compute(&w->reports, end_ns - begin_ns);
    if (!w->spans.a && !async_issue_timed(&w->ahead)) return OK;
    struct span s = {.kind = SPAN_COMPUTE,
                     .stream = STREAM_compute,
                     .device = w->rank.index,
                     .peer = -1,
                     .stage = t->chunk->index,
                     .phase = t->procedure->phase,
                     .step = (int32_t)t->step,
                     .microbatch = t->microbatch,
                     .op = op,
                     .begin_ns = begin_ns,
                     .end_ns = end_ns,
                     .key = x->key,
                     .bytes = op_bytes_read(x->kind, &x->attrs, &x->shapes, x->dtype) +
                              op_bytes_written(x->kind, &x->attrs, &x->shapes, x->dtype)};
    if (w->rank.discrete) return async_issue_end(&w->ahead, &s, &o->call, err);
    if (x->kind == OP_gating) TRY(measure_routing(w, &o->call, &s, err));
    span_list_add(&w->spans, s);
    return OK;
}

static enum status take_loss(struct worker *w, int32_t slot, const struct taking *t,
                             struct error *err)
{
    char value[sizeof(double)];
    struct step_loss l = {t->chunk->stage, t->microbatch, t->chunk->stage->slots[slot].dtype};
    const void *from = lane_memory_slot(&t->chunk->memory, slot, t->seq);
    if (w->progress.evaluates) return evaluate_loss(w, t->step, &l, from, err);
    if (w->rank.discrete) return async_issue_loss(&w->ahead, t->step, &l, from, err);
    TRY(w->rank.backend.download(&w->rank.backend, value, from, dtype_bytes(l.dtype), err));
    step_log_loss(&w->log, &w->rank, t->step, &l, value);
    return OK;
}

static enum status take_reduce(struct worker *w, int32_t group, enum phase phase, int64_t seq,
                               struct error *err)
{
    struct launches *n = &w->launches[group];
    int32_t after;
    TRY(async_issue_settle(&w->ahead, err));
    device_clock_pace(&w->clock);
    n->times = n->number && n->step == w->progress.step ? n->times + 1 : 0;
    n->step = w->progress.step;
    int64_t number = n->number++;
    if (w->rank.discrete && w->transports.group[group] == TRANSPORT_LOCAL) {
        async_issue_break(&w->ahead);
        return local_sums_run(&w->reduces, &w->rank, group, err);
    }
    if (w->transports.group[group] == TRANSPORT_DEVICE) {
        TRY(async_issue_keep_pace(&w->ahead, w->rank.p->collectives[group].n_members, err));
        return device_transport_reduce(w->transports.device, group, number, w->progress.step,
                                       n->times, seq, phase, err);
    }
    TRY(transports_mark(&w->transports, &w->rank, &after, err));
    comm_thread_order(&w->transports.comm_thread,
                      (struct comm_thread_order){.kind = ORDER_REDUCE,
                                                 .index = group,
                                                 .number = number,
                                                 .step = w->progress.step,
                                                 .times = n->times,
                                                 .seq = seq,
                                                 .phase = phase,
                                                 .at_ns = device_clock_now(&w->clock),
                                                 .after = after});
    return OK;
}

static enum status take_await(struct worker *w, int32_t group, struct error *err)
{
    int64_t end_ns = 0;
    bool repeats = program_collective_repeats(&w->rank.p->collectives[group]);
    int64_t last = repeats ? w->launches[group].number - 1 : w->progress.step;
    if (last < 0) return OK; /* its sum was in flight in a checkpoint, which has it */
    if (w->rank.discrete && w->transports.group[group] == TRANSPORT_LOCAL) return OK;
    if (w->transports.group[group] == TRANSPORT_DEVICE) {
        async_issue_break(&w->ahead);
        return device_transport_await(w->transports.device, group, last, err);
    }
    TRY(async_issue_settle(&w->ahead, err));
    device_clock_wait(&w->clock);
    TRY(comm_thread_wait_group(&w->transports.comm_thread, group, last, &end_ns, err));
    device_clock_waited(&w->clock, end_ns);
    return w->rank.discrete
               ? async_issue_wait(&w->ahead, bounce_given(&w->transports.bounce, group), err)
               : OK;
}

static enum status take(struct worker *w, const struct instr *x, const struct taking *t,
                        struct error *err)
{
    comm_alive(w->rank.comm);
    switch (x->kind) {
    case INSTR_COMPUTE:
        return t->dropped ? OK : take_compute(w, x->arg, t, err);
    case INSTR_RECEIVE:
        return channel_ends_receive(&w->ends, x->arg, t->message, err);
    case INSTR_SEND:
        return channel_ends_send(&w->ends, x->arg, t->message, err);
    case INSTR_COLLECTIVE_START:
        return take_reduce(w, x->arg, 'U', -1, err);
    case INSTR_COLLECTIVE_WAIT:
        return take_await(w, x->arg, err);
    case INSTR_LOAD:
        return load_inputs(w, t, err);
    case INSTR_LOSS:
        return take_loss(w, x->arg, t, err);
    case INSTR_COLLECTIVE:
        TRY(take_reduce(w, x->arg, t->procedure->phase, t->seq, err));
        return take_await(w, x->arg, err);
    case INSTR_OFFLOAD:
        return w->progress.evaluates ? OK : offloads_out(&w->offloads, t->index, t->seq, x->arg, err);
    case INSTR_FETCH:
        return offloads_fetch(&w->offloads, t->index, t->seq, x->arg, err);
    case INSTR_KIND_COUNT:
        break;
    }
    BUG("instruction %d", (int)x->kind);
}

static enum status end_call(struct worker *w, const struct chunk *k,
                            const struct prepared_procedure *f, int64_t seq, struct error *err)
{
    if (!w->rank.discrete) TRY(w->rank.backend.finish(&w->rank.backend, err));
    TRY(async_issue_settle(&w->ahead, err));
    device_clock_pace(&w->clock);
    if (!w->rank.discrete || !f->reads_inputs || seq < 0) return OK;
    return inputs_read(&w->inputs, k, seq, err);
}

enum status worker_call(struct worker *w, const struct call *c, int64_t step, bool dropped, struct error *err)
{
    struct chunk *k = &w->chunks.at[c->chunk];
    const struct prepared_procedure *f = &k->procedures[c->procedure];
    struct taking t = {k, &k->stage->procedures[c->procedure], c->chunk, c->microbatch, -1, step, step - w->progress.begun, dropped};
    if (c->microbatch >= 0) t.message = t.seq = progress_message(&w->progress, step, k->stage->microbatches) + c->microbatch;
    for (int32_t i = 0; i < f->n_rooms; i++)
        TRY(channel_ends_wait_for_room(&w->ends, &k->stage->buffer_rings[f->rooms[i]], t.seq, err));
    if (f->offloads && !w->progress.evaluates) TRY(offloads_room(&w->offloads, c->chunk, t.seq, err));
    for (int32_t i = 0; i < t.procedure->n_instrs; i++)
        TRY(take(w, &t.procedure->instrs[i], &t, err));
    TRY(end_call(w, k, f, t.seq, err));
    for (int32_t i = 0; i < f->n_receives; i++)
        TRY(channel_ends_post_next(&w->ends, f->receives[i], t.message, err));
    return f->consumes ? offloads_consumed(&w->offloads, c->chunk, t.seq, err) : OK;
}

/* The end of this rank's last update so far; without any, of its calls. */
static enum status note_update(struct worker *w, struct error *err)
{
    if (w->rank.discrete) TRY(async_issue_updated(&w->ahead, err));
    if (!w->rank.discrete || w->clock.slowdown > 0)
        step_log_end(&w->log, w->progress.step, clock_wall_ns() - w->clock.zero_ns);
    return OK;
}

enum status worker_await_sums(struct worker *w, struct error *err)
{
    const struct program *p = w->rank.p;
    for (int32_t g = 0; p->outer.delay && g < p->n_collectives; g++)
        if (program_collective_repeats(&p->collectives[g]) && w->launches[g].number) TRY(take_await(w, g, err));
    return OK;
}

void worker_open_steps(struct worker *w)
{
    w->launches = ARENA_ARRAY(w->rank.run, struct launches, (size_t)w->rank.p->n_collectives + 1);
}

enum status worker_first_pass(struct worker *w, struct error *err)
{
    struct cursor cursor;
    struct call call;
    if (!ahead_on_lane(w->rank.p, w->rank.index)) return OK;
    cursor_start(&cursor, &w->rank.p->orders[w->rank.p->lanes[w->rank.index].order]);
    while (cursor_next(&cursor, &call)) {
        const struct program_stage *s = w->chunks.at[call.chunk].stage;
        if (!ahead_executes(&s->procedures[call.procedure], -1, w->progress.until)) continue;
        call.procedure = program_procedure(s, PHASE_F, "");
        TRY(worker_call(w, &call, w->progress.begun, false, err));
    }
    return OK;
}

enum status worker_step(struct worker *w, struct error *err)
{
    struct cursor cursor;
    struct call call;
    bool updated = false;
    /* a loss scale counts updates itself, and so does an island that does not update in every step */
    chunks_set_step(&w->chunks, (progress_number(&w->progress) - scale_log_skipped_before(&w->scales)) /
                                    period_of_update(&w->rank.p->outer, w->chunks.at[0].stage->island));
    w->chunks.optimizer.lr = lr_schedule_rate(&w->rank.p->optimizer.schedule, w->rank.p->optimizer.lr, progress_number(&w->progress));
    cursor_start(&cursor, &w->rank.p->orders[w->rank.p->lanes[w->rank.index].order]);
    while (cursor_next(&cursor, &call)) {
        const struct procedure *f = &w->chunks.at[call.chunk].stage->procedures[call.procedure];
        if (!procedure_runs(f, progress_number(&w->progress) - 1) || !ahead_executes(f, w->progress.step, w->progress.until)) continue;
        TRY(worker_call(w, &call, w->progress.step + ahead_steps(f), false, err));
        bool update = f->phase == PHASE_U;
        if (update || !updated) TRY(note_update(w, err));
        updated = updated || update;
    }
    TRY(scale_log_see(&w->scales, &w->rank, &w->chunks, w->progress.step, err));
    TRY(noise_log_see(&w->noise, &w->rank, &w->chunks, w->progress.step, err));
    if (w->rank.discrete) return async_issue_step_issued(&w->ahead, err);
    straggler_ended(w->stragglers, w->progress.step);
    return OK;
}
