#include "exec/host_transport/bounce.h"

#include "core/base/arena.h"

#include <inttypes.h>

enum { ALIGN = 64 };

int64_t bounce_stride(const struct channel *c) { return (c->bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- before the thread ------------------------------------------------------------------------
 */

enum status bounce_open(struct bounce *b, struct arena *a, const struct program *p,
                        struct backend *backend, bool timed, struct error *err)
{
    *b = (struct bounce){
        .a = a, .backend = backend, .p = p, .emulated = p->emulated, .timed = timed};
    b->channels = ARENA_ARRAY(a, struct bounce_channel, (size_t)p->n_channels + 1);
    b->groups = ARENA_ARRAY(a, struct bounce_group, (size_t)p->n_collectives + 1);
    int32_t *streams[] = {&b->out, &b->in, &b->collective};
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        TRY(backend->stream_make(backend, streams[i], err));
    return backend->event_make(backend, false, &b->fetched, err);
}

enum status bounce_add_channel(struct bounce *b, struct arena *a, int32_t channel,
                               struct place slot, char *pinned, bool sends, struct error *err)
{
    struct bounce_channel *c = &b->channels[channel];
    *c = (struct bounce_channel){.slot = slot,
                                 .pinned = pinned,
                                 .stride = bounce_stride(&b->p->channels[channel]),
                                 .bytes = b->p->channels[channel].bytes,
                                 .sends = sends};
    c->copied = ARENA_ARRAY(a, int32_t, (size_t)slot.count);
    for (int64_t i = 0; i < slot.count; i++)
        TRY(b->backend->event_make(b->backend, b->timed && !sends, &c->copied[i], err));
    return OK;
}

enum status bounce_add_group(struct bounce *b, int32_t group, struct bounce_group like,
                             struct error *err)
{
    like.used = true;
    TRY(b->backend->event_make(b->backend, false, &like.given, err));
    b->groups[group] = like;
    return OK;
}

/* ---- small things -----------------------------------------------------------------------------
 */

static void note_failure(struct bounce *b, enum status status, const struct error *e)
{
    if (status == OK || b->failed != OK) return;
    b->failed = status;
    b->error = *e;
}

static char *buffer(const struct bounce_channel *c, int64_t number)
{
    return c->pinned + number % c->slot.count * c->stride;
}

static int32_t event_of(const struct bounce_channel *c, int64_t number)
{
    return c->copied[number % c->slot.count];
}

int32_t bounce_copied(const struct bounce *b, int32_t channel, int64_t number)
{
    return event_of(&b->channels[channel], number);
}

int32_t bounce_given(const struct bounce *b, int32_t group) { return b->groups[group].given; }

/* A queue [first, next) in circular memory, with room for one more. */
static void *with_room(struct arena *a, void *queue, int64_t *capacity, int64_t *first,
                       int64_t *next, size_t size)
{
    if (*next < *capacity) return queue;
    int64_t n = *next - *first, bigger = 2 * n > 8 ? 2 * n : 8;
    char *to = arena_alloc(a, (size_t)bigger, size);
    const char *from = queue;
    for (int64_t i = 0; i < n * (int64_t)size; i++) to[i] = from[*first * (int64_t)size + i];
    *capacity = bigger, *first = 0, *next = n;
    return to;
}

static enum status done(struct bounce *b, int32_t event, bool *out, struct error *err)
{
    return b->backend->event_done(b->backend, event, out, err);
}

static int64_t now_ns(const struct bounce *b) { return clock_wall_ns() - b->wires->zero_ns; }

/* ---- out --------------------------------------------------------------------------------------
 */

static enum status start_down(struct bounce *b, const struct bounce_channel *c, int64_t number,
                              int32_t after, struct error *err)
{
    struct backend *x = b->backend;
    if (after) TRY(x->event_wait(x, b->out, after - 1, err));
    TRY(x->copy(x, b->out, buffer(c, number), place_at(&c->slot, number), c->bytes, err));
    return x->event_record(x, event_of(c, number), b->out, err);
}

void bounce_hand(struct bounce *b, int32_t channel, int64_t number, int32_t after, int64_t at_ns)
{
    struct error e = {.code = OK};
    note_failure(b, start_down(b, &b->channels[channel], number, after, &e), &e);
    b->leaving = with_room(b->a, b->leaving, &b->leaving_capacity, &b->leaving_first,
                           &b->leaving_next, sizeof *b->leaving);
    b->leaving[b->leaving_next++] = (struct bounce_leaving){channel, number, at_ns, after};
}

/* Copies end in issue order. */
static enum status go_out(struct bounce *b, bool *progress, struct error *err)
{
    while (b->leaving_first < b->leaving_next) {
        struct bounce_leaving *m = &b->leaving[b->leaving_first];
        const struct bounce_channel *c = &b->channels[m->channel];
        bool down = false;
        TRY(done(b, event_of(c, m->number), &down, err));
        if (!down) return OK;
        int64_t at_ns = b->emulated ? m->at_ns : now_ns(b);
        if (b->timed && !b->emulated && m->after) {
            TRY(b->backend->event_at(b->backend, m->after - 1, &at_ns, err));
            at_ns -= b->wires->zero_ns;
        }
        if (m->after) b->release(b->owner, m->after - 1);
        wire_hand(b->wires, m->channel, buffer(c, m->number), c->bytes, at_ns);
        b->leaving_first++;
        *progress = true;
    }
    return OK;
}

/* ---- in ---------------------------------------------------------------------------------------
 */

void bounce_post(struct bounce *b, int32_t channel, int64_t number, int32_t after, int64_t at_ns)
{
    struct bounce_channel *c = &b->channels[channel];
    c->rooms = with_room(b->a, c->rooms, &c->capacity, &c->first, &c->next, sizeof *c->rooms);
    c->rooms[c->next++] = (struct bounce_room){number, at_ns, after};
}

/* A free slot has been copied to earlier, so its pinned buffer is free too. */
static enum status post_rooms(struct bounce *b, int32_t channel, bool *progress, struct error *err)
{
    struct bounce_channel *c = &b->channels[channel];
    while (c->first < c->next) {
        struct bounce_room r = c->rooms[c->first];
        bool free = true;
        if (r.after) TRY(done(b, r.after - 1, &free, err));
        if (!free) return OK;
        if (r.after) b->release(b->owner, r.after - 1);
        wire_post(b->wires, channel, buffer(c, r.number), c->bytes,
                  b->emulated ? r.at_ns : now_ns(b));
        c->first++;
        *progress = true;
    }
    return OK;
}

static enum status settle_landing(struct bounce *b, struct error *err)
{
    while (b->landing_first < b->landing_next) {
        struct bounce_landing *l = &b->landing[b->landing_first];
        bool up = false;
        int64_t at_ns = 0;
        TRY(done(b, l->event, &up, err));
        if (!up) return OK;
        TRY(b->backend->event_at(b->backend, l->event, &at_ns, err));
        if (!b->emulated) l->span.end_ns = at_ns - b->wires->zero_ns;
        span_list_add(b->spans, l->span);
        b->landing_first++;
    }
    return OK;
}

static enum status start_up(struct bounce *b, int32_t channel, int64_t number, struct error *err)
{
    struct backend *x = b->backend;
    const struct bounce_channel *c = &b->channels[channel];
    TRY(settle_landing(b, err)); /* the current event may be in there, and is complete */
    TRY(x->copy(x, b->in, place_at(&c->slot, number), buffer(c, number), c->bytes, err));
    return x->event_record(x, event_of(c, number), b->in, err);
}

void bounce_arrived(struct bounce *b, int32_t channel, int64_t number, const struct span *span)
{
    struct error e = {.code = OK};
    note_failure(b, start_up(b, channel, number, &e), &e);
    if (!b->timed) return;
    b->landing = with_room(b->a, b->landing, &b->landing_capacity, &b->landing_first,
                           &b->landing_next, sizeof *b->landing);
    b->landing[b->landing_next++] =
        (struct bounce_landing){*span, event_of(&b->channels[channel], number)};
}

/* ---- collectives ------------------------------------------------------------------------------
 */

static enum status start_fetch(struct bounce *b, const struct collective_order *o,
                               struct error *err)
{
    struct backend *x = b->backend;
    const struct bounce_group *g = &b->groups[o->group];
    if (o->after) TRY(x->event_wait(x, b->collective, o->after - 1, err));
    for (int32_t i = 0; i < g->n_moves; i++)
        if (g->moves[i].fetch)
            TRY(x->copy(x, b->collective, g->moves[i].pinned, g->moves[i].device, g->moves[i].bytes,
                        err));
    if (g->in_bytes)
        TRY(x->copy(x, b->collective, g->in_pinned, place_at(&g->in, o->seq), g->in_bytes, err));
    return x->event_record(x, b->fetched, b->collective, err);
}

void bounce_fetch(struct bounce *b, const struct collective_order *o)
{
    struct error e = {.code = OK};
    note_failure(b, start_fetch(b, o, &e), &e);
    if (o->after) b->release(b->owner, o->after - 1);
    b->fetching = true;
}

static enum status start_give(struct bounce *b, const struct collective_order *o, struct error *err)
{
    struct backend *x = b->backend;
    const struct bounce_group *g = &b->groups[o->group];
    for (int32_t i = 0; i < g->n_moves; i++)
        if (g->moves[i].give)
            TRY(x->copy(x, b->collective, g->moves[i].device, g->moves[i].pinned, g->moves[i].bytes,
                        err));
    if (g->out_bytes)
        TRY(x->copy(x, b->collective, place_at(&g->out, o->seq), g->out_pinned, g->out_bytes, err));
    return x->event_record(x, g->given, b->collective, err);
}

void bounce_give(struct bounce *b, const struct collective_order *o)
{
    struct error e = {.code = OK};
    note_failure(b, start_give(b, o, &e), &e);
}

/* ---- all --------------------------------------------------------------------------------------
 */

enum status bounce_progress(struct bounce *b, bool *progress, struct error *err)
{
    if (b->failed != OK) return error_set(err, b->failed, "%s", b->error.text);
    TRY(go_out(b, progress, err));
    for (int32_t i = 0; i < b->p->n_channels; i++)
        if (b->channels[i].first < b->channels[i].next) TRY(post_rooms(b, i, progress, err));
    if (b->fetching) {
        bool there = false;
        TRY(done(b, b->fetched, &there, err));
        if (there) b->fetching = false, *progress = true;
    }
    return settle_landing(b, err);
}

bool bounce_idle(const struct bounce *b)
{
    return b->leaving_first == b->leaving_next && b->landing_first == b->landing_next &&
           !b->fetching;
}

bool bounce_waiting(const struct bounce *b)
{
    bool rooms = false;
    for (int32_t i = 0; i < b->p->n_channels && !rooms; i++)
        rooms = b->channels[i].first < b->channels[i].next;
    return rooms || !bounce_idle(b);
}
