/* core/program/check_offload.c - the deadlock check of copies to and from host memory. They wait for nothing but the lane's own calls
 * (core/program/offload.h), so it is enough that every FETCH follows the copy that it waits for. */
#include "core/program/game.h"
#include "core/program/offload.h"

#include "core/base/arena.h"

#include <inttypes.h>

void game_offloads(struct game *g)
{
    g->offloads = ARENA_ARRAY(g->a, struct offload_state, (size_t)g->p->n_stages);
    for (int32_t i = 0; i < g->p->n_stages; i++)
        if (g->p->stages[i].offload.count) offload_start(g->a, &g->p->stages[i], &g->offloads[i]);
}

static struct offload_state *state_of(const struct game *g, const struct game_lane *l)
{
    return &g->offloads[l->s - g->p->stages];
}

enum status game_offload(struct game *g, const struct game_lane *l, const struct instr *instr, int64_t seq)
{
    struct offload_state *x = state_of(g, l);
    struct offload_streams timeless = {0};
    struct offload_copies back;
    int64_t held;
    const char *device = g->p->devices[l->device].name, *call = game_call(g, l);
    if (instr->kind == INSTR_OFFLOAD) {
        if (offload_overwrites(x, seq, instr->arg, &held))
            return error_set(g->err, ERR_INPUT,
                             "%s at %s: OFFLOAD overwrites microbatch %" PRId64 " in host memory, which has %" PRId32 " buffers", device,
                             call, held % l->s->microbatches, x->count);
        offload_out(x, &timeless, seq, instr->arg, 0, 0, &back);
        return OK;
    }
    if (offload_arrival(x, seq, instr->arg) < 0)
        return error_set(g->err, ERR_INPUT,
                         "deadlock: %s at %s (waits for its activations from host memory: no OFFLOAD precedes, or the calls before do not "
                         "free a buffer)",
                         device, call);
    offload_fetched(x, &timeless, seq, instr->arg, 0, 0);
    return OK;
}

void game_consumed(struct game *g, const struct game_lane *l, int64_t seq)
{
    offload_consumed(state_of(g, l), &(struct offload_streams){0}, seq, 0, 0);
}
