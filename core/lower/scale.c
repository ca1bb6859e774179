/* core/lower/scale.c - loss scaling (core/graph/loss_scale.h) in a program: slots of its numbers, and the agreement of all devices
 * on whether every gradient of a step is finite, before any update.
 *
 * Every stage checks its reduced gradients and sets an overflow flag. The flags are summed
 * along links that the plan already uses: over the chunks of a device, along the devices of a replica as its activations go,
 * between the replicas over the devices of layer 0, and back along each replica and to the chunks. Only whether the sum is 0
 * matters, so a flag may be counted twice. Then each stage updates its own copy of the numbers by the same rule. All
 * of it runs on the devices' streams, after the gradient all-reduces and before the updates, without the host, so a host that
 * enqueues ahead still can. Equal devices do this alike, so the simulator can still fold them.
 * Rejected: one ring over all devices, because it needs links that the plan does not use; a flag in every gradient all-reduce,
 * because it reaches only the replicas of one stage.
 */
#include "core/lower/scale.h"

#include "core/lower/groups.h"
#include "core/lower/links.h"
#include "core/lower/slots.h"
#include "core/lower/writer.h"
#include "core/lower/zero_slots.h"

#include <inttypes.h>

/* --- slots --- */

int32_t lower_scale_slots(const struct stage_scratch *h)
{
    struct slot scale = {.name = "loss_scale",
                         .class = SLOT_STATE,
                         .dtype = DTYPE_fp32,
                         .shape = {.rank = 1, .dim = {LOSS_SCALE_NUMBERS}},
                         .parameter = -1};
    struct slot overflow = {.name = "overflow",
                            .class = SLOT_GRADIENT,
                            .dtype = DTYPE_fp32,
                            .shape = {.rank = 1, .dim = {1}},
                            .parameter = -1};
    h->b->s->scale_slot = lower_last_slot(h, scale);
    return lower_last_slot(h, overflow);
}

void lower_scale_segment(const struct stage_scratch *h, struct collective_member *m)
{
    m->segments = ARENA_ARRAY(h->l->a, int32_t, 1);
    m->segments[0] = h->slots->overflow;
    m->n_segments = 1;
}

/* --- groups --- */

static struct collective *new_group(struct lowering *l, const char *name,
                                    enum collective_algorithm algorithm, int32_t n)
{
    struct collective *g =
        lower_group_new(l, name, algorithm, n,
                        (struct group_plan){.overflow = true});
    g->elements = 1;
    for (int32_t i = 0; i < n; i++) g->members[i].chain_ring = -1;
    return g;
}

/* The chunk of a device that is updated first represents it. */
static int32_t speaker(const struct lane_build *lane) { return lane->stages[lane->n_stages - 1]; }

static enum status add_chunks(struct lowering *l, const char *name, struct error *err)
{
    for (int32_t i = 0; i < l->p->n_devices; i++) {
        const struct lane_build *lane = &l->lanes[i];
        if (lane->n_stages < 2) continue;
        struct collective *g = new_group(l, arena_printf(l->a, "%s@%" PRId32 ".chunks", name, i),
                                         ALGORITHM_LOCAL, lane->n_stages);
        for (int32_t c = 0; c < lane->n_stages; c++)
            g->members[c].stage = lane->stages[lane->n_stages - 1 - c];
        TRY(lower_group_join(l, l->p->n_collectives - 1, err));
    }
    return OK;
}

static bool linked(struct lowering *l, int32_t stage, int32_t other)
{
    int32_t link, direction;
    return lower_link(l, &l->stages[stage], &l->stages[other], &link, &direction, NULL) == OK;
}

/* The devices of one stage in order, from one with a link to the end of the chain. Returns their number. */
static int32_t chain_stage(struct lowering *l, const struct lane_build *lane, struct collective *g,
                           int32_t at)
{
    int32_t n = l->stages[lane->stages[0]].n_shards, first = 0;
    while (at && first < n && !linked(l, g->members[at - 1].stage, speaker(&lane[first]))) first++;
    for (int32_t k = 0; k < n; k++)
        g->members[at + k].stage = speaker(&lane[(first == n ? k : first + k) % n]);
    return n;
}

/* Along each replica with several devices, in the order of activations. */
static enum status add_chains(struct lowering *l, const char *name, struct error *err)
{
    for (int32_t i = 0, n; i < l->p->n_devices; i += n) {
        int32_t r = l->lanes[i].replica;
        for (n = 1; i + n < l->p->n_devices && l->lanes[i + n].replica == r;) n++;
        if (n < 2) continue;
        struct collective *g =
            new_group(l, arena_printf(l->a, "%s@%" PRId32, name, r), ALGORITHM_CHAIN, n);
        for (int32_t k = 0; k < n;) k += chain_stage(l, &l->lanes[i + k], g, k);
        TRY(lower_group_join(l, l->p->n_collectives - 1, err));
    }
    return OK;
}

/* Between replicas, as layer 0's gradient all-reduce. */
static enum status add_replicas(struct lowering *l, struct error *err)
{
    int32_t n = l->plan->n_replicas;
    struct collective *g =
        new_group(l, "overflow", l->plan->deterministic ? ALGORITHM_CHAIN : ALGORITHM_RING, n);
    for (int32_t r = 0; r < n; r++)
        g->members[r].stage = speaker(&l->lanes[l->stages[lower_owner(l, r, 0)].s->device]);
    return lower_group_join(l, l->p->n_collectives - 1, err);
}

enum status lower_scale_groups(struct lowering *l, struct error *err)
{
    bool replicas = l->plan->n_replicas > 1;
    TRY(add_chunks(l, "overflow", err));
    TRY(add_chains(l, "overflow", err));
    if (replicas) TRY(add_replicas(l, err));
    if (replicas) TRY(add_chains(l, "overflow.back", err));
    return l->p->n_devices > 1 ? add_chunks(l, "overflow.back", err) : OK;
}

/* --- instructions --- */

static void look_at(struct writer *w, int32_t gradient, bool *any)
{
    const struct stage_build *b = w->b;
    writer_op(w, &(struct program_op){
                     .kind = OP_overflow,
                     .phase = PHASE_U,
                     .attrs = {.accumulate = *any},
                     .name = arena_join(w->l->a, b->s->slots[gradient].name, ".overflow"),
                     .layer = b->s->first_layer,
                     .n_inputs = 1,
                     .n_outputs = 1,
                     .input = {gradient},
                     .output = {w->h->slots->overflow}});
    *any = true;
}

/* Elements [first, last) of a flat parameter's own gradient. */
static void look_within(struct writer *w, int32_t own, int64_t first, int64_t last, bool *any)
{
    struct slot view = w->b->s->slots[own];
    if (first >= last) return;
    view.name = arena_printf(w->l->a, "%s[%" PRId64 "..%" PRId64 ")", view.name, first, last);
    view.offset_bytes += first * dtype_bytes(view.dtype);
    view.shape.dim[0] = last - first;
    look_at(w, lower_add_slot(w->h, view), any);
}

/* From zero 2 on gradients are in scratch, where the padding between parameters is undefined. */
static void check_flat_param(struct writer *w, const struct flat_shard *f, int32_t flat_param,
                             bool *any)
{
    const struct lower_view *v = w->b->v;
    const struct group_plan *g = lower_group_plan(w->l, f->group);
    const struct zero_group *z = g->divided;
    int32_t own = f->own_gradient[flat_param], n = w->l->p->collectives[f->group].n_members;
    int64_t part = z->flat_param[flat_param].elements / n,
            at = program_collective_own_chunk(f->member, n) * part;
    int64_t first = 0, last = 0; /* of adjacent parameters */
    if (g->zero < 2) {
        look_at(w, own, any);
        return;
    }
    for (int32_t i = 0; i < g->n_uses; i++) {
        const struct flat_param_place *p = &z->places[i];
        const struct tensor *t = &v->g->tensors[v->param_uses[g->uses[i]].parameter];
        int64_t low = p->first - at, high = low + shape_elements(&t->shape);
        low = low < 0 ? 0 : low, high = high > part ? part : high;
        if (p->flat_param != flat_param || low >= high) continue;
        if (low != last) look_within(w, own, first, last, any), first = low;
        last = high;
    }
    look_within(w, own, first, last, any);
}

void lower_scale_look(struct writer *w)
{
    const struct stage_build *b = w->b;
    const struct program_stage *s = b->s;
    const struct stage_slots *slots = w->h->slots;
    const struct stage_flats *flat_shards = w->h->flat_shards;
    bool any = false, flat = slots->run[0][0] >= 0 || slots->run[1][0] >= 0;
    for (int run = 0; run < 2; run++)
        if (slots->run[run][0] >= 0) look_at(w, slots->run[run][UPDATE_G], &any);
    for (int32_t i = 0; i < s->n_parameters && !flat; i++) {
        const struct program_parameter *p = &s->parameters[i];
        int32_t gradient = p->shard ? -1 : lower_primary_gradient(b, p);
        if (gradient >= 0) look_at(w, gradient, &any);
    }
    for (int32_t i = 0; i < flat_shards->n; i++) {
        const struct flat_shard *f = &flat_shards->list[i];
        const struct zero_group *z = lower_zero_group(w->l, f->group);
        for (int32_t k = 0; z->owner_group == f->group && k < z->n_flat_params; k++)
            check_flat_param(w, f, k, &any);
    }
    if (!any) writer_zero(w, PHASE_U, s->first_layer, "overflow.none", slots->overflow);
}

void lower_scale_agree(struct writer *w)
{
    struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    const struct lane_build *lane = &l->lanes[b->s->device];
    for (int32_t i = 0; i < b->groups->n && b->index == speaker(lane); i++) {
        if (!lower_group_plan(l, b->groups->group[i])->overflow) continue;
        writer_emit(w, INSTR_COLLECTIVE_START, b->groups->group[i]);
        writer_emit(w, INSTR_COLLECTIVE_WAIT, b->groups->group[i]);
    }
    writer_op(w, &(struct program_op){.kind = OP_rescale,
                                     .phase = PHASE_U,
                                     .attrs = {.grows_after = l->p->loss_scale.grows_after},
                                     .name = "loss_scale.rescale",
                                     .layer = b->s->first_layer,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .input = {w->h->slots->overflow},
                                     .output = {b->s->scale_slot}});
}
