/* core/program/orders.c - static checks of a program's orders, before the token game.
 *
 * Both ends of a channel have the same microbatches in the same order, and "before" among groups,
 * over all lanes, has no cycle, so one order fits all. Operators are irrelevant to the game: each
 * procedure is reduced to its other instructions first.
 */
#include "core/program/game.h"

#include "core/base/arena.h"
#include "core/base/sorted.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *game_device(const struct game *g, int32_t stage)
{
    return g->p->devices[g->p->stages[stage].device].name;
}

const char *game_channel(const struct game *g, int32_t channel)
{
    const struct channel *c = &g->p->channels[channel];
    return arena_printf(g->a, "%s %" PRId32 "→%" PRId32, c->gradient ? "gradient" : "activation",
                        g->p->stages[c->from_stage].stage, g->p->stages[c->to_stage].stage);
}

const char *game_call(const struct game *g, const struct game_lane *l)
{
    const struct procedure *p = &l->s->procedures[l->call.procedure];
    char step[24] = "", chunk[16] = "";
    if (game_step(l)) snprintf(step, sizeof step, " of step %" PRId32, game_step(l));
    if (g->p->lanes[l->device].n_stages > 1)
        snprintf(chunk, sizeof chunk, "%" PRId32, l->call.chunk);
    if (l->call.microbatch < 0) return arena_printf(g->a, "%s%c%s", chunk, p->phase, step);
    return arena_printf(g->a, "%s%c%" PRId32 "%s", chunk, p->phase, l->call.microbatch, step);
}

/* --- reduction to communication --- */

enum { NEVER = -1, VARIOUS = -2 };

/* The instruction before and behind each collective, over all procedures that have it. */
struct neighbours {
    int32_t *before, *behind; /* (n_collectives) a collective, NEVER, or VARIOUS */
};

static void note(int32_t *known, int32_t now)
{
    if (*known == NEVER) *known = now;
    if (*known != now) *known = VARIOUS;
}

static void find_neighbours(const struct program *p, const struct procedure *q,
                            const struct neighbours *x)
{
    int32_t last = VARIOUS; /* the instruction before this one, if it is a collective */
    for (int32_t i = 0; i < q->n_instrs; i++) {
        const struct instr *y = &q->instrs[i];
        if (y->kind == INSTR_COMPUTE) continue;
        bool call = y->kind == INSTR_COLLECTIVE && collective_of_tensor(&p->collectives[y->arg]);
        if (last >= 0) note(&x->behind[last], call ? y->arg : VARIOUS);
        if (call) note(&x->before[y->arg], last);
        last = call ? y->arg : VARIOUS;
    }
    if (last >= 0) note(&x->behind[last], VARIOUS);
}

static bool same_members(const struct collective *x, const struct collective *y)
{
    bool same = x->n_members == y->n_members;
    for (int32_t i = 0; same && x->members != y->members && i < x->n_members; i++)
        same = x->members[i].stage == y->members[i].stage;
    return same;
}

/* Collectives that always follow another one of the same members, with no other communication between: they can be launched, and
 * end, whenever that one has ended, so the game leaves them out. A call of a sharded stage has hundreds. */
static bool *find_followers(struct game *g)
{
    const struct program *p = g->p;
    size_t n = (size_t)p->n_collectives;
    struct neighbours x = {ARENA_ARRAY(g->a, int32_t, n), ARENA_ARRAY(g->a, int32_t, n)};
    for (size_t i = 0; i < n; i++) x.before[i] = x.behind[i] = NEVER;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t k = 0; k < p->stages[s].n_procedures; k++)
            find_neighbours(p, &p->stages[s].procedures[k], &x);
    bool *follows = ARENA_ARRAY(g->a, bool, n);
    for (int32_t i = 0; i < p->n_collectives; i++) {
        int32_t first = x.before[i];
        follows[i] = first >= 0 && first != i && x.behind[first] == i &&
                     same_members(&p->collectives[first], &p->collectives[i]);
    }
    return follows;
}

static bool counts(const struct game *g, const struct instr *x)
{
    return x->kind != INSTR_COMPUTE && !(x->kind == INSTR_COLLECTIVE && g->follows && g->follows[x->arg]);
}

static void boil(struct game *g)
{
    if (!g->every) g->follows = find_followers(g);
    g->procedures = ARENA_ARRAY(g->a, struct boiled *, (size_t)g->p->n_stages);
    for (int32_t s = 0; s < g->p->n_stages; s++) {
        const struct program_stage *stage = &g->p->stages[s];
        g->procedures[s] = ARENA_ARRAY(g->a, struct boiled, (size_t)stage->n_procedures);
        for (int32_t k = 0; k < stage->n_procedures; k++) {
            const struct procedure *p = &stage->procedures[k];
            struct boiled *b = &g->procedures[s][k];
            for (int32_t i = 0; i < p->n_instrs; i++) b->n += counts(g, &p->instrs[i]);
            b->instrs = ARENA_ARRAY(g->a, struct instr, (size_t)b->n);
            b->n = 0;
            for (int32_t i = 0; i < p->n_instrs; i++)
                if (counts(g, &p->instrs[i])) b->instrs[b->n++] = p->instrs[i];
        }
    }
}

/* --- one step of each lane --- */

static enum status note_transfer(struct game *g, const struct game_lane *l, const struct instr *x)
{
    struct game_channel *c = &g->channels[x->arg];
    bool send = x->kind == INSTR_SEND;
    int64_t *n = send ? &c->n_sent : &c->n_received;
    const struct channel *of = &g->p->channels[x->arg];
    if ((l->call.microbatch < 0) != of->by_step || *n == program_channel_messages(g->p, of))
        return error_set(g->err, ERR_INPUT, "%s at %s: more messages of %s than microbatches",
                         g->p->devices[l->device].name, game_call(g, l), game_channel(g, x->arg));
    int64_t *first = send ? &c->sent_ahead : &c->received_ahead;
    bool ahead = ahead_steps(&l->s->procedures[l->call.procedure]);
    if (*first && !ahead)
        return error_set(g->err, ERR_INPUT, "%s at %s: a message of %s of this step behind one of the next step",
                         g->p->devices[l->device].name, game_call(g, l), game_channel(g, x->arg));
    *first += ahead;
    (send ? c->sent : c->received)[(*n)++] = l->call.microbatch;
    return OK;
}

/* The k-th message of a step, of `n` in a pass whose last `ahead` are the next step's first. */
static int32_t message_of_step(const int32_t *in_pass, int64_t n, int64_t ahead, int64_t k)
{
    return in_pass[k < ahead ? n - ahead + k : k - ahead];
}

/* The effect of the current call on channels and on the lane's stream of groups. */
static enum status walk_call(struct game *g, struct game_lane *l, size_t room[2])
{
    const struct boiled *b = &g->procedures[l->s - g->p->stages][l->call.procedure];
    for (int32_t i = 0; i < b->n; i++) {
        const struct instr *x = &b->instrs[i];
        if (x->kind == INSTR_SEND || x->kind == INSTR_RECEIVE) TRY(note_transfer(g, l, x));
        if (!instr_launches(g->p, x)) continue;
        if (g->launched_by[x->arg] == l->device + 1 &&
            !program_collective_repeats(&g->p->collectives[x->arg]))
            return error_set(g->err, ERR_INPUT, "%s at %s: collective %s is launched twice a step",
                             g->p->devices[l->device].name, game_call(g, l),
                             g->p->collectives[x->arg].name);
        g->launched_by[x->arg] = l->device + 1;
        l->stream = arena_grow(g->a, l->stream, (size_t)l->n_stream, &room[0], sizeof *l->stream);
        l->microbatch =
            arena_grow(g->a, l->microbatch, (size_t)l->n_stream, &room[1], sizeof *l->microbatch);
        l->microbatch[l->n_stream] = l->call.microbatch;
        l->stream[l->n_stream++] = x->arg;
    }
    return OK;
}

/* One step of a lane, statically: every call once, messages of each channel, the stream of groups.
 */
static enum status walk_lane(struct game *g, struct game_lane *l)
{
    const struct lane *lane = &g->p->lanes[l->device];
    size_t room[2] = {0, 0};
    uint8_t **seen = ARENA_ARRAY(g->a, uint8_t *, (size_t)lane->n_stages);
    for (int32_t c = 0; c < lane->n_stages; c++) { /* bits of letters; [microbatches] for the update, then procedures with a period */
        const struct program_stage *s = &g->p->stages[lane->stages[c]];
        seen[c] = arena_alloc(g->a, (size_t)s->microbatches + 1 + (size_t)s->n_procedures, 1);
    }
    cursor_start(&l->cursor, &g->p->orders[lane->order]);
    while (cursor_next(&l->cursor, &l->call)) {
        l->s = program_called(g->p, l->device, &l->call);
        enum phase phase = l->s->procedures[l->call.procedure].phase;
        int32_t m = l->call.microbatch < 0 ? l->s->microbatches : l->call.microbatch;
        const struct procedure *f = &l->s->procedures[l->call.procedure];
        bool check = phase == PHASE_U && *f->variant;
        if (f->period || check) m = l->s->microbatches + 1 + l->call.procedure;
        uint8_t bit = check ? 1 << 5 : (uint8_t)(1 << (strchr("FBIWU", phase) - "FBIWU")),
                *at = &seen[l->call.chunk][m];
        if (*at & bit)
            return error_set(g->err, ERR_INPUT, "%s: %s is called twice",
                             g->p->devices[l->device].name, game_call(g, l));
        *at |= bit;
        TRY(walk_call(g, l, room));
    }
    return OK;
}

static enum status compare_orders(struct game *g)
{
    for (int32_t i = 0; i < g->p->n_channels; i++) {
        const struct game_channel *c = &g->channels[i];
        const struct channel *x = &g->p->channels[i];
        const char *from = game_device(g, x->from_stage), *to = game_device(g, x->to_stage);
        if (c->n_sent != c->n_received)
            return error_set(g->err, ERR_INPUT,
                             "%s: %s sends %" PRId64 " messages a step, %s receives %" PRId64,
                             game_channel(g, i), from, c->n_sent, to, c->n_received);
        for (int64_t k = 0; k < c->n_sent; k++) {
            int32_t sent = message_of_step(c->sent, c->n_sent, c->sent_ahead, k),
                    received = message_of_step(c->received, c->n_received, c->received_ahead, k);
            if (sent != received)
                return error_set(g->err, ERR_INPUT,
                                 "%s: orders differ: message %" PRId64
                                 " that %s sends is of microbatch %" PRId32 ", %s expects %" PRId32,
                                 game_channel(g, i), k, from, sent, to, received);
        }
    }
    return OK;
}

/* Of each member; a group that is never launched counts as one. */
static int32_t launches_of(const struct game *g, const int32_t *times, int32_t group)
{
    bool left_out = g->follows && g->follows[group];
    return times[group] || left_out ? times[group] : 1;
}

/* Times that each lane launches each group, which must be the same for all its members. */
static enum status count_launches(struct game *g, int32_t *launches, int32_t *times)
{
    for (int32_t i = 0; i < g->p->n_devices; i++) {
        const struct game_lane *l = &g->lanes[i];
        for (int32_t k = 0; k < l->n_stream; k++) g->launched_times[l->stream[k]] = 0;
        for (int32_t k = 0; k < l->n_stream; k++) g->launched_times[l->stream[k]]++;
        for (int32_t k = 0; k < l->n_stream; k++) {
            int32_t group = l->stream[k], n = g->launched_times[group];
            if (!n) continue;
            if (times[group] && times[group] != n)
                return error_set(
                    g->err, ERR_INPUT,
                    "collective %s: %s launches it %" PRId32 " times a step, others %" PRId32,
                    g->p->collectives[group].name, g->p->devices[i].name, n, times[group]);
            times[group] = n;
            launches[group] += n;
            g->launched_times[group] = 0;
        }
    }
    for (int32_t i = 0; i < g->p->n_collectives; i++) {
        const struct collective *x = &g->p->collectives[i];
        int32_t n = launches_of(g, times, i);
        if (launches[i] != n * program_collective_launches(x))
            return error_set(g->err, ERR_INPUT,
                             "collective %s: %" PRId32 " launches a step by %" PRId32 " members",
                             x->name, launches[i], program_collective_launches(x));
    }
    return OK;
}

/* The k-th launch of a group in a step is a node: first[group] + k. nodes: of all lanes' streams, one after the other. */
static void number_launches(struct game *g, const int32_t *first, int32_t *nodes, int32_t *before)
{
    for (int32_t i = 0, at = 0; i < g->p->n_devices; i++) {
        const struct game_lane *l = &g->lanes[i];
        for (int32_t k = 0; k < l->n_stream; k++) g->launched_times[l->stream[k]] = 0;
        for (int32_t k = 0; k < l->n_stream; k++, at++) {
            nodes[at] = first[l->stream[k]] + g->launched_times[l->stream[k]]++;
            if (k) before[nodes[at]]++;
        }
    }
}

/* ERR_INPUT if the k-th launch of a collective has different microbatches on its members. */
static enum status compare_microbatches(struct game *g, const int32_t *nodes, int32_t n_nodes)
{
    int32_t *of = ARENA_ARRAY(g->a, int32_t, (size_t)n_nodes); /* + 2; 0: not known yet */
    for (int32_t i = 0, at = 0; i < g->p->n_devices; i++) {
        const struct game_lane *l = &g->lanes[i];
        for (int32_t k = 0; k < l->n_stream; k++, at++) {
            const struct collective *x = &g->p->collectives[l->stream[k]];
            int32_t *known = &of[nodes[at]], microbatch = l->microbatch[k];
            if (!collective_of_tensor(x)) continue;
            if (*known && *known != microbatch + 2)
                return error_set(g->err, ERR_INPUT,
                                 "collective %s: %s launches it for microbatch %" PRId32
                                 ", others for %" PRId32,
                                 x->name, g->p->devices[i].name, microbatch, *known - 2);
            *known = microbatch + 2;
        }
    }
    return OK;
}

/* Every member launches its group as often as the others, and "before" has no cycle (Kahn, 1962). */
static enum status compare_streams(struct game *g)
{
    int32_t n = g->p->n_collectives, n_nodes = 0, n_stream = 0, n_stack = 0, n_sorted = 0;
    int32_t *launches = ARENA_ARRAY(g->a, int32_t, (size_t)n),
            *times = ARENA_ARRAY(g->a, int32_t, (size_t)n),
            *first = ARENA_ARRAY(g->a, int32_t, (size_t)n + 1),
            *begin = ARENA_ARRAY(g->a, int32_t, (size_t)g->p->n_devices);
    TRY(count_launches(g, launches, times));
    for (int32_t i = 0; i < n; i++) first[i] = n_nodes, n_nodes += launches_of(g, times, i);
    for (int32_t i = 0; i < g->p->n_devices; i++)
        begin[i] = n_stream, n_stream += g->lanes[i].n_stream;
    int32_t *nodes = ARENA_ARRAY(g->a, int32_t, (size_t)n_stream),
            *before = ARENA_ARRAY(g->a, int32_t, (size_t)n_nodes),
            *group_of = ARENA_ARRAY(g->a, int32_t, (size_t)n_nodes),
            *stack = ARENA_ARRAY(g->a, int32_t, (size_t)n_nodes),
            *place = ARENA_ARRAY(g->a, int32_t, (size_t)g->p->n_devices);
    number_launches(g, first, nodes, before);
    TRY(compare_microbatches(g, nodes, n_nodes));
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < launches_of(g, times, i); k++) {
            group_of[first[i] + k] = i;
            if (!before[first[i] + k]) stack[n_stack++] = first[i] + k;
        }
    while (n_stack) {
        const struct collective *group = &g->p->collectives[group_of[stack[--n_stack]]];
        n_sorted++;
        for (int32_t k = 0; k < program_collective_launches(group); k++) {
            int32_t lane = g->lane_of_stage[group->members[k].stage];
            const struct game_lane *l = &g->lanes[lane];
            if (++place[lane] < l->n_stream && !--before[nodes[begin[lane] + place[lane]]])
                stack[n_stack++] = nodes[begin[lane] + place[lane]];
        }
    }
    for (int32_t i = 0; i < n_nodes && n_sorted < n_nodes; i++)
        if (before[i])
            return error_set(
                g->err, ERR_INPUT,
                "collectives are launched in different orders on different devices, among them %s; replicas whose stages have different "
                "layers need zero: 0 or 1, or the same layers in all stages",
                g->p->collectives[group_of[i]].name);
    return OK;
}

int64_t *game_launched(const struct game_lane *l, int32_t group)
{
    int32_t low = sorted_place(l->divided, l->n_divided, group);
    return low < l->n_divided && l->divided[low] == group ? &l->launched[low] : NULL;
}

static void find_divided(struct game *g)
{
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < g->p->n_collectives; i++) {
            const struct collective *x = &g->p->collectives[i];
            if (g->follows && g->follows[i]) continue;
            for (int32_t k = 0; program_collective_repeats(x) && k < x->n_members; k++) {
                struct game_lane *l = &g->lanes[g->lane_of_stage[x->members[k].stage]];
                if (!pass)
                    l->n_divided++;
                else if (!l->divided) {
                    l->divided = ARENA_ARRAY(g->a, int32_t, (size_t)l->n_divided);
                    l->launched = ARENA_ARRAY(g->a, int64_t, (size_t)l->n_divided);
                    l->n_divided = 0;
                }
                if (pass) l->divided[l->n_divided++] = i;
            }
        }
}

enum status game_orders(struct game *g)
{
    boil(g);
    find_divided(g);
    for (int32_t i = 0; i < g->p->n_devices; i++) TRY(walk_lane(g, &g->lanes[i]));
    TRY(compare_orders(g));
    return compare_streams(g);
}
