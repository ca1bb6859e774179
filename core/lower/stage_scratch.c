/* core/lower/stage_scratch.c - allocation of the current stage's working state. */
#include "core/lower/stage_scratch.h"

#include "core/lower/lowering.h"

#include <string.h>

struct stage_scratch *stage_scratch_new(struct lowering *l)
{
    size_t n = 0, ops = 0, param_uses = (size_t)l->uses->n_param_uses;
    for (int32_t i = 0; i < l->uses->n_views; i++) {
        const struct graph *g = l->uses->views[i].g;
        n = (size_t)g->n_tensors > n ? (size_t)g->n_tensors : n;
        ops = (size_t)g->n_ops > ops ? (size_t)g->n_ops : ops;
    }
    struct stage_scratch *h = ARENA_ARRAY(l->a, struct stage_scratch, 1);
    *h = (struct stage_scratch){.l = l,
                                .uses_forward = ARENA_ARRAY(l->a, uint8_t, n),
                                .uses_back = ARENA_ARRAY(l->a, uint8_t, n),
                                .rerun = ARENA_ARRAY(l->a, bool, ops),
                                .slot_forward = ARENA_ARRAY(l->a, int32_t, n),
                                .slot_back = ARENA_ARRAY(l->a, int32_t, n),
                                .chain_slot = ARENA_ARRAY(l->a, int32_t, param_uses),
                                .gradient_slot = ARENA_ARRAY(l->a, int32_t, param_uses),
                                .done_at = ARENA_ARRAY(l->a, int32_t, param_uses)};
    return h;
}

void stage_scratch_begin(struct stage_scratch *h, struct stage_build *b)
{
    size_t n = (size_t)b->v->g->n_tensors, param_uses = (size_t)h->l->uses->n_param_uses;
    h->b = b, h->v = b->v;
    h->slots = NULL, h->flat_shards = NULL;
    memset(h->uses_forward, 0, n);
    memset(h->uses_back, 0, n);
    memset(h->rerun, 0, (size_t)b->v->g->n_forward * sizeof *h->rerun);
    memset(h->slot_forward, -1, n * sizeof *h->slot_forward);
    memset(h->slot_back, -1, n * sizeof *h->slot_back);
    memset(h->chain_slot, -1, param_uses * sizeof *h->chain_slot);
    memset(h->gradient_slot, -1, param_uses * sizeof *h->gradient_slot);
    memset(h->done_at, 0, param_uses * sizeof *h->done_at);
}
