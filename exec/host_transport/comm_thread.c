#include "exec/host_transport/comm_thread.h"

#include "core/base/arena.h"
#include "core/base/log.h"
#include "core/program/ahead.h"
#include "exec/comm/launch.h"
#include "exec/host_transport/bounce.h"
#include "exec/straggler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS 1000000
#define POLL_MIN_NS 20000              /* while this rank's bytes are in flight; doubles up to … */
#define POLL_MAX_NS 1000000            /* … this with bells, */
#define POLL_REMOTE_NS 50000           /* and this without */
#define POLL_DEVICE_NS 20000           /* while waiting for a device event */
#define POLL_IDLE_NS (200 * NS_PER_MS) /* nothing in flight, and a bell */
#define PRIORITY 2                     /* above the compute thread's 1 */

/* ---- before and after -------------------------------------------------------------------------
 */

static bool is_mine(const struct comm_thread *m, int32_t stage)
{
    return m->p->stages[stage].device == m->rank;
}

static void note_phases(struct comm_thread *m, const struct program_stage *s)
{
    for (int32_t i = 0; i < s->n_procedures; i++)
        for (int32_t k = 0; k < s->procedures[i].n_instrs; k++) {
            struct instr x = s->procedures[i].instrs[k];
            if (x.kind == INSTR_SEND) m->sent_by[x.arg] = s->procedures[i].phase;
            if (x.kind == INSTR_RECEIVE) m->received_by[x.arg] = s->procedures[i].phase;
        }
}

static void message_ended(void *owner, int32_t wire, int64_t number, int64_t start_ns,
                          int64_t end_ns, int64_t bytes, int64_t at_ns);
static void part_ended(void *owner, const struct collective_order *of, int32_t part,
                       int64_t begin_ns, int64_t end_ns, int64_t bytes);
static void group_ended(void *owner, const struct collective_order *of, int64_t end_ns);

/* Instants are read at most one step after they were recorded. */
static void make_room(struct comm_thread *m)
{
    m->channels = ARENA_ARRAY(m->a, struct comm_thread_ended, (size_t)m->p->n_channels + 1);
    m->groups = ARENA_ARRAY(m->a, struct comm_thread_ended, (size_t)m->p->n_collectives + 1);
    for (int32_t i = 0; i < m->p->n_channels; i++) {
        const struct channel *c = &m->p->channels[i];
        if (is_mine(m, c->from_stage) == is_mine(m, c->to_stage)) continue;
        m->channels[i].capacity =
            2 * (int64_t)program_channel_messages(m->p, c) + 2 + c->receive_ahead;
        m->channels[i].at_ns = ARENA_ARRAY(m->a, int64_t, (size_t)m->channels[i].capacity);
    }
    for (int32_t i = 0; i < m->p->n_collectives; i++) {
        m->groups[i].capacity = 2;
        m->groups[i].at_ns = ARENA_ARRAY(m->a, int64_t, 2);
    }
    m->reported = ARENA_ARRAY(m->a, int64_t, (size_t)m->p->n_devices);
    m->agreements = (struct comm_thread_ended){.capacity = 2, .at_ns = ARENA_ARRAY(m->a, int64_t, 2)};
}

void comm_thread_init(struct comm_thread *m, struct arena *a, const struct program *p,
                      struct comm *c, void *shared, bool keep_spans)
{
    *m = (struct comm_thread){.a = a,
                              .order_arena = arena_new(),
                              .p = p,
                              .comm = c,
                              .rank = comm_rank(c),
                              .threaded = comm_size(c) > 1,
                              .emulated = p->emulated,
                              .awaited_peer = -1,
                              .timeout_ns = comm_limit_ns()};
    m->sent_by = ARENA_ARRAY(a, enum phase, (size_t)p->n_channels + 1);
    m->received_by = ARENA_ARRAY(a, enum phase, (size_t)p->n_channels + 1);
    for (int32_t i = 0; i < p->n_devices; i++) m->ahead |= ahead_on_lane(p, i);
    if (keep_spans) m->spans.a = a;
    for (int32_t i = 0; i < p->n_stages; i++)
        if (is_mine(m, i)) note_phases(m, &p->stages[i]);
    make_room(m);
    wires_init(&m->wires, a, p, c, shared, message_ended, m);
    m->collectives = (struct collectives){.a = a,
                                          .p = p,
                                          .wires = &m->wires,
                                          .rank = m->rank,
                                          .step_ended = part_ended,
                                          .ended = group_ended,
                                          .owner = m};
    m->collectives.members = ARENA_ARRAY(a, struct collective_end, (size_t)p->n_collectives + 1);
    for (int32_t i = 0; i < p->n_collectives; i++) m->collectives.members[i].member = -1;
    pthread_mutex_init(&m->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &attr);
    pthread_condattr_destroy(&attr);
}

static void release_event(void *owner, int32_t event)
{
    struct comm_thread *m = owner;
    pthread_mutex_lock(&m->mutex);
    m->free_events = arena_grow(m->order_arena, m->free_events, m->n_free, &m->free_capacity,
                                sizeof *m->free_events);
    m->free_events[m->n_free++] = event;
    pthread_mutex_unlock(&m->mutex);
}

enum status comm_thread_take_event(struct comm_thread *m, int32_t *out, struct error *err)
{
    struct backend *x = m->bounce->backend;
    pthread_mutex_lock(&m->mutex);
    bool any = m->n_free > 0;
    if (any) *out = m->free_events[--m->n_free];
    pthread_mutex_unlock(&m->mutex);
    return any ? OK : x->event_make(x, m->bounce->timed, out, err);
}

void comm_thread_bounce(struct comm_thread *m, struct bounce *b)
{
    m->bounce = m->collectives.bounce = b;
    m->threaded = true;
    b->a = m->a;
    b->wires = &m->wires;
    b->spans = &m->spans;
    b->release = release_event;
    b->owner = m;
}

static void place_staging(const struct collective *g, struct tensor_operands *o, char *staging)
{
    struct collective_tensor_staging s = collective_tensor_staging(g);
    int64_t size = dtype_bytes(g->dtype);
    o->chunks = staging;
    o->outgoing = o->chunks + (s.chunks * size + 63) / 64 * 64;
    o->incoming = o->outgoing + (s.outgoing * size + 63) / 64 * 64;
}

void comm_thread_member(struct comm_thread *m, struct collective_end member, char *staging)
{
    struct collective_end *first = &m->collectives.members[member.group];
    member.incoming = staging;
    if (member.collective) place_staging(&m->p->collectives[member.group], member.collective, staging);
    while (first->member >= 0 && first->also) first = first->also;
    if (first->member >= 0) first = first->also = ARENA_ARRAY(m->a, struct collective_end, 1);
    *first = member;
}

/* ---- what has ended ---------------------------------------------------------------------------
 */

static void note(struct comm_thread *m, struct comm_thread_ended *e, int64_t number, int64_t at_ns)
{
    pthread_mutex_lock(&m->mutex);
    e->at_ns[number % e->capacity] = at_ns;
    e->count = number + 1;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->mutex);
}

static void report_ended(struct comm_thread *m, int32_t rank)
{
    pthread_mutex_lock(&m->mutex);
    m->reported[rank]++;
    pthread_cond_signal(&m->changed);
    pthread_mutex_unlock(&m->mutex);
}

static struct span message_span(struct comm_thread *m, int32_t channel, int64_t number,
                                int64_t start_ns, int64_t end_ns, int64_t bytes)
{
    const struct channel *c = &m->p->channels[channel];
    bool sent = is_mine(m, c->from_stage);
    int32_t stage = sent ? c->from_stage : c->to_stage, other = sent ? c->to_stage : c->from_stage;
    int32_t microbatches = program_channel_messages(m->p, c);
    return (struct span){.kind = sent ? SPAN_SEND : SPAN_RECEIVE,
                         .stream = sent ? STREAM_send : STREAM_receive,
                         .device = m->rank,
                         .peer = m->p->stages[other].device,
                         .stage = stage,
                         .phase = sent ? m->sent_by[channel] : m->received_by[channel],
                         .step = (int32_t)(m->begun + number / microbatches),
                         .microbatch = c->by_step ? -1 : (int32_t)(number % microbatches),
                         .op = channel,
                         .begin_ns = start_ns,
                         .end_ns = end_ns,
                         .bytes = bytes};
}

static void message_ended(void *owner, int32_t wire, int64_t number, int64_t start_ns,
                          int64_t end_ns, int64_t bytes, int64_t at_ns)
{
    struct comm_thread *m = owner;
    bool sent = m->wires.wire[wire].from == m->rank;
    (void)at_ns;
    if (wire >= m->wires.reports) {
        report_ended(m, wire - m->wires.reports);
        return;
    }
    if (wire >= m->p->n_channels) {
        if (sent) straggler_message(m->stragglers, wires_peer(&m->wires, wire), m->step, bytes, end_ns - start_ns);
        collective_message(&m->collectives, wire, end_ns);
        return;
    }
    struct span s = message_span(m, wire, number, start_ns, end_ns, bytes);
    if (sent) straggler_message(m->stragglers, s.peer, s.step, bytes, end_ns - start_ns);
    if (bounce_carries(m->bounce, wire) && s.kind == SPAN_RECEIVE)
        bounce_arrived(m->bounce, wire, number, &s);
    else
        span_list_add(&m->spans, s);
    note(m, &m->channels[wire], number, end_ns);
}

static void part_ended(void *owner, const struct collective_order *of, int32_t part,
                       int64_t begin_ns, int64_t end_ns, int64_t bytes)
{
    struct comm_thread *m = owner;
    int32_t group = of->group;
    int32_t member = m->collectives.members[group].member;
    const struct collective *collective = &m->p->collectives[group];
    span_list_add(
        &m->spans,
        (struct span){.kind = SPAN_REDUCE,
                      .stream = STREAM_collective,
                      .device = m->rank,
                      .peer = -1,
                      .stage = m->p->collectives[group].members[member].stage,
                      .phase = of->phase,
                      .step = (int32_t)of->step,
                      .microbatch = program_collective_repeats(&m->p->collectives[group]) ? of->times : -1,
                      .op = group,
                      .part = part,
                      .collective = collective_of_tensor(collective) ? 1 + (int32_t)collective->kind : 0,
                      .begin_ns = begin_ns,
                      .end_ns = end_ns,
                      .bytes = bytes});
}

static void group_ended(void *owner, const struct collective_order *of, int64_t end_ns)
{
    struct comm_thread *m = owner;
    note(m, &m->groups[of->group], of->number, end_ns);
}

/* ---- the thread -------------------------------------------------------------------------------
 */

static void carry_out(struct comm_thread *m, const struct comm_thread_order *o)
{
    switch (o->kind) {
    case ORDER_AGREE:
        comm_max_begin(m->comm, o->index);
        m->agreeing = true;
        break;
    case ORDER_REPORT:
        if (m->rank)
            wire_hand(&m->wires, m->wires.reports + o->index, o->data, o->bytes, 0);
        else
            wire_post(&m->wires, m->wires.reports + o->index, o->data, o->bytes, 0);
        break;
    case ORDER_HAND:
        if (bounce_carries(m->bounce, o->index))
            bounce_hand(m->bounce, o->index, o->number, o->after, o->at_ns);
        else
            wire_hand(&m->wires, o->index, o->data, o->bytes, o->at_ns);
        break;
    case ORDER_POST:
        if (bounce_carries(m->bounce, o->index))
            bounce_post(m->bounce, o->index, o->number, o->after, o->at_ns);
        else
            wire_post(&m->wires, o->index, o->data, o->bytes, o->at_ns);
        break;
    case ORDER_REDUCE:
        m->step = o->step;
        collective_add(&m->collectives,
                       (struct collective_order){o->index, o->times, o->number, o->step, o->at_ns,
                                                 o->seq, o->phase, o->after});
        break;
    }
}

static bool take_orders(struct comm_thread *m)
{
    bool any = false;
    for (;;) {
        struct comm_thread_order o;
        pthread_mutex_lock(&m->mutex);
        bool more = m->first < m->n_orders;
        if (more) o = m->orders[m->first++];
        if (m->first == m->n_orders) m->first = m->n_orders = 0;
        pthread_mutex_unlock(&m->mutex);
        if (!more) return any;
        carry_out(m, &o);
        any = true;
    }
}

/* Parks while the compute thread uses the message library. True: stop. */
static bool obey(struct comm_thread *m)
{
    pthread_mutex_lock(&m->mutex);
    if (m->abort_code) comm_abort(m->comm, m->abort_code);
    bool quiet = m->first == m->n_orders && !m->agreeing && !m->collectives.running && (!m->bounce || bounce_idle(m->bounce));
    bool idle = quiet && !wires_sending(&m->wires);
    if (m->want_pause && quiet && (idle || (m->ahead && !m->flushes))) {
        clock_real_time(false, 0);
        m->parked = true;
        pthread_cond_broadcast(&m->changed);
        while (m->parked) pthread_cond_wait(&m->changed, &m->mutex);
        if (m->emulated) clock_real_time(true, PRIORITY);
    }
    bool stop = m->want_stop && (idle || m->given_up);
    m->awaited_peer = collective_waits_for(&m->collectives, &m->awaited_group);
    pthread_mutex_unlock(&m->mutex);
    return stop;
}

/* Bytes that need both ends to poll: wakes the other end. */
static void nudge(struct comm_thread *m)
{
    for (int32_t i = 0; i < m->wires.n_mine; i++) {
        const struct wire *x = &m->wires.wire[m->wires.mine[i]];
        if (x->from == m->rank && x->first < x->started) comm_ring(m->comm, x->to);
    }
}

static void sleep_a_while(struct comm_thread *m, uint32_t seen, int64_t *pause_ns)
{
    int64_t now = clock_wall_ns(), next = wires_next_ns(&m->wires), most = POLL_IDLE_NS;
    if (!comm_has_bells(m->comm)) {
        most = POLL_REMOTE_NS;
    } else if (comm_sending(m->comm) || m->agreeing) {
        nudge(m);
        most = *pause_ns;
        if (*pause_ns < POLL_MAX_NS) *pause_ns *= 2;
    }
    if (m->bounce && most > POLL_DEVICE_NS && bounce_waiting(m->bounce)) most = POLL_DEVICE_NS;
    int64_t until = now + most;
    if (next < INT64_MAX && m->wires.zero_ns + next < until) until = m->wires.zero_ns + next;
    comm_sleep(m->comm, seen, until);
}

static bool agreed(struct comm_thread *m)
{
    int64_t value;
    if (!m->agreeing || !comm_max_ended(m->comm, &value)) return false;
    m->agreeing = false;
    note(m, &m->agreements, m->agreements.count, value);
    return true;
}

static enum status move_on(struct comm_thread *m, bool *progress, struct error *err)
{
    if (m->bounce) TRY(bounce_progress(m->bounce, progress, err));
    return wires_progress(&m->wires, progress, err);
}

/* A rank that is alone returns an error like any other function. */
static void fail(struct comm_thread *m, const struct error *e)
{
    if (comm_size(m->comm) > 1) {
        struct error own;
        error_set(&own, e->code, "rank %" PRId32 " (%s): %s", m->rank,
                  program_device_label(m->p, m->rank).text, e->text);
        launch_report_alone(&own);
        comm_abort(m->comm, e->code);
    }
    pthread_mutex_lock(&m->mutex);
    m->failed = e->code;
    m->failure = *e;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
}

static void *comm_thread_main(void *argument)
{
    struct comm_thread *m = argument;
    struct error e = {.code = OK};
    clock_sleep_sharply();
    if (m->emulated) m->real_time = clock_real_time(true, PRIORITY);
    int64_t pause_ns = POLL_MIN_NS;
    for (;;) {
        uint32_t seen = comm_rung(m->comm);
        bool progress = take_orders(m);
        if (collective_progress(&m->collectives)) progress = true;
        if (agreed(m)) progress = true;
        if (move_on(m, &progress, &e) != OK) {
            fail(m, &e);
            break;
        }
        if (progress) {
            pause_ns = POLL_MIN_NS;
            continue;
        }
        if (obey(m)) break;
        sleep_a_while(m, seen, &pause_ns);
    }
    pthread_mutex_lock(&m->mutex);
    m->stopped = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

enum status comm_thread_start(struct comm_thread *m, struct error *err)
{
    if (!m->threaded) return OK;
    int failed = pthread_create(&m->thread, NULL, comm_thread_main, m);
    if (failed)
        return error_set(err, ERR_RESOURCE, "cannot start the communication thread: %s",
                         strerror(failed));
    m->started = true;
    return OK;
}

/* Waits until all orders are done or a dead peer prevents it. */
static void end_in_time(struct comm_thread *m)
{
    int64_t deadline_ns = clock_wall_ns() + m->timeout_ns;
    char who[160];
    if (comm_thread_wait_stopped(m, deadline_ns)) return;
    if (comm_lost(m->comm, m->timeout_ns / 2, who, sizeof who) < 0)
        snprintf(who, sizeof who, "a peer is gone");
    log_error("rank %" PRId32 " (%s): its last messages could not be sent for %.1f s: %s", m->rank,
              program_device_label(m->p, m->rank).text, (double)m->timeout_ns / 1e9, who);
    comm_thread_abort(m, ERR_RANK);
}

void comm_thread_stop(struct comm_thread *m)
{
    if (m->threaded && m->started) {
        pthread_mutex_lock(&m->mutex);
        m->want_stop = true;
        pthread_mutex_unlock(&m->mutex);
        comm_ring(m->comm, m->rank);
        if (comm_size(m->comm) > 1) end_in_time(m);
        pthread_join(m->thread, NULL);
    }
    pthread_mutex_destroy(&m->mutex);
    pthread_cond_destroy(&m->changed);
    arena_free(m->order_arena);
    m->order_arena = NULL;
}

void comm_thread_give_up(struct comm_thread *m)
{
    pthread_mutex_lock(&m->mutex);
    m->given_up = true;
    pthread_mutex_unlock(&m->mutex);
}

void comm_thread_abort(struct comm_thread *m, int code)
{
    if (m->threaded) {
        pthread_mutex_lock(&m->mutex);
        m->abort_code = code;
        pthread_mutex_unlock(&m->mutex);
        comm_ring(m->comm, m->rank);
        clock_sleep_until(clock_wall_ns() + 5000LL * NS_PER_MS);
    }
    _exit(code);
}

void comm_thread_order(struct comm_thread *m, struct comm_thread_order order)
{
    if (!m->threaded) {
        carry_out(m, &order);
        collective_progress(&m->collectives);
        return;
    }
    pthread_mutex_lock(&m->mutex);
    m->orders = arena_grow(m->order_arena, m->orders, m->n_orders, &m->capacity, sizeof *m->orders);
    m->orders[m->n_orders++] = order;
    pthread_mutex_unlock(&m->mutex);
    comm_ring(m->comm, m->rank);
}
