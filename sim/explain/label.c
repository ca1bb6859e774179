/* Reconstruction of a simulation: lanes follow their orders, and the trace provides every instant. Only activities without spans
 * (copies inside a device) may have to wait for another lane here; hence rounds until no lane can advance. */
#include "sim/explain/internal.h"

#include "core/base/arena.h"
#include "core/program/ahead.h"
#include "core/program/offload.h"
#include "core/program/period.h"

#include <inttypes.h>

enum stage_of_call { AT_ROOMS, AT_INSTRS, AT_END, AT_DONE };

struct walk { /* position of a lane */
    struct cursor cursor;
    struct call call;
    const struct program_stage *stage;
    const struct procedure *procedure;
    int32_t step, ordinal, stage_index; /* step: pass over the order, -1 in front of the first step */
    int32_t ahead;                      /* the call is of step + ahead (core/program/program.h) */
    enum stage_of_call at;
    int32_t next;        /* buffer ring or instruction */
    bool born;           /* its buffers are allocated */
    int64_t seq, now_ns; /* seq -1 for updates; with parameter servers, whose messages are by step, the step */
    int64_t alone_ns;    /* operators since the call began or since the last collective */
    const size_t *spans; /* compute spans of the lane, in order */
    size_t n_spans, next_span;
    struct offload_streams copies;
};

struct labelling {
    struct explanation *t;
    struct walk *walks;
    struct offload_state *offloads; /* (n_stages) */
    int64_t *copy_ns;               /* (n_stages) of one copy */
    bool ***writes; /* by stage, procedure, buffer ring: the implicit wait for a free send buffer */
    struct error *err;
    enum status status;
    struct period period;
};

static int32_t stage_of(const struct explanation *t, int32_t lane, const struct call *c)
{
    return t->program->lanes[lane].stages[c->chunk];
}

/* --- walking --- */

static struct record *label(struct explanation *t, int32_t lane, const struct walk *w,
                            enum record_kind kind, int32_t arg, int64_t seq, int64_t begin_ns)
{
    struct explained_lane *l = &t->lanes[lane];
    l->records = arena_grow(t->arena, l->records, l->n_records, &l->capacity, sizeof *l->records);
    struct record *r = &l->records[l->n_records++];
    *r = (struct record){.kind = kind,
                         .phase = w->procedure->phase,
                         .arg = arg,
                         .stage = w->stage_index,
                         .step = w->step + w->ahead,
                         .call = w->ordinal,
                         .seq = seq,
                         .begin_ns = begin_ns,
                         .end_ns = w->now_ns};
    return r;
}

static void disagree(struct labelling *g, int32_t lane, const char *what)
{
    const struct walk *w = &g->walks[lane];
    if (g->status != OK) return;
    g->status = error_set(g->err, ERR_INPUT,
                          "the trace is not of this program: %s of step %" PRId32 " at %c%" PRId32
                          ", %" PRId64 " ns: %s",
                          g->t->program->devices[lane].name, w->step + w->ahead, w->procedure->phase,
                          w->call.microbatch, w->now_ns, what);
}

/* Inside a device, messages are passed on in the order of their sends, each as soon as its receive is posted. */
static void pass_copies(struct explained_channel *c)
{
    while (c->head >= 0) {
        struct explained_message *m = &c->messages[c->head];
        int64_t when = m->handed_ns,
                posted = c->head < c->ahead ? 0 : c->messages[c->head - c->ahead].consumed_ns;
        if (posted < 0) return;
        if (posted > when) when = posted;
        if (m->before >= 0 && c->messages[m->before].left_ns > when)
            when = c->messages[m->before].left_ns;
        m->start_ns = m->left_ns = m->arrival_ns = when;
        c->head = m->after;
    }
}

static struct explained_message *message(struct labelling *g, int32_t lane, int32_t channel,
                                         int64_t seq)
{
    struct explained_channel *c = &g->t->channels[channel];
    if (seq < 0 || seq >= c->n_messages) {
        disagree(g, lane, "a message outside all steps");
        return NULL;
    }
    if (c->resource < 0) pass_copies(c);
    return &c->messages[seq];
}

/* The compute stream is idle until when_ns; recorded if that is later than now. */
static bool wait(struct labelling *g, int32_t lane, enum record_kind kind, int32_t arg, int64_t seq,
                 int64_t when_ns)
{
    struct walk *w = &g->walks[lane];
    int64_t since_ns = w->now_ns;
    if (when_ns < 0) return false;
    if (when_ns <= since_ns) return true;
    w->now_ns = when_ns;
    label(g->t, lane, w, kind, arg, seq, since_ns);
    return true;
}

static void bear(struct explanation *t, int32_t lane, struct walk *w)
{
    if (!w->born) explain_born(t, lane, w->stage_index, w->procedure->phase, w->now_ns);
    w->born = true;
}

static bool take_compute(struct labelling *g, int32_t lane, int32_t op)
{
    struct walk *w = &g->walks[lane];
    const struct span *s =
        w->next_span < w->n_spans ? &g->t->trace->spans[w->spans[w->next_span]] : NULL;
    if (!s || s->begin_ns != w->now_ns || s->op != op || s->phase != w->procedure->phase ||
        s->end_ns < s->begin_ns) {
        disagree(g, lane, s ? "the next operator's span differs" : "its spans end here");
        return false;
    }
    w->next_span++;
    w->now_ns = s->end_ns;
    w->alone_ns += s->end_ns - s->begin_ns;
    label(g->t, lane, w, RECORD_COMPUTE, op, w->seq, s->begin_ns);
    return true;
}

static bool take_send(struct labelling *g, int32_t lane, int32_t channel)
{
    struct walk *w = &g->walks[lane];
    struct explained_message *m = message(g, lane, channel, w->seq);
    struct explained_channel *c = &g->t->channels[channel];
    if (!m) return false;
    label(g->t, lane, w, RECORD_SEND, channel, w->seq, w->now_ns);
    m->handed_ns = w->now_ns;
    m->handed_record = g->t->lanes[lane].n_records - 1;
    m->before = c->last_handed;
    if (m->before >= 0) c->messages[m->before].after = w->seq;
    if (c->head < 0) c->head = w->seq;
    c->last_handed = w->seq;
    return true;
}

static bool take_reduce(struct labelling *g, int32_t lane, int32_t group)
{
    struct explanation *t = g->t;
    struct walk *w = &g->walks[lane];
    struct explained_lane *l = &t->lanes[lane];
    int32_t member = explain_member(t, group, lane);
    if (member < 0) {
        disagree(g, lane, "a collective without this member");
        return false;
    }
    int32_t *launched = &t->groups[group].launched[member], before = w->step * t->groups[group].times;
    if (*launched < before) *launched = before; /* not launched in some steps */
    int32_t launch = (*launched)++;
    if (launch >= t->steps * t->groups[group].times) {
        disagree(g, lane, "more collectives than it launches");
        return false;
    }
    label(t, lane, w, RECORD_COLLECTIVE_START, group, launch, w->now_ns);
    int64_t free_ns = l->n_runs ? l->runs[l->n_runs - 1].end_ns : 0;
    int64_t begin_ns = w->now_ns > free_ns ? w->now_ns : free_ns, end_ns = begin_ns;
    for (int32_t k = 0; k < t->groups[group].n_parts; k++) {
        const struct explained_part *part = explain_part_at(t, group, launch, member, k);
        if (part->begin_ns >= 0 && part->end_ns > end_ns) end_ns = part->end_ns;
    }
    l->runs = arena_grow(t->arena, l->runs, l->n_runs, &l->run_capacity, sizeof *l->runs);
    *explain_run_at(t, group, launch, member) = l->n_runs;
    l->runs[l->n_runs++] = (struct collective_run){.group = group,
                                                   .member = member,
                                                   .launch = launch,
                                                   .record = l->n_records - 1,
                                                   .begin_ns = begin_ns,
                                                   .end_ns = end_ns};
    return true;
}

static bool take_await(struct labelling *g, int32_t lane, int32_t group)
{
    struct walk *w = &g->walks[lane];
    int32_t member = explain_member(g->t, group, lane);
    bool several = program_collective_repeats(&g->t->program->collectives[group]);
    int32_t launch = several && member >= 0 ? g->t->groups[group].launched[member] - 1 : w->step;
    size_t run = member < 0 || launch < 0 ? SIZE_MAX : *explain_run_at(g->t, group, launch, member);
    if (run == SIZE_MAX) {
        disagree(g, lane, "a wait for a collective that was not started");
        return false;
    }
    struct collective_run *r = &g->t->lanes[lane].runs[run];
    r->wait_begin_ns = w->now_ns;
    wait(g, lane, RECORD_COLLECTIVE_WAIT, group, launch, r->end_ns);
    r->wait_end_ns = w->now_ns;
    return true;
}

/* Expected lateness before a collective (code.c). */
static bool take_tensor_collective(struct labelling *g, int32_t lane, int32_t group)
{
    struct walk *w = &g->walks[lane];
    const struct collective *m = &g->t->program->collectives[group];
    int64_t work_ns = w->alone_ns;
    w->alone_ns = 0;
    if (!m) return true;
    wait(g, lane, RECORD_LATE, group, 0,
         w->now_ns + cost_late_ns(g->t->cost, m->n_members, work_ns));
    return take_reduce(g, lane, group) && take_await(g, lane, group);
}

/* The waits of sim/engine/code.c: no other lane can delay them. */
static bool take_copied_room(struct labelling *g, int32_t lane, int32_t part)
{
    struct walk *w = &g->walks[lane];
    return wait(g, lane, RECORD_COPY, -1, w->seq, offload_room(&g->offloads[w->stage_index], w->seq, part));
}

static bool take_offload(struct labelling *g, int32_t lane, int32_t part)
{
    struct walk *w = &g->walks[lane];
    struct offload_state *x = &g->offloads[w->stage_index];
    struct offload_copies back;
    offload_out(x, &w->copies, w->seq, part, w->now_ns, g->copy_ns[w->stage_index], &back);
    return part + 1 == x->parts || take_copied_room(g, lane, part + 1);
}

static bool take_fetch(struct labelling *g, int32_t lane, int32_t part)
{
    struct walk *w = &g->walks[lane];
    struct offload_state *x = &g->offloads[w->stage_index];
    if (!wait(g, lane, RECORD_COPY, -1, w->seq, offload_arrival(x, w->seq, part))) return false;
    offload_fetched(x, &w->copies, w->seq, part, w->now_ns, g->copy_ns[w->stage_index]);
    return true;
}

/* false: it must wait for another lane, or the trace belongs to another program. */
static bool take(struct labelling *g, int32_t lane, const struct instr *x)
{
    struct walk *w = &g->walks[lane];
    if (x->kind != INSTR_RECEIVE && x->kind != INSTR_FETCH) bear(g->t, lane, w);
    switch (x->kind) {
    case INSTR_COMPUTE:
        return take_compute(g, lane, x->arg);
    case INSTR_RECEIVE: {
        const struct explained_message *m = message(g, lane, x->arg, w->seq);
        return m && wait(g, lane, RECORD_RECEIVE, x->arg, w->seq, m->arrival_ns);
    }
    case INSTR_SEND:
        return take_send(g, lane, x->arg);
    case INSTR_OFFLOAD:
        return take_offload(g, lane, x->arg);
    case INSTR_FETCH:
        return take_fetch(g, lane, x->arg);
    case INSTR_COLLECTIVE_START:
        return take_reduce(g, lane, x->arg);
    case INSTR_COLLECTIVE_WAIT:
        return take_await(g, lane, x->arg);
    case INSTR_COLLECTIVE:
        return take_tensor_collective(g, lane, x->arg);
    default:
        return true;
    }
}

static bool take_room(struct labelling *g, int32_t lane, int32_t buffer_ring)
{
    struct walk *w = &g->walks[lane];
    const struct buffer_ring *r = &w->stage->buffer_rings[buffer_ring];
    if (!g->writes[w->stage_index][w->call.procedure][buffer_ring] || w->seq < r->count)
        return true;
    const struct explained_message *m = message(g, lane, r->sent, w->seq - r->count);
    return m && wait(g, lane, RECORD_ROOM, r->sent, w->seq - r->count, m->left_ns);
}

static void end_call(struct labelling *g, int32_t lane, struct walk *w)
{
    struct explanation *t = g->t;
    bear(t, lane, w);
    label(t, lane, w, RECORD_END, w->call.procedure, w->seq, w->now_ns);
    if (offload_consumes(w->procedure))
        offload_consumed(&g->offloads[w->stage_index], &w->copies, w->seq, w->now_ns, g->copy_ns[w->stage_index]);
    for (int32_t i = 0; i < w->procedure->n_instrs; i++) {
        const struct instr *x = &w->procedure->instrs[i];
        if (x->kind != INSTR_RECEIVE || w->seq < 0) continue;
        struct explained_message *m = &t->channels[x->arg].messages[w->seq];
        m->consumed_ns = w->now_ns;
        m->consumed_record = t->lanes[lane].n_records - 1;
    }
    explain_dead(t, lane, w->stage_index, w->procedure->phase, w->now_ns);
}

static void fetch_call(struct explanation *t, int32_t lane, struct walk *w)
{
    w->ordinal++;
    while (!cursor_next(&w->cursor, &w->call)) {
        if (++w->step == t->steps) {
            w->at = AT_DONE;
            return;
        }
        w->ordinal = 0;
        cursor_start(&w->cursor, w->cursor.order);
    }
    w->stage_index = stage_of(t, lane, &w->call);
    w->stage = &t->program->stages[w->stage_index];
    w->procedure = &w->stage->procedures[w->call.procedure];
    w->ahead = ahead_steps(w->procedure);
    w->seq = w->call.microbatch < 0
                 ? (t->program->server.n ? w->step : -1)
                 : (int64_t)(w->step + w->ahead) * w->stage->microbatches + w->call.microbatch;
    w->at = AT_ROOMS, w->next = 0, w->born = false, w->alone_ns = 0;
}

static void next_call(struct labelling *g, int32_t lane, struct walk *w)
{
    do fetch_call(g->t, lane, w);
    while (w->at != AT_DONE && (!ahead_executes(w->procedure, w->step, g->t->steps) ||
                                (w->step >= 0 && !procedure_runs(w->procedure, period_step(&g->period, w->step)))));
    if (w->at == AT_DONE || w->step >= 0) return;
    w->call.procedure = program_procedure(w->stage, PHASE_F, "");
    w->procedure = &w->stage->procedures[w->call.procedure];
}

/* Advances the lane as far as possible; true if it moved. */
static bool go_on(struct labelling *g, int32_t lane)
{
    struct walk *w = &g->walks[lane];
    bool any = false;
    for (; w->at != AT_DONE && g->status == OK; any = true) {
        if (w->at == AT_ROOMS && w->next < w->stage->n_buffer_rings) {
            if (!take_room(g, lane, w->next)) return any;
            w->next++;
        } else if (w->at == AT_ROOMS) {
            if (offload_has(w->procedure, INSTR_OFFLOAD) && !take_copied_room(g, lane, 0)) return any;
            w->at = AT_INSTRS, w->next = 0;
        } else if (w->at == AT_INSTRS && w->next < w->procedure->n_instrs) {
            if (!take(g, lane, &w->procedure->instrs[w->next])) return any;
            w->next++;
        } else {
            end_call(g, lane, w);
            next_call(g, lane, w);
        }
    }
    return any;
}

/* --- setting up --- */

static void find_spans(struct labelling *g)
{
    struct explanation *t = g->t;
    size_t n = (size_t)t->program->n_devices, *count = ARENA_ARRAY(t->arena, size_t, n);
    size_t **lists = ARENA_ARRAY(t->arena, size_t *, n);
    for (size_t i = 0; i < t->trace->n_spans; i++)
        if (t->trace->spans[i].kind == SPAN_COMPUTE) count[t->trace->spans[i].device]++;
    for (size_t i = 0; i < n; i++) lists[i] = ARENA_ARRAY(t->arena, size_t, count[i]), count[i] = 0;
    for (size_t i = 0; i < t->trace->n_spans; i++) {
        const struct span *s = &t->trace->spans[i];
        if (s->kind == SPAN_COMPUTE) lists[s->device][count[s->device]++] = i;
    }
    for (size_t i = 0; i < n; i++) g->walks[i].spans = lists[i], g->walks[i].n_spans = count[i];
}

static void find_implied_waits(struct labelling *g)
{
    const struct program *p = g->t->program;
    g->writes = ARENA_ARRAY(g->t->arena, bool **, (size_t)p->n_stages);
    for (int32_t s = 0; s < p->n_stages; s++) {
        const struct program_stage *x = &p->stages[s];
        g->writes[s] = ARENA_ARRAY(g->t->arena, bool *, (size_t)x->n_procedures);
        for (int32_t f = 0; f < x->n_procedures; f++) {
            g->writes[s][f] = ARENA_ARRAY(g->t->arena, bool, (size_t)x->n_buffer_rings);
            for (int32_t r = 0; r < x->n_buffer_rings; r++)
                g->writes[s][f][r] = x->buffer_rings[r].sent >= 0 &&
                                     procedure_writes_buffer_ring(x, &x->procedures[f], r);
        }
    }
}

static enum status find_offloads(struct labelling *g)
{
    const struct program *p = g->t->program;
    g->offloads = ARENA_ARRAY(g->t->arena, struct offload_state, (size_t)p->n_stages);
    g->copy_ns = ARENA_ARRAY(g->t->arena, int64_t, (size_t)p->n_stages);
    for (int32_t i = 0; i < p->n_stages; i++) {
        const struct program_stage *s = &p->stages[i];
        if (!s->offload.count) continue;
        offload_start(g->t->arena, s, &g->offloads[i]);
        TRY(cost_host_copy_ns(g->t->cost, p->devices[s->device].type_index, offload_bytes(s), &g->copy_ns[i], g->err));
    }
    return OK;
}

static void find_last_forward(struct explanation *t, int32_t lane, const struct order *o)
{
    struct cursor c;
    struct call call;
    t->lanes[lane].last_forward = -1;
    cursor_start(&c, o);
    for (int32_t i = 0; cursor_next(&c, &call); i++) {
        const struct program_stage *s = &t->program->stages[stage_of(t, lane, &call)];
        if (s->procedures[call.procedure].phase == PHASE_F) t->lanes[lane].last_forward = i;
    }
}

enum status explain_label_lanes(struct explanation *t, struct error *err)
{
    const struct program *p = t->program;
    struct labelling g = {
        .t = t, .walks = ARENA_ARRAY(t->arena, struct walk, (size_t)p->n_devices), .err = err};
    period_make(t->arena, &p->outer, t->trace->period == p->outer.every, &g.period);
    find_spans(&g);
    find_implied_waits(&g);
    TRY(find_offloads(&g));
    for (int32_t i = 0; i < p->n_devices; i++) {
        const struct order *o = &p->orders[p->lanes[i].order];
        find_last_forward(t, i, o);
        t->lanes[i].capacity = (size_t)(t->steps * explain_records(p, i));
        t->lanes[i].records = ARENA_ARRAY(t->arena, struct record, t->lanes[i].capacity);
        cursor_start(&g.walks[i].cursor, o);
        g.walks[i].ordinal = -1;
        g.walks[i].step = ahead_on_lane(p, i) ? -1 : 0;
        next_call(&g, i, &g.walks[i]);
    }
    for (bool any = true; any && g.status == OK;) {
        any = false;
        for (int32_t i = 0; i < p->n_devices; i++) any |= go_on(&g, i);
    }
    for (int32_t i = 0; i < p->n_devices && g.status == OK; i++)
        if (g.walks[i].at != AT_DONE)
            disagree(&g, i, "the trace is incomplete here");
        else if (g.walks[i].next_span != g.walks[i].n_spans) {
            g.status =
                error_set(err, ERR_INPUT, "the trace is not of this program: %s computes more",
                          p->devices[i].name);
        }
    return g.status;
}
