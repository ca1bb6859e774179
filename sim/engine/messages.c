/* Channels. A message is ready when it has been handed over, its receive is posted, and the previous message of the channel
 * has left. Sender and receiver never access the link: they read this window of messages. */
#include "sim/engine/engine.h"

#include "core/base/arena.h"

#include <inttypes.h>

static const struct message UNKNOWN = {-1, -1, -1, -1};

static struct message *at(const struct channel_state *c, int64_t seq)
{
    return &c->window[seq & (c->capacity - 1)];
}

static int64_t oldest(const struct channel_state *c)
{
    return c->low > c->keep ? c->low - c->keep : 0;
}

/* The phase of the call that sends or receives. */
static enum phase phase_of(const struct program_stage *s, enum instr_kind kind, int32_t channel)
{
    for (int32_t i = 0; i < s->n_procedures; i++)
        for (int32_t k = 0; k < s->procedures[i].n_instrs; k++)
            if (s->procedures[i].instrs[k].kind == kind &&
                s->procedures[i].instrs[k].arg == channel)
                return s->procedures[i].phase;
    return '?';
}

static void buffer_ring_lives(const struct program *p, int32_t channel, struct channel_state *c)
{
    const struct program_stage *from = &p->stages[p->channels[channel].from_stage];
    const struct program_stage *to = &p->stages[p->channels[channel].to_stage];
    for (int32_t r = 0; r < from->n_buffer_rings; r++)
        if (from->buffer_rings[r].death == PHASE_SEND && from->buffer_rings[r].sent == channel)
            c->dead_bytes += from->buffer_rings[r].stride_bytes;
    for (int32_t r = 0; r < to->n_buffer_rings; r++)
        if (to->buffer_rings[r].birth == PHASE_RECEIVE && to->buffer_rings[r].received == channel)
            c->born_bytes += to->buffer_rings[r].stride_bytes;
}

static void make_window(struct engine *e, struct channel_state *c, int64_t capacity)
{
    c->capacity = capacity;
    c->window = ARENA_ARRAY(e->arena, struct message, (size_t)capacity);
    c->queue = ARENA_ARRAY(e->arena, int64_t, (size_t)capacity);
    for (int64_t i = 0; i < capacity; i++) c->window[i] = UNKNOWN;
}

enum status messages_new(struct engine *e, struct cost *k, struct error *err)
{
    const struct program *p = e->program;
    e->channels = ARENA_ARRAY(e->arena, struct channel_state, (size_t)p->n_channels);
    for (int32_t i = 0; i < p->n_channels; i++) {
        const struct channel *x = &p->channels[i];
        struct channel_state *c = &e->channels[i];
        int32_t room = code_room(p, i);
        c->from_lane = e->lane_of_stage[x->from_stage], c->to_lane = e->lane_of_stage[x->to_stage];
        c->ahead = x->receive_ahead > 1 ? x->receive_ahead : 1;
        c->keep = c->ahead > room ? c->ahead : room;
        TRY(network_join(e->network, k, x->link, x->direction, x->bytes, &c->resource, err));
        c->occupancy_ns = network_occupancy_ns(e->network, c->resource, x->bytes);
        buffer_ring_lives(p, i, c);
        if (e->trace) {
            c->sent_by = phase_of(&p->stages[x->from_stage], INSTR_SEND, i);
            c->received_by = phase_of(&p->stages[x->to_stage], INSTR_RECEIVE, i);
        }
        int64_t capacity = 4;
        while (capacity < 2 * c->keep + 2) capacity *= 2;
        make_window(e, c, capacity);
    }
    return OK;
}

/* Channels whose messages change a lane's memory, at either end. */
static void find_touching(struct engine *e)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < e->program->n_devices; i++) {
            struct lane_state *l = &e->lanes[i];
            if (pass) l->touching = ARENA_ARRAY(e->arena, int32_t, (size_t)l->n_touching);
            l->n_touching = 0;
        }
        for (int32_t i = 0; i < e->program->n_channels; i++) {
            const struct channel_state *c = &e->channels[i];
            struct lane_state *ends[2] = {c->born_bytes ? &e->lanes[c->to_lane] : NULL,
                                          c->dead_bytes ? &e->lanes[c->from_lane] : NULL};
            for (int k = 0; k < 2; k++) {
                if (!ends[k]) continue;
                if (pass) ends[k]->touching[ends[k]->n_touching] = i;
                ends[k]->n_touching++;
            }
        }
    }
}

void messages_start(struct engine *e)
{
    for (int32_t i = 0; i < e->program->n_channels; i++) {
        int32_t link = e->program->channels[i].link;
        e->channels[i].alone = network_alone(e->network, e->channels[i].resource);
        e->channels[i].fluid = link >= 0 && e->program->links[link].sharing == LINK_FLUID;
    }
    find_touching(e);
}

/* When the message at the head of the queue is ready; -1: not known yet. */
static int64_t ready_at(const struct channel_state *c)
{
    if (c->pushed || c->next == c->tail) return -1;
    int64_t seq = c->queue[c->next & (c->capacity - 1)], when = at(c, seq)->handed_ns;
    int64_t posted = seq < c->ahead ? 0 : at(c, seq - c->ahead)->consumed_ns;
    if (posted < 0) return -1;
    if (posted > when) when = posted;
    int64_t before = c->fluid ? c->started_ns : c->left_ns;
    return before > when ? before : when;
}

/* The head of the queue has left. Messages of a channel have one size, so fairly shared ones also leave in order. */
static void moved(struct engine *e, int32_t channel, const struct passage *passage)
{
    struct channel_state *c = &e->channels[channel];
    if (passage->arrival_ns > ENGINE_MAX_NS)
        engine_fail(e, ERR_INPUT, "simulated time exceeds 73 years");
    int64_t seq = c->queue[c->head++ & (c->capacity - 1)];
    at(c, seq)->left_ns = c->left_ns = passage->left_ns;
    at(c, seq)->arrival_ns = passage->arrival_ns;
    for (; at(c, c->low)->left_ns >= 0; c->low++)
        if (c->low >= c->keep) *at(c, c->low - c->keep) = UNKNOWN;
    if (!c->fluid) c->pushed = false, c->next = c->head;
    if (e->overlap)
        overlap_ends(e, e->program->channels[channel].link, c->from_lane, c->to_lane, passage->left_ns);
    if (c->dead_bytes) memory_from_network(e->memory, c->from_lane, passage->left_ns, -c->dead_bytes);
    if (e->trace) report_message(e, channel, seq, passage);
    if (e->served && e->program->channels[channel].by_step) served_message(e, channel, passage->arrival_ns);
    engine_wake(e, c->to_lane);
    engine_wake(e, c->from_lane);
}

int64_t messages_occupancy(const struct engine *e, int32_t channel)
{
    const struct channel_state *c = &e->channels[channel];
    if (!e->jitter) return c->occupancy_ns;
    return jitter_message_ns(e->jitter, channel, c->queue[c->next & (c->capacity - 1)],
                             c->occupancy_ns);
}

static void become_ready(struct engine *e, int32_t channel)
{
    struct channel_state *c = &e->channels[channel];
    int64_t when = ready_at(c);
    if (when < 0) return;
    if (!c->alone) {
        c->pushed = true;
        event_queue_push(e->queue,
                         (struct event){.time_ns = when,
                                        .kind = EVENT_READY,
                                        .index = channel,
                                        .seq = c->order});
        return;
    }
    for (; when >= 0 && e->stop != STOP_ERROR; when = ready_at(c)) {
        struct passage passage;
        if (!network_ready(e->network, channel, c->resource, messages_occupancy(e, channel), when,
                           &passage))
            BUG("a channel alone on its link waits for others");
        e->events++;
        messages_started(e, channel, passage.start_ns);
        moved(e, channel, &passage);
    }
}

/* A sender without a buffer ring may hand over any number of messages. */
static void widen(struct engine *e, struct channel_state *c, int64_t seq)
{
    struct channel_state old = *c;
    int64_t capacity = c->capacity;
    while (seq - oldest(c) >= capacity) capacity *= 2;
    make_window(e, c, capacity);
    for (int64_t i = oldest(c); i < oldest(c) + old.capacity; i++) *at(c, i) = *at(&old, i);
    for (int64_t i = c->head; i < c->tail; i++)
        c->queue[i & (capacity - 1)] = old.queue[i & (old.capacity - 1)];
}

void messages_hand_over(struct engine *e, int32_t channel, int64_t seq, int64_t now_ns)
{
    struct channel_state *c = &e->channels[channel];
    if (seq >= oldest(c) + c->capacity) widen(e, c, seq);
    if (seq < c->low || at(c, seq)->handed_ns >= 0) {
        engine_fail(e, ERR_INPUT,
                    "message %" PRId64 " of channel %" PRId32 " (stage %" PRId32 " to %" PRId32
                    ") is sent twice",
                    seq, channel, e->program->channels[channel].from_stage,
                    e->program->channels[channel].to_stage);
        return;
    }
    at(c, seq)->handed_ns = now_ns;
    c->queue[c->tail++ & (c->capacity - 1)] = seq;
    become_ready(e, channel);
}

void messages_consumed(struct engine *e, int32_t channel, int64_t seq, int64_t now_ns)
{
    struct channel_state *c = &e->channels[channel];
    if (seq < oldest(c)) return; /* a second RECEIVE of an old message */
    at(c, seq)->consumed_ns = now_ns;
    become_ready(e, channel);
}

static const struct message *find(const struct engine *e, int32_t channel, int64_t seq)
{
    static const struct message long_ago = {0, 0, 0, 0};
    const struct channel_state *c = &e->channels[channel];
    if (seq < oldest(c)) return &long_ago;
    return seq < oldest(c) + c->capacity ? at(c, seq) : &UNKNOWN;
}

int64_t messages_arrival(const struct engine *e, int32_t channel, int64_t seq)
{
    return find(e, channel, seq)->arrival_ns;
}

int64_t messages_handed(const struct engine *e, int32_t channel, int64_t seq)
{
    return find(e, channel, seq)->handed_ns;
}

int64_t messages_settled(const struct engine *e, int32_t lane)
{
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < e->lanes[lane].n_touching; i++) {
        const struct channel_state *c = &e->channels[e->lanes[lane].touching[i]];
        if (c->left_ns < least) least = c->left_ns;
    }
    return least;
}

int64_t messages_left(const struct engine *e, int32_t channel, int64_t seq)
{
    return find(e, channel, seq)->left_ns;
}

void messages_started(struct engine *e, int32_t channel, int64_t start_ns)
{
    struct channel_state *c = &e->channels[channel];
    c->started_ns = start_ns;
    if (e->overlap)
        overlap_begins(e, e->program->channels[channel].link, c->from_lane, c->to_lane, start_ns);
    if (c->born_bytes) memory_from_network(e->memory, c->to_lane, start_ns, c->born_bytes);
}

void messages_follow(struct engine *e, int32_t channel)
{
    struct channel_state *c = &e->channels[channel];
    if (!c->fluid) return;
    c->pushed = false;
    c->next++;
    become_ready(e, channel);
}

void messages_left_link(struct engine *e, int32_t channel, const struct passage *passage)
{
    moved(e, channel, passage);
    become_ready(e, channel);
}
