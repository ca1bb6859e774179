/* core/program/check.c - the deadlock check (token game): a program executed without time.
 *
 * Lanes run as far as they can, messages leave as soon as they may, collectives end as soon as all
 * members have launched them in the order of their streams. No step disables another,
 * so the order of execution does not matter (a Petri net without conflicts): either all lanes finish or the
 * same set stays blocked, which proves a deadlock for any speeds.
 * A lane with an F "ahead" passes its order once more, in front of the first step (program.h).
 * Orders are equal in every step; enough steps are executed for every buffer to be reused. Procedures with a period are executed in
 * every step: each of their calls meets the same neighbours as in its own step.
 * core/program/orders.c compares orders statically first.
 */
#include "core/program/game.h"
#include "core/program/offload.h"
#include "core/program/replicas.h"

#include "core/base/arena.h"
#include "core/base/stop.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STEPS_MAX = 16, MESSAGES_MAX = 1 << 26 }; /* 5 bytes each */

static void wake(struct game *g, int32_t lane)
{
    struct game_lane *l = &g->lanes[lane];
    if (l->queued || l->done) return;
    l->queued = true;
    g->ready[g->n_ready++] = lane;
}

static void wake_waiter(struct game *g, int32_t stage, enum wait wait, int32_t index, int64_t seq)
{
    int32_t lane = g->lane_of_stage[stage];
    const struct game_lane *l = &g->lanes[lane];
    if (l->wait == wait && l->wait_index == index && l->wait_seq == seq) wake(g, lane);
}

/* Messages leave in the order they were handed over, each once its receive is posted. */
static void move_messages(struct game *g, int32_t channel)
{
    struct game_channel *c = &g->channels[channel];
    while (c->head < c->tail && c->state[c->queue[c->head]] & POSTED) {
        int64_t seq = c->queue[c->head++];
        c->state[seq] |= LEFT;
        wake_waiter(g, g->p->channels[channel].to_stage, WAIT_MESSAGE, channel, seq);
        wake_waiter(g, g->p->channels[channel].from_stage, WAIT_LEFT, channel, seq);
    }
}

static enum status claim(struct game *g, int32_t stage, int32_t buffer_ring, int64_t seq)
{
    const struct program_stage *s = &g->p->stages[stage];
    const struct buffer_ring *r = &s->buffer_rings[buffer_ring];
    int64_t *holder = &g->holders[stage][buffer_ring][buffer_ring_at(r, seq)];
    if (*holder >= 0)
        return error_set(g->err, ERR_INPUT,
                         "%s: buffer ring %" PRId32 " (%c to %c, %" PRId32
                         " buffers): microbatch %" PRId64 " overwrites microbatch %" PRId64
                         " while it is alive",
                         game_device(g, stage), buffer_ring, r->birth, r->death, r->count,
                         seq % s->microbatches, *holder % s->microbatches);
    *holder = seq;
    return OK;
}

static enum status post(struct game *g, int32_t channel, int64_t seq)
{
    struct game_channel *c = &g->channels[channel];
    const struct channel *x = &g->p->channels[channel];
    if (seq >= c->n) return OK;
    if (!x->by_step) TRY(claim(g, x->to_stage, g->p->stages[x->to_stage].slots[x->to_slot].buffer_ring, seq));
    c->state[seq] |= POSTED;
    move_messages(g, channel);
    return OK;
}

static bool block(struct game_lane *l, enum wait wait, int32_t index, int64_t seq)
{
    l->wait = wait, l->wait_index = index, l->wait_seq = seq;
    return true;
}

/* The head of a lane's stream was just launched or became the head. The group is put on the stack of those that end when its last member
 * comes, which is once in a round. */
static void head_changed(struct game *g, const struct game_lane *l)
{
    if (l->handed <= l->ended) return;
    int32_t group = l->stream[l->ended % l->n_stream];
    if (++g->at_head[group] == program_collective_launches(&g->p->collectives[group]))
        g->ending[g->n_ending++] = group;
}

static void end_group(struct game *g, int32_t group)
{
    const struct collective *x = &g->p->collectives[group];
    int32_t step = g->group_ended[group]++, launches = program_collective_launches(x);
    g->at_head[group] = 0;
    for (int32_t k = 0; k < launches; k++) {
        struct game_lane *l = &g->lanes[g->lane_of_stage[x->members[k].stage]];
        l->ended++;
        head_changed(g, l);
        wake_waiter(g, x->members[k].stage, WAIT_GROUP, group, step);
    }
}

/* Ending one group may uncover others at its members. */
static void hand_group(struct game *g, struct game_lane *l, int64_t *launched)
{
    if (launched) ++*launched;
    if (l->handed++ == l->ended) head_changed(g, l);
    while (g->n_ending) end_group(g, g->ending[--g->n_ending]);
}

/* Whether a message must still leave a buffer that this call writes. */
static bool blocked_by_sends(struct game *g, struct game_lane *l, enum phase phase, int64_t seq)
{
    for (int32_t i = 0; i < l->s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &l->s->buffer_rings[i];
        if (r->sent < 0 || r->birth != phase || seq < r->count) continue;
        if (!(g->channels[r->sent].state[seq - r->count] & LEFT))
            return block(l, WAIT_LEFT, r->sent, seq - r->count);
    }
    return false;
}

static enum status start_call(struct game *g, struct game_lane *l, enum phase phase, int64_t seq)
{
    int32_t stage = (int32_t)(l->s - g->p->stages);
    for (int32_t i = 0; i < l->s->n_buffer_rings; i++)
        if (l->s->buffer_rings[i].birth == phase && l->s->buffer_rings[i].death != PHASE_SEND)
            TRY(claim(g, stage, i, seq));
    return OK;
}

static enum status end_call(struct game *g, struct game_lane *l, enum phase phase, int64_t seq)
{
    int32_t stage = (int32_t)(l->s - g->p->stages);
    for (int32_t i = 0; i < l->s->n_buffer_rings; i++) {
        const struct buffer_ring *r = &l->s->buffer_rings[i];
        if (r->death != phase) continue;
        int64_t *holder = g->holders[stage][i];
        if (phase == PHASE_U) {
            memset(holder, -1, (size_t)r->count * sizeof *holder);
            continue;
        }
        if (holder[buffer_ring_at(r, seq)] != seq)
            return error_set(g->err, ERR_INPUT,
                             "%s at %s: buffer ring %" PRId32
                             " (%c to %c) does not hold this microbatch",
                             g->p->devices[l->device].name, game_call(g, l), i, r->birth, r->death);
        holder[buffer_ring_at(r, seq)] = -1;
    }
    const struct boiled *b = &g->procedures[stage][l->call.procedure];
    if (offload_consumes(&l->s->procedures[l->call.procedure])) game_consumed(g, l, seq);
    for (int32_t i = 0; i < b->n; i++) {
        if (b->instrs[i].kind == INSTR_RECEIVE)
            TRY(post(g, b->instrs[i].arg, seq + g->p->channels[b->instrs[i].arg].receive_ahead));
    }
    return OK;
}

/* One instruction; true: the lane must wait. */
static bool take(struct game *g, struct game_lane *l, const struct instr *x, int64_t seq)
{
    struct game_channel *c =
        x->kind == INSTR_SEND || x->kind == INSTR_RECEIVE ? &g->channels[x->arg] : NULL;
    if (x->kind == INSTR_RECEIVE && !(c->state[seq] & LEFT))
        return block(l, WAIT_MESSAGE, x->arg, seq);
    if (x->kind == INSTR_COLLECTIVE_WAIT) {
        const int64_t *launched = game_launched(l, x->arg);
        int64_t last = launched ? *launched - 1 : l->step;
        if (g->group_ended[x->arg] <= last) return block(l, WAIT_GROUP, x->arg, last);
    }
    if (x->kind == INSTR_SEND) {
        c->queue[c->tail++] = (int32_t)seq;
        move_messages(g, x->arg);
    }
    if (x->kind == INSTR_COLLECTIVE_START) hand_group(g, l, game_launched(l, x->arg));
    if (x->kind == INSTR_COLLECTIVE && collective_of_tensor(&g->p->collectives[x->arg])) {
        int64_t *launched = game_launched(l, x->arg);
        if (!l->met) hand_group(g, l, launched);
        l->met = g->group_ended[x->arg] < *launched;
        if (l->met) return block(l, WAIT_GROUP, x->arg, *launched - 1);
    }
    return false;
}

static bool next_call(const struct game *g, struct game_lane *l)
{
    do {
        while (!cursor_next(&l->cursor, &l->call)) {
            if (++l->step >= g->steps) return false;
            cursor_start(&l->cursor, l->cursor.order);
        }
        l->s = program_called(g->p, l->device, &l->call);
    } while (!ahead_executes(&l->s->procedures[l->call.procedure], l->step, g->steps));
    l->instr = -1;
    return true;
}

static enum status run_lane(struct game *g, struct game_lane *l)
{
    l->wait = WAIT_NONE;
    while (!l->done) {
        const struct boiled *b = &g->procedures[l->s - g->p->stages][l->call.procedure];
        enum phase phase = l->s->procedures[l->call.procedure].phase;
        int64_t seq = l->call.microbatch < 0
                          ? l->step
                          : (int64_t)game_step(l) * l->s->microbatches + l->call.microbatch;
        if (l->instr < 0) {
            if (blocked_by_sends(g, l, phase, seq)) return OK;
            TRY(start_call(g, l, phase, seq));
            l->instr = 0;
        }
        for (; l->instr < b->n; l->instr++) {
            const struct instr *x = &b->instrs[l->instr];
            if (x->kind == INSTR_OFFLOAD || x->kind == INSTR_FETCH) TRY(game_offload(g, l, x, seq));
            if (take(g, l, x, seq)) return OK;
        }
        TRY(end_call(g, l, phase, seq));
        l->done = !next_call(g, l);
    }
    return OK;
}

/* --- initial state --- */

static int32_t steps_to_play(const struct program *p)
{
    int64_t buffers = 1, microbatches = INT32_MAX;
    for (int32_t s = 0; s < p->n_stages; s++) {
        if (p->stages[s].microbatches < microbatches) microbatches = p->stages[s].microbatches;
        for (int32_t i = 0; i < p->stages[s].n_buffer_rings; i++)
            if (p->stages[s].buffer_rings[i].count > buffers)
                buffers = p->stages[s].buffer_rings[i].count;
        if (p->stages[s].offload.count > buffers) buffers = p->stages[s].offload.count;
    }
    int64_t steps = 2 + (buffers + microbatches - 1) / microbatches, messages = 1;
    for (int32_t i = 0; i < p->n_channels; i++)
        messages += program_channel_messages(p, &p->channels[i]);
    if (steps > STEPS_MAX) steps = STEPS_MAX;
    return steps > 2 && steps * messages > MESSAGES_MAX ? 2 : (int32_t)steps;
}

static void set_channels(struct game *g)
{
    g->channels = ARENA_ARRAY(g->a, struct game_channel, (size_t)g->p->n_channels);
    for (int32_t i = 0; i < g->p->n_channels; i++) {
        struct game_channel *c = &g->channels[i];
        size_t m = (size_t)program_channel_messages(g->p, &g->p->channels[i]),
               n = m * (size_t)g->steps;
        c->n = (int64_t)n;
        c->state = arena_alloc(g->a, n, 1);
        c->queue = ARENA_ARRAY(g->a, int32_t, n);
        c->sent = ARENA_ARRAY(g->a, int32_t, m);
        c->received = ARENA_ARRAY(g->a, int32_t, m);
    }
}

static void set_lanes(struct game *g)
{
    const struct program *p = g->p;
    g->lanes = ARENA_ARRAY(g->a, struct game_lane, (size_t)p->n_devices);
    g->lane_of_stage = ARENA_ARRAY(g->a, int32_t, (size_t)p->n_stages);
    g->holders = ARENA_ARRAY(g->a, int64_t **, (size_t)p->n_stages);
    g->ready = ARENA_ARRAY(g->a, int32_t, (size_t)p->n_devices);
    g->ending = ARENA_ARRAY(g->a, int32_t, (size_t)p->n_collectives);
    g->at_head = ARENA_ARRAY(g->a, int32_t, (size_t)p->n_collectives);
    g->launched_by = ARENA_ARRAY(g->a, int32_t, (size_t)p->n_collectives);
    g->launched_times = ARENA_ARRAY(g->a, int32_t, (size_t)p->n_collectives);
    g->group_ended = ARENA_ARRAY(g->a, int32_t, (size_t)p->n_collectives);
    for (int32_t i = 0; i < p->n_devices; i++) {
        g->lanes[i] = (struct game_lane){.device = i, .instr = -1};
        for (int32_t c = 0; c < p->lanes[i].n_stages; c++)
            g->lane_of_stage[p->lanes[i].stages[c]] = i;
    }
    for (int32_t s = 0; s < p->n_stages; s++) {
        g->holders[s] = ARENA_ARRAY(g->a, int64_t *, (size_t)p->stages[s].n_buffer_rings);
        for (int32_t i = 0; i < p->stages[s].n_buffer_rings; i++) {
            size_t n = (size_t)p->stages[s].buffer_rings[i].count;
            g->holders[s][i] = ARENA_ARRAY(g->a, int64_t, n);
            memset(g->holders[s][i], -1, n * sizeof(int64_t));
        }
    }
}

static const char *wait_text(const struct game *g, const struct game_lane *l)
{
    if (l->wait == WAIT_GROUP)
        return arena_printf(g->a, "for collective %s", g->p->collectives[l->wait_index].name);
    return arena_printf(g->a, "for %s of microbatch %" PRId64 "%s", game_channel(g, l->wait_index),
                        l->wait_seq % l->s->microbatches,
                        l->wait == WAIT_LEFT ? " to leave its buffer" : "");
}

static enum status blocked_set(struct game *g, struct blocked_buffer_ring **rings,
                               int32_t *n_buffer_rings)
{
    char text[sizeof g->err->text];
    int32_t n = 0, left_out = 0;
    size_t length = 0;
    for (int32_t i = 0; i < g->p->n_devices; i++) {
        const struct game_lane *l = &g->lanes[i];
        if (l->done) continue;
        for (int32_t r = 0; rings && r < l->s->n_buffer_rings; r++)
            if (l->wait == WAIT_LEFT && l->s->buffer_rings[r].sent == l->wait_index)
                (*rings)[(*n_buffer_rings)++] =
                    (struct blocked_buffer_ring){(int32_t)(l->s - g->p->stages), r};
        const char *one = arena_printf(g->a, "%s%s at %s (waits %s)", n ? ", " : "",
                                       g->p->devices[i].name, game_call(g, l), wait_text(g, l));
        if (length + strlen(one) > sizeof text - 80) {
            left_out++;
            continue;
        }
        length += (size_t)snprintf(text + length, sizeof text - length, "%s", one);
        n++;
    }
    if (left_out) snprintf(text + length, sizeof text - length, " and %" PRId32 " more", left_out);
    return error_set(g->err, ERR_INPUT, "deadlock: %s", text);
}

static enum status start_posts(struct game *g)
{
    for (int32_t i = 0; i < g->p->n_channels; i++)
        for (int64_t seq = 0; seq < g->p->channels[i].receive_ahead && seq < g->channels[i].n;
             seq++)
            TRY(post(g, i, seq));
    return OK;
}

static enum status play(struct game *g)
{
    TRY(start_posts(g));
    for (int32_t i = g->p->n_devices - 1; i >= 0; i--) {
        struct game_lane *l = &g->lanes[i];
        cursor_start(&l->cursor, &g->p->orders[g->p->lanes[i].order]);
        l->step = ahead_on_lane(g->p, i) ? -1 : 0;
        l->done = !next_call(g, l);
        wake(g, i);
    }
    while (g->n_ready) {
        struct game_lane *l = &g->lanes[g->ready[--g->n_ready]];
        l->queued = false;
        TRY(stop_check(g->err));
        TRY(run_lane(g, l));
    }
    return OK;
}

static enum status play_all(struct arena *a, const struct program *p, bool every,
                            struct blocked_buffer_ring **blocked, int32_t *n_blocked,
                            struct error *err)
{
    struct error ignored;
    struct game g = {
        .a = a, .p = p, .every = every, .steps = steps_to_play(p), .err = err ? err : &ignored};
    int32_t buffer_rings = 0;
    if (n_blocked) *n_blocked = 0;
    for (int32_t s = 0; s < p->n_stages; s++) buffer_rings += p->stages[s].n_buffer_rings;
    if (blocked) *blocked = ARENA_ARRAY(a, struct blocked_buffer_ring, (size_t)buffer_rings);
    set_channels(&g);
    set_lanes(&g);
    game_offloads(&g);
    TRY(game_orders(&g));
    TRY(play(&g));
    for (int32_t i = 0; i < p->n_devices; i++)
        if (!g.lanes[i].done) return blocked_set(&g, blocked, n_blocked);
    return OK;
}

/* Of replicas that do the same one plays, without the collectives that only follow others. A game that fails is played with all, for a
 * message that names the right one. */
enum status program_play(struct arena *a, const struct program *p,
                         struct blocked_buffer_ring **blocked, int32_t *n_blocked,
                         struct error *err)
{
    struct error first = {0};
    struct arena *game = arena_new();
    struct program few;
    bool *keep = ARENA_ARRAY(game, bool, (size_t)p->n_stages + 1),
         fewer = program_unlike_replicas(game, p, keep);
    if (fewer) program_keep_replicas(game, p, keep, &few, NULL);
    enum status status = play_all(game, fewer ? &few : p, false, NULL, NULL, &first);
    arena_free(game);
    if (status == OK && n_blocked) *n_blocked = 0;
    return status == OK ? OK : play_all(a, p, true, blocked, n_blocked, err);
}

enum status program_check(struct arena *a, const struct program *p, struct error *err)
{
    TRY(program_valid(p, NULL, err));
    return program_play(a, p, NULL, NULL, err);
}
