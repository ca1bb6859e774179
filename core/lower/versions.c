#include "core/lower/versions.h"

#include "core/base/arena.h"
#include "core/lower/lowering.h"
#include "core/lower/writer.h"

void lower_previous_slot(struct stage_scratch *h, int32_t parameter, int32_t tensor, int64_t region)
{
    struct program_parameter *p = &h->b->s->parameters[parameter];
    if (!plan_delays_gradients(h->l->plan)) return;
    struct slot s = h->b->s->slots[p->slot];
    s.name = arena_join(h->l->a, s.name, ".previous"), s.offset_bytes += region;
    h->slot_forward[tensor] = h->slot_back[tensor] = lower_add_slot(h, s);
    p->previous = 1 + h->slot_forward[tensor];
}

int32_t lower_latest(const struct program_stage *s, int32_t slot)
{
    const struct slot *x = &s->slots[slot];
    return x->class == SLOT_PARAMETER && x->parameter >= 0 ? s->parameters[x->parameter].slot : slot;
}

static void keep(struct writer *w, const char *name, int32_t from, int32_t to)
{
    writer_op(w, &(struct program_op){.kind = OP_slice,
                                      .phase = PHASE_U,
                                      .attrs = {.sequences = w->b->s->slots[from].shape.dim[0]},
                                      .name = arena_join(w->l->a, name, ".keep"),
                                      .layer = w->b->s->first_layer,
                                      .n_inputs = 1,
                                      .n_outputs = 1,
                                      .input = {from},
                                      .output = {to}});
}

void lower_keep_versions(struct writer *w)
{
    const struct program_stage *s = w->b->s;
    const struct stage_slots *x = w->h->slots;
    bool flat = x->run[0][UPDATE_P] >= 0 || x->run[1][UPDATE_P] >= 0;
    if (!plan_delays_gradients(w->l->plan)) return;
    for (int k = 0; k < 2; k++)
        if (x->run[k][UPDATE_P] >= 0) keep(w, k ? "other" : "decayed", x->run[k][UPDATE_P], x->run[k][UPDATE_PREVIOUS]);
    for (int32_t i = 0; i < s->n_parameters && !flat; i++)
        keep(w, s->parameters[i].name, s->parameters[i].slot, s->parameters[i].previous - 1);
}
