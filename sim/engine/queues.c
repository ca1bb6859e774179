/* Which of the messages that become ready in one nanosecond is first in the queue of a FIFO link that several lanes share: that of
 * the lower lane, and of one lane that of the channel which it names first. The order follows from the program alone and not from
 * the order of events, so it is the same on all links with equal traffic, and one of them may represent the others (fold.h). */
#include "sim/engine/collectives_internal.h"

#include "core/base/arena.h"

#include <stdlib.h>

struct queued {
    int32_t resource, lane,
        place; /* in the lane: of the channel's first SEND; behind all channels: a hop */
    uint64_t *order;
};

static int compare(const void *a, const void *b)
{
    const struct queued *x = a, *y = b;
    if (x->resource != y->resource) return x->resource < y->resource ? -1 : 1;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* (n_channels) by the number of the instruction of its lane that sends it first. */
static int32_t *find_places(const struct engine *e, struct arena *a)
{
    const struct program *p = e->program;
    int32_t *place = ARENA_ARRAY(a, int32_t, (size_t)p->n_channels + 1);
    for (int32_t i = 0; i < p->n_devices; i++) {
        int32_t n = 0;
        for (int32_t s = 0; s < p->lanes[i].n_stages; s++) {
            const struct program_stage *x = &p->stages[p->lanes[i].stages[s]];
            for (int32_t f = 0; f < x->n_procedures; f++)
                for (int32_t k = 0; k < x->procedures[f].n_instrs; k++) {
                    const struct instr *in = &x->procedures[f].instrs[k];
                    if (in->kind == INSTR_SEND && !place[in->arg]) place[in->arg] = ++n;
                }
        }
    }
    return place;
}

void queues_new(struct engine *e)
{
    struct collective_streams *c = e->collectives;
    int32_t n_channels = e->program->n_channels;
    struct arena *scratch = arena_new();
    struct queued *all =
        ARENA_ARRAY(scratch, struct queued, (size_t)n_channels + (size_t)c->n_hops + 1);
    size_t n = 0;
    int32_t *place = NULL;
    for (int32_t i = 0; i < n_channels; i++) {
        struct channel_state *x = &e->channels[i];
        if (!network_queues(e->network, x->resource)) continue;
        if (!place) place = find_places(e, scratch);
        all[n++] = (struct queued){x->resource, x->from_lane, place[i], &x->order};
    }
    for (int32_t i = 0; i < c->n_hops; i++)
        if (network_queues(e->network, c->hops[i].resource))
            all[n++] = (struct queued){c->hops[i].resource, c->hops[i].from_lane, INT32_MAX,
                                       &c->hops[i].order};
    if (n) qsort(all, n, sizeof *all, compare);
    uint64_t order = 0;
    for (size_t i = 0; i < n; i++) {
        if (!i || all[i].resource != all[i - 1].resource) order = 0;
        if (!order || compare(&all[i - 1], &all[i])) order++;
        *all[i].order = order < EVENT_ORDERS ? order : EVENT_ORDERS - 1;
    }
    arena_free(scratch);
}
