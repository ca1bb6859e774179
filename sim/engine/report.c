/* What a simulation tells: spans of a trace, and who waits for what when nothing can go on. */
#include "sim/engine/engine.h"

#include "core/base/units.h"

#include <inttypes.h>
#include <stdio.h>

/* --- room --- */

static int64_t spans_of_call(const struct engine *e, const struct code_procedure *f)
{
    int64_t n = 0;
    for (const struct code *c = f->code; c->kind != CODE_END; c++)
        if (c->kind == CODE_COMPUTE || c->kind == CODE_FOLDED_COLLECTIVE)
            n++;
        else if (c->kind == CODE_OFFLOAD)
            n += 2; /* one copy there and one back */
        else if (c->kind == CODE_SEND)
            n += e->program->channels[c->arg].link < 0 ? 0 : 2;
        else if (c->kind == CODE_COLLECTIVE_START || c->kind == CODE_COLLECTIVE)
            n += collective_parts(&e->program->collectives[collective_named(e, c->arg)]);
    return n;
}

/* Of one step; a double, because orders may repeat calls more often than int64 counts. Chunks of a collective that are
 * empty have no span, else it is exact. */
static double spans_of_step(const struct engine *e)
{
    double n = 1;
    for (int32_t i = 0; i < e->program->n_devices; i++) {
        const struct order *o = &e->program->orders[e->program->lanes[i].order];
        const struct lane *l = &e->program->lanes[i];
        if (e->trace_replicas && !e->trace_replicas[e->program->stages[l->stages[0]].replica])
            continue;
        for (int32_t r = 0; r < o->n_runs; r++)
            for (int32_t k = 0; k < o->runs[r].n_calls; k++) {
                const struct call *c = &o->runs[r].calls[k];
                n += (double)o->runs[r].repeat *
                     (double)spans_of_call(e, &e->lanes[i].procedures[c->chunk][c->procedure]);
            }
    }
    return n;
}

enum status report_reserve(struct engine *e, const struct sim_options *o, struct error *err)
{
    double spans = e->trace_step < 0 ? (double)e->steps * spans_of_step(e)
                                     : spans_of_step(e) + (double)e->steps;
    /* sorting takes two numbers a span */
    double own = spans * (double)(sizeof(struct span) + 2 * sizeof(size_t)),
           more = o->beside_trace ? o->beside_trace(e->program, e->steps, spans) : 0;
    int64_t most = o->trace_most_bytes > 0 ? o->trace_most_bytes : SIM_TRACE_MAX_BYTES;
    char one[32], other[32], limit[32];
    if (own + more <= (double)most) {
        size_t window = o->trace_window ? o->trace_window : SIM_TRACE_WINDOW;
        if (o->trace_path && spans > (double)window)
            trace_stream(e->trace, o->trace_path, window);
        else
            trace_reserve(e->trace, (size_t)spans);
        return OK;
    }
    return error_set(
        err, ERR_RESOURCE,
        "the trace of %" PRId32 " steps has %.0f spans, which take %s of memory%s%s; "
        "at most %s are allowed (--trace-memory): simulate fewer steps, a plan of fewer "
        "microbatches, or %s",
        e->steps, spans, units_print_bytes(one, own),
        o->beside_trace ? ", and explaining them takes " : "",
        o->beside_trace ? units_print_bytes(other, more) : "",
        units_print_bytes(limit, (double)most),
        o->fold ? "without a trace" : "one of equal devices for all (--fold)");
}

/* --- spans --- */

static void record(struct engine *e, struct span s)
{
    if (e->trace_replicas && !e->trace_replicas[e->program->stages[s.stage].replica]) return;
    if (e->trace_step < 0 || s.step == e->trace_step) trace_add(e->trace, s);
}

void report_operator(struct engine *e, int32_t lane, const struct code *c, int64_t begin_ns,
                     int64_t end_ns)
{
    const struct lane_state *l = &e->lanes[lane];
    struct span s = {.kind = SPAN_COMPUTE,
                     .stream = STREAM_compute,
                     .device = lane,
                     .peer = -1,
                     .stage = l->stage,
                     .phase = l->procedure->phase,
                     .step = l->step + l->ahead,
                     .microbatch = l->call.microbatch,
                     .op = c->arg,
                     .begin_ns = begin_ns,
                     .end_ns = end_ns,
                     .name = "stage"}; /* of several operators */
    if (c->arg >= 0) {
        const struct program_op *op = &e->program->stages[l->stage].ops[c->arg];
        s.bytes = op_bytes_read(op->kind, &op->attrs, &op->shapes, op->dtype) +
                  op_bytes_written(op->kind, &op->attrs, &op->shapes, op->dtype);
        s.key = op->key;
        s.name = op_kind_name(op->kind);
    }
    record(e, s);
}

/* A copy inside a device is no span: no stream executes it. */
void report_message(struct engine *e, int32_t channel, int64_t seq, const struct passage *passage)
{
    const struct channel_state *c = &e->channels[channel];
    const struct channel *x = &e->program->channels[channel];
    if (x->link < 0) return;
    int32_t microbatches = program_channel_messages(e->program, x);
    struct span s = {.kind = SPAN_SEND,
                     .stream = STREAM_send,
                     .device = c->from_lane,
                     .peer = c->to_lane,
                     .stage = x->from_stage,
                     .phase = c->sent_by,
                     .step = (int32_t)(seq / microbatches),
                     .microbatch = x->by_step ? -1 : (int32_t)(seq % microbatches),
                     .op = channel,
                     .begin_ns = passage->start_ns,
                     .end_ns = passage->left_ns,
                     .bytes = x->bytes,
                     .name = e->program->links[x->link].name};
    record(e, s);
    s.kind = SPAN_RECEIVE, s.stream = STREAM_receive, s.device = c->to_lane, s.peer = c->from_lane;
    s.stage = x->to_stage, s.phase = c->received_by, s.end_ns = passage->arrival_ns;
    record(e, s);
}

void report_copy(struct engine *e, int32_t lane, enum span_kind kind, const struct offload_copy *copy)
{
    const struct lane_state *l = &e->lanes[lane];
    if (!e->trace) return;
    record(e, (struct span){.kind = kind,
                            .stream = kind == SPAN_OFFLOAD ? STREAM_offload : STREAM_fetch,
                            .device = lane,
                            .peer = -1,
                            .stage = l->stage,
                            .phase = kind == SPAN_OFFLOAD ? PHASE_F : PHASE_B,
                            .step = (int32_t)(copy->seq / l->microbatches),
                            .microbatch = (int32_t)(copy->seq % l->microbatches),
                            .op = copy->part,
                            .begin_ns = copy->begin_ns,
                            .end_ns = copy->end_ns,
                            .bytes = offload_bytes(&e->program->stages[l->stage]),
                            .name = "host"});
}

void report_collective(struct engine *e, int32_t lane, int32_t group, int32_t index, int32_t part,
                       int32_t step, int32_t times, int64_t begin_ns, int64_t end_ns, int64_t bytes)
{
    const struct collective *g = &e->program->collectives[group];
    int32_t link = g->link && !collective_of_tensor(g) && !g->flow_link ? g->link[index] : -1;
    enum phase phase =
        collective_of_tensor(g) ? e->lanes[lane].procedure->phase : 'U'; /* it waits in this call */
    const char *name = link >= 0 ? e->program->links[link].name : g->name;
    record(e, (struct span){.kind = SPAN_REDUCE,
                            .stream = STREAM_collective,
                            .device = lane,
                            .peer = -1,
                            .stage = g->members[index].stage,
                            .phase = phase,
                            .step = step,
                            .microbatch = program_collective_repeats(g) ? times : -1,
                            .op = group,
                            .part = part,
                            .collective = collective_of_tensor(g) ? 1 + (int32_t)g->kind : 0,
                            .begin_ns = begin_ns,
                            .end_ns = end_ns,
                            .bytes = bytes,
                            .name = name});
}

void report_same_device_collective(struct engine *e, int32_t lane, int32_t group, int64_t begin_ns, int64_t end_ns)
{
    const struct lane_state *l = &e->lanes[lane];
    const struct collective *g = &e->program->collectives[group];
    record(e, (struct span){.kind = SPAN_REDUCE,
                            .stream = STREAM_compute,
                            .device = lane,
                            .peer = -1,
                            .stage = l->stage,
                            .phase = l->procedure->phase,
                            .step = l->step,
                            .microbatch = l->call.microbatch,
                            .op = group,
                            .begin_ns = begin_ns,
                            .end_ns = end_ns,
                            .bytes = g->elements * dtype_bytes(g->dtype),
                            .name = g->name});
}

void report_steps(struct engine *e, const struct sim_result *r, const struct cost *k)
{
    struct trace *t = e->trace;
    for (int32_t s = 0; s < e->steps; s++)
        trace_add(t, (struct span){.kind = SPAN_STEP,
                                   .stream = STREAM_step,
                                   .device = e->step_last[s],
                                   .peer = -1,
                                   .stage = -1,
                                   .phase = PHASE_SEND,
                                   .step = s,
                                   .microbatch = -1,
                                   .op = -1,
                                   .begin_ns = s ? e->step_end_ns[s - 1] : 0,
                                   .end_ns = e->step_end_ns[s],
                                   .name = "step"});
    trace_sort(t);
    t->clock = "simulated";
    t->profile_id = cost_profile_id(k);
    t->iteration_ns = r->iteration_ns, t->period = e->period.n;
    if (e->period.n < e->period.every) t->period_times = e->period.times;
    t->steps = e->steps;
    for (int32_t i = 0; i < t->n_devices; i++) t->devices[i].peak_bytes = r->devices[i].peak_bytes;
}

/* --- no progress --- */

static const char *device_of_stage(const struct engine *e, int32_t stage)
{
    return e->program->devices[e->lane_of_stage[stage]].name;
}

static void describe_wait(const struct engine *e, const struct lane_state *l, char *out, size_t n)
{
    const struct program *p = e->program;
    const struct code *c = l->code;
    const char *what = c->kind == CODE_RECEIVE || c->kind == CODE_ROOM
                           ? (p->channels[c->arg].gradient ? "gradient" : "activation")
                           : "";
    int64_t seq = l->seq - (c->kind == CODE_ROOM ? c->amount : 0);
    if (c->kind == CODE_RECEIVE)
        snprintf(out, n, "%s %" PRId64 " from %s", what, seq % l->microbatches,
                 device_of_stage(e, p->channels[c->arg].from_stage));
    else if (c->kind == CODE_ROOM)
        snprintf(out, n, "%s %" PRId64 " to leave for %s", what, seq % l->microbatches,
                 device_of_stage(e, p->channels[c->arg].to_stage));
    else
        snprintf(out, n, "collective %s",
                 p->collectives[c->kind == CODE_FOLDED_COLLECTIVE ? c->arg : collective_named(e, c->arg)].name);
}

/* "a.0 at F2 (waits for activation 2 from b.0)"; empty where the lane is done. */
static void describe_lane(const struct engine *e, int32_t lane, char *out, size_t n)
{
    const struct lane_state *l = &e->lanes[lane];
    const char *name = e->program->devices[lane].name;
    char wait[120], call[64], step[24] = "", chunk[16] = "";
    out[0] = 0;
    if (!l->procedure) {
        int32_t group = collective_unfinished(e, lane);
        if (group >= 0)
            snprintf(out, n, "%s done (in collective %s)", name, e->program->collectives[group].name);
        return;
    }
    describe_wait(e, l, wait, sizeof wait);
    if (l->step + l->ahead) snprintf(step, sizeof step, " of step %" PRId32, l->step + l->ahead);
    if (e->program->lanes[lane].n_stages > 1)
        snprintf(chunk, sizeof chunk, "%" PRId32, l->call.chunk);
    if (l->call.microbatch < 0)
        snprintf(call, sizeof call, "%s%c", chunk, l->procedure->phase);
    else
        snprintf(call, sizeof call, "%s%c%" PRId32, chunk, l->procedure->phase,
                 l->call.microbatch);
    snprintf(out, n, "%s at %s%s (waits for %s)", name, call, step, wait);
}

enum status report_blocked(const struct engine *e, struct error *err)
{
    char list[360] = "", one[220];
    size_t length = 0;
    int32_t left_out = 0, blocked = 0;
    for (int32_t i = 0; i < e->program->n_devices; i++) {
        describe_lane(e, i, one, sizeof one);
        if (!one[0]) continue;
        int more = snprintf(list + length, sizeof list - length, "%s%s", length ? ", " : "", one);
        if (length + (size_t)more < sizeof list)
            length += (size_t)more;
        else
            list[length] = 0, left_out++;
        blocked++;
    }
    if (!blocked) return OK;
    if (left_out)
        return error_set(err, ERR_INPUT, "deadlock: %s and %" PRId32 " more", list,
                         left_out);
    return error_set(err, ERR_INPUT, "deadlock: %s", list);
}
