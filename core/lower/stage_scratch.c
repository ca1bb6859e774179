/* core/lower/stage_scratch.c - allocation of the current stage's working state. */
#include "core/lower/stage_scratch.h"

#include "core/lower/lowering.h"
#include "core/lower/memo.h"

#include <string.h>

struct stage_scratch *stage_scratch_new(struct lowering *l)
{
    size_t n = 0, ops = 0, param_uses = (size_t)l->uses->n_param_uses;
    for (int32_t i = 0; i < l->uses->n_views; i++) {
        const struct graph *g = l->uses->views[i].g;
        n = (size_t)g->n_tensors > n ? (size_t)g->n_tensors : n;
        ops = (size_t)g->n_ops > ops ? (size_t)g->n_ops : ops;
    }
    struct stage_scratch *h = ARENA_ARRAY(l->tables, struct stage_scratch, 1);
    *h = (struct stage_scratch){.l = l,
                                .work = l->o->memo ? l->o->memo->work : arena_new(),
                                .uses_forward = ARENA_ARRAY(l->tables, uint8_t, n),
                                .uses_back = ARENA_ARRAY(l->tables, uint8_t, n),
                                .rerun = ARENA_ARRAY(l->tables, bool, ops),
                                .slot_forward = ARENA_ARRAY(l->tables, int32_t, n),
                                .slot_back = ARENA_ARRAY(l->tables, int32_t, n),
                                .chain_slot = ARENA_ARRAY(l->tables, int32_t, param_uses),
                                .gradient_slot = ARENA_ARRAY(l->tables, int32_t, param_uses),
                                .done_at = ARENA_ARRAY(l->tables, int32_t, param_uses)};
    return h;
}

void stage_scratch_begin(struct stage_scratch *h, struct stage_build *b)
{
    size_t n = (size_t)b->v->g->n_tensors, param_uses = (size_t)h->l->uses->n_param_uses;
    arena_reset(h->work);
    h->b = b, h->v = b->v;
    h->slots = NULL, h->flat_shards = NULL, h->block = NULL;
    memset(h->uses_forward, 0, n);
    memset(h->uses_back, 0, n);
    memset(h->rerun, 0, (size_t)b->v->g->n_forward * sizeof *h->rerun);
    memset(h->slot_forward, -1, n * sizeof *h->slot_forward);
    memset(h->slot_back, -1, n * sizeof *h->slot_back);
    memset(h->chain_slot, -1, param_uses * sizeof *h->chain_slot);
    memset(h->gradient_slot, -1, param_uses * sizeof *h->gradient_slot);
    memset(h->done_at, 0, param_uses * sizeof *h->done_at);
}

void stage_scratch_free(struct stage_scratch *h)
{
    if (!h->l->o->memo) arena_free(h->work);
}

void stage_scratch_end(struct stage_scratch *h)
{
    struct arena *a = h->l->a;
    struct program_stage *s = h->b->s;
    s->slots = arena_copy(a, s->slots, (size_t)s->n_slots * sizeof *s->slots);
    s->buffer_rings = arena_copy(a, s->buffer_rings, (size_t)s->n_buffer_rings * sizeof *s->buffer_rings);
    s->ops = arena_copy(a, s->ops, (size_t)s->n_ops * sizeof *s->ops);
    s->parameters = arena_copy(a, s->parameters, (size_t)s->n_parameters * sizeof *s->parameters);
    s->procedures = arena_copy(a, s->procedures, (size_t)s->n_procedures * sizeof *s->procedures);
    for (int32_t i = 0; i < s->n_procedures; i++) {
        struct procedure *q = &s->procedures[i];
        q->instrs = arena_copy(a, q->instrs, (size_t)q->n_instrs * sizeof *q->instrs);
    }
}
