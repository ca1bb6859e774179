#include "exec/worker/offloads.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "exec/clock.h"
#include "exec/host_transport/spans.h"
#include "exec/worker/async_issue.h"

enum { TO_HOST, BACK };

/* ---- opening ---------------------------------------------------------------------------------- */

static int64_t places(const struct offload_chunk *k) { return (int64_t)k->state.count * k->state.parts; }

static enum status open_events(struct offloads *x, struct offload_chunk *k, struct error *err)
{
    struct backend *b = &x->r->backend;
    bool timed = x->spans->a != NULL;
    k->events = ARENA_ARRAY(x->r->run, struct offload_events, (size_t)places(k));
    for (int64_t i = 0; i < places(k); i++)
        for (int d = 0; d < 2; d++) {
            k->events[i].seq[d] = -1, k->events[i].part = (int32_t)(i % k->state.parts);
            if (timed) TRY(b->event_make(b, true, &k->events[i].begin[d], err));
            TRY(b->event_make(b, timed, &k->events[i].end[d], err));
        }
    return OK;
}

static enum status open_streams(struct offloads *x, struct error *err)
{
    struct backend *b = &x->r->backend;
    if (x->streams) return OK;
    x->streams = true;
    for (int d = 0; d < 2; d++) TRY(b->stream_make(b, &x->stream[d], err));
    return b->event_make(b, false, &x->ready, err);
}

enum status offloads_open(struct offloads *x, struct rank *r, struct chunks *c, struct async_issue *ahead, struct device_clock *clock,
                          struct span_list *spans, struct error *err)
{
    const struct program_device *d = rank_device(r);
    *x = (struct offloads){.r = r, .ahead = ahead, .clock = clock, .spans = spans, .n_chunks = c->n};
    x->chunks = ARENA_ARRAY(r->run, struct offload_chunk, (size_t)c->n);
    for (int32_t i = 0; i < c->n; i++) {
        struct offload_chunk *k = &x->chunks[i];
        k->chunk = &c->at[i];
        if (!k->chunk->stage->offload.count) continue;
        offload_start(r->run, k->chunk->stage, &k->state);
        k->bytes = offload_bytes(k->chunk->stage);
        if (d->slowdown > 0) k->ns = units_ns_from_s((double)k->bytes / d->host_Bps);
        if (!r->discrete || d->slowdown > 0) continue;
        TRY(open_streams(x, err));
        TRY(open_events(x, k, err));
    }
    return OK;
}

/* ---- spans ------------------------------------------------------------------------------------ */

static void add_span(struct offloads *x, const struct offload_chunk *k, int direction, int64_t seq, int32_t part, int64_t begin_ns,
                     int64_t end_ns)
{
    int32_t microbatches = k->chunk->stage->microbatches;
    span_list_add(x->spans, (struct span){.kind = direction == BACK ? SPAN_FETCH : SPAN_OFFLOAD,
                                          .stream = direction == BACK ? STREAM_fetch : STREAM_offload,
                                          .device = x->r->index,
                                          .peer = -1,
                                          .stage = k->chunk->index,
                                          .phase = direction == BACK ? PHASE_B : PHASE_F,
                                          .step = (int32_t)(x->begun + seq / microbatches),
                                          .microbatch = (int32_t)(seq % microbatches),
                                          .op = part,
                                          .begin_ns = begin_ns,
                                          .end_ns = end_ns,
                                          .bytes = k->bytes});
}

/* Of the last copy of a part in this direction; waits for it. */
static enum status read_span(struct offloads *x, struct offload_chunk *k, int64_t place, int direction, struct error *err)
{
    struct backend *b = &x->r->backend;
    struct offload_events *e = &k->events[place];
    int64_t begin_ns, end_ns;
    if (e->seq[direction] < 0) return OK;
    TRY(async_issue_see(x->ahead, e->end[direction], err));
    TRY(b->event_at(b, e->begin[direction], &begin_ns, err));
    TRY(b->event_at(b, e->end[direction], &end_ns, err));
    add_span(x, k, direction, e->seq[direction], e->part, begin_ns - x->clock->zero_ns, units_max(end_ns, begin_ns + 1) - x->clock->zero_ns);
    e->seq[direction] = -1;
    return OK;
}

enum status offloads_finish(struct offloads *x, struct error *err)
{
    for (int32_t i = 0; i < x->n_chunks; i++)
        for (int64_t n = 0; x->chunks[i].events && n < places(&x->chunks[i]); n++)
            for (int d = 0; d < 2; d++) TRY(read_span(x, &x->chunks[i], n, d, err));
    return OK;
}

enum status offloads_restart(struct offloads *x, int64_t begun, struct error *err)
{
    TRY(offloads_finish(x, err));
    for (int32_t i = 0; i < x->n_chunks; i++)
        if (x->chunks[i].state.count) offload_restart(x->chunks[i].chunk->stage, &x->chunks[i].state);
    x->begun = begun;
    return OK;
}

/* ---- copies ----------------------------------------------------------------------------------- */

static enum status copy(struct offloads *x, const struct offload_chunk *k, int32_t stream, int direction, const struct offload_copy *c,
                        struct error *err)
{
    struct backend *b = &x->r->backend;
    const struct program_stage *s = k->chunk->stage;
    int32_t ring = direction == BACK ? s->offload.in : s->offload.out;
    char *device = k->chunk->memory.buffer_ring[ring] + offload_offset(s, ring, k->state.parts, c->seq, c->part),
         *host = k->chunk->memory.host + offload_place(&k->state, c->seq, c->part) * k->bytes;
    return b->copy(b, stream, direction == BACK ? device : host, direction == BACK ? host : device, k->bytes, err);
}

/* On the copy stream, behind the compute stream's work so far and, back, behind the copy to the host. */
static enum status copy_on_stream(struct offloads *x, struct offload_chunk *k, int direction, const struct offload_copy *c, struct error *err)
{
    struct backend *b = &x->r->backend;
    int64_t place = offload_place(&k->state, c->seq, c->part);
    struct offload_events *e = &k->events[place];
    int32_t stream = x->stream[direction];
    TRY(read_span(x, k, place, direction, err));
    async_issue_break(x->ahead);
    TRY(b->event_record(b, x->ready, STREAM_COMPUTE, err));
    TRY(b->event_wait(b, stream, x->ready, err));
    if (direction == BACK) TRY(b->event_wait(b, stream, e->end[TO_HOST], err));
    if (x->spans->a) TRY(b->event_record(b, e->begin[direction], stream, err));
    TRY(copy(x, k, stream, direction, c, err));
    if (x->spans->a) e->seq[direction] = c->seq;
    return b->event_record(b, e->end[direction], stream, err);
}

/* At once, on the compute stream. The device's clock stops meanwhile: an emulated copy has the times that the rule gives. */
static enum status copy_here(struct offloads *x, struct offload_chunk *k, int direction, const struct offload_copy *c, struct error *err)
{
    int64_t begin_ns = device_clock_now(x->clock);
    async_issue_break(x->ahead);
    device_clock_wait(x->clock);
    TRY(copy(x, k, STREAM_COMPUTE, direction, c, err));
    device_clock_waited(x->clock, 0);
    if (k->ns)
        add_span(x, k, direction, c->seq, c->part, c->begin_ns, c->end_ns);
    else
        add_span(x, k, direction, c->seq, c->part, begin_ns, device_clock_now(x->clock));
    return OK;
}

static enum status start(struct offloads *x, struct offload_chunk *k, int direction, const struct offload_copy *c, struct error *err)
{
    return k->events ? copy_on_stream(x, k, direction, c, err) : copy_here(x, k, direction, c, err);
}

static enum status start_back(struct offloads *x, struct offload_chunk *k, const struct offload_copies *back, struct error *err)
{
    for (int32_t i = 0; i < back->n; i++) TRY(start(x, k, BACK, &back->at[i], err));
    return OK;
}

/* The compute stream continues when the copy has ended. */
static enum status wait(struct offloads *x, struct offload_chunk *k, int direction, int64_t place, int64_t end_ns, struct error *err)
{
    if (k->events) return async_issue_wait(x->ahead, k->events[place].end[direction], err);
    if (!k->ns) return OK; /* the copy was made when it was started */
    TRY(async_issue_settle(x->ahead, err));
    device_clock_wait(x->clock);
    device_clock_waited(x->clock, end_ns);
    return OK;
}

static enum status room(struct offloads *x, struct offload_chunk *k, int64_t seq, int32_t part, struct error *err)
{
    int64_t place = offload_before(&k->state, seq, part);
    return place < 0 ? OK : wait(x, k, TO_HOST, place, offload_room(&k->state, seq, part), err);
}

enum status offloads_room(struct offloads *x, int32_t chunk, int64_t seq, struct error *err)
{
    return room(x, &x->chunks[chunk], seq, 0, err);
}

enum status offloads_out(struct offloads *x, int32_t chunk, int64_t seq, int32_t part, struct error *err)
{
    struct offload_chunk *k = &x->chunks[chunk];
    struct offload_copies back;
    TRY(async_issue_settle(x->ahead, err));
    struct offload_copy out = offload_out(&k->state, &x->times, seq, part, device_clock_now(x->clock), k->ns, &back);
    TRY(start(x, k, TO_HOST, &out, err));
    TRY(start_back(x, k, &back, err));
    return part + 1 < k->state.parts ? room(x, k, seq, part + 1, err) : OK;
}

enum status offloads_fetch(struct offloads *x, int32_t chunk, int64_t seq, int32_t part, struct error *err)
{
    struct offload_chunk *k = &x->chunks[chunk];
    int64_t end_ns = offload_arrival(&k->state, seq, part);
    if (end_ns < 0)
        return error_set(err, ERR_INPUT, "stage %d: FETCH of message %lld follows no copy back", (int)k->chunk->stage->stage, (long long)seq);
    TRY(wait(x, k, BACK, offload_place(&k->state, seq, part), end_ns, err));
    TRY(async_issue_settle(x->ahead, err));
    struct offload_copies back = offload_fetched(&k->state, &x->times, seq, part, device_clock_now(x->clock), k->ns);
    return start_back(x, k, &back, err);
}

enum status offloads_consumed(struct offloads *x, int32_t chunk, int64_t seq, struct error *err)
{
    struct offload_chunk *k = &x->chunks[chunk];
    TRY(async_issue_settle(x->ahead, err));
    struct offload_copies back = offload_consumed(&k->state, &x->times, seq, device_clock_now(x->clock), k->ns);
    return start_back(x, k, &back, err);
}
