/* core/lower/scale.c - loss scaling (core/graph/loss_scale.h) in a program: slots of its numbers, and the agreement of all devices
 * on whether every gradient of a step is finite, and on the sum of their squares (core/lower/clip.h), before any update.
 *
 * Every stage checks its reduced gradients, sets an overflow flag and adds squares. Flags and sums are summed
 * along links that the plan already uses: over the chunks of a device, along the devices of a replica as its activations go,
 * between the replicas over the devices of layer 0, and back along each replica and to the chunks. On the way back one member has the
 * sum of all, and the sums of squares of the others are 0 (lower_scale_gives_back); of flags only whether the sum is 0 matters, so that
 * they may be counted twice. A sum of squares is the same number on all devices, because every device receives it. Then each stage updates its own copy of the numbers by the same rule. All
 * of it runs on the devices' streams, after the gradient all-reduces and before the updates, without the host, so a host that
 * enqueues ahead still can. Equal devices do this alike, so the simulator can still fold them.
 * Rejected: one ring over all devices, because it needs links that the plan does not use; a flag in every gradient all-reduce,
 * because it reaches only the replicas of one stage.
 */
#include "core/lower/scale.h"

#include "core/lower/groups.h"
#include "core/lower/links.h"
#include "core/lower/outer.h"
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

void lower_scale_segments(const struct stage_scratch *h, bool back, struct collective_member *m)
{
    m->segments = ARENA_ARRAY(h->l->a, int32_t, 2);
    if (lower_scales(h->l)) m->segments[m->n_segments++] = h->slots->overflow;
    if (lower_clips(h->l)) m->segments[m->n_segments++] = back ? h->slots->squares_back : h->slots->squares;
}

/* --- groups --- */

static struct collective *new_group(struct lowering *l, const char *name, enum collective_algorithm algorithm, int32_t n, bool back)
{
    struct collective *g = lower_group_new(l, name, algorithm, n, (struct group_plan){.agrees = true, .back = back});
    g->elements = lower_scales(l) + lower_clips(l);
    for (int32_t i = 0; i < n; i++) g->members[i].chain_ring = -1;
    return g;
}

/* Of an island that does not update in every step: launched in some steps only. */
static enum status join(struct lowering *l, struct collective *g, struct error *err)
{
    g->repeated = lower_outer_steps(l, &l->stages[g->members[0].stage]) > 1;
    return lower_group_join(l, l->p->n_collectives - 1, err);
}

static const char *name_of(const struct lowering *l) { return lower_clips(l) ? "gradient_norm" : "overflow"; }

/* The chunk of a device that is updated first represents it. */
static int32_t speaker(const struct lane_build *lane) { return lane->stages[lane->n_stages - 1]; }

/* Replicas that agree. Islands of local SGD clip by their own norms. */
static bool together(const struct lowering *l, int32_t replica, int32_t other)
{
    return !lower_clips(l) || plan_island(l->plan, replica) == plan_island(l->plan, other);
}

static int32_t n_together(const struct lowering *l, int32_t replica)
{
    int32_t n = 0;
    if (!lower_is_local(l)) return l->plan->n_replicas;
    for (int32_t r = 0; r < l->plan->n_replicas; r++) n += together(l, replica, r);
    return n;
}

static enum status add_chunks(struct lowering *l, const char *name, bool back, struct error *err)
{
    for (int32_t i = 0; i < l->p->n_devices; i++) {
        const struct lane_build *lane = &l->lanes[i];
        if (lane->n_stages < 2) continue;
        struct collective *g = new_group(l, arena_printf(l->a, "%s@%" PRId32 ".chunks", name, i),
                                         ALGORITHM_LOCAL, lane->n_stages, back);
        for (int32_t c = 0; c < lane->n_stages; c++)
            g->members[c].stage = lane->stages[lane->n_stages - 1 - c];
        TRY(join(l, g, err));
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

/* Along each replica with several devices, in the order of activations; back: of several replicas. */
static enum status add_chains(struct lowering *l, const char *name, bool back, struct error *err)
{
    for (int32_t i = 0, n; i < l->p->n_devices; i += n) {
        int32_t r = l->lanes[i].replica;
        for (n = 1; i + n < l->p->n_devices && l->lanes[i + n].replica == r;) n++;
        if (n < 2 || (back && n_together(l, r) < 2)) continue;
        struct collective *g =
            new_group(l, arena_printf(l->a, "%s@%" PRId32, name, r), ALGORITHM_CHAIN, n, back);
        for (int32_t k = 0; k < n;) k += chain_stage(l, &l->lanes[i + k], g, k);
        TRY(join(l, g, err));
    }
    return OK;
}

/* The device of a replica that is in the exchange between replicas: the first one with layer 0. */
static int32_t replica_speaker(const struct lowering *l, int32_t replica)
{
    return speaker(&l->lanes[l->stages[lower_owner(l, replica, 0)].s->device]);
}

bool lower_scale_gives_back(const struct lowering *l, const struct stage_build *b)
{
    if (b->index != speaker(&l->lanes[b->s->device])) return l->p->n_devices == 1;
    return n_together(l, b->replica) == 1 || b->index == replica_speaker(l, b->replica);
}

/* Between replicas, as layer 0's gradient all-reduce. */
static enum status add_replicas(struct lowering *l, struct error *err)
{
    for (int32_t r = 0; r < l->plan->n_replicas; r++) {
        int32_t n = n_together(l, r), first = 0, at = 0;
        while (!together(l, first, r)) first++;
        if (n < 2 || first != r) continue;
        struct collective *g = new_group(l, name_of(l), l->plan->deterministic ? ALGORITHM_CHAIN : ALGORITHM_RING, n, false);
        for (int32_t k = r; k < l->plan->n_replicas; k++)
            if (together(l, r, k)) g->members[at++].stage = replica_speaker(l, k);
        TRY(join(l, g, err));
    }
    return OK;
}

enum status lower_scale_groups(struct lowering *l, struct error *err)
{
    const char *name = name_of(l), *back = arena_join(l->a, name, ".back");
    bool replicas = l->plan->n_replicas > 1;
    TRY(add_chunks(l, name, false, err));
    TRY(add_chains(l, name, false, err));
    if (replicas) TRY(add_replicas(l, err));
    if (replicas) TRY(add_chains(l, back, true, err));
    return l->p->n_devices > 1 ? add_chunks(l, back, true, err) : OK;
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

static void write_rescale(struct writer *w)
{
    writer_op(w, &(struct program_op){.kind = OP_rescale,
                                     .phase = PHASE_U,
                                     .attrs = {.grows_after = w->l->p->loss_scale.grows_after},
                                     .name = "loss_scale.rescale",
                                     .layer = w->b->s->first_layer,
                                     .n_inputs = 1,
                                     .n_outputs = 1,
                                     .input = {w->h->slots->overflow},
                                     .output = {w->b->s->scale_slot}});
}

void lower_scale_agree(struct writer *w)
{
    struct lowering *l = w->l;
    const struct stage_build *b = w->b;
    const struct lane_build *lane = &l->lanes[b->s->device];
    for (int32_t i = 0; i < b->groups->n && b->index == speaker(lane); i++) {
        if (!lower_group_plan(l, b->groups->group[i])->agrees) continue;
        writer_emit(w, INSTR_COLLECTIVE_START, b->groups->group[i]);
        writer_emit(w, INSTR_COLLECTIVE_WAIT, b->groups->group[i]);
    }
    if (lower_scales(l)) write_rescale(w);
    if (lower_clips(l)) lower_clip_write(w);
}
