#include "exec/worker/internal.h"

#include "core/base/arena.h"

enum { VALUE_BYTES = 8, ALIGN = 64 };
#define LOOK_MIN_NS                                                                                \
    2000 /* between two looks at an event while peers are watched; doubles up to … */
#define LOOK_MAX_NS 100000

/* ---- how much ---------------------------------------------------------------------------------
 */

struct load { /* of one step of the lane */
    int64_t ops, losses, gates_bytes;
};

static int64_t gates_of(const struct program_op *x)
{
    const struct shape *s = &x->shapes.output[0];
    return x->kind == OP_gating
               ? (shape_elements(s) * dtype_bytes(x->dtype) + ALIGN - 1) / ALIGN * ALIGN
               : 0;
}

static void add_procedure(struct load *l, const struct program_stage *s, const struct procedure *f)
{
    for (int32_t i = 0; i < f->n_instrs; i++) {
        if (f->instrs[i].kind == INSTR_LOSS) l->losses++;
        if (f->instrs[i].kind != INSTR_COMPUTE) continue;
        int64_t gates = gates_of(&s->ops[f->instrs[i].arg]);
        l->ops++;
        if (gates > l->gates_bytes) l->gates_bytes = gates;
    }
}

static struct load load_of(const struct worker *w, int32_t device)
{
    struct load l = {0};
    struct cursor cursor;
    struct call call;
    cursor_start(&cursor, &w->p->orders[w->p->lanes[device].order]);
    while (cursor_next(&cursor, &call)) {
        const struct program_stage *s = program_called(w->p, device, &call);
        add_procedure(&l, s, &s->procedures[call.procedure]);
    }
    return l;
}

static int64_t losses_bytes(const struct load *l)
{
    return (2 * l->losses * VALUE_BYTES + ALIGN - 1) / ALIGN * ALIGN;
}

/* Of a step; what a device writes stands on lines of its own. */
static int64_t scale_bytes(const struct worker *w)
{
    return w->p->loss_scale.initial > 0 ? ALIGN : 0;
}

int64_t async_issue_pinned_bytes(const struct worker *w, int32_t device)
{
    struct load l = load_of(w, device);
    return losses_bytes(&l) + 2 * scale_bytes(w) +
           (w->o->keep_trace ? ASYNC_ISSUE_GATES * l.gates_bytes : 0);
}

static enum status make_events(struct worker *w, int64_t ops, struct error *err)
{
    struct async_issue *x = &w->ahead;
    if (!x->timed) return OK;
    x->n_events = 4 * ops + 4; /* begin and end of two steps' operators */
    if (x->n_events > ASYNC_ISSUE_EVENTS_MAX) x->n_events = ASYNC_ISSUE_EVENTS_MAX;
    x->events = ARENA_ARRAY(w->run, int32_t, (size_t)x->n_events);
    x->spans = ARENA_ARRAY(w->run, struct async_issue_span, (size_t)x->n_events);
    for (int64_t i = 0; i < x->n_events; i++)
        TRY(w->backend.event_make(&w->backend, true, &x->events[i], err));
    return OK;
}

enum status async_issue_open(struct worker *w, char *pinned, struct error *err)
{
    struct async_issue *x = &w->ahead;
    struct load l = load_of(w, w->rank);
    x->timed = w->o->keep_trace || w->p->devices[w->rank].slowdown > 0;
    x->last_event = -1;
    x->most_losses = (int32_t)l.losses;
    for (int i = 0; i < 2; i++) {
        struct async_issue_step *s = &x->steps[i];
        s->losses = ARENA_ARRAY(w->run, struct async_issue_loss, (size_t)l.losses + 1);
        s->values = pinned + i * l.losses * VALUE_BYTES;
        if (scale_bytes(w))
            s->scale = (float *)(void *)(pinned + losses_bytes(&l) + i * scale_bytes(w));
        TRY(w->backend.event_make(&w->backend, true, &s->updated, err));
        TRY(w->backend.event_make(&w->backend, false, &s->ended, err));
    }
    if (w->o->keep_trace)
        x->gates = pinned + losses_bytes(&l) + 2 * scale_bytes(w), x->gates_bytes = l.gates_bytes;
    x->paced = worker_goes_by_devices(w);
    for (int i = 0; x->paced && i < ASYNC_ISSUE_PACES; i++)
        TRY(w->backend.event_make(&w->backend, false, &x->pace[i], err));
    return make_events(w, l.ops, err);
}

/* ---- seeing -----------------------------------------------------------------------------------
 */

enum status async_issue_see(struct worker *w, int32_t event, struct error *err)
{
    if (!w->transport) return w->backend.event_wait_here(&w->backend, event, err);
    int64_t pause_ns = LOOK_MIN_NS;
    for (bool done = false;;) {
        TRY(w->backend.event_done(&w->backend, event, &done, err));
        if (done) return OK;
        TRY(device_transport_check(w->transport, err));
        clock_sleep_until(clock_wall_ns() + pause_ns);
        if (pause_ns < LOOK_MAX_NS) pause_ns *= 2;
    }
}

static struct async_issue_span *span_at(struct async_issue *x, int64_t n)
{
    return &x->spans[n % x->n_events];
}

static enum status reached(struct worker *w, int64_t number, int64_t *at_ns, struct error *err)
{
    struct async_issue *x = &w->ahead;
    return w->backend.event_at(&w->backend, x->events[number % x->n_events], at_ns, err);
}

/* The oldest span; its events have been reached, or are waited for here. */
static enum status see_span(struct worker *w, struct error *err)
{
    struct async_issue *x = &w->ahead;
    struct async_issue_span *s = span_at(x, x->first_span);
    int64_t begin_ns, end_ns;
    TRY(async_issue_see(w, x->events[s->ready % x->n_events], err));
    TRY(reached(w, s->begin, &begin_ns, err));
    TRY(reached(w, s->end, &end_ns, err));
    /* A device's clock is fitted to the host's again and again; its stream is in order all the same. */
    if (begin_ns < x->seen_ns) begin_ns = x->seen_ns;
    if (end_ns <= begin_ns) end_ns = begin_ns + 1;
    x->seen_ns = end_ns;
    if (w->clock.slowdown > 0) {
        s->span.begin_ns = device_clock_now(&w->clock);
        s->span.end_ns = device_clock_lasted(&w->clock, end_ns - begin_ns);
    } else {
        s->span.begin_ns = begin_ns - w->clock.zero_ns;
        s->span.end_ns = end_ns - w->clock.zero_ns;
    }
    if (s->gates)
        s->span.uneven_ppm = worker_uneven(s->gating, x->gates + (s->gates - 1) * x->gates_bytes);
    worker_activity_seen(w, begin_ns, end_ns);
    span_list_add(&w->spans, s->span);
    x->first_span++;
    return OK;
}

static enum status see_spans(struct worker *w, int64_t until, struct error *err)
{
    while (w->ahead.first_span < until) TRY(see_span(w, err));
    return OK;
}

/* ---- operators --------------------------------------------------------------------------------
 */

/* The number of the next event, now recorded. A span that still needs its place in the ring is seen first. */
static enum status record(struct worker *w, int64_t *out, struct error *err)
{
    struct async_issue *x = &w->ahead;
    int64_t number = x->next_event++;
    while (x->first_span < x->next_span && span_at(x, x->first_span)->begin <= number - x->n_events)
        TRY(see_span(w, err));
    *out = number;
    return w->backend.event_record(&w->backend, x->events[number % x->n_events], STREAM_COMPUTE,
                                   err);
}

static void take_turn(struct async_issue *x)
{
    if (!x->card || x->our_turn) return;
    link_clock_lock(x->card);
    x->our_turn = true;
}

static void end_turn(struct async_issue *x)
{
    if (x->our_turn) link_clock_unlock(x->card);
    x->our_turn = false;
}

/* The event of a pace is that of the one ASYNC_ISSUE_PACES before, which is waited for. */
enum status async_issue_keep_pace(struct worker *w, int32_t operators, struct error *err)
{
    struct async_issue *x = &w->ahead;
    x->in_pace += operators;
    if (!x->paced || x->in_pace < ASYNC_ISSUE_PACE) return OK;
    int32_t event = x->pace[x->next_pace % ASYNC_ISSUE_PACES];
    if (x->next_pace >= ASYNC_ISSUE_PACES) TRY(async_issue_see(w, event, err));
    x->in_pace = 0;
    x->next_pace++;
    return w->backend.event_record(&w->backend, event, STREAM_COMPUTE, err);
}

enum status async_issue_begin(struct worker *w, struct error *err)
{
    struct async_issue *x = &w->ahead;
    TRY(async_issue_keep_pace(w, 1, err));
    if (!x->timed) return OK;
    take_turn(x);
    return x->last_event >= 0 ? OK : record(w, &x->last_event, err);
}

static enum status bring_gates(struct worker *w, struct async_issue_span *s,
                               const struct op_call *call, struct error *err)
{
    struct async_issue *x = &w->ahead;
    int64_t bytes = shape_elements(&call->shapes->output[0]) * dtype_bytes(call->dtype);
    int32_t at = (int32_t)(x->next_gates++ % ASYNC_ISSUE_GATES);
    for (int64_t n = x->first_span; n < x->next_span; n++)
        if (span_at(x, n)->gates == at + 1) TRY(see_spans(w, n + 1, err));
    TRY(w->backend.copy(&w->backend, STREAM_COMPUTE, x->gates + at * x->gates_bytes,
                        call->output[0], bytes, err));
    s->gates = at + 1;
    s->gating = call;
    TRY(record(w, &s->ready, err));
    x->last_event = s->ready;
    return OK;
}

enum status async_issue_end(struct worker *w, const struct span *span, const struct op_call *call,
                            struct error *err)
{
    struct async_issue *x = &w->ahead;
    if (!x->timed) return OK;
    struct async_issue_span s = {.span = *span, .begin = x->last_event};
    TRY(record(w, &s.end, err));
    s.ready = x->last_event = s.end;
    if (w->spans.a && call->kind == OP_gating && x->gates_bytes) TRY(bring_gates(w, &s, call, err));
    *span_at(x, x->next_span++) = s;
    return OK;
}

void async_issue_break(struct worker *w) { w->ahead.last_event = -1; }

enum status async_issue_wait(struct worker *w, int32_t event, struct error *err)
{
    async_issue_break(w);
    return w->backend.event_wait(&w->backend, STREAM_COMPUTE, event, err);
}

/* Only the compute stream's operators count: what it waits for has been waited for by the thread. */
enum status async_issue_settle(struct worker *w, struct error *err)
{
    if (!(w->clock.slowdown > 0)) return OK;
    enum status status = see_spans(w, w->ahead.next_span, err);
    async_issue_break(w);
    end_turn(&w->ahead);
    return status;
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static struct async_issue_step *step_of(struct worker *w, int64_t step)
{
    return &w->ahead.steps[step % 2];
}

enum status async_issue_loss(struct worker *w, const struct async_issue_loss *what,
                             const void *from, struct error *err)
{
    struct async_issue_step *s = step_of(w, w->step);
    if (s->n_losses == w->ahead.most_losses) BUG("more losses in a step than were counted");
    async_issue_break(w);
    TRY(w->backend.copy(&w->backend, STREAM_COMPUTE, s->values + s->n_losses * VALUE_BYTES, from,
                        dtype_bytes(what->dtype), err));
    s->losses[s->n_losses++] = *what;
    return OK;
}

enum status async_issue_updated(struct worker *w, struct error *err)
{
    return w->backend.event_record(&w->backend, step_of(w, w->step)->updated, STREAM_COMPUTE, err);
}

/* Spans of what moved between devices, as far as it has ended. */
static enum status see_messages(struct worker *w, int64_t step, struct error *err)
{
    if (!w->transport) return OK;
    TRY(device_transport_check(w->transport, err));
    return w->spans.a ? device_transport_spans(w->transport, step, w->clock.zero_ns, &w->spans, err)
                      : OK;
}

static enum status see_step(struct worker *w, struct async_issue_step *s, struct error *err)
{
    int64_t at_ns;
    if (!s->asked) return OK;
    TRY(async_issue_see(w, s->ended, err));
    for (int32_t i = 0; i < s->n_losses; i++)
        worker_note_loss(w, s->step, &s->losses[i], s->values + i * VALUE_BYTES);
    if (s->scale) worker_note_scale(w, s->step, s->scale);
    if (!(w->clock.slowdown > 0)) {
        TRY(w->backend.event_at(&w->backend, s->updated, &at_ns, err));
        w->step_end_ns[s->step] = at_ns - w->clock.zero_ns;
    }
    TRY(see_messages(w, s->step, err));
    s->asked = false;
    s->n_losses = 0;
    return OK;
}

enum status async_issue_step_asked(struct worker *w, struct error *err)
{
    struct async_issue_step *s = step_of(w, w->step);
    s->asked = true;
    s->step = w->step;
    if (s->scale)
        TRY(w->backend.copy(&w->backend, STREAM_COMPUTE, s->scale, worker_scale_at(&w->chunks[0]),
                            LOSS_SCALE_NUMBERS * (int64_t)sizeof *s->scale, err));
    TRY(w->backend.event_record(&w->backend, s->ended, STREAM_COMPUTE, err));
    return see_step(w, step_of(w, w->step + 1), err);
}

enum status async_issue_drain(struct worker *w, struct error *err)
{
    TRY(see_spans(w, w->ahead.next_span, err));
    TRY(see_step(w, step_of(w, w->step), err));
    TRY(see_step(w, step_of(w, w->step + 1), err));
    async_issue_break(w);
    return OK;
}

/* The last messages leave behind the compute stream; only when none of them waits for a peer is the device waited for. */
enum status async_issue_finish(struct worker *w, struct error *err)
{
    TRY(async_issue_drain(w, err));
    if (w->transport) TRY(device_transport_drain(w->transport, err));
    TRY(w->backend.finish(&w->backend, err));
    return see_messages(w, w->step, err);
}
