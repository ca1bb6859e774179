#include "exec/worker/async_issue.h"

#include "exec/clock.h"
#include "exec/straggler.h"
#include "exec/worker/chunks.h"
#include "exec/worker/kernel_spans.h"
#include "exec/worker/noise_log.h"
#include "exec/worker/progress.h"
#include "exec/worker/rank.h"
#include "exec/worker/routing.h"
#include "exec/worker/scale_log.h"
#include "exec/worker/step_log.h"
#include "exec/worker/transports.h"

enum { VALUE_BYTES = 8, ALIGN = 64 };
#define LOOK_MIN_NS                                                                                \
    2000 /* initial interval between two polls of an event while peers are watched; doubles up to … */
#define LOOK_MAX_NS 100000

/* ---- how much ---------------------------------------------------------------------------------
 */

struct load { /* per step of the lane */
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

static struct load load_of(const struct program *p, int32_t device)
{
    struct load l = {0};
    struct cursor cursor;
    struct call call;
    cursor_start(&cursor, &p->orders[p->lanes[device].order]);
    while (cursor_next(&cursor, &call)) {
        const struct program_stage *s = program_called(p, device, &call);
        add_procedure(&l, s, &s->procedures[call.procedure]);
    }
    return l;
}

static int64_t losses_bytes(const struct load *l)
{
    return (2 * l->losses * VALUE_BYTES + ALIGN - 1) / ALIGN * ALIGN;
}

/* Per step; aligned to a cache line, because the device writes it. */
static int64_t scale_bytes(const struct program *p)
{
    return p->loss_scale.initial > 0 ? ALIGN : 0;
}

static int64_t squares_bytes(const struct program *p, int32_t device)
{
    return (noise_log_bytes(p, p->lanes[device].n_stages) + ALIGN - 1) / ALIGN * ALIGN;
}

int64_t async_issue_pinned_bytes(const struct program *p, bool keep_trace, int32_t device)
{
    struct load l = load_of(p, device);
    return losses_bytes(&l) + 2 * scale_bytes(p) + 2 * squares_bytes(p, device) +
           (keep_trace ? ASYNC_ISSUE_GATES * l.gates_bytes : 0);
}

static enum status make_events(struct async_issue *x, int64_t ops, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    if (!x->timed) return OK;
    x->n_events = 4 * ops + 4; /* begin and end of two steps' operators */
    if (x->n_events > ASYNC_ISSUE_EVENTS_MAX) x->n_events = ASYNC_ISSUE_EVENTS_MAX;
    x->events = ARENA_ARRAY(x->u.r->run, int32_t, (size_t)x->n_events);
    x->spans = ARENA_ARRAY(x->u.r->run, struct async_issue_span, (size_t)x->n_events);
    for (int64_t i = 0; i < x->n_events; i++) TRY(b->event_make(b, true, &x->events[i], err));
    return OK;
}

void async_issue_init(struct async_issue *x, const struct async_issue_uses *u) { x->u = *u; }

enum status async_issue_open(struct async_issue *x, char *pinned, struct error *err)
{
    struct rank *r = x->u.r;
    struct load l = load_of(r->p, r->index);
    int64_t squares = squares_bytes(r->p, r->index);
    x->timed = r->o->keep_trace || r->o->stragglers || rank_device(r)->slowdown > 0;
    x->last_event = -1;
    x->max_losses = (int32_t)l.losses;
    for (int i = 0; i < 2; i++) {
        struct async_issue_step *s = &x->steps[i];
        s->losses = ARENA_ARRAY(r->run, struct step_loss, (size_t)l.losses + 1);
        s->values = pinned + i * l.losses * VALUE_BYTES;
        if (scale_bytes(r->p))
            s->scale = (float *)(void *)(pinned + losses_bytes(&l) + i * scale_bytes(r->p));
        if (squares) s->squares = pinned + losses_bytes(&l) + 2 * scale_bytes(r->p) + i * squares;
        TRY(r->backend.event_make(&r->backend, true, &s->updated, err));
        TRY(r->backend.event_make(&r->backend, false, &s->ended, err));
    }
    if (r->o->keep_trace)
        x->gates = pinned + losses_bytes(&l) + 2 * scale_bytes(r->p) + 2 * squares,
        x->gates_bytes = l.gates_bytes;
    x->paced = transports_use_devices(x->u.t, r->p);
    for (int i = 0; x->paced && i < ASYNC_ISSUE_PACES; i++)
        TRY(r->backend.event_make(&r->backend, false, &x->pace[i], err));
    return make_events(x, l.ops, err);
}

void async_issue_share(struct async_issue *x, struct link_clock *turns) { x->gpu = turns; }

bool async_issue_timed(const struct async_issue *x) { return x->timed; }

/* ---- seeing -----------------------------------------------------------------------------------
 */

enum status async_issue_see(struct async_issue *x, int32_t event, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    if (!x->u.t->device) return b->event_wait_here(b, event, err);
    int64_t pause_ns = LOOK_MIN_NS;
    for (bool done = false;;) {
        TRY(b->event_done(b, event, &done, err));
        if (done) return OK;
        TRY(device_transport_check(x->u.t->device, err));
        clock_sleep_until(clock_wall_ns() + pause_ns);
        if (pause_ns < LOOK_MAX_NS) pause_ns *= 2;
    }
}

static struct async_issue_span *span_at(struct async_issue *x, int64_t n)
{
    return &x->spans[n % x->n_events];
}

static enum status reached(struct async_issue *x, int64_t number, int64_t *at_ns, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    return b->event_at(b, x->events[number % x->n_events], at_ns, err);
}

/* The oldest span; waits for its events if they are not complete. */
static enum status see_span(struct async_issue *x, struct error *err)
{
    struct async_issue_span *s = span_at(x, x->first_span);
    int64_t begin_ns, end_ns;
    TRY(async_issue_see(x, x->events[s->ready % x->n_events], err));
    TRY(reached(x, s->begin, &begin_ns, err));
    TRY(reached(x, s->end, &end_ns, err));
    /* Refits of the device clock can move an instant back, although the stream is in order. */
    if (begin_ns < x->seen_ns) begin_ns = x->seen_ns;
    if (end_ns <= begin_ns) end_ns = begin_ns + 1;
    x->seen_ns = end_ns;
    if (x->u.clock->slowdown > 0) {
        s->span.begin_ns = device_clock_now(x->u.clock);
        s->span.end_ns = device_clock_lasted(x->u.clock, end_ns - begin_ns);
    } else {
        s->span.begin_ns = begin_ns - x->u.clock->zero_ns;
        s->span.end_ns = end_ns - x->u.clock->zero_ns;
    }
    if (s->gates)
        s->span.uneven_ppm =
            routing_count_call(x->u.routing, &s->span, s->gating, x->gates + (s->gates - 1) * x->gates_bytes);
    straggler_operator(*x->u.stragglers, s->span.step, s->span.end_ns - s->span.begin_ns);
    kernel_spans_seen(x->u.kernels, x->u.spans, begin_ns, end_ns);
    span_list_add(x->u.spans, s->span);
    x->first_span++;
    return OK;
}

static enum status see_spans(struct async_issue *x, int64_t until, struct error *err)
{
    while (x->first_span < until) TRY(see_span(x, err));
    return OK;
}

/* ---- operators --------------------------------------------------------------------------------
 */

/* Records the next event and returns its number. A span that still uses its place in the ring is settled first. */
static enum status record(struct async_issue *x, int64_t *out, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    int64_t number = x->next_event++;
    while (x->first_span < x->next_span && span_at(x, x->first_span)->begin <= number - x->n_events)
        TRY(see_span(x, err));
    *out = number;
    return b->event_record(b, x->events[number % x->n_events], STREAM_COMPUTE, err);
}

static void take_turn(struct async_issue *x)
{
    if (!x->gpu || x->our_turn) return;
    link_clock_lock(x->gpu);
    x->our_turn = true;
}

static void end_turn(struct async_issue *x)
{
    if (x->our_turn) link_clock_unlock(x->gpu);
    x->our_turn = false;
}

/* A pace reuses the event of the one ASYNC_ISSUE_PACES before, which must be complete. */
enum status async_issue_keep_pace(struct async_issue *x, int32_t operators, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    x->in_pace += operators;
    if (!x->paced || x->in_pace < ASYNC_ISSUE_PACE) return OK;
    int32_t event = x->pace[x->next_pace % ASYNC_ISSUE_PACES];
    if (x->next_pace >= ASYNC_ISSUE_PACES) TRY(async_issue_see(x, event, err));
    x->in_pace = 0;
    x->next_pace++;
    return b->event_record(b, event, STREAM_COMPUTE, err);
}

enum status async_issue_begin(struct async_issue *x, struct error *err)
{
    TRY(async_issue_keep_pace(x, 1, err));
    if (!x->timed) return OK;
    take_turn(x);
    return x->last_event >= 0 ? OK : record(x, &x->last_event, err);
}

static enum status bring_gates(struct async_issue *x, struct async_issue_span *s,
                               const struct op_call *call, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    int64_t bytes = shape_elements(&call->shapes->output[0]) * dtype_bytes(call->dtype);
    int32_t at = (int32_t)(x->next_gates++ % ASYNC_ISSUE_GATES);
    for (int64_t n = x->first_span; n < x->next_span; n++)
        if (span_at(x, n)->gates == at + 1) TRY(see_spans(x, n + 1, err));
    TRY(b->copy(b, STREAM_COMPUTE, x->gates + at * x->gates_bytes, call->output[0], bytes, err));
    s->gates = at + 1;
    s->gating = call;
    TRY(record(x, &s->ready, err));
    x->last_event = s->ready;
    return OK;
}

enum status async_issue_end(struct async_issue *x, const struct span *span,
                            const struct op_call *call, struct error *err)
{
    if (!x->timed) return OK;
    struct async_issue_span s = {.span = *span, .begin = x->last_event};
    TRY(record(x, &s.end, err));
    s.ready = x->last_event = s.end;
    if (x->u.spans->a && call->kind == OP_gating && x->gates_bytes)
        TRY(bring_gates(x, &s, call, err));
    *span_at(x, x->next_span++) = s;
    return OK;
}

void async_issue_break(struct async_issue *x) { x->last_event = -1; }

enum status async_issue_wait(struct async_issue *x, int32_t event, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    async_issue_break(x);
    return b->event_wait(b, STREAM_COMPUTE, event, err);
}

/* Only the compute stream's operators count: the thread itself has waited for everything that the stream waits for. */
enum status async_issue_settle(struct async_issue *x, struct error *err)
{
    if (!(x->u.clock->slowdown > 0)) return OK;
    enum status status = see_spans(x, x->next_span, err);
    async_issue_break(x);
    end_turn(x);
    return status;
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static struct async_issue_step *step_of(struct async_issue *x, int64_t step)
{
    return &x->steps[step % 2];
}

enum status async_issue_updated(struct async_issue *x, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    return b->event_record(b, step_of(x, x->u.progress->step)->updated, STREAM_COMPUTE, err);
}

/* Spans of completed messages and collectives between devices. */
static enum status see_messages(struct async_issue *x, int64_t step, struct error *err)
{
    if (!x->u.t->device) return OK;
    TRY(device_transport_check(x->u.t->device, err));
    return x->u.spans->a
               ? device_transport_spans(x->u.t->device, step, x->u.clock->zero_ns, x->u.spans, err)
               : OK;
}

static enum status see_step(struct async_issue *x, struct async_issue_step *s, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    int64_t at_ns;
    if (!s->asked) return OK;
    TRY(async_issue_see(x, s->ended, err));
    for (int32_t i = 0; i < s->n_losses; i++)
        step_log_loss(x->u.log, x->u.r, s->step, &s->losses[i], s->values + i * VALUE_BYTES);
    if (s->scale) scale_log_note(x->u.scales, s->step, s->scale);
    if (s->squares) noise_log_note(x->u.noise, x->u.r, x->u.chunks, s->step, s->squares);
    if (!(x->u.clock->slowdown > 0)) {
        TRY(b->event_at(b, s->updated, &at_ns, err));
        step_log_end(x->u.log, s->step, at_ns - x->u.clock->zero_ns);
    }
    TRY(see_messages(x, s->step, err));
    s->asked = false;
    s->n_losses = 0;
    return OK;
}

enum status async_issue_loss(struct async_issue *x, int64_t step, const struct step_loss *what, const void *from,
                             struct error *err)
{
    struct backend *b = &x->u.r->backend;
    struct async_issue_step *s = step_of(x, step);
    if (s->asked) TRY(see_step(x, s, err)); /* ahead of its step, whose place is still that of the step before the current one */
    if (s->n_losses == x->max_losses) BUG("a step has more losses than were counted");
    async_issue_break(x);
    TRY(b->copy(b, STREAM_COMPUTE, s->values + s->n_losses * VALUE_BYTES, from,
                dtype_bytes(what->dtype), err));
    s->losses[s->n_losses++] = *what;
    return OK;
}

enum status async_issue_step_issued(struct async_issue *x, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    struct async_issue_step *s = step_of(x, x->u.progress->step);
    s->asked = true;
    s->step = x->u.progress->step;
    if (s->scale)
        TRY(b->copy(b, STREAM_COMPUTE, s->scale, chunks_scale(&x->u.chunks->at[0]),
                    LOSS_SCALE_NUMBERS * (int64_t)sizeof *s->scale, err));
    if (s->squares) TRY(noise_log_copy(x->u.r, x->u.chunks, s->squares, err));
    TRY(b->event_record(b, s->ended, STREAM_COMPUTE, err));
    return see_step(x, step_of(x, x->u.progress->step + 1), err);
}

enum status async_issue_drain(struct async_issue *x, struct error *err)
{
    TRY(see_spans(x, x->next_span, err));
    TRY(see_step(x, step_of(x, x->u.progress->step), err));
    TRY(see_step(x, step_of(x, x->u.progress->step + 1), err));
    async_issue_break(x);
    return OK;
}

/* The last messages leave after the compute stream; the device is waited for only when none of them waits for a peer. */
enum status async_issue_finish(struct async_issue *x, struct error *err)
{
    struct backend *b = &x->u.r->backend;
    TRY(async_issue_drain(x, err));
    if (x->u.t->device) TRY(device_transport_drain(x->u.t->device, err));
    TRY(b->finish(b, err));
    return see_messages(x, x->u.progress->step, err);
}
