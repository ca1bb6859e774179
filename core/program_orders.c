/* core/program_orders.c - what holds of the orders of a program before anybody moves.
 *
 * A channel's two ends name the same microbatches in the same order, and "before" among groups,
 * over all lanes, has no cycle - so one order serves all. Operators take no part in the game: a
 * procedure is boiled down to its other instructions first.
 */
#include "core/program_game.h"

#include "core/arena.h"

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

const char *game_call(const struct game *g, const struct lane_state *l)
{
    const struct procedure *p = &l->s->procedures[l->call.procedure];
    char step[24] = "", chunk[16] = "";
    if (l->step) snprintf(step, sizeof step, " of step %" PRId32, l->step);
    if (g->p->lanes[l->device].n_stages > 1)
        snprintf(chunk, sizeof chunk, "%" PRId32, l->call.chunk);
    if (l->call.microbatch < 0) return arena_printf(g->a, "%s%c%s", chunk, p->letter, step);
    return arena_printf(g->a, "%s%c%" PRId32 "%s", chunk, p->letter, l->call.microbatch, step);
}

static void boil(struct game *g)
{
    g->procedures = ARENA_ARRAY(g->a, struct boiled *, (size_t)g->p->n_stages);
    for (int32_t s = 0; s < g->p->n_stages; s++) {
        const struct program_stage *stage = &g->p->stages[s];
        g->procedures[s] = ARENA_ARRAY(g->a, struct boiled, (size_t)stage->n_procedures);
        for (int32_t k = 0; k < stage->n_procedures; k++) {
            const struct procedure *p = &stage->procedures[k];
            struct boiled *b = &g->procedures[s][k];
            for (int32_t i = 0; i < p->n_instrs; i++) b->n += p->instrs[i].kind != INSTR_COMPUTE;
            b->instrs = ARENA_ARRAY(g->a, struct instr, (size_t)b->n);
            b->n = 0;
            for (int32_t i = 0; i < p->n_instrs; i++)
                if (p->instrs[i].kind != INSTR_COMPUTE) b->instrs[b->n++] = p->instrs[i];
        }
    }
}

static enum status note_transfer(struct game *g, const struct lane_state *l, const struct instr *x)
{
    struct channel_state *c = &g->channels[x->arg];
    bool send = x->kind == INSTR_SEND;
    int64_t *n = send ? &c->n_sent : &c->n_received;
    if (l->call.microbatch < 0 || *n == l->s->microbatches)
        return error_set(g->err, ERR_INPUT, "%s at %s: more messages of %s than microbatches",
                         g->p->devices[l->device].name, game_call(g, l), game_channel(g, x->arg));
    (send ? c->sent : c->received)[(*n)++] = l->call.microbatch;
    return OK;
}

/* What the call at hand does to channels and to the lane's stream of groups. */
static enum status walk_call(struct game *g, struct lane_state *l, size_t *capacity)
{
    const struct boiled *b = &g->procedures[l->s - g->p->stages][l->call.procedure];
    for (int32_t i = 0; i < b->n; i++) {
        const struct instr *x = &b->instrs[i];
        if (x->kind == INSTR_SEND || x->kind == INSTR_RECEIVE) TRY(note_transfer(g, l, x));
        if (x->kind != INSTR_REDUCE) continue;
        if (g->launched_by[x->arg] == l->device + 1)
            return error_set(g->err, ERR_INPUT, "%s at %s: group %s is launched twice a step",
                             g->p->devices[l->device].name, game_call(g, l),
                             g->p->groups[x->arg].name);
        g->launched_by[x->arg] = l->device + 1;
        l->stream = arena_grow(g->a, l->stream, (size_t)l->n_stream, capacity, sizeof *l->stream);
        l->stream[l->n_stream++] = x->arg;
    }
    return OK;
}

/* One step of a lane on paper: every call once, who sends and receives what, the stream of groups.
 */
static enum status walk_lane(struct game *g, struct lane_state *l)
{
    const struct lane *lane = &g->p->lanes[l->device];
    size_t capacity = 0;
    uint8_t **seen = ARENA_ARRAY(g->a, uint8_t *, (size_t)lane->n_stages);
    for (int32_t c = 0; c < lane->n_stages;
         c++) /* bits of letters; [microbatches] for the update */
        seen[c] = arena_alloc(g->a, (size_t)g->p->stages[lane->stages[c]].microbatches + 1, 1);
    cursor_start(&l->cursor, &g->p->orders[lane->order]);
    while (cursor_next(&l->cursor, &l->call)) {
        l->s = program_called(g->p, l->device, &l->call);
        char letter = l->s->procedures[l->call.procedure].letter;
        int32_t m = l->call.microbatch < 0 ? l->s->microbatches : l->call.microbatch;
        uint8_t bit = (uint8_t)(1 << (strchr("FBIWU", letter) - "FBIWU")),
                *at = &seen[l->call.chunk][m];
        if (*at & bit)
            return error_set(g->err, ERR_INPUT, "%s: %s is called twice",
                             g->p->devices[l->device].name, game_call(g, l));
        *at |= bit;
        TRY(walk_call(g, l, &capacity));
    }
    return OK;
}

static enum status compare_orders(struct game *g)
{
    for (int32_t i = 0; i < g->p->n_channels; i++) {
        const struct channel_state *c = &g->channels[i];
        const struct channel *x = &g->p->channels[i];
        const char *from = game_device(g, x->from_stage), *to = game_device(g, x->to_stage);
        if (c->n_sent != c->n_received)
            return error_set(g->err, ERR_INPUT,
                             "%s: %s sends %" PRId64 " messages a step, %s receives %" PRId64,
                             game_channel(g, i), from, c->n_sent, to, c->n_received);
        for (int64_t k = 0; k < c->n_sent; k++)
            if (c->sent[k] != c->received[k])
                return error_set(g->err, ERR_INPUT,
                                 "%s: orders differ: message %" PRId64
                                 " that %s sends is of microbatch %" PRId32 ", %s expects %" PRId32,
                                 game_channel(g, i), k, from, c->sent[k], to, c->received[k]);
    }
    return OK;
}

/* Every member launches its group once a step, and "before" has no cycle (Kahn, 1962). */
static enum status compare_streams(struct game *g)
{
    int32_t n = g->p->n_groups;
    int32_t *launches = ARENA_ARRAY(g->a, int32_t, (size_t)n),
            *before = ARENA_ARRAY(g->a, int32_t, (size_t)n);
    int32_t *stack = ARENA_ARRAY(g->a, int32_t, (size_t)n), n_stack = 0, n_sorted = 0;
    for (int32_t i = 0; i < g->p->n_devices; i++)
        for (int32_t k = 0; k < g->lanes[i].n_stream; k++) {
            launches[g->lanes[i].stream[k]]++;
            if (k) before[g->lanes[i].stream[k]]++;
        }
    for (int32_t i = 0; i < n; i++) {
        if (launches[i] != group_launches(&g->p->groups[i]))
            return error_set(g->err, ERR_INPUT,
                             "group %s: %" PRId32 " launches a step by %" PRId32 " members",
                             g->p->groups[i].name, launches[i], group_launches(&g->p->groups[i]));
        if (!before[i]) stack[n_stack++] = i;
    }
    int32_t *place = ARENA_ARRAY(g->a, int32_t, (size_t)g->p->n_devices);
    while (n_stack) {
        const struct group *group = &g->p->groups[stack[--n_stack]];
        n_sorted++;
        for (int32_t k = 0; k < group_launches(group); k++) {
            int32_t lane = g->lane_of_stage[group->members[k].stage];
            const struct lane_state *l = &g->lanes[lane];
            if (++place[lane] < l->n_stream && !--before[l->stream[place[lane]]])
                stack[n_stack++] = l->stream[place[lane]];
        }
    }
    for (int32_t i = 0; i < n && n_sorted < n; i++)
        if (before[i])
            return error_set(
                g->err, ERR_INPUT,
                "groups are met in different orders: no lane order fits all of %s and others",
                g->p->groups[i].name);
    return OK;
}

enum status game_orders(struct game *g)
{
    boil(g);
    for (int32_t i = 0; i < g->p->n_devices; i++) TRY(walk_lane(g, &g->lanes[i]));
    TRY(compare_orders(g));
    return compare_streams(g);
}
