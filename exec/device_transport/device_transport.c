/* exec/device_transport/device_transport.c - the whole of it: opened, watched, given up, closed; spans; what sums are made of.
 *
 * Invariant: everything on a stream of this module is between events. A message waits for what the compute stream had been
 * asked when it was ordered, and leaves an event behind that the compute stream waits for when the program says so. The host
 * only counts: what was ordered, what is on a stream, what was seen to have ended.
 *
 * Silence. A library may take long to see that a peer is gone, or never see it. So check also watches that something ends:
 * when it has looked for as long as the limit and nothing was asked or ended meanwhile although something is under way, the
 * oldest of that names the communicator, and the ranks' board (exec/comm/watch.c) names who of them is gone. Looking is what is
 * counted, a pause between two looks is not: a device that computes for long, or a checkpoint between two steps, accuses nobody. Discarded: a deadline for every message, which a slow peer's honest work would break.
 * A rank whose process has ended is seen on that board long before: no rank ends while another one still checks. The library, which
 * knows the communicator, has the time from one look at the board to the next to say so first.
 */
#include "exec/device_transport/internal.h"

#include "exec/clock.h"
#include "exec/device_transport/device_region.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOOK_NS 50000               /* between two looks of drain */
#define PAUSE_PART 16               /* of the limit: a longer time between two looks is no look */
#define RANKS_NS INT64_C(100000000) /* between two looks at ranks */

/* ---- what sums are made of -------------------------------------------------------------------- */

struct flat { /* an operator sees a vector */
    struct op_shapes shapes;
    struct flat *next;
};

/* Operators may be looked at later than they are asked for: their shapes stay. */
static const struct op_shapes *flat_shapes(struct device_transport *t, int64_t n)
{
    for (struct flat *f = t->flats; f; f = f->next)
        if (f->shapes.output[0].dim[0] == n) return &f->shapes;
    struct flat *f = ARENA_ARRAY(t->a, struct flat, 1);
    f->shapes.input[0] = f->shapes.output[0] = (struct shape){.rank = 1, .dim = {n}};
    f->next = t->flats;
    t->flats = f;
    return &f->shapes;
}

static const struct op_attrs no_attrs;

enum status device_add(struct device_transport *t, void *y, const void *x, int64_t n,
                       enum dtype dtype, struct error *err)
{
    const struct op_call c = {.kind = OP_accumulate,
                              .dtype = dtype,
                              .attrs = &no_attrs,
                              .shapes = flat_shapes(t, n),
                              .input = {x},
                              .output = {y}};
    if (!n) return OK;
    TRY(device_pace(t, err));
    return t->b->run(t->b, t->collective, &c, err);
}

enum status device_zero(struct device_transport *t, void *y, int64_t n, enum dtype dtype,
                        struct error *err)
{
    const struct op_call c = {.kind = OP_zero,
                              .dtype = dtype,
                              .attrs = &no_attrs,
                              .shapes = flat_shapes(t, n),
                              .output = {y}};
    if (!n) return OK;
    TRY(device_pace(t, err));
    return t->b->run(t->b, t->collective, &c, err);
}

enum status device_convert(struct device_transport *t, void *to, enum dtype to_dtype,
                           const void *from, enum dtype from_dtype, int64_t n, struct error *err)
{
    if (!n) return OK;
    if (to_dtype == from_dtype) return device_copy(t, to, from, n * dtype_bytes(to_dtype), err);
    if (!t->b->cast)
        return error_set(err, ERR_INPUT, "backend %s does not convert %s to %s", t->b->name,
                         dtype_name(from_dtype), dtype_name(to_dtype));
    TRY(device_pace(t, err));
    return t->b->cast(t->b, t->collective, to, to_dtype, from, from_dtype, n, err);
}

enum status device_copy(struct device_transport *t, void *to, const void *from, int64_t bytes,
                        struct error *err)
{
    if (!bytes || to == from) return OK;
    TRY(device_pace(t, err));
    return t->b->copy(t->b, t->collective, to, from, bytes, err);
}

enum status device_region(struct device_transport *t, const struct region *r, enum dtype dtype,
                          char *whole, char *packed, enum region_copy how, struct error *err)
{
    TRY(device_pace(t, err));
    return device_region_copy(t->b, t->collective, r, dtype, whole, packed, how, err);
}

/* ---- spans ------------------------------------------------------------------------------------ */

enum status device_mark(struct device_transport *t, int32_t stream, int32_t *event,
                        struct error *err)
{
    *event = -1;
    if (!t->o.timed) return OK;
    if (t->n_free)
        *event = t->free_events[--t->n_free];
    else
        TRY(t->b->event_make(t->b, true, event, err));
    return t->b->event_record(t->b, *event, stream, err);
}

static void free_event(struct device_transport *t, int32_t event)
{
    t->free_events =
        arena_grow(t->a, t->free_events, t->n_free, &t->free_capacity, sizeof *t->free_events);
    t->free_events[t->n_free++] = event;
}

void device_keep(struct device_transport *t, int32_t begin, int32_t end, struct span span)
{
    if (!t->o.timed) return;
    t->marks = arena_grow(t->a, t->marks, t->n_marks, &t->marks_capacity, sizeof *t->marks);
    t->marks[t->n_marks++] = (struct mark){begin, end, span};
}

enum status device_transport_spans(struct device_transport *t, int64_t step, int64_t zero_ns,
                                   struct span_list *out, struct error *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n_marks; i++) {
        struct mark m = t->marks[i];
        int64_t begin_ns, end_ns;
        bool done = m.span.step <= step;
        if (done) TRY(t->b->event_done(t->b, m.end, &done, err));
        if (!done) {
            t->marks[kept++] = m;
            continue;
        }
        TRY(t->b->event_at(t->b, m.begin, &begin_ns, err));
        TRY(t->b->event_at(t->b, m.end, &end_ns, err));
        m.span.begin_ns = begin_ns - zero_ns;
        m.span.end_ns = end_ns - zero_ns;
        span_list_add(out, m.span);
        free_event(t, m.begin);
        free_event(t, m.end);
    }
    t->n_marks = kept;
    return OK;
}

/* ---- watching --------------------------------------------------------------------------------- */

enum status device_live(const struct device_transport *t, struct error *err)
{
    if (!t->given_up) return OK;
    if (t->why.code != OK) return error_set(err, t->why.code, "%s", t->why.text);
    return error_set(err, ERR_RANK, "messages between devices were given up");
}

void device_transport_give_up(struct device_transport *t)
{
    if (!t || t->given_up) return;
    t->given_up = true;
    device_communicators_give_up(t, 0);
}

/* Counts what has ended since. A record that stands for a later message is only done when the earlier one is. */
static enum status count_ended(struct device_transport *t, int64_t asked, int64_t *done,
                               const int32_t *ended, int64_t window, struct error *err)
{
    bool over = true;
    while (*done < asked) {
        TRY(t->b->event_done(t->b, ended[*done % window], &over, err));
        if (!over) break;
        ++*done;
        t->changes++;
    }
    return OK;
}

static enum status look(struct device_transport *t, struct error *err)
{
    t->under_way = t->at_hand >= 0;
    for (int32_t i = 0; i < t->p->n_channels; i++) {
        struct channel_end_device *c = &t->channels[i];
        if (!c->mine) continue;
        TRY(count_ended(t, c->asked, &c->done, c->ended, c->window, err));
        t->under_way |= c->done < c->asked;
    }
    for (int32_t i = 0; i < t->p->n_collectives; i++) {
        struct group_end *g = &t->groups[i];
        if (g->member < 0) continue;
        TRY(count_ended(t, g->asked, &g->done, g->ended, 2, err));
        t->under_way |= g->done < g->asked;
    }
    return OK;
}

/* A collective that does not end holds up every message behind it, so it is named first; then a message that comes in. */
static void name_silent(const struct device_transport *t, struct error *why)
{
    double limit_s = (double)t->o.limit_ns / 1e9;
    for (int32_t i = 0; i < t->p->n_collectives; i++) {
        const struct group_end *g = &t->groups[i];
        if (g->member < 0 || (g->done == g->asked && i != t->at_hand) || g->communicator < 0)
            continue;
        error_set(why, ERR_RANK,
                  "%s: collective %s %s has not ended for %.0f s: one of them is gone",
                  program_device_told(t->p, t->o.rank).text, t->p->collectives[i].name,
                  t->talks.talk[g->communicator].name, limit_s);
        return;
    }
    for (int sends = 0; sends < 2; sends++)
        for (int32_t i = 0; i < t->p->n_channels; i++) {
            const struct channel_end_device *c = &t->channels[i];
            if (!c->mine || c->sends != sends || c->done == c->asked) continue;
            error_set(why, ERR_RANK,
                      "%s: message %" PRId64 " %s %s (channel %" PRId32
                      ") has not ended for %.0f s: %s is gone",
                      program_device_told(t->p, t->o.rank).text, c->done, sends ? "to" : "from",
                      t->p->devices[c->peer].name, i, limit_s,
                      program_device_told(t->p, c->peer).text);
            return;
        }
}

void device_peer_lost(const struct device_transport *t, struct error *err)
{
    char who[160], said[sizeof err->text];
    if (err->code != ERR_RANK) return;
    if (comm_lost(t->o.comm, t->o.limit_ns / 2, who, sizeof who) < 0) return;
    snprintf(said, sizeof said, "%s", err->text);
    error_set(err, ERR_RANK, "%.300s; %s", said, who);
}

static enum status give_up_for(struct device_transport *t, struct error *why, struct error *err)
{
    device_peer_lost(t, why);
    t->why = *why;
    device_transport_give_up(t);
    return error_set(err, why->code, "%s", why->text);
}

/* A pause without looks is nobody's silence. */
static bool silent_too_long(struct device_transport *t)
{
    int64_t now_ns = clock_wall_ns(), pause_ns = now_ns - t->looked_ns;
    if (!t->under_way || t->changes != t->seen_changes || !t->silent_since_ns) {
        t->seen_changes = t->changes;
        t->silent_since_ns = now_ns;
    } else if (pause_ns > t->o.limit_ns / PAUSE_PART) {
        t->silent_since_ns += pause_ns;
    }
    t->looked_ns = now_ns;
    return now_ns - t->silent_since_ns > t->o.limit_ns;
}

static bool rank_has_ended(struct device_transport *t)
{
    int64_t now_ns = clock_wall_ns();
    if (now_ns - t->ranks_looked_ns < RANKS_NS) return false;
    t->ranks_looked_ns = now_ns;
    bool before = t->rank_ended;
    t->rank_ended = comm_ended(t->o.comm) >= 0;
    return before && t->rank_ended;
}

enum status device_transport_check(struct device_transport *t, struct error *err)
{
    struct error why = {.code = OK};
    TRY(device_live(t, err));
    comm_alive(t->o.comm);
    for (int32_t i = 0; i < t->talks.n && why.code == OK; i++)
        if (t->communicators[i].handle)
            (void)t->comm->check(t->b, t->communicators[i].handle, &why);
    if (why.code == OK) (void)look(t, &why);
    if (why.code == OK && rank_has_ended(t))
        error_set(&why, ERR_RANK, "%s: a peer is gone", program_device_told(t->p, t->o.rank).text);
    if (why.code == OK && silent_too_long(t)) name_silent(t, &why);
    return why.code == OK ? OK : give_up_for(t, &why, err);
}

enum status device_transport_drain(struct device_transport *t, struct error *err)
{
    for (;;) {
        TRY(device_transport_check(t, err));
        if (!t->under_way) return OK;
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
    }
}

/* ---- pace ------------------------------------------------------------------------------------- */

enum status device_pace(struct device_transport *t, struct error *err)
{
    if (++t->in_pace < PACE) return OK;
    int32_t event = t->pace[t->next_pace % PACES];
    for (bool done = t->next_pace < PACES;;) {
        if (!done) TRY(t->b->event_done(t->b, event, &done, err));
        if (done) break;
        TRY(device_transport_check(t, err));
        clock_sleep_until(clock_wall_ns() + LOOK_NS);
    }
    t->in_pace = 0;
    t->next_pace++;
    t->changes++;
    return t->b->event_record(t->b, event, t->collective, err);
}

/* ---- open and close --------------------------------------------------------------------------- */

static bool takes_part(const struct device_transport *t)
{
    for (int32_t i = 0; i < t->talks.n; i++)
        for (int32_t k = 0; k < t->talks.talk[i].n; k++)
            if (t->talks.talk[i].device[k] == t->o.rank) return true;
    for (int32_t g = 0; g < t->p->n_collectives; g++) /* of one member */
        for (int32_t i = 0; t->o.group[g] == TRANSPORT_DEVICE && i < t->p->collectives[g].n_members;
             i++)
            if (t->p->stages[t->p->collectives[g].members[i].stage].device == t->o.rank)
                return true;
    return false;
}

static enum status open_mine(struct device_transport *t, struct error *err)
{
    if (!takes_part(t)) return OK;
    if (!t->o.backend || !t->o.backend->comm)
        return error_set(err, ERR_RESOURCE, "%s: its backend does not talk between devices",
                         t->p->devices[t->o.rank].name);
    t->comm = t->b->comm;
    TRY(t->b->stream_make(t->b, &t->collective, err));
    TRY(t->b->event_make(t->b, false, &t->ready, err));
    for (int i = 0; i < PACES; i++) TRY(t->b->event_make(t->b, false, &t->pace[i], err));
    TRY(device_messages_open(t, err));
    return device_sums_open(t, err);
}

enum status device_transport_open(struct arena *a, const struct device_transport_options *o,
                                  struct device_transport **out, struct error *err)
{
    struct device_transport *t = ARENA_ARRAY(a, struct device_transport, 1);
    *t = (struct device_transport){
        .a = a, .o = *o, .b = o->backend, .p = o->p, .collective = -1, .ready = -1, .at_hand = -1};
    device_talks(a, o->p, o->channel, o->group, &t->talks);
    t->communicators = ARENA_ARRAY(a, struct communicator, (size_t)t->talks.n + 1);
    t->channel_groups =
        ARENA_ARRAY(a, struct channel_group_end, (size_t)t->talks.n_channel_groups + 1);
    t->channels = ARENA_ARRAY(a, struct channel_end_device, (size_t)o->p->n_channels + 1);
    t->groups = ARENA_ARRAY(a, struct group_end, (size_t)o->p->n_collectives + 1);
    for (int32_t g = 0; g < o->p->n_collectives; g++) t->groups[g].member = -1;
    enum status status = comm_agree(o->comm, open_mine(t, err), err);
    if (status == OK) status = device_communicators_open(t, err); /* agrees by itself */
    if (status == OK)
        *out = t;
    else {
        device_transport_give_up(t);
        device_transport_close(t);
    }
    return status;
}

void device_transport_close(struct device_transport *t)
{
    if (!t) return;
    device_communicators_close(t);
    if (t->scratch) t->b->release(t->b, t->scratch);
    if (t->zeros) t->b->release(t->b, t->zeros);
    t->scratch = t->zeros = NULL;
}
